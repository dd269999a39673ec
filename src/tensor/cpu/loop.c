/*
 * tensor/cpu/loop.c - spreading work over threads, and walking tensors of any strides.
 */
#include "tensor/cpu/cpu.h"

/* The thread sanitizer does not see how libgomp's threads wait for each other. It is told here, at the only parallel
 * region of the library: what came before the fork comes before each body, and each body before what follows the join.
 * Bodies stay unordered among themselves, so that races between them are found. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define TSAN 1
#endif
#ifdef TSAN
#include <sanitizer/tsan_interface.h>
#define NOT_TRACED __attribute__((no_sanitize("thread"))) /* the compiler's own variables around the region */
#define BEFORE(mark) __tsan_release(mark)
#define AFTER(mark) __tsan_acquire(mark)
#else
#define NOT_TRACED
#define BEFORE(mark) (void)(mark)
#define AFTER(mark) (void)(mark)
#endif

NOT_TRACED static void spread(const eg_context *ctx, int64_t n, int64_t work, int64_t align, eg__body body, void *arg)
{
    if (eg__is_dry(ctx))
        return;
    int threads = eg_context_threads(ctx);
    if (threads < 2 || work < EG__SERIAL || n <= align) {
        if (n > 0)
            body(arg, 0, n);
        return;
    }
    int64_t pieces = EG_MIN((int64_t)threads, (n + align - 1) / align);
    int64_t size = ((n + pieces - 1) / pieces + align - 1) / align * align;
    char forked, joined;
    BEFORE(&forked);
#pragma omp parallel for schedule(static, 1) num_threads((int)pieces)
    for (int64_t i = 0; i < pieces; i++) {
        int64_t begin = EG_MIN(i * size, n), end = EG_MIN(begin + size, n);
        AFTER(&forked);
        if (begin < end)
            body(arg, begin, end);
        BEFORE(&joined);
    }
    AFTER(&joined);
}

void eg__for(const eg_context *ctx, int64_t n, int64_t work, eg__body body, void *arg)
{
    spread(ctx, n, work, 16, body, arg);
}

void eg__for_each(const eg_context *ctx, int64_t n, int64_t work, eg__body body, void *arg)
{
    spread(ctx, n, work, 1, body, arg);
}

/* Dimension j of the tensors lies outside of dimension i: decided by the first operand that tells them apart. */
static bool outside(const eg__loop *loop, int j, int i)
{
    for (int k = 0; k < loop->n; k++) {
        if (loop->strides[k][j] == 0 || loop->strides[k][i] == 0)
            continue; /* broadcast here: another operand decides */
        if (loop->strides[k][j] != loop->strides[k][i])
            return loop->strides[k][j] > loop->strides[k][i];
    }
    return j < i;
}

static void swap_dims(eg__loop *loop, int i, int j)
{
    int64_t d = loop->dims[i];
    loop->dims[i] = loop->dims[j];
    loop->dims[j] = d;
    for (int k = 0; k < loop->n; k++) {
        int64_t s = loop->strides[k][i];
        loop->strides[k][i] = loop->strides[k][j];
        loop->strides[k][j] = s;
    }
}

/* Whether stepping through dimension `inner` to its end arrives where one step of `outer` leads, for all operands. */
static bool mergeable(const eg__loop *loop, int outer, int inner)
{
    for (int k = 0; k < loop->n; k++)
        if (loop->strides[k][outer] != loop->strides[k][inner] * loop->dims[inner])
            return false;
    return true;
}

static void merge(eg__loop *loop)
{
    int last = 0;
    for (int i = 1; i < loop->ndim; i++) {
        if (mergeable(loop, last, i)) {
            loop->dims[last] *= loop->dims[i];
            for (int k = 0; k < loop->n; k++)
                loop->strides[k][last] = loop->strides[k][i];
        } else if (++last != i) {
            loop->dims[last] = loop->dims[i];
            for (int k = 0; k < loop->n; k++)
                loop->strides[k][last] = loop->strides[k][i];
        }
    }
    loop->ndim = EG_MIN(last + 1, loop->ndim);
}

void eg__loop_make(eg__loop *loop, int n, const eg_tensor *const *operands)
{
    *loop = (eg__loop){.n = n};
    for (int k = 0; k < n; k++)
        loop->data[k] = eg__f32(operands[k]);
    const eg_shape *shape = &operands[0]->shape;
    for (int i = 0; i < shape->ndim; i++) {
        int64_t size = 1;
        for (int k = 0; k < n; k++)
            size = operands[k]->shape.dims[i] == 1 ? size : operands[k]->shape.dims[i];
        if (size == 1)
            continue;
        loop->dims[loop->ndim] = size;
        for (int k = 0; k < n; k++)
            loop->strides[k][loop->ndim] = operands[k]->shape.dims[i] == 1 ? 0 : operands[k]->strides[i];
        loop->ndim++;
    }
    for (int i = 1; i < loop->ndim; i++)
        for (int j = i; j > 0 && outside(loop, j, j - 1); j--)
            swap_dims(loop, j, j - 1);
    merge(loop);
    /* In front, dimensions of size 1 make up two. */
    while (loop->ndim < 2) {
        for (int i = loop->ndim; i > 0; i--) {
            loop->dims[i] = loop->dims[i - 1];
            for (int k = 0; k < n; k++)
                loop->strides[k][i] = loop->strides[k][i - 1];
        }
        loop->dims[0] = 1;
        for (int k = 0; k < n; k++)
            loop->strides[k][0] = 0;
        loop->ndim++;
    }
}

typedef struct loop_work {
    const eg__loop *loop;
    eg__tile tile;
    void *arg;
} loop_work;

/* One single line: pieces of it. */
static void run_columns(void *arg, int64_t begin, int64_t end)
{
    const loop_work *w = arg;
    const eg__loop *l = w->loop;
    int64_t row[EG__LOOP_MAX] = {0}, col[EG__LOOP_MAX] = {0};
    float *data[EG__LOOP_MAX] = {0};
    for (int k = 0; k < l->n; k++) {
        col[k] = l->strides[k][1];
        data[k] = l->data[k] + begin * col[k];
    }
    w->tile(w->arg, 1, end - begin, data, row, col);
}

/* Lines begin .. end-1, counted through all dimensions but the last, in tiles that end where the dimension ends. */
static void run_lines(void *arg, int64_t begin, int64_t end)
{
    const loop_work *w = arg;
    const eg__loop *l = w->loop;
    int rows_dim = l->ndim - 2, cols_dim = l->ndim - 1;
    int64_t row[EG__LOOP_MAX] = {0}, col[EG__LOOP_MAX] = {0};
    for (int k = 0; k < l->n; k++) {
        row[k] = l->strides[k][rows_dim];
        col[k] = l->strides[k][cols_dim];
    }
    while (begin < end) {
        float *data[EG__LOOP_MAX] = {0};
        int64_t at = begin, in_dim = begin % l->dims[rows_dim];
        int64_t rows = EG_MIN(l->dims[rows_dim] - in_dim, end - begin);
        for (int k = 0; k < l->n; k++)
            data[k] = l->data[k];
        for (int i = rows_dim; i >= 0; i--) {
            for (int k = 0; k < l->n; k++)
                data[k] += at % l->dims[i] * l->strides[k][i];
            at /= l->dims[i];
        }
        w->tile(w->arg, rows, l->dims[cols_dim], data, row, col);
        begin += rows;
    }
}

void eg__loop_run(const eg_context *ctx, const eg__loop *loop, eg__tile tile, void *arg)
{
    loop_work w = {loop, tile, arg};
    int64_t lines = 1, cols = loop->dims[loop->ndim - 1];
    for (int i = 0; i < loop->ndim - 1; i++)
        lines *= loop->dims[i];
    if (lines == 0 || cols == 0)
        return;
    if (lines == 1)
        eg__for(ctx, cols, cols, run_columns, &w);
    else
        eg__for_each(ctx, lines, lines * cols, run_lines, &w);
}

const eg_tensor *eg__in_order_of(const eg_tensor *like, const eg_tensor *x, eg_tensor **owned)
{
    if (eg__same_strides(like, x))
        return x;
    *owned = eg__tensor_new_like(like);
    if (!*owned || eg__cpu_copy(x, *owned) != EG_OK)
        return NULL;
    return *owned;
}

eg_tensor *eg__new_with_innermost(const eg_tensor *like, int dim)
{
    eg_shape order = like->shape;
    int64_t strides[EG_MAX_DIMS] = {0}, step = like->shape.dims[dim];
    order.dims[order.ndim - 1] = like->shape.dims[dim];
    strides[dim] = 1;
    for (int d = like->shape.ndim - 1, at = order.ndim - 2; d >= 0; d--) {
        if (d == dim)
            continue;
        strides[d] = step;
        step *= like->shape.dims[d];
        order.dims[at--] = like->shape.dims[d];
    }
    eg_tensor *whole = eg__tensor_new(like->ctx, EG_F32, order, EG_LAYOUT_ROW_MAJOR);
    eg_tensor *view = whole ? eg__tensor_new_view(whole, like->shape, strides, 0) : NULL;
    eg_tensor_release(whole);
    return view;
}

int64_t eg__line_at(const eg_tensor *t, int dim, int64_t line)
{
    int64_t at = 0;
    for (int d = t->shape.ndim - 1; d >= 0; d--) {
        if (d == dim)
            continue;
        at += line % t->shape.dims[d] * t->strides[d];
        line /= t->shape.dims[d];
    }
    return at;
}

eg_tensor *eg__with_lines(const eg_tensor *t, int dim, bool copy, eg_tensor **owned)
{
    if (eg__has_lines(t, dim))
        return (eg_tensor *)(uintptr_t)t;
    *owned = eg__new_with_innermost(t, dim);
    if (*owned && copy && eg__cpu_copy(t, *owned) != EG_OK)
        return NULL;
    return *owned;
}

const eg_tensor *eg__in_channels_last(const eg_tensor *x, eg_tensor **owned)
{
    if (eg__is_channels_last(x))
        return x;
    *owned = eg__tensor_new(x->ctx, x->dtype, x->shape, EG_LAYOUT_DEFAULT);
    if (!*owned || eg__tensor_copy_into(*owned, x) != EG_OK)
        return NULL;
    return *owned;
}

eg_tensor *eg__out_channels_last(eg_tensor *y, eg_tensor **owned)
{
    if (eg__is_channels_last(y))
        return y;
    *owned = eg__tensor_new(y->ctx, y->dtype, y->shape, EG_LAYOUT_DEFAULT);
    return *owned;
}

eg_status eg__out_finish(eg_status status, eg_tensor *y, eg_tensor *owned)
{
    if (owned && status == EG_OK)
        status = eg__tensor_copy_into(y, owned);
    eg_tensor_release(owned);
    return status;
}

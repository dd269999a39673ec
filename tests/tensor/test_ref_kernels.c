/*
 * tests/tensor/test_ref_kernels.c - the reference kernels against PyTorch's numbers and against cases done by hand.
 *
 * Every PyTorch case runs in float32 and float64, and with its tensors laid out in three ways: channels-last,
 * row-major, and scattered: a view with gaps in every dimension, which no kernel may write to.
 */
#include "support.h"
#include "vectors.h"

#include "tensor/kernels.h"

typedef enum placement { CHANNELS_LAST, ROW_MAJOR, SCATTERED, PLACEMENT_COUNT } placement;

typedef struct setup {
    eg_context *ctx;
    eg_dtype dtype;
    placement placement;
    double rtol, atol;
} setup;

static const eg_kernels *const k = &eg__ref_kernels;

#define OK(status) assert_int_equal((status), EG_OK)

/* ---------------------------------------------------------------------------------------------- tensors */

static void fill(eg_tensor *t, double value)
{
    for (int64_t i = 0; i < eg_tensor_numel(t); i++)
        element_set(t, i, value);
}

/** A tensor filled with NaN (-1 for integers); scattered ones lie at the odd positions of one twice as large. */
static eg_tensor *make(const setup *s, eg_dtype dtype, eg_shape shape)
{
    if (s->placement != SCATTERED) {
        eg_layout layout = s->placement == ROW_MAJOR ? EG_LAYOUT_ROW_MAJOR : EG_LAYOUT_DEFAULT;
        eg_tensor *t = eg_empty(s->ctx, dtype, shape, layout);
        assert_non_null(t);
        fill(t, dtype == EG_I64 ? -1 : NAN);
        return t;
    }
    eg_shape large = shape;
    for (int d = 0; d < shape.ndim; d++)
        large.dims[d] *= 2;
    eg_tensor *around = eg_empty(s->ctx, dtype, large, EG_LAYOUT_ROW_MAJOR);
    assert_non_null(around);
    fill(around, dtype == EG_I64 ? -1 : NAN);
    int64_t strides[EG_MAX_DIMS], offset = 0;
    for (int d = 0; d < shape.ndim; d++) {
        strides[d] = 2 * around->strides[d];
        offset += around->strides[d];
    }
    eg_tensor *view = eg__scope_add(eg__tensor_new_view(around, shape, strides, offset));
    assert_non_null(view);
    return view;
}

static eg_tensor *out_of(const setup *s, eg_shape shape)
{
    return make(s, s->dtype, shape);
}

/** An output of the shape of a tensor of the case; NULL when the case has none. */
static eg_tensor *out(const setup *s, const json_t *c, const char *name)
{
    return vector_has(c, name) ? out_of(s, vector_shape(c, name)) : NULL;
}

static eg_tensor *in_as(const setup *s, const json_t *c, const char *name, eg_dtype dtype)
{
    if (!vector_has(c, name))
        return NULL;
    eg_tensor *t = make(s, dtype, vector_shape(c, name));
    vector_fill(c, name, t);
    return t;
}

static eg_tensor *in(const setup *s, const json_t *c, const char *name)
{
    return in_as(s, c, name, s->dtype);
}

/** Nothing was written between the elements of a scattered tensor. */
static void expect_gaps(const setup *s, const eg_tensor *t)
{
    if (s->placement != SCATTERED || t->dtype != s->dtype)
        return;
    int64_t around = eg_tensor_numel(t) << t->shape.ndim, numbers = 0;
    for (int64_t i = 0; i < around; i++) {
        double value = t->dtype == EG_F32 ? (double)((float *)t->storage->data)[i] : ((double *)t->storage->data)[i];
        numbers += !isnan(value);
    }
    assert_int_equal(numbers, eg_tensor_numel(t));
}

static void expect(const setup *s, const json_t *c, const char *name, const eg_tensor *got)
{
    if (!vector_has(c, name)) {
        assert_null(got);
        return;
    }
    vector_expect(c, name, got, s->rtol, s->atol);
    expect_gaps(s, got);
}

/** A tensor with dimensions 0 and 1 exchanged. */
static eg_tensor *transposed(eg_tensor *t)
{
    eg_shape shape = EG_SHAPE(t->shape.dims[1], t->shape.dims[0]);
    const int64_t strides[] = {t->strides[1], t->strides[0]};
    eg_tensor *view = eg__scope_add(eg__tensor_new_view(t, shape, strides, t->offset));
    assert_non_null(view);
    return view;
}

/* ---------------------------------------------------------------------------------------------- cases of PyTorch */

static eg__window window_of(const json_t *c)
{
    eg__window win = {.groups = 1};
    const char *const names[] = {"kernel", "stride", "padding", "dilation"};
    int64_t *const fields[] = {win.kernel, win.stride, win.padding, win.dilation};
    for (size_t i = 0; i < EG_COUNT(names); i++) {
        eg_hw hw = vector_hw(c, names[i]);
        fields[i][0] = eg_hw_h(hw);
        fields[i][1] = eg_hw_w(hw);
    }
    return win;
}

static void run_conv2d(const setup *s, const json_t *c)
{
    eg__window win = window_of(c);
    win.groups = (int64_t)vector_number(c, "groups");
    eg_tensor *x = in(s, c, "x"), *w = in(s, c, "w"), *dy = in(s, c, "dy");
    eg_tensor *y = out(s, c, "y"), *dx = out(s, c, "dx"), *dw = out(s, c, "dw"), *db = out(s, c, "db");
    OK(k->conv2d(&win, x, w, in(s, c, "b"), y));
    expect(s, c, "y", y);
    OK(k->conv2d_backward_input(&win, w, dy, dx));
    expect(s, c, "dx", dx);
    OK(k->conv2d_backward_weight(&win, x, dy, NULL, db));
    OK(k->conv2d_backward_weight(&win, x, dy, dw, NULL));
    expect(s, c, "dw", dw);
    expect(s, c, "db", db);
}

static void run_matmul(const setup *s, const json_t *c)
{
    eg_tensor *a = in(s, c, "a"), *b = in(s, c, "b"), *dy = in(s, c, "dy");
    eg_tensor *y = out(s, c, "y"), *da = out(s, c, "da"), *db = out(s, c, "db");
    OK(k->matmul(a, b, NULL, y));
    expect(s, c, "y", y);
    OK(k->matmul(dy, transposed(b), NULL, da));
    expect(s, c, "da", da);
    OK(k->matmul(transposed(a), dy, NULL, db));
    expect(s, c, "db", db);
}

static void run_linear(const setup *s, const json_t *c)
{
    eg_tensor *y = out(s, c, "y");
    OK(k->matmul(in(s, c, "x"), transposed(in(s, c, "w")), in(s, c, "b"), y));
    expect(s, c, "y", y);
}

static void run_batch_norm(const setup *s, const json_t *c)
{
    eg__batch_norm bn = {.eps = vector_number(c, "eps"), .relu = vector_flag(c, "relu")};
    bool training = vector_flag(c, "training");
    eg_tensor *x = in(s, c, "x"), *gamma = in(s, c, "gamma"), *beta = in(s, c, "beta"), *dy = in(s, c, "dy");
    eg_tensor *y = out(s, c, "y"), *dx = out(s, c, "dx"), *dgamma = out(s, c, "dgamma"), *dbeta = out(s, c, "dbeta");
    if (training) {
        eg_tensor *mean = out(s, c, "mean"), *var = out(s, c, "var"), *workspace = x;
        OK(k->batch_norm(&bn, x, gamma, beta, mean, var, y, &workspace));
        assert_null(workspace);
        expect(s, c, "mean", mean);
        expect(s, c, "var", var);
        OK(k->batch_norm_backward(&bn, x, gamma, beta, mean, var, NULL, dy, dx, dgamma, dbeta));
        OK(k->batch_norm(&bn, x, gamma, beta, mean, var, y, NULL));
    } else {
        eg_tensor *mean = in(s, c, "running_mean"), *var = in(s, c, "running_var");
        OK(k->batch_norm_eval(&bn, x, gamma, beta, mean, var, y));
        OK(k->batch_norm_eval_backward(&bn, x, gamma, beta, mean, var, dy, dx, dgamma, dbeta));
    }
    expect(s, c, "y", y);
    expect(s, c, "dx", dx);
    expect(s, c, "dgamma", dgamma);
    expect(s, c, "dbeta", dbeta);
}

static void run_max_pool2d(const setup *s, const json_t *c)
{
    eg__window win = window_of(c);
    eg_tensor *x = in(s, c, "x"), *dy = in(s, c, "dy"), *y = out(s, c, "y"), *dx = out(s, c, "dx");
    eg_tensor *workspace = NULL;
    OK(k->max_pool2d(&win, x, y, &workspace));
    expect(s, c, "y", y);
    vector_expect(c, "index", workspace, 0, 0);
    OK(k->max_pool2d_backward(&win, workspace, dy, dx));
    expect(s, c, "dx", dx);
    eg_tensor_release(workspace);
    fill(y, NAN);
    OK(k->max_pool2d(&win, x, y, NULL));
    expect(s, c, "y", y);
}

static void run_avg_pool2d(const setup *s, const json_t *c)
{
    eg__window win = window_of(c);
    win.exclude_pad = vector_flag(c, "exclude_pad");
    eg_tensor *y = out(s, c, "y"), *dx = out(s, c, "dx");
    OK(k->avg_pool2d(&win, in(s, c, "x"), y));
    expect(s, c, "y", y);
    OK(k->avg_pool2d_backward(&win, in(s, c, "dy"), dx));
    expect(s, c, "dx", dx);
}

static void run_adaptive_avg_pool2d(const setup *s, const json_t *c)
{
    eg_tensor *y = out(s, c, "y"), *dx = out(s, c, "dx");
    OK(k->adaptive_avg_pool2d(in(s, c, "x"), y));
    expect(s, c, "y", y);
    OK(k->adaptive_avg_pool2d_backward(in(s, c, "dy"), dx));
    expect(s, c, "dx", dx);
}

/** The position of `name` in a list of names. */
static int find(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return (int)i;
    fail_msg("unknown name '%s'", name);
    return -1;
}

static void run_unary(const setup *s, const json_t *c)
{
    static const char *const names[EG__UNARY_COUNT] = {"relu", "relu6",     "leaky_relu",  "sigmoid", "tanh", "gelu",
                                                       "silu", "hardswish", "hardsigmoid", "affine"};
    eg__unary op = (eg__unary)find(names, EG__UNARY_COUNT, vector_name(c));
    double a = vector_number(c, "a"), b = vector_number(c, "b");
    eg_tensor *x = in(s, c, "x"), *y = out(s, c, "y"), *dx = out(s, c, "dx");
    OK(k->unary(op, a, b, x, y));
    expect(s, c, "y", y);
    OK(k->unary_backward(op, a, b, eg__unary_saves_output(op) ? y : x, in(s, c, "dy"), dx));
    expect(s, c, "dx", dx);
}

/** `t` as the ops hand it to a broadcasting kernel. */
static eg_tensor *broadcast(eg_tensor *t, eg_shape to)
{
    int64_t strides[EG_MAX_DIMS] = {0};
    for (int d = 0; d < to.ndim; d++)
        strides[d] = t->shape.dims[d] == 1 ? 0 : t->strides[d];
    return eg__scope_add(eg__tensor_new_view(t, t->shape, strides, t->offset));
}

static void run_binary(const setup *s, const json_t *c)
{
    static const char *const names[EG__BINARY_COUNT] = {"add", "sub", "mul", "div"};
    eg__binary op = (eg__binary)find(names, EG__BINARY_COUNT, vector_name(c));
    eg_tensor *y = out(s, c, "y");
    OK(k->binary(op, broadcast(in(s, c, "a"), y->shape), broadcast(in(s, c, "b"), y->shape), y));
    expect(s, c, "y", y);
}

static void run_weighted_sum(const setup *s, const json_t *c)
{
    enum { MAX = 4 };
    size_t n = (size_t)vector_number(c, "n");
    assert_true(n <= MAX);
    const eg_tensor *x[MAX];
    eg_tensor *dx[MAX];
    for (size_t i = 0; i < n; i++) {
        x[i] = in(s, c, (char[]){'x', (char)('0' + i), 0});
        dx[i] = out(s, c, (char[]){'d', 'x', (char)('0' + i), 0});
    }
    eg_tensor *w = in(s, c, "w"), *y = out(s, c, "y"), *dy = in(s, c, "dy"), *dw = out(s, c, "dw");
    OK(k->weighted_sum(n, x, w, y));
    expect(s, c, "y", y);
    OK(k->weighted_sum_backward(n, NULL, w, dy, dx, NULL));
    for (size_t i = 0; i < n; i++)
        expect(s, c, (char[]){'d', 'x', (char)('0' + i), 0}, dx[i]);
    OK(k->weighted_sum_backward(n, x, w, dy, (eg_tensor *[MAX]){NULL}, dw));
    expect(s, c, "dw", dw);
}

static void run_sum(const setup *s, const json_t *c)
{
    eg_tensor *y = out(s, c, "y");
    OK(k->reduce(EG__SUM, in(s, c, "x"), y, NULL));
    expect(s, c, "y", y);
}

static void run_max(const setup *s, const json_t *c)
{
    eg_tensor *x = in(s, c, "x"), *y = out(s, c, "y"), *index = make(s, EG_I64, vector_shape(c, "index"));
    OK(k->reduce(EG__MAX, x, y, index));
    expect(s, c, "y", y);
    expect(s, c, "index", index);
    fill(y, NAN);
    OK(k->reduce(EG__MAX, x, y, NULL));
    expect(s, c, "y", y);
}

static void run_softmax(const setup *s, const json_t *c)
{
    bool logarithm = strcmp(vector_op(c), "log_softmax") == 0;
    int dim = (int)vector_number(c, "dim");
    eg_tensor *y = out(s, c, "y"), *dx = out(s, c, "dx");
    OK(k->softmax(dim, logarithm, in(s, c, "x"), y));
    expect(s, c, "y", y);
    OK(k->softmax_backward(dim, logarithm, y, in(s, c, "dy"), dx));
    expect(s, c, "dx", dx);
}

static void run_cross_entropy(const setup *s, const json_t *c)
{
    double smoothing = vector_number(c, "smoothing");
    bool soft = vector_shape(c, "target").ndim == 2;
    eg_tensor *target = in_as(s, c, "target", soft ? s->dtype : EG_I64);
    eg_tensor *p = out(s, c, "probability"), *y = out(s, c, "y"), *dx = out(s, c, "dx");
    OK(k->cross_entropy(smoothing, in(s, c, "x"), target, p, y));
    expect(s, c, "probability", p);
    expect(s, c, "y", y);
    OK(k->cross_entropy_backward(smoothing, p, target, in(s, c, "dy"), dx));
    expect(s, c, "dx", dx);
}

/** "grad" and 3: "grad3". */
static const char *numbered(char *text, size_t size, const char *name, int number)
{
    snprintf(text, size, "%s%d", name, number);
    return text;
}

static void run_sgd(const setup *s, const json_t *c)
{
    eg__sgd o = {.lr = vector_number(c, "lr"),
                 .momentum = vector_number(c, "momentum"),
                 .dampening = vector_number(c, "dampening"),
                 .weight_decay = vector_number(c, "weight_decay"),
                 .nesterov = vector_flag(c, "nesterov")};
    eg_tensor *p = in(s, c, "p"), *buf = o.momentum != 0 ? out(s, c, "p") : NULL;
    for (int step = 1; step <= (int)vector_number(c, "steps"); step++) {
        char name[16];
        eg_tensor *grad = in(s, c, numbered(name, sizeof name, "grad", step));
        o.first = step == 1;
        OK(k->sgd(&o, 1, &p, &grad, &buf));
        expect(s, c, numbered(name, sizeof name, "p", step), p);
    }
    if (buf)
        expect_gaps(s, buf);
}

static void run_adam(const setup *s, const json_t *c)
{
    eg__adam o = {.lr = vector_number(c, "lr"),
                  .beta1 = vector_number(c, "beta1"),
                  .beta2 = vector_number(c, "beta2"),
                  .eps = vector_number(c, "eps"),
                  .weight_decay = vector_number(c, "weight_decay"),
                  .decoupled = strcmp(vector_op(c), "adamw") == 0};
    eg_tensor *p = in(s, c, "p"), *m = out(s, c, "p"), *v = out(s, c, "p");
    OK(k->fill(m, 0));
    OK(k->fill(v, 0));
    for (o.step = 1; o.step <= (int64_t)vector_number(c, "steps"); o.step++) {
        char name[16];
        eg_tensor *grad = in(s, c, numbered(name, sizeof name, "grad", (int)o.step));
        OK(k->adam(&o, 1, &p, &grad, &m, &v));
        expect(s, c, numbered(name, sizeof name, "p", (int)o.step), p);
    }
    expect_gaps(s, m);
    expect_gaps(s, v);
}

static void run_clip_grad_norm(const setup *s, const json_t *c)
{
    enum { MAX = 3 };
    eg_tensor *grads[MAX];
    size_t n = (size_t)vector_number(c, "n");
    assert_true(n <= MAX);
    char name[16];
    for (size_t i = 0; i < n; i++)
        grads[i] = in(s, c, numbered(name, sizeof name, "grad", (int)i));
    double squares, max_norm = vector_number(c, "max_norm");
    OK(k->norm2(n, grads, &squares));
    double norm = vector_value(c, "norm", 0);
    assert_true(fabs(sqrt(squares) - norm) <= s->rtol * norm);
    OK(k->scale(n, grads, fmin(1, max_norm / (sqrt(squares) + 1e-6))));
    for (size_t i = 0; i < n; i++)
        expect(s, c, numbered(name, sizeof name, "clipped", (int)i), grads[i]);
}

static const struct runner {
    const char *op;
    void (*run)(const setup *s, const json_t *c);
} runners[] = {
    {"adam", run_adam},
    {"adamw", run_adam},
    {"adaptive_avg_pool2d", run_adaptive_avg_pool2d},
    {"avg_pool2d", run_avg_pool2d},
    {"batch_norm", run_batch_norm},
    {"binary", run_binary},
    {"clip_grad_norm", run_clip_grad_norm},
    {"conv2d", run_conv2d},
    {"cross_entropy", run_cross_entropy},
    {"linear", run_linear},
    {"log_softmax", run_softmax},
    {"matmul", run_matmul},
    {"max", run_max},
    {"max_pool2d", run_max_pool2d},
    {"sgd", run_sgd},
    {"softmax", run_softmax},
    {"sum", run_sum},
    {"unary", run_unary},
    {"weighted_sum", run_weighted_sum},
};

static void run_case(const setup *s, const json_t *c)
{
    for (size_t i = 0; i < EG_COUNT(runners); i++)
        if (strcmp(runners[i].op, vector_op(c)) == 0) {
            runners[i].run(s, c);
            return;
        }
    fail_msg("no kernel for '%s'", vector_op(c));
}

static void run_family(const char *family)
{
    json_t *cases = vectors_load(family);
    for (placement p = CHANNELS_LAST; p < PLACEMENT_COUNT; p++)
        for (int wide = 0; wide < 2; wide++) {
            setup s = {.ctx = eg_context_new(.backend = "ref"), .placement = p};
            assert_non_null(s.ctx);
            s.dtype = wide ? EG_F64 : EG_F32;
            s.rtol = wide ? 1e-8 : 2e-6;
            s.atol = wide ? 1e-9 : 2e-6;
            for (size_t i = 0; i < json_array_size(cases); i++)
                run_case(&s, json_array_get(cases, i));
            eg_context_free(s.ctx);
        }
    json_decref(cases);
}

static void torch_conv(void **state) { (void)state; run_family("conv"); }
static void torch_norm(void **state) { (void)state; run_family("norm"); }
static void torch_pool(void **state) { (void)state; run_family("pool"); }
static void torch_elementwise(void **state) { (void)state; run_family("elementwise"); }
static void torch_reduce(void **state) { (void)state; run_family("reduce"); }
static void torch_optim(void **state) { (void)state; run_family("optim"); }

/* ---------------------------------------------------------------------------------------------- cases done by hand */

static int open_context(void **state)
{
    *state = eg_context_new(.backend = "ref");
    return *state ? 0 : -1;
}

static int close_context(void **state)
{
    eg_context_free(*state);
    return 0;
}

static eg_tensor *from(eg_context *ctx, eg_dtype dtype, eg_shape shape, const double *values)
{
    eg_tensor *t = eg_empty(ctx, dtype, shape, EG_LAYOUT_ROW_MAJOR);
    assert_non_null(t);
    for (int64_t i = 0; i < eg_tensor_numel(t); i++)
        element_set(t, i, values[i]);
    return t;
}
#define FROM(ctx, dtype, shape, ...) from(ctx, dtype, shape, (const double[]){__VA_ARGS__})

static eg_tensor *empty(eg_context *ctx, eg_dtype dtype, eg_shape shape)
{
    eg_tensor *t = eg_empty(ctx, dtype, shape, EG_LAYOUT_DEFAULT);
    assert_non_null(t);
    return t;
}

static void expect_all(const eg_tensor *t, const double *expected)
{
    for (int64_t i = 0; i < eg_tensor_numel(t); i++) {
        double value = element_get(t, i);
        bool same = isnan(expected[i]) ? isnan(value) : value == expected[i] || fabs(value - expected[i]) < 1e-6;
        if (!same)
            fail_msg("element %lld is %.9g, expected %.9g", (long long)i, value, expected[i]);
    }
}
#define EXPECT(t, ...) expect_all(t, (const double[]){__VA_ARGS__})

static void copy_converts_between_all_types(void **state)
{
    eg_context *ctx = *state;
    const eg_dtype types[] = {EG_F32, EG_F64, EG_I64, EG_U8};
    for (size_t i = 0; i < EG_COUNT(types); i++)
        for (size_t j = 0; j < EG_COUNT(types); j++) {
            eg_tensor *x = FROM(ctx, types[i], EG_SHAPE(1, 2, 1, 3), 0, 1, 2, 200, 254, 255);
            eg_tensor *y = empty(ctx, types[j], x->shape);
            OK(k->copy(x, y));
            EXPECT(y, 0, 1, 2, 200, 254, 255);
        }
}

static void copy_to_integers_truncates_and_saturates(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = FROM(ctx, EG_F64, EG_SHAPE(7), 1.9, -1.9, 255.5, 300, 1e30, -1e30, NAN);
    eg_tensor *bytes = empty(ctx, EG_U8, x->shape), *integers = empty(ctx, EG_I64, x->shape);
    OK(k->copy(x, bytes));
    EXPECT(bytes, 1, 0, 255, 255, 255, 0, 0);
    OK(k->copy(x, integers));
    EXPECT(integers, 1, -1, 255, 300, (double)INT64_MAX, (double)INT64_MIN, 0);
}

static void copy_keeps_large_integers(void **state)
{
    eg_tensor *x = empty(*state, EG_I64, EG_SHAPE(2)), *y = empty(*state, EG_I64, EG_SHAPE(2));
    eg__i64(x)[0] = ((int64_t)1 << 53) + 1; /* no double has this value */
    eg__i64(x)[1] = INT64_MIN;
    OK(k->copy(x, y));
    assert_true(eg__i64(y)[0] == ((int64_t)1 << 53) + 1);
    assert_true(eg__i64(y)[1] == INT64_MIN);
}

static void copy_reads_views(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = FROM(ctx, EG_F32, EG_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    eg_tensor *y = empty(ctx, EG_F64, EG_SHAPE(3, 2));
    OK(k->copy(transposed(x), y));
    EXPECT(y, 1, 4, 2, 5, 3, 6);

    eg_tensor *row = FROM(ctx, EG_F32, EG_SHAPE(3), 7, 8, 9);
    eg_tensor *rows = eg__scope_add(eg__tensor_new_view(row, EG_SHAPE(2, 3), (const int64_t[]){0, 1}, 0));
    OK(k->copy(rows, x));
    EXPECT(x, 7, 8, 9, 7, 8, 9);
}

static void fill_and_accumulate(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = FROM(ctx, EG_F32, EG_SHAPE(2, 2), 1, 2, 3, 4), *y = empty(ctx, EG_F32, x->shape);
    OK(k->fill(y, 0.5));
    EXPECT(y, 0.5, 0.5, 0.5, 0.5);
    OK(k->accumulate(x, y));
    OK(k->accumulate(transposed(x), y));
    EXPECT(y, 2.5, 5.5, 5.5, 8.5);
    eg_tensor *integer = empty(ctx, EG_I64, EG_SCALAR);
    OK(k->fill(integer, -3));
    EXPECT(integer, -3);
    eg_tensor *nothing = empty(ctx, EG_F32, EG_SHAPE(2, 0, 3));
    OK(k->fill(nothing, 1));
}

static void conv2d_by_hand(void **state)
{
    eg_context *ctx = *state;
    eg__window win = {{2, 2}, {1, 1}, {0, 0}, {1, 1}, 1, false};
    eg_tensor *x = FROM(ctx, EG_F32, EG_SHAPE(1, 1, 2, 3), 1, 2, 3, 4, 5, 6);
    eg_tensor *w = FROM(ctx, EG_F32, EG_SHAPE(1, 1, 2, 2), 1, 10, 100, 1000);
    eg_tensor *y = empty(ctx, EG_F32, EG_SHAPE(1, 1, 1, 2)), *dx = empty(ctx, EG_F32, x->shape);
    OK(k->conv2d(&win, x, w, NULL, y));
    EXPECT(y, 1 + 20 + 400 + 5000, 2 + 30 + 500 + 6000);
    eg_tensor *dy = FROM(ctx, EG_F32, y->shape, 1, 2);
    OK(k->conv2d_backward_input(&win, w, dy, dx));
    EXPECT(dx, 1, 10 + 2, 20, 100, 1000 + 200, 2000);
    eg_tensor *dw = empty(ctx, EG_F32, w->shape);
    OK(k->conv2d_backward_weight(&win, x, dy, dw, NULL));
    EXPECT(dw, 1 + 4, 2 + 6, 4 + 10, 5 + 12);
}

static void max_pool_takes_the_first_maximum_and_nan(void **state)
{
    eg_context *ctx = *state;
    eg__window win = {{2, 2}, {2, 2}, {0, 0}, {1, 1}, 1, false};
    eg_tensor *x = FROM(ctx, EG_F32, EG_SHAPE(1, 1, 2, 6), 1, 5, 7, NAN, -INFINITY, -INFINITY,
                        5, 5, 9, 8, -INFINITY, -INFINITY);
    eg_tensor *y = empty(ctx, EG_F32, EG_SHAPE(1, 1, 1, 3)), *position = NULL;
    OK(k->max_pool2d(&win, x, y, &position));
    assert_true(element_get(y, 0) == 5);
    assert_true(isnan(element_get(y, 1)));
    assert_true(element_get(y, 2) == (double)-INFINITY);
    EXPECT(position, 1, 3, 4);
    eg_tensor_release(position);
}

static void max_pool_window_in_the_padding(void **state)
{
    eg_context *ctx = *state;
    /* taps at -1 and 1 of a single row: both outside */
    eg__window win = {{2, 1}, {1, 1}, {1, 0}, {2, 1}, 1, false};
    eg_tensor *x = FROM(ctx, EG_F64, EG_SHAPE(1, 1, 1, 2), 3, 4), *dx = empty(ctx, EG_F64, x->shape);
    eg_tensor *y = empty(ctx, EG_F64, x->shape), *position = NULL;
    OK(k->max_pool2d(&win, x, y, &position));
    assert_true(element_get(y, 0) == (double)-INFINITY && element_get(y, 1) == (double)-INFINITY);
    OK(k->max_pool2d_backward(&win, position, FROM(ctx, EG_F64, y->shape, 1, 1), dx));
    EXPECT(dx, 0, 0);
    eg_tensor_release(position);
}

static void avg_pool_divides_clipped_windows(void **state)
{
    eg_context *ctx = *state;
    /* width 4, kernel 3, stride 2, padding 1, ceil_mode: windows -1..1, 1..3 and 3..5, the last one position too wide */
    eg__window win = {{1, 3}, {1, 2}, {0, 1}, {1, 1}, 1, false};
    eg_tensor *x = FROM(ctx, EG_F32, EG_SHAPE(1, 1, 1, 4), 3, 6, 9, 12);
    eg_tensor *y = empty(ctx, EG_F32, EG_SHAPE(1, 1, 1, 3));
    OK(k->avg_pool2d(&win, x, y));
    EXPECT(y, 9.0 / 3, 27.0 / 3, 12.0 / 2);
    win.exclude_pad = true;
    OK(k->avg_pool2d(&win, x, y));
    EXPECT(y, 9.0 / 2, 27.0 / 3, 12.0 / 1);
    eg_tensor *dx = empty(ctx, EG_F32, x->shape);
    OK(k->avg_pool2d_backward(&win, FROM(ctx, EG_F32, y->shape, 2, 3, 5), dx));
    EXPECT(dx, 1, 1 + 1, 1, 1 + 5);
}

static void adaptive_windows_overlap(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = FROM(ctx, EG_F32, EG_SHAPE(1, 1, 1, 5), 1, 2, 3, 4, 5);
    eg_tensor *y = empty(ctx, EG_F32, EG_SHAPE(1, 1, 1, 2)), *dx = empty(ctx, EG_F32, x->shape);
    OK(k->adaptive_avg_pool2d(x, y)); /* 0..2 and 2..4 */
    EXPECT(y, 2, 4);
    OK(k->adaptive_avg_pool2d_backward(FROM(ctx, EG_F32, y->shape, 3, 6), dx));
    EXPECT(dx, 1, 1, 3, 2, 2);
}

static void batch_norm_by_hand(void **state)
{
    eg_context *ctx = *state;
    eg__batch_norm bn = {.eps = 0, .relu = true};
    eg_tensor *x = FROM(ctx, EG_F64, EG_SHAPE(2, 2), 1, 10, 3, 30);
    eg_tensor *gamma = FROM(ctx, EG_F64, EG_SHAPE(2), 2, 1), *beta = FROM(ctx, EG_F64, EG_SHAPE(2), 0.5, 2);
    eg_tensor *mean = empty(ctx, EG_F64, gamma->shape), *var = empty(ctx, EG_F64, gamma->shape);
    eg_tensor *y = empty(ctx, EG_F64, x->shape), *dbeta = empty(ctx, EG_F64, gamma->shape);
    OK(k->batch_norm(&bn, x, gamma, beta, mean, var, y, NULL));
    EXPECT(mean, 2, 20);
    EXPECT(var, 1, 100);
    EXPECT(y, 0, 1, 2.5, 3);
    eg_tensor *dy = FROM(ctx, EG_F64, x->shape, 100, 1, 10, 2);
    OK(k->batch_norm_backward(&bn, x, gamma, beta, mean, var, NULL, dy, NULL, NULL, dbeta));
    EXPECT(dbeta, 10, 3);
}

static void unary_at_nan_and_infinity(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = FROM(ctx, EG_F64, EG_SHAPE(3), NAN, -INFINITY, INFINITY), *y = empty(ctx, EG_F64, x->shape);
    OK(k->unary(EG__RELU, 0, 0, x, y));
    assert_true(isnan(element_get(y, 0)) && element_get(y, 1) == 0 && isinf(element_get(y, 2)));
    OK(k->unary(EG__RELU6, 0, 0, x, y));
    EXPECT(y, NAN, 0, 6);
    OK(k->unary(EG__SIGMOID, 0, 0, x, y));
    EXPECT(y, NAN, 0, 1);
    OK(k->unary(EG__TANH, 0, 0, x, y));
    EXPECT(y, NAN, -1, 1);
}

static void maximum_keeps_nan(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = FROM(ctx, EG_F32, EG_SHAPE(2, 3), 1, NAN, NAN, 4, 4, 2);
    eg_tensor *y = empty(ctx, EG_F32, EG_SHAPE(2, 1)), *index = empty(ctx, EG_I64, y->shape);
    OK(k->reduce(EG__MAX, x, y, index));
    EXPECT(y, NAN, 4);
    EXPECT(index, 1, 0);
}

static void softmax_of_large_numbers(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = FROM(ctx, EG_F32, EG_SHAPE(2, 2), 1e4, 1e4, -1e4, 1e4), *y = empty(ctx, EG_F32, x->shape);
    OK(k->softmax(1, false, x, y));
    EXPECT(y, 0.5, 0.5, 0, 1);
    OK(k->softmax(1, true, x, y));
    EXPECT(y, -0.69314718, -0.69314718, -2e4, 0);
}

static void cross_entropy_of_an_excluded_class(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = FROM(ctx, EG_F64, EG_SHAPE(1, 3), 0, -INFINITY, 0), *p = empty(ctx, EG_F64, x->shape);
    eg_tensor *loss = empty(ctx, EG_F64, EG_SHAPE(1)), *dx = empty(ctx, EG_F64, x->shape);
    eg_tensor *label = FROM(ctx, EG_I64, EG_SHAPE(1), 2);
    OK(k->cross_entropy(0, x, label, p, loss));
    EXPECT(loss, 0.69314718);
    EXPECT(p, 0.5, 0, 0.5);
    OK(k->cross_entropy_backward(0, p, label, FROM(ctx, EG_F64, EG_SHAPE(1), 2), dx));
    EXPECT(dx, 1, 0, -1);
}

static void sums_accumulate_in_double(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = FROM(ctx, EG_F32, EG_SHAPE(4), 1e8, 1, 1, -1e8), *y = empty(ctx, EG_F32, EG_SHAPE(1));
    OK(k->reduce(EG__SUM, x, y, NULL)); /* float32 would lose both ones */
    EXPECT(y, 2);
    const eg_tensor *terms[] = {FROM(ctx, EG_F32, EG_SHAPE(1), 1e8), FROM(ctx, EG_F32, EG_SHAPE(1), 1),
                                FROM(ctx, EG_F32, EG_SHAPE(1), -1e8)};
    OK(k->weighted_sum(3, terms, NULL, y));
    EXPECT(y, 1);
}

static void optimizer_lists_may_mix_types(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *p[] = {FROM(ctx, EG_F32, EG_SHAPE(2), 1, 2), FROM(ctx, EG_F64, EG_SHAPE(1), 3)};
    eg_tensor *grad[] = {FROM(ctx, EG_F32, EG_SHAPE(2), 10, 20), FROM(ctx, EG_F64, EG_SHAPE(1), 30)};
    eg__sgd o = {.lr = 0.1};
    OK(k->sgd(&o, 2, p, grad, NULL));
    EXPECT(p[0], 0, 0);
    EXPECT(p[1], 0);
    double squares;
    OK(k->norm2(2, grad, &squares));
    assert_true(squares == 1400);
    OK(k->scale(2, grad, 0.5));
    EXPECT(grad[0], 5, 10);
    EXPECT(grad[1], 15);
    OK(k->norm2(0, NULL, &squares));
    assert_true(squares == 0);
}

static void integers_are_refused(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = FROM(ctx, EG_I64, EG_SHAPE(2), 1, 2), *y = empty(ctx, EG_I64, x->shape);
    assert_int_equal(k->unary(EG__RELU, 0, 0, x, y), EG_EDTYPE);
    assert_string_equal(eg_error_last()->message, "unary: expected float32 or float64, got int64");
    assert_int_equal(k->scale(1, &x, 2), EG_EDTYPE);
    eg_error_clear();
}

#define BY_HAND(test) cmocka_unit_test_setup_teardown(test, open_context, close_context)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torch_conv),
        cmocka_unit_test(torch_norm),
        cmocka_unit_test(torch_pool),
        cmocka_unit_test(torch_elementwise),
        cmocka_unit_test(torch_reduce),
        cmocka_unit_test(torch_optim),
        BY_HAND(copy_converts_between_all_types),
        BY_HAND(copy_to_integers_truncates_and_saturates),
        BY_HAND(copy_keeps_large_integers),
        BY_HAND(copy_reads_views),
        BY_HAND(fill_and_accumulate),
        BY_HAND(conv2d_by_hand),
        BY_HAND(max_pool_takes_the_first_maximum_and_nan),
        BY_HAND(max_pool_window_in_the_padding),
        BY_HAND(avg_pool_divides_clipped_windows),
        BY_HAND(adaptive_windows_overlap),
        BY_HAND(batch_norm_by_hand),
        BY_HAND(unary_at_nan_and_infinity),
        BY_HAND(maximum_keeps_nan),
        BY_HAND(softmax_of_large_numbers),
        BY_HAND(cross_entropy_of_an_excluded_class),
        BY_HAND(sums_accumulate_in_double),
        BY_HAND(optimizer_lists_may_mix_types),
        BY_HAND(integers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

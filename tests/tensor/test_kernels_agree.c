/*
 * tests/tensor/test_kernels_agree.c - every kernel of the fast table against the reference, over random shapes from a
 * fixed seed: channel counts 1, 3, 24, 36 among them, single samples, and operands that are views of larger tensors.
 *
 * Two numbers agree when |fast - ref| <= tolerance * (1 + |ref|). The reference adds up in double, so the tolerance is
 * what float sums of the case's length may lose.
 */
#include "support.h"

#include "tensor/cpu/cpu.h"
#include "tensor/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const eg_kernels *const fast = &eg__dnnl_kernels;
static const eg_kernels *const ref = &eg__ref_kernels;

#define OK(status) assert_int_equal((status), EG_OK)

/** A context and random choices of one test. */
typedef struct fixture {
    eg_context *ctx;
    eg_rng rng;
} fixture;

static int64_t pick(fixture *f, const int64_t *from, size_t n)
{
    return from[eg_rng_below(&f->rng, n)];
}
#define PICK(f, ...) pick(f, (const int64_t[]){__VA_ARGS__}, EG_COUNT(((const int64_t[]){__VA_ARGS__})))

static int open_fixture(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (!f)
        return -1;
    f->ctx = eg_context_new(.seed = 1, .threads = 2);
    f->rng = eg_rng_make(7, "kernels", 0);
    *state = f;
    return f->ctx ? 0 : -1;
}

static int close_fixture(void **state)
{
    fixture *f = *state;
    eg_context_free(f->ctx);
    free(f);
    return 0;
}

enum placement { NATURAL, ROW_MAJOR, SLICE }; /* SLICE: every other place of a tensor twice as large in dimension 1 */

static eg_tensor *place(fixture *f, eg_shape shape, enum placement where)
{
    if (where != SLICE || shape.ndim < 2) {
        eg_tensor *t = eg_empty(f->ctx, EG_F32, shape, where == NATURAL ? EG_LAYOUT_DEFAULT : EG_LAYOUT_ROW_MAJOR);
        assert_non_null(t);
        return t;
    }
    eg_shape large = shape;
    large.dims[1] *= 2;
    eg_tensor *whole = eg_empty(f->ctx, EG_F32, large, EG_LAYOUT_DEFAULT);
    assert_non_null(whole);
    int64_t strides[EG_MAX_DIMS];
    memcpy(strides, whole->strides, sizeof strides);
    strides[1] *= 2;
    eg_tensor *view = eg__scope_add(eg__tensor_new_view(whole, shape, strides, whole->strides[1]));
    assert_non_null(view);
    return view;
}

static void randomize(fixture *f, eg_tensor *t, double low, double high)
{
    size_t n = (size_t)eg_tensor_numel(t);
    float *numbers = malloc((n ? n : 1) * sizeof *numbers);
    assert_non_null(numbers);
    for (size_t i = 0; i < n; i++)
        numbers[i] = (float)(low + (high - low) * eg_rng_uniform(&f->rng));
    OK(eg_tensor_write(t, numbers, n));
    free(numbers);
}

static eg_tensor *random_in(fixture *f, eg_shape shape, enum placement where)
{
    eg_tensor *t = place(f, shape, where);
    randomize(f, t, -1.5, 1.5);
    return t;
}

static enum placement any_placement(fixture *f)
{
    return (enum placement)PICK(f, NATURAL, NATURAL, ROW_MAJOR, SLICE);
}
static eg_tensor *random_any(fixture *f, eg_shape shape)
{
    return random_in(f, shape, any_placement(f));
}

/** An output: full of what must not remain there. */
static eg_tensor *output(fixture *f, eg_shape shape, enum placement where)
{
    eg_tensor *t = place(f, shape, where);
    OK(ref->fill(t, NAN));
    return t;
}

static void expect_close(const char *what, const eg_tensor *a, const eg_tensor *b, double tolerance)
{
    size_t n = (size_t)eg_tensor_numel(a);
    float *x = malloc((n ? n : 1) * sizeof *x), *y = malloc((n ? n : 1) * sizeof *y);
    assert_non_null(x);
    assert_non_null(y);
    assert_int_equal(n, eg_tensor_numel(b));
    OK(eg_tensor_read(a, x, n));
    OK(eg_tensor_read(b, y, n));
    for (size_t i = 0; i < n; i++) {
        double distance = fabs((double)x[i] - (double)y[i]);
        if (!(distance <= tolerance * (1.0 + fabs((double)y[i]))) && x[i] != y[i]) {
            char shape[EG_SHAPE_TEXT_SIZE];
            fail_msg("%s %s: element %zu is %.9g, the reference has %.9g", what,
                     eg_shape_format(a->shape, shape, sizeof shape), i, (double)x[i], (double)y[i]);
        }
    }
    free(x);
    free(y);
}

/** The same operation on both tables with an output each. */
#define BOTH(f, what, shape, where, tolerance, call)                                                                   \
    do {                                                                                                               \
        eg_tensor *out_[2];                                                                                            \
        const eg_kernels *tables_[] = {fast, ref};                                                                     \
        for (int t_ = 0; t_ < 2; t_++) {                                                                               \
            const eg_kernels *k = tables_[t_];                                                                         \
            eg_tensor *y = out_[t_] = output(f, shape, t_ == 0 ? (where) : NATURAL);                                   \
            OK(call);                                                                                                  \
        }                                                                                                              \
        expect_close(what, out_[0], out_[1], tolerance);                                                               \
    } while (0)

/* ---- convolution ---- */

static int64_t out_size(int64_t size, const eg__window *win, int i)
{
    return (size + 2 * win->padding[i] - (win->kernel[i] - 1) * win->dilation[i] - 1) / win->stride[i] + 1;
}

typedef struct conv_case {
    eg__window win;
    eg_shape x, w, b, y;
} conv_case;

static conv_case random_conv(fixture *f)
{
    conv_case c;
    int64_t in = PICK(f, 1, 3, 4, 12, 16, 24, 36), out = PICK(f, 1, 3, 4, 12, 16, 24, 36), kind = PICK(f, 0, 1, 2),
            groups = 1;
    if (kind == 1) /* depthwise */
        out = groups = in;
    if (kind == 2 && in % 4 == 0 && out % 4 == 0)
        groups = 4;
    int64_t kernel = PICK(f, 1, 3, 5, 7), dilation = PICK(f, 1, 2), stride = PICK(f, 1, 2), h = PICK(f, 13, 14, 15),
            w = PICK(f, 13, 16);
    int64_t padding = PICK(f, 0, 1) * dilation * (kernel / 2), n = PICK(f, 1, 2, 5);
    c.win = (eg__window){{kernel, kernel == 3 ? PICK(f, 1, 3) : kernel},
                         {stride, PICK(f, 1, 2)},
                         {padding, padding},
                         {dilation, dilation},
                         groups,
                         false};
    c.x = EG_SHAPE(n, in, h, w);
    c.w = EG_SHAPE(out, in / groups, c.win.kernel[0], c.win.kernel[1]);
    c.b = EG_SHAPE(out);
    c.y = EG_SHAPE(n, out, out_size(h, &c.win, 0), out_size(w, &c.win, 1));
    return c;
}

static void convolutions_agree(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 150; i++) {
        conv_case c = random_conv(f);
        eg_tensor *x = random_any(f, c.x), *dy = random_any(f, c.y);
        eg_tensor *w = random_in(f, c.w, PICK(f, 0, 1) ? ROW_MAJOR : SLICE),
                  *b = PICK(f, 0, 1) ? random_in(f, c.b, NATURAL) : NULL;
        enum placement where = any_placement(f);
        BOTH(f, "conv2d", c.y, where, 1e-4, k->conv2d(&c.win, x, w, b, y));
        BOTH(f, "conv2d_backward_input", c.x, where, 1e-4, k->conv2d_backward_input(&c.win, w, dy, y, false));
        BOTH(f, "conv2d_backward_weight", c.w, PICK(f, 0, 1) ? ROW_MAJOR : SLICE, 1e-4,
             k->conv2d_backward_weight(&c.win, x, dy, y, NULL));
        BOTH(f, "conv2d_backward_weight (bias alone)", c.b, NATURAL, 1e-4,
             k->conv2d_backward_weight(&c.win, x, dy, NULL, y));
        eg_tensor *dw[] = {output(f, c.w, ROW_MAJOR), output(f, c.w, ROW_MAJOR)};
        eg_tensor *db[] = {output(f, c.b, NATURAL), output(f, c.b, NATURAL)};
        OK(fast->conv2d_backward_weight(&c.win, x, dy, dw[0], db[0]));
        OK(ref->conv2d_backward_weight(&c.win, x, dy, dw[1], db[1]));
        expect_close("conv2d_backward_weight (both)", dw[0], dw[1], 1e-4);
        expect_close("conv2d_backward_weight (both, bias)", db[0], db[1], 1e-4);
    }
}

/* Filters of 1x1 between many channels on small images, and fewer on larger ones: numbers of channels that fill panels
 * and tiles and that do not, one and many groups of pixels; the same bits on any number of threads. */
static void filters_of_many_channels_agree(void **state)
{
    static const int64_t shapes[][5] = {{1, 64, 1, 1, 1},   {2, 64, 65, 2, 2},   {5, 72, 36, 1, 3},
                                        {70, 80, 24, 4, 4}, {64, 104, 13, 2, 5}, {33, 128, 40, 4, 3},
                                        {257, 88, 7, 1, 1}, {2, 24, 28, 9, 20},  {3, 32, 24, 16, 8},
                                        {9, 40, 64, 13, 9}, {2, 96, 32, 12, 8}};
    fixture *f = *state;
    eg__window win = {{1, 1}, {1, 1}, {0, 0}, {1, 1}, 1, false};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        const int64_t *s = shapes[i];
        eg_shape filters = EG_SHAPE(s[2], s[1], 1, 1);
        eg_tensor *dw[3];
        eg_context *contexts[3] = {f->ctx, eg_context_new(.threads = 1), eg_context_new(.threads = 3)};
        for (int t = 0; t < 3; t++) {
            fixture g = {contexts[t], f->rng};
            eg_tensor *x = random_in(&g, EG_SHAPE(s[0], s[1], s[3], s[4]), NATURAL);
            eg_tensor *dy = random_in(&g, EG_SHAPE(s[0], s[2], s[3], s[4]), NATURAL);
            if (t == 0)
                BOTH(&g, "conv2d_backward_weight", filters, SLICE, 1e-4,
                     k->conv2d_backward_weight(&win, x, dy, y, NULL));
            dw[t] = output(&g, filters, ROW_MAJOR);
            OK(eg__cpu_pointwise_backward_weight(x, dy, dw[t])); /* the table may leave it to oneDNN */
            assert_memory_equal(eg__f32(dw[t]), eg__f32(dw[0]), (size_t)(s[1] * s[2]) * sizeof(float));
        }
        eg_context_free(contexts[1]);
        eg_context_free(contexts[2]);
    }
}

/* Depthwise filters of many samples: rows that fill vectors, and that do not; the same bits on any number of threads.
 */
static void depthwise_filters_of_many_samples_agree(void **state)
{
    static const int64_t shapes[][4] = {{37, 16, 12, 3}, {37, 16, 12, 5}, {37, 24, 6, 5},
                                        {17, 5, 7, 7},   {16, 8, 13, 5},  {33, 40, 5, 7}};
    fixture *f = *state;
    for (size_t i = 0; i < EG_COUNT(shapes); i++) {
        int64_t n = shapes[i][0], c = shapes[i][1], size = shapes[i][2], kernel = shapes[i][3], p = kernel / 2;
        eg__window win = {{kernel, kernel}, {1, 1}, {p, p}, {1, 1}, c, false};
        eg_shape filters = EG_SHAPE(c, 1, kernel, kernel), image = EG_SHAPE(n, c, size, size);
        eg_context *contexts[3] = {f->ctx, eg_context_new(.threads = 1), eg_context_new(.threads = 3)};
        eg_tensor *dw[3];
        for (int t = 0; t < 3; t++) {
            fixture g = {contexts[t], f->rng};
            eg_tensor *x = random_in(&g, image, NATURAL), *dy = random_in(&g, image, NATURAL);
            dw[t] = output(&g, filters, ROW_MAJOR);
            OK(eg__cpu_depthwise_backward_weight(&win, x, dy, dw[t]));
            assert_memory_equal(eg__f32(dw[t]), eg__f32(dw[0]), (size_t)(c * kernel * kernel) * sizeof(float));
            if (t == 0)
                BOTH(&g, "conv2d_backward_weight", filters, ROW_MAJOR, 1e-4,
                     k->conv2d_backward_weight(&win, x, dy, y, NULL));
        }
        eg_context_free(contexts[1]);
        eg_context_free(contexts[2]);
    }
}

static void a_second_call_makes_no_primitive(void **state)
{
    fixture *f = *state;
    uint64_t hits = 0;
    for (int i = 0; i < 20; i++) {
        conv_case c = random_conv(f);
        eg_tensor *x = random_in(f, c.x, NATURAL), *w = random_in(f, c.w, ROW_MAJOR), *dy = random_in(f, c.y, NATURAL);
        eg_tensor *y = output(f, c.y, NATURAL), *dx = output(f, c.x, NATURAL), *dw = output(f, c.w, ROW_MAJOR);
        eg_context_stats before = {0};
        for (int turn = 0; turn < 2; turn++) {
            before = eg_context_get_stats(f->ctx);
            OK(fast->conv2d(&c.win, x, w, NULL, y));
            OK(fast->conv2d_backward_input(&c.win, w, dy, dx, false));
            OK(fast->conv2d_backward_weight(&c.win, x, dy, dw, NULL));
        }
        eg_context_stats after = eg_context_get_stats(f->ctx);
        assert_int_equal(after.primitive_misses, before.primitive_misses);
        hits += after.primitive_hits - before.primitive_hits;
    }
    assert_true(hits > 0); /* some convolutions are our own and need none */
}

/* Gradients of inputs that are added to what is there. */
static void gradients_add(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 60; i++) {
        conv_case c = random_conv(f);
        eg_tensor *w = random_in(f, c.w, ROW_MAJOR), *dy = random_any(f, c.y), *start = random_in(f, c.x, NATURAL);
        enum placement where = any_placement(f);
        eg_tensor *dx[2];
        for (int t = 0; t < 2; t++) {
            dx[t] = place(f, c.x, t == 0 ? where : NATURAL);
            OK(ref->copy(start, dx[t]));
            OK((t == 0 ? fast : ref)->conv2d_backward_input(&c.win, w, dy, dx[t], true));
        }
        expect_close("conv2d_backward_input (adding)", dx[0], dx[1], 1e-4);
        eg_tensor *saved = random_in(f, c.x, NATURAL), *dout = random_in(f, c.x, NATURAL);
        for (int t = 0; t < 2; t++) {
            OK(ref->copy(start, dx[t]));
            OK((t == 0 ? fast : ref)->unary_backward(EG__RELU, 0, 0, saved, dout, dx[t], true));
        }
        expect_close("unary_backward (adding)", dx[0], dx[1], 1e-6);
    }
}

static void pooling_gradients_add(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 40; i++) {
        eg__window win = {{3, 3}, {PICK(f, 1, 2), 1}, {1, 1}, {1, 1}, 1, PICK(f, 0, 1) != 0};
        eg_shape x_shape = EG_SHAPE(PICK(f, 1, 3), PICK(f, 1, 3, 16, 24), PICK(f, 5, 8), 7);
        eg_shape y_shape = EG_SHAPE(x_shape.dims[0], x_shape.dims[1], out_size(x_shape.dims[2], &win, 0), 7);
        eg_tensor *x = random_in(f, x_shape, NATURAL), *dy = random_any(f, y_shape),
                  *start = random_in(f, x_shape, NATURAL);
        enum placement where = any_placement(f);
        for (int kind = 0; kind < 2; kind++) {
            eg_tensor *dx[2], *y = place(f, y_shape, NATURAL);
            for (int t = 0; t < 2; t++) {
                const eg_kernels *k = t == 0 ? fast : ref;
                dx[t] = place(f, x_shape, t == 0 ? where : NATURAL);
                OK(ref->copy(start, dx[t]));
                eg_tensor *workspace = NULL;
                if (kind == 0)
                    OK(k->max_pool2d(&win, x, y, &workspace));
                OK(kind == 0 ? k->max_pool2d_backward(&win, workspace, dy, dx[t], true)
                             : k->avg_pool2d_backward(&win, dy, dx[t], true));
                eg_tensor_release(workspace);
            }
            expect_close("pooling's backward (adding)", dx[0], dx[1], 1e-5);
        }
    }
}

/* Packed copies are made anew when the weight changes in place; unchanged ones and others' are not touched by it. */
static void changed_weights_are_seen(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 20; i++) {
        conv_case c = random_conv(f);
        eg_tensor *x = random_in(f, c.x, NATURAL), *dy = random_in(f, c.y, NATURAL);
        eg_tensor *w = random_in(f, c.w, ROW_MAJOR), *other = random_in(f, c.w, ROW_MAJOR);
        for (int turn = 0; turn < 3; turn++) {
            BOTH(f, "conv2d", c.y, NATURAL, 1e-4, k->conv2d(&c.win, x, w, NULL, y));
            BOTH(f, "conv2d", c.y, NATURAL, 1e-4, k->conv2d(&c.win, x, other, NULL, y));
            BOTH(f, "conv2d_backward_input", c.x, NATURAL, 1e-4, k->conv2d_backward_input(&c.win, w, dy, y, false));
            if (turn == 0)
                randomize(f, w, -1, 1); /* writing touches */
            else
                OK(fast->sgd(&(eg__sgd){.lr = 0.5}, 1, &w, (eg_tensor *const[]){other}, NULL));
        }
    }
}

static void convolution_without_elements(void **state)
{
    fixture *f = *state;
    eg__window win = {{3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, false};
    eg_shape x_shape = EG_SHAPE(0, 4, 5, 5), w_shape = EG_SHAPE(2, 4, 3, 3);
    eg_tensor *x = place(f, x_shape, NATURAL), *dy = place(f, EG_SHAPE(0, 2, 5, 5), NATURAL);
    BOTH(f, "conv2d_backward_weight", w_shape, ROW_MAJOR, 0, k->conv2d_backward_weight(&win, x, dy, y, NULL));
}

/* ---- products ---- */

static void products_agree(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 150; i++) {
        int64_t m = PICK(f, 1, 2, 5, 64), n = PICK(f, 1, 3, 10, 33), inner = PICK(f, 1, 2, 7, 96);
        eg_tensor *a = random_any(f, EG_SHAPE(m, inner)), *b = random_any(f, EG_SHAPE(inner, n));
        if (PICK(f, 0, 1)) /* b as the transpose of a weight */
            b = eg__scope_add(eg__tensor_new_view(random_in(f, EG_SHAPE(n, inner), NATURAL), EG_SHAPE(inner, n),
                                                  (const int64_t[]){1, inner}, 0));
        eg_tensor *bias = PICK(f, 0, 1) ? random_in(f, EG_SHAPE(n), NATURAL) : NULL;
        BOTH(f, "matmul", EG_SHAPE(m, n), any_placement(f), 1e-5, k->matmul(a, b, bias, y));
        eg_tensor *store = output(f, EG_SHAPE(n, m), NATURAL), *plain = output(f, EG_SHAPE(m, n), NATURAL);
        eg_tensor *y = eg__scope_add(eg__tensor_new_view(store, EG_SHAPE(m, n), (const int64_t[]){1, m}, 0));
        OK(fast->matmul(a, b, bias, y));
        OK(ref->matmul(a, b, bias, plain));
        expect_close("matmul (columns)", y, plain, 1e-5);
    }
}

static void batches_of_products_agree(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 60; i++) {
        int64_t m = PICK(f, 1, 5, 40), n = PICK(f, 1, 3, 33), inner = PICK(f, 1, 7, 64), batch = PICK(f, 1, 3, 8);
        bool two = PICK(f, 0, 1); /* dimensions of the batch */
        eg_shape sizes[3] = {EG_SHAPE(batch, m, inner), EG_SHAPE(batch, inner, n), EG_SHAPE(batch, m, n)};
        for (int k = 0; two && k < 3; k++)
            sizes[k] = EG_SHAPE(batch, 2, sizes[k].dims[1], sizes[k].dims[2]);
        eg_tensor *a = random_any(f, sizes[0]), *b = random_any(f, sizes[1]);
        if (PICK(f, 0, 1)) { /* one b for all */
            b = eg__scope_add(eg__tensor_new_view(b, b->shape, b->strides, b->offset));
            b->strides[0] = 0;
        }
        eg_tensor *bias = PICK(f, 0, 1) ? random_in(f, EG_SHAPE(n), NATURAL) : NULL;
        BOTH(f, "matmul (batch)", sizes[2], any_placement(f), 1e-5, k->matmul(a, b, bias, y));
    }
}

/* ---- batch normalization ---- */

static eg_shape random_norm_shape(fixture *f)
{
    int64_t c = PICK(f, 1, 3, 8, 12, 16, 24, 36, 64, 100), n = PICK(f, 2, 5, 17);
    switch (PICK(f, 0, 1, 2, 2, 2)) {
    case 0:
        return EG_SHAPE(n, c);
    case 1:
        return EG_SHAPE(n, c, 7);
    default:
        return EG_SHAPE(PICK(f, 1, 3, 32), c, PICK(f, 5, 16), PICK(f, 3, 9));
    }
}

static void batch_norms_agree(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 200; i++) {
        eg_shape shape = random_norm_shape(f), channels = EG_SHAPE(shape.dims[1]);
        eg__batch_norm bn = {1e-5, PICK(f, 0, 1) != 0, (double)PICK(f, 0, 1)};
        eg_tensor *x = random_any(f, shape), *dy = random_any(f, shape);
        eg_tensor *gamma = PICK(f, 0, 1, 1) ? random_in(f, channels, NATURAL) : NULL;
        eg_tensor *beta = PICK(f, 0, 1, 1) ? random_in(f, channels, NATURAL) : NULL;
        enum placement where = any_placement(f);
        eg_tensor *out[2][6], *workspace[2] = {NULL, NULL};
        static const char *const names[] = {
            "batch_norm",          "batch_norm mean",           "batch_norm var",
            "batch_norm_backward", "batch_norm_backward gamma", "batch_norm_backward beta"};
        for (int t = 0; t < 2; t++) {
            const eg_kernels *k = t == 0 ? fast : ref;
            for (int j = 0; j < 6; j++)
                out[t][j] = output(f, j % 3 == 0 ? shape : channels, j % 3 == 0 ? where : NATURAL);
            eg_tensor **o = out[t];
            OK(k->batch_norm(&bn, x, gamma, beta, o[1], o[2], o[0], &workspace[t]));
            OK(k->batch_norm_backward(&bn, x, gamma, beta, o[1], o[2], workspace[t], dy, o[3], o[4], o[5]));
            eg_tensor_release(workspace[t]);
        }
        for (int j = 0; j < 6; j++)
            expect_close(names[j], out[0][j], out[1][j], 1e-4);
        eg_tensor *mean = random_in(f, channels, NATURAL), *var = place(f, channels, NATURAL);
        randomize(f, var, 0.5, 2);
        BOTH(f, "batch_norm_eval", shape, where, 1e-5, k->batch_norm_eval(&bn, x, gamma, beta, mean, var, y));
        BOTH(f, "batch_norm_eval_backward", shape, where, 1e-5,
             k->batch_norm_eval_backward(&bn, x, gamma, beta, mean, var, dy, y, NULL, NULL));
        BOTH(f, "batch_norm_eval_backward gamma", channels, NATURAL, 1e-4,
             k->batch_norm_eval_backward(&bn, x, gamma, beta, mean, var, dy, NULL, y, NULL));
    }
}

/* The variance of numbers far from zero, which the difference of two large sums would lose. */
static void variance_survives_a_large_mean(void **state)
{
    fixture *f = *state;
    eg_shape shape = EG_SHAPE(16, 12, 16, 16), channels = EG_SHAPE(12);
    eg__batch_norm bn = {.eps = 1e-5};
    eg_tensor *x = place(f, shape, NATURAL), *mean = output(f, channels, NATURAL);
    randomize(f, x, 999, 1001);
    BOTH(f, "batch_norm var", channels, NATURAL, 1e-4,
         k->batch_norm(&bn, x, NULL, NULL, mean, y, place(f, shape, NATURAL), NULL));
}

/* ---- pooling ---- */

static void pools_agree(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 150; i++) {
        int64_t kernel = PICK(f, 2, 3, 5), stride = PICK(f, 1, 2, 3), dilation = PICK(f, 1, 1, 2),
                padding = PICK(f, 0, kernel / 2);
        eg__window win = {{kernel, kernel},  {stride, stride}, {padding, padding}, {dilation, dilation}, 1,
                          PICK(f, 0, 1) != 0};
        int64_t size = PICK(f, 9, 10, 12), ceil = PICK(f, 0, 1);
        eg_shape x_shape = EG_SHAPE(PICK(f, 1, 4), PICK(f, 1, 3, 12, 16, 24, 36), size, size + 1), y_shape = x_shape;
        for (int d = 0; d < 2; d++) {
            int64_t out = out_size(x_shape.dims[2 + d], &win, d);
            bool more = ceil && out * stride < x_shape.dims[2 + d] + padding; /* a last window that starts inside */
            y_shape.dims[2 + d] =
                out + (more && dilation == 1 && (out - 1) * stride + kernel < x_shape.dims[2 + d] + 2 * padding);
        }
        eg_tensor *x = random_any(f, x_shape), *dy = random_any(f, y_shape);
        enum placement where = any_placement(f);
        eg_tensor *workspace[2] = {NULL, NULL};
        const eg_kernels *tables[] = {fast, ref};
        eg_tensor *maxima[2], *dx[2];
        for (int t = 0; t < 2; t++) {
            maxima[t] = output(f, y_shape, where);
            dx[t] = output(f, x_shape, where);
            OK(tables[t]->max_pool2d(&win, x, maxima[t], &workspace[t]));
            OK(tables[t]->max_pool2d_backward(&win, workspace[t], dy, dx[t], false));
            eg_tensor_release(workspace[t]);
        }
        expect_close("max_pool2d", maxima[0], maxima[1], 0);
        expect_close("max_pool2d_backward", dx[0], dx[1], 1e-5);
        BOTH(f, "max_pool2d (no workspace)", y_shape, where, 0, k->max_pool2d(&win, x, y, NULL));
        win.dilation[0] = win.dilation[1] = 1;
        if (dilation > 1)
            for (int d = 0; d < 2; d++)
                y_shape.dims[2 + d] = out_size(x_shape.dims[2 + d], &win, d);
        dy = random_any(f, y_shape);
        BOTH(f, "avg_pool2d", y_shape, where, 1e-5, k->avg_pool2d(&win, x, y));
        BOTH(f, "avg_pool2d_backward", x_shape, where, 1e-5, k->avg_pool2d_backward(&win, dy, y, false));
    }
}

static void adaptive_pools_agree(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 60; i++) {
        eg_shape x_shape = EG_SHAPE(PICK(f, 1, 7), PICK(f, 1, 3, 24, 36), PICK(f, 4, 7, 8), PICK(f, 5, 8)),
                 y_shape = x_shape;
        y_shape.dims[2] = PICK(f, 1, 2, 3, 9);
        y_shape.dims[3] = PICK(f, 1, 4, 5);
        eg_tensor *x = random_any(f, x_shape), *dy = random_any(f, y_shape);
        enum placement where = any_placement(f);
        BOTH(f, "adaptive_avg_pool2d", y_shape, where, 1e-5, k->adaptive_avg_pool2d(x, y));
        BOTH(f, "adaptive_avg_pool2d_backward", x_shape, where, 1e-5, k->adaptive_avg_pool2d_backward(dy, y));
    }
}

/* ---- element-wise ---- */

static eg_shape random_shape(fixture *f)
{
    switch (PICK(f, 0, 1, 2, 2, 3, 4)) {
    case 0:
        return EG_SCALAR;
    case 1:
        return EG_SHAPE(PICK(f, 1, 5, 1000, 40000));
    case 2:
        return EG_SHAPE(PICK(f, 1, 3, 8), PICK(f, 1, 3, 24, 36), PICK(f, 1, 7, 16), PICK(f, 1, 5, 16));
    case 3:
        return EG_SHAPE(PICK(f, 1, 3, 100), PICK(f, 1, 10, 24));
    default:
        return EG_SHAPE(3, PICK(f, 1, 4), 5, 2, 3);
    }
}

/** Not a number below 0 (with the exponent 0.25 that the tests use). */
static bool is_for_positive(int op)
{
    return op == EG__LOG || op == EG__SQRT || op == EG__POW;
}

static void unaries_agree(void **state)
{
    fixture *f = *state;
    for (int op = 0; op < EG__UNARY_COUNT; op++)
        for (int i = 0; i < 12; i++) {
            eg_shape shape = random_shape(f);
            eg_tensor *x = place(f, shape, any_placement(f)), *dy = random_any(f, shape);
            randomize(f, x, is_for_positive(op) ? 0.01 : -8, 8);
            enum placement where = any_placement(f);
            BOTH(f, "unary", shape, where, 1e-6, k->unary((eg__unary)op, 0.25, 0.75, x, y));
            if (eg__unary_saves_output((eg__unary)op))
                OK(ref->unary((eg__unary)op, 0.25, 0.75, x, x));
            BOTH(f, "unary_backward", shape, where, 1e-6,
                 k->unary_backward((eg__unary)op, 0.25, 0.75, x, dy, y, false));
        }
}

static void unaries_agree_at_the_edges(void **state)
{
    fixture *f = *state;
    const float edges[] = {0.0f,  -0.0f, 1e-30f, -1e-30f, 3.0f, -3.0f, 6.0f,     1e-4f,     -1e-4f, 0.625f,
                           88.7f, 89.5f, -87.0f, -100.0f, 1e4f, -1e4f, INFINITY, -INFINITY, 0.1f,   -20.0f};
    const float positive[] = {0.0f, 1e-45f,     1e-40f,   1.2e-38f, 1e-30f, 0.1f,    0.70710677f, 0.7072f,
                              1.0f, 1.0000001f, 1.41421f, 88.7f,    1e4f,   3.4e38f, INFINITY};
    eg_tensor *any = eg_from_data(f->ctx, EG_SHAPE(EG_COUNT(edges)), edges);
    eg_tensor *not_negative = eg_from_data(f->ctx, EG_SHAPE(EG_COUNT(positive)), positive);
    for (int op = 0; op < EG__UNARY_COUNT; op++) {
        if (op == EG__SILU || op == EG__HARDSWISH || op == EG__GELU || op == EG__MISH)
            continue; /* -infinity * 0 */
        eg_tensor *x = is_for_positive(op) ? not_negative : any;
        BOTH(f, "unary", x->shape, NATURAL, 1e-6, k->unary((eg__unary)op, 0.25, 0.75, x, y));
    }
    const float not [] = {NAN};
    eg_tensor *nan = eg_from_data(f->ctx, EG_SHAPE(1), not ), *y = eg_zeros(f->ctx, EG_SHAPE(1));
    for (int op = 0; op < EG__UNARY_COUNT; op++) {
        OK(fast->unary((eg__unary)op, 0.25, 0.75, nan, y));
        assert_true(isnan(eg_tensor_item(y)));
    }
}

/** `t` seen in a shape where its sizes of 1 are stretched. */
static eg_tensor *stretched(eg_tensor *t)
{
    int64_t strides[EG_MAX_DIMS];
    for (int i = 0; i < t->shape.ndim; i++)
        strides[i] = t->shape.dims[i] == 1 ? 0 : t->strides[i];
    eg_tensor *view = eg__scope_add(eg__tensor_new_view(t, t->shape, strides, t->offset));
    assert_non_null(view);
    return view;
}

static eg_tensor *random_broadcast(fixture *f, eg_shape shape)
{
    for (int i = 0; i < shape.ndim; i++)
        if (PICK(f, 0, 1))
            shape.dims[i] = 1;
    return stretched(random_any(f, shape));
}

static void binaries_agree(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 200; i++) {
        eg_shape shape = random_shape(f);
        eg_tensor *a = PICK(f, 0, 1) ? random_broadcast(f, shape) : random_any(f, shape);
        eg_tensor *b = PICK(f, 0, 1) ? random_broadcast(f, shape) : random_any(f, shape);
        for (int op = 0; op < EG__BINARY_COUNT; op++)
            BOTH(f, "binary", shape, any_placement(f), 1e-6, k->binary((eg__binary)op, a, b, y));
    }
}

static void copies_agree(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 150; i++) {
        eg_shape shape = random_shape(f);
        eg_tensor *x = random_any(f, shape), *start = random_any(f, shape);
        enum placement where = any_placement(f);
        BOTH(f, "copy", shape, where, 0, k->copy(x, y));
        BOTH(f, "fill", shape, where, 0, k->fill(y, 0.3));
        BOTH(f, "fill", shape, where, 0, k->fill(y, 0));
        BOTH(f, "accumulate", shape, where, 1e-6, ref->copy(start, y) == EG_OK ? k->accumulate(x, y) : EG_EINTERNAL);
    }
}

/* ---- reductions ---- */

static void reductions_agree(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 300; i++) {
        eg_shape shape = random_shape(f), reduced = shape;
        for (int d = 0; d < shape.ndim; d++)
            if (PICK(f, 0, 1))
                reduced.dims[d] = 1;
        eg_tensor *x = random_any(f, shape), *index[2];
        enum placement where = any_placement(f);
        BOTH(f, "reduce sum", reduced, where, 1e-4, k->reduce(EG__SUM, x, y, NULL));
        BOTH(f, "reduce max", reduced, where, 0, k->reduce(EG__MAX, x, y, NULL));
        for (int t = 0; t < 2; t++) {
            index[t] = eg_empty(f->ctx, EG_I64, reduced, EG_LAYOUT_DEFAULT);
            OK((t == 0 ? fast : ref)->reduce(EG__MAX, x, output(f, reduced, where), index[t]));
        }
        for (int64_t j = 0; j < eg_tensor_numel(index[0]); j++)
            assert_int_equal(eg__i64(index[0])[j], eg__i64(index[1])[j]);
    }
}

static void softmaxes_agree(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 100; i++) {
        eg_shape shape = random_shape(f);
        if (shape.ndim == 0)
            continue;
        int dim = (int)eg_rng_below(&f->rng, (uint64_t)shape.ndim);
        bool logarithm = PICK(f, 0, 1) != 0;
        eg_tensor *x = place(f, shape, any_placement(f)), *dy = random_any(f, shape),
                  *y0 = place(f, shape, any_placement(f));
        randomize(f, x, -30, 30);
        enum placement where = any_placement(f);
        BOTH(f, "softmax", shape, where, 2e-6, k->softmax(dim, logarithm, x, y));
        randomize(f, x, -2, 2);
        OK(ref->softmax(dim, logarithm, x, y0));
        BOTH(f, "softmax_backward", shape, where, 5e-5, k->softmax_backward(dim, logarithm, y0, dy, y));
    }
}

static void cross_entropies_agree(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 60; i++) {
        int64_t n = PICK(f, 1, 5, 64), c = PICK(f, 2, 10, 100);
        double smoothing = PICK(f, 0, 1) ? 0.1 : 0;
        eg_shape shape = EG_SHAPE(n, c);
        eg_tensor *logits = place(f, shape, any_placement(f)), *target, *dloss = random_in(f, EG_SHAPE(n), NATURAL);
        randomize(f, logits, -20, 20);
        if (PICK(f, 0, 1)) {
            target = place(f, shape, any_placement(f));
            randomize(f, target, 0, 0.3);
        } else {
            int64_t labels[64];
            for (int64_t j = 0; j < n; j++)
                labels[j] = (int64_t)eg_rng_below(&f->rng, (uint64_t)c);
            target = eg_from_labels(f->ctx, (size_t)n, labels);
        }
        enum placement where = any_placement(f);
        eg_tensor *p = place(f, shape, NATURAL);
        BOTH(f, "cross_entropy", EG_SHAPE(n), NATURAL, 1e-5, k->cross_entropy(smoothing, logits, target, p, y));
        BOTH(f, "cross_entropy probability", shape, where, 1e-6,
             k->cross_entropy(smoothing, logits, target, y, place(f, EG_SHAPE(n), NATURAL)));
        BOTH(f, "cross_entropy_backward", shape, where, 1e-5,
             k->cross_entropy_backward(smoothing, p, target, dloss, y));
    }
}

/* ---- mixed edges ---- */

static void weighted_sums_agree(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 80; i++) {
        eg_shape shape = random_shape(f);
        size_t n = (size_t)PICK(f, 1, 2, 3, 8);
        eg_tensor *x[8], *w = random_in(f, EG_SHAPE((int64_t)n), NATURAL), *dy = random_any(f, shape);
        for (size_t j = 0; j < n; j++)
            x[j] = random_any(f, shape);
        enum placement where = any_placement(f);
        BOTH(f, "weighted_sum", shape, where, 1e-5, k->weighted_sum(n, (const eg_tensor *const *)x, w, y));
        BOTH(f, "weighted_sum (plain)", shape, where, 1e-5, k->weighted_sum(n, (const eg_tensor *const *)x, NULL, y));
        BOTH(f, "weighted_sum_backward w", w->shape, NATURAL, 1e-4,
             k->weighted_sum_backward(n, (const eg_tensor *const *)x, w, dy, NULL, y));
        eg_tensor *dx[2][8], *dw[2];
        for (int t = 0; t < 2; t++) {
            dw[t] = output(f, w->shape, NATURAL);
            for (size_t j = 0; j < n; j++)
                dx[t][j] = j == 1 ? NULL : output(f, shape, where);
            OK((t == 0 ? fast : ref)->weighted_sum_backward(n, (const eg_tensor *const *)x, w, dy, dx[t], dw[t]));
        }
        expect_close("weighted_sum_backward w", dw[0], dw[1], 1e-4);
        for (size_t j = 0; j < n; j++)
            if (dx[0][j])
                expect_close("weighted_sum_backward x", dx[0][j], dx[1][j], 1e-6);
    }
}

/* ---- optimizers ---- */

#define GROUP 4

static void make_group(fixture *f, eg_tensor *t[2][GROUP], double low, double high)
{
    const eg_shape shapes[GROUP] = {EG_SHAPE(10), EG_SHAPE(300, 130), EG_SCALAR, EG_SHAPE(5, 3, 3, 3)};
    for (int j = 0; j < GROUP; j++) {
        t[0][j] = place(f, shapes[j], ROW_MAJOR);
        t[1][j] = place(f, shapes[j], ROW_MAJOR);
        randomize(f, t[0][j], low, high);
        OK(ref->copy(t[0][j], t[1][j]));
    }
}

static void expect_group(const char *what, eg_tensor *t[2][GROUP])
{
    for (int j = 0; j < GROUP; j++)
        expect_close(what, t[0][j], t[1][j], 1e-5);
}

static void optimizers_agree(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 12; i++) {
        eg_tensor *p[2][GROUP], *grad[2][GROUP], *m[2][GROUP], *v[2][GROUP];
        make_group(f, p, -1, 1);
        make_group(f, grad, -1, 1);
        make_group(f, m, -1, 1);
        make_group(f, v, 0.1, 1);
        eg__sgd sgd = {.lr = 0.1,
                       .momentum = i % 4 == 0 ? 0 : 0.9,
                       .dampening = i % 3 ? 0 : 0.2,
                       .weight_decay = 0.01 * (i % 2),
                       .nesterov = i % 3 == 1};
        for (int step = 0; step < 3; step++) {
            sgd.first = step == 0;
            OK(fast->sgd(&sgd, GROUP, p[0], grad[0], sgd.momentum != 0 ? m[0] : NULL));
            OK(ref->sgd(&sgd, GROUP, p[1], grad[1], sgd.momentum != 0 ? m[1] : NULL));
        }
        expect_group("sgd", p);
        expect_group("sgd momentum", m);
        eg__adam adam = {.lr = 0.01,
                         .beta1 = 0.9,
                         .beta2 = 0.999,
                         .eps = 1e-8,
                         .weight_decay = 0.1 * (i % 2),
                         .decoupled = i % 4 > 1};
        for (adam.step = 1; adam.step < 4; adam.step++) {
            OK(fast->adam(&adam, GROUP, p[0], grad[0], m[0], v[0]));
            OK(ref->adam(&adam, GROUP, p[1], grad[1], m[1], v[1]));
        }
        expect_group("adam", p);
        expect_group("adam mean", m);
        expect_group("adam square", v);
        double norm[2];
        OK(fast->norm2(GROUP, grad[0], &norm[0]));
        OK(ref->norm2(GROUP, grad[1], &norm[1]));
        assert_true(fabs(norm[0] - norm[1]) < 1e-9 * norm[1]);
        OK(fast->scale(GROUP, grad[0], 0.37));
        OK(ref->scale(GROUP, grad[1], 0.37));
        expect_group("scale", grad);
    }
}

/* ---- threads ---- */

/* Our own sums go through blocks of a fixed size: one thread and three give the same bits. */
static void sums_do_not_depend_on_threads(void **state)
{
    fixture *f = *state;
    double norm[2];
    float item[2], var[2][24], dot[2];
    for (int t = 0; t < 2; t++) {
        fixture g = {eg_context_new(.threads = t == 0 ? 1 : 3), f->rng};
        eg_tensor *x = random_in(&g, EG_SHAPE(16, 24, 16, 16), NATURAL), *y = output(&g, EG_SHAPE(1, 1, 1, 1), NATURAL);
        eg_tensor *mean = output(&g, EG_SHAPE(24), NATURAL), *v = output(&g, EG_SHAPE(24), NATURAL);
        OK(fast->norm2(1, &x, &norm[t]));
        OK(fast->reduce(EG__SUM, x, y, NULL));
        OK(fast->batch_norm(&(eg__batch_norm){.eps = 1e-5, .relu = true}, x, NULL, NULL, mean, v,
                            place(&g, x->shape, NATURAL), NULL));
        OK(eg_tensor_read(y, &item[t], 1));
        OK(eg_tensor_read(v, var[t], 24));
        eg_tensor *w = random_in(&g, EG_SHAPE(1), NATURAL), *dw = output(&g, EG_SHAPE(1), NATURAL);
        OK(fast->weighted_sum_backward(1, (const eg_tensor *const[]){x}, w, x, NULL, dw));
        OK(eg_tensor_read(dw, &dot[t], 1));
        eg_context_free(g.ctx);
    }
    assert_true(norm[0] == norm[1]);
    assert_memory_equal(&item[0], &item[1], sizeof item[0]);
    assert_memory_equal(var[0], var[1], sizeof var[0]);
    assert_memory_equal(&dot[0], &dot[1], sizeof dot[0]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)
    const struct CMUnitTest tests[] = {
        TEST(convolutions_agree),
        TEST(filters_of_many_channels_agree),
        TEST(depthwise_filters_of_many_samples_agree),
        TEST(a_second_call_makes_no_primitive),
        TEST(changed_weights_are_seen),
        TEST(convolution_without_elements),
        TEST(products_agree),
        TEST(batches_of_products_agree),
        TEST(batch_norms_agree),
        TEST(variance_survives_a_large_mean),
        TEST(pools_agree),
        TEST(adaptive_pools_agree),
        TEST(unaries_agree),
        TEST(unaries_agree_at_the_edges),
        TEST(binaries_agree),
        TEST(copies_agree),
        TEST(reductions_agree),
        TEST(softmaxes_agree),
        TEST(cross_entropies_agree),
        TEST(weighted_sums_agree),
        TEST(gradients_add),
        TEST(pooling_gradients_add),
        TEST(optimizers_agree),
        TEST(sums_do_not_depend_on_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

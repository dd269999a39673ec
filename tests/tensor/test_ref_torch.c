/*
 * tests/tensor/test_ref_torch.c - the reference kernels against PyTorch's numbers.
 *
 * Every case runs in float32 and float64, and with its tensors laid out in three ways: channels-last,
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

/* ---------------------------------------------------------------------------------------------- cases */

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
    assert_ok(k->conv2d(&win, x, w, in(s, c, "b"), y));
    expect(s, c, "y", y);
    assert_ok(k->conv2d_backward_input(&win, w, dy, dx, false));
    expect(s, c, "dx", dx);
    assert_ok(k->conv2d_backward_weight(&win, x, dy, NULL, db));
    assert_ok(k->conv2d_backward_weight(&win, x, dy, dw, NULL));
    expect(s, c, "dw", dw);
    expect(s, c, "db", db);
}

static void run_matmul(const setup *s, const json_t *c)
{
    eg_tensor *a = in(s, c, "a"), *b = in(s, c, "b"), *dy = in(s, c, "dy");
    eg_tensor *y = out(s, c, "y"), *da = out(s, c, "da"), *db = out(s, c, "db");
    assert_ok(k->matmul(a, b, NULL, y));
    expect(s, c, "y", y);
    assert_ok(k->matmul(dy, transposed(b), NULL, da));
    expect(s, c, "da", da);
    assert_ok(k->matmul(transposed(a), dy, NULL, db));
    expect(s, c, "db", db);
}

static void run_linear(const setup *s, const json_t *c)
{
    eg_tensor *y = out(s, c, "y");
    assert_ok(k->matmul(in(s, c, "x"), transposed(in(s, c, "w")), in(s, c, "b"), y));
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
        assert_ok(k->batch_norm(&bn, x, gamma, beta, mean, var, y, &workspace));
        assert_null(workspace);
        expect(s, c, "mean", mean);
        expect(s, c, "var", var);
        assert_ok(k->batch_norm_backward(&bn, x, gamma, beta, mean, var, NULL, dy, dx, dgamma, dbeta));
        assert_ok(k->batch_norm(&bn, x, gamma, beta, mean, var, y, NULL));
    } else {
        eg_tensor *mean = in(s, c, "running_mean"), *var = in(s, c, "running_var");
        assert_ok(k->batch_norm_eval(&bn, x, gamma, beta, mean, var, y));
        assert_ok(k->batch_norm_eval_backward(&bn, x, gamma, beta, mean, var, dy, dx, dgamma, dbeta));
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
    assert_ok(k->max_pool2d(&win, x, y, &workspace));
    expect(s, c, "y", y);
    vector_expect(c, "index", workspace, 0, 0);
    assert_ok(k->max_pool2d_backward(&win, workspace, dy, dx, false));
    expect(s, c, "dx", dx);
    eg_tensor_release(workspace);
    fill(y, NAN);
    assert_ok(k->max_pool2d(&win, x, y, NULL));
    expect(s, c, "y", y);
}

static void run_avg_pool2d(const setup *s, const json_t *c)
{
    eg__window win = window_of(c);
    win.exclude_pad = vector_flag(c, "exclude_pad");
    eg_tensor *y = out(s, c, "y"), *dx = out(s, c, "dx");
    assert_ok(k->avg_pool2d(&win, in(s, c, "x"), y));
    expect(s, c, "y", y);
    assert_ok(k->avg_pool2d_backward(&win, in(s, c, "dy"), dx, false));
    expect(s, c, "dx", dx);
}

static void run_adaptive_avg_pool2d(const setup *s, const json_t *c)
{
    eg_tensor *y = out(s, c, "y"), *dx = out(s, c, "dx");
    assert_ok(k->adaptive_avg_pool2d(in(s, c, "x"), y));
    expect(s, c, "y", y);
    assert_ok(k->adaptive_avg_pool2d_backward(in(s, c, "dy"), dx));
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
    static const char *const names[EG__UNARY_COUNT] = {
        "relu",        "relu6",      "leaky_relu", "sigmoid", "tanh",      "gelu",  "silu", "hardswish",
        "hardsigmoid", "elu",        "softplus",   "mish",    "exp",       "log",   "sqrt", "abs",
        "square",      "reciprocal", "pow",        "clamp",   "smooth_l1", "affine"};
    eg__unary op = (eg__unary)find(names, EG__UNARY_COUNT, vector_name(c));
    double a = vector_number(c, "a"), b = vector_number(c, "b");
    eg_tensor *x = in(s, c, "x"), *y = out(s, c, "y"), *dx = out(s, c, "dx");
    assert_ok(k->unary(op, a, b, x, y));
    expect(s, c, "y", y);
    assert_ok(k->unary_backward(op, a, b, eg__unary_saves_output(op) ? y : x, in(s, c, "dy"), dx, false));
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
    static const char *const names[EG__BINARY_COUNT] = {"add", "sub", "mul",  "div",  "maximum", "minimum",
                                                        "gt",  "eq",  "step", "keep", "drop",    "leak"};
    eg__binary op = (eg__binary)find(names, EG__BINARY_COUNT, vector_name(c));
    eg_tensor *y = out(s, c, "y");
    assert_ok(k->binary(op, broadcast(in(s, c, "a"), y->shape), broadcast(in(s, c, "b"), y->shape), y));
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
    assert_ok(k->weighted_sum(n, x, w, y));
    expect(s, c, "y", y);
    assert_ok(k->weighted_sum_backward(n, NULL, w, dy, dx, NULL));
    for (size_t i = 0; i < n; i++)
        expect(s, c, (char[]){'d', 'x', (char)('0' + i), 0}, dx[i]);
    assert_ok(k->weighted_sum_backward(n, x, w, dy, (eg_tensor *[MAX]){NULL}, dw));
    expect(s, c, "dw", dw);
}

static void run_sum(const setup *s, const json_t *c)
{
    eg_tensor *y = out(s, c, "y");
    assert_ok(k->reduce(EG__SUM, in(s, c, "x"), y, NULL));
    expect(s, c, "y", y);
}

static void run_max(const setup *s, const json_t *c)
{
    eg_tensor *x = in(s, c, "x"), *y = out(s, c, "y"), *index = make(s, EG_I64, vector_shape(c, "index"));
    assert_ok(k->reduce(EG__MAX, x, y, index));
    expect(s, c, "y", y);
    expect(s, c, "index", index);
    fill(y, NAN);
    assert_ok(k->reduce(EG__MAX, x, y, NULL));
    expect(s, c, "y", y);
}

static void run_softmax(const setup *s, const json_t *c)
{
    bool logarithm = strcmp(vector_op(c), "log_softmax") == 0;
    int dim = (int)vector_number(c, "dim");
    eg_tensor *y = out(s, c, "y"), *dx = out(s, c, "dx");
    assert_ok(k->softmax(dim, logarithm, in(s, c, "x"), y));
    expect(s, c, "y", y);
    assert_ok(k->softmax_backward(dim, logarithm, y, in(s, c, "dy"), dx));
    expect(s, c, "dx", dx);
}

static void run_cross_entropy(const setup *s, const json_t *c)
{
    double smoothing = vector_number(c, "smoothing");
    bool soft = vector_shape(c, "target").ndim == 2;
    eg_tensor *target = in_as(s, c, "target", soft ? s->dtype : EG_I64);
    eg_tensor *p = out(s, c, "probability"), *y = out(s, c, "y"), *dx = out(s, c, "dx");
    assert_ok(k->cross_entropy(smoothing, in(s, c, "x"), target, p, y));
    expect(s, c, "probability", p);
    expect(s, c, "y", y);
    assert_ok(k->cross_entropy_backward(smoothing, p, target, in(s, c, "dy"), dx));
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
        assert_ok(k->sgd(&o, 1, &p, &grad, &buf));
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
    assert_ok(k->fill(m, 0));
    assert_ok(k->fill(v, 0));
    for (o.step = 1; o.step <= (int64_t)vector_number(c, "steps"); o.step++) {
        char name[16];
        eg_tensor *grad = in(s, c, numbered(name, sizeof name, "grad", (int)o.step));
        assert_ok(k->adam(&o, 1, &p, &grad, &m, &v));
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
    assert_ok(k->norm2(n, grads, &squares));
    double norm = vector_value(c, "norm", 0);
    assert_true(fabs(sqrt(squares) - norm) <= s->rtol * norm);
    assert_ok(k->scale(n, grads, fmin(1, max_norm / (sqrt(squares) + 1e-6))));
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

static void torch_conv(void **state)
{
    (void)state;
    run_family("conv");
}
static void torch_norm(void **state)
{
    (void)state;
    run_family("norm");
}
static void torch_pool(void **state)
{
    (void)state;
    run_family("pool");
}
static void torch_elementwise(void **state)
{
    (void)state;
    run_family("elementwise");
}
static void torch_reduce(void **state)
{
    (void)state;
    run_family("reduce");
}
static void torch_optim(void **state)
{
    (void)state;
    run_family("optim");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torch_conv),        cmocka_unit_test(torch_norm),   cmocka_unit_test(torch_pool),
        cmocka_unit_test(torch_elementwise), cmocka_unit_test(torch_reduce), cmocka_unit_test(torch_optim),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

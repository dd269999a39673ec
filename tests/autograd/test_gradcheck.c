/*
 * The gradient check must find what is wrong and pass what is right.
 */
#include "support.h"

#include "engraft/sys/op.h"

/* x^3 element by element, with a backward that may be made wrong. */
typedef struct cube_attrs {
    double factor;  /* of the gradient: 1 = right */
    int64_t broken; /* this entry's gradient is zero; -1 = none */
    bool forget;    /* no gradient at all */
} cube_attrs;

static eg_status infer(const eg_op_call *call, eg_spec *out)
{
    out[0] = (eg_spec){.dtype = eg_tensor_dtype(call->in[0]), .shape = eg_tensor_shape(call->in[0])};
    return EG_OK;
}

static eg_status forward(eg_op_call *call)
{
    const double *x = eg_tensor_data(call->in[0]);
    double *y = eg_tensor_data(call->out[0]);
    for (int64_t i = 0; i < eg_tensor_numel(call->in[0]); i++)
        y[i] = x[i] * x[i] * x[i];
    return eg_op_save(call, call->in[0]);
}

static eg_status backward(eg_op_grad *grad)
{
    const cube_attrs *attrs = grad->attrs;
    if (attrs->forget)
        return EG_OK;
    eg_tensor *t = eg_op_grad_new(grad, 0);
    if (!t)
        return EG_ENOMEM;
    const double *x = eg_tensor_data(grad->saved[0]), *dy = eg_tensor_data(grad->grad_out[0]);
    double *dx = eg_tensor_data(t);
    for (int64_t i = 0; i < eg_tensor_numel(t); i++)
        dx[i] = i == attrs->broken ? 0 : attrs->factor * 3 * x[i] * x[i] * dy[i];
    return EG_OK;
}

static const eg_op cube_op = {.struct_size = sizeof(eg_op),
                              .name = "cube",
                              .attrs_size = sizeof(cube_attrs),
                              .infer = infer,
                              .forward = forward,
                              .backward = backward};

static eg_tensor *cube(void *payload, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_apply(&cube_op, in, 1, payload);
}

/* Multiplied by random numbers: must be the same ones at every evaluation. */
static eg_tensor *noisy(void *payload, eg_tensor *const *in, size_t n_in)
{
    double noise = eg_rng_normal(eg_context_rng(eg_tensor_context(in[0])));
    eg_tensor *x = eg_empty(eg_tensor_context(in[0]), EG_F64, eg_tensor_shape(in[0]), EG_LAYOUT_DEFAULT);
    return x && noise > 1e300 ? x : cube(payload, in, n_in);
}

static eg_tensor *failing(void *payload, eg_tensor *const *in, size_t n_in)
{
    (void)payload, (void)in, (void)n_in;
    eg_fail(EG_EUNSUPPORTED, "cannot");
    return NULL;
}

static eg_tensor *identity_f32(void *payload, eg_tensor *const *in, size_t n_in)
{
    (void)in, (void)n_in;
    return payload;
}

static int setup(void **state)
{
    eg_error_clear();
    *state = eg_context_new(.seed = 1, .threads = 1, .backend = "ref");
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    return 0;
}

static eg_tensor *input(eg_context *ctx, eg_shape shape)
{
    eg_tensor *x = eg_empty(ctx, EG_F64, shape, EG_LAYOUT_DEFAULT);
    assert_made(x);
    assert_ok(eg_tensor_assign(x, eg_randn(ctx, shape)));
    assert_ok(eg_tensor_set_requires_grad(x, true));
    return x;
}

static void test_right(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = input(ctx, EG_SHAPE(2, 3, 4, 2)), *large = input(ctx, EG_SHAPE(1000));
    cube_attrs right = {.factor = 1, .broken = -1};
    double before[48];
    memcpy(before, eg_tensor_data(x), sizeof before);
    eg_rng rng = *eg_context_rng(ctx);
    assert_ok(eg_gradcheck(ctx, cube, &right, &x, 1, NULL));
    assert_ok(eg_gradcheck(ctx, noisy, &right, &x, 1, NULL));
    assert_ok(eg_gradcheck(ctx, cube, &right, &large, 1, NULL));
    assert_memory_equal(eg_tensor_data(x), before, sizeof before);
    assert_true(eg_context_rng(ctx)->position == rng.position);
}

static void test_wrong(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = input(ctx, EG_SHAPE(2, 3));
    cube_attrs scaled = {.factor = 1.001, .broken = -1}, broken = {.factor = 1, .broken = 4}, forgot = {.forget = true};
    assert_fails(eg_gradcheck(ctx, cube, &scaled, &x, 1, NULL), EG_EINTERNAL, "gradient of input 0, entry 0");
    assert_fails(eg_gradcheck(ctx, cube, &broken, &x, 1, NULL), EG_EINTERNAL, "entry 4: 0, but the central difference");
    assert_fails(eg_gradcheck(ctx, cube, &forgot, &x, 1, NULL), EG_EINTERNAL, "entry 0: 0, but");
    eg_gradcheck_options loose = {.struct_size = sizeof loose, .rtol = 0.01};
    assert_ok(eg_gradcheck(ctx, cube, &scaled, &x, 1, &loose));
    eg_gradcheck_options few = {.struct_size = sizeof few, .max_entries = 1, .eps = -1};
    assert_fails(eg_gradcheck(ctx, cube, &scaled, &x, 1, &few), EG_EINVAL, "negative");
    *(double *)eg_tensor_data(x) = NAN;
    cube_attrs right = {.factor = 1, .broken = -1};
    assert_fails(eg_gradcheck(ctx, cube, &right, &x, 1, NULL), EG_EINTERNAL, "nan");
}

static void test_what_cannot_be_checked(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = input(ctx, EG_SHAPE(2)), *narrow = eg_zeros(ctx, EG_SHAPE(2));
    assert_fails(eg_gradcheck(ctx, failing, NULL, &x, 1, NULL), EG_EUNSUPPORTED, "cannot");
    assert_fails(eg_gradcheck(ctx, identity_f32, narrow, &x, 1, NULL), EG_EDTYPE, "float32, expected float64");
    assert_fails(eg_gradcheck(ctx, identity_f32, x, &x, 1, NULL), EG_EINVAL, "nothing was recorded");
    assert_fails(eg_gradcheck(ctx, cube, NULL, &(eg_tensor *){NULL}, 1, NULL), EG_EINVAL, "input 0 is NULL");
    assert_fails(eg_gradcheck(NULL, cube, NULL, &x, 1, NULL), EG_EINVAL, "NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_right, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_checked, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

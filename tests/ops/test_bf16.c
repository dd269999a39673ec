/*
 * Every operation on bfloat16 inputs, forward and backward, against float32 of the same (rounded) numbers: within the
 * roundings of what is stored as bfloat16. Emulated by float32 kernels, on any processor; and as oneDNN does it, which
 * on a processor without bfloat16 is to say for every product that it has no such implementation.
 */
#include "ops/cases.h"
#include "tensor/state.h"

typedef struct outcome {
    eg_status status;
    eg_dtype type; /* of the output */
    size_t n[CASE_INPUTS + 1];
    float *values[CASE_INPUTS + 1]; /* the output, then gradients of the inputs */
} outcome;

static bool is_float(const op_case *c, size_t i)
{
    return strchr("npwNP", case_letter(c, i)) != NULL;
}

/* Input i rounded to bfloat16, and stored so if `narrow`. */
static eg_tensor *input(eg_context *ctx, const op_case *c, size_t i, bool narrow)
{
    eg_tensor *t = case_input(ctx, c, i, EG_F32);
    if (!is_float(c, i))
        return t;
    eg_tensor *rounded = eg_empty(ctx, EG_BF16, c->shape[i], case_layout(c, i));
    assert_ok(eg_tensor_assign(rounded, t));
    if (!narrow)
        assert_ok(eg_tensor_assign(t, rounded));
    eg_tensor *made = narrow ? rounded : t;
    if (case_wants_grad(c, i))
        assert_ok(eg_tensor_set_requires_grad(made, true));
    return made;
}

static void keep(outcome *o, size_t slot, const eg_tensor *t)
{
    if (!t || eg_is_none(t) || !eg__is_float(eg_tensor_dtype(t)))
        return;
    o->n[slot] = (size_t)eg_tensor_numel(t);
    o->values[slot] = calloc(o->n[slot] + 1, sizeof(float));
    assert_ok(eg_tensor_read(t, o->values[slot], o->n[slot]));
}

/* Numbers that bfloat16 holds exactly. */
static eg_tensor *gradient_for(const eg_tensor *y)
{
    eg_tensor *dy = eg_tensor_copy(y);
    size_t n = (size_t)eg_tensor_numel(y);
    float *values = calloc(n + 1, sizeof(float));
    for (size_t i = 0; i < n; i++)
        values[i] = (float)((int)(i * 37 % 17) - 8) / 8;
    assert_ok(eg_tensor_write(dy, values, n));
    free(values);
    return dy;
}

/* Bit i of `narrow`: input i is bfloat16. */
static outcome run(const op_case *c, const char *backend, unsigned narrow)
{
    outcome o = {.status = EG_OK};
    bool native = strcmp(backend, "native") == 0;
    eg_context *ctx = eg_context_new(.seed = 3, .threads = 2, .backend = native ? "dnnl" : backend);
    assert_made(ctx);
    if (native)
        eg__tensor_state_of(ctx)->mixed = &eg__native_kernels;
    eg_tensor *in[CASE_INPUTS];
    for (size_t i = 0; i < CASE_INPUTS; i++)
        in[i] = input(ctx, c, i, narrow >> i & 1);
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *y = c->run(in, c);
    if (y && eg_tensor_requires_grad(y))
        o.status = eg_backward_from(y, gradient_for(y));
    else if (!y)
        o.status = eg_error_last()->code;
    o.type = eg_tensor_dtype(y);
    if (o.status == EG_OK)
        keep(&o, 0, y);
    for (size_t i = 0; i < CASE_INPUTS && o.status == EG_OK; i++) {
        const eg_tensor *grad = eg_is_none(in[i]) ? NULL : eg_tensor_grad(in[i]);
        if (grad)
            assert_int_equal(eg_tensor_dtype(grad), eg_tensor_dtype(in[i]));
        keep(&o, i + 1, grad);
    }
    eg_tape_end(tape);
    eg_context_free(ctx);
    return o;
}

static void outcome_free(outcome *o)
{
    for (size_t i = 0; i < EG_COUNT(o->values); i++)
        free(o->values[i]);
}

/* Numbers of bfloat16 have 8 bits: a rounding is off by 1/512 at most; operations made of several round in between.
 * Recurrent layers differentiate from activations near 1, where 1 - y^2 loses most of them. */
static void compare(const op_case *c, unsigned narrow, const outcome *expected, const outcome *got)
{
    float tolerance = strcmp(c->op, "lstm") == 0 || strcmp(c->op, "gru") == 0 ? 0.1F : 0.02F;
    for (size_t slot = 0; slot < EG_COUNT(got->n); slot++) {
        if (expected->n[slot] != got->n[slot])
            fail_msg("%s '%s' (%x): result %zu has %zu numbers, expected %zu", c->op, c->name, narrow, slot,
                     got->n[slot], expected->n[slot]);
        float largest = 0.5F;
        for (size_t i = 0; i < got->n[slot]; i++)
            largest = fmaxf(largest, fabsf(expected->values[slot][i]));
        for (size_t i = 0; i < got->n[slot]; i++)
            if (!(fabsf(expected->values[slot][i] - got->values[slot][i]) <= tolerance * largest))
                fail_msg("%s '%s' (%x): result %zu, number %zu is %.8g, in float32 %.8g", c->op, c->name, narrow, slot,
                         i, (double)got->values[slot][i], (double)expected->values[slot][i]);
    }
}

/* With a parameter, a condition. */
static bool begins_otherwise(const op_case *c)
{
    return strcmp(c->op, "embedding") == 0 || strcmp(c->op, "weight_norm") == 0 || strcmp(c->op, "where") == 0;
}

/* The first floating-point input alone, which is what an activation is; all of them; each other one alone. */
static void check_case(const op_case *c, const char *backend)
{
    unsigned all = 0, first = 0;
    for (size_t i = CASE_INPUTS; i-- > 0;)
        if (is_float(c, i)) {
            all |= 1u << i;
            first = 1u << i;
        }
    outcome expected = run(c, backend, 0);
    if (expected.status != EG_OK)
        fail_msg("%s '%s': %s", c->op, c->name, eg_error_first()->message);
    for (unsigned narrow = 1; narrow <= all; narrow++) {
        bool single = (narrow & (narrow - 1)) == 0;
        if ((narrow & ~all) || !(single || narrow == all))
            continue;
        eg_error_clear();
        outcome got = run(c, backend, narrow);
        bool activation = narrow == first && !begins_otherwise(c);
        if (got.status != EG_OK && (activation || got.status != EG_EDTYPE))
            fail_msg("%s '%s' (%x): %s", c->op, c->name, narrow, eg_error_first()->message);
        if (got.status == EG_OK && activation && expected.type == EG_F32 && got.type != EG_BF16)
            fail_msg("%s '%s' (%x): the result is %s", c->op, c->name, narrow, eg_dtype_name(got.type));
        if (got.status == EG_OK)
            compare(c, narrow, &expected, &got);
        outcome_free(&got);
    }
    outcome_free(&expected);
    eg_error_clear();
}

static void test_operations(void **state)
{
    for (size_t k = 0; k < EG_COUNT(op_cases); k++)
        check_case(&op_cases[k], *state);
}

int main(void)
{
    setenv("EG_BF16", "emulate", 1);
    const struct CMUnitTest tests[] = {
        {"test_operations (dnnl)", test_operations, NULL, NULL, "dnnl"},
        {"test_operations (ref)", test_operations, NULL, NULL, "ref"},
        {"test_operations (native)", test_operations, NULL, NULL, "native"},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Every allocation of every operation, forward and backward, fails once: ENOMEM, nothing lost. (With the pool off, so
 * that each tensor is an allocation.)
 */
#include "support_alloc.h"

#include "ops/cases.h"

typedef struct trial {
    const op_case *c;
    const char *backend;
} trial;

static eg_status forward_and_backward(eg_context *ctx, const op_case *c, eg_tensor *const *in)
{
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    if (!tape)
        return eg_error_last()->code;
    eg_tensor *y = c->run(in, c), *dy = eg_tensor_copy(y);
    eg_status status = y && dy ? eg_backward_from(y, dy) : eg_error_last()->code;
    eg_tape_end(tape);
    return status;
}

/* The context and the inputs are made without failures: what they do is tested elsewhere. */
static eg_status work(void *payload)
{
    const trial *tried = payload;
    long countdown = alloc_countdown;
    alloc_countdown = -1;
    eg_context *ctx = eg_context_new(.threads = 1, .backend = tried->backend);
    assert_non_null(ctx);
    eg_tensor *in[CASE_INPUTS];
    for (size_t i = 0; i < CASE_INPUTS; i++)
        in[i] = case_input(ctx, tried->c, i, EG_F32);
    size_t before = eg_context_get_stats(ctx).bytes_in_use;
    alloc_countdown = countdown;
    eg_status status = forward_and_backward(ctx, tried->c, in);
    for (size_t i = 0; i < CASE_INPUTS; i++)
        if (!eg_is_none(in[i]))
            eg_tensor_zero_grad(in[i]);
    if (strcmp(tried->backend, "ref") == 0) /* the fast kernels keep packed weights */
        assert_int_equal(eg_context_get_stats(ctx).bytes_in_use, before);
    eg_context_free(ctx);
    return status;
}

static void test_backend(void **state)
{
    for (size_t k = 0; k < EG_COUNT(op_cases); k++) {
        trial tried = {&op_cases[k], *state};
        long n = assert_survives_allocation_failures(work, &tried, false);
        assert_true(n >= 5);
        assert_int_equal(assert_survives_allocation_failures(work, &tried, true), n);
    }
}

int main(void)
{
    if (setenv("EG_POOL", "off", 1) != 0)
        return 1;
    const struct CMUnitTest tests[] = {
        {"ref", test_backend, NULL, NULL, "ref"},
        {"dnnl", test_backend, NULL, NULL, "dnnl"},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

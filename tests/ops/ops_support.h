/*
 * tests/ops/ops_support.h - one context a test, random tensors in it, and what a refusal must look like.
 */
#ifndef EG_TESTS_OPS_SUPPORT_H
#define EG_TESTS_OPS_SUPPORT_H

#include "support.h"

#include "engraft/ops.h"

#ifndef OPS_THREADS
#define OPS_THREADS 1
#endif

static eg_context *ctx;

static inline int set_up(void **state)
{
    (void)state;
    eg_error_clear();
    ctx = eg_context_new(.seed = 1, .threads = OPS_THREADS);
    return ctx ? 0 : -1;
}

static inline int tear_down(void **state)
{
    (void)state;
    eg_context_free(ctx);
    return 0;
}

static inline eg_tensor *t(eg_shape shape)
{
    return eg_randn(ctx, shape);
}

/* `result` is NULL, for this reason. */
static inline void expect_error(const void *result, eg_status code, const char *message)
{
    assert_null(result);
    assert_string_equal(eg_error_first()->message, message);
    assert_int_equal(eg_error_first()->code, code);
    assert_int_equal(eg_error_last()->code, code);
    eg_error_clear();
}

#endif

/*
 * A chain of modules that is longer than the C stack: walked, set, operated on and released.
 */
#include "support.h"

#include "engraft/layers.h"
#include "engraft/surgery.h"

#ifdef __SANITIZE_ADDRESS__ /* whose stacks are smaller and whose memory is larger */
enum { DEPTH = 200000 };
#else
enum { DEPTH = 1000000 };
#endif

static eg_status count(void *payload, const char *path, eg_module *m)
{
    (void)m;
    size_t *n = payload;
    assert_true(strlen(path) == (*n == 0 ? 0 : 2 * *n - 1)); /* "0.0.0" */
    ++*n;
    return EG_OK;
}

static eg_module *to_gelu(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_gelu(m->ctx);
}

static void a_long_chain(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1, .backend = "ref");
    eg_module *m = eg_prelu(ctx);
    for (int i = 1; i < DEPTH; i++)
        m = eg_sequential(ctx, &m, 1);
    assert_made(m);
    assert_int_equal(eg_module_n_parameters(m), 1);
    eg_module_train(m, false);
    eg_module_set_requires_grad(m, false);
    eg_module_zero_grad(m);
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_sequential_class)), DEPTH - 2);
    eg_surgery *s = eg_surgery_new(m);
    assert_ok(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_prelu_class, .replace = to_gelu}), false));
    assert_int_equal(eg_surgery_size(s), 1);
    assert_int_equal(strlen(eg_surgery_at(s, 0)->path), 2 * (DEPTH - 1) - 1);
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(eg_module_n_parameters(m), 0);
    assert_ok(eg_surgery_undo(s));
    assert_int_equal(eg_module_n_parameters(m), 1);
    eg_surgery_free(s);
    eg_module_release(m);
    eg_context_free(ctx);
}

/* Paths grow with depth, so a walk that makes them is tried on a shorter one. */
static void walks_with_paths(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1, .backend = "ref");
    eg_module *m = eg_relu(ctx);
    for (int i = 1; i < 20000; i++)
        m = eg_sequential(ctx, &m, 1);
    size_t n = 0;
    assert_ok(eg_module_walk(m, count, &n));
    assert_int_equal(n, 20000);
    eg_module *copy = eg_module_clone(m);
    assert_made(copy);
    eg_module_release(copy);
    eg_module_release(m);
    eg_context_free(ctx);
}

/* Forty modules of which each holds the one before twice are 2^40 paths. */
static void shared_modules_are_met_once(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1, .backend = "ref");
    eg_module *m = eg_prelu(ctx);
    for (int i = 0; i < 40; i++) {
        eg_module *once = m;
        m = eg_sequential(ctx, EG_MODULES(eg_module_retain(once), once));
    }
    assert_made(m);
    eg_module_train(m, false);
    assert_int_equal(eg_module_n_parameters(m), 1);
    size_t n = 0;
    eg_surgery *s = eg_surgery_new(m);
    assert_ok(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_prelu_class, .replace = to_gelu, .payload = &n}), false));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_gelu_class)), 1);
    assert_ok(eg_surgery_undo(s));
    eg_surgery_free(s);
    eg_module_release(m);
    eg_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_chain),
        cmocka_unit_test(walks_with_paths),
        cmocka_unit_test(shared_modules_are_met_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

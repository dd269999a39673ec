/*
 * Contexts: options, log, slots, counters, and the pool of buffers.
 */
#include "support.h"

#include "base/internal.h"

static int setup(void **state)
{
    eg_error_clear();
    unsetenv("EG_POOL");
    *state = eg_context_new(.threads = 3, .seed = 11);
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    return 0;
}

static void test_options(void **state)
{
    eg_context *ctx = *state;
    assert_int_equal(eg_context_threads(ctx), 3);
    assert_int_equal(eg_context_seed(ctx), 11);
    assert_string_equal(eg__context_backend(ctx), "dnnl");
    assert_refused(eg_context_new(.threads = -1), EG_EINVAL, "threads is -1");
    assert_refused(eg_context_new(.threads = 1025), EG_EINVAL, "threads is 1025, expected 0 (all processors) to 1024");
    assert_refused(eg_context_new(.backend = "cuda"), EG_EINVAL, "backend 'cuda' is not known");
    assert_refused(eg_context_new_with(&(eg_context_options){.seed = 1}), EG_EINVAL, "struct_size");
    eg_context *other = eg_context_new_with(NULL);
    assert_made(other);
    assert_true(eg_context_threads(other) >= 1);
    eg_context_free(other);
    setenv("OMP_NUM_THREADS", "5", 1);
    other = eg_context_new(.backend = "ref");
    assert_int_equal(eg_context_threads(other), 5);
    assert_string_equal(eg__context_backend(other), "ref");
    eg_context_free(other);
    setenv("OMP_NUM_THREADS", "100000", 1);
    other = eg_context_new(.backend = "ref");
    assert_in_range(eg_context_threads(other), 1, 1024);
    eg_context_free(other);
    eg_context_free(NULL);
}

static void append_line(void *payload, eg_log_level level, const char *text)
{
    char *log = payload;
    snprintf(log + strlen(log), 100, "%d %s|", (int)level, text);
}

static void test_log(void **state)
{
    char log[200] = "";
    eg_context *ctx = eg_context_new(.log = append_line, .log_payload = log);
    eg_log(ctx, EG_LOG_WARNING, "loss is %d", 3);
    eg_log(ctx, EG_LOG_DEBUG, "x");
    assert_string_equal(log, "2 loss is 3|0 x|");
    eg_context_free(ctx);
    eg_log(*state, EG_LOG_INFO, "silent");
}

static void test_cancel(void **state)
{
    assert_false(eg_context_canceled(*state));
    eg_context_cancel(*state);
    assert_true(eg_context_canceled(*state));
    eg_context_resume(*state);
    assert_false(eg_context_canceled(*state));
}

static void test_no_context(void **state)
{
    (void)state;
    eg_context_cancel(NULL);
    eg_context_resume(NULL);
    assert_false(eg_context_canceled(NULL));
    assert_int_equal(eg_context_threads(NULL), 0);
    assert_int_equal(eg_context_seed(NULL), 0);
    assert_int_equal(eg_context_get_stats(NULL).bytes_peak, 0);
    eg_context_reset_peak(NULL);
    eg_log(NULL, EG_LOG_INFO, "nobody listens");
    assert_refused(eg_context_rng(NULL), EG_EINVAL, "context is NULL");
}

static void test_keys(void **state)
{
    assert_int_equal(eg__context_next_key(*state), 1);
    assert_int_equal(eg__context_next_key(*state), 2);
    eg__context_reset_keys(*state);
    assert_int_equal(eg__context_next_key(*state), 1);
}

typedef struct slot_state {
    char **log;
    char name;
} slot_state;

static void destroy_slot(eg_context *ctx, void *memory)
{
    slot_state *slot = memory;
    assert_non_null(eg__context_peek(ctx, slot->name == 'n' ? EG__SLOT_NN : EG__SLOT_DNNL));
    *(*slot->log)++ = slot->name;
}

static void test_slots_end_in_reverse_order(void **state)
{
    (void)state;
    char log[8] = "", *end = log;
    eg_context *ctx = eg_context_new(.threads = 1);
    assert_true(eg__context_peek(ctx, EG__SLOT_DNNL) == NULL);
    slot_state *lower = eg__context_slot(ctx, EG__SLOT_DNNL, sizeof *lower, destroy_slot);
    assert_true(lower->log == NULL);
    *lower = (slot_state){&end, 'm'};
    slot_state *upper = eg__context_slot(ctx, EG__SLOT_NN, sizeof *upper, destroy_slot);
    *upper = (slot_state){&end, 'n'};
    assert_true(eg__context_slot(ctx, EG__SLOT_DNNL, sizeof *lower, destroy_slot) == lower);
    eg_context_free(ctx);
    assert_string_equal(log, "nm");
}

/* ---- the pool ---- */

static void test_buffers_are_reused(void **state)
{
    eg_context *ctx = *state;
    char *a = eg__pool_take(ctx, 100), *b = eg__pool_take(ctx, 100);
    assert_true((uintptr_t)a % 64 == 0 && (uintptr_t)b % 64 == 0 && a != b);
    memset(a, 1, 100);
    eg__pool_give(ctx, a, 100);
    assert_true(eg__pool_take(ctx, 128) == a); /* of the same class */
    eg__pool_give(ctx, a, 128);
    eg__pool_give(ctx, b, 100);
    eg__pool_give(ctx, NULL, 100);
    eg_context_stats stats = eg_context_get_stats(ctx);
    assert_int_equal(stats.system_allocations, 2);
    assert_int_equal(stats.bytes_in_use, 0);
    assert_int_equal(stats.bytes_peak, 256);
    assert_int_equal(stats.bytes_reserved, 256);
    eg_context_reset_peak(ctx);
    assert_int_equal(eg_context_get_stats(ctx).bytes_peak, 0);
}

static void test_size_classes(void **state)
{
    eg_context *ctx = *state;
    size_t previous = 0;
    for (size_t size = 1; size < 3000000; size += 1 + size / 37) {
        char *buffer = eg__pool_take(ctx, size);
        assert_non_null(buffer);
        buffer[size - 1] = 1;
        size_t used = eg_context_get_stats(ctx).bytes_in_use;
        assert_true(used >= size && used >= previous);
        assert_true(used <= EG_MAX(64, size <= 4096 ? size + 63 : size + size / 4));
        previous = used;
        eg__pool_give(ctx, buffer, size);
        assert_int_equal(eg_context_get_stats(ctx).bytes_in_use, 0);
    }
    void *nothing = eg__pool_take(ctx, 0);
    assert_non_null(nothing);
    eg__pool_give(ctx, nothing, 0);
    assert_refused(eg__pool_take(ctx, SIZE_MAX - 10), EG_ENOMEM, "out of memory");
}

static void test_ever_new_sizes_do_not_pile_up(void **state)
{
    eg_context *ctx = *state;
    const size_t mega = (size_t)1 << 20;
    size_t most = 0;
    for (size_t i = 0; i < 40; i++) { /* a class each; never touched: costs no real memory */
        size_t size = mega * 16 + i * mega * 4;
        void *buffer = eg__pool_take(ctx, size);
        assert_non_null(buffer);
        eg__pool_give(ctx, buffer, size);
        most = EG_MAX(most, eg_context_get_stats(ctx).bytes_reserved);
    }
    assert_true(most <= 3 * 192 * mega + 64 * mega);
}

static void test_pool_off(void **state)
{
    (void)state;
    setenv("EG_POOL", "off", 1);
    eg_context *ctx = eg_context_new(.threads = 1);
    unsetenv("EG_POOL");
    assert_false(eg__pool_enabled(ctx));
    void *a = eg__pool_take(ctx, 100);
    eg__pool_give(ctx, a, 100);
    assert_int_equal(eg_context_get_stats(ctx).bytes_reserved, 0);
    a = eg__pool_take(ctx, 100);
    assert_int_equal(eg_context_get_stats(ctx).system_allocations, 2);
    eg__pool_give(ctx, a, 100);
    eg_context_free(ctx);
}

static void test_max_memory(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1, .max_memory = 4096);
    void *a = eg__pool_take(ctx, 3000);
    assert_non_null(a);
    assert_refused(eg__pool_take(ctx, 3000), EG_ENOMEM, "that the context may take");
    eg__pool_give(ctx, a, 3000);
    a = eg__pool_take(ctx, 4096);
    assert_non_null(a);
    eg__pool_give(ctx, a, 4096);
    eg_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_options, setup, teardown),
        cmocka_unit_test_setup_teardown(test_log, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancel, setup, teardown),
        cmocka_unit_test(test_no_context),
        cmocka_unit_test_setup_teardown(test_keys, setup, teardown),
        cmocka_unit_test(test_slots_end_in_reverse_order),
        cmocka_unit_test_setup_teardown(test_buffers_are_reused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_size_classes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ever_new_sizes_do_not_pile_up, setup, teardown),
        cmocka_unit_test(test_pool_off),
        cmocka_unit_test(test_max_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A steady step takes nothing from the system and makes no primitive: after the first one, all is there. */
#include "train_support.h"

#include "base/internal.h"

enum { BATCH = 4, SIDE = 8, MORE = 3 };

typedef struct world {
    eg_context *ctx;
    eg_module *net;
    eg_optimizer *optimizer;
    eg_mutator *mutator; /* NULL: a network without choices */
    eg_tensor *x, *y;
} world;

static eg_module *supernet(eg_context *ctx)
{
    return eg_space_build(ctx, "darts",
                          &(eg_space_options){.struct_size = sizeof(eg_space_options),
                                              .input = EG_SHAPE(3, SIDE, SIDE),
                                              .classes = 10,
                                              .channels = 4,
                                              .layers = 3});
}

static eg_module *chain(eg_context *ctx)
{
    return eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 3, 16, 3, .padding = 1), eg_batch_norm2d(ctx, 16, .relu = true),
                                         eg_conv2d(ctx, 16, 16, 3, .padding = 1, .groups = 16),
                                         eg_batch_norm2d(ctx, 16), eg_relu(ctx), eg_conv2d(ctx, 16, 32, 1, .stride = 2),
                                         eg_max_pool2d(ctx, 2), eg_global_avg_pool2d(ctx), eg_linear(ctx, 32, 10)));
}

static void start(world *w, bool search, bool adam)
{
    w->ctx = eg_context_new(.seed = 2, .threads = 2);
    w->net = search ? supernet(w->ctx) : chain(w->ctx);
    assert_made(w->net);
    w->mutator = search ? eg_darts_mutator_new(w->net) : NULL;
    w->optimizer =
        adam ? eg_adam(w->net, .lr = 1e-3) : eg_sgd(w->net, .lr = 1e-2, .momentum = 0.9, .weight_decay = 1e-4);
    w->x = eg_randn(w->ctx, EG_SHAPE(BATCH, 3, SIDE, SIDE));
    int64_t labels[BATCH] = {0, 1, 2, 3};
    w->y = eg_from_labels(w->ctx, BATCH, labels);
    assert_made(w->y);
}

static void zero_alphas(eg_mutator *mutator)
{
    eg_state *alphas = eg_state_new();
    assert_ok(eg_darts_mutator_state(mutator, NULL, alphas));
    for (size_t i = 0; i < eg_state_size(alphas); i++)
        eg_tensor_zero_grad(eg_state_at(alphas, i, NULL));
    eg_state_free(alphas);
}

static void step(world *w)
{
    eg_tape *tape = eg_tape_begin(w->ctx, EG_RECORD);
    if (w->mutator)
        assert_ok(eg_mutator_reset(w->mutator));
    assert_ok(eg_backward(eg_f_cross_entropy(eg_call(w->net, w->x), w->y)));
    eg_tape_end(tape);
    assert_ok(eg_optimizer_clip_grad_norm(w->optimizer, 5, NULL));
    assert_ok(eg_optimizer_step(w->optimizer));
    eg_optimizer_zero_grad(w->optimizer);
    if (w->mutator)
        zero_alphas(w->mutator);
}

static void expect_steady(bool search, bool low, bool adam)
{
    world w;
    start(&w, search, adam);
    eg_mutator_set_recompute(w.mutator, low);
    step(&w);
    eg_context_stats warm = eg_context_get_stats(w.ctx);
    for (int i = 0; i < MORE; i++)
        step(&w);
    eg_context_stats done = eg_context_get_stats(w.ctx);
    assert_true(warm.primitive_misses > 0);
    assert_int_equal(done.primitive_misses, warm.primitive_misses);
    assert_int_equal(done.system_allocations, warm.system_allocations);
    assert_int_equal(done.bytes_in_use, warm.bytes_in_use);
    eg_optimizer_free(w.optimizer);
    eg_mutator_detach(w.mutator);
    eg_module_release(w.net);
    eg_context_free(w.ctx);
}

static void test_network(void **state)
{
    (void)state;
    expect_steady(false, false, false);
    expect_steady(false, false, true);
}

static void test_supernet(void **state)
{
    (void)state;
    expect_steady(true, false, false);
    expect_steady(true, true, false);
    expect_steady(true, false, true);
}

/* What stays is not taken from what the steps need. */
static void test_lasting(void **state)
{
    (void)state;
    enum { SIZE = 100000 };
    eg_context *ctx = eg_context_new(.seed = 2);
    eg__pool_give(ctx, eg__pool_take(ctx, SIZE), SIZE);
    uint64_t before = eg_context_get_stats(ctx).system_allocations;
    assert_false(eg__pool_lasting(ctx, true));
    void *lasting = eg__pool_take(ctx, SIZE);
    assert_true(eg__pool_lasting(ctx, false));
    assert_int_equal(eg_context_get_stats(ctx).system_allocations, before + 1);
    void *passing = eg__pool_take(ctx, SIZE);
    assert_int_equal(eg_context_get_stats(ctx).system_allocations, before + 1);
    eg__pool_give(ctx, lasting, SIZE);
    eg__pool_give(ctx, passing, SIZE);
    eg_context_free(ctx);
}

int main(void)
{
    setenv("EG_POOL", "on", 1); /* what is counted here is the pool */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_network), cmocka_unit_test(test_supernet),
                                       cmocka_unit_test(test_lasting)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

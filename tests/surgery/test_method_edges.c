/*
 * Methods where models are less plain: nested targets, tied weights, named layers, numbers at the ends of their ranges;
 * and taking back what methods put in.
 */
#include "surgery_support.h"

#include "engraft/methods.h"

static eg_tensor *image(int64_t n, int64_t channels, int64_t size)
{
    return eg_randn(ctx, EG_SHAPE(n, channels, size, size));
}

static void read_all(eg_tensor *t, float *out, size_t n)
{
    assert_made(t);
    assert_int_equal(eg_tensor_numel(t), n);
    assert_ok(eg_tensor_read(t, out, n));
}

static void assert_same(eg_tensor *a, eg_tensor *b, float tolerance)
{
    enum { MOST = 4096 };
    static float x[MOST], y[MOST];
    size_t n = (size_t)eg_tensor_numel(a);
    assert_true(n <= MOST);
    read_all(a, x, n);
    read_all(b, y, n);
    for (size_t i = 0; i < n; i++) {
        if (!(fabsf(x[i] - y[i]) <= tolerance))
            fail_msg("number %zu is %g and %g", i, (double)x[i], (double)y[i]);
    }
}

static void assert_applied_once(eg_surgery *s, eg_module *options, size_t n)
{
    eg_module *again = eg_module_clone(options);
    assert_made(again);
    assert_ok(eg_surgery_apply(s, options, NULL));
    assert_int_equal(eg_surgery_size(s), n);
    assert_ok(eg_surgery_apply(s, again, NULL));
    assert_int_equal(eg_surgery_size(s), n);
    assert_ok(eg_surgery_commit(s));
}

/* 4.20: once is enough, also where a Sequential that changes holds others that do. */
static void identities_go_at_all_depths(void **state)
{
    (void)state;
    eg_module *inner = eg_sequential(ctx, EG_MODULES(eg_identity(ctx), eg_relu(ctx), eg_dropout(ctx, 0)));
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_identity(ctx), inner, eg_dropout(ctx, 0.5)));
    eg_surgery *s = eg_surgery_new(m, .root = &m);
    assert_applied_once(s, eg_identity_elimination(ctx), 2);
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_identity_class)), 0);
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_dropout_class)), 1);
    assert_ptr_equal(eg_module_find(m, "0.0")->cls, &eg_relu_class);
    eg_surgery_free(s);
    eg_module_release(m);
}

/* 4.20, 4.15: blocks within blocks too, with rates in the order of the model. */
static void nested_blocks_become_stochastic(void **state)
{
    (void)state;
    eg_module *inner = eg_residual_block(ctx, EG_NAMED({"body", eg_conv2d(ctx, 2, 2, 1)}));
    eg_module *outer = eg_residual_block(ctx, EG_NAMED({"body", eg_sequential(ctx, EG_MODULES(inner))}));
    eg_module *last = eg_residual_block(ctx, EG_NAMED({"body", eg_relu(ctx)}));
    eg_module *m = eg_sequential(ctx, EG_MODULES(outer, last));
    eg_surgery *s = eg_surgery_new(m);
    assert_applied_once(s, eg_stochastic_depth(ctx, .drop_rate = 0.6), 3);
    static const char *const paths[] = {"0", "0.body.0", "1"};
    for (size_t i = 0; i < 3; i++) {
        const eg_module *r = eg_module_find(m, paths[i]);
        assert_ptr_equal(r->cls, &eg_stochastic_residual_class);
        assert_true(fabs(((const eg_stochastic_residual *)r)->drop_rate - 0.2 * (double)(i + 1)) < 1e-12);
    }
    eg_surgery_free(s);
    eg_module_release(m);
}

/* Section 2: a sample's branch is there or not in training, and as much as on average in evaluation, in both ways. */
static void samples_are_dropped_as_blocks_are(void **state)
{
    (void)state;
    enum { N = 64 };
    float y[N];
    for (int by_sample = 0; by_sample < 2; by_sample++) {
        eg_module *m = eg_stochastic_residual(ctx, EG_NAMED({"body", eg_identity(ctx)}), .drop_rate = 0.25,
                                              .by_sample = by_sample != 0);
        eg_tensor *ones = eg_ones(ctx, EG_SHAPE(N, 1));
        size_t dropped = 0;
        read_all(eg_call(m, ones), y, N);
        for (int i = 0; i < N; i++) {
            assert_true(fabsf(y[i] - 1) < 1e-6f || fabsf(y[i] - 2) < 1e-6f);
            dropped += y[i] < 1.5f;
        }
        assert_true(by_sample ? dropped > 0 && dropped < N : dropped == 0 || dropped == N);
        eg_module_train(m, false);
        assert_same(eg_call(m, ones), eg_full(ctx, EG_SHAPE(N, 1), 1.75), 1e-6f);
        eg_module_release(m);
    }
}

/* 4.15: the rates grow while training warms up. */
static void stochastic_depth_warms_up(void **state)
{
    (void)state;
    eg_module *block = eg_stochastic_residual(ctx, EG_NAMED({"body", eg_identity(ctx)}), .drop_rate = 0.8);
    eg_module *m = eg_sequential(ctx, EG_MODULES(block));
    eg_tensor *ones = eg_ones(ctx, EG_SHAPE(2, 1));
    eg_module_train(m, false);
    static const double shares[] = {0, 0.25, 0.5, 1};
    for (size_t i = 0; i < 4; i++) {
        assert_ok(eg_stochastic_depth_warm_up(m, shares[i]));
        assert_same(eg_call(m, ones), eg_full(ctx, EG_SHAPE(2, 1), 2 - 0.8 * shares[i]), 1e-6f);
    }
    assert_ok(eg_stochastic_depth_warm_up(m, 0.5));
    eg_module *copy = eg_module_clone(m);
    assert_same(eg_call(copy, ones), eg_full(ctx, EG_SHAPE(2, 1), 1.6), 1e-6f);
    eg_module_release(copy);
    assert_true(((const eg_stochastic_residual *)block)->drop_rate == 0.8);
    assert_int_equal(eg_stochastic_depth_warm_up(m, 1.5), EG_EINVAL);
    assert_recorded(EG_EINVAL, "share");
    assert_int_equal(eg_stochastic_depth_warm_up(NULL, 1), EG_EINVAL);
    eg_module_release(m);
}

/* Section 2: both flags off is an error there. */
static void blur_pool_wants_something_to_do(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_max_pool2d(ctx, 2)));
    eg_surgery *s = eg_surgery_new(m);
    assert_null(eg_blur_pool(ctx, .keep_pools = true, .keep_convs = true));
    assert_recorded(EG_EINVAL, "blur_pool: ");
    assert_int_equal(eg_surgery_apply(s, eg_blur_pool(ctx, .keep_pools = true, .keep_convs = true), NULL), EG_EINVAL);
    assert_null(eg_method_from_text(ctx, "blur_pool(keep_pools=true, keep_convs=true)"));
    assert_int_equal(eg_surgery_size(s), 0);
    eg_surgery_free(s);
    eg_module_release(m);
}

/* Section 2: a share is one of the channels that are scaled. */
static void latent_channels_are_a_share_of_the_output(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 4, 16, 1), eg_conv2d(ctx, 16, 4, 1)));
    eg_surgery *s = eg_surgery_new(m);
    assert_ok(eg_surgery_apply(s, eg_squeeze_excite(ctx, .min_channels = 1, .latent_channels = 0.5), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(((eg_squeeze_excite2d *)eg_module_find(m, "0.se"))->latent_channels, 8);
    assert_int_equal(((eg_squeeze_excite2d *)eg_module_find(m, "1.se"))->latent_channels, 2);
    eg_surgery_free(s);
    eg_module_release(m);
}

/* The last layer is never frozen: neither is what it shares with the first. */
static void what_the_last_layer_shares_stays_trained(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 4, 4), eg_linear(ctx, 4, 4), eg_linear(ctx, 4, 4)));
    eg_linear *last = (eg_linear *)eg_module_find(m, "2");
    eg_tensor_release(last->weight);
    last->weight = eg_tensor_keep(eg_module_tensor(m, "0.weight"));
    eg_surgery *s = eg_surgery_new(m);
    assert_ok(eg_surgery_apply(s, eg_layer_freezing(ctx, .depth = 1), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_true(eg_tensor_requires_grad(eg_module_tensor(m, "2.weight")));
    assert_true(eg_tensor_requires_grad(eg_module_tensor(m, "2.bias")));
    assert_false(eg_tensor_requires_grad(eg_module_tensor(m, "0.bias")));
    assert_false(eg_tensor_requires_grad(eg_module_tensor(m, "1.weight")));
    assert_ok(eg_surgery_apply(s, eg_layer_freezing(ctx, .unfreeze = true), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_true(eg_tensor_requires_grad(eg_module_tensor(m, "1.weight")));
    eg_surgery_free(s);
    eg_module_release(m);
}

static void a_swap_wants_two_classes(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_relu(ctx)));
    eg_surgery *s = eg_surgery_new(m);
    assert_int_equal(eg_surgery_apply(s, eg_activation_swap(ctx, .to = "ReLU"), NULL), EG_EINVAL);
    assert_recorded(EG_EINVAL, "activation_swap: ");
    assert_int_equal(eg_surgery_apply(s, eg_activation_swap(ctx, .to = "ReLUU"), NULL), EG_ENOENT);
    assert_int_equal(eg_surgery_size(s), 0);
    eg_surgery_free(s);
    eg_module_release(m);
}

/* Layers keep their names, but for numbers, which count anew as in PyTorch. */
static void named_layers_keep_their_names(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_NAMED({"stem", eg_linear(ctx, 3, 3)}, {"idle", eg_identity(ctx)},
                                               {"act", eg_relu(ctx)}, {"head", eg_linear(ctx, 3, 2)}));
    eg_tensor *weight = eg_module_tensor(m, "head.weight");
    eg_surgery *s = eg_surgery_new(m, .root = &m);
    assert_ok(eg_surgery_apply(s, eg_identity_elimination(ctx), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_ptr_equal(eg_module_tensor(m, "head.weight"), weight);
    assert_null(eg_module_find(m, "idle"));
    assert_ok(eg_surgery_apply(s, eg_drop_layers(ctx, .first = 1), NULL));
    assert_ok(eg_surgery_apply(s, eg_duplicate_layers(ctx), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_ptr_equal(eg_module_tensor(m, "head.weight"), weight);
    static const char *const names[] = {"stem", "1", "head"}; /* "1" is the copy */
    for (size_t i = 0; i < 3; i++) {
        const char *name = NULL;
        assert_non_null(eg_module_child_at(m, i, &name));
        assert_string_equal(name, names[i]);
    }
    assert_int_equal(eg_module_n_children(m), 3);
    assert_ptr_not_equal(eg_module_tensor(m, "1.weight"), eg_module_tensor(m, "stem.weight"));
    assert_same(eg_module_tensor(m, "1.weight"), eg_module_tensor(m, "stem.weight"), 0);
    eg_surgery_free(s);
    eg_module_release(m);
}

static void ranges_are_checked(void **state)
{
    (void)state;
    static const struct {
        int64_t first, count;
    } rows[] = {{1, 2}, {2, 1}, {INT64_MAX / 2, INT64_MAX / 2 + 2}, {1, INT64_MAX / 2}, {INT64_MAX / 2, 1}};
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_relu(ctx), eg_relu(ctx)));
    eg_surgery *s = eg_surgery_new(m, .root = &m);
    for (size_t i = 0; i < EG_COUNT(rows); i++) {
        assert_int_equal(eg_surgery_apply(s, eg_drop_layers(ctx, .first = rows[i].first, .count = rows[i].count), NULL),
                         EG_EINVAL);
        assert_recorded(EG_EINVAL, "has 2 layers");
    }
    assert_int_equal(eg_surgery_size(s), 0);
    eg_surgery_free(s);
    eg_module_release(m);
}

/* Registered first, but run last. */
static eg_tensor *backwards_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_call(eg_module_find(self, "head"), eg_call(eg_module_find(self, "stem"), in[0]));
}

typedef struct backwards {
    eg_module base;
    eg_module *head, *stem;
} backwards;

static eg_status backwards_build(eg_module *self)
{
    backwards *b = (backwards *)self;
    EG_SLOT(b, head, eg_linear(self->ctx, 6, 2));
    EG_SLOT(b, stem, eg_linear(self->ctx, 4, 6));
    return eg_module_status(self);
}

static EG_CLASS(backwards, .build = backwards_build, .forward = backwards_forward);

static void the_head_is_what_runs_last(void **state)
{
    (void)state;
    eg_module *m = eg_new(backwards, ctx);
    assert_made(m);
    eg_surgery *s = eg_surgery_new(m, .inputs = EG_SHAPES(EG_SHAPE(2, 4)));
    assert_ok(eg_surgery_apply(s, eg_new_head(ctx, .classes = 9), NULL));
    assert_string_equal(eg_surgery_at(s, 0)->path, "head");
    assert_ok(eg_surgery_commit(s));
    eg_surgery_free(s);
    eg_module_release(m);
}

/* ---- taking methods back from a model that was trained since ---- */

static eg_module *make_plain(void)
{
    eg_module *block =
        eg_residual_block(ctx, EG_NAMED({"body", eg_conv2d(ctx, 6, 8, 1)}, {"shortcut", eg_conv2d(ctx, 6, 8, 1)}));
    return eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 3, 6, 3, .stride = 2, .padding = 1), eg_batch_norm2d(ctx, 6),
                                         eg_max_pool2d(ctx, 2), block));
}

static eg_module *make_options(size_t i)
{
    switch (i) {
    case 0:
        return eg_blur_pool(ctx, .min_channels = 1);
    case 1:
        return eg_blur_pool(ctx, .min_channels = 1, .blur_last = true);
    case 2:
        return eg_squeeze_excite(ctx, .min_channels = 3, .latent_channels = 2);
    case 3:
        return eg_ghost_norm(ctx, .ghost_batch_size = 2);
    case 4:
        return eg_stochastic_depth(ctx, .drop_rate = 0.5);
    default:
        return NULL;
    }
}

static void unwrap_takes_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        eg_module *m = make_plain();
        eg_tensor *x = image(4, 3, 8), *before, *after;
        eg_optimizer *o = eg_adam(m, .lr = 1e-3);
        char *text = eg_module_text(m);
        eg_tensor *weight = eg_module_tensor(m, "0.weight");
        eg_module_train(m, false);
        before = eg_call(m, x);
        eg_surgery *s = eg_surgery_new(m, .optimizers = EG_OPTIMIZERS(o), .inputs = EG_SHAPES(EG_SHAPE(4, 3, 8, 8)));
        eg_module *options = make_options(i);
        assert_string_equal(((const eg_method *)(const void *)options->cls)->inverse, "unwrap");
        assert_ok(eg_surgery_apply(s, options, NULL));
        assert_ok(eg_surgery_commit(s));
        assert_true(eg_surgery_size(s) > 0);
        assert_ok(eg_surgery_apply(s, eg_unwrap(ctx), NULL));
        assert_ok(eg_surgery_commit(s));
        char *again = eg_module_text(m);
        assert_string_equal(text, again);
        assert_ptr_equal(eg_module_tensor(m, "0.weight"), weight);
        assert_int_equal(o->n_params, 8);
        after = eg_call(m, x);
        assert_same(before, after, 0);
        size_t n = eg_surgery_size(s);
        assert_ok(eg_surgery_apply(s, eg_unwrap(ctx), NULL));
        assert_int_equal(eg_surgery_size(s), n);
        eg_free(text);
        eg_free(again);
        eg_surgery_free(s);
        eg_optimizer_free(o);
        eg_module_release(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SURGERY_TEST(identities_go_at_all_depths),
        SURGERY_TEST(nested_blocks_become_stochastic),
        SURGERY_TEST(samples_are_dropped_as_blocks_are),
        SURGERY_TEST(stochastic_depth_warms_up),
        SURGERY_TEST(blur_pool_wants_something_to_do),
        SURGERY_TEST(latent_channels_are_a_share_of_the_output),
        SURGERY_TEST(what_the_last_layer_shares_stays_trained),
        SURGERY_TEST(a_swap_wants_two_classes),
        SURGERY_TEST(named_layers_keep_their_names),
        SURGERY_TEST(ranges_are_checked),
        SURGERY_TEST(the_head_is_what_runs_last),
        SURGERY_TEST(unwrap_takes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Every built-in method with each of its allocations made to fail: it says so, and the model and its optimizer are as
 * they were.
 */
#include "support_alloc.h"

#include "surgery_support.h"

#include "engraft/methods.h"

typedef struct world {
    eg_module *net;
    eg_optimizer *optimizer;
    eg_shape input;
    bool indices; /* the input */
} world;

/* Something for most methods, and as little as that. */
static eg_module *make_net(void)
{
    eg_module *block = eg_residual_block(ctx, EG_NAMED({"body", eg_conv2d(ctx, 4, 4, 1)}));
    eg_module *wrapped = eg_ghost_batch_norm2d(ctx, EG_NAMED({"norm", eg_batch_norm2d(ctx, 4)}), .ghost_batch_size = 2);
    eg_module *adapter = eg_low_rank_adapter(ctx, EG_NAMED({"base_layer", eg_linear(ctx, 4, 4)},
                                                           {"lora_A", eg_linear(ctx, 4, 1, .no_bias = true)},
                                                           {"lora_B", eg_linear(ctx, 1, 4, .no_bias = true)}));
    return eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 2, 4, 2, .stride = 2), eg_batch_norm2d(ctx, 4),
                                         eg_identity(ctx), block, wrapped, eg_max_pool2d(ctx, 2), eg_flatten(ctx),
                                         adapter, eg_linear(ctx, 4, 4), eg_relu(ctx), eg_linear(ctx, 4, 2)));
}

/* Convolution, norm and ReLU, then two linear layers that read the same, and norms. */
static eg_module *make_fusable(void)
{
    eg_module *both =
        eg_residual_block(ctx, EG_NAMED({"body", eg_linear(ctx, 8, 3)}, {"shortcut", eg_linear(ctx, 8, 3)}));
    return eg_sequential(ctx,
                         EG_MODULES(eg_conv2d(ctx, 1, 2, 3, .padding = 1), eg_batch_norm2d(ctx, 2), eg_relu(ctx),
                                    eg_group_norm(ctx, 1, 2), eg_flatten(ctx), eg_layer_norm(ctx, EG_SHAPE(8)), both));
}

static eg_module *make_sequences(void)
{
    return eg_sequential(ctx,
                         EG_NAMED({"wpe", eg_embedding(ctx, 3, 4)}, {"attention", eg_multihead_attention(ctx, 4, 2)}));
}

static world make_world(const char *method)
{
    world w = {.net = NULL};
    if (strcmp(method, "alibi") == 0)
        w = (world){.net = make_sequences(), .input = EG_SHAPE(2, 3), .indices = true};
    else if (strncmp(method, "fuse_", strlen("fuse_")) == 0 || strcmp(method, "low_precision_norm") == 0)
        w = (world){.net = make_fusable(), .input = EG_SHAPE(2, 1, 2, 2)};
    else
        w = (world){.net = make_net(), .input = EG_SHAPE(2, 2, 4, 4)};
    assert_made(w.net);
    w.optimizer = eg_adam(w.net);
    assert_made(w.optimizer);
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *x =
        w.indices ? eg_reshape(eg_from_labels(ctx, 6, (const int64_t[6]){2, 1}), w.input) : eg_ones(ctx, w.input);
    assert_ok(eg_backward(eg_mean(eg_call(w.net, x))));
    assert_ok(eg_optimizer_step(w.optimizer));
    eg_optimizer_zero_grad(w.optimizer);
    eg_tape_end(tape);
    return w;
}

static eg_module *make_options(const char *name)
{
#define IS(method) (strcmp(name, #method) == 0)
    return IS(blur_pool)                ? eg_blur_pool(ctx, .min_channels = 1, .blur_last = true)
           : IS(squeeze_excite)         ? eg_squeeze_excite(ctx, .min_channels = 1, .near_identity = true)
           : IS(ghost_batch_norm)       ? eg_ghost_norm(ctx)
           : IS(stochastic_depth)       ? eg_stochastic_depth(ctx)
           : IS(unwrap)                 ? eg_unwrap(ctx)
           : IS(weight_standardization) ? eg_weight_standardization(ctx)
           : IS(gated_linear_unit)      ? eg_gated_linear(ctx)
           : IS(alibi)                  ? eg_alibi(ctx, .position_embedding = "wpe", .max_sequence_length = 5)
           : IS(low_precision_norm)     ? eg_low_precision_norm(ctx)
           : IS(factorize)              ? eg_factorize(ctx, .rank = 1, .min_channels = 1)
           : IS(low_rank_adapter)       ? eg_low_rank(ctx, .rank = 1)
           : IS(merge_adapter)          ? eg_merge_adapter(ctx)
           : IS(fold_batch_norm)        ? eg_fold_batch_norm(ctx)
           : IS(fuse_conv_bn_relu)      ? eg_fuse_conv_bn_relu(ctx)
           : IS(fuse_parallel_linear)   ? eg_fuse_parallel_linear(ctx)
           : IS(prune_channels)         ? eg_prune_channels(ctx, .ratio = 0.5)
           : IS(widen)                  ? eg_widen(ctx)
           : IS(layer_freezing)         ? eg_layer_freezing(ctx)
           : IS(activation_swap)        ? eg_activation_swap(ctx)
           : IS(new_head)               ? eg_new_head(ctx, .classes = 3)
           : IS(drop_layers)            ? eg_drop_layers(ctx, .first = 2)
           : IS(duplicate_layers)       ? eg_duplicate_layers(ctx, .first = 3)
           : IS(identity_elimination)   ? eg_identity_elimination(ctx)
                                        : NULL;
#undef IS
}

static eg_status operate(world *w, const char *name, bool *planned)
{
    eg_surgery *s = eg_surgery_new(w->net, .root = &w->net, .optimizers = EG_OPTIMIZERS(w->optimizer),
                                   .inputs = {.items = &w->input, .n = 1});
    if (s == NULL)
        return eg_error_last()->code;
    eg_module *options = make_options(name);
    eg_status status = options != NULL ? eg_surgery_apply(s, options, NULL) : eg_error_last()->code;
    *planned = status == EG_OK && eg_surgery_has_plan(s);
    if (status == EG_OK)
        status = eg_surgery_commit(s);
    if (status == EG_OK)
        status = eg_surgery_undo(s);
    eg_surgery_free(s);
    return status;
}

/* One trial; false when nothing was left to fail. */
static bool try_once(const char *name, long n, bool all_after)
{
    world w = make_world(name);
    uint64_t before = fingerprint(w.net, w.optimizer);
    bool planned = false;
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_error_clear();
    alloc_fail_all = all_after;
    alloc_failures = 0;
    alloc_countdown = n;
    eg_status status = operate(&w, name, &planned);
    alloc_countdown = -1;
    eg_tape_end(tape);
    if (status != EG_OK && (alloc_failures == 0 || status != EG_ENOMEM || eg_error_last()->code != EG_ENOMEM))
        fail_msg("%s: allocation %ld: %s: %s", name, n, eg_status_name(status), eg_error_last()->message);
    if (alloc_failures == 0 && !planned)
        fail_msg("%s: has nothing to change in this model", name);
    if (fingerprint(w.net, w.optimizer) != before)
        fail_msg("%s: allocation %ld: the model is not as it was", name, n);
    eg_optimizer_free(w.optimizer);
    eg_module_release(w.net);
    return alloc_failures > 0;
}

static void methods_survive(void **state)
{
    (void)state;
    for (size_t i = 0; eg_method_at(i) != NULL; i++) {
        const char *name = eg_method_at(i)->options.name;
        if (strcmp(name, "prune_heads") == 0) /* as prune_channels */
            continue;
        for (int all_after = 0; all_after < 2; all_after++) {
            long n = 0;
            while (try_once(name, n, all_after != 0))
                n += n < 150 ? 1 : 1 + n / 100;
            assert_true(n > 10);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {SURGERY_TEST(methods_survive)};
    return setenv("EG_POOL", "off", 1) == 0 ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}

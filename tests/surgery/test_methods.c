/*
 * Every built-in method: outputs kept where that is promised, applied twice is applied once, undone is bit for bit as
 * before, and the model trains on with the same optimizer.
 */
#include "support.h"

#include "engraft/layers.h"
#include "engraft/methods.h"

static eg_context *ctx;

static int setup(void **state)
{
    (void)state;
    eg_error_clear();
    ctx = eg_context_new(.seed = 3, .threads = 1, .backend = "ref");
    return ctx == NULL;
}

static int teardown(void **state)
{
    (void)state;
    size_t left = eg_context_get_stats(ctx).bytes_in_use;
    eg_context_free(ctx);
    return left != 0;
}

/* Something for each method: strided convolutions, pools, norms, residual blocks, dropout, linear layers. */
static eg_module *make_model(void)
{
    eg_module *block = eg_residual_block(
        ctx, EG_NAMED({"body", eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 16, 16, 3, .padding = 1, .no_bias = true),
                                                             eg_batch_norm2d(ctx, 16), eg_relu(ctx)))}));
    eg_module *second = eg_residual_block(ctx, EG_NAMED({"body", eg_conv2d(ctx, 16, 24, 3, .padding = 1, .stride = 2)},
                                                        {"shortcut", eg_conv2d(ctx, 16, 24, 1, .stride = 2)}));
    return eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 3, 16, 3, .padding = 1), eg_batch_norm2d(ctx, 16), eg_relu(ctx),
                                         eg_max_pool2d(ctx, 2), block, second, eg_dropout(ctx, 0), eg_identity(ctx),
                                         eg_global_avg_pool2d(ctx), eg_linear(ctx, 24, 20), eg_relu(ctx),
                                         eg_linear(ctx, 20, 5)));
}

static eg_tensor *make_input(void)
{
    eg_rng *rng = eg_context_rng(ctx), kept = *rng;
    *rng = eg_rng_make(7, "input", 0);
    eg_tape *scope = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *x = eg_tensor_keep(eg_randn(ctx, EG_SHAPE(8, 3, 8, 8)));
    eg_tape_end(scope);
    *rng = kept;
    return x;
}

enum { MAX_OUT = 8 * 24 };

static size_t outputs(eg_module *m, eg_tensor *x, float *out)
{
    eg_module_train(m, false);
    eg_tape *scope = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *y = eg_call(m, x);
    assert_made(y);
    size_t n = (size_t)eg_tensor_numel(y);
    assert_true(n <= MAX_OUT);
    assert_ok(eg_tensor_read(y, out, n));
    eg_tape_end(scope);
    eg_module_train(m, true);
    return n;
}

static void train_step(eg_module *m, eg_optimizer *o, eg_tensor *x)
{
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *y = eg_call(m, x);
    assert_made(y);
    eg_tensor *loss = eg_mean(eg_mul(y, y));
    assert_ok(eg_backward(loss));
    eg_tape_end(tape);
    assert_ok(eg_optimizer_step(o));
    eg_optimizer_zero_grad(o);
}

/* ---- the table ---- */

typedef struct row {
    const char *name; /* of the method */
    eg_module *(*make)(eg_context *c);
    const char *at;
    bool repeats; /* applying it again changes the model again, on purpose */
} row;

#define MAKES(name_, ...)                                                                                              \
    static eg_module *make_##name_(eg_context *c)                                                                      \
    {                                                                                                                  \
        return __VA_ARGS__;                                                                                            \
    }
MAKES(blur, eg_blur_pool(c))
MAKES(blur_last, eg_blur_pool(c, .blur_last = true))
MAKES(se, eg_squeeze_excite(c, .min_channels = 16, .latent_channels = 0.25))
MAKES(se_identity, eg_squeeze_excite(c, .min_channels = 16, .near_identity = true))
MAKES(ghost, eg_ghost_norm(c, .ghost_batch_size = 3))
MAKES(depth_block, eg_stochastic_depth(c, .drop_rate = 0.5))
MAKES(depth_sample, eg_stochastic_depth(c, .method = EG_BY_SAMPLE, .distribution = EG_STOCHASTIC_DEPTH_UNIFORM))
MAKES(factorize, eg_factorize(c, .rank = 0.5, .min_channels = 8))
MAKES(factorize_exact, eg_factorize(c, .max_error = 0.3, .min_channels = 8))
MAKES(lora, eg_low_rank(c, .rank = 2))
MAKES(fold, eg_fold_batch_norm(c))
MAKES(freeze, eg_layer_freezing(c))
MAKES(swap, eg_activation_swap(c))
MAKES(head, eg_new_head(c, .classes = 7))
MAKES(drop, eg_drop_layers(c, .first = 6, .count = 2))
MAKES(duplicate, eg_duplicate_layers(c, .first = 4))
MAKES(standardize, eg_weight_standardization(c, .n_last_layers_ignore = 1))
MAKES(gate, eg_gated_linear(c))
MAKES(prune, eg_prune_channels(c, .round_to = 2))
MAKES(prune_global, eg_prune_channels(c, .ratio = 0.4, .global = true, .score = EG_IMPORTANCE_L1))
MAKES(widen, eg_widen(c))
MAKES(fuse, eg_fuse_conv_bn_relu(c))
MAKES(identity, eg_identity_elimination(c))

static const row rows[] = {
    {"blur_pool", make_blur, NULL, false},
    {"blur_pool", make_blur_last, NULL, false},
    {"squeeze_excite", make_se, NULL, false},
    {"squeeze_excite", make_se_identity, NULL, false},
    {"ghost_batch_norm", make_ghost, NULL, false},
    {"stochastic_depth", make_depth_block, NULL, false},
    {"stochastic_depth", make_depth_sample, NULL, false},
    {"factorize", make_factorize, NULL, false},
    {"factorize", make_factorize_exact, NULL, false},
    {"low_rank_adapter", make_lora, NULL, false},
    {"fold_batch_norm", make_fold, NULL, false},
    {"fuse_conv_bn_relu", make_fuse, NULL, false},
    {"layer_freezing", make_freeze, NULL, false},
    {"activation_swap", make_swap, NULL, false},
    {"new_head", make_head, NULL, true},
    {"drop_layers", make_drop, NULL, true},
    {"duplicate_layers", make_duplicate, NULL, true},
    {"weight_standardization", make_standardize, NULL, false},
    {"gated_linear_unit", make_gate, NULL, false},
    {"prune_channels", make_prune, NULL, true},
    {"prune_channels", make_prune_global, NULL, true},
    {"widen", make_widen, NULL, true},
    {"identity_elimination", make_identity, NULL, false},
};

static void check_outputs(const row *r, const float *before, size_t n_before, const float *after, size_t n_after)
{
    const eg_method *method = eg_method_find(r->name);
    assert_made(method);
    if (method->promise != EG_PROMISE_EXACT)
        return;
    assert_int_equal(n_before, n_after);
    for (size_t i = 0; i < n_before; i++) {
        if (fabsf(before[i] - after[i]) > 1e-5f * (1 + fabsf(before[i])))
            fail_msg("%s: output %zu was %g and is %g", r->name, i, (double)before[i], (double)after[i]);
    }
}

/* 4.22: what leaves the process, structure as JSON and numbers by names, computes the same where it is read again. */
static void check_export(const row *r, eg_module *m, eg_tensor *x, const float *expected, size_t n)
{
    float read[MAX_OUT];
    char *json = eg_module_json_expanded(m);
    assert_made(json);
    eg_module *copy = eg_module_from_json(ctx, json);
    assert_made(copy);
    eg_state *numbers = eg_state_new();
    assert_made(numbers);
    assert_ok(eg_module_state(m, "", numbers));
    assert_ok(eg_module_load_state(copy, "", numbers, true));
    assert_int_equal(outputs(copy, x, read), n);
    for (size_t i = 0; i < n; i++) {
        if (read[i] != expected[i])
            fail_msg("%s: output %zu is %g, and %g after reading", r->name, i, (double)expected[i], (double)read[i]);
    }
    eg_state_free(numbers);
    eg_module_release(copy);
    eg_free(json);
}

static void check_row(const row *r)
{
    float before[MAX_OUT], after[MAX_OUT], undone[MAX_OUT];
    eg_module *m = make_model();
    eg_tensor *x = make_input();
    eg_optimizer *o = eg_adam(m, .lr = 1e-3);
    assert_made(o);
    for (int i = 0; i < 3; i++)
        train_step(m, o, x);
    size_t n = outputs(m, x, before);
    char *text = eg_module_text(m);
    eg_surgery *s =
        eg_surgery_new(m, .root = &m, .optimizers = EG_OPTIMIZERS(o), .inputs = EG_SHAPES(EG_SHAPE(8, 3, 8, 8)));
    assert_made(s);
    assert_ok(eg_surgery_apply(s, r->make(ctx), r->at));
    assert_ok(eg_surgery_commit(s));
    size_t n_after = outputs(m, x, after);
    check_outputs(r, before, n, after, n_after);
    check_export(r, m, x, after, n_after);
    size_t made = eg_surgery_size(s);
    if (!r->repeats) {
        assert_ok(eg_surgery_apply(s, r->make(ctx), r->at));
        if (eg_surgery_size(s) != made)
            fail_msg("%s: applied again, it changes '%s'", r->name, eg_surgery_at(s, made)->path);
        eg_surgery_drop(s);
    }
    assert_ok(eg_surgery_undo(s));
    char *again = eg_module_text(m);
    assert_string_equal(text, again);
    assert_int_equal(outputs(m, x, undone), n);
    assert_memory_equal(before, undone, n * sizeof(float));
    assert_ok(eg_surgery_commit(s)); /* and once more, to train on */
    train_step(m, o, x);
    eg_surgery_free(s);
    train_step(m, o, x);
    eg_free(text);
    eg_free(again);
    eg_optimizer_free(o);
    eg_tensor_release(x);
    eg_module_release(m);
}

static void all_methods(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_row(&rows[i]);
}

/* What the model above has nothing for: below, and in test_methods_*.c. */
static const char *const elsewhere[] = {"merge_adapter",        "prune_heads", "unwrap",
                                        "fuse_parallel_linear", "alibi",       "low_precision_norm"};

static void every_method_has_a_row(void **state)
{
    (void)state;
    for (size_t i = 0; eg_method_at(i) != NULL; i++) {
        const char *name = eg_method_at(i)->options.name;
        bool has = false;
        for (size_t k = 0; k < sizeof(elsewhere) / sizeof(elsewhere[0]); k++)
            has = has || strcmp(elsewhere[k], name) == 0;
        for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
            has = has || strcmp(rows[k].name, name) == 0;
        if (!has)
            fail_msg("method '%s' has no row", name);
        assert_non_null(eg_method_at(i)->help);
        assert_non_null(eg_method_at(i)->source);
    }
    assert_null(eg_method_find("factorise"));
    assert_recorded(EG_ENOENT, "did you mean 'factorize'?");
}

static void adapters_merge(void **state)
{
    (void)state;
    float before[MAX_OUT], after[MAX_OUT];
    eg_module *m = make_model();
    eg_tensor *x = make_input();
    eg_optimizer *o = eg_sgd(m, .lr = 0.1);
    eg_surgery *s = eg_surgery_new(m, .optimizers = EG_OPTIMIZERS(o));
    assert_ok(eg_surgery_apply(s, eg_low_rank(ctx, .rank = 2), NULL));
    assert_ok(eg_surgery_commit(s));
    for (int i = 0; i < 3; i++)
        train_step(m, o, x);
    size_t n = outputs(m, x, before);
    assert_ok(eg_surgery_apply(s, eg_merge_adapter(ctx), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_low_rank_adapter_class)), 0);
    assert_int_equal(outputs(m, x, after), n);
    for (size_t i = 0; i < n; i++)
        assert_true(fabsf(before[i] - after[i]) <= 1e-5f * (1 + fabsf(before[i])));
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_tensor_release(x);
    eg_module_release(m);
}

static void factors_are_nearest(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 12, 10)));
    eg_surgery *s = eg_surgery_new(m);
    assert_ok(eg_surgery_apply(s, eg_factorize(ctx, .rank = 4, .min_channels = 1), NULL));
    assert_int_equal(eg_surgery_size(s), 1);
    eg_module *pair = eg_surgery_at(s, 0)->fresh;
    eg_tape *scope = eg_tape_begin(ctx, EG_NO_GRAD);
    double error = ((const eg_factorized *)pair)->error, off = 0, all = 0;
    eg_tensor *w = eg_detach(eg_module_tensor(m, "0.weight"));
    eg_tensor *product =
        eg_matmul(eg_detach(eg_module_tensor(pair, "1.weight")), eg_detach(eg_module_tensor(pair, "0.weight")));
    float a[120], b[120];
    assert_ok(eg_tensor_read(w, a, 120));
    assert_ok(eg_tensor_read(product, b, 120));
    for (int i = 0; i < 120; i++) {
        off += (double)(a[i] - b[i]) * (a[i] - b[i]);
        all += (double)a[i] * a[i];
    }
    assert_true(error > 0.01 && error < 1);
    assert_true(fabs(sqrt(off / all) - error) < 1e-5);
    assert_ptr_equal(eg_module_tensor(pair, "1.bias"), eg_module_tensor(m, "0.bias"));
    eg_tape_end(scope);
    eg_surgery_free(s);
    eg_module_release(m);
}

/* A transformer's block: heads go, and nothing that is fixed does. */
static void heads_go(void **state)
{
    (void)state;
    eg_module *m =
        eg_sequential(ctx, EG_MODULES(eg_multihead_attention(ctx, 12, 4, .batch_first = true), eg_linear(ctx, 12, 3)));
    assert_made(m);
    eg_optimizer *o = eg_adam(m);
    eg_surgery *s = eg_surgery_new(m, .optimizers = EG_OPTIMIZERS(o), .inputs = EG_SHAPES(EG_SHAPE(2, 5, 12)));
    assert_ok(eg_surgery_apply(s, eg_prune_heads(ctx, .ratio = 0.5), NULL));
    assert_ok(eg_surgery_commit(s));
    const eg_multihead_attention *a = (const eg_multihead_attention *)eg_module_find(m, "0");
    assert_int_equal(a->num_heads, 2);
    assert_int_equal(a->head_dim, 3);
    assert_int_equal(eg_tensor_size(a->in_proj_weight, 0), 3 * 6);
    assert_int_equal(eg_tensor_size(a->in_proj_weight, 1), 12);
    assert_ok(eg_surgery_undo(s));
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_methods, setup, teardown),
        cmocka_unit_test_setup_teardown(every_method_has_a_row, setup, teardown),
        cmocka_unit_test_setup_teardown(heads_go, setup, teardown),
        cmocka_unit_test_setup_teardown(adapters_merge, setup, teardown),
        cmocka_unit_test_setup_teardown(factors_are_nearest, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

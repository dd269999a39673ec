/* Memory: recomputed searches are the same searches; predictions are what is measured; limits. */
#include "train_support.h"

#include "base/internal.h"

/* ---- a space, a strategy, and how a step of it is searched ---- */

typedef struct setting {
    const char *space, *strategy;
    int64_t channels, layers;
    size_t batch;
    eg_memory memory;
} setting;

static eg_dataset *colored(eg_context *ctx, size_t n, int64_t side)
{
    size_t pixels = (size_t)(3 * side * side);
    float *images = calloc(n * pixels, sizeof *images);
    int64_t *labels = calloc(n, sizeof *labels);
    eg_rng rng = eg_rng_make(4, "colored", 0);
    for (size_t i = 0; i < n * pixels; i++)
        images[i] = (float)eg_rng_normal(&rng);
    for (size_t i = 0; i < n; i++)
        labels[i] = (int64_t)(i % 10);
    eg_dataset *data = eg_dataset_from_arrays(ctx, images, EG_SHAPE(3, side, side), labels, n, 10);
    free(images);
    free(labels);
    assert_made(data);
    return data;
}

static eg_module *build(eg_context *ctx, const setting *s, int64_t side)
{
    eg_module *net = eg_space_build(ctx, s->space,
                                    &(eg_space_options){.struct_size = sizeof(eg_space_options),
                                                        .input = EG_SHAPE(3, side, side),
                                                        .classes = 10,
                                                        .channels = s->channels,
                                                        .layers = s->layers});
    assert_made(net);
    return net;
}

/* Trains an epoch after predicting; the weights go to `path` (may be NULL). */
static void search_once(const setting *s, bool predict, const char *path, double tolerance)
{
    enum { SIDE = 12 };
    bool samples = strcmp(s->strategy, "spos") == 0;
    size_t batches = samples ? 64 : 4;
    eg_context *ctx = eg_context_new(.seed = 2, .threads = 2);
    eg_dataset *data = colored(ctx, 2 * batches * s->batch, SIDE);
    eg_module *net = build(ctx, s, SIDE);
    eg_search *search = eg_search_new(ctx, net, data, .strategy = s->strategy, .epochs = 1, .batch_size = s->batch,
                                      .memory = s->memory, .strategy_options = {.evaluations = 1});
    assert_made(search);
    eg_memory_estimate estimate = {0};
    if (predict) {
        eg_context_stats before = eg_context_get_stats(ctx);
        eg_rng rng = *eg_context_rng(ctx);
        assert_ok(eg_search_memory(search, s->memory, &estimate));
        assert_int_equal(eg_context_get_stats(ctx).bytes_in_use, before.bytes_in_use);
        assert_int_equal(eg_context_get_stats(ctx).bytes_reserved, before.bytes_reserved);
        assert_int_equal(eg_context_rng(ctx)->position, rng.position);
        assert_int_equal(estimate.total,
                         estimate.parameters + estimate.gradients + estimate.optimizer + estimate.activations);
    }
    assert_ok(eg_search_run(search));
    double measured = (double)eg_context_get_stats(ctx).bytes_reserved;
    if (predict && fabs(measured / (double)estimate.total - 1) > tolerance)
        fail_msg("%s, %s, memory %d: %zu bytes were predicted, %.0f measured", s->space, s->strategy, (int)s->memory,
                 estimate.total, measured);
    if (path)
        assert_ok(eg_module_save(net, path));
    eg_search_free(search);
    eg_module_release(net);
    eg_dataset_release(data);
    eg_context_free(ctx);
}

/* The choice evaluates whole candidates without gradients, which takes less than a step. Of a strategy that samples,
 * the pool has to serve many paths before it has grown to what is predicted. */
static void test_prediction(void **state)
{
    (void)state;
    static const setting settings[] = {
        {"darts", "darts", 4, 3, 8, EG_MEMORY_NORMAL},  {"darts", "darts", 4, 3, 8, EG_MEMORY_LOW},
        {"cells", "darts", 6, 2, 16, EG_MEMORY_NORMAL}, {"cells", "darts", 6, 2, 16, EG_MEMORY_LOW},
        {"mlp", "darts", 0, 0, 16, EG_MEMORY_NORMAL},   {"darts", "spos", 4, 3, 8, EG_MEMORY_NORMAL},
        {"cells", "spos", 6, 2, 16, EG_MEMORY_NORMAL}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        search_once(&settings[i], true, NULL, strcmp(settings[i].strategy, "spos") == 0 ? 0.1 : 0.02);
}

/* Paths of very different sizes, of which a few in a row may be equal. */
static void test_rare_paths(void **state)
{
    (void)state;
    enum { FEATURES = 16, HIDDEN = 4000, SEEDS = 8 };
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        eg_context *ctx = eg_context_new(.seed = seed, .threads = 1);
        eg_dataset *data = toy_data(ctx, 64, 1);
        int64_t n = eg_shape_numel(eg_dataset_shape(data));
        eg_module *large = eg_sequential(
            ctx, EG_MODULES(eg_linear(ctx, FEATURES, HIDDEN), eg_relu(ctx), eg_linear(ctx, HIDDEN, FEATURES)));
        eg_module *net = eg_sequential(
            ctx, EG_MODULES(eg_flatten(ctx), eg_linear(ctx, n, FEATURES),
                            eg_layer_choice(ctx, EG_CHOICES({"small", eg_identity(ctx)}, {"large", large})),
                            eg_linear(ctx, FEATURES, TOY_CLASSES)));
        eg_search *search =
            eg_search_new(ctx, net, data, .strategy = "spos", .epochs = 1, .batch_size = 32, .seed = seed);
        assert_made(search);
        eg_memory_estimate estimate;
        assert_ok(eg_search_memory(search, EG_MEMORY_NORMAL, &estimate));
        size_t activations = sizeof(float) * 32 * HIDDEN;
        assert_true(estimate.activations >= 2 * activations);
        eg_search_free(search);
        eg_module_release(net);
        eg_dataset_release(data);
        eg_context_free(ctx);
    }
}

static void expect_near(const char *a, const char *b, double tolerance)
{
    eg_context *ctx = eg_context_new(.seed = 0);
    eg_state *s = eg_safetensors_load(ctx, a, NULL), *t = eg_safetensors_load(ctx, b, NULL);
    assert_made(s);
    assert_made(t);
    assert_int_equal(eg_state_size(s), eg_state_size(t));
    for (size_t i = 0; i < eg_state_size(s); i++) {
        const eg_tensor *u = eg_state_at(s, i, NULL), *v = eg_state_at(t, i, NULL);
        size_t n = (size_t)eg_tensor_numel(u);
        if (eg_tensor_dtype(u) != EG_F32)
            continue;
        float *x = calloc(n, sizeof *x), *y = calloc(n, sizeof *y);
        assert_ok(eg_tensor_read(u, x, n));
        assert_ok(eg_tensor_read(v, y, n));
        for (size_t k = 0; k < n; k++)
            assert_true(fabs((double)x[k] - (double)y[k]) <= tolerance * (1 + fabs((double)x[k])));
        free(x);
        free(y);
    }
    eg_state_free(s);
    eg_state_free(t);
    eg_context_free(ctx);
}

/* Predicting changes no bit of what comes after; recomputing only the order of a few sums. */
static void test_same_search(void **state)
{
    (void)state;
    char *directory = temporary_make(), a[TEMPORARY_PATH_SIZE], b[TEMPORARY_PATH_SIZE], c[TEMPORARY_PATH_SIZE];
    setting s = {"darts", "darts", 4, 2, 8, EG_MEMORY_NORMAL};
    search_once(&s, false, temporary_path(directory, "a", a), 0);
    search_once(&s, true, temporary_path(directory, "b", b), 1);
    expect_near(a, b, 0);
    s.memory = EG_MEMORY_LOW;
    search_once(&s, false, temporary_path(directory, "c", c), 0);
    expect_near(a, c, 1e-3);
    temporary_remove(directory);
}

static void count_warnings(void *payload, eg_log_level level, const char *text)
{
    if (level == EG_LOG_WARNING && strstr(text, "mixed edges are recomputed"))
        ++*(int *)payload;
}

static void test_limits(void **state)
{
    (void)state;
    int warnings = 0;
    eg_context *ctx = eg_context_new(.seed = 2, .threads = 1, .log = count_warnings, .log_payload = &warnings);
    const setting s = {"darts", "darts", 4, 3, 16, EG_MEMORY_NORMAL};
    eg_dataset *data = colored(ctx, 64, 12);
    eg_module *net = build(ctx, &s, 12);
    eg_memory_estimate normal, low;
    eg_search *search = eg_search_new(ctx, net, data, .epochs = 1, .batch_size = 16);
    assert_made(search);
    assert_ok(eg_search_memory(search, EG_MEMORY_NORMAL, &normal));
    assert_ok(eg_search_memory(search, EG_MEMORY_LOW, &low));
    assert_true(low.total < normal.total);
    eg_search_free(search);

    search = eg_search_new(ctx, net, data, .epochs = 1, .batch_size = 16, .max_memory = normal.total * 2);
    assert_made(search);
    assert_int_equal(warnings, 0);
    eg_search_free(search);
    search = eg_search_new(ctx, net, data, .epochs = 1, .batch_size = 16, .max_memory = (normal.total + low.total) / 2);
    assert_made(search);
    assert_int_equal(warnings, 1);
    eg_search_free(search);
    assert_null(eg_search_new(ctx, net, data, .epochs = 1, .batch_size = 16, .max_memory = low.total * 3 / 4));
    assert_recorded(EG_ENOMEM, "samples would fit");
    assert_null(eg_search_new(ctx, net, data, .epochs = 1, .batch_size = 16, .max_memory = 1000));
    assert_recorded(EG_ENOMEM, "only a smaller network");
    assert_null(eg_search_new(ctx, net, data, .epochs = 1, .memory = (eg_memory)7));
    assert_recorded(EG_EINVAL, "memory is 7");
    search = eg_search_new(ctx, net, data, .strategy = "random");
    assert_fails(eg_search_memory(search, EG_MEMORY_LOW, &low), EG_EINVAL, "trains nothing");
    assert_fails(eg_search_memory(NULL, EG_MEMORY_LOW, &low), EG_EINVAL, "is NULL");
    eg_search_free(search);
    eg_module_release(net);
    eg_dataset_release(data);
    eg_context_free(ctx);
}

static void test_trainer(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 2, .threads = 1);
    eg_dataset *data = toy_data(ctx, 96, 1);
    eg_module *net = toy_model(ctx);
    eg_trainer *trainer = eg_trainer_new(ctx, net, data, .epochs = 2, .batch_size = 16);
    assert_made(trainer);
    eg_memory_estimate estimate;
    assert_ok(eg_trainer_memory(trainer, EG_MEMORY_NORMAL, &estimate));
    assert_ok(eg_trainer_train(trainer));
    double measured = (double)eg_context_get_stats(ctx).bytes_reserved;
    assert_true(fabs(measured / (double)estimate.total - 1) < 0.02);
    eg_trainer_free(trainer);
    assert_null(eg_trainer_new(ctx, net, data, .epochs = 2, .batch_size = 16, .max_memory = 1000));
    assert_recorded(EG_ENOMEM, "only a smaller network");
    assert_fails(eg_trainer_memory(NULL, EG_MEMORY_NORMAL, &estimate), EG_EINVAL, "is NULL");
    eg_module_release(net);
    eg_dataset_release(data);
    eg_context_free(ctx);
}

int main(void)
{
    setenv("EG_POOL", "on", 1); /* what is predicted and measured here is the pool */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_prediction), cmocka_unit_test(test_rare_paths),
                                       cmocka_unit_test(test_same_search), cmocka_unit_test(test_limits),
                                       cmocka_unit_test(test_trainer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Training and searching with bfloat16 activations, emulated: what is stored as what, that it learns, what it takes in
 * memory, and checkpoints.
 */
#include "train_support.h"

#include "base/internal.h"

static eg_context *context_of(eg_dtype precision)
{
    eg_context *ctx = eg_context_new(.seed = 3, .threads = 2);
    assert_made(ctx);
    assert_ok(eg_context_set_precision(ctx, precision));
    return ctx;
}

/* ---- types ---- */

static eg_tensor *see_type(void *payload, eg_module *m, eg_tensor *t, bool *failed)
{
    (void)m, (void)failed;
    bool *narrow = payload;
    *narrow = *narrow && eg_tensor_dtype(t) == EG_BF16;
    return NULL;
}

static eg_status hook_module(void *payload, const char *path, eg_module *m)
{
    return path[0] ? eg_module_add_hook(m, see_type, payload, NULL) : EG_OK;
}

static eg_status check_parameter(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    (void)path;
    if (kind != EG_SLOT_PARAMETER || eg_is_none(t))
        return EG_OK;
    ++*(int *)payload;
    assert_int_equal(eg_tensor_dtype(t), EG_F32);
    assert_made(eg_tensor_grad(t));
    assert_int_equal(eg_tensor_dtype(eg_tensor_grad(t)), EG_F32);
    return EG_OK;
}

/* Within the outermost call all is bfloat16; around it, and of the parameters, float32. */
static void test_types(void **state)
{
    (void)state;
    eg_context *ctx = context_of(EG_BF16);
    eg_module *model = toy_model(ctx);
    bool narrow = true;
    int parameters = 0;
    assert_ok(eg_module_walk(model, hook_module, &narrow));
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(4, 1, TOY_SIDE, TOY_SIDE));
    assert_ok(eg_tensor_set_requires_grad(x, true));
    eg_tensor *y = eg_call(model, x);
    assert_made(y);
    assert_true(narrow);
    assert_int_equal(eg_tensor_dtype(y), EG_F32);
    assert_ok(eg_backward(eg_f_cross_entropy(y, eg_from_labels(ctx, 4, (const int64_t[]){0, 1, 2, 0}))));
    assert_ok(eg_module_walk_tensors(model, check_parameter, &parameters));
    assert_int_equal(parameters, 5);
    assert_int_equal(eg_tensor_dtype(eg_tensor_grad(x)), EG_F32);
    eg_tape_end(tape);
    assert_int_equal(eg_tensor_dtype(eg_call(model, eg_shape_only(ctx, EG_SHAPE(4, 1, TOY_SIDE, TOY_SIDE)))), EG_F32);
    eg_trace *trace = eg_trace_new(model, &EG_SHAPE(1, 1, TOY_SIDE, TOY_SIDE), 1);
    assert_made(trace); /* of the structure, which knows nothing of it */
    eg_trace_free(trace);
    eg_module_release(model);
    eg_context_free(ctx);
}

static eg_tensor *two_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    assert_int_equal(eg_tensor_dtype(in[0]), EG_BF16);
    return eg_tuple(self->ctx, (eg_tensor *const[]){eg_f_relu(in[0]), eg_none, eg_neg(in[0])}, 3);
}

typedef struct two {
    eg_module base;
} two;

static EG_NAMED_CLASS(two, "Two", .forward = two_forward);

/* Several outputs; and activations that begin with an embedding. */
static void test_other_values(void **state)
{
    (void)state;
    eg_context *ctx = context_of(EG_BF16);
    eg_module *m = eg_module_new(&two_class, sizeof(two), &(two){.base.ctx = ctx});
    assert_made(m);
    eg_tensor *y = eg_call(m, eg_full(ctx, EG_SHAPE(3), 1.5));
    assert_made(y);
    assert_int_equal(eg_tuple_size(y), 3);
    assert_int_equal(eg_tensor_dtype(eg_tuple_get(y, 0)), EG_F32);
    assert_true(eg_is_none(eg_tuple_get(y, 1)));
    assert_tensor(eg_tuple_get(y, 2), 0, -1.5F, -1.5F, -1.5F);
    eg_module_release(m);

    bool narrow = true;
    m = eg_sequential(ctx, EG_MODULES(eg_embedding(ctx, 10, 4), eg_linear(ctx, 4, 2)));
    assert_made(m);
    assert_ok(eg_module_walk(m, hook_module, &narrow));
    y = eg_call(m, eg_from_labels(ctx, 3, (const int64_t[]){1, 9, 0}));
    assert_made(y);
    assert_true(narrow);
    assert_int_equal(eg_tensor_dtype(y), EG_F32);
    eg_module_release(m);
    eg_context_free(ctx);
}

/* ---- learning ---- */

static double learned(eg_dtype precision)
{
    eg_context *ctx = context_of(precision);
    eg_dataset *train = toy_data(ctx, 240, 1), *test = toy_data(ctx, 120, 2);
    eg_module *model = toy_model(ctx);
    eg_trainer *trainer = eg_trainer_new(ctx, model, train, .validation = test, .epochs = 6, .batch_size = 20);
    assert_made(trainer);
    eg_memory_estimate estimate;
    assert_ok(eg_trainer_memory(trainer, EG_MEMORY_NORMAL, &estimate));
    assert_ok(eg_trainer_train(trainer));
    double measured = (double)eg_context_get_stats(ctx).bytes_reserved;
    assert_close(measured / (double)estimate.total, 1, 0.1);
    double accuracy = eg_evaluate(model, test, 0);
    assert_true(accuracy >= 0);
    eg_trainer_free(trainer);
    eg_module_release(model);
    eg_dataset_release(train);
    eg_dataset_release(test);
    eg_context_free(ctx);
    return accuracy;
}

static void test_learns(void **state)
{
    (void)state;
    double f32 = learned(EG_F32), bf16 = learned(EG_BF16);
    assert_true(f32 > 0.9);
    assert_close(bf16, f32, 0.05);
}

/* ---- supernets ---- */

static eg_module *supernet(eg_context *ctx)
{
    eg_module *net = eg_space_build(ctx, "darts",
                                    &(eg_space_options){.struct_size = sizeof(eg_space_options),
                                                        .input = EG_SHAPE(3, 16, 16),
                                                        .classes = 4,
                                                        .channels = 8,
                                                        .layers = 3});
    assert_made(net);
    return net;
}

static eg_dataset *colored(eg_context *ctx, size_t n)
{
    size_t pixels = 3 * 16 * 16;
    float *images = calloc(n * pixels, sizeof *images);
    int64_t *labels = calloc(n, sizeof *labels);
    eg_rng rng = eg_rng_make(4, "colored", 0);
    for (size_t i = 0; i < n; i++) {
        labels[i] = (int64_t)(i % 4);
        for (size_t k = 0; k < pixels; k++)
            images[i * pixels + k] = (float)(eg_rng_normal(&rng) + (k % 4 == (size_t)labels[i] ? 2 : 0));
    }
    eg_dataset *data = eg_dataset_from_arrays(ctx, images, EG_SHAPE(3, 16, 16), labels, n, 4);
    free(images);
    free(labels);
    assert_made(data);
    return data;
}

typedef struct searched {
    double loss; /* of the first step, before anything was learned */
    size_t activations;
    float *weights; /* all parameters afterwards */
    size_t n;
} searched;

static eg_status take_weights(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    (void)path;
    searched *s = payload;
    if (kind != EG_SLOT_PARAMETER || eg_is_none(t))
        return EG_OK;
    size_t n = (size_t)eg_tensor_numel(t);
    s->weights = realloc(s->weights, (s->n + n) * sizeof(float));
    EG_TRY(eg_tensor_read(t, s->weights + s->n, n));
    s->n += n;
    return EG_OK;
}

static void first_loss(void *payload, const eg_progress *progress)
{
    double *loss = payload;
    if (*loss == 0 && strcmp(progress->phase, "train") == 0)
        *loss = eg_meter_group_get(progress->meters, "loss")->avg;
}

static searched search(eg_dtype precision, const char *strategy, eg_memory memory)
{
    searched s = {0};
    eg_context *ctx = context_of(precision);
    eg_dataset *data = colored(ctx, 96);
    eg_module *net = supernet(ctx);
    eg_search *search = eg_search_new(ctx, net, data, .strategy = strategy, .epochs = 1, .batch_size = 16,
                                      .memory = memory, .strategy_options = {.evaluations = 2, .population = 2},
                                      .progress = first_loss, .progress_payload = &s.loss);
    assert_made(search);
    eg_memory_estimate estimate;
    assert_ok(eg_search_memory(search, memory, &estimate));
    s.activations = estimate.activations;
    assert_ok(eg_search_run(search));
    assert_made(eg_search_arch(search));
    assert_ok(eg_module_walk_tensors(net, take_weights, &s));
    eg_search_free(search);
    eg_module_release(net);
    eg_dataset_release(data);
    eg_context_free(ctx);
    return s;
}

/* Steps of supernets: mixed edges with norms in their sums, and sampled paths. The first loss is near that of float32,
 * the activations take little more than half. */
static void test_searches(void **state)
{
    (void)state;
    static const char *const strategies[] = {"darts", "spos"};
    for (size_t i = 0; i < EG_COUNT(strategies); i++) {
        searched wide = search(EG_F32, strategies[i], EG_MEMORY_NORMAL),
                 narrow = search(EG_BF16, strategies[i], EG_MEMORY_NORMAL);
        assert_true(wide.loss > 0.5);
        assert_close(narrow.loss, wide.loss, 0.02 * wide.loss);
        assert_int_equal(narrow.n, wide.n);
        double difference = 0, size = 0;
        for (size_t k = 0; k < wide.n; k++) {
            difference += pow((double)(narrow.weights[k] - wide.weights[k]), 2);
            size += pow((double)wide.weights[k], 2);
        }
        assert_true(difference > 0 && difference < 1e-3 * size);
        if (i == 0 && !((double)narrow.activations < 0.65 * (double)wide.activations))
            fail_msg("activations: %zu bytes, in float32 %zu", narrow.activations, wide.activations);
        free(wide.weights);
        free(narrow.weights);
    }
}

/* Mixed edges that are run again compute the same. */
static void test_recompute(void **state)
{
    (void)state;
    searched kept = search(EG_BF16, "darts", EG_MEMORY_NORMAL), again = search(EG_BF16, "darts", EG_MEMORY_LOW);
    assert_close(again.loss, kept.loss, 1e-3); /* after a step of the architecture's weights */
    assert_true(again.activations < kept.activations);
    double difference = 0, size = 0;
    for (size_t k = 0; k < kept.n; k++) {
        difference += pow((double)(again.weights[k] - kept.weights[k]), 2);
        size += pow((double)kept.weights[k], 2);
    }
    assert_true(difference < 1e-4 * size);
    free(kept.weights);
    free(again.weights);
}

static eg_tensor *call(void *payload, eg_tensor *const *in, size_t n_in)
{
    return eg_module_call(payload, in, n_in);
}

static eg_tensor *call_twice(void *payload, eg_tensor *const *in, size_t n_in)
{
    eg_module *m = payload;
    return eg_recompute(m->ctx, call, m, NULL, in, n_in);
}

/* A module that runs another again. */
typedef struct wrapping {
    eg_module base;
    eg_module *inner;
} wrapping;

static eg_status wrapping_build(eg_module *self)
{
    return EG_SLOT((wrapping *)self, inner, eg_linear(self->ctx, 64, 64));
}

static eg_tensor *wrapping_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    return call_twice(((wrapping *)self)->inner, in, n_in);
}
static EG_CLASS(wrapping, .build = wrapping_build, .forward = wrapping_forward);

/* Functions that are run again, with the calls of modules in them or around them, round as they did before. */
static void test_run_again(void **state)
{
    (void)state;
    enum { PLAIN, ONCE, NESTED, WRAPPED, WAYS, N = 64 };
    static float gradients[WAYS][2 * N * N];
    for (int way = 0; way < WAYS; way++) {
        eg_context *ctx = context_of(EG_BF16);
        eg_module *inner = way == WRAPPED ? eg_new(wrapping, ctx) : eg_linear(ctx, N, N);
        eg_module *net = eg_sequential(ctx, EG_MODULES(inner, eg_relu(ctx), eg_linear(ctx, N, N)));
        assert_made(net);
        eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
        eg_tensor *x = eg_randn(ctx, EG_SHAPE(8, N)), *y;
        if (way == PLAIN || way == WRAPPED)
            y = eg_call(net, x);
        else
            y = eg_recompute(ctx, way == ONCE ? call : call_twice, net, NULL, &x, 1);
        assert_made(y);
        assert_int_equal(eg_tensor_dtype(y), EG_F32);
        assert_ok(eg_backward(eg_mean(eg_mul(y, y))));
        const eg_tensor *first = eg_module_tensor(net, way == WRAPPED ? "0.inner.weight" : "0.weight");
        assert_ok(eg_tensor_read(eg_tensor_grad(first), gradients[way], N * N));
        assert_ok(eg_tensor_read(eg_tensor_grad(eg_module_tensor(net, "2.weight")), gradients[way] + N * N, N * N));
        eg_tape_end(tape);
        eg_module_release(net);
        eg_context_free(ctx);
        assert_memory_equal(gradients[way], gradients[PLAIN], sizeof gradients[PLAIN]);
    }
}

/* ---- checkpoints ---- */

static void test_checkpoints(void **state)
{
    (void)state;
    char *directory = temporary_make(), path[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "checkpoint", path);
    for (int wide = 0; wide < 2; wide++) {
        eg_context *ctx = context_of(wide ? EG_F32 : EG_BF16);
        eg_dataset *data = toy_data(ctx, 40, 1);
        eg_module *model = toy_model(ctx);
        eg_trainer *trainer = eg_trainer_new(ctx, model, data, .epochs = 1, .batch_size = 20);
        assert_made(trainer);
        if (!wide) {
            assert_ok(eg_trainer_train(trainer));
            assert_ok(eg_trainer_checkpoint(trainer, path));
            assert_ok(eg_trainer_restore(trainer, path));
        } else {
            assert_fails(eg_trainer_restore(trainer, path), EG_EINVAL, "precision");
        }
        eg_trainer_free(trainer);
        eg_module_release(model);
        eg_dataset_release(data);
        eg_context_free(ctx);
    }
    temporary_remove(directory);
}

int main(void)
{
    setenv("EG_BF16", "emulate", 1);
    setenv("EG_POOL", "on", 1); /* what is predicted and measured here is the pool */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),     cmocka_unit_test(test_other_values), cmocka_unit_test(test_learns),
        cmocka_unit_test(test_searches),  cmocka_unit_test(test_recompute),    cmocka_unit_test(test_checkpoints),
        cmocka_unit_test(test_run_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

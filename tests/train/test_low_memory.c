/* Searches whose mixed edges are run again in backward: random masks are the same both times, and a search that was
 * stopped and goes on comes to the bits of one that was not. */
#include "train_support.h"

#include <math.h>

enum { SIDE = 8, BATCH = 4, BATCHES = 4, EPOCHS = 2 };

typedef struct plan {
    eg_memory memory;
    double drop_path;
    const char *run;     /* NULL = none */
    size_t cancel_after; /* so many batches; 0 = never */
} plan;

typedef struct world {
    eg_context *ctx;
    const plan *plan;
    size_t batches;
} world;

static void on_progress(void *payload, const eg_progress *progress)
{
    (void)progress;
    world *w = payload;
    if (++w->batches == w->plan->cancel_after)
        eg_context_cancel(w->ctx);
}

static eg_dataset *colored(eg_context *ctx)
{
    enum { SAMPLES = 2 * BATCHES * BATCH, PIXELS = 3 * SIDE * SIDE };
    static float images[SAMPLES * PIXELS];
    int64_t labels[SAMPLES];
    eg_rng rng = eg_rng_make(4, "colored", 0);
    for (size_t i = 0; i < SAMPLES * PIXELS; i++)
        images[i] = (float)eg_rng_normal(&rng);
    for (size_t i = 0; i < SAMPLES; i++)
        labels[i] = (int64_t)(i % 2);
    return eg_dataset_from_arrays(ctx, images, EG_SHAPE(3, SIDE, SIDE), labels, SAMPLES, 2);
}

/* Writes the trained weights to `path` unless it is canceled; returns how it ended. */
static eg_status search(const plan *p, const char *path)
{
    world w = {.ctx = eg_context_new(.seed = 5, .threads = 2), .plan = p};
    eg_dataset *data = colored(w.ctx);
    eg_module *net = eg_space_build(w.ctx, "darts",
                                    &(eg_space_options){.struct_size = sizeof(eg_space_options),
                                                        .input = EG_SHAPE(3, SIDE, SIDE),
                                                        .classes = 2,
                                                        .channels = 4,
                                                        .layers = 3,
                                                        .drop_path = p->drop_path});
    eg_search *s =
        eg_search_new(w.ctx, net, data, .epochs = EPOCHS, .batch_size = BATCH, .memory = p->memory, .run = p->run,
                      .resume = p->run != NULL, .progress = on_progress, .progress_payload = &w);
    assert_made(s);
    eg_status status = eg_search_run(s);
    if (status == EG_OK)
        assert_ok(eg_module_save(net, path));
    eg_search_free(s);
    eg_module_release(net);
    eg_dataset_release(data);
    eg_context_free(w.ctx);
    return status;
}

/* The largest difference between two files of weights. */
static double distance(const char *a, const char *b)
{
    eg_context *ctx = eg_context_new(.seed = 0);
    eg_state *s = eg_safetensors_load(ctx, a, NULL), *t = eg_safetensors_load(ctx, b, NULL);
    assert_made(s);
    assert_made(t);
    double largest = 0;
    for (size_t i = 0; i < eg_state_size(s); i++) {
        const eg_tensor *u = eg_state_at(s, i, NULL), *v = eg_state_at(t, i, NULL);
        size_t n = (size_t)eg_tensor_numel(u);
        if (eg_tensor_dtype(u) != EG_F32)
            continue;
        float *x = calloc(n, sizeof *x), *y = calloc(n, sizeof *y);
        assert_ok(eg_tensor_read(u, x, n));
        assert_ok(eg_tensor_read(v, y, n));
        for (size_t k = 0; k < n; k++)
            largest = fmax(largest, fabs((double)x[k] - (double)y[k]));
        free(x);
        free(y);
    }
    eg_state_free(s);
    eg_state_free(t);
    eg_context_free(ctx);
    return largest;
}

/* Other masks in the second run would give other gradients, and soon other weights. */
static void test_drop_path(void **state)
{
    (void)state;
    char *directory = temporary_make(), a[TEMPORARY_PATH_SIZE], b[TEMPORARY_PATH_SIZE], c[TEMPORARY_PATH_SIZE];
    plan p = {.memory = EG_MEMORY_NORMAL, .drop_path = 0.4};
    assert_ok(search(&p, temporary_path(directory, "a", a)));
    p.memory = EG_MEMORY_LOW;
    assert_ok(search(&p, temporary_path(directory, "b", b)));
    p.drop_path = 0;
    assert_ok(search(&p, temporary_path(directory, "c", c)));
    assert_true(distance(a, b) < 1e-3);
    assert_true(distance(b, c) > 1e-2);
    temporary_remove(directory);
}

static void test_resume(void **state)
{
    (void)state;
    char *directory = temporary_make(), whole[TEMPORARY_PATH_SIZE], parts[TEMPORARY_PATH_SIZE],
         run[TEMPORARY_PATH_SIZE];
    plan p = {.memory = EG_MEMORY_LOW, .drop_path = 0.4};
    assert_ok(search(&p, temporary_path(directory, "whole", whole)));
    p.run = temporary_path(directory, "run", run);
    p.cancel_after = BATCHES + 1;
    temporary_path(directory, "parts", parts);
    assert_int_equal(search(&p, parts), EG_ECANCELED);
    eg_error_clear();
    p.cancel_after = 0;
    assert_ok(search(&p, parts));
    assert_same_file(whole, parts);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_drop_path), cmocka_unit_test(test_resume)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Searches: finding something, resuming without a difference, candidates that are judged alike each time. */
#include "train_support.h"

typedef struct plan {
    const char *strategy, *run;
    bool resume;
    size_t cancel_after; /* calls of progress; 0 = never */
    bool goes_on;        /* after it was canceled */
    double checkpoint_seconds;
    size_t calls;
    eg_context *ctx;
} plan;

static void cancel_on_progress(void *payload, const eg_progress *progress)
{
    plan *p = payload;
    assert_true(progress->done <= progress->total);
    if (++p->calls == p->cancel_after)
        eg_context_cancel(p->ctx);
}

/* Searches the toy supernet; writes what it found to `arch`, and to `weights` the shared weights (may be NULL). */
static eg_status search(plan *p, const char *arch, const char *weights)
{
    eg_context *ctx = p->ctx = eg_context_new(.seed = 7, .threads = 1);
    eg_dataset *data = toy_data(ctx, 96, 1);
    eg_module *net = toy_supernet(ctx);
    p->calls = 0;
    eg_search *s = eg_search_new(ctx, net, data, .strategy = p->strategy, .epochs = 3, .batch_size = 8, .seed = 5,
                                 .run = p->run, .resume = p->resume, .checkpoint_seconds = p->checkpoint_seconds,
                                 .strategy_options = {.evaluations = 5, .population = 3},
                                 .progress = cancel_on_progress, .progress_payload = p);
    eg_status status = s ? eg_search_run(s) : eg_error_last()->code;
    if (p->goes_on) {
        assert_int_equal(status, EG_ECANCELED);
        eg_error_clear();
        eg_context_resume(ctx);
        status = eg_search_run(s);
    }
    if (status == EG_OK)
        status = eg_search_export(s, arch);
    if (status == EG_OK && weights)
        status = eg_module_save(net, weights);
    eg_search_free(s);
    eg_module_release(net);
    eg_dataset_release(data);
    eg_context_free(ctx);
    return status;
}

static void check_found(const char *path)
{
    eg_context *ctx = eg_context_new(.seed = 7);
    eg_arch *arch = eg_arch_load(path);
    assert_made(arch);
    eg_module *net = toy_supernet(ctx);
    assert_ok(eg_apply_arch(net, arch));
    eg_arch_free(arch);
    eg_module_release(net);
    eg_context_free(ctx);
}

static void resume_everywhere(const char *strategy, const size_t *stops, size_t n)
{
    char *directory = temporary_make(), expected[TEMPORARY_PATH_SIZE], got[TEMPORARY_PATH_SIZE],
         run[TEMPORARY_PATH_SIZE], name[32];
    char weights[TEMPORARY_PATH_SIZE], got_weights[TEMPORARY_PATH_SIZE], written[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "got", got);
    temporary_path(directory, "got_weights", got_weights);
    plan whole = {.strategy = strategy};
    assert_ok(
        search(&whole, temporary_path(directory, "expected", expected), temporary_path(directory, "weights", weights)));
    check_found(expected);
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "run%zu", i);
        plan p = {.strategy = strategy, .run = temporary_path(directory, name, run), .cancel_after = stops[i]};
        assert_true(stops[i] < whole.calls);
        assert_fails(search(&p, got, NULL), EG_ECANCELED, "canceled");
        p.cancel_after = 0;
        p.resume = true;
        assert_ok(search(&p, got, got_weights));
        assert_same_file(expected, got);
        assert_same_file(weights, got_weights);
        assert_same_file(expected, temporary_path(run, "arch.json", written));
        assert_ok(search(&p, got, NULL)); /* done: it only reports */
        assert_int_equal(p.calls, 0);
        assert_same_file(expected, got);
    }
    temporary_remove(directory);
}

/* 48 samples in batches of 8 are 6 steps an epoch, 18 in all; then 5 candidates. */
static void test_resume_spos(void **state)
{
    (void)state;
    resume_everywhere("spos", (const size_t[]){1, 5, 6, 13, 18, 19, 21, 22}, 8);
}

static void test_resume_darts(void **state)
{
    (void)state;
    resume_everywhere("darts", (const size_t[]){1, 6, 8, 17}, 4);
}

static void test_checkpoints_make_no_difference(void **state)
{
    (void)state;
    char *directory = temporary_make(), expected[TEMPORARY_PATH_SIZE], got[TEMPORARY_PATH_SIZE],
         run[TEMPORARY_PATH_SIZE];
    plan p = {.strategy = "spos"};
    assert_ok(search(&p, temporary_path(directory, "expected", expected), NULL));
    p.run = temporary_path(directory, "run", run);
    p.checkpoint_seconds = 1e-9;
    assert_ok(search(&p, temporary_path(directory, "got", got), NULL));
    assert_same_file(expected, got);
    temporary_remove(directory);
}

static void test_random(void **state)
{
    (void)state;
    char *directory = temporary_make(), arch[TEMPORARY_PATH_SIZE];
    plan p = {.strategy = "random"};
    assert_ok(search(&p, temporary_path(directory, "arch", arch), NULL));
    check_found(arch);
    temporary_remove(directory);
}

static void test_resume_refuses(void **state)
{
    (void)state;
    char *directory = temporary_make(), arch[TEMPORARY_PATH_SIZE], run[TEMPORARY_PATH_SIZE], file[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "arch", arch);
    plan p = {.strategy = "spos", .run = temporary_path(directory, "run", run), .resume = true};
    assert_ok(search(&p, arch, NULL));
    p.strategy = "darts";
    assert_fails(search(&p, arch, NULL), EG_EINVAL, "strategy \"spos\", not \"darts\"");
    p.strategy = "spos";
    size_t size;
    char *bytes = read_file(temporary_path(run, "checkpoint/last.safetensors", file), &size);
    FILE *cut = fopen(file, "wb");
    assert_non_null(cut);
    assert_int_equal(fwrite(bytes, 1, size / 2, cut), size / 2);
    fclose(cut);
    free(bytes);
    assert_fails(search(&p, arch, NULL), EG_EFORMAT, "last.safetensors");
    temporary_remove(directory);
}

static void test_options_refused(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 7);
    eg_dataset *data = toy_data(ctx, 12, 1);
    eg_module *net = toy_supernet(ctx), *plain = toy_model(ctx);
    assert_refused(eg_search_new(ctx, net, data, .strategy = "dart", .epochs = 1), EG_ENOENT, "'darts'");
    assert_refused(eg_search_new(ctx, net, data), EG_EINVAL, "epochs is 0");
    assert_refused(eg_search_new(ctx, net, NULL, .epochs = 1), EG_EINVAL, "training set");
    assert_refused(eg_search_new(ctx, net, data, .epochs = 1, .lr = -1), EG_EINVAL, "lr is -1");
    assert_refused(eg_search_new_with(&(eg_search_options){.ctx = ctx, .model = net, .train = data, .epochs = 1}),
                   EG_EINVAL, "struct_size");
    assert_refused(eg_search_new_with(NULL), EG_EINVAL, "options");
    eg_search *s = eg_search_new(ctx, net, data, .strategy = "spos", .epochs = 1);
    assert_made(s);
    assert_refused(eg_search_arch(s), EG_EINVAL, "has not been run");
    eg_context_cancel(ctx);
    assert_fails(eg_search_run(s), EG_ECANCELED, "canceled");
    eg_context_resume(ctx);
    assert_refused(eg_search_arch(s), EG_EINVAL, "has not succeeded");
    eg_arch *arch = eg_arch_parse("{}");
    assert_fails(eg_apply_arch(net, arch), EG_EINVAL, "eg_search_free() or eg_mutator_detach()");
    eg_arch_free(arch);
    eg_search_free(s);
    const char *const strategies[] = {"darts", "spos", "random"};
    for (size_t i = 0; i < 3; i++)
        assert_refused(eg_search_new(ctx, plain, data, .strategy = strategies[i], .epochs = 1), EG_EINVAL,
                       "the model has no open choice");
    eg_search_free(NULL);
    eg_module_release(net);
    eg_module_release(plain);
    eg_dataset_release(data);
    eg_context_free(ctx);
}

/* ---- what a search does to a model ---- */

/* Images without a number in them: the first loss is none either, and no weight has moved for it. */
static void test_loss_not_finite(void **state)
{
    (void)state;
    const char *const strategies[] = {"spos", "darts"};
    const char *const messages[] = {
        "epoch 1 of 2, step 1 of 3: the loss is nan: a lower learning rate may help (lr)",
        "epoch 1 of 2, step 1 of 3: the loss is nan: a lower learning rate may help (lr or arch_lr)"};
    for (size_t i = 0; i < 2; i++) {
        eg_context *ctx = eg_context_new(.seed = 7, .threads = 1);
        float images[12 * TOY_SIDE * TOY_SIDE];
        int64_t labels[12];
        for (size_t k = 0; k < sizeof images / sizeof images[0]; k++)
            images[k] = NAN;
        for (size_t k = 0; k < 12; k++)
            labels[k] = (int64_t)(k % TOY_CLASSES);
        eg_dataset *data =
            eg_dataset_from_arrays(ctx, images, EG_SHAPE(1, TOY_SIDE, TOY_SIDE), labels, 12, TOY_CLASSES);
        eg_module *net = toy_supernet(ctx);
        float before[3], after[3];
        assert_ok(eg_tensor_read(eg_module_tensor(net, "7.bias"), before, 3));
        eg_search *s = eg_search_new(ctx, net, data, .strategy = strategies[i], .epochs = 2, .batch_size = 2);
        assert_made(s);
        assert_fails(eg_search_run(s), EG_EINVAL, messages[i]);
        assert_ok(eg_tensor_read(eg_module_tensor(net, "7.bias"), after, 3));
        assert_memory_equal(before, after, sizeof before);
        assert_null(eg_tensor_grad(eg_module_tensor(net, "7.bias")));
        eg_search_free(s);
        eg_module_release(net);
        eg_dataset_release(data);
        eg_context_free(ctx);
    }
}

typedef struct told {
    size_t calls, done, total;
    int64_t epoch;
} told;

static void note_candidates(void *payload, const eg_progress *progress)
{
    told *t = payload;
    if (strcmp(progress->phase, "train") == 0)
        return;
    assert_string_equal(progress->phase, "candidates");
    assert_int_equal(progress->epoch, progress->epochs);
    if (t->calls++ == 0)
        assert_int_equal(progress->done, 1);
    t->done = progress->done;
    t->total = progress->total;
}

/* The toy supernet has 3 * 2 architectures: more are asked for than there are, and less. */
static void test_progress_ends_at_its_total(void **state)
{
    (void)state;
    const struct {
        const char *strategy;
        int64_t evaluations;
        size_t expected;
    } cases[] = {{"spos", 30, 6}, {"spos", 4, 4}, {"random", 0, 1}};
    for (size_t i = 0; i < 3; i++) {
        eg_context *ctx = eg_context_new(.seed = 7, .threads = 1);
        eg_dataset *data = toy_data(ctx, 24, 1);
        eg_module *net = toy_supernet(ctx);
        told t = {0};
        eg_search *s = eg_search_new(ctx, net, data, .strategy = cases[i].strategy, .epochs = 1, .batch_size = 8,
                                     .strategy_options = {.evaluations = cases[i].evaluations},
                                     .progress = note_candidates, .progress_payload = &t);
        assert_made(s);
        assert_ok(eg_search_run(s));
        assert_int_equal(t.done, cases[i].expected);
        assert_int_equal(t.total, cases[i].expected);
        eg_search_free(s);
        eg_module_release(net);
        eg_dataset_release(data);
        eg_context_free(ctx);
    }
}

typedef struct memory {
    eg_context *ctx;
    size_t calls, bytes;
} memory;

/* Memory in use after each candidate is that after the one before. */
static void compare_memory(void *payload, const eg_progress *progress)
{
    memory *m = payload;
    if (strcmp(progress->phase, "train") == 0)
        return;
    size_t bytes = eg_context_get_stats(m->ctx).bytes_in_use;
    if (m->calls++ > 0)
        assert_int_equal(bytes, m->bytes);
    m->bytes = bytes;
}

static void test_candidates_leave_no_memory(void **state)
{
    (void)state;
    memory m = {.ctx = eg_context_new(.seed = 7, .threads = 1, .backend = "ref")};
    eg_dataset *data = toy_data(m.ctx, 24, 1);
    eg_module *net = toy_supernet(m.ctx);
    eg_search *s = eg_search_new(m.ctx, net, data, .strategy = "spos", .epochs = 1, .batch_size = 8,
                                 .strategy_options = {.evaluations = 5, .choice = "random"}, .progress = compare_memory,
                                 .progress_payload = &m);
    assert_made(s);
    assert_ok(eg_search_run(s));
    assert_true(m.calls >= 5);
    eg_search_free(s);
    eg_module_release(net);
    eg_dataset_release(data);
    eg_context_free(m.ctx);
}

/* 17 samples for statistics in batches of 8: the one left over has maps of one pixel, which have no variance. */
static void test_odd_samples(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 7, .threads = 1);
    eg_dataset *data = toy_data(ctx, 34, 1);
    eg_module *net = eg_sequential(
        ctx, EG_MODULES(eg_conv2d(ctx, 1, 4, TOY_SIDE),
                        eg_layer_choice(ctx, EG_CHOICES({"conv", eg_conv2d(ctx, 4, 4, 1)}, {"skip", eg_identity(ctx)}),
                                        .key = "op"),
                        eg_batch_norm2d(ctx, 4), eg_flatten(ctx), eg_linear(ctx, 4, TOY_CLASSES)));
    assert_made(net);
    eg_search *s = eg_search_new(ctx, net, data, .strategy = "spos", .epochs = 1, .batch_size = 8,
                                 .strategy_options = {.evaluations = 2});
    assert_made(s);
    assert_ok(eg_search_run(s));
    eg_search_free(s);
    eg_module_release(net);
    eg_dataset_release(data);
    eg_context_free(ctx);
}

/* Canceled and resumed without a new start, in training and in the choice. */
static void test_canceled_searches_go_on(void **state)
{
    (void)state;
    char *directory = temporary_make(), expected[TEMPORARY_PATH_SIZE], got[TEMPORARY_PATH_SIZE];
    plan whole = {.strategy = "spos"};
    assert_ok(search(&whole, temporary_path(directory, "expected", expected), NULL));
    const size_t stops[] = {4, 20};
    for (size_t i = 0; i < 2; i++) {
        plan p = {.strategy = "spos", .cancel_after = stops[i], .goes_on = true};
        assert_ok(search(&p, temporary_path(directory, "got", got), NULL));
        assert_same_file(expected, got);
    }
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume_spos),
        cmocka_unit_test(test_resume_darts),
        cmocka_unit_test(test_checkpoints_make_no_difference),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_resume_refuses),
        cmocka_unit_test(test_options_refused),
        cmocka_unit_test(test_loss_not_finite),
        cmocka_unit_test(test_progress_ends_at_its_total),
        cmocka_unit_test(test_candidates_leave_no_memory),
        cmocka_unit_test(test_odd_samples),
        cmocka_unit_test(test_canceled_searches_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

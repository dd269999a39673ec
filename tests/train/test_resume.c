/* What a checkpoint must share with what goes on from it, what it holds of mutators, and failures that change nothing.
 */
#include "train_support.h"

/* Everything that decides about the bits of a training of the toy supernet. */
typedef struct plan {
    int threads;
    double lr, label_smoothing, grad_clip, weight_decay, flip;
    bool adam;    /* an optimizer of one's own in the default one's place */
    bool sampled; /* a mutator samples every other batch; else the architecture is fixed */
    const char *run, *backend;
    int64_t cancel_batch; /* of epoch 0; -1 = never */
} plan;

static const plan usual = {
    .threads = 1, .lr = 0.05, .weight_decay = 1e-4, .flip = 0.5, .sampled = true, .backend = "ref", .cancel_batch = -1};

typedef struct world {
    const plan *plan;
    eg_context *ctx;
    eg_dataset *data;
    eg_module *net;
    eg_mutator *mutator;
    eg_trainer *trainer; /* NULL after a failure */
} world;

static eg_status on_batch_begin(eg_callback *self, int64_t epoch, int64_t batch)
{
    (void)epoch;
    const world *w = self->payload;
    return w->mutator && batch % 2 == 0 ? eg_mutator_reset(w->mutator) : EG_OK;
}

static eg_status on_batch_end(eg_callback *self, int64_t epoch, int64_t batch)
{
    const world *w = self->payload;
    if (epoch == 0 && batch == w->plan->cancel_batch)
        eg_context_cancel(w->ctx);
    return EG_OK;
}

static const eg_callback_class sampler_class = {.struct_size = sizeof(eg_callback_class),
                                                .name = "sampler",
                                                .on_batch_begin = on_batch_begin,
                                                .on_batch_end = on_batch_end};

static void start(world *w, const plan *p)
{
    *w = (world){.plan = p, .ctx = eg_context_new(.seed = 7, .threads = p->threads, .backend = p->backend)};
    w->data = toy_data(w->ctx, 24, 1);
    w->net = toy_supernet(w->ctx);
    eg_arch *arch = eg_arch_parse("{\"first\": \"conv1x1\", \"second\": \"skip\"}");
    if (p->sampled)
        w->mutator = eg_random_mutator_new(w->net);
    else
        assert_ok(eg_apply_arch(w->net, arch));
    eg_arch_free(arch);
    const eg_transform flip = eg_random_flip(p->flip);
    eg_callback *sampler = eg_callback_new(&sampler_class, w);
    eg_trainer_options options = {.struct_size = sizeof options,
                                  .ctx = w->ctx,
                                  .model = w->net,
                                  .train = w->data,
                                  .epochs = 2,
                                  .batch_size = 8,
                                  .label_smoothing = p->label_smoothing,
                                  .grad_clip = p->grad_clip,
                                  .transforms = &flip,
                                  .n_transforms = 1,
                                  .callbacks = &sampler,
                                  .n_callbacks = 1,
                                  .run = p->run,
                                  .resume = true};
    if (p->adam) {
        options.optimizer = eg_adam(w->net, .lr = p->lr);
    } else {
        options.lr = p->lr;
        options.weight_decay = EG_F64(p->weight_decay);
    }
    w->trainer = eg_trainer_new_with(&options);
}

static void end(world *w)
{
    eg_trainer_free(w->trainer);
    eg_mutator_detach(w->mutator);
    eg_module_release(w->net);
    eg_dataset_release(w->data);
    eg_context_free(w->ctx);
}

static void test_settings_are_named(void **state)
{
    (void)state;
    char *directory = temporary_make(), run[TEMPORARY_PATH_SIZE];
    plan p = usual;
    p.run = temporary_path(directory, "run", run);
    world w;
    start(&w, &p);
    assert_made(w.trainer);
    assert_ok(eg_trainer_train(w.trainer));
    end(&w);

    plan other[9];
    for (size_t i = 0; i < 9; i++)
        other[i] = p;
    const char *parts[9];
    other[0].threads = 2, parts[0] = "threads 1, not 2";
    other[1].lr = 0.1, parts[1] = "lr 0.05, not 0.1";
    other[2].label_smoothing = 0.1, parts[2] = "label_smoothing 0.0, not 0.1";
    other[3].grad_clip = 5, parts[3] = "grad_clip 0.0, not 5.0";
    other[4].weight_decay = 0.3, parts[4] = "weight_decay 0.0001, not 0.3";
    other[5].flip = 0.25, parts[5] = "transforms [0.5], not [0.25]";
    other[6].adam = true, parts[6] = "optimizer \"default\", not \"given\"";
    other[7].sampled = false, parts[7] = "mutator \"RandomMutator\", not \"none\"";
    other[8].backend = "dnnl", parts[8] = "backend \"ref\", not \"dnnl\"";
    for (size_t i = 0; i < 9; i++) {
        start(&w, &other[i]);
        if (w.trainer)
            fail_msg("went on in spite of %s", parts[i]);
        assert_recorded(EG_EINVAL, parts[i]);
        end(&w);
    }
    start(&w, &p);
    assert_made(w.trainer);
    end(&w);
    temporary_remove(directory);
}

/* Trains as planned and writes the weights. */
static eg_status train(const plan *p, const char *weights)
{
    world w;
    start(&w, p);
    eg_status status = w.trainer ? eg_trainer_train(w.trainer) : eg_error_last()->code;
    if (status == EG_OK)
        status = eg_module_save(w.net, weights);
    end(&w);
    return status;
}

/* A stop between two samplings: the batch after it follows decisions that only the checkpoint knows. */
static void test_mutators_go_on(void **state)
{
    (void)state;
    char *directory = temporary_make(), expected[TEMPORARY_PATH_SIZE], got[TEMPORARY_PATH_SIZE],
         run[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "got", got);
    assert_ok(train(&usual, temporary_path(directory, "expected", expected)));
    plan p = usual;
    p.run = temporary_path(directory, "run", run);
    p.cancel_batch = 0;
    assert_fails(train(&p, got), EG_ECANCELED, "canceled");
    p.cancel_batch = -1;
    assert_ok(train(&p, got));
    assert_same_file(expected, got);
    temporary_remove(directory);
}

/* The same without a new start: the trainer itself goes on. */
static void test_canceled_trainers_go_on(void **state)
{
    (void)state;
    char *directory = temporary_make(), expected[TEMPORARY_PATH_SIZE], got[TEMPORARY_PATH_SIZE];
    assert_ok(train(&usual, temporary_path(directory, "expected", expected)));
    plan p = usual;
    p.cancel_batch = 1;
    world w;
    start(&w, &p);
    assert_made(w.trainer);
    assert_fails(eg_trainer_train(w.trainer), EG_ECANCELED, "canceled");
    eg_context_resume(w.ctx);
    assert_ok(eg_trainer_train(w.trainer));
    assert_ok(eg_module_save(w.net, temporary_path(directory, "got", got)));
    assert_same_file(expected, got);
    end(&w);
    temporary_remove(directory);
}

/* Weights fit, the state of the optimizer is of another kind: the weights are put back too. */
static void test_restore_is_all_or_nothing(void **state)
{
    (void)state;
    char *directory = temporary_make(), before[TEMPORARY_PATH_SIZE], after[TEMPORARY_PATH_SIZE],
         file[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "checkpoint", file);
    plan p = usual;
    p.adam = true;
    world adam, sgd;
    start(&adam, &p);
    assert_ok(eg_trainer_train(adam.trainer));
    assert_ok(eg_trainer_checkpoint(adam.trainer, file));

    start(&sgd, &usual);
    eg_trainer_free(sgd.trainer);
    const eg_transform flip = eg_random_flip(usual.flip);
    sgd.trainer = eg_trainer_new(sgd.ctx, sgd.net, sgd.data, .epochs = 2, .batch_size = 8, .transforms = &flip,
                                 .n_transforms = 1, .optimizer = eg_sgd(sgd.net, .lr = 0.05));
    assert_made(sgd.trainer);
    assert_ok(eg_module_save(sgd.net, temporary_path(directory, "before", before)));
    eg_rng rng = *eg_context_rng(sgd.ctx);
    assert_fails(eg_trainer_restore(sgd.trainer, file), EG_ENOENT, "/checkpoint': ");
    assert_ok(eg_module_save(sgd.net, temporary_path(directory, "after", after)));
    assert_same_file(before, after);
    assert_null(eg_decisions_get(sgd.mutator->current, "first"));
    assert_memory_equal(&rng, eg_context_rng(sgd.ctx), sizeof rng);
    assert_int_equal(eg_meter_group_size(eg_trainer_meters(sgd.trainer)), 0);
    end(&adam);
    end(&sgd);
    temporary_remove(directory);
}

static void test_seconds_add_up(void **state)
{
    (void)state;
    char *directory = temporary_make(), file[TEMPORARY_PATH_SIZE];
    world first, second;
    start(&first, &usual);
    assert_true(eg_trainer_seconds(first.trainer) == 0);
    assert_ok(eg_trainer_train(first.trainer));
    double seconds = eg_trainer_seconds(first.trainer);
    assert_true(seconds > 0);
    assert_ok(eg_trainer_checkpoint(first.trainer, temporary_path(directory, "checkpoint", file)));
    start(&second, &usual);
    assert_ok(eg_trainer_restore(second.trainer, file));
    assert_true(eg_trainer_seconds(second.trainer) == seconds);
    assert_ok(eg_trainer_train(second.trainer)); /* it is done */
    assert_true(eg_trainer_seconds(second.trainer) >= seconds);
    assert_true(eg_trainer_seconds(NULL) == 0 && eg_search_seconds(NULL) == 0);
    end(&first);
    end(&second);
    temporary_remove(directory);
}

/* Members that no training of two epochs of three batches comes to. */
static void test_impossible_checkpoints(void **state)
{
    (void)state;
    char *directory = temporary_make(), file[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "checkpoint", file);
    const char *const edits[][3] = {
        {"epoch", "3", "/checkpoint': 'epoch' is 3, expected 0 to 2"},
        {"epoch", "-1", "'epoch' is -1"},
        {"batch", "1", "'batch' is 1 in epoch 2 of 2"},
        {"batch", "-1", "'batch' is -1"},
        {"seconds", "-0.5", "'seconds' is -0.5"},
        {"seconds", "\"1\"", "'seconds' is missing or no number"},
        {"schedules", "[-1]", "number 0 of 'schedules' is -1"},
        {"schedules", "[9223372036854775807]", "number 0 of 'schedules' is 9223372036854775807"},
        {"schedules", "[0.5]", "number 0 of 'schedules' is no whole number"},
    };
    world w;
    start(&w, &usual);
    assert_ok(eg_trainer_train(w.trainer));
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        assert_ok(eg_trainer_checkpoint(w.trainer, file));
        assert_ok(eg_trainer_restore(w.trainer, file));
        edit_checkpoint(file, edits[i][0], edits[i][1]);
        assert_fails(eg_trainer_restore(w.trainer, file), EG_EFORMAT, edits[i][2]);
    }
    end(&w);
    temporary_remove(directory);
}

/* ---- searches ---- */

static eg_search *search_with(eg_context *ctx, eg_module *net, eg_dataset *data, const char *run,
                              eg_strategy_options options, double lr, double flip)
{
    const eg_transform transform = eg_random_flip(flip);
    return eg_search_new(ctx, net, data, .strategy = "darts", .epochs = 1, .batch_size = 8, .lr = lr, .seed = 5,
                         .transforms = &transform, .n_transforms = 1, .run = run, .resume = true,
                         .strategy_options = options);
}

static eg_status search(const char *run, int threads, eg_strategy_options options, double lr, double flip)
{
    eg_context *ctx = eg_context_new(.seed = 7, .threads = threads);
    eg_dataset *data = toy_data(ctx, 48, 1);
    eg_module *net = toy_supernet(ctx);
    eg_search *s = search_with(ctx, net, data, run, options, lr, flip);
    eg_status status = s ? eg_search_run(s) : eg_error_last()->code;
    eg_search_free(s);
    eg_module_release(net);
    eg_dataset_release(data);
    eg_context_free(ctx);
    return status;
}

static void test_settings_of_searches_are_named(void **state)
{
    (void)state;
    char *directory = temporary_make(), run[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "run", run);
    assert_ok(search(run, 1, (eg_strategy_options){0}, 0.025, 0.5));
    const struct {
        eg_strategy_options options;
        const char *part;
    } cases[] = {
        {{.evaluations = 7}, "evaluations 0, not 7"},    {{.population = 7}, "population 0, not 7"},
        {{.arch_lr = 0.5}, "arch_lr 0.0, not 0.5"},      {{.arch_weight_decay = 0.5}, "arch_weight_decay 0.0, not 0.5"},
        {{.warmup = 0.5}, "warmup 0.0, not 0.5"},        {{.grad_clip = 1}, "grad_clip 5.0, not 1.0"},
        {{.seed = 6}, "strategy_seed \"5\", not \"6\""}, {{.choice = "random"}, "choice \"\", not \"random\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_fails(search(run, 1, cases[i].options, 0.025, 0.5), EG_EINVAL, cases[i].part);
    assert_fails(search(run, 2, (eg_strategy_options){0}, 0.025, 0.5), EG_EINVAL, "threads 1, not 2");
    assert_fails(search(run, 1, (eg_strategy_options){0}, 0.5, 0.5), EG_EINVAL, "lr 0.025, not 0.5");
    assert_fails(search(run, 1, (eg_strategy_options){0}, 0.025, 0.25), EG_EINVAL, "transforms [0.5], not [0.25]");
    assert_ok(search(run, 1, (eg_strategy_options){0}, 0, 0.5)); /* the default, by its other name */
    temporary_remove(directory);
}

static void test_impossible_checkpoints_of_searches(void **state)
{
    (void)state;
    char *directory = temporary_make(), run[TEMPORARY_PATH_SIZE], file[TEMPORARY_PATH_SIZE];
    const char *const edits[][3] = {
        {"epoch", "2", "/last.safetensors': 'epoch' is 2, expected 0 to 1"},
        {"batch", "1", "'batch' is 1 in epoch 1 of 1"},
        {"seconds", "-0.5", "'seconds' is -0.5"},
        {"schedule", "4", "'schedule' is 4, expected 3"},
        {"schedule", "-1", "'schedule' is -1, expected 3"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        char name[16];
        snprintf(name, sizeof name, "run%zu", i);
        temporary_path(directory, name, run);
        assert_ok(search(run, 1, (eg_strategy_options){0}, 0.025, 0.5));
        edit_checkpoint(temporary_path(run, "checkpoint/last.safetensors", file), edits[i][0], edits[i][1]);
        assert_fails(search(run, 1, (eg_strategy_options){0}, 0.025, 0.5), EG_EFORMAT, edits[i][2]);
    }
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings_are_named),      cmocka_unit_test(test_mutators_go_on),
        cmocka_unit_test(test_canceled_trainers_go_on), cmocka_unit_test(test_restore_is_all_or_nothing),
        cmocka_unit_test(test_seconds_add_up),          cmocka_unit_test(test_settings_of_searches_are_named),
        cmocka_unit_test(test_impossible_checkpoints),  cmocka_unit_test(test_impossible_checkpoints_of_searches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The classic interface, sections 1.9, 1.10 and 1.13: trainers, callbacks, meters.
 *
 * Has no equal in C: abstract methods that are missing (a trainer without a class of its own trains), a loss that
 * cannot be moved to a device, `to_device` and `to_list` (one device; tensors are read by eg_tensor_read()), access to
 * a meter as an attribute. Better than there: batch callbacks are called, checkpoint() works, visualization asks for no
 * loader.
 */
#include "nas/semantics.h"
#include "train_support.h"

/* ---- what happens when, in one line ---- */

static outcome *journal;

static void note(const eg_callback *self, const char *what)
{
    say(journal, "%s%s ", (const char *)self->payload, what);
}

static eg_status on_build(eg_callback *self, eg_trainer *trainer)
{
    (void)trainer;
    note(self, "build");
    return EG_OK;
}
static eg_status on_epoch_begin(eg_callback *self, int64_t epoch)
{
    note(self, epoch == 0 ? "+0" : epoch == 1 ? "+1" : "+?");
    return EG_OK;
}
static eg_status on_epoch_end(eg_callback *self, int64_t epoch)
{
    note(self, epoch == 0 ? "-0" : epoch == 1 ? "-1" : "-?");
    return EG_OK;
}
static eg_status on_batch_begin(eg_callback *self, int64_t epoch, int64_t batch)
{
    (void)epoch, (void)batch;
    note(self, "(");
    return EG_OK;
}
static eg_status on_batch_end(eg_callback *self, int64_t epoch, int64_t batch)
{
    (void)epoch, (void)batch;
    note(self, ")");
    return EG_OK;
}

static const eg_callback_class epochs_class = {.struct_size = sizeof(eg_callback_class),
                                               .name = "epochs",
                                               .build = on_build,
                                               .on_epoch_begin = on_epoch_begin,
                                               .on_epoch_end = on_epoch_end},
                               batches_class = {.struct_size = sizeof(eg_callback_class),
                                                .name = "batches",
                                                .on_batch_begin = on_batch_begin,
                                                .on_batch_end = on_batch_end};

static eg_status own_train(eg_trainer *self, int64_t epoch)
{
    (void)self;
    say(journal, "train%d ", (int)epoch);
    return EG_OK;
}

static eg_status own_validate(eg_trainer *self, int64_t epoch)
{
    (void)self;
    say(journal, "valid%d ", (int)epoch);
    return EG_OK;
}

static const eg_trainer_class own_class = {.struct_size = sizeof(eg_trainer_class),
                                           .name = "own",
                                           .train_one_epoch = own_train,
                                           .validate_one_epoch = own_validate};

static char tag_a[] = "a", tag_b[] = "b";

static void order(eg_context *ctx, const char *input, outcome *o)
{
    journal = o;
    bool batches = strcmp(input, "batches") == 0;
    eg_callback *callbacks[] = {eg_callback_new(batches ? &batches_class : &epochs_class, tag_a),
                                eg_callback_new(batches ? &batches_class : &epochs_class, tag_b)};
    eg_dataset *data = toy_data(ctx, 12, 1);
    eg_module *model = toy_model(ctx);
    eg_trainer *trainer =
        eg_trainer_new(ctx, model, data, .epochs = batches ? 1 : 2, .batch_size = 12, .callbacks = callbacks,
                       .n_callbacks = 2, .cls = batches ? NULL : &own_class, .no_validation = strcmp(input, "no") == 0);
    assert_made(trainer);
    say(o, "| ");
    assert_ok(eg_trainer_train(trainer));
    if (strcmp(input, "again") == 0) {
        say(o, "| ");
        assert_ok(eg_trainer_train(trainer));
    }
    if (strcmp(input, "no") == 0)
        assert_ok(eg_trainer_validate(trainer));
    eg_trainer_free(trainer);
    eg_module_release(model);
    eg_dataset_release(data);
}

/* ---- schedules: the rate after 2 epochs of 2 batches, halved at each step ---- */

static void schedules(eg_context *ctx, const char *input, outcome *o)
{
    eg_dataset *data = toy_data(ctx, 12, 1);
    eg_module *model = toy_model(ctx);
    eg_optimizer *sgd = eg_sgd(model, .lr = 1.0 / 64);
    eg_callback *schedule = eg_lr_scheduler_callback(eg_step_lr(sgd, 1, 0.5), (eg_schedule_unit)(input[0] - '0'));
    if (schedule == NULL) {
        say_status(o, eg_error_first()->code, "");
        eg_optimizer_free(sgd);
    } else {
        eg_trainer *trainer = eg_trainer_new(ctx, model, data, .epochs = 2, .batch_size = 6, .optimizer = sgd,
                                             .callbacks = (eg_callback *[]){schedule}, .n_callbacks = 1);
        assert_ok(eg_trainer_train(trainer));
        say(o, "1/%g", 1 / eg_optimizer_lr(sgd, 0));
        eg_trainer_free(trainer);
    }
    eg_module_release(model);
    eg_dataset_release(data);
}

/* ---- files ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void say_files(outcome *o, const char *directory)
{
    char names[16][256];
    size_t n = 0;
    DIR *list = opendir(directory);
    assert_non_null(list);
    for (struct dirent *entry; (entry = readdir(list)) != NULL && n < 16;) {
        if (entry->d_name[0] != '.')
            snprintf(names[n++], sizeof names[0], "%s",
                     strncmp(entry->d_name, "events.out", 10) == 0 ? "events.out" : entry->d_name);
    }
    closedir(list);
    qsort(names, n, sizeof names[0], compare_names);
    for (size_t i = 0; i < n; i++)
        say(o, "%s ", names[i]);
}

/* A new sample for each batch. */
static eg_status sampling_step(eg_trainer *self, const eg_batch *batch)
{
    EG_TRY(eg_mutator_reset(eg_mutable_mutator(eg_trainer_model(self))));
    return eg_trainer_step(self, batch);
}

static const eg_trainer_class sampling_class = {
    .struct_size = sizeof(eg_trainer_class), .name = "sampling", .train_step = sampling_step};

static void say_lines(outcome *o, const char *path)
{
    size_t size, lines = 0, good = 0;
    char *text = read_file(path, &size), *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        json_t *json = json_loads(line, 0, NULL);
        lines++;
        good += json_array_size(json_object_get(json, "first")) == 3 &&
                        json_array_size(json_object_get(json, "second")) == 2
                    ? 1
                    : 0;
        json_decref(json);
    }
    say(o, "%zu lines, %zu good", lines, good);
    free(text);
}

static void files(eg_context *ctx, const char *input, outcome *o)
{
    char *directory = temporary_make(), path[TEMPORARY_PATH_SIZE], nested[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "a/b", nested);
    bool shown = strcmp(input, "shown") == 0, exported = strcmp(input, "export") == 0;
    eg_callback *callback = strcmp(input, "model") == 0  ? eg_model_checkpoint(nested)
                            : strcmp(input, "arch") == 0 ? eg_architecture_checkpoint(nested)
                                                         : eg_callback_new(&batches_class, tag_a);
    eg_dataset *data = toy_data(ctx, 12, 1);
    eg_module *net = toy_supernet(ctx);
    eg_mutator *mutator = eg_random_mutator_new(net);
    outcome ignored = {.len = 0};
    journal = &ignored;
    eg_trainer *trainer =
        eg_trainer_new(ctx, net, data, .epochs = 2, .batch_size = 4, .callbacks = (eg_callback *[]){callback},
                       .n_callbacks = 1, .cls = &sampling_class);
    assert_made(trainer);
    if (shown)
        assert_ok(eg_trainer_enable_visualization(trainer, nested));
    assert_ok(eg_trainer_train(trainer));
    if (exported) {
        eg_arch *arch = parse_arch("{\"first\": \"pool\", \"second\": [0, 1]}");
        eg_mutator_detach(mutator);
        mutator = eg_classic_mutator_new(net);
        assert_ok(eg_mutator_set_arch(mutator, arch));
        assert_ok(eg_trainer_export(trainer, temporary_path(directory, "x.json", path)));
        size_t size;
        char *text = read_file(path, &size);
        say(o, "%s", text);
        free(text);
        eg_arch_free(arch);
    } else {
        say_files(o, nested);
    }
    if (shown)
        say_lines(o, temporary_path(eg_trainer_log_directory(trainer), "log", path));
    eg_trainer_free(trainer);
    eg_mutator_detach(mutator);
    eg_module_release(net);
    eg_dataset_release(data);
    temporary_remove(directory);
}

/* Where it goes when nobody says: a folder named by the time. */
static void show_by_time(eg_context *ctx, const char *input, outcome *o)
{
    bool plain = strcmp(input, "no mutator") == 0;
    char *directory = temporary_make(), before[1024];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(directory), 0);
    eg_dataset *data = toy_data(ctx, 12, 1);
    eg_module *net = toy_supernet(ctx);
    eg_mutator *mutator = plain ? NULL : eg_random_mutator_new(net);
    eg_trainer *trainer = eg_trainer_new(ctx, net, data, .epochs = 1);
    eg_status status = eg_trainer_enable_visualization(trainer, NULL);
    if (status != EG_OK) {
        say_status(o, status, "");
    } else {
        double time;
        assert_int_equal(sscanf(eg_trainer_log_directory(trainer), "logs/%lf", &time), 1);
        say(o, "%s: ", time > 1e9 ? "a time" : "no time");
        say_files(o, eg_trainer_log_directory(trainer));
    }
    assert_int_equal(chdir(before), 0);
    eg_trainer_free(trainer);
    eg_mutator_detach(mutator);
    eg_module_release(net);
    eg_dataset_release(data);
    temporary_remove(directory);
}

static void search_shown(eg_context *ctx, const char *input, outcome *o)
{
    char *directory = temporary_make(), path[TEMPORARY_PATH_SIZE];
    eg_dataset *data = toy_data(ctx, 24, 1);
    eg_module *net = toy_supernet(ctx);
    eg_search *search = eg_search_new(ctx, net, data, .strategy = input, .epochs = 2, .batch_size = 4,
                                      .strategy_options = {.evaluations = 2, .population = 2});
    assert_made(search);
    assert_null(eg_search_log_directory(search));
    assert_ok(eg_search_enable_visualization(search, directory));
    assert_string_equal(eg_search_log_directory(search), directory);
    assert_ok(eg_search_run(search));
    say_files(o, directory);
    say_lines(o, temporary_path(directory, "log", path));
    eg_search_free(search);
    eg_module_release(net);
    eg_dataset_release(data);
    temporary_remove(directory);
}

/* ---- meters: "name=value" counts; ";" ends ---- */

static void meters(eg_context *ctx, const char *input, outcome *o)
{
    (void)ctx;
    eg_meter_group *group = eg_meter_group_new();
    char name[16];
    double value;
    unsigned n;
    for (const char *c = input; sscanf(c, "%15[a-z0-9]=%lf*%u", name, &value, &n) == 3; c = strchr(c, ';') + 1)
        assert_ok(eg_meter_group_update(group, name, value, n));
    char *text = eg_meter_group_text(group), *summary = eg_meter_group_summary(group);
    say(o, "%s|%s", text, summary);
    if (eg_meter_group_get(group, "unknown") == NULL)
        eg_error_clear();
    eg_free(text);
    eg_free(summary);
    eg_meter_group_free(group);
}

static void unknown_meter(eg_context *ctx, const char *input, outcome *o)
{
    (void)ctx;
    eg_meter_group *group = eg_meter_group_new();
    say_status(o, eg_meter_group_get(group, input) != NULL ? EG_OK : eg_error_first()->code, "");
    eg_meter_group_free(group);
}

static log_record heard;

static void log_lines(eg_context *ctx, const char *input, outcome *o)
{
    (void)ctx;
    heard = (log_record){0};
    eg_context *loud = eg_context_new(.seed = 1, .threads = 1, .log = record_log, .log_payload = &heard);
    eg_dataset *data = toy_data(loud, 12, 1);
    eg_module *model = toy_model(loud);
    eg_trainer *trainer = eg_trainer_new(loud, model, data, .epochs = 1, .batch_size = 4, .log_frequency = atoi(input));
    assert_ok(eg_trainer_train(trainer));
    say(o, "%zu lines", heard.lines); /* one more at the end of the epoch */
    eg_trainer_free(trainer);
    eg_module_release(model);
    eg_dataset_release(data);
    eg_context_free(loud);
}

static const row rows[] = {
    {"1.9", "epochs, with validation", SAME, order, "",
     "abuild bbuild | a+0 b+0 train0 valid0 a-0 b-0 a+1 b+1 train1 valid1 a-1 b-1 "},
    {"1.9", "a second training starts again", SAME, order, "again",
     "abuild bbuild | a+0 b+0 train0 valid0 a-0 b-0 a+1 b+1 train1 valid1 a-1 b-1 | a+0 b+0 train0 valid0 a-0 b-0 "
     "a+1 b+1 train1 valid1 a-1 b-1 "},
    {"1.9", "train(validate=False), then validate(): -1", SAME, order, "no",
     "abuild bbuild | a+0 b+0 train0 a-0 b-0 a+1 b+1 train1 a-1 b-1 valid-1 "},
    {"1.10", "batches are told of", BETTER, order, "batches", "| a( b( a) b) "},
    {"1.9", "the file of an export", SAME, files, "export",
     "{\n  \"first\": \"pool\",\n  \"second\": [\n    \"conv3x3\",\n    \"skip\"\n  ]\n}\n"},
    {"1.9", "visualization: a graph, and a line a step", SAME, files, "shown",
     "events.out graph.json log 6 lines, 6 good"},
    {"1.9", "visualization in a folder named by the time", SAME, show_by_time, "", "a time: events.out graph.json "},
    {"1.9", "visualization of what has no decisions", SAME, show_by_time, "no mutator", "!the model has no mutator"},
    {"1.9", "searches are shown, with weights", SAME, search_shown, "darts",
     "events.out graph.json log 6 lines, 6 good"},
    {"1.9", "searches are shown, with masks", SAME, search_shown, "spos", "events.out graph.json log 6 lines, 6 good"},
    {"1.9", "a log line every second step", SAME, log_lines, "2", "3 lines"},
    {"1.9", "a log line every step", SAME, log_lines, "1", "4 lines"},
    {"1.9", "no log lines of steps", SAME, log_lines, "0", "1 lines"},
    {"1.10", "a schedule by epochs", SAME, schedules, "0", "1/256"},
    {"1.10", "a schedule by batches", BETTER, schedules, "1", "1/1024"},
    {"2", "a schedule by something else", SAME, schedules, "2", "!neither EG_PER_EPOCH nor"},
    {"1.10", "architectures by epoch, from 0; folders are made", SAME, files, "arch", "epoch_0.json epoch_1.json "},
    {"1.10", "models by epoch, from 0", SAME, files, "model", "epoch_0.safetensors epoch_1.safetensors "},
    {"1.13", "a group", SAME, meters, "acc1=.5*1;loss=2*1;acc1=.25*1;loss=1*1;",
     "acc1 0.250000 (0.375000)  loss 1.000000 (1.500000)|acc1: 0.375000  loss: 1.500000"},
    {"1.13", "counted with a weight", SAME, meters, "m=3*2;m=1*1;", "m 1.000000 (2.333333)|m: 2.333333"},
    {"1.13", "an empty group", SAME, meters, "", "|"},
    {"1.13", "an unknown meter", SAME, unknown_meter, "acc5", "!no meter 'acc5'"},
};

int main(void)
{
    return run_rows("semantics_training", rows, sizeof rows / sizeof *rows);
}

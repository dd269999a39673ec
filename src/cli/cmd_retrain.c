/*
 * engraft retrain: trains the network of an architecture from the start, and measures it.
 */
#include "cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct retrain_args {
    const char *run, *space, *space_file, *arch, *data, *out, *max_memory, *precision;
    int64_t epochs, batch, subset, seed, threads, workers, channels, layers;
    double lr, weight_decay, label_smoothing, checkpoint_seconds;
    bool augment, resume, json;
    char *space_text; /* of a file; NULL = built in */
} retrain_args;

#define ROW(...) OPTION(retrain_args, __VA_ARGS__)

static const option_spec options[] = {
    ROW(TEXT, run, "run", "DIR",
        "a finished search, whose architecture, space, data, seed, channels and layers are taken", .flags = 0),
    ROW(TEXT, space, "space", "NAME", "search space or a file of one, in place of --run",
        .flags = OPTION_RECORDED | OPTION_INHERITED, .check = check_space),
    ROW(TEXT, arch, "arch", "FILE", "architecture, in place of --run", .flags = 0),
    ROW(TEXT, data, "data", "SPEC", "fashion-mnist, idx:DIR, cifar10:DIR or csv:FILE",
        .flags = OPTION_RECORDED | OPTION_INHERITED, .check = check_data, .initial = "fashion-mnist",
        .shown = "the search's, or fashion-mnist"),
    ROW(TEXT, out, "out", "DIR", "directory of this run, made when it is not there", .flags = OPTION_REQUIRED),
    ROW(INT, epochs, "epochs", "N", "epochs", .flags = OPTION_RECORDED, .min = 1, .max = 1e6, .initial = "10"),
    ROW(INT, batch, "batch", "N", "samples a step", .flags = OPTION_RECORDED, .min = 1, .max = 65536, .initial = "64"),
    ROW(INT, subset, "subset", "N", "use only N training samples", .flags = OPTION_RECORDED, .initial = "0",
        .shown = "all"),
    ROW(REAL, lr, "lr", "X", "highest learning rate", .flags = OPTION_RECORDED, .above_min = true, .initial = "0.1"),
    ROW(REAL, weight_decay, "weight-decay", "X", "weight decay", .flags = OPTION_RECORDED, .max = 1, .initial = "5e-4"),
    ROW(REAL, label_smoothing, "label-smoothing", "X", "label smoothing", .flags = OPTION_RECORDED, .max = 0.9,
        .initial = "0"),
    ROW(SWITCH, augment, "augment", "on|off", "random crops and flips of images, for long trainings",
        .flags = OPTION_RECORDED, .initial = "off"),
    ROW(INT, seed, "seed", "S", "seed of everything random", .flags = OPTION_RECORDED | OPTION_INHERITED,
        .initial = "0", .shown = "the search's, or 0"),
    ROW(INT, channels, "channels", "N", "channels of the space's first cells",
        .flags = OPTION_RECORDED | OPTION_INHERITED, .max = 4096, .initial = "0", .shown = "the search's"),
    ROW(INT, layers, "layers", "N", "layers (cells) of the space", .flags = OPTION_RECORDED | OPTION_INHERITED,
        .max = 1024, .initial = "0", .shown = "the search's"),
    ROW(TEXT, max_memory, "max-memory", "SIZE", "refuse what takes more (2G, 500M)", .flags = 0,
        .check = check_memory_size, .shown = "no limit"),
    ROW(TEXT, precision, "precision", "TYPE", "f32, or bf16 for activations and products (AVX512-BF16 or AMX)",
        .flags = OPTION_RECORDED, .check = check_precision, .initial = "f32"),
    ROW(INT, threads, "threads", "N", "threads to compute with", .flags = OPTION_RECORDED, .max = 1024, .initial = "0",
        .shown = "all processors"),
    ROW(INT, workers, "workers", "N", "threads that make batches", .max = 64, .initial = "1"),
    ROW(REAL, checkpoint_seconds, "checkpoint-seconds", "X", "time between checkpoints within an epoch, at least",
        .above_min = true, .initial = "20"),
    ROW(FLAG, resume, "resume", NULL, "go on with the run in --out; its options are known", .flags = 0),
    ROW(FLAG, json, "json", NULL, "print the result as one JSON object: test_accuracy, params, macs, seconds, ..",
        .flags = 0),
    {.name = NULL},
};

/* ---------------------------------------------------------------------------------------------- training */

/* Without progress: only to look at it, no run is touched. */
static eg_trainer *make_trainer(eg_context *ctx, const retrain_args *a, eg_module *model, eg_dataset *data, progress *p)
{
    const eg_transform transforms[] = {eg_random_crop(2), eg_random_flip(0.5)};
    bool images = eg_dataset_shape(data).ndim == 3;
    return eg_trainer_new(
        ctx, model, data, .epochs = a->epochs, .batch_size = (size_t)a->batch, .workers = (int)a->workers, .lr = a->lr,
        .weight_decay = EG_F64(a->weight_decay), .label_smoothing = a->label_smoothing, .transforms = transforms,
        .n_transforms = a->augment && images ? 2 : 0, .seed = (uint64_t)a->seed, .run = p ? a->out : NULL,
        .resume = a->resume, .max_memory = p ? 0 : memory_size(a->max_memory),
        .checkpoint_seconds = a->checkpoint_seconds, .progress = p ? progress_show : NULL, .progress_payload = p);
}

static eg_status check_fit(eg_context *ctx, const retrain_args *a, eg_module *model, eg_dataset *data)
{
    if (!a->max_memory)
        return EG_OK;
    eg_trainer *trainer = make_trainer(ctx, a, model, data, NULL);
    eg_status status = trainer ? EG_OK : eg_error_last()->code;
    eg_trainer_free(trainer);
    return status;
}

static eg_status train(eg_context *ctx, const retrain_args *a, eg_module *model, eg_dataset *data, json_t *result)
{
    progress p = progress_start();
    eg_trainer *trainer = make_trainer(ctx, a, model, data, &p);
    eg_status status = trainer ? eg_trainer_train(trainer) : eg_error_last()->code;
    progress_end(&p);
    json_object_set_new(result, "seconds", json_real(whole_milliseconds(eg_trainer_seconds(trainer))));
    eg_trainer_free(trainer);
    return status;
}

/* What programs need besides the weights. A network that JSON has no words for is no failed training. */
static eg_status save_structure(eg_module *model, const char *directory)
{
    char *path = path_join(directory, "model.json");
    eg_status status = path ? eg_module_save_json(model, path) : EG_ENOMEM;
    free(path);
    if (status != EG_EUNSUPPORTED)
        return status;
    fprintf(stderr, "engraft retrain: no model.json, with which programs load the network: %s\n",
            eg_error_first()->message);
    eg_error_clear();
    return EG_OK;
}

static eg_status measure(eg_module *model, eg_dataset *test, const retrain_args *a, json_t *result)
{
    char *path = path_join(a->out, "model.safetensors");
    eg_status status = path ? eg_module_save(model, path) : EG_ENOMEM;
    free(path);
    EG_TRY(status);
    EG_TRY(save_structure(model, a->out));
    double accuracy = eg_evaluate(model, test, 256);
    if (isnan(accuracy))
        return eg_error_last()->code;
    json_object_set_new(result, "test_accuracy", json_real(accuracy));
    return add_costs(result, model, eg_dataset_shape(test));
}

static eg_module *make_network(eg_context *ctx, const retrain_args *a, const eg_arch *arch, const eg_dataset *data)
{
    network_options network = {.space = a->space,
                               .space_file = a->space_file,
                               .space_text = a->space_text,
                               .channels = a->channels,
                               .layers = a->layers,
                               .input = eg_dataset_shape(data),
                               .classes = eg_dataset_classes(data)};
    return build_fixed(ctx, &network, arch);
}

static eg_status retrain(eg_context *ctx, const retrain_args *a, eg_module *model, eg_dataset *data, eg_dataset *test,
                         json_t *result)
{
    EG_TRY(train(ctx, a, model, data, result));
    EG_TRY(measure(model, test, a, result));
    return save_result(a->out, result);
}

/* ---------------------------------------------------------------------------------------------- the run */

/* The architecture that --run or --arch name. */
static eg_arch *load_named_arch(const retrain_args *a)
{
    char *of_search = a->run ? path_join(a->run, "arch.json") : NULL;
    eg_arch *arch = NULL;
    if (a->run && !file_exists(of_search))
        eg_fail(EG_ENOENT, "'%s' has no arch.json: its search is not finished (engraft search --resume --out %s)",
                a->run, a->run);
    else
        arch = eg_arch_load(a->run ? of_search : a->arch);
    free(of_search);
    return arch;
}

/* What a run was started with, as its run.json has it. */
static eg_arch *recorded_arch(const retrain_args *a, const json_t *own)
{
    const json_t *value = json_object_get(own, "architecture");
    if (!json_is_object(value)) {
        eg_fail(EG_EFORMAT, "'%s/run.json' has no object 'architecture'", a->out);
        return NULL;
    }
    char *text = json_dumps(value, JSON_REAL_PRECISION(17));
    eg_arch *arch = text ? eg_arch_parse(text) : NULL;
    if (!text)
        eg_fail(EG_ENOMEM, "no memory for an architecture");
    free(text);
    return arch;
}

/* The run's arch.json, where it came to that, is still what it was started with. */
static eg_status check_own_arch(const retrain_args *a, const eg_arch *recorded)
{
    char *path = path_join(a->out, "arch.json");
    eg_arch *arch = file_exists(path) ? eg_arch_load(path) : NULL;
    eg_status status = path && (arch || !file_exists(path)) ? EG_OK : eg_error_last()->code;
    if (arch && !eg_arch_equal(arch, recorded))
        status = eg_fail(EG_EINVAL, "'%s' is not the architecture that this run was started with", path);
    eg_arch_free(arch);
    free(path);
    return status;
}

static eg_status check_named_arch(const retrain_args *a, const eg_arch *recorded)
{
    if (!a->run && !a->arch)
        return EG_OK;
    eg_arch *arch = load_named_arch(a);
    if (!arch)
        return eg_error_last()->code;
    bool same = eg_arch_equal(arch, recorded);
    eg_arch_free(arch);
    EG_CHECK(same, EG_EINVAL, "the architecture of '%s' is not that of the run, '%s/arch.json'",
             a->run ? a->run : a->arch, a->out);
    return EG_OK;
}

/* The architecture: that of the run itself when it goes on, else of the search or file named. */
static eg_arch *load_arch(const retrain_args *a, const json_t *own)
{
    if (!own)
        return load_named_arch(a);
    eg_arch *arch = recorded_arch(a, own);
    if (arch && (check_own_arch(a, arch) != EG_OK || check_named_arch(a, arch) != EG_OK)) {
        eg_arch_free(arch);
        arch = NULL;
    }
    return arch;
}

static eg_status keep_arch(const eg_arch *arch, const char *directory)
{
    char *path = path_join(directory, "arch.json");
    eg_status status = path ? eg_arch_save(arch, path) : EG_ENOMEM;
    free(path);
    return status;
}

/* All that can be wrong with the options comes before a run is made of them. */
static eg_status retrain_data(const command *self, eg_context *ctx, retrain_args *a, const eg_arch *arch,
                              json_t *result)
{
    a->threads = eg_context_threads(ctx);
    eg_dataset *all = eg_dataset_open(ctx, a->data, .split = EG_TRAIN);
    eg_dataset *data = all ? eg_dataset_sample(all, (size_t)a->subset, (uint64_t)a->seed) : NULL;
    eg_module *model = data ? make_network(ctx, a, arch, data) : NULL;
    eg_dataset *test = model ? eg_dataset_open(ctx, a->data, .split = EG_TEST) : NULL;
    eg_status status = test ? check_fit(ctx, a, model, data) : eg_error_last()->code;
    if (status == EG_OK)
        status = create_run(self, a, a->out, data, arch, a->space_text, a->resume);
    int lock = -1;
    json_t *known = NULL;
    if (status == EG_OK)
        status = lock_run(a->out, &lock);
    if (status == EG_OK)
        status = keep_space(a->space_text, a->out);
    if (status == EG_OK)
        status = load_result(a->out, false, &known);
    if (known) {
        json_object_update(result, known);
    } else if (status == EG_OK) {
        status = keep_arch(arch, a->out);
        status = status == EG_OK ? retrain(ctx, a, model, data, test, result) : status;
    }
    json_decref(known);
    unlock_run(&lock);
    eg_dataset_release(test);
    eg_module_release(model);
    eg_dataset_release(data);
    eg_dataset_release(all);
    return status;
}

/* With everything about the run known. `own`: its run.json when it goes on; else NULL. */
static int retrain_in(const command *self, retrain_args *a, const json_t *own)
{
    eg_context *ctx = open_context(a->threads, a->seed, a->precision);
    char *spec = absolute_spec(a->data), *space = space_title(a->space, a->space_text);
    json_t *result =
        json_pack("{s:s, s:s, s:I}", "run", a->out, "space", space ? space : "", "epochs", (json_int_t)a->epochs);
    eg_arch *arch = ctx ? load_arch(a, own) : NULL;
    a->data = spec;
    eg_status status = arch ? EG_OK : eg_error_last()->code;
    if (arch && !(spec && result))
        status = eg_fail(EG_ENOMEM, "no memory to start (or a text that is no UTF-8)");
    if (status == EG_OK)
        status = retrain_data(self, ctx, a, arch, result);
    eg_arch_free(arch);
    close_context(ctx);
    int exit_status = EXIT_OK;
    if (status != EG_OK)
        exit_status = report_run_failure(self->name, status, a->out);
    else if (a->json)
        exit_status = print_json(json_incref(result));
    else
        print_scalars(result);
    json_decref(result);
    free(space);
    free(spec);
    return exit_status;
}

static int check_usage(const command *self, const retrain_args *a, const bool *given)
{
    if (!options_complete(self, given))
        return EXIT_USAGE;
    if (!a->space)
        return usage_error(
            self->name,
            "name a search with '--run DIR', or a space and an architecture with '--space NAME --arch FILE'");
    if (!a->run && !a->arch && !a->resume)
        return usage_error(
            self->name,
            "option '--arch FILE' is missing: the architecture in space '%s' (or name a search with '--run DIR')",
            a->space);
    return EXIT_OK;
}

/* The space of the run itself when it goes on, else that of the search, or the one named. */
static eg_status find_space(retrain_args *a, bool named, const json_t *own, const json_t *search)
{
    a->space_file = a->space;
    if (own || named || !search)
        EG_TRY(take_space(&a->space, named, own, a->out, &a->space_text));
    else
        return run_space(search, a->run, a->space, &a->space_text);
    const char *of_search = own ? json_string_value(json_object_get(search, "space")) : NULL;
    char *text = NULL;
    eg_status status = of_search ? run_space(search, a->run, of_search, &text) : EG_OK;
    if (text && (!a->space_text || strcmp(text, a->space_text) != 0))
        status = eg_fail(EG_EINVAL, "the space of '%s' is not that of the run in '%s'", a->run, a->out);
    free(text);
    return status;
}

static int retrain_run(const command *self, void *args, bool *given)
{
    retrain_args *a = args;
    bool named = a->space != NULL;
    if (a->run && a->arch)
        return usage_error(self->name, "options '--run' and '--arch' exclude each other");
    eg_error_clear();
    json_t *own = load_run_to_resume(a->out, a->resume);
    eg_status status = eg_error_last()->code;
    if (status == EG_OK && a->resume && a->out && !own && !a->run && !a->space)
        status = no_run_to_resume(a->out);
    if (status == EG_OK)
        status = options_merge(self, a, given, own, OPTION_RECORDED);
    json_t *search = status == EG_OK && a->run ? load_run(a->run) : NULL;
    if (status == EG_OK && a->run)
        status = search ? options_merge(self, a, given, search, OPTION_INHERITED) : eg_error_last()->code;
    int exit_status = status == EG_OK ? check_usage(self, a, given) : report_failure(self->name);
    if (exit_status == EXIT_OK && find_space(a, named, own, search) != EG_OK)
        exit_status = report_failure(self->name);
    else if (exit_status == EXIT_OK)
        exit_status = retrain_in(self, a, own);
    free(a->space_text);
    json_decref(own);
    json_decref(search);
    return exit_status;
}

const command retrain_command = {
    .name = "retrain",
    .synopsis = "(--run DIR | --space NAME --arch FILE) --out DIR [OPTIONS]",
    .summary = "train a found architecture from the start and measure it",
    .details =
        "With --run the architecture, space, data, seed, channels and layers are the search's; nothing else is: "
        "epochs,\n"
        "batch, subset, learning rate, precision and threads are this command's own. An option that is given goes "
        "first.\n"
        "Writes DIR/model.safetensors, and DIR/model.json for eg_module_load_json(). Ctrl-C stops it with everything "
        "saved; --resume goes on, to the same bits.",
    .options = options,
    .args_size = sizeof(retrain_args),
    .run = retrain_run,
};

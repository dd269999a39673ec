/*
 * engraft search: trains a supernet and chooses an architecture.
 */
#include "cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct search_args {
    const char *space, *space_file, *data, *strategy, *out, *choice, *max_params, *max_macs, *memory, *max_memory;
    const char *precision;
    int64_t epochs, batch, subset, seed, threads, workers, channels, layers, evaluations;
    double lr, arch_lr, warmup, checkpoint_seconds;
    bool visualize, resume, json, space_given;
    bool named[MAX_OPTIONS]; /* on the command line */
    char *space_text;        /* of a file; NULL = built in */
} search_args;

#define ROW(...) OPTION(search_args, __VA_ARGS__)

static const option_spec options[] = {
    ROW(TEXT, space, "space", "NAME", "search space: 'engraft spaces' lists them; or a file (x.json)",
        .flags = OPTION_REQUIRED | OPTION_RECORDED, .check = check_space),
    ROW(TEXT, data, "data", "SPEC", "fashion-mnist, idx:DIR, cifar10:DIR or csv:FILE", .flags = OPTION_RECORDED,
        .check = check_data, .initial = "fashion-mnist"),
    ROW(TEXT, strategy, "strategy", "NAME", "how to search; 'engraft strategies' lists them", .flags = OPTION_RECORDED,
        .initial = "darts", .check = check_strategy),
    ROW(TEXT, out, "out", "DIR", "directory of the run, made when it is not there", .flags = OPTION_REQUIRED),
    ROW(INT, epochs, "epochs", "N", "epochs of the supernet", .flags = OPTION_RECORDED, .min = 1, .max = 1e6,
        .initial = "10"),
    ROW(INT, batch, "batch", "N", "samples a step", .flags = OPTION_RECORDED, .min = 1, .max = 65536, .initial = "64"),
    ROW(INT, subset, "subset", "N", "use only N training samples", .flags = OPTION_RECORDED, .initial = "0",
        .shown = "all"),
    ROW(REAL, lr, "lr", "X", "learning rate of the weights at the start", .flags = OPTION_RECORDED, .above_min = true,
        .initial = "0.025"),
    ROW(REAL, arch_lr, "arch-lr", "X", "learning rate of the architecture's weights (darts)", .flags = OPTION_RECORDED,
        .initial = "0", .shown = "the strategy's own"),
    ROW(REAL, warmup, "warmup", "X", "share of training before they are moved (darts)", .flags = OPTION_RECORDED,
        .max = 1, .initial = "0"),
    ROW(INT, seed, "seed", "S", "seed of everything random", .flags = OPTION_RECORDED, .initial = "0"),
    ROW(INT, channels, "channels", "N", "channels of the space's first cells", .flags = OPTION_RECORDED, .max = 4096,
        .initial = "0", .shown = "the space's own"),
    ROW(INT, layers, "layers", "N", "layers (cells) of the space", .flags = OPTION_RECORDED, .max = 1024,
        .initial = "0", .shown = "the space's own"),
    ROW(TEXT, choice, "choice", "HOW", "how spos chooses: evolution or random", .flags = OPTION_RECORDED,
        .check = check_choice, .initial = "evolution"),
    ROW(INT, evaluations, "evaluations", "N", "candidates evaluated in the choice", .flags = OPTION_RECORDED,
        .max = 1e7, .initial = "0", .shown = "the strategy's own"),
    ROW(TEXT, max_params, "max-params", "N", "architectures of at most N parameters only (500k, 1.5M)",
        .flags = OPTION_RECORDED, .check = check_count, .initial = "0", .shown = "no limit"),
    ROW(TEXT, max_macs, "max-macs", "N", "architectures of at most N multiplications (MACs) a sample only",
        .flags = OPTION_RECORDED, .check = check_count, .initial = "0", .shown = "no limit"),
    ROW(TEXT, memory, "memory", "HOW", "normal, or low: mixed edges are run again in backward (darts)",
        .flags = OPTION_RECORDED, .check = check_memory, .initial = "normal"),
    ROW(TEXT, max_memory, "max-memory", "SIZE", "refuse what takes more (2G, 500M), or take '--memory low' for it",
        .flags = 0, .check = check_memory_size, .shown = "no limit"),
    ROW(TEXT, precision, "precision", "TYPE", "f32, or bf16 for activations and products (AVX512-BF16 or AMX)",
        .flags = OPTION_RECORDED, .check = check_precision, .initial = "f32"),
    ROW(INT, threads, "threads", "N", "threads to compute with", .flags = OPTION_RECORDED, .max = 1024, .initial = "0",
        .shown = "all processors"),
    ROW(INT, workers, "workers", "N", "threads that make batches", .max = 64, .initial = "1"),
    ROW(REAL, checkpoint_seconds, "checkpoint-seconds", "X", "time between checkpoints within an epoch, at least",
        .above_min = true, .initial = "20"),
    ROW(FLAG, visualize, "visualize", NULL, "write the supernet's graph for TensorBoard, and each step's decisions",
        .flags = 0),
    ROW(FLAG, resume, "resume", NULL, "go on with the run in --out; its options are known", .flags = 0),
    ROW(FLAG, json, "json", NULL, "print the result as one JSON object: arch, seconds, run, ..", .flags = 0),
    {.name = NULL},
};

static eg_module *make_supernet(eg_context *ctx, const search_args *a, const eg_dataset *data)
{
    network_options network = {.space = a->space,
                               .space_file = a->space_file,
                               .space_text = a->space_text,
                               .channels = a->channels,
                               .layers = a->layers,
                               .input = eg_dataset_shape(data),
                               .classes = eg_dataset_classes(data)};
    return build_network(ctx, &network);
}

/* Without progress: only to look at it, no run is touched. */
static eg_search *make_search(eg_context *ctx, const search_args *a, eg_module *model, eg_dataset *data, progress *p)
{
    const eg_constraint *constraint = a->space_text ? NULL : eg_space_find(a->space)->constraint;
    return eg_search_new(
        ctx, model, data, .strategy = a->strategy, .epochs = a->epochs, .batch_size = (size_t)a->batch,
        .workers = (int)a->workers, .lr = a->lr, .seed = (uint64_t)a->seed, .run = p ? a->out : NULL,
        .resume = a->resume, .memory = memory_of(a->memory), .max_memory = p ? 0 : memory_size(a->max_memory),
        .strategy_options = {.evaluations = a->evaluations,
                             .choice = a->choice,
                             .arch_lr = a->arch_lr,
                             .warmup = a->warmup,
                             .constraints = constraint,
                             .n_constraints = constraint ? 1 : 0,
                             .max_parameters = count_of(a->max_params),
                             .max_macs = count_of(a->max_macs)},
        .checkpoint_seconds = a->checkpoint_seconds, .progress = p ? progress_show : NULL, .progress_payload = p);
}

static eg_status run_search(eg_context *ctx, const search_args *a, eg_module *model, eg_dataset *data, json_t *result)
{
    progress p = progress_start();
    eg_search *search = make_search(ctx, a, model, data, &p);
    eg_status status = search ? EG_OK : eg_error_last()->code;
    if (status == EG_OK && a->visualize)
        status = eg_search_enable_visualization(search, NULL);
    if (status == EG_OK)
        status = eg_search_run(search);
    progress_end(&p);
    char *text = status == EG_OK ? eg_arch_text(eg_search_arch(search)) : NULL;
    if (text)
        json_object_set_new(result, "arch", json_loads(text, 0, NULL));
    else if (status == EG_OK)
        status = eg_error_last()->code;
    if (status == EG_OK && !isnan(eg_search_accuracy(search)))
        json_object_set_new(result, "validation_accuracy", json_real(eg_search_accuracy(search)));
    json_object_set_new(result, "seconds", json_real(whole_milliseconds(eg_search_seconds(search))));
    eg_free(text);
    eg_search_free(search);
    return status;
}

/* Whether the steps fit; with '--memory low' where that is what it takes. Leaves no trace in what comes after. */
static eg_status settle_memory(eg_context *ctx, search_args *a, eg_module *model, eg_dataset *data)
{
    if (!a->max_memory || eg_strategy_find(a->strategy)->no_training)
        return EG_OK;
    eg_rng rng = *eg_context_rng(ctx);
    eg_search *search = make_search(ctx, a, model, data, NULL);
    eg_memory_estimate normal;
    eg_status status = search ? eg_search_memory(search, EG_MEMORY_NORMAL, &normal) : eg_error_last()->code;
    eg_search_free(search);
    *eg_context_rng(ctx) = rng;
    if (status == EG_OK && normal.total > memory_size(a->max_memory))
        a->memory = "low";
    return status;
}

/* The library says the same, but only when the run is there. */
static eg_status check_size(const eg_dataset *data)
{
    EG_CHECK(eg_dataset_size(data) >= 2, EG_EINVAL, "the training set has %zu samples, too few to be halved",
             eg_dataset_size(data));
    return EG_OK;
}

/* From the data to the result, which is kept in the run. All that can be wrong with the options comes before a run is
 * made of them. */
static eg_status search_data(const command *self, eg_context *ctx, search_args *a, json_t *result, json_t **mutables)
{
    a->threads = eg_context_threads(ctx);
    eg_dataset *all = eg_dataset_open(ctx, a->data, .split = EG_TRAIN);
    eg_dataset *data = all ? eg_dataset_sample(all, (size_t)a->subset, (uint64_t)a->seed) : NULL;
    eg_module *model = data ? make_supernet(ctx, a, data) : NULL;
    *mutables = model ? mutables_of(model) : NULL;
    eg_status status = *mutables ? check_size(data) : eg_error_last()->code;
    int lock = -1;
    json_t *known = NULL;
    if (status == EG_OK)
        status = settle_memory(ctx, a, model, data);
    if (status == EG_OK)
        status = create_run(self, a, a->out, data, NULL, a->space_text, a->resume);
    if (status == EG_OK)
        status = lock_run(a->out, &lock);
    if (status == EG_OK)
        status = keep_space(a->space_text, a->out);
    if (status == EG_OK)
        status = load_result(a->out, true, &known);
    if (known) {
        json_object_update(result, known);
    } else if (status == EG_OK) {
        status = run_search(ctx, a, model, data, result);
        status = status == EG_OK ? save_result(a->out, result) : status;
    }
    json_decref(known);
    unlock_run(&lock);
    eg_module_release(model);
    eg_dataset_release(data);
    eg_dataset_release(all);
    return status;
}

/* What was chosen, where it is, and what comes next. */
static void print_result(const search_args *a, const json_t *result, const json_t *mutables)
{
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(result, "arch"), key, value)
    {
        char *text = decision_text(mutables, key, value);
        printf("%-28s %s\n", key, text ? text : "");
        free(text);
    }
    int length = (int)strlen(a->out);
    while (length > 1 && a->out[length - 1] == '/')
        length--;
    putchar('\n');
    print_scalars(result);
    printf("%-20s %.*s/arch.json\n", "architecture", length, a->out);
    printf("%-20s engraft retrain --run %.*s --out %.*s-retrained\n", "next", length, a->out, length, a->out);
}

/* What only some strategies read. */
static const struct {
    const char *option, *strategies; /* NULL: all that train */
} readers[] = {
    {"epochs", NULL},     {"lr", NULL},        {"max-memory", NULL},    {"memory", "darts"},
    {"arch-lr", "darts"}, {"warmup", "darts"}, {"evaluations", "spos"}, {"choice", "spos"},
};

static void warn_without_effect(const command *self, const search_args *a)
{
    bool trains = !eg_strategy_find(a->strategy)->no_training;
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        size_t k = 0;
        while (strcmp(self->options[k].name, readers[i].option) != 0)
            k++;
        const char *of = readers[i].strategies;
        if (!a->named[k] || (trains && (!of || strcmp(of, a->strategy) == 0)))
            continue;
        if (trains)
            fprintf(stderr, "engraft %s: '--%s' has no effect with strategy '%s'\n", self->name, readers[i].option,
                    a->strategy);
        else
            fprintf(stderr, "engraft %s: strategy '%s' trains nothing: '--%s' has no effect\n", self->name, a->strategy,
                    readers[i].option);
    }
}

/* With everything about the run known. */
static int search_in(const command *self, search_args *a)
{
    eg_context *ctx = open_context(a->threads, a->seed, a->precision);
    char *spec = absolute_spec(a->data), *space = space_title(a->space, a->space_text);
    json_t *result = json_pack("{s:s, s:s, s:s}", "run", a->out, "space", space ? space : "", "strategy", a->strategy);
    if (!eg_strategy_find(a->strategy)->no_training)
        json_object_set_new(result, "epochs", json_integer((json_int_t)a->epochs));
    json_t *mutables = NULL;
    a->data = spec;
    warn_without_effect(self, a);
    eg_status status = ctx ? EG_OK : eg_error_last()->code;
    if (ctx && !(spec && result))
        status = eg_fail(EG_ENOMEM, "no memory to start (or a text that is no UTF-8)");
    if (status == EG_OK)
        status = search_data(self, ctx, a, result, &mutables);
    close_context(ctx);
    int exit_status = EXIT_OK;
    if (status != EG_OK)
        exit_status = report_run_failure(self->name, status, a->out);
    else if (a->json)
        exit_status = print_json(json_incref(result));
    else
        print_result(a, result, mutables);
    json_decref(mutables);
    json_decref(result);
    free(space);
    free(spec);
    return exit_status;
}

static int search_run(const command *self, void *args, bool *given)
{
    search_args *a = args;
    int exit_status;
    eg_error_clear();
    memcpy(a->named, given, sizeof a->named);
    a->space_given = a->space != NULL;
    a->space_file = a->space_given ? a->space : "space.json"; /* that of the run */
    json_t *known = load_run_to_resume(a->out, a->resume);
    if (a->resume && a->out && !a->space && !known && eg_error_last()->code == EG_OK)
        no_run_to_resume(a->out);
    if (options_merge(self, a, given, known, OPTION_RECORDED) != EG_OK || eg_error_last()->code != EG_OK)
        exit_status = report_failure(self->name);
    else if (!options_complete(self, given))
        exit_status = EXIT_USAGE;
    else if (take_space(&a->space, a->space_given, known, a->out, &a->space_text) != EG_OK)
        exit_status = report_failure(self->name);
    else
        exit_status = search_in(self, a);
    free(a->space_text);
    json_decref(known);
    return exit_status;
}

const command search_command = {
    .name = "search",
    .synopsis = "--space NAME --out DIR [OPTIONS]",
    .summary = "search an architecture: train a supernet and choose",
    .details =
        "NAME may be a file: 'engraft show --space NAME --as-file' writes one to begin with. Writes DIR/arch.json.\n"
        "Ctrl-C stops it with everything saved; --resume goes on, to the same bits.",
    .options = options,
    .args_size = sizeof(search_args),
    .run = search_run,
};

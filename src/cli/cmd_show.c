/*
 * engraft show: what a space or a run consists of.
 */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

typedef struct show_args {
    const char *space, *run, *data, *input, *precision, *graph;
    int64_t classes, channels, layers, batch, threads;
    bool tree, memory, as_file, expand, json;
} show_args;

#define ROW(...) OPTION(show_args, __VA_ARGS__)

static const option_spec options[] = {
    ROW(TEXT, space, "space", "NAME", "a search space, or a file of one", .flags = OPTION_INHERITED,
        .check = check_space),
    ROW(TEXT, run, "run", "DIR", "the run of a search or retraining, in place of --space", .flags = 0),
    ROW(TEXT, data, "data", "SPEC", "data set whose shape to build the space for", .flags = 0, .check = check_data,
        .shown = "1 x 28 x 28, 10 classes"),
    ROW(TEXT, input, "input", "SIZES", "sizes of a sample, in place of --data: 3,32,32", .flags = 0,
        .check = check_sizes),
    ROW(INT, classes, "classes", "N", "classes, in place of --data", .max = 1 << 20, .initial = "0", .shown = "10"),
    ROW(INT, channels, "channels", "N", "channels of the space's first cells", .flags = OPTION_INHERITED, .max = 4096,
        .initial = "0", .shown = "the space's own"),
    ROW(INT, layers, "layers", "N", "layers (cells) of the space", .flags = OPTION_INHERITED, .max = 1024,
        .initial = "0", .shown = "the space's own"),
    ROW(FLAG, tree, "tree", NULL, "show the tree of modules as well", .flags = 0),
    ROW(TEXT, graph, "graph", "DIR", "also write the supernet's graph there: graph.json, and a file for TensorBoard",
        .flags = 0),
    ROW(FLAG, memory, "memory", NULL, "show what training steps take in memory, and nothing else", .flags = 0),
    ROW(INT, batch, "batch", "N", "samples a step, for --memory", .max = 65536, .initial = "0",
        .shown = "the run's, or 64"),
    ROW(TEXT, precision, "precision", "TYPE", "f32 or bf16, for --memory", .flags = 0, .check = check_precision,
        .shown = "the run's, or f32"),
    ROW(INT, threads, "threads", "N", "threads to compute with, for --memory", .max = 1024, .initial = "0",
        .shown = "the run's, or all processors"),
    ROW(FLAG, as_file, "as-file", NULL, "print the space as a file, to be edited: see 'search --space FILE'",
        .flags = 0),
    ROW(FLAG, expand, "expand", NULL, "with --as-file: all children of all modules", .flags = 0),
    ROW(FLAG, json, "json", NULL, "print one JSON object: params, macs, mutables (key, type, candidates, chosen), ..",
        .flags = 0),
    {.name = NULL},
};

/* What was chosen, beside each choice that counts: others lie in what was not chosen. */
static eg_status add_chosen(json_t *mutables, const eg_arch *arch)
{
    size_t i;
    json_t *item;
    json_array_foreach(mutables, i, item)
    {
        const char *key = json_string_value(json_object_get(item, "key"));
        if (!eg_arch_has(arch, key))
            continue;
        char *text = eg_arch_value(arch, key);
        if (!text)
            return eg_error_last()->code;
        json_object_set_new(item, "chosen", json_loads(text, JSON_DECODE_ANY, NULL));
        eg_free(text);
    }
    return EG_OK;
}

static eg_status describe(eg_module *model, const eg_arch *arch, eg_shape input, json_t *result)
{
    json_t *mutables = mutables_of(model);
    if (!mutables)
        return eg_error_last()->code;
    json_object_set_new(result, "mutables", mutables);
    eg_mutator *everything = NULL;
    eg_status status = arch ? eg_apply_arch(model, arch) : EG_OK;
    if (!arch) {
        everything = run_everything(model);
        status = everything ? EG_OK : eg_error_last()->code;
    }
    if (status == EG_OK && arch)
        status = add_chosen(mutables, arch);
    if (status == EG_OK)
        status = add_costs(result, model, input);
    eg_mutator_detach(everything);
    return status;
}

/* The costs come last, where they are seen whatever the length of the rest. */
static void print_description(const json_t *result)
{
    const json_t *mutables = json_object_get(result, "mutables");
    size_t i;
    json_t *mutable;
    bool found = false; /* an architecture: some choice is decided */
    json_array_foreach((json_t *)(uintptr_t)mutables, i, mutable) found = found || json_object_get(mutable, "chosen");
    json_array_foreach((json_t *)(uintptr_t)mutables, i, mutable)
    {
        const char *key = json_string_value(json_object_get(mutable, "key"));
        const json_t *value = json_object_get(mutable, "chosen");
        char *candidates = candidates_text(mutable), *chosen = found ? decision_text(mutables, key, value) : NULL;
        if (i == 0)
            printf("%-28s %-13s %s%s\n", "choice", "type", found ? "chosen       " : "", "candidates");
        printf("%-28s %-13s ", key, json_string_value(json_object_get(mutable, "type")));
        if (found)
            printf("%-12s ", chosen ? chosen : "");
        printf("%s\n", candidates ? candidates : "");
        free(candidates);
        free(chosen);
    }
    if (i > 0)
        putchar('\n');
    print_scalars(result);
}

/* The data of a space: what the options say, else what its file is for, else that of MNIST and its kin. */
static eg_status find_data(eg_context *ctx, const show_args *a, network_options *network)
{
    if (a->data) {
        eg_dataset *data = eg_dataset_open(ctx, a->data, .split = EG_TRAIN);
        if (!data)
            return eg_error_last()->code;
        network->input = eg_dataset_shape(data);
        network->classes = eg_dataset_classes(data);
        eg_dataset_release(data);
        return EG_OK;
    }
    network->input = EG_SHAPE(1, 28, 28);
    network->classes = 10;
    if (network->space_text)
        space_data(network->space_text, &network->input, &network->classes);
    if (a->input)
        network->input = sizes_of(a->input);
    if (a->classes > 0)
        network->classes = a->classes;
    return EG_OK;
}

static eg_status find_network(eg_context *ctx, const show_args *a, const json_t *run, network_options *network)
{
    if (run)
        return network_options_of(run, a->run, network);
    *network =
        (network_options){.space = a->space, .space_file = a->space, .channels = a->channels, .layers = a->layers};
    if (eg_space_is_file(a->space) && !(network->space_text = read_text(a->space)))
        return eg_error_last()->code;
    return find_data(ctx, a, network);
}

/* The steps that there are: of the run's strategy and its retraining, else of all strategies. */
static eg_status predict(eg_module *model, const eg_arch *arch, const network_options *network, const show_args *a,
                         const json_t *run, json_t *list)
{
    const char *strategy = json_string_value(json_object_get(run, "strategy"));
    json_int_t of_run = json_integer_value(json_object_get(run, "batch"));
    size_t batch = (size_t)(a->batch > 0 ? a->batch : of_run > 0 ? of_run : 64);
    for (size_t i = 0; eg_strategies()[i]; i++) {
        const eg_strategy_class *cls = eg_strategies()[i];
        bool wanted = run ? strategy && strcmp(strategy, cls->name) == 0 : true;
        if (wanted && !cls->no_training)
            EG_TRY(predict_search(model, network, cls->name, batch, list));
    }
    if (!arch)
        return EG_OK;
    EG_TRY(eg_apply_arch(model, arch));
    return predict_retraining(model, network, batch, list);
}

static eg_status show_memory(eg_module *model, const eg_arch *arch, const network_options *network, const show_args *a,
                             const json_t *run)
{
    json_t *list = json_array();
    eg_status status = predict(model, arch, network, a, run, list);
    char *space = space_title(network->space, network->space_text);
    json_t *result = json_pack("{s:s, s:O}", "space", space ? space : "", "memory", list);
    free(space);
    if (status == EG_OK && !result)
        status = eg_fail(EG_ENOMEM, "no memory for the result");
    if (status == EG_OK && a->json)
        status = print_json(json_incref(result)) == EXIT_OK ? EG_OK : eg_fail(EG_EIO, "cannot print");
    else if (status == EG_OK)
        print_memory(list);
    json_decref(result);
    json_decref(list);
    return status;
}

static eg_status show_description(eg_module *model, const eg_arch *arch, const network_options *network,
                                  const show_args *a)
{
    char *space = space_title(network->space, network->space_text);
    json_t *result = json_pack("{s:s}", "space", space ? space : "");
    free(space);
    eg_status status =
        result ? describe(model, arch, network->input, result) : eg_fail(EG_ENOMEM, "no memory for the result");
    if (status == EG_OK && a->json)
        status = print_json(json_incref(result)) == EXIT_OK ? EG_OK : eg_fail(EG_EIO, "cannot print");
    else if (status == EG_OK) {
        char *tree = a->tree ? eg_module_text(model) : NULL;
        if (tree)
            printf("%s\n", tree);
        eg_free(tree);
        print_description(result);
        if (a->graph)
            printf("%-20s %s/graph.json\n", "graph", a->graph);
    }
    json_decref(result);
    return status;
}

static eg_status show_file(eg_context *ctx, const network_options *network, const show_args *a)
{
    eg_space_options wanted = {.struct_size = sizeof wanted,
                               .input = network->input,
                               .classes = network->classes,
                               .channels = network->channels,
                               .layers = network->layers};
    EG_TRY(check_file_options(network));
    char *text = eg_space_json(ctx, network->space, &wanted, a->expand);
    if (!text)
        return eg_error_last()->code;
    fputs(text, stdout);
    eg_free(text);
    return EG_OK;
}

static eg_status show_network(eg_context *ctx, const show_args *a, const json_t *run, const network_options *network)
{
    char *path = a->run ? path_join(a->run, "arch.json") : NULL;
    eg_arch *arch = file_exists(path) ? eg_arch_load(path) : NULL;
    eg_status status = arch || !file_exists(path) ? EG_OK : eg_error_last()->code;
    eg_module *model = status == EG_OK ? build_network(ctx, network) : NULL;
    if (model && a->graph)
        status = save_graph(model, network->input, a->graph);
    if (model && status == EG_OK)
        status = a->memory ? show_memory(model, arch, network, a, run) : show_description(model, arch, network, a);
    else if (status == EG_OK)
        status = eg_error_last()->code;
    eg_module_release(model);
    eg_arch_free(arch);
    free(path);
    return status;
}

static eg_status show(eg_context *ctx, const show_args *a, const json_t *run)
{
    network_options network = {0};
    eg_status status = find_network(ctx, a, run, &network);
    if (status == EG_OK)
        status = a->as_file ? show_file(ctx, &network, a) : show_network(ctx, a, run, &network);
    free(network.space_text);
    return status;
}

/* What is wrong with the options together; NULL = nothing. */
static const char *find_contradiction(const show_args *a)
{
    if (!a->space == !a->run)
        return "takes either '--space NAME' or '--run DIR'";
    if (a->run && (a->data || a->input || a->classes || a->channels || a->layers))
        return "'--data', '--input', '--classes', '--channels' and '--layers' go with '--space', a run has its own";
    if (a->data && (a->input || a->classes))
        return "'--data' says what '--input' and '--classes' say";
    if (!a->memory && (a->batch || a->threads || a->precision))
        return "'--batch', '--threads' and '--precision' go with '--memory'";
    if (a->as_file && (a->run || a->memory || a->json))
        return "'--as-file' goes with '--space', and without '--memory' and '--json'";
    if ((a->tree || a->graph) && (a->memory || a->as_file))
        return "'--tree' and '--graph' go without '--memory' and '--as-file'";
    return a->expand && !a->as_file ? "'--expand' goes with '--as-file'" : NULL;
}

static int show_run(const command *self, void *args, bool *given)
{
    show_args *a = args;
    (void)given;
    const char *contradiction = find_contradiction(a);
    if (contradiction)
        return usage_error(self->name, "%s", contradiction);
    eg_error_clear();
    json_t *run = a->run ? load_run(a->run) : NULL;
    int64_t threads = a->threads > 0 ? a->threads : json_integer_value(json_object_get(run, "threads"));
    const char *recorded = json_string_value(json_object_get(run, "precision"));
    const char *precision = a->precision || !recorded ? a->precision : recorded;
    bool known = (run || !a->run) && (!precision || check_precision(precision) == EG_OK);
    eg_context *ctx = known ? open_context(a->memory ? threads : 1, 0, a->memory ? precision : NULL) : NULL;
    eg_status status = ctx ? show(ctx, a, run) : eg_error_last()->code;
    close_context(ctx);
    json_decref(run);
    return status == EG_OK ? EXIT_OK : report_failure(self->name);
}

const command show_command = {
    .name = "show",
    .synopsis = "(--space NAME | --run DIR) [OPTIONS]",
    .summary = "show a space or a run: choices, parameters, MACs, modules",
    .details = "Costs are of the network that was found, or of the whole supernet with every candidate running.",
    .options = options,
    .args_size = sizeof(show_args),
    .run = show_run,
};

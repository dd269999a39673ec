/*
 * engraft eval: measures a retrained network on the test split.
 */
#include "cli/cli.h"

#include <math.h>
#include <stdlib.h>

typedef struct eval_args {
    const char *run, *data, *precision;
    int64_t batch, threads;
    bool json;
} eval_args;

#define ROW(...) OPTION(eval_args, __VA_ARGS__)

static const option_spec options[] = {
    ROW(TEXT, run, "run", "DIR", "a finished retraining", .flags = OPTION_REQUIRED),
    ROW(TEXT, data, "data", "SPEC", "fashion-mnist, idx:DIR, cifar10:DIR or csv:FILE", .flags = OPTION_INHERITED,
        .check = check_data, .shown = "the run's"),
    ROW(INT, batch, "batch", "N", "samples at a time", .min = 1, .max = 65536, .initial = "256"),
    ROW(TEXT, precision, "precision", "TYPE", "f32, or bf16 for activations and products (AVX512-BF16 or AMX)",
        .flags = OPTION_INHERITED, .check = check_precision, .initial = "f32", .shown = "the run's"),
    ROW(INT, threads, "threads", "N", "threads to compute with", .max = 1024, .initial = "0",
        .shown = "all processors"),
    ROW(FLAG, json, "json", NULL, "print the result as one JSON object: test_accuracy, params, macs, seconds, ..",
        .flags = 0),
    {.name = NULL},
};

/* The trained network of a run. */
static eg_module *load_network(eg_context *ctx, const char *directory, const json_t *run, network_options *network)
{
    char *arch_path = path_join(directory, "arch.json"), *model_path = path_join(directory, "model.safetensors");
    eg_arch *arch = NULL;
    eg_module *model = NULL;
    if (is_search(run))
        eg_fail(EG_EINVAL, "'%s' is a search, not a retraining", directory);
    else if (!file_exists(model_path))
        eg_fail(EG_ENOENT, "'%s' has no model.safetensors: it is no finished retraining", directory);
    else if (network_options_of(run, directory, network) == EG_OK && (arch = eg_arch_load(arch_path)))
        model = build_fixed(ctx, network, arch);
    if (model && eg_module_load(model, model_path) != EG_OK) {
        eg_module_release(model);
        model = NULL;
    }
    eg_arch_free(arch);
    free(arch_path);
    free(model_path);
    return model;
}

static eg_status evaluate(eg_context *ctx, const eval_args *a, const json_t *run, json_t *result)
{
    double start = seconds_now();
    network_options network = {0};
    eg_module *model = load_network(ctx, a->run, run, &network);
    free(network.space_text);
    if (!model)
        return eg_error_last()->code;
    eg_dataset *test = eg_dataset_open(ctx, a->data, .split = EG_TEST);
    double accuracy = test ? eg_evaluate(model, test, (size_t)a->batch) : (double)NAN;
    eg_status status = isnan(accuracy) ? eg_error_last()->code : EG_OK;
    if (status == EG_OK) {
        json_object_set_new(result, "test_accuracy", json_real(accuracy));
        status = add_costs(result, model, network.input);
        json_object_set_new(result, "seconds", json_real(whole_milliseconds(seconds_now() - start)));
    }
    eg_dataset_release(test);
    eg_module_release(model);
    return status;
}

static int eval_run(const command *self, void *args, bool *given)
{
    eval_args *a = args;
    if (!options_complete(self, given))
        return EXIT_USAGE;
    eg_error_clear();
    json_t *run = load_run(a->run);
    eg_status status = run ? options_merge(self, a, given, run, OPTION_INHERITED) : eg_error_last()->code;
    if (status == EG_OK && !a->data)
        status = eg_fail(EG_EFORMAT, "'%s/run.json' names no data", a->run);
    eg_context *ctx = status == EG_OK ? open_context(a->threads, 0, a->precision) : NULL;
    json_t *result = json_pack("{s:s}", "run", a->run);
    if (status == EG_OK)
        status = ctx && result ? evaluate(ctx, a, run, result) : eg_error_last()->code;
    close_context(ctx);
    int exit_status = EXIT_OK;
    if (status != EG_OK)
        exit_status = report_failure(self->name);
    else if (a->json)
        exit_status = print_json(json_incref(result));
    else
        print_scalars(result);
    json_decref(result);
    json_decref(run);
    return exit_status;
}

const command eval_command = {
    .name = "eval",
    .synopsis = "--run DIR [OPTIONS]",
    .summary = "measure a retrained network on the test split",
    .options = options,
    .args_size = sizeof(eval_args),
    .run = eval_run,
};

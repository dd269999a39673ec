/*
 * Networks as the commands build them: a space's supernet, or the plain model of an architecture.
 */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

eg_status check_space(const char *name)
{
    if (eg_space_is_file(name))
        return EG_OK; /* it is read later: a run that goes on does without */
    if (eg_space_find(name))
        return EG_OK;
    char reason[256];
    snprintf(reason, sizeof reason, "%s", eg_error_last()->message);
    eg_error_clear();
    bool file = strchr(name, '.') || file_exists(name);
    return eg_fail(EG_ENOENT, "%s (%s)", reason,
                   file ? "the name of a space's file ends in .json" : "'engraft spaces' lists them");
}

/* Sizes with commas between them; ndim 0 for any other text. */
eg_shape sizes_of(const char *text)
{
    eg_shape shape = {0};
    for (const char *p = text; shape.ndim < 3; p++) {
        char *end;
        long long size = strtoll(p, &end, 10);
        if (end == p || size < 1 || size > 1 << 24 || (*end != ',' && *end != '\0'))
            break;
        shape.dims[shape.ndim++] = size;
        p = end;
        if (*p == '\0')
            return shape;
    }
    return (eg_shape){0};
}

eg_status check_sizes(const char *text)
{
    EG_CHECK(sizes_of(text).ndim > 0, EG_EINVAL, "'%s' is no sizes of a sample, expected such as 3,32,32", text);
    return EG_OK;
}

eg_status check_data(const char *spec)
{
    return eg_dataset_check_spec(spec);
}

eg_status check_strategy(const char *name)
{
    return eg_strategy_find(name) ? EG_OK : eg_error_last()->code;
}

eg_status check_choice(const char *name)
{
    EG_CHECK(strcmp(name, "evolution") == 0 || strcmp(name, "random") == 0, EG_EINVAL,
             "unknown choice '%s', expected 'evolution' or 'random'", name);
    return EG_OK;
}

static eg_status get_int(const json_t *run, const char *directory, const char *key, int64_t *out)
{
    const json_t *value = json_object_get(run, key);
    EG_CHECK(json_is_integer(value), EG_EFORMAT, "'%s/run.json' has no whole number '%s'", directory, key);
    *out = json_integer_value(value);
    return EG_OK;
}

eg_status network_options_of(const json_t *run, const char *directory, network_options *out)
{
    const char *space = json_string_value(json_object_get(run, "space"));
    const json_t *dims = json_object_get(run, "input");
    EG_CHECK(space, EG_EFORMAT, "'%s/run.json' names no space", directory);
    *out = (network_options){.space = space, .space_file = space};
    EG_TRY(get_int(run, directory, "channels", &out->channels));
    EG_TRY(get_int(run, directory, "layers", &out->layers));
    EG_TRY(get_int(run, directory, "classes", &out->classes));
    EG_CHECK(json_is_array(dims) && json_array_size(dims) >= 1 && json_array_size(dims) <= 3, EG_EFORMAT,
             "'%s/run.json' has no list 'input' of 1 to 3 sizes", directory);
    out->input.ndim = (int)json_array_size(dims);
    for (int i = 0; i < out->input.ndim; i++)
        out->input.dims[i] = json_integer_value(json_array_get(dims, (size_t)i));
    return run_space(run, directory, space, &out->space_text);
}

eg_status check_file_options(const network_options *o)
{
    EG_CHECK(!o->space_text || (o->channels == 0 && o->layers == 0), EG_EINVAL,
             "'--%s' is no option of a space in a file: edit '%s' itself", o->channels != 0 ? "channels" : "layers",
             o->space_file);
    return EG_OK;
}

eg_module *build_network(eg_context *ctx, const network_options *o)
{
    if (check_file_options(o) != EG_OK)
        return NULL;
    eg_space_options options = {.struct_size = sizeof(eg_space_options),
                                .input = o->input,
                                .classes = o->classes,
                                .channels = o->channels,
                                .layers = o->layers,
                                .file = o->space_file};
    return o->space_text ? eg_space_from_json(ctx, o->space_text, &options) : eg_space_build(ctx, o->space, &options);
}

eg_module *build_fixed(eg_context *ctx, const network_options *options, const eg_arch *arch)
{
    eg_module *model = build_network(ctx, options);
    if (model && eg_apply_arch(model, arch) != EG_OK) {
        eg_module_release(model);
        model = NULL;
    }
    return model;
}

eg_mutator *run_everything(eg_module *model)
{
    eg_mutator *mutator = eg_mutator_attach(&eg_mutator_base_class, sizeof(eg_mutator), NULL, model);
    if (mutator && eg_mutator_choose_all(mutator) != EG_OK) {
        eg_mutator_detach(mutator);
        mutator = NULL;
    }
    return mutator;
}

eg_shape batch_of(eg_shape sample, int64_t n)
{
    eg_shape batch = {.ndim = sample.ndim + 1, .dims = {n}};
    memcpy(&batch.dims[1], sample.dims, (size_t)sample.ndim * sizeof sample.dims[0]);
    return batch;
}

eg_status add_costs(json_t *result, eg_module *model, eg_shape input)
{
    eg_shape batch = batch_of(input, 1);
    eg_trace *trace = eg_trace_new(model, &batch, 1);
    if (!trace)
        return eg_error_last()->code;
    int failed = json_object_set_new(result, "params", json_integer((json_int_t)eg_module_n_parameters(model))) |
                 json_object_set_new(result, "macs", json_integer((json_int_t)eg_trace_macs(trace)));
    eg_trace_free(trace);
    return failed ? eg_fail(EG_ENOMEM, "no memory for the result") : EG_OK;
}

eg_status save_graph(eg_module *model, eg_shape input, const char *directory)
{
    eg_shape batch = batch_of(input, 2);
    eg_mutator *mutator = eg_mutator_attach(&eg_mutator_base_class, sizeof(eg_mutator), NULL, model);
    eg_graph *graph = mutator ? eg_mutator_graph(mutator, &batch, 1) : NULL;
    char *path = graph ? path_join(directory, "graph.json") : NULL;
    eg_status status = path ? eg_graph_save_event(graph, directory) : eg_error_last()->code;
    if (status == EG_OK)
        status = eg_graph_save(graph, path);
    free(path);
    eg_graph_free(graph);
    eg_mutator_detach(mutator);
    return status;
}

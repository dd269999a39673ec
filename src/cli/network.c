/*
 * Networks as the commands build them: a space's supernet, or the plain model of an architecture.
 */
#include "cli/cli.h"

#include <inttypes.h>
#include <string.h>

eg_status check_space(const char *name)
{
    if (eg_space_is_file(name))
        return EG_OK; /* it is read later: a run that goes on does without */
    return eg_space_find(name) ? EG_OK : eg_error_last()->code;
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
    *out = (network_options){.space = space};
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

eg_module *build_network(eg_context *ctx, const network_options *o)
{
    eg_space_options options = {.struct_size = sizeof(eg_space_options),
                                .input = o->input,
                                .classes = o->classes,
                                .channels = o->channels,
                                .layers = o->layers};
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

eg_status add_costs(json_t *result, eg_module *model, eg_shape input)
{
    eg_shape batch = {.ndim = input.ndim + 1, .dims = {1}};
    memcpy(&batch.dims[1], input.dims, (size_t)input.ndim * sizeof input.dims[0]);
    eg_trace *trace = eg_trace_new(model, &batch, 1);
    if (!trace)
        return eg_error_last()->code;
    int failed = json_object_set_new(result, "params", json_integer((json_int_t)eg_module_n_parameters(model))) |
                 json_object_set_new(result, "macs", json_integer((json_int_t)eg_trace_macs(trace)));
    eg_trace_free(trace);
    return failed ? eg_fail(EG_ENOMEM, "no memory for the result") : EG_OK;
}

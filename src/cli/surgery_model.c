/*
 * Models as the parts of `engraft surgery` name them.
 */
#include "cli/surgery.h"

#include <stdlib.h>
#include <string.h>

/* ---- where models come from ---- */

static eg_status load_weights(named_model *out, const char *path)
{
    out->is_random = !file_exists(path);
    return out->is_random ? EG_OK : eg_module_load(out->model, path);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), len = strlen(end);
    return n >= len && strcmp(text + n - len, end) == 0;
}

/* The shape that a surgery has run the model of a folder on, where it says so and the model takes one. */
static void find_input(const char *directory, eg_shape *input)
{
    char *path = path_join(directory, "surgery.json");
    json_t *recipe = path && file_exists(path) ? json_load_file(path, 0, NULL) : NULL;
    const json_t *inputs = json_object_get(recipe, "inputs"), *sizes = json_array_get(inputs, 0);
    size_t n = json_array_size(inputs) == 1 ? json_array_size(sizes) : 0;
    eg_shape shape = {.ndim = n > 1 && n <= EG_MAX_DIMS ? (int)n : 0};
    for (int i = 0; i < shape.ndim; i++) {
        shape.dims[i] = json_integer_value(json_array_get(sizes, (size_t)i));
        if (shape.dims[i] < 1)
            shape.ndim = 0;
    }
    *input = shape;
    json_decref(recipe);
    free(path);
}

/* model.json of a folder, with its weights where there are any. */
static eg_status load_folder(eg_context *ctx, const char *directory, named_model *out)
{
    char *json = path_join(directory, "model.json"), *weights = path_join(directory, "model.safetensors");
    eg_status status = json && weights ? EG_OK : eg_fail(EG_ENOMEM, "out of memory");
    if (status == EG_OK) {
        out->model = eg_module_load_json(ctx, json);
        status = out->model ? load_weights(out, weights) : eg_error_last()->code;
    }
    free(json);
    free(weights);
    return status;
}

/* ---- spaces ---- */

/* A supernet with what its file says, or would say. */
static eg_status build_space(eg_context *ctx, const network_options *options, named_model *out)
{
    eg_space_options own = {.struct_size = sizeof(own),
                            .input = options->input,
                            .classes = options->classes,
                            .channels = options->channels,
                            .layers = options->layers};
    if (options->space_text) {
        out->space = strdup(options->space_text);
    } else {
        char *text = eg_space_json(ctx, options->space, &own, true);
        out->space = text ? strdup(text) : NULL;
        eg_free(text);
        if (!text)
            return eg_error_last()->code;
    }
    EG_CHECK(out->space, EG_ENOMEM, "out of memory");
    out->input = batch_of(options->input, 1);
    out->model = build_network(ctx, options);
    out->choices = out->model ? run_everything(out->model) : NULL;
    return out->choices ? EG_OK : eg_error_last()->code;
}

static eg_status name_space(eg_context *ctx, const char *name, const char *text, named_model *out)
{
    network_options options = {.space = name,
                               .space_file = name,
                               .space_text = (char *)(uintptr_t)text,
                               .input = EG_SHAPE(1, 28, 28),
                               .classes = 10};
    if (text)
        space_data(text, &options.input, &options.classes);
    if (out->input.ndim > 0) {
        options.input.ndim = out->input.ndim - 1;
        memcpy(options.input.dims, &out->input.dims[1], (size_t)options.input.ndim * sizeof(options.input.dims[0]));
    }
    return build_space(ctx, &options, out);
}

/* A model's JSON has a class, a space's a model. */
static bool is_model_text(const char *text)
{
    json_t *json = json_loads(text, 0, NULL);
    bool is = json_object_get(json, "class") != NULL;
    json_decref(json);
    return is;
}

static eg_status load_space_file(eg_context *ctx, const char *path, named_model *out)
{
    char *text = read_text(path);
    eg_status status = text ? name_space(ctx, path, text, out) : eg_error_last()->code;
    free(text);
    return status;
}

/* ---- directories and files ---- */

/* The supernet of the run of a search, and what any run says of its data. */
static eg_status load_run_model(eg_context *ctx, const char *directory, named_model *out)
{
    json_t *run = load_run(directory);
    if (!run)
        return eg_error_last()->code;
    network_options options = {0};
    eg_status status = network_options_of(run, directory, &options);
    if (status == EG_OK && out->model)
        out->input = batch_of(options.input, 1);
    else if (status == EG_OK)
        status = build_space(ctx, &options, out);
    free(options.space_text);
    json_decref(run);
    return status;
}

enum { HAS_MODEL = 1, HAS_RUN = 2, HAS_SPACE = 4 };

static int contents_of(const char *directory)
{
    static const char *const names[] = {"model.json", "run.json", "space.json"};
    int found = 0;
    for (int i = 0; i < 3; i++) {
        char *path = path_join(directory, names[i]);
        found |= path && file_exists(path) ? 1 << i : 0;
        free(path);
    }
    return found;
}

static eg_status load_space_folder(eg_context *ctx, const char *directory, named_model *out)
{
    char *path = path_join(directory, "space.json");
    eg_status status = path ? load_space_file(ctx, path, out) : eg_fail(EG_ENOMEM, "out of memory");
    free(path);
    return status;
}

/* The space of a run is named by run.json. */
static eg_status load_directory(eg_context *ctx, const char *directory, named_model *out)
{
    int found = contents_of(directory);
    EG_CHECK(found, EG_ENOENT,
             "'%s' is no folder with model.json, run.json or space.json, and no file of a model "
             "(its name would end in .json)",
             directory);
    if (!(found & (HAS_MODEL | HAS_RUN)))
        return load_space_folder(ctx, directory, out);
    find_input(directory, &out->input);
    EG_TRY(found & HAS_MODEL ? load_folder(ctx, directory, out) : EG_OK);
    return found & HAS_RUN ? load_run_model(ctx, directory, out) : EG_OK;
}

static eg_status load_model_file(eg_context *ctx, const char *path, named_model *out)
{
    char weights[4096];
    int stem = (int)(strlen(path) - strlen(".json")),
        n = snprintf(weights, sizeof(weights), "%.*s.safetensors", stem, path);
    EG_CHECK(n >= 0 && (size_t)n < sizeof(weights), EG_EINVAL, "a path of %zu bytes, which is too long", strlen(path));
    out->model = eg_module_load_json(ctx, path);
    return out->model ? load_weights(out, weights) : eg_error_last()->code;
}

static eg_status load_file(eg_context *ctx, const char *path, named_model *out)
{
    char *text = read_text(path);
    if (!text)
        return eg_error_last()->code;
    eg_status status = is_model_text(text) ? load_model_file(ctx, path, out) : name_space(ctx, path, text, out);
    free(text);
    return status;
}

static eg_status check_name(const char *name)
{
    if (check_space(name) == EG_OK)
        return EG_OK;
    char reason[512];
    snprintf(reason, sizeof(reason), "%s", eg_error_last()->message);
    eg_error_clear();
    return eg_fail(EG_ENOENT, "there is no file or folder '%s', and %s", name, reason);
}

eg_status load_named_model(eg_context *ctx, const char *name, const char *input, named_model *out)
{
    eg_shape given = input ? batch_of(sizes_of(input), 1) : (eg_shape){0};
    *out = (named_model){.input = given};
    EG_TRY(eg_nas_register(ctx)); /* the classes that spaces are made of */
    eg_status status;
    if (ends_with(name, ".json"))
        status = load_file(ctx, name, out);
    else if (file_exists(name))
        status = load_directory(ctx, name, out);
    else
        status = check_name(name) == EG_OK ? name_space(ctx, name, NULL, out) : eg_error_last()->code;
    if (given.ndim > 0)
        out->input = given;
    if (status != EG_OK)
        close_named_model(out);
    return status;
}

void close_named_model(named_model *named)
{
    eg_mutator_detach(named->choices);
    eg_module_release(named->model);
    free(named->space);
    *named = (named_model){0};
}

/* ---- writing ---- */

static eg_status save_model(eg_module *model, const char *directory)
{
    char *json = path_join(directory, "model.json"), *weights = path_join(directory, "model.safetensors");
    eg_status status = json && weights ? eg_module_save(model, weights) : eg_fail(EG_ENOMEM, "out of memory");
    if (status == EG_OK)
        status = eg_module_save_json(model, json);
    free(json);
    free(weights);
    return status;
}

/* What it said before, with another model. */
static eg_status save_space(named_model *named, const char *directory)
{
    eg_mutator_detach(named->choices); /* choices are as they were made, not as they are bound */
    named->choices = NULL;
    char *model = eg_module_json_expanded(named->model);
    if (!model)
        return eg_error_last()->code;
    json_t *space = json_loads(named->space, 0, NULL);
    bool set = json_object_set_new(space, "model", json_loads(model, 0, NULL)) == 0;
    char *text = set ? json_dumps(space, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    eg_status status = text ? keep_space(text, directory) : eg_fail(EG_ENOMEM, "out of memory");
    free(text);
    json_decref(space);
    eg_free(model);
    return status;
}

eg_status save_named_model(named_model *named, const char *directory)
{
    return named->space ? save_space(named, directory) : save_model(named->model, directory);
}

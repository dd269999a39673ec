/*
 * Models as the parts of `engraft surgery` name them, and what is planned for them.
 */
#include "cli/surgery.h"

#include <stdlib.h>
#include <string.h>

/* ---- shapes ---- */

/* "3,32,32" as a batch of one. */
static eg_status parse_input(const char *text, eg_shape *shape)
{
    *shape = (eg_shape){.ndim = 1, .dims = {1}};
    for (const char *p = text; shape->ndim < 5; p++) {
        char *end;
        long long size = strtoll(p, &end, 10);
        if (end == p || size < 1 || size > 1 << 24 || (*end != ',' && *end != '\0'))
            break;
        shape->dims[shape->ndim++] = size;
        p = end;
        if (*p == '\0')
            return EG_OK;
    }
    return eg_fail(EG_EINVAL, "option '--input' takes the sizes of a sample, such as 3,32,32, not '%s'", text);
}

static eg_shape batch_of_one(eg_shape sample)
{
    eg_shape batch = {.ndim = sample.ndim + 1, .dims = {1}};
    memcpy(&batch.dims[1], sample.dims, (size_t)sample.ndim * sizeof(sample.dims[0]));
    return batch;
}

/* ---- where models come from ---- */

static eg_status load_weights(eg_module *model, const char *path)
{
    return file_exists(path) ? eg_module_load(model, path) : EG_OK;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), len = strlen(end);
    return n >= len && strcmp(text + n - len, end) == 0;
}

/* model.json of a folder, with its weights where there are any. */
static eg_status load_folder(eg_context *ctx, const char *directory, named_model *out)
{
    char *json = path_join(directory, "model.json"), *weights = path_join(directory, "model.safetensors");
    eg_status status = json && weights ? EG_OK : eg_fail(EG_ENOMEM, "out of memory");
    if (status == EG_OK) {
        out->model = eg_module_load_json(ctx, json);
        status = out->model ? load_weights(out->model, weights) : eg_error_last()->code;
    }
    free(json);
    free(weights);
    return status;
}

/* The supernet of the run of a search, and what any run says of its data. */
static eg_status load_run_model(eg_context *ctx, const char *directory, named_model *out)
{
    json_t *run = load_run(directory);
    if (!run)
        return eg_error_last()->code;
    network_options options = {0};
    eg_status status = network_options_of(run, directory, &options);
    if (status == EG_OK)
        out->input = batch_of_one(options.input);
    if (status == EG_OK && !out->model) {
        out->model = build_network(ctx, &options);
        status = out->model ? EG_OK : eg_error_last()->code;
    }
    free(options.space_text);
    json_decref(run);
    return status;
}

static eg_status load_directory(eg_context *ctx, const char *directory, named_model *out)
{
    char *json = path_join(directory, "model.json"), *run = path_join(directory, "run.json");
    bool has_model = json && file_exists(json), has_run = run && file_exists(run);
    free(json);
    free(run);
    EG_CHECK(has_model || has_run, EG_ENOENT, "'%s' has neither model.json nor run.json", directory);
    eg_status status = has_model ? load_folder(ctx, directory, out) : EG_OK;
    return status == EG_OK && has_run ? load_run_model(ctx, directory, out) : status;
}

/* A model's JSON has a class, a space's a model. */
static bool is_model_text(const char *text)
{
    json_t *json = json_loads(text, 0, NULL);
    bool is = json_object_get(json, "class") != NULL;
    json_decref(json);
    return is;
}

static eg_status load_model_file(eg_context *ctx, const char *path, named_model *out)
{
    char weights[4096];
    snprintf(weights, sizeof(weights), "%.*s.safetensors", (int)(strlen(path) - strlen(".json")), path);
    out->model = eg_module_load_json(ctx, path);
    return out->model ? load_weights(out->model, weights) : eg_error_last()->code;
}

static eg_status build_space(eg_context *ctx, const char *name, const char *text, named_model *out)
{
    network_options options = {.space = name,
                               .space_file = name,
                               .space_text = (char *)(uintptr_t)text,
                               .input = EG_SHAPE(1, 28, 28),
                               .classes = 10};
    if (out->input.ndim > 0) {
        options.input.ndim = out->input.ndim - 1;
        memcpy(options.input.dims, &out->input.dims[1], (size_t)options.input.ndim * sizeof(options.input.dims[0]));
    }
    if (text)
        space_data(text, &options.input, &options.classes);
    out->input = batch_of_one(options.input);
    out->model = build_network(ctx, &options);
    return out->model ? EG_OK : eg_error_last()->code;
}

static eg_status load_file(eg_context *ctx, const char *path, named_model *out)
{
    char *text = read_text(path);
    if (!text)
        return eg_error_last()->code;
    eg_status status = is_model_text(text) ? load_model_file(ctx, path, out) : build_space(ctx, path, text, out);
    free(text);
    return status;
}

eg_status load_named_model(eg_context *ctx, const char *name, const char *input, named_model *out)
{
    *out = (named_model){0};
    EG_TRY(eg_nas_register(ctx)); /* the classes that spaces are made of */
    if (input)
        EG_TRY(parse_input(input, &out->input));
    eg_shape given = out->input;
    eg_status status;
    if (ends_with(name, ".json"))
        status = load_file(ctx, name, out);
    else if (file_exists(name))
        status = load_directory(ctx, name, out);
    else
        status = check_space(name) == EG_OK ? build_space(ctx, name, NULL, out) : eg_error_last()->code;
    if (given.ndim > 0)
        out->input = given;
    if (status != EG_OK) {
        eg_module_release(out->model);
        out->model = NULL;
    }
    return status;
}

eg_status save_named_model(eg_module *model, const char *directory)
{
    char *json = path_join(directory, "model.json"), *weights = path_join(directory, "model.safetensors");
    eg_status status = json && weights ? eg_module_save(model, weights) : eg_fail(EG_ENOMEM, "out of memory");
    if (status == EG_OK)
        status = eg_module_save_json(model, json);
    free(json);
    free(weights);
    return status;
}

/* ---- rules ---- */

/* The method that a call names ("factorize(rank=0.25)", spaces as eg_method_from_text() allows them), or NULL. */
static const eg_method *method_called(const char *call)
{
    call += strspn(call, " \t\n");
    size_t len = strcspn(call, "( \t\n");
    for (size_t i = 0; eg_method_at(i); i++)
        if (strlen(eg_method_at(i)->options.name) == len && strncmp(eg_method_at(i)->options.name, call, len) == 0)
            return eg_method_at(i);
    return NULL;
}

/* What stands after '=' in --replace. */
typedef struct replacement {
    const char *call;
} replacement;

static eg_module *make_again(void *payload, eg_module *module, size_t index)
{
    const replacement *r = payload;
    (void)index;
    return eg_module_from_text(module->ctx, r->call);
}

/* "BatchNorm2d=ghost_batch_norm(ghost_batch_size=16)", "ReLU=SiLU". */
static eg_status plan_replace(eg_surgery *s, eg_context *ctx, const char *rule, const char *at)
{
    char cls_name[128];
    const char *equals = strchr(rule, '=');
    EG_CHECK(equals && equals > rule && equals[1], EG_EINVAL,
             "option '--replace' takes CLASS=METHOD(..) or CLASS=CLASS(..), not '%s'", rule);
    snprintf(cls_name, sizeof(cls_name), "%.*s", (int)(equals - rule), rule);
    const eg_class *cls = eg_context_find_class(ctx, cls_name);
    if (!cls)
        return eg_error_last()->code;
    const char *call = equals + 1;
    if (method_called(call)) {
        eg_module *options = eg_method_from_text(ctx, call);
        return options ? eg_surgery_apply_to(s, options, cls, at) : eg_error_last()->code;
    }
    replacement with = {call};
    return eg_surgery_replace(
        s, EG_POLICIES({.cls = cls, .replace = make_again, .payload = &with, .at = at, .name = rule}), false);
}

static eg_status plan_method(eg_surgery *s, eg_context *ctx, const char *call, const char *at)
{
    eg_module *options = eg_method_from_text(ctx, call);
    return options ? eg_surgery_apply(s, options, at) : eg_error_last()->code;
}

eg_status plan_rules(eg_surgery *s, eg_context *ctx, const rule_list *rules, bool any_model)
{
    for (size_t i = 0; i < rules->n; i++) {
        const struct rule *rule = &rules->items[i], *next = i + 1 < rules->n ? rule + 1 : NULL;
        const char *at = next && strcmp(next->option, "at") == 0 ? next->value : NULL;
        EG_CHECK(strcmp(rule->option, "at") != 0, EG_EINVAL,
                 "'--at %s' stands behind the --method or --replace that it limits", rule->value);
        if (strcmp(rule->option, "recipe") == 0)
            EG_TRY(eg_surgery_load_recipe(s, rule->value, any_model));
        else if (strcmp(rule->option, "method") == 0)
            EG_TRY(plan_method(s, ctx, rule->value, at));
        else
            EG_TRY(plan_replace(s, ctx, rule->value, at));
        i += at != NULL;
    }
    return EG_OK;
}

/* ---- what they promise ---- */

static eg_promise promise_of_call(const char *call)
{
    const eg_method *method = call ? method_called(call) : NULL;
    return method ? method->promise : EG_PROMISE_TRAINED;
}

static eg_promise lesser(eg_promise a, eg_promise b)
{
    return a > b ? a : b;
}

/* What is trained later is no matter of the outputs. */
static eg_promise promise_of_recipe(const char *path)
{
    eg_promise least = EG_PROMISE_EXACT;
    size_t i;
    json_t *step, *recipe = json_load_file(path, 0, NULL);
    if (!recipe)
        return EG_PROMISE_TRAINED;
    json_array_foreach(json_object_get(recipe, "steps"), i, step)
    {
        if (!json_object_get(step, "train"))
            least = lesser(least, promise_of_call(json_string_value(json_object_get(step, "method"))));
    }
    json_decref(recipe);
    return least;
}

eg_promise promise_of_rules(const rule_list *rules)
{
    eg_promise least = EG_PROMISE_EXACT;
    for (size_t i = 0; i < rules->n; i++) {
        const struct rule *rule = &rules->items[i];
        if (strcmp(rule->option, "recipe") == 0)
            least = lesser(least, promise_of_recipe(rule->value));
        else if (strcmp(rule->option, "method") == 0)
            least = lesser(least, promise_of_call(rule->value));
        else if (strcmp(rule->option, "replace") == 0)
            least = lesser(least, promise_of_call(strchr(rule->value, '=') + 1)); /* planned, so it has one */
    }
    return least;
}

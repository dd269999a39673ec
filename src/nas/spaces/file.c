/*
 * nas/spaces/file.c - spaces as files: a model in JSON, and the data that it is for.
 */
#include "nas/internal.h"
#include "nn/json.h"

#include <inttypes.h>
#include <string.h>

/* What a file says, lent from its JSON. */
typedef struct space_file {
    const char *name, *help, *source;
    eg_shape input;
    int64_t classes;
    const json_t *model;
} space_file;

bool eg_space_is_file(const char *name)
{
    static const char ending[] = ".json";
    size_t length = name != NULL ? strlen(name) : 0, end = sizeof(ending) - 1;
    return length > 0 && (strchr(name, '/') != NULL || (length >= end && strcmp(name + length - end, ending) == 0));
}

/* ---- what stands in a file ---- */

static const char *const members[] = {"$schema", "format", "name", "help", "source", "input", "classes", "model"};

static eg_status check_members(const json_t *json)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        size_t i = 0;
        while (i < EG_COUNT(members) && strcmp(members[i], key) != 0)
            i++;
        if (i < EG_COUNT(members))
            continue;
        char near[200];
        eg_closest_name(key, members, EG_COUNT(members), near, sizeof(near));
        return eg_fail(EG_EFORMAT, "a space has no member '%s'%s%s%s", key, *near == '\0' ? "" : " (did you mean ",
                       near, *near == '\0' ? "" : "?)");
    }
    return EG_OK;
}

static eg_status read_text(const json_t *json, const char *key, const char **out)
{
    const json_t *value = json_object_get(json, key);
    EG_CHECK(value == NULL || json_is_string(value), EG_EFORMAT, "'%s' is no text", key);
    *out = json_string_value(value);
    return EG_OK;
}

static eg_status read_input(const json_t *json, eg_shape *input)
{
    const json_t *list = json_object_get(json, "input");
    size_t n = json_array_size(list);
    bool good = n >= 1 && n <= 3;
    *input = (eg_shape){.ndim = good ? (int)n : 0};
    for (size_t i = 0; good && i < n; i++) {
        input->dims[i] = (int64_t)json_integer_value(json_array_get(list, i));
        good = input->dims[i] >= 1;
    }
    int64_t numbers = good ? eg_shape_numel(*input) : -1;
    EG_CHECK(numbers >= 1 && numbers <= EG__SPACE_MAX_FEATURES, EG_EFORMAT,
             "'input' is no list of 1 to 3 sizes of at least 1, such as [3, 32, 32], with up to %d numbers in all",
             EG__SPACE_MAX_FEATURES);
    return EG_OK;
}

static eg_status read_file(const json_t *json, space_file *out)
{
    EG_CHECK(json_is_object(json), EG_EFORMAT, "is no JSON object");
    EG_TRY(check_members(json));
    const char *format, *schema;
    EG_TRY(read_text(json, "format", &format));
    EG_CHECK(format != NULL && strcmp(format, EG__SPACE_FORMAT) == 0, EG_EFORMAT, "'format' is '%s', expected '%s'",
             format != NULL ? format : "", EG__SPACE_FORMAT);
    EG_TRY(read_text(json, "$schema", &schema));
    EG_TRY(read_text(json, "name", &out->name));
    EG_TRY(read_text(json, "help", &out->help));
    EG_TRY(read_text(json, "source", &out->source));
    EG_TRY(read_input(json, &out->input));
    const json_t *classes = json_object_get(json, "classes");
    out->classes = (int64_t)json_integer_value(classes);
    EG_CHECK(out->classes >= 1 && out->classes <= EG__SPACE_MAX_CLASSES, EG_EFORMAT,
             "'classes' is no whole number from 1 to %d", EG__SPACE_MAX_CLASSES);
    out->model = json_object_get(json, "model");
    EG_CHECK(out->model != NULL, EG_EFORMAT, "has no 'model'");
    return EG_OK;
}

/* ---- whether it serves ---- */

static eg_status check_options(const space_file *file, const eg_space_options *o)
{
    char is[EG_SHAPE_TEXT_SIZE], wanted[EG_SHAPE_TEXT_SIZE];
    EG_CHECK(o->channels == 0 && o->layers == 0 && o->drop_path == 0 && o->vocabulary == 0, EG_EINVAL,
             "channels, layers, drop_path and vocabulary are what the file says: they are no options of a file");
    eg_shape_format(file->input, is, sizeof(is));
    eg_shape_format(o->input, wanted, sizeof(wanted));
    EG_CHECK(eg_shape_equal(file->input, o->input) && file->classes == o->classes, EG_ESHAPE,
             "is for an input of %s and %" PRId64 " classes, but the data has %s and %" PRId64, is, file->classes,
             wanted, o->classes);
    return EG_OK;
}

static eg_status check_output(eg_module *model, const space_file *file)
{
    eg_shape batch = eg__batch_shape(file->input, 1);
    eg_trace *trace = eg_trace_new(model, &batch, 1);
    if (trace == NULL)
        return eg__fail_prefix(eg_error_last()->code, "the model does not run");
    eg_shape out = eg_trace_output(trace, 0);
    eg_trace_free(trace);
    char text[2][EG_SHAPE_TEXT_SIZE];
    eg_shape_format(batch, text[0], sizeof(text[0]));
    eg_shape_format(out, text[1], sizeof(text[1]));
    EG_CHECK(eg_shape_equal(out, EG_SHAPE(1, file->classes)), EG_ESHAPE,
             "the model gives %s for an input of %s, expected (1, %" PRId64 "): a number for each class", text[1],
             text[0], file->classes);
    return EG_OK;
}

/* Runs the model on shapes alone, with as many candidates as can run together whatever they give: with the largest
 * values, and with the smallest. */
static eg_status check_model(eg_module *model, const space_file *file)
{
    static const eg__extent extents[] = {EG__JOINED, EG__JOINED_SMALLEST};
    eg_mutator *mutator = eg_mutator_attach(&eg_mutator_base_class, sizeof(eg_mutator), NULL, model);
    eg_status status = mutator != NULL ? EG_OK : eg_error_last()->code;
    for (size_t i = 0; i < EG_COUNT(extents) && status == EG_OK; i++) {
        status = eg__decide_each(mutator, extents[i], mutator->current);
        if (status == EG_OK)
            status = check_output(model, file);
    }
    eg_mutator_detach(mutator);
    return status;
}

/* ---- reading ---- */

static eg_module *build_file(eg_context *ctx, const space_file *file, const eg_space_options *options)
{
    eg_space_options own;
    if (options != NULL &&
        (eg__options_copy(&own, sizeof(own), options) != EG_OK || check_options(file, &own) != EG_OK))
        return NULL;
    eg_module *model = eg_nas_register(ctx) == EG_OK ? eg__module_from_json(ctx, file->model, "model") : NULL;
    if (model != NULL && check_model(model, file) != EG_OK) {
        eg_module_release(model);
        return NULL;
    }
    return model;
}

eg_module *eg_space_from_json(eg_context *ctx, const char *json, const eg_space_options *options)
{
    if (ctx == NULL || json == NULL)
        return eg__null(__func__, ctx == NULL ? "context" : "text");
    eg_space_options own = {.file = NULL};
    if (options != NULL && eg__options_copy(&own, sizeof(own), options) != EG_OK)
        return NULL;
    json_t *parsed = eg__json_parse(json, strlen(json), own.file != NULL ? own.file : "space");
    space_file file = {0};
    eg_module *model = parsed != NULL && read_file(parsed, &file) == EG_OK ? build_file(ctx, &file, options) : NULL;
    const char *called = own.file != NULL ? own.file : file.name != NULL ? file.name : "";
    if (parsed != NULL && model == NULL)
        eg__fail_prefix(eg_error_last()->code, "space '%s'", called);
    json_decref(parsed);
    return model;
}

/* The model of a file, and what the file says of it, lent from *json, which is the caller's. */
static eg_module *load(eg_context *ctx, const char *path, const eg_space_options *options, json_t **json,
                       space_file *file)
{
    *json = eg__json_read(path, EG__JSON_MAX_FILE);
    eg_module *model = *json != NULL && read_file(*json, file) == EG_OK ? build_file(ctx, file, options) : NULL;
    if (model == NULL && *json != NULL)
        eg__fail_prefix(eg_error_last()->code, "space '%s'", path);
    return model;
}

eg_module *eg__space_load(eg_context *ctx, const char *path, const eg_space_options *options)
{
    json_t *json;
    space_file file = {0};
    eg_module *model = load(ctx, path, options, &json, &file);
    json_decref(json);
    return model;
}

/* ---- writing ---- */

static eg_status put(json_t *object, const char *key, json_t *value)
{
    EG_CHECK(json_object_set_new(object, key, value) == 0, EG_ENOMEM, "out of memory: a space as JSON");
    return EG_OK;
}

static eg_status put_text(json_t *object, const char *key, const char *text)
{
    return text != NULL ? put(object, key, json_string(text)) : EG_OK;
}

static eg_status write_file(const space_file *file, eg_module *model, bool expand, json_t *object)
{
    json_t *text = eg__module_to_json(model, expand);
    if (text == NULL)
        return eg_error_last()->code;
    eg_status status = put_text(object, "format", EG__SPACE_FORMAT);
    status = status == EG_OK ? put_text(object, "name", file->name) : status;
    status = status == EG_OK ? put_text(object, "help", file->help) : status;
    status = status == EG_OK ? put_text(object, "source", file->source) : status;
    status = status == EG_OK ? put(object, "input", eg__shape_json(&file->input)) : status;
    status = status == EG_OK ? put(object, "classes", json_integer((json_int_t)file->classes)) : status;
    if (status == EG_OK)
        return put(object, "model", text);
    json_decref(text);
    return status;
}

/* The model of a space, and what a file says of it. *json is the caller's. */
static eg_module *open_space(eg_context *ctx, const char *name, const eg_space_options *options, json_t **json,
                             space_file *file)
{
    *json = NULL;
    if (eg_space_is_file(name))
        return load(ctx, name, options, json, file);
    const eg_space *space = eg_space_find(name);
    eg_module *model = space != NULL ? eg_space_build(ctx, name, options) : NULL;
    if (model != NULL)
        *file = (space_file){.name = space->name,
                             .help = space->help,
                             .source = space->source,
                             .input = options->input,
                             .classes = options->classes};
    return model;
}

char *eg_space_json(eg_context *ctx, const char *name, const eg_space_options *options, bool expand)
{
    if (ctx == NULL || name == NULL)
        return eg__null(__func__, ctx == NULL ? "context" : "name");
    json_t *json, *object = json_object();
    space_file file;
    eg_module *model = open_space(ctx, name, options, &json, &file);
    char *text = NULL;
    if (model != NULL && object == NULL)
        eg_fail(EG_ENOMEM, "out of memory: a space as JSON");
    else if (model != NULL && write_file(&file, model, expand, object) == EG_OK)
        text = eg__json_layout(object);
    eg_module_release(model);
    json_decref(object);
    json_decref(json);
    return text;
}

/* Spaces as files: each built-in one there and back, edited ones, the schema, and what is refused. */
#include "support.h"

#include "engraft/nas.h"

#include <jansson.h>

static eg_context *ctx;

static int setup(void **state)
{
    (void)state;
    eg_error_clear();
    ctx = eg_context_new(.seed = 1, .threads = 1);
    return ctx == NULL;
}

static int teardown(void **state)
{
    (void)state;
    eg_context_free(ctx);
    return 0;
}

/* Names and shapes of all tensors. */
static void assert_same_state(eg_module *a, eg_module *b)
{
    eg_state *s = eg_state_new(), *t = eg_state_new();
    assert_ok(eg_module_state(a, NULL, s));
    assert_ok(eg_module_state(b, NULL, t));
    assert_true(eg_state_size(s) > 0);
    assert_int_equal(eg_state_size(s), eg_state_size(t));
    for (size_t i = 0; i < eg_state_size(s); i++) {
        const char *x, *y;
        assert_true(eg_shape_equal(eg_tensor_shape(eg_state_at(s, i, &x)), eg_tensor_shape(eg_state_at(t, i, &y))));
        assert_string_equal(x, y);
    }
    eg_state_free(s);
    eg_state_free(t);
}

static eg_space_options options_of(eg_shape input, int64_t classes)
{
    return (eg_space_options){
        .struct_size = sizeof(eg_space_options), .input = input, .classes = classes, .channels = 4, .layers = 2};
}

/* The file of a space makes the same supernet: the same tree, tensors, and choices. */
static void test_built_in_spaces(void **state)
{
    (void)state;
    for (size_t i = 0; eg_spaces()[i] != NULL; i++) {
        for (int expand = 0; expand < 2; expand++) {
            eg_space_options o = options_of(EG_SHAPE(3, 16, 16), 5);
            char *file = eg_space_json(ctx, eg_spaces()[i]->name, &o, expand);
            assert_made(file);
            eg_module *a = eg_space_build(ctx, eg_spaces()[i]->name, &o), *b = eg_space_from_json(ctx, file, NULL);
            assert_made(b);
            char *text = eg_module_text(a), *text2 = eg_module_text(b);
            assert_string_equal(text, text2);
            char *choices = eg_search_space_text(a), *choices2 = eg_search_space_text(b);
            assert_string_equal(choices, choices2);
            assert_same_state(a, b);
            json_t *json = json_loads(file, 0, NULL);
            assert_string_equal(json_string_value(json_object_get(json, "name")), eg_spaces()[i]->name);
            json_decref(json);
            eg_free(text), eg_free(text2), eg_free(choices), eg_free(choices2), eg_free(file);
            eg_module_release(a);
            eg_module_release(b);
        }
    }
}

static const char good[] =
    "{\"format\": \"engraft-space/1\", \"name\": \"mine\", \"input\": [4], \"classes\": 3, \"model\": {\"class\": "
    "\"Sequential\", \"modules\": [{\"class\": \"LayerChoice\", \"key\": \"op\", \"named\": {\"thin\": {\"class\": "
    "\"Linear\", \"in_features\": 4, \"out_features\": 4}, \"skip\": {\"class\": \"Identity\"}}}, {\"class\": "
    "\"Linear\", \"in_features\": 4, \"out_features\": 3}]}}";

/* `good` with one part replaced, once. */
static char *with(const char *old, const char *new)
{
    const char *at = strstr(good, old);
    assert_non_null(at);
    char *text = calloc(1, sizeof good + strlen(new) + 1);
    snprintf(text, sizeof good + strlen(new) + 1, "%.*s%s%s", (int)(at - good), good, new, at + strlen(old));
    return text;
}

static void test_files(void **state)
{
    (void)state;
    char *directory = temporary_make(), path[TEMPORARY_PATH_SIZE];
    FILE *file = fopen(temporary_path(directory, "mine.json", path), "wb");
    fputs(good, file);
    fclose(file);
    assert_true(eg_space_is_file(path) && eg_space_is_file("a.json") && eg_space_is_file("./a"));
    assert_false(eg_space_is_file("cells") || eg_space_is_file("json") || eg_space_is_file(NULL));
    eg_space_options o = {.struct_size = sizeof o, .input = EG_SHAPE(4), .classes = 3};
    eg_module *m = eg_space_build(ctx, path, &o);
    assert_made(m);
    assert_int_equal(eg_layer_choice_size(eg_module_find(m, "0")), 2);
    eg_module_release(m);
    char *text = eg_space_json(ctx, path, NULL, false);
    json_t *a = json_loads(good, 0, NULL), *b = json_loads(text, 0, NULL);
    assert_true(json_equal(a, b));
    json_decref(a), json_decref(b);
    eg_free(text);
    o.input = EG_SHAPE(1, 28, 28);
    o.classes = 10;
    assert_refused(eg_space_build(ctx, path, &o), EG_ESHAPE,
                   "mine.json': is for an input of (4) and 3 classes, but the data has (1, 28, 28) and 10");
    assert_refused(eg_space_build(ctx, "no/such/file", &o), EG_ENOENT, "no/such/file");
    temporary_remove(directory);
}

/* A person's edit: a candidate less, another kernel. */
static void test_edited(void **state)
{
    (void)state;
    eg_space_options o = options_of(EG_SHAPE(1, 8, 8), 3);
    char *file = eg_space_json(ctx, "cells", &o, true);
    json_t *json = json_loads(file, 0, NULL);
    json_t *cell = json_array_get(json_object_get(json_object_get(json, "model"), "modules"), 1);
    json_t *named = json_object_get(json_object_get(json_object_get(cell, "children"), "op1"), "named");
    assert_int_equal(json_object_del(named, "maxpool"), 0);
    json_t *conv = json_array_get(json_object_get(json_object_get(named, "sep5x5"), "modules"), 0);
    json_object_set_new(conv, "kernel_size", json_integer(7));
    json_object_set_new(conv, "padding", json_integer(3));
    char *edited = json_dumps(json, 0);
    eg_module *m = eg_space_from_json(ctx, edited, NULL);
    assert_made(m);
    assert_int_equal(eg_layer_choice_size(eg_module_find(m, "1.op1")), 4);
    assert_string_equal(eg_layer_choice_name(eg_module_find(m, "1.op1"), 3), "skip");
    eg_module_release(m);
    json_object_set_new(conv, "padding", json_integer(2));
    free(edited);
    edited = json_dumps(json, 0);
    assert_refused(eg_space_from_json(ctx, edited, NULL), EG_ESHAPE, "space 'cells': the model does not run: ");
    free(edited);
    json_decref(json);
    eg_free(file);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *old, *new;
        eg_status status;
        const char *part;
    } cases[] = {
        {"engraft-space/1", "engraft-space/2", EG_EFORMAT, "'format' is 'engraft-space/2', expected 'engraft-space/1'"},
        {"\"format\": \"engraft-space/1\",", "", EG_EFORMAT, "'format' is '', expected"},
        {"\"name\": \"mine\"", "\"name\": 3", EG_EFORMAT, "'name' is no text"},
        {"\"name\"", "\"nmae\"", EG_EFORMAT, "no member 'nmae' (did you mean 'name'"},
        {"[4]", "[]", EG_EFORMAT, "'input' is no list of 1 to 3 sizes"},
        {"[4]", "[4, 0]", EG_EFORMAT, "'input' is no list"},
        {"[4]", "[9999999, 9999999, 9999999]", EG_EFORMAT, "'input' is no list"},
        {"[4]", "\"4\"", EG_EFORMAT, "'input' is no list"},
        {"\"classes\": 3", "\"classes\": 0", EG_EFORMAT, "'classes' is no whole number from 1 to 1048576"},
        {"\"model\"", "\"source\": \"a\", \"help\": \"b\", \"$schema\": \"c\", \"modle\"", EG_EFORMAT,
         "no member 'modle'"},
        {"\"class\": \"Linear\", \"in_features\": 4, \"out_features\": 4", "\"class\": \"Linear\"", EG_EINVAL,
         "space 'mine': model.modules[0].named.thin: Linear: 'in_features'"},
        {"\"out_features\": 4", "\"out_features\": 5", EG_ESHAPE, "space 'mine': the model does not run: "},
        {"\"out_features\": 3", "\"out_features\": 7", EG_ESHAPE,
         "the model gives (1, 7) for an input of (1, 4), expected (1, 3): a number for each class"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = with(cases[i].old, cases[i].new);
        eg_module *m = eg_space_from_json(ctx, text, NULL);
        const eg_error *error = eg_error_last();
        if (m != NULL || error->code != cases[i].status || !strstr(error->message, cases[i].part))
            fail_msg("%s: \"%s\" (%s), expected \"%s\"", text, error->message, eg_status_name(error->code),
                     cases[i].part);
        eg_error_clear();
        free(text);
    }
    eg_space_options o = {.struct_size = sizeof o, .input = EG_SHAPE(4), .classes = 3, .layers = 2};
    assert_refused(eg_space_from_json(ctx, good, &o), EG_EINVAL,
                   "channels, layers, drop_path and vocabulary are what the file says");
    o.layers = 0;
    o.vocabulary = 5;
    assert_refused(eg_space_from_json(ctx, good, &o), EG_EINVAL, "vocabulary are what the file says");
    assert_refused(eg_space_from_json(ctx, "{", NULL), EG_EFORMAT, "line 1");
    assert_refused(eg_space_from_json(ctx, "[]", NULL), EG_EFORMAT, "no JSON object");
    assert_refused(eg_space_from_json(NULL, "[]", NULL), EG_EINVAL, "context is NULL");
    assert_refused(eg_space_json(ctx, "cell", NULL, false), EG_ENOENT, "did you mean 'cells'");
}

/* ---- the schema ---- */

/* Looks whether a value is as a schema of the kinds that are written says: enough of JSON Schema for these. */
static bool conforms(const json_t *root, const json_t *schema, const json_t *value);

static bool has_type(const json_t *type, const json_t *value)
{
    size_t i;
    json_t *item;
    json_array_foreach(type, i, item)
    {
        if (has_type(item, value))
            return true;
    }
    const char *name = json_string_value(type);
    return name != NULL && ((strcmp(name, "object") == 0 && json_is_object(value)) ||
                            (strcmp(name, "array") == 0 && json_is_array(value)) ||
                            (strcmp(name, "string") == 0 && json_is_string(value)) ||
                            (strcmp(name, "integer") == 0 && json_is_integer(value)) ||
                            (strcmp(name, "number") == 0 && json_is_number(value)) ||
                            (strcmp(name, "boolean") == 0 && json_is_boolean(value)) ||
                            (strcmp(name, "null") == 0 && json_is_null(value)));
}

static bool any_conforms(const json_t *root, const json_t *list, const json_t *value)
{
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)list, i, item)
    {
        if (conforms(root, item, value))
            return true;
    }
    return false;
}

static bool contains(const json_t *list, const json_t *value)
{
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)list, i, item)
    {
        if (json_equal(item, value))
            return true;
    }
    return false;
}

static bool object_conforms(const json_t *root, const json_t *schema, const json_t *value)
{
    size_t i;
    const char *key;
    json_t *item;
    json_array_foreach(json_object_get(schema, "required"), i, item)
    {
        if (json_object_get(value, json_string_value(item)) == NULL)
            return false;
    }
    const json_t *others = json_object_get(schema, "additionalProperties");
    json_object_foreach((json_t *)(uintptr_t)value, key, item)
    {
        const json_t *own = json_object_get(json_object_get(schema, "properties"), key);
        if (own != NULL ? !conforms(root, own, item)
                        : json_is_false(others) || (json_is_object(others) && !conforms(root, others, item)))
            return false;
    }
    return true;
}

static bool list_conforms(const json_t *root, const json_t *schema, const json_t *value)
{
    size_t i, n = json_array_size(value);
    json_t *item;
    const json_t *max = json_object_get(schema, "maxItems"), *items = json_object_get(schema, "items");
    if (n < (size_t)json_integer_value(json_object_get(schema, "minItems")) ||
        (max != NULL && n > (size_t)json_integer_value(max)))
        return false;
    json_array_foreach((json_t *)(uintptr_t)value, i, item)
    {
        if (!conforms(root, items, item))
            return false;
    }
    return true;
}

static bool conforms(const json_t *root, const json_t *schema, const json_t *value)
{
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    if (ref != NULL) {
        assert_int_equal(strncmp(ref, "#/$defs/", 8), 0);
        const json_t *target = json_object_get(json_object_get(root, "$defs"), ref + 8);
        assert_non_null(target);
        return conforms(root, target, value);
    }
    const json_t *type = json_object_get(schema, "type"), *any = json_object_get(schema, "anyOf"),
                 *constant = json_object_get(schema, "const"), *list = json_object_get(schema, "enum"),
                 *min = json_object_get(schema, "minimum"), *max = json_object_get(schema, "maximum");
    if ((type != NULL && !has_type(type, value)) || (any != NULL && !any_conforms(root, any, value)) ||
        (constant != NULL && !json_equal(constant, value)) || (list != NULL && !contains(list, value)))
        return false;
    if (json_is_number(value) && ((min != NULL && json_number_value(value) < json_number_value(min)) ||
                                  (max != NULL && json_number_value(value) > json_number_value(max))))
        return false;
    return json_is_object(value)  ? object_conforms(root, schema, value)
           : json_is_array(value) ? list_conforms(root, schema, value)
                                  : true;
}

static char *committed_schema(void)
{
    FILE *file = fopen(EG_SOURCE_DIR "/docs/space.schema.json", "rb");
    assert_non_null(file);
    char *text = calloc(1, 1 << 18);
    assert_true(fread(text, 1, (1 << 18) - 1, file) > 0);
    fclose(file);
    return text;
}

static void test_schema_is_current(void **state)
{
    (void)state;
    char *schema = eg_space_schema(ctx), *committed = committed_schema();
    assert_made(schema);
    if (strcmp(schema, committed) != 0)
        fail_msg("docs/space.schema.json is old: engraft spaces --schema > docs/space.schema.json");
    eg_free(schema);
    free(committed);
    assert_refused(eg_space_schema(NULL), EG_EINVAL, "context");
}

static void test_schema_fits_files(void **state)
{
    (void)state;
    char *text = eg_space_schema(ctx);
    json_t *schema = json_loads(text, 0, NULL);
    assert_non_null(schema);
    for (size_t i = 0; eg_spaces()[i] != NULL; i++) {
        eg_space_options o = options_of(EG_SHAPE(3, 16, 16), 5);
        char *file = eg_space_json(ctx, eg_spaces()[i]->name, &o, true);
        json_t *json = json_loads(file, 0, NULL);
        if (!conforms(schema, schema, json))
            fail_msg("the file of %s is not as the schema says", eg_spaces()[i]->name);
        json_decref(json);
        eg_free(file);
    }
    static const char *const edits[][2] = {{"engraft-space/1", "other"},
                                           {"\"name\"", "\"nmae\""},
                                           {"[4]", "[0]"},
                                           {"\"Identity\"", "\"Identify\""},
                                           {"\"in_features\"", "\"in\""},
                                           {"\"out_features\": 4", "\"no_bias\": true"},
                                           {"\"key\": \"op\"", "\"x\": 1"},
                                           {"\"in_features\": 4", "\"in_features\": 0"}};
    json_t *json = json_loads(good, 0, NULL);
    assert_true(conforms(schema, schema, json));
    json_decref(json);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        char *edited = with(edits[i][0], edits[i][1]);
        json = json_loads(edited, 0, NULL);
        assert_non_null(json);
        if (conforms(schema, schema, json))
            fail_msg("the schema allows %s", edited);
        if (eg_space_from_json(ctx, edited, NULL) != NULL)
            fail_msg("the loader allows %s", edited);
        json_decref(json);
        free(edited);
    }
    eg_error_clear();
    json_decref(schema);
    eg_free(text);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_built_in_spaces),
        TEST(test_files),
        TEST(test_edited),
        TEST(test_refused),
        TEST(test_schema_is_current),
        TEST(test_schema_fits_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * nas/spaces/schema.c - what a file of a space may hold, as a JSON Schema, from the tables of the classes' fields.
 */
#include "nas/internal.h"
#include "nn/json.h"

#include <string.h>

/* A failure is remembered in the object that all hangs from: it stays NULL. */
static json_t *with(json_t *object, const char *key, json_t *value)
{
    if (object != NULL && json_object_set_new(object, key, value) == 0)
        return object;
    if (object == NULL)
        json_decref(value);
    json_decref(object);
    return NULL;
}

static json_t *of_type(const char *type)
{
    return with(json_object(), "type", json_string(type));
}

static json_t *reference(const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "#/$defs/%s", name);
    return with(json_object(), "$ref", json_string(path));
}

/* A number of the field's range, of which a size in two dimensions has its own in any case. */
static json_t *ranged(const eg_field *field, const char *type)
{
    json_t *schema = of_type(type);
    bool hw = field->type == EG_FIELD_HW, any = field->min == 0 && field->max == 0, open = field->max <= field->min;
    if (hw || !any)
        schema = with(schema, "minimum", eg__number_json(field->min));
    if ((hw || !any) && !open)
        schema = with(schema, "maximum", eg__number_json(field->max));
    return schema;
}

static json_t *list_of(json_t *items, int min, int max)
{
    json_t *schema = with(with(of_type("array"), "items", items), "minItems", json_integer(min));
    return max > 0 ? with(schema, "maxItems", json_integer(max)) : schema;
}

static json_t *either(json_t *a, json_t *b)
{
    return with(json_object(), "anyOf", json_pack("[o, o]", a, b));
}

/* A number, or a choice of numbers. */
static json_t *open(json_t *schema)
{
    return either(schema, reference("value_choice"));
}

/* What a field holds. Of texts, lists and options null is the same as nothing. */
static json_t *value_schema(const eg_field *field)
{
    switch (field->type) {
    case EG_FIELD_INT:
        return open(ranged(field, "integer"));
    case EG_FIELD_HW:
        return open(either(ranged(field, "integer"), list_of(ranged(field, "integer"), 2, 2)));
    case EG_FIELD_SHAPE:
        return list_of(json_pack("{s:s, s:i}", "type", "integer", "minimum", 1), 1, EG_MAX_DIMS);
    case EG_FIELD_FLOAT:
        return open(ranged(field, "number"));
    case EG_FIELD_OPT_FLOAT:
        return open(either(ranged(field, "number"), of_type("null")));
    case EG_FIELD_BOOL:
        return of_type("boolean");
    case EG_FIELD_TEXT:
        return with(json_object(), "type", json_pack("[s, s]", "string", "null"));
    case EG_FIELD_TEXTS:
        return either(list_of(of_type("string"), 0, 0), of_type("null"));
    case EG_FIELD_ENUM:
        return with(json_object(), "enum", eg__texts_json(field->values));
    case EG_FIELD_MODULES:
        return list_of(reference("place"), 0, 0);
    case EG_FIELD_NAMED:
        return with(of_type("object"), "additionalProperties", reference("place"));
    }
    return NULL;
}

/* Whether a module cannot be made without it: 0, which it would be, is not in its range. */
static bool is_required(const eg_field *field)
{
    bool sized = field->type == EG_FIELD_INT || field->type == EG_FIELD_HW;
    return field->type == EG_FIELD_SHAPE || (sized && field->def == 0 && field->min > 0);
}

static json_t *field_schema(const eg_field *field)
{
    json_t *schema = value_schema(field);
    if (field->help != NULL)
        schema = with(schema, "description", json_string(field->help));
    if (field->def != 0 && field->type == EG_FIELD_ENUM)
        return with(schema, "default", json_string(field->values[(int)field->def]));
    return field->def != 0 ? with(schema, "default", eg__number_json(field->def)) : schema;
}

static json_t *class_schema(const eg_class *cls)
{
    json_t *properties = with(json_object(), "class", json_pack("{s:s}", "const", cls->name)), *required = json_array();
    properties = with(properties, "id", of_type("string"));
    int failed = json_array_append_new(required, json_string("class"));
    const eg_field *field;
    bool list = false;
    for (size_t i = 0; (field = eg__field_at(cls, i)) != NULL; i++) {
        properties = with(properties, field->name, field_schema(field));
        list = list || field->type == EG_FIELD_MODULES || field->type == EG_FIELD_NAMED;
        if (is_required(field))
            failed |= json_array_append_new(required, json_string(field->name));
    }
    if (!list)
        properties = with(properties, "children", reference("children"));
    if (failed != 0) {
        json_decref(required);
        required = NULL;
    }
    return with(with(with(of_type("object"), "properties", properties), "required", required), "additionalProperties",
                json_false());
}

static json_t *described(json_t *schema, const char *description)
{
    return with(schema, "description", json_string(description));
}

/* What stands in the place of a number that is searched for. */
static json_t *value_choice_schema(void)
{
    json_t *p = with(json_object(), "value_choice", list_of(of_type("number"), 1, EG__MAX_VALUES));
    p = with(with(p, "key", of_type("string")), "fixed", of_type("string"));
    json_t *schema = with(described(of_type("object"), "one of these numbers: choices of one key are one decision"),
                          "properties", p);
    return with(with(schema, "required", json_pack("[s]", "value_choice")), "additionalProperties", json_false());
}

/* The definitions, and a module as any of them. */
static json_t *definitions(const eg_context *ctx)
{
    json_t *defs = json_object(), *any = json_array();
    const eg_class *cls;
    int failed = 0;
    for (size_t i = 0; (cls = eg_context_class_at(ctx, i)) != NULL; i++) {
        defs = with(defs, cls->name, class_schema(cls));
        failed |= json_array_append_new(any, reference(cls->name));
    }
    failed |= json_array_append_new(any, reference("again"));
    defs = with(defs, "module", with(json_object(), "anyOf", any));
    defs = with(defs, "value_choice", value_choice_schema());
    defs = with(defs, "place", either(reference("module"), of_type("null")));
    defs = with(defs, "again",
                json_pack("{s:s, s:s, s:{s:{s:s}}, s:[s], s:b}", "description", "the module of that id, here as well",
                          "type", "object", "properties", "ref", "type", "string", "required", "ref",
                          "additionalProperties", 0));
    defs = with(defs, "children",
                json_pack("{s:s, s:s, s:o}", "description",
                          "by path, those that are not as the class makes them; null empties the place", "type",
                          "object", "additionalProperties", reference("place")));
    if (failed == 0)
        return defs;
    json_decref(defs);
    return NULL;
}

static json_t *file_properties(void)
{
    json_t *p = with(json_object(), "$schema", of_type("string"));
    p = with(p, "format", json_pack("{s:s}", "const", EG__SPACE_FORMAT));
    p = with(p, "name", of_type("string"));
    p = with(p, "help", of_type("string"));
    p = with(p, "source", described(of_type("string"), "where it comes from: a paper"));
    p = with(p, "input",
             described(list_of(json_pack("{s:s, s:i}", "type", "integer", "minimum", 1), 1, 3),
                       "sizes of a sample: [channels, height, width], or [features]"));
    p = with(p, "classes",
             json_pack("{s:s, s:i, s:i}", "type", "integer", "minimum", 1, "maximum", EG__SPACE_MAX_CLASSES));
    return with(p, "model", reference("module"));
}

static json_t *schema_json(const eg_context *ctx)
{
    json_t *schema = with(json_object(), "$schema", json_string("https://json-schema.org/draft/2020-12/schema"));
    schema = with(schema, "title", json_string("A search space of engraft"));
    schema = with(schema, "type", json_string("object"));
    schema = with(schema, "properties", file_properties());
    schema = with(schema, "required", json_pack("[s, s, s, s]", "format", "input", "classes", "model"));
    schema = with(schema, "additionalProperties", json_false());
    return with(schema, "$defs", definitions(ctx));
}

static eg_status check_helps(const eg_context *ctx)
{
    const eg_class *cls;
    for (size_t i = 0; (cls = eg_context_class_at(ctx, i)) != NULL; i++) {
        const eg_field *field;
        for (size_t k = 0; (field = eg__field_at(cls, k)) != NULL; k++)
            EG_CHECK(field->help == NULL || eg__is_utf8(field->help), EG_EINVAL,
                     "class %s: the help of '%s' is no UTF-8", cls->name, field->name);
    }
    return EG_OK;
}

char *eg_space_schema(eg_context *ctx)
{
    if (ctx == NULL)
        return eg__null(__func__, "context");
    if (eg_nas_register(ctx) != EG_OK || check_helps(ctx) != EG_OK)
        return NULL;
    json_t *schema = schema_json(ctx);
    char *text = schema != NULL ? eg__json_layout(schema) : NULL;
    if (schema == NULL)
        eg_fail(EG_ENOMEM, "out of memory: a schema");
    json_decref(schema);
    return text;
}

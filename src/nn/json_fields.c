/*
 * Values of fields as JSON, and back. What a field can hold in a file is said here alone: see also the schema, which
 * describes the same.
 */
#include "nn/internal.h"
#include "nn/json.h"

#include <math.h>
#include <string.h>

#define VALUE(type, instance, field) (*(type *)(void *)((char *)(uintptr_t)(instance) + (field)->offset))

/* ---- writing ---- */

json_t *eg__number_json(double value)
{
    if (value == floor(value) && fabs(value) < 1e15)
        return json_integer((json_int_t)value);
    return json_real(value);
}

static json_t *hw_json(eg_hw value)
{
    json_int_t h = (json_int_t)eg_hw_h(value), w = (json_int_t)eg_hw_w(value);
    return h == w ? json_integer(h) : json_pack("[I, I]", h, w);
}

json_t *eg__shape_json(const eg_shape *shape)
{
    json_t *list = json_array();
    for (int d = 0; d < shape->ndim; d++) {
        if (json_array_append_new(list, json_integer((json_int_t)shape->dims[d])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *eg__texts_json(const char *const *texts)
{
    json_t *list = json_array();
    for (size_t i = 0; texts[i] != NULL; i++) {
        if (json_array_append_new(list, json_string(texts[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* jansson takes UTF-8 only, and does not say why it takes a text no more than that it has no memory. */
static eg_status check_texts(const eg_module *m, const eg_field *field)
{
    const char *one[2] = {NULL, NULL}, *const *texts = one;
    if (field->type == EG_FIELD_TEXT)
        one[0] = VALUE(const char *, m, field);
    else if (field->type == EG_FIELD_TEXTS)
        texts = VALUE(const char *const *, m, field);
    for (size_t i = 0; texts[i] != NULL; i++)
        EG_CHECK(eg__is_utf8(texts[i]), EG_EINVAL, "%s: '%s' is no UTF-8", m->cls->name, field->name);
    return EG_OK;
}

static json_t *field_json(const eg_module *m, const eg_field *field)
{
    switch (field->type) {
    case EG_FIELD_INT:
        return json_integer((json_int_t)VALUE(int64_t, m, field));
    case EG_FIELD_HW:
        return hw_json(VALUE(eg_hw, m, field));
    case EG_FIELD_SHAPE:
        return eg__shape_json(&VALUE(eg_shape, m, field));
    case EG_FIELD_FLOAT:
        return eg__number_json(VALUE(double, m, field));
    case EG_FIELD_OPT_FLOAT:
        return eg__number_json(VALUE(eg_opt_f64, m, field).value);
    case EG_FIELD_BOOL:
        return json_boolean(VALUE(bool, m, field));
    case EG_FIELD_ENUM:
        return json_string(field->values[VALUE(int, m, field)]);
    case EG_FIELD_TEXT:
        return json_string(VALUE(const char *, m, field));
    case EG_FIELD_TEXTS:
        return eg__texts_json(VALUE(const char *const *, m, field));
    default:
        return NULL;
    }
}

/* A number that JSON cannot write: it has no infinities. */
static bool is_writable(const eg_module *m, const eg_field *field)
{
    return field->type == EG_FIELD_FLOAT       ? isfinite(VALUE(double, m, field))
           : field->type == EG_FIELD_OPT_FLOAT ? isfinite(VALUE(eg_opt_f64, m, field).value)
                                               : true;
}

static eg_status put(json_t *object, const eg_field *field, json_t *value)
{
    EG_CHECK(json_object_set_new(object, field->name, value) == 0, EG_ENOMEM, "out of memory: a module as JSON");
    return EG_OK;
}

static eg_status open_to_json(const eg_module *value, const eg_field *field, json_t *object)
{
    json_t *json = eg__open_class_of(value)->to_json(value);
    return json != NULL ? put(object, field, json) : eg_error_last()->code;
}

static eg_status field_to_json(const eg_module *m, const eg_field *field, json_t *object)
{
    const eg_module *open = eg__open_field(m, field->name);
    if (open != NULL)
        return open_to_json(open, field, object);
    if (eg__field_is_default(m, field))
        return EG_OK;
    EG_TRY(check_texts(m, field));
    EG_CHECK(is_writable(m, field), EG_EINVAL, "%s: '%s' is not finite, which JSON cannot say", m->cls->name,
             field->name);
    return put(object, field, field_json(m, field));
}

eg_status eg__fields_to_json(const eg_module *m, json_t *object)
{
    const eg_field *field;
    for (size_t i = 0; (field = eg__field_at(m->cls, i)) != NULL; i++)
        EG_TRY(field_to_json(m, field, object));
    return EG_OK;
}

/* ---- reading ---- */

/* The value itself, cut, for messages. */
static const char *shown(const json_t *value, char text[48])
{
    if (json_is_object(value) || json_is_array(value)) {
        snprintf(text, 48, "%s", json_is_array(value) ? "a list" : "an object");
        return text;
    }
    char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    snprintf(text, 48, "%.40s%s", dump != NULL ? dump : "?", dump != NULL && strlen(dump) > 40 ? ".." : "");
    eg_free(dump);
    return text;
}

static eg_status wrong(const char *path, const json_t *value, const char *expected)
{
    char text[48];
    return eg_fail(EG_EFORMAT, "%s: is %s, expected %s", path, shown(value, text), expected);
}

/* A 0 would silently become the default. */
static eg_status check_zero(const eg_field *field, bool zero, const char *path)
{
    EG_CHECK(!zero || field->def == 0, EG_EFORMAT, "%s: is 0, which cannot be asked for (left out, it is %g)", path,
             field->def);
    return EG_OK;
}

/* Handles are for programs: in a file they would mean what some program has made. */
static eg_status check_handle(const json_t *value, const char *path)
{
    return eg__open_is_handle(json_number_value(value)) ? wrong(path, value, "less than 2^52") : EG_OK;
}

static eg_status read_int(void *instance, const eg_field *field, const json_t *value, const char *path)
{
    if (!json_is_integer(value))
        return wrong(path, value, "a whole number");
    EG_TRY(check_handle(value, path));
    VALUE(int64_t, instance, field) = json_integer_value(value);
    return check_zero(field, json_integer_value(value) == 0, path);
}

static eg_status read_hw(void *instance, const eg_field *field, const json_t *value, const char *path)
{
    int64_t hw[2];
    bool list = json_is_array(value) && json_array_size(value) == 2;
    for (size_t i = 0; i < 2; i++) {
        const json_t *item = list ? json_array_get(value, i) : value;
        if (!json_is_integer(item))
            return wrong(path, value, "a whole number, or a list of two (height, width)");
        hw[i] = json_integer_value(item);
    }
    VALUE(eg_hw, instance, field) = hw[0] == hw[1] ? EG_MIN(hw[0], (int64_t)EG__MAX_HW + 1) : EG_HW(hw[0], hw[1]);
    return check_zero(field, hw[0] == 0 && hw[1] == 0, path);
}

static eg_status read_shape(void *instance, const eg_field *field, const json_t *value, const char *path)
{
    eg_shape *shape = &VALUE(eg_shape, instance, field);
    size_t n = json_array_size(value);
    if (!json_is_array(value) || n < 1 || n > EG_MAX_DIMS)
        return wrong(path, value, "a list of 1 to 8 sizes");
    shape->ndim = (int)n;
    for (size_t i = 0; i < n; i++) {
        if (!json_is_integer(json_array_get(value, i)))
            return wrong(path, value, "a list of whole numbers");
        shape->dims[i] = json_integer_value(json_array_get(value, i));
    }
    return EG_OK;
}

static eg_status read_float(void *instance, const eg_field *field, const json_t *value, const char *path)
{
    double number = json_number_value(value);
    if (!json_is_number(value))
        return wrong(path, value, "a number");
    EG_TRY(check_handle(value, path));
    if (field->type == EG_FIELD_OPT_FLOAT) {
        VALUE(eg_opt_f64, instance, field) = EG_F64(number);
        return EG_OK;
    }
    VALUE(double, instance, field) = number;
    return check_zero(field, number == 0, path);
}

static eg_status read_enum(void *instance, const eg_field *field, const json_t *value, const char *path)
{
    const char *name = json_string_value(value);
    char expected[200] = "one of ";
    for (int i = 0; field->values[i] != NULL; i++) {
        if (name != NULL && strcmp(field->values[i], name) == 0) {
            VALUE(int, instance, field) = i;
            return check_zero(field, i == 0, path);
        }
        size_t used = strlen(expected);
        snprintf(expected + used, sizeof(expected) - used, "%s'%s'", i == 0 ? "" : ", ", field->values[i]);
    }
    return wrong(path, value, expected);
}

static eg_status read_texts(void *instance, const eg_field *field, const json_t *value, const char *path)
{
    size_t n = json_array_size(value);
    bool good = json_is_array(value) && n <= EG__JSON_MAX_LIST;
    for (size_t i = 0; good && i < n; i++)
        good = json_is_string(json_array_get(value, i));
    if (!good)
        return wrong(path, value, "a list of texts");
    const char **texts = eg__calloc(n + 1, sizeof(*texts));
    if (texts == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < n; i++)
        texts[i] = json_string_value(json_array_get(value, i));
    VALUE(const char *const *, instance, field) = texts;
    return EG_OK;
}

static eg_status read_open(eg_module *prototype, const eg_field *field, const json_t *value, const char *path)
{
    eg_status status = eg__open_read(prototype, field, value);
    return status == EG_OK ? EG_OK : eg__fail_prefix(status, "%s", path);
}

eg_status eg__field_from_json(void *instance, const eg_field *field, const json_t *value, const char *path)
{
    bool may_be_null =
        field->type == EG_FIELD_OPT_FLOAT || field->type == EG_FIELD_TEXT || field->type == EG_FIELD_TEXTS;
    if (json_is_null(value) && may_be_null)
        return EG_OK;
    if (json_is_object(value) && eg__field_is_number(field))
        return read_open(instance, field, value, path);
    switch (field->type) {
    case EG_FIELD_INT:
        return read_int(instance, field, value, path);
    case EG_FIELD_HW:
        return read_hw(instance, field, value, path);
    case EG_FIELD_SHAPE:
        return read_shape(instance, field, value, path);
    case EG_FIELD_FLOAT:
    case EG_FIELD_OPT_FLOAT:
        return read_float(instance, field, value, path);
    case EG_FIELD_BOOL:
        VALUE(bool, instance, field) = json_is_true(value);
        return json_is_boolean(value) ? EG_OK : wrong(path, value, "true or false");
    case EG_FIELD_ENUM:
        return read_enum(instance, field, value, path);
    case EG_FIELD_TEXT:
        VALUE(const char *, instance, field) = json_string_value(value);
        return json_is_string(value) ? EG_OK : wrong(path, value, "a text");
    case EG_FIELD_TEXTS:
        return read_texts(instance, field, value, path);
    default:
        return EG_OK;
    }
}

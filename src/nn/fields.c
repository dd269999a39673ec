/*
 * The table of a class's fields, read: defaults, ranges, copies, comparison, text.
 */
#include "nn/internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *at(const eg_module *m, const eg_field *field)
{
    return (char *)(uintptr_t)m + field->offset;
}
#define VALUE(type, m, field) (*(type *)at(m, field))

static size_t own_fields(const eg_class *cls)
{
    size_t n = 0;
    while (cls->fields != NULL && cls->fields[n].name != NULL)
        n++;
    return n;
}

const eg_field *eg__field_at(const eg_class *cls, size_t i)
{
    size_t inherited = 0;
    for (const eg_class *c = cls->super; c != NULL; c = c->super)
        inherited += own_fields(c);
    if (i < inherited)
        return eg__field_at(cls->super, i);
    return i - inherited < own_fields(cls) ? &cls->fields[i - inherited] : NULL;
}

/* ---- defaults and ranges ---- */

static void fill_default(eg_module *m, const eg_field *field)
{
    switch (field->type) {
    case EG_FIELD_INT:
    case EG_FIELD_HW:
        if (VALUE(int64_t, m, field) == 0)
            VALUE(int64_t, m, field) = (int64_t)field->def;
        break;
    case EG_FIELD_FLOAT:
        if (VALUE(double, m, field) == 0)
            VALUE(double, m, field) = field->def;
        break;
    case EG_FIELD_OPT_FLOAT:
        if (!VALUE(eg_opt_f64, m, field).set)
            VALUE(eg_opt_f64, m, field) = EG_F64(field->def);
        break;
    case EG_FIELD_ENUM:
        if (VALUE(int, m, field) == 0)
            VALUE(int, m, field) = (int)field->def;
        break;
    default:
        break;
    }
}

static eg_status check_range(const eg_module *m, const eg_field *field, double value)
{
    bool unbounded = field->min == 0 && field->max == 0;
    bool above = field->max < field->min;
    if (!isnan(value) && (unbounded || (value >= field->min && (above || value <= field->max))))
        return EG_OK;
    char text[3][EG__NUMBER_TEXT_SIZE];
    double number[3] = {value, field->min, field->max};
    for (int i = 0; i < 3; i++) {
        if (field->type == EG_FIELD_INT)
            snprintf(text[i], sizeof(text[i]), "%.17g", number[i]);
        else
            eg__number_text(number[i], text[i]);
    }
    const char *cls = m->cls->name, *hint = value == 0 && field->min > 0 ? " (not given?)" : "";
    if (unbounded)
        return eg_fail(EG_EINVAL, "%s: '%s' is not a number", cls, field->name);
    if (above || field->max >= (double)INT64_MAX)
        return eg_fail(EG_EINVAL, "%s: '%s' is %s, expected at least %s%s", cls, field->name, text[0], text[1], hint);
    return eg_fail(EG_EINVAL, "%s: '%s' is %s, expected %s to %s%s", cls, field->name, text[0], text[1], text[2], hint);
}

/* Both sizes in the field's range, which ends at EG__MAX_HW in any case; equal ones are then kept as a plain number. */
static eg_status check_hw(eg_module *m, const eg_field *field)
{
    eg_hw *value = &VALUE(eg_hw, m, field);
    int64_t h = eg_hw_h(*value), w = eg_hw_w(*value);
    bool open = field->max <= field->min; /* also where both are 0 */
    int64_t min = (int64_t)field->min, max = open ? EG__MAX_HW : (int64_t)EG_MIN(field->max, EG__MAX_HW);
    char text[EG__NUMBER_TEXT_SIZE];
    EG_CHECK(h >= min && w >= min, EG_EINVAL, "%s: '%s' is %s, expected at least %" PRId64 "%s", m->cls->name,
             field->name, eg__hw_text(*value, true, text), min, *value == 0 ? " (not given?)" : "");
    EG_CHECK(h <= max && w <= max, EG_EINVAL, "%s: '%s' is %s, expected at most %" PRId64, m->cls->name, field->name,
             eg__hw_text(*value, true, text), max);
    if (h == w)
        *value = h;
    return EG_OK;
}

static eg_status check_shape(const eg_module *m, const eg_field *field)
{
    const eg_shape *value = &VALUE(eg_shape, m, field);
    EG_CHECK(value->ndim >= 1 && value->ndim <= EG_MAX_DIMS, EG_EINVAL, "%s: '%s' has %d sizes, expected 1 to %d%s",
             m->cls->name, field->name, value->ndim, EG_MAX_DIMS, value->ndim == 0 ? " (not given?)" : "");
    for (int d = 0; d < value->ndim; d++)
        EG_CHECK(value->dims[d] >= 1, EG_EINVAL, "%s: '%s' has a size of %" PRId64 ", expected at least 1",
                 m->cls->name, field->name, value->dims[d]);
    EG_CHECK(eg_shape_numel(*value) >= 0, EG_EINVAL, "%s: '%s' has more elements than can be counted", m->cls->name,
             field->name);
    return EG_OK;
}

static eg_status check_enum(const eg_module *m, const eg_field *field)
{
    int value = VALUE(int, m, field), n = 0;
    while (field->values[n] != NULL)
        n++;
    EG_CHECK(value >= 0 && value < n, EG_EINVAL, "%s: '%s' is %d, expected 0 to %d", m->cls->name, field->name, value,
             n - 1);
    return EG_OK;
}

eg_status eg__field_check(eg_module *m, const eg_field *field)
{
    switch (field->type) {
    case EG_FIELD_INT:
        return check_range(m, field, (double)VALUE(int64_t, m, field));
    case EG_FIELD_HW:
        return check_hw(m, field);
    case EG_FIELD_SHAPE:
        return check_shape(m, field);
    case EG_FIELD_FLOAT:
        return check_range(m, field, VALUE(double, m, field));
    case EG_FIELD_OPT_FLOAT:
        return check_range(m, field, VALUE(eg_opt_f64, m, field).value);
    case EG_FIELD_ENUM:
        return check_enum(m, field);
    default:
        return EG_OK;
    }
}

/* ---- texts, which modules own ---- */

static void free_texts(const char *const *texts)
{
    for (size_t i = 0; texts != NULL && texts[i] != NULL; i++)
        free((char *)(uintptr_t)texts[i]);
    free((void *)(uintptr_t)texts);
}

static const char *const *copy_texts(const char *const *texts)
{
    size_t n = 0;
    while (texts[n] != NULL)
        n++;
    const char **copy = eg__calloc(n + 1, sizeof(*copy));
    for (size_t i = 0; copy != NULL && i < n; i++) {
        copy[i] = eg__strdup(texts[i]);
        if (copy[i] != NULL)
            continue;
        free_texts(copy);
        return NULL;
    }
    return copy;
}

/* Puts copies of a field's texts into dst: NULL on failure. */
static eg_status copy_text(eg_module *dst, const eg_module *src, const eg_field *field)
{
    if (field->type == EG_FIELD_TEXT) {
        const char *text = VALUE(const char *, src, field);
        VALUE(const char *, dst, field) = eg__strdup(text);
        return text == NULL || VALUE(const char *, dst, field) != NULL ? EG_OK : EG_ENOMEM;
    }
    const char *const *texts = VALUE(const char *const *, src, field);
    VALUE(const char *const *, dst, field) = texts != NULL ? copy_texts(texts) : NULL;
    return texts == NULL || VALUE(const char *const *, dst, field) != NULL ? EG_OK : EG_ENOMEM;
}

static bool is_text(const eg_field *field)
{
    return field->type == EG_FIELD_TEXT || field->type == EG_FIELD_TEXTS;
}

eg_status eg__fields_init(eg_module *m)
{
    const eg_field *field;
    eg_status status = EG_OK;
    /* All texts are copied (or NULL) whatever else fails: eg__fields_free() may then be called in any case. */
    for (size_t i = 0; (field = eg__field_at(m->cls, i)) != NULL; i++) {
        if (is_text(field) && copy_text(m, m, field) != EG_OK)
            status = EG_ENOMEM;
    }
    for (size_t i = 0; status == EG_OK && (field = eg__field_at(m->cls, i)) != NULL; i++) {
        if (eg__open_take(m, field, &status))
            continue;
        fill_default(m, field);
        status = eg__open_check(m, field);
    }
    return status;
}

void eg__fields_free(eg_module *m)
{
    const eg_field *field;
    for (size_t i = 0; (field = eg__field_at(m->cls, i)) != NULL; i++) {
        if (field->type == EG_FIELD_TEXT) {
            free((char *)(uintptr_t)VALUE(const char *, m, field));
            VALUE(const char *, m, field) = NULL;
        } else if (field->type == EG_FIELD_TEXTS) {
            free_texts(VALUE(const char *const *, m, field));
            VALUE(const char *const *, m, field) = NULL;
        }
    }
}

/* ---- numbers ---- */

bool eg__field_is_number(const eg_field *field)
{
    return field->type == EG_FIELD_INT || field->type == EG_FIELD_HW || field->type == EG_FIELD_FLOAT ||
           field->type == EG_FIELD_OPT_FLOAT;
}

double eg__field_number(const eg_module *m, const eg_field *field)
{
    if (field->type == EG_FIELD_FLOAT)
        return VALUE(double, m, field);
    return field->type == EG_FIELD_OPT_FLOAT ? VALUE(eg_opt_f64, m, field).value : (double)VALUE(int64_t, m, field);
}

void eg__field_set_number(eg_module *m, const eg_field *field, double value)
{
    if (field->type == EG_FIELD_FLOAT)
        VALUE(double, m, field) = value;
    else if (field->type == EG_FIELD_OPT_FLOAT)
        VALUE(eg_opt_f64, m, field) = EG_F64(value);
    else
        VALUE(int64_t, m, field) = (int64_t)value;
}

/* ---- copies and comparison ---- */

static size_t field_size(eg_field_type type)
{
    switch (type) {
    case EG_FIELD_INT:
    case EG_FIELD_HW:
        return sizeof(int64_t);
    case EG_FIELD_SHAPE:
        return sizeof(eg_shape);
    case EG_FIELD_FLOAT:
        return sizeof(double);
    case EG_FIELD_OPT_FLOAT:
        return sizeof(eg_opt_f64);
    case EG_FIELD_BOOL:
        return sizeof(bool);
    case EG_FIELD_ENUM:
        return sizeof(int);
    case EG_FIELD_TEXT:
    case EG_FIELD_TEXTS:
        return sizeof(void *);
    default:
        return 0;
    }
}

void eg__field_lend(void *dst, const eg_module *src, const eg_field *field)
{
    memcpy((char *)dst + field->offset, at(src, field), field_size(field->type));
}

void eg__fields_lend(void *prototype, const eg_module *m)
{
    const eg_field *field;
    for (size_t i = 0; (field = eg__field_at(m->cls, i)) != NULL; i++)
        eg__field_lend(prototype, m, field);
}

eg_status eg__fields_copy(eg_module *dst, const eg_module *src)
{
    const eg_field *field;
    for (size_t i = 0; (field = eg__field_at(src->cls, i)) != NULL; i++) {
        if (is_text(field))
            EG_TRY(copy_text(dst, src, field));
        else
            memcpy(at(dst, field), at(src, field), field_size(field->type));
    }
    return EG_OK;
}

static bool equal_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool equal_texts(const char *const *a, const char *const *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    size_t i = 0;
    while (a[i] != NULL && equal_text(a[i], b[i]))
        i++;
    return a[i] == b[i]; /* both at their end */
}

static bool equal(const eg_module *a, const eg_module *b, const eg_field *field)
{
    switch (field->type) {
    case EG_FIELD_INT:
    case EG_FIELD_HW: /* equal sizes have one form since they were checked */
        return VALUE(int64_t, a, field) == VALUE(int64_t, b, field);
    case EG_FIELD_SHAPE:
        return eg_shape_equal(VALUE(eg_shape, a, field), VALUE(eg_shape, b, field));
    case EG_FIELD_FLOAT:
        return VALUE(double, a, field) == VALUE(double, b, field);
    case EG_FIELD_OPT_FLOAT:
        return VALUE(eg_opt_f64, a, field).value == VALUE(eg_opt_f64, b, field).value;
    case EG_FIELD_BOOL:
        return VALUE(bool, a, field) == VALUE(bool, b, field);
    case EG_FIELD_ENUM:
        return VALUE(int, a, field) == VALUE(int, b, field);
    case EG_FIELD_TEXT:
        return equal_text(VALUE(const char *, a, field), VALUE(const char *, b, field));
    case EG_FIELD_TEXTS:
        return equal_texts(VALUE(const char *const *, a, field), VALUE(const char *const *, b, field));
    default:
        return true;
    }
}

bool eg__fields_equal(const eg_module *a, const eg_module *b)
{
    const eg_field *field;
    for (size_t i = 0; (field = eg__field_at(a->cls, i)) != NULL; i++) {
        if (!equal(a, b, field))
            return false;
    }
    return eg__open_equal(a, b);
}

bool eg__field_is_default(const eg_module *m, const eg_field *field)
{
    switch (field->type) {
    case EG_FIELD_INT:
    case EG_FIELD_HW:
        return VALUE(int64_t, m, field) == (int64_t)field->def;
    case EG_FIELD_SHAPE:
        return false; /* it has none */
    case EG_FIELD_FLOAT:
        return VALUE(double, m, field) == field->def;
    case EG_FIELD_OPT_FLOAT:
        return VALUE(eg_opt_f64, m, field).value == field->def;
    case EG_FIELD_BOOL:
        return !VALUE(bool, m, field);
    case EG_FIELD_ENUM:
        return VALUE(int, m, field) == (int)field->def;
    case EG_FIELD_TEXT:
        return VALUE(const char *, m, field) == NULL;
    case EG_FIELD_TEXTS:
        return VALUE(const char *const *, m, field) == NULL;
    default:
        return true;
    }
}

/* ---- text ---- */

const char *eg__number_text(double value, char text[EG__NUMBER_TEXT_SIZE])
{
    if (!isfinite(value)) {
        snprintf(text, EG__NUMBER_TEXT_SIZE, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return text;
    }
    int digits = 0; /* after the first */
    do {
        snprintf(text, EG__NUMBER_TEXT_SIZE, "%.*e", digits, value);
    } while (strtod(text, NULL) != value && ++digits < 17);
    int exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16)
        snprintf(text, EG__NUMBER_TEXT_SIZE, "%.*f", EG_MAX(digits - exponent, 1), value);
    return text;
}

const char *eg__hw_text(eg_hw value, bool plain, char text[EG__NUMBER_TEXT_SIZE])
{
    int64_t h = eg_hw_h(value), w = eg_hw_w(value);
    if (plain && h == w)
        snprintf(text, EG__NUMBER_TEXT_SIZE, "%" PRId64, h);
    else
        snprintf(text, EG__NUMBER_TEXT_SIZE, "(%" PRId64 ", %" PRId64 ")", h, w);
    return text;
}

static void print_shape(const eg_shape *shape, eg__buf *buf)
{
    for (int d = 0; d < shape->ndim; d++)
        eg__buf_printf(buf, "%s%" PRId64, d == 0 ? "(" : ", ", shape->dims[d]);
    eg__buf_printf(buf, shape->ndim == 1 ? ",)" : ")");
}

static void print_texts(const char *const *texts, eg__buf *buf)
{
    for (size_t i = 0; texts != NULL && texts[i] != NULL; i++)
        eg__buf_printf(buf, "%s'%s'", i == 0 ? "[" : ", ", texts[i]);
    eg__buf_printf(buf, texts == NULL ? "None" : texts[0] == NULL ? "[]" : "]");
}

void eg__field_print(const eg_module *m, const eg_field *field, eg__buf *buf)
{
    char text[EG__NUMBER_TEXT_SIZE];
    switch (field->type) {
    case EG_FIELD_INT:
        eg__buf_printf(buf, "%" PRId64, VALUE(int64_t, m, field));
        break;
    case EG_FIELD_HW:
        eg__buf_printf(buf, "%s", eg__hw_text(VALUE(eg_hw, m, field), false, text));
        break;
    case EG_FIELD_SHAPE:
        print_shape(&VALUE(eg_shape, m, field), buf);
        break;
    case EG_FIELD_FLOAT:
        eg__buf_printf(buf, "%s", eg__number_text(VALUE(double, m, field), text));
        break;
    case EG_FIELD_OPT_FLOAT:
        eg__buf_printf(buf, "%s", eg__number_text(VALUE(eg_opt_f64, m, field).value, text));
        break;
    case EG_FIELD_BOOL:
        eg__buf_printf(buf, "%s", VALUE(bool, m, field) ? "True" : "False");
        break;
    case EG_FIELD_ENUM:
        eg__buf_printf(buf, "'%s'", field->values[VALUE(int, m, field)]);
        break;
    case EG_FIELD_TEXT: {
        const char *value = VALUE(const char *, m, field);
        eg__buf_printf(buf, value == NULL ? "%s" : "'%s'", value == NULL ? "None" : value);
        break;
    }
    case EG_FIELD_TEXTS:
        print_texts(VALUE(const char *const *, m, field), buf);
        break;
    default:
        break;
    }
}

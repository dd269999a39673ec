/*
 * nas/value_choice.c - a number that is decided by a mutator, in the place of a constant.
 */
#include "nas/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static eg_status check_values(const char *key, const double *values, size_t n)
{
    EG_CHECK(values != NULL && n >= 1 && n <= EG__MAX_VALUES, EG_EINVAL,
             "value choice '%s': %zu values, expected 1 to %d", key, values != NULL ? n : 0, EG__MAX_VALUES);
    for (size_t i = 0; i < n; i++) {
        EG_CHECK(isfinite(values[i]), EG_EINVAL, "value choice '%s': value %zu is not a finite number", key, i);
        EG_CHECK(fabs(values[i]) < EG__OPEN_LIMIT, EG_EINVAL,
                 "value choice '%s': value %zu is %g, expected less than 2^52 in size", key, i, values[i]);
        for (size_t k = 0; k < i; k++)
            EG_CHECK(values[i] != values[k], EG_EINVAL, "value choice '%s': %g is there twice", key, values[i]);
    }
    return EG_OK;
}

static eg_status set_values(eg_value_choice *choice, const double *values, size_t n)
{
    choice->values = NULL;
    choice->n_values = 0;
    double *copy = eg__calloc(n, sizeof(*copy));
    if (copy == NULL)
        return EG_ENOMEM;
    memcpy(copy, values, n * sizeof(*copy));
    choice->values = copy;
    choice->n_values = n;
    return EG_OK;
}

static eg_status build(eg_module *self)
{
    eg_value_choice *choice = (eg_value_choice *)self;
    const double *given = choice->values;
    choice->values = NULL; /* the caller's, not ours to free when what follows fails */
    EG_TRY(eg__mutable_take_key(self));
    EG_TRY(check_values(choice->key, given, choice->n_values));
    EG_TRY(set_values(choice, given, choice->n_values));
    return eg__choice_take_fixed(self);
}

static eg_status copy(eg_module *dst, const eg_module *src)
{
    const eg_value_choice *choice = (const eg_value_choice *)src;
    return set_values((eg_value_choice *)dst, choice->values, choice->n_values);
}

static void finalize(eg_module *self)
{
    free((double *)(uintptr_t)((eg_value_choice *)self)->values);
    eg__choice_forget(self);
}

static void describe(const eg_module *self, char *text, size_t size)
{
    const eg_value_choice *choice = (const eg_value_choice *)self;
    eg__text out = {text, size};
    char number[EG__NUMBER_TEXT_SIZE];
    for (size_t i = 0; i < choice->n_values; i++)
        eg__text_add(&out, "%s%s", i == 0 ? "[" : ", ", eg__value_text(choice->values[i], number));
    eg__text_add(&out, "], key='%s'", choice->key);
    if (choice->fixed != NULL)
        eg__text_add(&out, ", fixed='%s'", choice->fixed);
}

/* ---- in files ---- */

/* Texts that are NULL are left out. */
static eg_status put_text(json_t *object, const char *name, const char *text)
{
    EG_CHECK(text == NULL || eg__is_utf8(text), EG_EINVAL, "value choice: '%s' is no UTF-8", name);
    EG_CHECK(text == NULL || json_object_set_new(object, name, json_string(text)) == 0, EG_ENOMEM,
             "out of memory: a value choice as JSON");
    return EG_OK;
}

static eg_status write_choice(const eg_value_choice *choice, json_t *object)
{
    json_t *values = json_array();
    int failed = json_object_set_new(object, "value_choice", values);
    for (size_t i = 0; failed == 0 && i < choice->n_values; i++)
        failed = json_array_append_new(values, eg__candidate_json(&choice->base, i));
    EG_CHECK(failed == 0, EG_ENOMEM, "out of memory: a value choice as JSON");
    EG_TRY(put_text(object, "key", choice->key));
    return put_text(object, "fixed", choice->fixed);
}

static json_t *to_json(const eg_module *self)
{
    json_t *object = json_object();
    if (object == NULL)
        eg_fail(EG_ENOMEM, "out of memory: a value choice as JSON");
    else if (write_choice((const eg_value_choice *)self, object) == EG_OK)
        return object;
    json_decref(object);
    return NULL;
}

static eg_status check_members(const json_t *json)
{
    static const char *const names[] = {"value_choice", "key", "fixed"};
    size_t known = 0;
    for (size_t i = 0; i < EG_COUNT(names); i++) {
        const json_t *member = json_object_get(json, names[i]);
        known += member != NULL;
        EG_CHECK(i == 0 || member == NULL || json_is_string(member), EG_EFORMAT, "'%s' is no text", names[i]);
    }
    EG_CHECK(known == json_object_size(json) && json_is_array(json_object_get(json, names[0])), EG_EFORMAT,
             "is an object, expected a number, or a choice of numbers: {\"value_choice\": [1, 2], \"key\": \"name\"}");
    return EG_OK;
}

static eg_status read_values(const json_t *list, double *values)
{
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)list, i, item)
    {
        EG_CHECK(json_is_number(item), EG_EFORMAT, "value %zu of the choice is no number", i);
        values[i] = json_number_value(item);
    }
    return EG_OK;
}

static eg_module *from_json(eg_context *ctx, const json_t *json)
{
    if (check_members(json) != EG_OK)
        return NULL;
    const json_t *list = json_object_get(json, "value_choice");
    double *values = eg__calloc(json_array_size(list) + 1, sizeof(*values));
    eg_module *choice = NULL;
    if (values != NULL && read_values(list, values) == EG_OK)
        choice = eg_new(eg_value_choice, ctx, .values = values, .n_values = json_array_size(list),
                        .key = json_string_value(json_object_get(json, "key")),
                        .fixed = json_string_value(json_object_get(json, "fixed")));
    free(values);
    return choice;
}

/* ---- as an open field ---- */

static bool equal_texts(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool equal(const eg_module *a, const eg_module *b)
{
    const eg_value_choice *x = (const eg_value_choice *)a, *y = (const eg_value_choice *)b;
    return equal_texts(x->key, y->key) && equal_texts(x->fixed, y->fixed) && x->n_values == y->n_values &&
           memcmp(x->values, y->values, x->n_values * sizeof(*x->values)) == 0;
}

static double value_at(const eg_module *self, size_t i)
{
    return ((const eg_value_choice *)self)->values[i];
}

static eg_status current(eg_module *self, size_t *i)
{
    const eg_decision *decision = eg__choice_decision(self);
    return decision != NULL ? eg__value_chosen(self, decision, i) : eg_error_last()->code;
}

static const eg__open_class open_class = {.size = eg_value_choice_size,
                                          .value = value_at,
                                          .current = current,
                                          .equal = equal,
                                          .to_json = to_json,
                                          .from_json = from_json};

const eg_class eg_value_choice_class = {
    .struct_size = sizeof(eg_class),
    .name = "ValueChoice",
    .super = &eg_mutable_class,
    .instance_size = sizeof(eg_value_choice),
    .build = build,
    .copy = copy,
    .finalize = finalize,
    .describe = describe,
    .open = &open_class,
    .fields = EG_FIELDS(EG_TEXT(eg_value_choice, key, .help = "what decisions call it"),
                        EG_TEXT(eg_value_choice, fixed, .help = "what is chosen without a mutator, a value"))};

int64_t eg_value_choice_handle(eg_module *choice)
{
    if (choice == NULL || eg_is_a(choice, &eg_value_choice_class))
        return eg__open_handle(choice != NULL ? choice->ctx : NULL, choice);
    eg_fail(EG_EINVAL, "%s is given for a number, expected a ValueChoice", choice->cls->name);
    eg_module_release(choice);
    return eg__open_handle(NULL, NULL);
}

/* ---- looking at one ---- */

bool eg__is_whole(double value)
{
    return value == floor(value) && fabs(value) < 9007199254740992.0;
}

const char *eg__value_text(double value, char text[EG__NUMBER_TEXT_SIZE])
{
    if (!eg__is_whole(value))
        return eg__number_text(value, text);
    snprintf(text, EG__NUMBER_TEXT_SIZE, "%.0f", value);
    return text;
}

eg_status eg__value_chosen(const eg_module *choice, const eg_decision *decision, size_t *i)
{
    const char *key = eg_mutable_key(choice);
    size_t n = 0;
    EG_CHECK(decision->n == eg_value_choice_size(choice), EG_EINVAL,
             "value choice '%s': the decision has %zu entries, expected %zu", key, decision->n,
             eg_value_choice_size(choice));
    EG_CHECK(decision->tensor == NULL, EG_EINVAL, "value choice '%s': decided by a tensor, expected one value", key);
    for (size_t k = 0; k < decision->n; k++) {
        if (decision->weights[k] != 0) {
            *i = k;
            n++;
        }
    }
    EG_CHECK(n == 1, EG_EINVAL, "value choice '%s': the decision has %zu values, expected one", key, n);
    return EG_OK;
}

size_t eg_value_choice_size(const eg_module *choice)
{
    return eg_is_a(choice, &eg_value_choice_class) ? ((const eg_value_choice *)choice)->n_values : 0;
}

double eg_value_choice_at(const eg_module *choice, size_t i)
{
    size_t n = eg_value_choice_size(choice);
    if (i < n)
        return value_at(choice, i);
    if (n == 0)
        eg__null(__func__, "no value choice was given");
    else
        eg_fail(EG_EINVAL, "value choice '%s' has no value %zu, expected 0 to %zu", eg_mutable_key(choice), i, n - 1);
    return (double)NAN;
}

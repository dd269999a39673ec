/*
 * nas/arch.c - architectures: JSON objects of decisions, in files and in memory.
 */
#include "nas/internal.h"

#include <stdlib.h>
#include <string.h>

struct eg_arch {
    json_t *object;
    const char **keys; /* sorted, the object's own texts; NULL = to be made */
};

static eg_arch *wrap(json_t *object)
{
    eg_arch *arch = object != NULL ? eg__calloc(1, sizeof(*arch)) : NULL;
    if (arch == NULL) {
        json_decref(object);
        return NULL;
    }
    arch->object = object;
    return arch;
}

static json_t *json_or_fail(json_t *json)
{
    if (json == NULL)
        eg_fail(EG_ENOMEM, "out of memory");
    return json;
}

eg_arch *eg_arch_new(void)
{
    return wrap(json_or_fail(json_object()));
}

eg_arch *eg_arch_copy(const eg_arch *arch)
{
    if (arch == NULL)
        return eg__null(__func__, "architecture");
    return wrap(json_or_fail(json_deep_copy(arch->object)));
}

void eg_arch_free(eg_arch *arch)
{
    if (arch == NULL)
        return;
    json_decref(arch->object);
    free(arch->keys);
    free(arch);
}

/* ---- text and files ---- */

char *eg_arch_text(const eg_arch *arch)
{
    return arch != NULL ? eg__json_text(arch->object) : eg__null(__func__, "architecture");
}

static bool is_scalar(const json_t *value)
{
    return json_is_string(value) || json_is_number(value) || json_is_boolean(value);
}

/* Whether a value has one of the forms that a decision can take, whatever it is for. */
static eg_status check_value(const char *key, const json_t *value)
{
    bool good = is_scalar(value) || json_is_null(value) || json_is_array(value);
    for (size_t i = 0; good && i < json_array_size(value); i++)
        good = is_scalar(json_array_get(value, i));
    EG_CHECK(good, EG_EFORMAT, "architecture: the value of '%s' is no name, index, weight, or list of them", key);
    return EG_OK;
}

/* Takes over `json`. */
static eg_arch *checked(json_t *json, const char *what)
{
    if (json == NULL)
        return NULL;
    eg_status status = EG_OK;
    const char *key;
    json_t *value;
    if (!json_is_object(json))
        status = eg_fail(EG_EFORMAT, "'%s' is no architecture, expected a JSON object of decisions by key", what);
    json_object_foreach(json, key, value)
    {
        if (status == EG_OK)
            status = check_value(key, value);
    }
    if (status == EG_OK)
        return wrap(json);
    json_decref(json);
    return NULL;
}

eg_arch *eg_arch_parse(const char *json)
{
    if (json == NULL)
        return eg__null(__func__, "text");
    return checked(eg__json_parse(json, strlen(json), "architecture"), "architecture");
}

eg_arch *eg_arch_load(const char *path)
{
    if (path == NULL)
        return eg__null(__func__, "path");
    return checked(eg__json_read(path, 0), path);
}

eg_status eg_arch_save(const eg_arch *arch, const char *path)
{
    EG_CHECK(arch != NULL && path != NULL, EG_EINVAL, "no architecture or path was given");
    return eg__json_write(arch->object, path);
}

/* ---- entries ---- */

size_t eg_arch_size(const eg_arch *arch)
{
    return arch != NULL ? json_object_size(arch->object) : 0;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static eg_status sort_keys(eg_arch *arch)
{
    const char *key;
    json_t *value;
    size_t n = 0;
    arch->keys = eg__calloc(json_object_size(arch->object) + 1, sizeof(*arch->keys));
    if (arch->keys == NULL)
        return EG_ENOMEM;
    json_object_foreach(arch->object, key, value) arch->keys[n++] = key;
    qsort(arch->keys, n, sizeof(*arch->keys), compare_keys);
    return EG_OK;
}

const char *eg_arch_key(const eg_arch *arch, size_t i)
{
    if (arch == NULL)
        return eg__null(__func__, "architecture");
    if (i >= eg_arch_size(arch)) {
        eg_fail(EG_EINVAL, "architecture has no key number %zu, it has %zu", i, eg_arch_size(arch));
        return NULL;
    }
    if (arch->keys == NULL && sort_keys((eg_arch *)(uintptr_t)arch) != EG_OK) /* a cache, not seen from outside */
        return NULL;
    return arch->keys[i];
}

const json_t *eg__arch_json(const eg_arch *arch)
{
    return arch->object;
}

bool eg_arch_has(const eg_arch *arch, const char *key)
{
    return arch != NULL && key != NULL && json_object_get(arch->object, key) != NULL;
}

char *eg_arch_value(const eg_arch *arch, const char *key)
{
    if (arch == NULL || key == NULL)
        return eg__null(__func__, "architecture or key");
    const json_t *value = json_object_get(arch->object, key);
    if (value == NULL) {
        eg_fail(EG_ENOENT, "architecture has no key '%s'", key);
        return NULL;
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    if (text == NULL)
        eg_fail(EG_ENOMEM, "out of memory");
    char *copy = eg__strdup(text); /* from jansson's allocator into ours */
    free(text);
    return copy;
}

eg_status eg__arch_put(eg_arch *arch, const char *key, json_t *value)
{
    if (value == NULL)
        return eg_error_last()->code;
    if (!eg__is_utf8(key)) {
        json_decref(value);
        return eg_fail(EG_EINVAL, "architecture: key '%s' is no valid UTF-8", key);
    }
    free(arch->keys);
    arch->keys = NULL;
    EG_CHECK(json_object_set_new(arch->object, key, value) == 0, EG_ENOMEM, "out of memory: cannot set '%s'", key);
    return EG_OK;
}

eg_status eg_arch_set(eg_arch *arch, const char *key, const char *json_value)
{
    EG_CHECK(arch != NULL && key != NULL && json_value != NULL, EG_EINVAL, "no architecture, key or value was given");
    json_t *value = eg__json_parse(json_value, strlen(json_value), key);
    if (value == NULL)
        return eg_error_last()->code;
    eg_status status = check_value(key, value);
    if (status == EG_OK)
        return eg__arch_put(arch, key, value);
    json_decref(value);
    return status;
}

bool eg_arch_equal(const eg_arch *a, const eg_arch *b)
{
    return a != NULL && b != NULL && json_equal(a->object, b->object);
}

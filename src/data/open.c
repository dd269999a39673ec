/*
 * data/open.c - data sets by name.
 */
#include "data/internal.h"

#include <string.h>

typedef struct format {
    const char *name;
    const char *path; /* what its path names; NULL = it has none */
    eg_dataset *(*open)(const eg_dataset_options *options, const char *path);
} format;

static const format formats[] = {
    {"fashion-mnist", NULL, eg__open_fashion_mnist},
    {"idx", "DIR", eg__open_idx},
    {"cifar10", "DIR", eg__open_cifar10},
    {"csv", "FILE", eg__open_csv},
};

/* The format that a spec names; *path receives the rest of it. */
static const format *find_format(const char *spec, const char **path)
{
    const char *colon = strchr(spec, ':');
    size_t length = colon ? (size_t)(colon - spec) : strlen(spec);
    for (size_t i = 0; i < EG_COUNT(formats); i++) {
        const format *f = &formats[i];
        if (strlen(f->name) != length || strncmp(f->name, spec, length) != 0)
            continue;
        *path = colon ? colon + 1 : "";
        if (!f->path == !colon && (!colon || colon[1]))
            return f;
        eg_fail(EG_EINVAL, "data set '%s': expected '%s%s%s'", spec, f->name, f->path ? ":" : "",
                f->path ? f->path : "");
        return NULL;
    }
    eg_fail(EG_EINVAL, "unknown data set '%s', expected 'fashion-mnist', 'idx:DIR', 'cifar10:DIR' or 'csv:FILE'", spec);
    return NULL;
}

eg_status eg_dataset_check_spec(const char *spec)
{
    const char *path;
    EG_CHECK(spec, EG_EINVAL, "no spec of a data set was given");
    return find_format(spec, &path) ? EG_OK : EG_EINVAL;
}

eg_dataset *eg_dataset_open_with(const eg_dataset_options *options)
{
    if (!options)
        return eg__null(__func__, "options");
    eg_dataset_options own;
    if (eg__options_copy(&own, sizeof own, options) != EG_OK)
        return NULL;
    if (!own.ctx || !own.spec)
        return eg__null(__func__, own.ctx ? "spec" : "context");
    const char *path;
    const format *f = find_format(own.spec, &path);
    return f ? f->open(&own, path) : NULL;
}

/*
 * nas/spaces/table.c - the list of search spaces.
 */
#include "nas/internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const eg_space *const spaces[] = {
    /* by name */
    &eg__cells_space,        &eg__darts_space,       &eg__enas_macro_space,  &eg__enas_micro_space,
    &eg__mlp_space,          &eg__nasbench101_space, &eg__nasbench201_space, &eg__nasbench_macro_space,
    &eg__proxylessnas_space, &eg__spos_space,        &eg__textnas_space,     NULL,
};

const eg_space *const *eg_spaces(void)
{
    return spaces;
}

const eg_space *eg_space_find(const char *name)
{
    if (name == NULL)
        return eg__null(__func__, "name");
    const char *names[EG_COUNT(spaces)];
    size_t n = 0;
    for (; spaces[n] != NULL; n++) {
        names[n] = spaces[n]->name;
        if (strcmp(names[n], name) == 0)
            return spaces[n];
    }
    char near[200];
    eg_closest_name(name, names, n, near, sizeof(near));
    eg_fail(EG_ENOENT, *near != '\0' ? "there is no space '%s', did you mean %s?" : "there is no space '%s'%s", name,
            near);
    return NULL;
}

enum { MIN_SIDE = 8 };

static eg_status check_input(const eg_space *space, const eg_space_options *o)
{
    char shape[EG_SHAPE_TEXT_SIZE];
    eg_shape_format(o->input, shape, sizeof(shape));
    const int64_t *dims = o->input.dims;
    if (space->any_input) {
        int64_t n = o->input.ndim > 0 ? eg_shape_numel(o->input) : 0;
        EG_CHECK(n > 0 && n <= EG__SPACE_MAX_FEATURES, EG_ESHAPE, "space '%s': input is %s, expected 1 to %d numbers",
                 space->name, shape, EG__SPACE_MAX_FEATURES);
        return EG_OK;
    }
    EG_CHECK(o->input.ndim == 3 && (dims[0] == 1 || dims[0] == 3) && dims[1] >= MIN_SIDE && dims[2] >= MIN_SIDE,
             EG_ESHAPE, "space '%s': input is %s, expected images (1 or 3, height, width) of at least %d by %d",
             space->name, shape, MIN_SIDE, MIN_SIDE);
    return EG_OK;
}

static eg_status check_options(const eg_space *space, const eg_space_options *o)
{
    const char *name = space->name;
    EG_TRY(check_input(space, o));
    EG_CHECK(o->classes >= 1 && o->classes <= EG__SPACE_MAX_CLASSES, EG_EINVAL,
             "space '%s': %" PRId64 " classes, expected 1 to %d", name, o->classes, EG__SPACE_MAX_CLASSES);
    EG_CHECK(o->channels >= 0 && o->channels <= EG__SPACE_MAX_CHANNELS && o->channels % 2 == 0, EG_EINVAL,
             "space '%s': %" PRId64 " channels, expected an even number up to %d, or 0", name, o->channels,
             EG__SPACE_MAX_CHANNELS);
    EG_CHECK(o->layers >= 0 && o->layers <= EG__SPACE_MAX_LAYERS, EG_EINVAL,
             "space '%s': %" PRId64 " layers, expected 0 to %d", name, o->layers, EG__SPACE_MAX_LAYERS);
    EG_CHECK(o->vocabulary >= 0 && o->vocabulary <= EG__SPACE_MAX_FEATURES, EG_EINVAL,
             "space '%s': a vocabulary of %" PRId64 " words, expected 0 to %d", name, o->vocabulary,
             EG__SPACE_MAX_FEATURES);
    EG_CHECK(o->drop_path >= 0 && o->drop_path < 1, EG_EINVAL, "space '%s': drop_path is %g, expected 0 to below 1",
             name, o->drop_path);
    return EG_OK;
}

eg_module *eg_space_build(eg_context *ctx, const char *name, const eg_space_options *options)
{
    if (ctx == NULL)
        return eg__null(__func__, "context");
    if (eg_space_is_file(name))
        return eg__space_load(ctx, name, options);
    if (options == NULL)
        return eg__null(__func__, "options");
    const eg_space *space = eg_space_find(name);
    eg_space_options own;
    if (space == NULL || eg__options_copy(&own, sizeof(own), options) != EG_OK || check_options(space, &own) != EG_OK ||
        eg_nas_register(ctx) != EG_OK)
        return NULL;
    return space->build(ctx, &own);
}

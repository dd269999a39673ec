/*
 * nas/mutable.c - what choices of all kinds and scopes have in common: a key, and a mutator once bound.
 */
#include "nas/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static eg_tensor *mutable_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)in, (void)n_in;
    eg_fail(EG_EUNSUPPORTED, "'%s' has no forward function", self->cls->name);
    return NULL;
}

const eg_class eg_mutable_class = {
    .struct_size = sizeof(eg_class), .name = "Mutable", .instance_size = sizeof(eg_module), .forward = mutable_forward};

/* ---- keys ---- */

static const char **key_field(const eg_module *m)
{
    const eg_field *field;
    for (size_t i = 0; (field = eg__field_at(m->cls, i)) != NULL; i++) {
        if (field->type == EG_FIELD_TEXT && strcmp(field->name, "key") == 0)
            return (const char **)(void *)((char *)(uintptr_t)m + field->offset);
    }
    return NULL;
}

eg_status eg__mutable_take_key(eg_module *m)
{
    const char **key = key_field(m);
    EG_CHECK(key != NULL, EG_EINVAL, "%s: a mutable's class needs a text field 'key'", m->cls->name);
    EG_CHECK(*key == NULL || **key != '\0', EG_EINVAL, "%s: the key is empty", m->cls->name);
    EG_TRY(eg__register_choices(m->ctx));
    if (*key == NULL)
        *key = eg__format("%s%" PRIu64, m->cls->name, eg__context_next_key(m->ctx));
    return *key != NULL ? EG_OK : EG_ENOMEM;
}

const char *eg_mutable_key(const eg_module *m)
{
    if (m == NULL)
        return eg__null(__func__, "module");
    const char **key = eg_is_a(m, &eg_mutable_class) ? key_field(m) : NULL;
    if (key == NULL || *key == NULL) {
        eg_fail(EG_EINVAL, "a module of class '%s' has no key, expected a mutable", m->cls->name);
        return NULL;
    }
    return *key;
}

void eg_context_reset_keys(eg_context *ctx)
{
    if (ctx != NULL)
        eg__context_reset_keys(ctx);
}

/* ---- bindings ---- */

static void free_binding(void *extension)
{
    eg__binding *binding = extension;
    free(binding->path);
    free(binding);
}

eg__binding *eg__binding_of(const eg_module *m)
{
    return m->free_extension == free_binding ? m->extension : NULL;
}

eg__binding *eg__binding_new(eg_mutator *mutator, const char *path)
{
    eg__binding *binding = eg__calloc(1, sizeof(*binding));
    if (binding == NULL)
        return NULL;
    binding->mutator = mutator;
    binding->path = eg__strdup(path);
    if (binding->path == NULL) {
        free(binding);
        return NULL;
    }
    return binding;
}

void eg__binding_set(eg_module *m, eg__binding *binding)
{
    m->extension = binding;
    m->free_extension = free_binding;
}

void eg__binding_clear(eg_module *m)
{
    eg__binding *binding = eg__binding_of(m);
    if (binding == NULL)
        return;
    m->extension = NULL;
    m->free_extension = NULL;
    free_binding(binding);
}

const char *eg_mutable_name(eg_module *m)
{
    const char *key = eg_mutable_key(m);
    eg__binding *binding = key != NULL ? eg__binding_of(m) : NULL;
    return binding != NULL ? binding->path : key;
}

eg_mutator *eg_mutable_mutator(eg_module *m)
{
    eg__binding *binding = m != NULL ? eg__binding_of(m) : NULL;
    return binding != NULL ? binding->mutator : NULL;
}

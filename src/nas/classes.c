/*
 * nas/classes.c - the classes of this layer, known to a context by their names.
 */
#include "nas/internal.h"

#include <string.h>

eg_status eg__register_choices(eg_context *ctx)
{
    EG_TRY(eg_context_register_class(ctx, &eg_layer_choice_class));
    EG_TRY(eg_context_register_class(ctx, &eg_input_choice_class));
    return eg__open_register(ctx, eg_value_choice_class.open);
}

static bool is_taken(const eg_context *ctx, const char *name)
{
    const eg_class *cls;
    for (size_t i = 0; (cls = eg_context_class_at(ctx, i)) != NULL; i++) {
        if (strcmp(cls->name, name) == 0)
            return true;
    }
    return false;
}

eg_status eg_nas_register(eg_context *ctx)
{
    EG_TRY(eg__register_choices(ctx));
    for (size_t i = 0; eg_spaces()[i] != NULL; i++) {
        const eg_class *const *classes = eg_spaces()[i]->classes;
        for (size_t k = 0; classes != NULL && classes[k] != NULL; k++)
            EG_TRY(is_taken(ctx, classes[k]->name) ? EG_OK : eg_context_register_class(ctx, classes[k]));
    }
    return EG_OK;
}

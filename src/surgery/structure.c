/*
 * The structure of a model as one number.
 */
#include "surgery/recipe.h"

#include "engraft/layers.h"

#include <inttypes.h>
#include <string.h>

/* With the end of the text, so that two texts are not one. */
static uint64_t add_text(uint64_t hash, const char *text)
{
    return eg__hash(text != NULL ? text : "", text != NULL ? strlen(text) + 1 : 1, hash);
}

/* Fields that say how good or how far something is, which depends on numbers: a recipe is for models of other numbers
 * too. */
static bool is_measured(const eg_module *m, const char *field)
{
    return (eg_is_a(m, &eg_factorized_class) && strcmp(field, "error") == 0) ||
           (eg_is_a(m, &eg_stochastic_residual_class) && strcmp(field, "held_back") == 0);
}

static eg_status add_fields(uint64_t *hash, const eg_module *m)
{
    const eg_field *field;
    eg__buf text = {0};
    for (size_t i = 0; (field = eg__field_at(m->cls, i)) != NULL; i++) {
        if (field->type == EG_FIELD_MODULES || field->type == EG_FIELD_NAMED || is_measured(m, field->name))
            continue;
        eg__buf_printf(&text, "%s=", field->name);
        eg__field_print(m, field, &text);
        eg__buf_printf(&text, ";");
    }
    eg_status status = text.failed ? EG_ENOMEM : EG_OK;
    *hash = add_text(*hash, text.data);
    eg__buf_free(&text);
    return status;
}

static uint64_t add_tensor(uint64_t hash, const eg__inventory *v, const eg__tensor_item *item)
{
    char shape[EG_SHAPE_TEXT_SIZE];
    hash = add_text(hash, item->key);
    hash = add_text(hash, eg_shape_format(item->tensor->shape, shape, sizeof(shape)));
    hash = add_text(hash, eg_dtype_name(item->tensor->dtype));
    return add_text(hash, eg__inventory_tensor(v, item->tensor)->key);
}

eg_status eg__structure_text(const eg__inventory *inventory, char text[EG__STRUCTURE_SIZE])
{
    uint64_t hash = 0;
    for (size_t i = 0; i < inventory->n; i++) {
        const eg__item *item = &inventory->items[i];
        hash = add_text(hash, item->path);
        hash = add_text(hash, item->module->cls->name);
        hash = add_text(hash, item->same_as);
        EG_TRY(item->same_as == NULL ? add_fields(&hash, item->module) : EG_OK);
    }
    for (size_t i = 0; i < inventory->n_tensors; i++)
        hash = add_tensor(hash, inventory, &inventory->tensors[i]);
    snprintf(text, EG__STRUCTURE_SIZE, "%016" PRIx64, hash);
    return EG_OK;
}

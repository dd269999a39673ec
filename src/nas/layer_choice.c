/*
 * nas/layer_choice.c - one of several layers.
 */
#include "nas/internal.h"

static eg_status layer_choice_build(eg_module *self)
{
    EG_CHECK(eg_module_n_children(self) > 0, EG_EINVAL, "%s: no candidates, expected at least one", self->cls->name);
    EG_TRY(eg__mutable_take_key(self));
    return eg__choice_take_fixed(self);
}

static const char *const reductions[] = {"sum", "mean", "concat", "none", NULL};

const eg_class eg_layer_choice_class = {
    .struct_size = sizeof(eg_class),
    .name = "LayerChoice",
    .super = &eg_mutable_class,
    .instance_size = sizeof(eg_layer_choice),
    .build = layer_choice_build,
    .forward = eg__choice_forward,
    .finalize = eg__choice_forget,
    .n_inputs = EG_ANY_INPUTS,
    .fields =
        EG_FIELDS(EG_MODULES_FIELD(eg_layer_choice), EG_NAMED_FIELD(eg_layer_choice),
                  EG_TEXT(eg_layer_choice, key, .help = "what decisions call it"),
                  EG_ENUM(eg_layer_choice, reduction, .values = reductions, .help = "how several outputs become one"),
                  EG_BOOL(eg_layer_choice, return_mask, .help = "return the decision as well"),
                  EG_TEXT(eg_layer_choice, fixed, .help = "what is chosen without a mutator, as in an architecture"))};

size_t eg_layer_choice_size(const eg_module *choice)
{
    return eg_is_a(choice, &eg_layer_choice_class) ? eg_module_n_children(choice) : 0;
}

/* Whether candidate i exists; records what is wrong otherwise. */
static bool has_candidate(const eg_module *choice, size_t i)
{
    if (!eg_is_a(choice, &eg_layer_choice_class)) {
        eg__null(__func__, "no layer choice was given");
        return false;
    }
    size_t n = eg_layer_choice_size(choice);
    if (i >= n) {
        eg_fail(EG_EINVAL, "layer choice '%s' has no candidate %zu, expected 0 to %zu", eg_mutable_key(choice), i,
                n - 1);
        return false;
    }
    return true;
}

const char *eg_layer_choice_name(const eg_module *choice, size_t i)
{
    const char *name = NULL;
    if (has_candidate(choice, i))
        eg_module_child_at(choice, i, &name);
    return name;
}

eg_module *eg_layer_choice_at(const eg_module *choice, size_t i)
{
    return has_candidate(choice, i) ? eg_module_child_at(choice, i, NULL) : NULL;
}

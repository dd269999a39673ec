/*
 * One class of activations for another.
 */
#include "engraft/methods.h"
#include "surgery/internal.h"

#include <stdlib.h>

static eg_module *replace(void *payload, eg_module *module, size_t index)
{
    const eg_class *to = payload;
    (void)index;
    void *prototype = eg__calloc(1, to->instance_size);
    if (prototype == NULL)
        return NULL;
    ((eg_module *)prototype)->ctx = module->ctx;
    eg_module *made = eg_module_new(to, to->instance_size, prototype);
    free(prototype);
    return made;
}

static eg_status plan(eg_module *options, eg_surgery *s, const char *at)
{
    const eg_activation_swap *o = (const eg_activation_swap *)options;
    const eg_class *from = eg_context_find_class(s->ctx, o->from != NULL ? o->from : "ReLU");
    const eg_class *to = from != NULL ? eg_context_find_class(s->ctx, o->to != NULL ? o->to : "SiLU") : NULL;
    if (to == NULL)
        return eg_error_last()->code;
    EG_CHECK(from != to, EG_EINVAL, "from %s to itself, expected two classes", to->name);
    return eg_surgery_replace(
        s, EG_POLICIES({.cls = from, .replace = replace, .payload = (void *)(uintptr_t)to, .at = at, .exact = true}),
        false);
}

EG_METHOD(eg_activation_swap, "activation_swap",
          EG_FIELDS(EG_TEXT(eg_activation_swap, from, .help = "class that gives way (default ReLU)"),
                    EG_TEXT(eg_activation_swap, to, .help = "class that takes its place, with its defaults (SiLU)")),
          .help = "activations of one class become those of another", .source = "Ramachandran et al. 2017 (SiLU)",
          .promise = EG_PROMISE_TRAINED, .plan = plan, .inverse = "activation_swap");

/*
 * Normalizations that keep to the precision of the context.
 */
#include "engraft/methods.h"
#include "surgery/internal.h"

static eg_module *replace(eg_module *options, eg_surgery *s, eg_module *module, size_t index)
{
    (void)options;
    (void)s;
    (void)index;
    if (module->open != NULL || module->n_reparams > 0)
        return NULL;
    if (module->cls == &eg_layer_norm_class) {
        const eg_layer_norm *l = (const eg_layer_norm *)module;
        return eg__share_tensors(
            eg_low_precision_layer_norm(module->ctx, l->normalized_shape, .eps = l->eps, .no_affine = l->no_affine),
            module);
    }
    if (module->cls != &eg_group_norm_class)
        return NULL;
    const eg_group_norm *g = (const eg_group_norm *)module;
    return eg__share_tensors(eg_low_precision_group_norm(module->ctx, g->num_groups, g->num_channels, .eps = g->eps,
                                                         .no_affine = g->no_affine),
                             module);
}

EG_METHOD(eg_low_precision_norm, "low_precision_norm", NULL,
          .help = "layer and group norms compute in the precision of the context",
          .source = "MosaicML Composer; here norms keep to bfloat16 activations anyway, so only float32 inputs gain",
          .promise = EG_PROMISE_EXACT, .replace = replace,
          .targets = (const eg_class *const[]){&eg_layer_norm_class, &eg_group_norm_class, NULL},
          .makes = (const eg_class *const[]){&eg_low_precision_layer_norm_class, &eg_low_precision_group_norm_class,
                                             NULL});

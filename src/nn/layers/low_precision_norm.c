/*
 * Normalizations whose activations are bfloat16 whatever they are given, in a context of that precision. Statistics,
 * weights and sums stay float32, as in all normalizations there.
 */
#include "nn/internal.h"

static eg_tensor *lowered(eg_tensor *x)
{
    bool lower = x->storage != NULL && x->dtype == EG_F32 && eg_context_precision(x->ctx) == EG_BF16;
    return lower ? eg_cast(x, EG_BF16) : x;
}

static eg_tensor *layer_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    eg_tensor *x = lowered(in[0]);
    return x != NULL ? eg_layer_norm_class.forward(self, &x, n_in) : NULL;
}

static eg_tensor *group_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    eg_tensor *x = lowered(in[0]);
    return x != NULL ? eg_group_norm_class.forward(self, &x, n_in) : NULL;
}

EG_NAMED_CLASS(eg_low_precision_layer_norm, "LowPrecisionLayerNorm", .super = &eg_layer_norm_class,
               .forward = layer_forward);
EG_NAMED_CLASS(eg_low_precision_group_norm, "LowPrecisionGroupNorm", .super = &eg_group_norm_class,
               .forward = group_forward);

/*
 * Convolutions by standardized weights (Qiao et al. 2019): each output's weights have mean 0 and variance 1.
 */
#include "nn/internal.h"

static eg_tensor *standardized(eg_tensor *weight)
{
    eg_tensor *rows = eg_f_flatten(weight, 1, -1);
    eg_tensor *centered = eg_sub(rows, eg_mean(rows, .dims = EG_SHAPE(1), .keepdim = true));
    eg_tensor *variance = eg_mean(eg_mul(centered, centered), .dims = EG_SHAPE(1), .keepdim = true);
    eg_tensor *scaled = eg_div(centered, eg_sqrt(eg_affine(variance, 1, 1e-5)));
    return eg_reshape(scaled, eg_tensor_shape(weight));
}

static eg_tensor *forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_conv2d *c = (const eg_conv2d *)self;
    return eg_f_conv2d(in[0], standardized(c->weight), c->bias, .stride = c->stride, .padding = c->padding,
                       .dilation = c->dilation, .groups = c->groups);
}

EG_NAMED_CLASS(eg_weight_standardized_conv2d, "WeightStandardizedConv2d", .super = &eg_conv2d_class,
               .forward = forward);

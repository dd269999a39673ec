/*
 * Channels scaled by what all pixels say together (Hu et al. 2018, "Squeeze-and-excitation networks").
 */
#include "nn/internal.h"

static eg_status build(eg_module *self)
{
    eg_squeeze_excite2d *s = EG_CAST(self, eg_squeeze_excite2d);
    EG_SLOT(s, squeeze, eg_linear(self->ctx, s->num_features, s->latent_channels, .no_bias = true));
    EG_SLOT(s, excite, eg_linear(self->ctx, s->latent_channels, s->num_features, .no_bias = true));
    return eg_module_status(self);
}

static eg_tensor *forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_squeeze_excite2d *s = EG_CAST(self, eg_squeeze_excite2d);
    eg_tensor *mean = eg_f_flatten(eg_f_adaptive_avg_pool2d(in[0], 1), 1, -1);
    eg_tensor *scale = eg_f_sigmoid(eg_call(s->excite, eg_f_relu(eg_call(s->squeeze, mean))));
    if (scale == NULL)
        return NULL;
    if (s->gain != 1)
        scale = eg_affine(scale, s->gain, 0);
    eg_shape shape = eg_tensor_shape(scale);
    return eg_mul(in[0], eg_reshape(scale, EG_SHAPE(shape.dims[0], shape.dims[1], 1, 1)));
}

EG_NAMED_CLASS(eg_squeeze_excite2d, "SqueezeExcite2d", .build = build, .forward = forward,
               .fields = EG_FIELDS(
                   EG_INT(eg_squeeze_excite2d, num_features, .min = 1, .max = EG__MAX_CHANNELS, .help = "channels"),
                   EG_INT(eg_squeeze_excite2d, latent_channels, .min = 1, .max = EG__MAX_CHANNELS,
                          .help = "channels between"),
                   EG_FLOAT(eg_squeeze_excite2d, gain, .def = 1, .help = "of the scales, which are below 1 without")));

EG_NAMED_CLASS(eg_squeeze_excite_conv2d, "SqueezeExciteConv2d", .super = &eg_sequential_class);

/*
 * Squeeze and excitation behind convolutions (Hu et al. 2018).
 */
#include "engraft/methods.h"
#include "surgery/internal.h"

static eg_module *make_scales(const eg_squeeze_excite *o, const eg_conv2d *c)
{
    double latent = o->latent_channels < 1 ? o->latent_channels * (double)c->out_channels : o->latent_channels;
    int64_t between = (int64_t)EG_MIN(EG_MAX(latent, 1), EG__MAX_CHANNELS + 1.); /* which it refuses */
    eg_module *m = eg_squeeze_excite2d(c->base.ctx, c->out_channels, between, .gain = o->near_identity ? 2 : 0);
    /* sigmoid(0) = 1/2 everywhere, so with a gain of 2 nothing is scaled until it is learned. */
    if (m == NULL || !o->near_identity || eg_init_constant(eg_module_tensor(m, "excite.weight"), 0) == EG_OK)
        return m;
    eg_module_release(m);
    return NULL;
}

static eg_module *replace(eg_module *options, eg_surgery *s, eg_module *module, size_t index)
{
    const eg_squeeze_excite *o = (const eg_squeeze_excite *)options;
    const eg_conv2d *c = (const eg_conv2d *)module;
    (void)s;
    (void)index;
    if (!eg_is_a(module, &eg_conv2d_class) || EG_MIN(c->in_channels, c->out_channels) < o->min_channels ||
        module->open != NULL)
        return NULL;
    eg_module *scales = make_scales(o, c);
    if (scales == NULL)
        return NULL;
    return eg_squeeze_excite_conv2d(module->ctx, EG_NAMED({"conv", eg_module_retain(module)}, {"se", scales}));
}

EG_METHOD(eg_squeeze_excite, "squeeze_excite",
          EG_FIELDS(EG_FLOAT(eg_squeeze_excite, latent_channels, EG_AT_LEAST(0), .def = 64,
                             .help = "between the two layers; below 1 a share of the channels out"),
                    EG_INT(eg_squeeze_excite, min_channels, EG_AT_LEAST(1), .def = 128,
                           .help = "of the narrower side of a convolution that gets one"),
                    EG_BOOL(eg_squeeze_excite, near_identity, .help = "begins without any effect")),
          .help = "convolutions get a scale for each channel, from the mean of all pixels",
          .source = "Hu et al. 2018; about 20 % more time to run (Composer)", .promise = EG_PROMISE_TRAINED,
          .inverse = "unwrap", .replace = replace, .targets = (const eg_class *const[]){&eg_conv2d_class, NULL},
          .makes = (const eg_class *const[]){&eg_squeeze_excite_conv2d_class, NULL});

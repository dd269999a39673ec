#include "nn/internal.h"

#include <inttypes.h>
#include <math.h>

eg_status eg__add_weight_and_bias(eg_module *m, eg_tensor **weight, eg_tensor **bias, eg_shape shape, bool no_bias)
{
    return eg__add_weight_and_biases(m, weight, bias, shape, no_bias ? 0 : shape.dims[0]);
}

eg_status eg__add_weight_and_biases(eg_module *m, eg_tensor **weight, eg_tensor **bias, eg_shape shape, int64_t biases)
{
    eg_tensor *w = eg_empty(m->ctx, EG_F32, shape, EG_LAYOUT_ROW_MAJOR);
    EG_TRY(eg_module_add_parameter(m, "weight", weight, w));
    EG_TRY(eg_init_kaiming_uniform(w, sqrt(5)));
    if (biases == 0)
        return eg_module_add_parameter(m, "bias", bias, eg_none);
    eg_tensor *b = eg_empty(m->ctx, EG_F32, EG_SHAPE(biases), EG_LAYOUT_ROW_MAJOR);
    EG_TRY(eg_module_add_parameter(m, "bias", bias, b));
    double bound = 1 / sqrt((double)(eg_tensor_numel(w) / shape.dims[0]));
    return eg_init_uniform(b, -bound, bound);
}

static eg_status build(eg_module *self)
{
    eg_linear *l = EG_CAST(self, eg_linear);
    return eg__add_weight_and_bias(self, &l->weight, &l->bias, EG_SHAPE(l->out_features, l->in_features), l->no_bias);
}

static eg_tensor *forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_linear *l = EG_CAST(self, eg_linear);
    return eg_f_linear(in[0], l->weight, l->bias);
}

static void describe(const eg_module *self, char *text, size_t size)
{
    const eg_linear *l = (const eg_linear *)self;
    snprintf(text, size, "in_features=%" PRId64 ", out_features=%" PRId64 ", bias=%s", l->in_features, l->out_features,
             l->no_bias ? "False" : "True");
}

EG_NAMED_CLASS(eg_linear, "Linear", .build = build, .forward = forward, .describe = describe,
               .fields = EG_FIELDS(EG_INT(eg_linear, in_features, .min = 1, .max = EG__MAX_CHANNELS,
                                          .help = "size of the last dimension in"),
                                   EG_INT(eg_linear, out_features, .min = 1, .max = EG__MAX_CHANNELS,
                                          .help = "size of the last dimension out"),
                                   EG_BOOL(eg_linear, no_bias, .help = "leave the bias out")));

#include "nn/internal.h"

#include <inttypes.h>

/* Slots "weight" of ones and "bias" of zeros, or eg_none in both. */
static eg_status add_affine(eg_module *m, eg_tensor **weight, eg_tensor **bias, eg_shape shape, bool absent)
{
    eg_tensor *ones = eg_none, *zeros = eg_none;
    if (!absent) {
        ones = eg_empty(m->ctx, EG_F32, shape, EG_LAYOUT_ROW_MAJOR);
        zeros = eg_empty(m->ctx, EG_F32, shape, EG_LAYOUT_ROW_MAJOR);
    }
    EG_TRY(eg_module_add_parameter(m, "weight", weight, ones));
    EG_TRY(eg_module_add_parameter(m, "bias", bias, zeros));
    if (absent)
        return EG_OK;
    EG_TRY(eg_init_constant(ones, 1));
    return eg_init_constant(zeros, 0);
}

static void describe_eps(eg__text *out, double eps)
{
    char text[EG__NUMBER_TEXT_SIZE];
    eg__text_add(out, "eps=%s", eg__number_text(eps, text));
}

/* ---- groups of channels ---- */

static eg_status group_build(eg_module *self)
{
    eg_group_norm *g = EG_CAST(self, eg_group_norm);
    EG_CHECK(g->num_channels % g->num_groups == 0, EG_EINVAL,
             "GroupNorm: num_channels %" PRId64 " must be a multiple of num_groups %" PRId64, g->num_channels,
             g->num_groups);
    return add_affine(self, &g->weight, &g->bias, EG_SHAPE(g->num_channels), g->no_affine);
}

static eg_tensor *group_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_group_norm *g = EG_CAST(self, eg_group_norm);
    return eg_f_group_norm(in[0], g->num_groups, g->weight, g->bias, .eps = g->eps);
}

static void group_describe(const eg_module *self, char *text, size_t size)
{
    const eg_group_norm *g = (const eg_group_norm *)self;
    eg__text out = {text, size};
    eg__text_add(&out, "%" PRId64 ", %" PRId64 ", ", g->num_groups, g->num_channels);
    describe_eps(&out, g->eps);
    eg__text_add(&out, ", affine=%s", g->no_affine ? "False" : "True");
}

EG_NAMED_CLASS(eg_group_norm, "GroupNorm", .build = group_build, .forward = group_forward, .describe = group_describe,
               .fields = EG_FIELDS(
                   EG_INT(eg_group_norm, num_groups, .min = 1, .max = EG__MAX_CHANNELS, .help = "groups of channels"),
                   EG_INT(eg_group_norm, num_channels, .min = 1, .max = EG__MAX_CHANNELS, .help = "channels"),
                   EG_FLOAT(eg_group_norm, eps, .max = 1, .def = 1e-5, .help = "added to the variance"),
                   EG_BOOL(eg_group_norm, no_affine, .help = "without weight and bias")));

/* ---- layers ---- */

static eg_status layer_build(eg_module *self)
{
    eg_layer_norm *l = EG_CAST(self, eg_layer_norm);
    return add_affine(self, &l->weight, &l->bias, l->normalized_shape, l->no_affine);
}

static eg_tensor *layer_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_layer_norm *l = EG_CAST(self, eg_layer_norm);
    return eg_f_layer_norm(in[0], l->normalized_shape, l->weight, l->bias, .eps = l->eps);
}

static void layer_describe(const eg_module *self, char *text, size_t size)
{
    const eg_layer_norm *l = (const eg_layer_norm *)self;
    eg__text out = {text, size};
    for (int d = 0; d < l->normalized_shape.ndim; d++)
        eg__text_add(&out, "%s%" PRId64, d == 0 ? "(" : ", ", l->normalized_shape.dims[d]);
    eg__text_add(&out, l->normalized_shape.ndim == 1 ? ",), " : "), ");
    describe_eps(&out, l->eps);
    eg__text_add(&out, ", elementwise_affine=%s", l->no_affine ? "False" : "True");
}

EG_NAMED_CLASS(eg_layer_norm, "LayerNorm", .build = layer_build, .forward = layer_forward, .describe = layer_describe,
               .fields = EG_FIELDS(EG_SHAPE_FIELD(eg_layer_norm, normalized_shape,
                                                  .help = "sizes of the last dimensions"),
                                   EG_FLOAT(eg_layer_norm, eps, .max = 1, .def = 1e-5, .help = "added to the variance"),
                                   EG_BOOL(eg_layer_norm, no_affine, .help = "without weight and bias")));

/* ---- channels ---- */

static eg_status instance_build(eg_module *self)
{
    eg_instance_norm2d *i = EG_CAST(self, eg_instance_norm2d);
    return add_affine(self, &i->weight, &i->bias, EG_SHAPE(i->num_features), !i->affine);
}

static eg_tensor *instance_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_instance_norm2d *i = EG_CAST(self, eg_instance_norm2d);
    return eg_f_instance_norm(in[0], i->weight, i->bias, .eps = i->eps);
}

/* PyTorch names the momentum of running statistics that are not kept. */
static void instance_describe(const eg_module *self, char *text, size_t size)
{
    const eg_instance_norm2d *i = (const eg_instance_norm2d *)self;
    eg__text out = {text, size};
    eg__text_add(&out, "%" PRId64 ", ", i->num_features);
    describe_eps(&out, i->eps);
    eg__text_add(&out, ", momentum=0.1, affine=%s, track_running_stats=False", i->affine ? "True" : "False");
}

EG_NAMED_CLASS(
    eg_instance_norm2d, "InstanceNorm2d", .build = instance_build, .forward = instance_forward,
    .describe = instance_describe,
    .fields = EG_FIELDS(EG_INT(eg_instance_norm2d, num_features, .min = 1, .max = EG__MAX_CHANNELS, .help = "channels"),
                        EG_FLOAT(eg_instance_norm2d, eps, .max = 1, .def = 1e-5, .help = "added to the variance"),
                        EG_BOOL(eg_instance_norm2d, affine, .help = "with weight and bias")));

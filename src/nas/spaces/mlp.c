/*
 * nas/spaces/mlp.c - layers of units, for rows of numbers. Images are taken as rows.
 *
 * After a first layer come hidden layers of one width, each of five candidates and with a shortcut that is open as
 * well. The choices of every layer are its own.
 */
#include "nas/internal.h"

#include <inttypes.h>

enum { WIDTH = 64, LAYERS = 3, BOTTLENECK = 4 };

static eg_module *dense(eg_context *ctx, int64_t width, eg_module *activation)
{
    return eg_sequential(ctx, EG_MODULES(eg_linear(ctx, width, width), activation));
}

/* A product of two thin matrices, half the parameters of a whole one. */
static eg_module *bottleneck(eg_context *ctx, int64_t width)
{
    int64_t rank = EG_MAX(width / BOTTLENECK, 1);
    return eg_sequential(
        ctx, EG_MODULES(eg_linear(ctx, width, rank, .no_bias = true), eg_linear(ctx, rank, width), eg_relu(ctx)));
}

static eg_module *choice(eg_context *ctx, const char *key, int64_t width)
{
    return eg_layer_choice(ctx,
                           EG_CHOICES({"relu", dense(ctx, width, eg_relu(ctx))},
                                      {"tanh", dense(ctx, width, eg_tanh(ctx))},
                                      {"silu", dense(ctx, width, eg_silu(ctx))}, {"bottleneck", bottleneck(ctx, width)},
                                      {"skip", eg_identity(ctx)}),
                           .key = key);
}

/* ---- a hidden layer ---- */

typedef struct mlp_layer {
    eg_module base;
    int64_t index, width;
    double drop_path;
    eg_module *op, *shortcut;
} mlp_layer;

static eg_status layer_build(eg_module *self)
{
    mlp_layer *l = (mlp_layer *)self;
    char op[40], shortcut[40];
    snprintf(op, sizeof(op), "layer%" PRId64 "_op", l->index);
    snprintf(shortcut, sizeof(shortcut), "layer%" PRId64 "_shortcut", l->index);
    EG_SLOT(l, op, choice(self->ctx, op, l->width));
    EG_SLOT(l, shortcut, eg_input_choice(self->ctx, .n_candidates = 1, .key = shortcut));
    return eg_module_status(self);
}

static eg_tensor *layer_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    mlp_layer *l = (mlp_layer *)self;
    eg_tensor *y = eg_call(l->op, in[0]);
    if (l->drop_path > 0 && self->training)
        y = eg_f_drop_path(y, l->drop_path, true);
    return eg_add(y, eg_call(l->shortcut, in[0]));
}

static EG_NAMED_CLASS(
    mlp_layer, "MLPLayer", .build = layer_build, .forward = layer_forward,
    .fields = EG_FIELDS(EG_INT(mlp_layer, index, EG_AT_LEAST(0), .help = "number of the layer, in its keys"),
                        EG_INT(mlp_layer, width, EG_AT_LEAST(1), .help = "units in and out"),
                        EG_FLOAT(mlp_layer, drop_path, .min = 0, .max = 1, .help = "layers dropped in training")));

/* ---- the network ---- */

static eg_status add_layers(eg_module *net, const eg_space_options *o, int64_t width, int64_t layers)
{
    for (int64_t i = 0; i < layers; i++)
        EG_TRY(eg_append(net, eg_new(mlp_layer, net->ctx, i, width, o->drop_path)));
    return eg_append(net, eg_linear(net->ctx, width, o->classes));
}

static eg_module *build(eg_context *ctx, const eg_space_options *o)
{
    int64_t width = o->channels > 0 ? o->channels : WIDTH, layers = o->layers > 0 ? o->layers : LAYERS;
    eg_module *net =
        eg_sequential(ctx, EG_MODULES(eg_flatten(ctx), eg_linear(ctx, eg_shape_numel(o->input), width), eg_relu(ctx)));
    if (net != NULL && add_layers(net, o, width, layers) == EG_OK)
        return net;
    eg_module_release(net);
    return NULL;
}

static const eg_class *const classes[] = {&mlp_layer_class, NULL};

const eg_space eg__mlp_space = {.name = "mlp",
                                .help = "hidden layers of one width, each open, with an open shortcut; for any data",
                                .source = "after He et al., CVPR 2016",
                                .any_input = true,
                                .classes = classes,
                                .build = build};

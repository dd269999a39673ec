/*
 * nas/spaces/cells.c - a chain of small residual cells, for small images and processors.
 *
 * Every cell has two layers in a row, each of five candidates, and a shortcut that is open as well. Stem and
 * reductions are fixed 3x3 convolutions of stride 2, so that any choice leaves a network that learns. The choices of
 * every cell are its own.
 */
#include "nas/internal.h"

#include <inttypes.h>

enum { CHANNELS = 16, LAYERS = 4 };

static eg_module *norm(eg_context *ctx, int64_t channels)
{
    return eg_batch_norm2d(ctx, channels, .relu = true);
}

static eg_module *conv(eg_context *ctx, int64_t in_channels, int64_t out_channels, int64_t stride)
{
    return eg_sequential(
        ctx, EG_MODULES(eg_conv2d(ctx, in_channels, out_channels, 3, .stride = stride, .padding = 1, .no_bias = true),
                        norm(ctx, out_channels)));
}

static eg_module *sep_conv(eg_context *ctx, int64_t c, int64_t kernel)
{
    return eg_sequential(ctx,
                         EG_MODULES(eg_conv2d(ctx, c, c, kernel, .padding = kernel / 2, .groups = c, .no_bias = true),
                                    eg_conv2d(ctx, c, c, 1, .no_bias = true), norm(ctx, c)));
}

static eg_module *pool(eg_context *ctx, int64_t c)
{
    return eg_sequential(ctx, EG_MODULES(eg_max_pool2d(ctx, 3, .stride = 1, .padding = 1), norm(ctx, c)));
}

static eg_module *layer(eg_context *ctx, const char *key, int64_t c)
{
    return eg_layer_choice(ctx,
                           EG_CHOICES({"conv3x3", conv(ctx, c, c, 1)}, {"sep3x3", sep_conv(ctx, c, 3)},
                                      {"sep5x5", sep_conv(ctx, c, 5)}, {"maxpool", pool(ctx, c)},
                                      {"skip", eg_identity(ctx)}),
                           .key = key);
}

/* ---- a cell ---- */

typedef struct cell {
    eg_module base;
    int64_t index, channels;
    double drop_path;
    eg_module *op1, *op2, *shortcut, *norm;
} cell;

static eg_status cell_build(eg_module *self)
{
    cell *c = (cell *)self;
    char keys[3][40];
    static const char *const roles[] = {"op1", "op2", "shortcut"};
    for (size_t i = 0; i < EG_COUNT(roles); i++)
        snprintf(keys[i], sizeof(keys[i]), "cell%" PRId64 "_%s", c->index, roles[i]);
    EG_SLOT(c, op1, layer(self->ctx, keys[0], c->channels));
    EG_SLOT(c, op2, layer(self->ctx, keys[1], c->channels));
    EG_SLOT(c, shortcut, eg_input_choice(self->ctx, .n_candidates = 1, .key = keys[2]));
    EG_SLOT(c, norm, norm(self->ctx, c->channels));
    return eg_module_status(self);
}

static eg_tensor *cell_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    cell *c = (cell *)self;
    eg_tensor *y = eg_call(c->op2, eg_call(c->op1, in[0]));
    if (c->drop_path > 0 && self->training)
        y = eg_f_drop_path(y, c->drop_path, true);
    return eg_call(c->norm, eg_add(y, eg_call(c->shortcut, in[0])));
}

static EG_NAMED_CLASS(
    cell, "Cell", .build = cell_build, .forward = cell_forward,
    .fields = EG_FIELDS(EG_INT(cell, index, EG_AT_LEAST(0), .help = "number of the cell, in its keys"),
                        EG_INT(cell, channels, EG_AT_LEAST(1), .help = "channels in and out"),
                        EG_FLOAT(cell, drop_path, .min = 0, .max = 1, .help = "layers dropped in training")));

/* ---- the network ---- */

/* The first half of the cells, a reduction, the second half. */
static eg_status add_cells(eg_module *net, const eg_space_options *o, int64_t channels, int64_t layers)
{
    eg_context *ctx = net->ctx;
    for (int64_t i = 0; i < layers; i++) {
        if (i == layers / 2) {
            EG_TRY(eg_append(net, conv(ctx, channels, 2 * channels, 2)));
            channels *= 2;
        }
        EG_TRY(eg_append(net, eg_new(cell, ctx, i, channels, o->drop_path)));
    }
    EG_TRY(eg_append(net, eg_global_avg_pool2d(ctx)));
    return eg_append(net, eg_linear(ctx, channels, o->classes));
}

static eg_module *build(eg_context *ctx, const eg_space_options *o)
{
    int64_t channels = o->channels > 0 ? o->channels : CHANNELS, layers = o->layers > 0 ? o->layers : LAYERS;
    eg_module *net = eg_sequential(ctx, EG_MODULES(conv(ctx, o->input.dims[0], channels, 2)));
    if (net != NULL && add_cells(net, o, channels, layers) == EG_OK)
        return net;
    eg_module_release(net);
    return NULL;
}

static const eg_class *const classes[] = {&cell_class, NULL};

const eg_space eg__cells_space = {
    .name = "cells",
    .help = "a chain of residual cells, two open layers and an open shortcut each; quick on processors",
    .source = "after He et al., CVPR 2016, and Howard et al., 2017",
    .classes = classes,
    .build = build};

/*
 * nas/spaces/darts.c - the cells and the network of DARTS.
 *
 * A cell has two inputs and a few nodes. Node d adds up two of its d incoming edges, one from each earlier node, and
 * each edge is one of seven layers; the nodes together, side by side, are the output. All normal cells of the network
 * share their choices, and so do all reduction cells, which halve the image.
 */
#include "engraft/zoo.h"
#include "nas/internal.h"

enum { NODES = 4, MAX_NODES = 16, CHOSEN_EDGES = 2 };

static eg_module *make_edge(eg_context *ctx, const char *key, int64_t channels, int64_t stride)
{
    return eg_layer_choice(ctx,
                           EG_CHOICES({"maxpool", eg__darts_pool_max(ctx, channels, stride)},
                                      {"avgpool", eg__darts_pool_avg(ctx, channels, stride)},
                                      {"skipconnect", eg__darts_skip(ctx, channels, stride)},
                                      {"sepconv3x3", eg__darts_sep_conv(ctx, channels, 3, stride)},
                                      {"sepconv5x5", eg__darts_sep_conv(ctx, channels, 5, stride)},
                                      {"dilconv3x3", eg__darts_dil_conv(ctx, channels, 3, stride)},
                                      {"dilconv5x5", eg__darts_dil_conv(ctx, channels, 5, stride)}),
                           .key = key);
}

enum { NAME_SIZE = 32, KEY_SIZE = 40 };

/* The children of node d (2, 3, ..): its d incoming edges and what chooses among them. */
static eg_status build_node(eg_darts_cell *cell, int d)
{
    eg_context *ctx = cell->base.ctx;
    const char *kind = cell->reduction ? "reduce" : "normal";
    char keys[MAX_NODES + 1][KEY_SIZE], name[NAME_SIZE], key[KEY_SIZE];
    const char *sources[MAX_NODES + 2] = {NULL};
    for (int i = 0; i < d; i++) {
        snprintf(name, sizeof(name), "n%d_p%d", d, i);
        snprintf(keys[i], sizeof(keys[i]), "%s_%s", kind, name);
        sources[i] = keys[i];
        int64_t stride = cell->reduction && i < 2 ? 2 : 1;
        EG_TRY(eg_module_add_child(&cell->base, name, NULL, make_edge(ctx, keys[i], cell->channels, stride)));
    }
    snprintf(name, sizeof(name), "n%d_switch", d);
    snprintf(key, sizeof(key), "%s_%s", kind, name);
    return eg_module_add_child(
        &cell->base, name, NULL,
        eg_input_choice(ctx, .choose_from = sources, .n_chosen = EG_N(CHOSEN_EDGES), .key = key));
}

static eg_status darts_cell_build(eg_module *self)
{
    eg_darts_cell *cell = (eg_darts_cell *)self;
    EG_SLOT(cell, preprocess0,
            cell->reduction_p ? eg__factorized_reduce(self->ctx, cell->channels_pp, cell->channels)
                              : eg__darts_relu_conv_bn(self->ctx, cell->channels_pp, cell->channels));
    EG_SLOT(cell, preprocess1, eg__darts_relu_conv_bn(self->ctx, cell->channels_p, cell->channels));
    for (int d = 2; d < cell->n_nodes + 2; d++)
        EG_TRY(build_node(cell, d));
    return eg_module_status(self);
}

static eg_tensor *darts_cell_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    eg_darts_cell *cell = (eg_darts_cell *)self;
    size_t n = (size_t)cell->n_nodes, child = 2;
    eg_tensor *states[MAX_NODES + 2] = {eg_call(cell->preprocess0, in[0]), eg_call(cell->preprocess1, in[1])};
    for (size_t d = 2; d < n + 2; d++) {
        eg_tensor *incoming[MAX_NODES + 1];
        for (size_t i = 0; i < d; i++)
            incoming[i] = eg__run_edge(self, eg__child_at(self, child++), states[i], cell->drop_path);
        states[d] = eg_module_call(eg__child_at(self, child++), incoming, d);
    }
    return eg_concat(states + 2, n, 1);
}

EG_NAMED_CLASS(
    eg_darts_cell, "DartsCell", .build = darts_cell_build, .forward = darts_cell_forward, .n_inputs = 2,
    .fields = EG_FIELDS(EG_INT(eg_darts_cell, n_nodes, .min = 1, .max = MAX_NODES, .help = "nodes"),
                        EG_INT(eg_darts_cell, channels_pp, EG_AT_LEAST(1), .help = "channels of the first input"),
                        EG_INT(eg_darts_cell, channels_p, EG_AT_LEAST(1), .help = "channels of the second input"),
                        EG_INT(eg_darts_cell, channels, EG_AT_LEAST(2), .help = "channels of a node"),
                        EG_BOOL(eg_darts_cell, reduction_p, .help = "the first input's image is twice as large"),
                        EG_BOOL(eg_darts_cell, reduction, .help = "halves the image"),
                        EG_FLOAT(eg_darts_cell, drop_path, .min = 0, .max = 1, .help = "edges dropped in training")));

/* ---- the network ---- */

enum { CHANNELS = 16, LAYERS = 8, STEM_MULTIPLIER = 3 };

typedef struct darts_network {
    eg_module base;
    int64_t in_channels, classes, channels, layers;
    double drop_path;
    eg_module *stem, *cells, *classifier;
} darts_network;

/* Adds all cells; *channels receives that of the last one's output. */
static eg_status build_cells(const darts_network *net, int64_t *channels)
{
    eg_context *ctx = net->base.ctx;
    int64_t c = net->channels, before = STEM_MULTIPLIER * c, previous = before;
    bool reduced = false;
    for (int64_t i = 0; i < net->layers; i++) {
        bool reduction = i == net->layers / 3 || i == 2 * net->layers / 3;
        c *= reduction ? 2 : 1;
        EG_TRY(
            eg_append(net->cells, eg_darts_cell(ctx, NODES, before, previous, c, reduced, reduction, net->drop_path)));
        reduced = reduction;
        before = previous;
        previous = NODES * c;
    }
    *channels = previous;
    return EG_OK;
}

static eg_status darts_network_build(eg_module *self)
{
    darts_network *net = (darts_network *)self;
    int64_t stem = STEM_MULTIPLIER * net->channels, out = 0;
    EG_SLOT(net, stem,
            eg_sequential(self->ctx,
                          EG_MODULES(eg_conv2d(self->ctx, net->in_channels, stem, 3, .padding = 1, .no_bias = true),
                                     eg_batch_norm2d(self->ctx, stem))));
    EG_TRY(EG_SLOT(net, cells, eg_module_list(self->ctx)));
    EG_TRY(build_cells(net, &out));
    EG_SLOT(net, classifier, eg_linear(self->ctx, out, net->classes));
    return eg_module_status(self);
}

static eg_tensor *darts_network_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    darts_network *net = (darts_network *)self;
    eg_tensor *previous = eg_call(net->stem, in[0]), *before = previous;
    for (size_t i = 0; i < (size_t)net->layers; i++) {
        eg_tensor *out = eg_call(eg_module_child_at(net->cells, i, NULL), before, previous);
        before = previous;
        previous = out;
    }
    return eg_call(net->classifier, eg_f_flatten(eg_f_adaptive_avg_pool2d(previous, 1), 1, -1));
}

static EG_NAMED_CLASS(
    darts_network, "DartsNetwork", .build = darts_network_build, .forward = darts_network_forward,
    .fields = EG_FIELDS(EG_INT(darts_network, in_channels, EG_AT_LEAST(1), .help = "channels of the image"),
                        EG_INT(darts_network, classes, EG_AT_LEAST(1), .help = "classes"),
                        EG_INT(darts_network, channels, .min = 2, .max = EG__SPACE_MAX_CHANNELS, .def = CHANNELS,
                               .help = "of the first cells"),
                        EG_INT(darts_network, layers, .min = 1, .max = EG__SPACE_MAX_LAYERS, .def = LAYERS,
                               .help = "cells"),
                        EG_FLOAT(darts_network, drop_path, .min = 0, .max = 1, .help = "edges dropped in training")));

static eg_module *build(eg_context *ctx, const eg_space_options *o)
{
    return eg_new(darts_network, ctx, o->input.dims[0], o->classes, o->channels, o->layers, o->drop_path);
}

static const eg_class *const classes[] = {&darts_network_class, &eg_darts_cell_class, &eg__factorized_reduce_class,
                                          NULL};

const eg_space eg__darts_space = {.name = "darts",
                                  .help =
                                      "cells of 4 nodes and 14 edges, 7 layers for each edge; for small color images",
                                  .source = "Liu, Simonyan and Yang, DARTS, ICLR 2019",
                                  .classes = classes,
                                  .build = build};

/*
 * nas/spaces/enas_micro.c - the micro space of ENAS: cells whose nodes choose their inputs.
 *
 * A node adds up two halves; each is one of five layers on one of the states before it, which are the cell's two inputs
 * and its earlier nodes. The states that no half has taken are what the cell gives, through a 1x1 convolution whose
 * weight has a slice for each state. So the cell asks its input choices for their masks.
 */
#include "engraft/zoo.h"
#include "nas/internal.h"

enum { MAX_NODES = 16, MAX_STATES = MAX_NODES + 2, KEY_SIZE = 48 };

/* ---- a node ---- */

typedef struct enas_node {
    eg_module base;
    const char *key;
    int64_t index, channels; /* among the nodes; it has index + 2 states before it */
    bool reduction;
    double drop_path;
    eg_module *x_input, *x_op, *y_input, *y_op;
} enas_node;

static void node_key(char key[KEY_SIZE], bool reduction, int64_t index)
{
    snprintf(key, KEY_SIZE, "%s_node_%d", reduction ? "reduce" : "normal", (int)index);
}

static eg_module *make_input(const enas_node *node, char half)
{
    char keys[MAX_NODES][KEY_SIZE], key[KEY_SIZE + 16];
    const char *sources[MAX_STATES + 1] = {EG_NO_KEY, EG_NO_KEY};
    for (int64_t i = 0; i < node->index; i++) {
        node_key(keys[i], node->reduction, i);
        sources[i + 2] = keys[i];
    }
    snprintf(key, sizeof(key), "%s_%c_input", node->key, half);
    return eg_input_choice(node->base.ctx, .choose_from = sources, .n_chosen = EG_N(1), .return_mask = true,
                           .key = key);
}

/* Candidates have numbers for names, as in the classic zoo: in architectures they are indices. */
static eg_module *make_op(const enas_node *node, char half)
{
    eg_context *ctx = node->base.ctx;
    char key[KEY_SIZE + 16];
    snprintf(key, sizeof(key), "%s_%c_op", node->key, half);
    return eg_layer_choice(ctx,
                           EG_MODULES(eg__enas_sep_conv_bn(ctx, node->channels, 3),
                                      eg__enas_sep_conv_bn(ctx, node->channels, 5), eg__enas_avg_pool(ctx),
                                      eg__enas_max_pool(ctx), eg_identity(ctx)),
                           .key = key);
}

static eg_status node_build(eg_module *self)
{
    enas_node *node = (enas_node *)self;
    EG_TRY(eg__scope_check_key(self));
    EG_SLOT(node, x_input, make_input(node, 'x'));
    EG_SLOT(node, x_op, make_op(node, 'x'));
    EG_SLOT(node, y_input, make_input(node, 'y'));
    EG_SLOT(node, y_op, make_op(node, 'y'));
    return eg_module_status(self);
}

static eg_tensor *run_half(const enas_node *node, eg_module *op, const eg_tensor *chosen)
{
    eg_tensor *x = chosen != NULL ? eg_tuple_get(chosen, 0) : NULL;
    return x == NULL || eg_is_none(x) ? x : eg__run_edge(&node->base, op, x, node->drop_path);
}

/* All states before the node -> its own, and which of them each half took. */
static eg_tensor *node_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    enas_node *node = (enas_node *)self;
    eg_tensor *chosen_x = eg_module_call(node->x_input, in, n_in), *x = run_half(node, node->x_op, chosen_x);
    eg_tensor *chosen_y = eg_module_call(node->y_input, in, n_in), *y = run_half(node, node->y_op, chosen_y);
    eg_tensor *sum = eg_add(x, y);
    if (sum == NULL)
        return NULL;
    return eg_tuple(self->ctx, (eg_tensor *const[]){sum, eg_tuple_get(chosen_x, 1), eg_tuple_get(chosen_y, 1)}, 3);
}

static EG_NAMED_CLASS(
    enas_node, "ENASNode", .super = &eg_mutable_scope_class, .build = node_build, .forward = node_forward,
    .n_inputs = EG_ANY_INPUTS,
    .fields = EG_FIELDS(EG_TEXT(enas_node, key, .help = "key of the scope"),
                        EG_INT(enas_node, index, .min = 0, .max = MAX_NODES - 1, .help = "number of the node"),
                        EG_INT(enas_node, channels, EG_AT_LEAST(1), .help = "channels in and out"),
                        EG_BOOL(enas_node, reduction, .help = "lies in a cell that halves the image"),
                        EG_FLOAT(enas_node, drop_path, .min = 0, .max = 1, .help = "halves dropped in training")));

/* ---- a cell ---- */

static eg_status add_nodes(const eg_enas_micro_layer *cell)
{
    for (int64_t i = 0; i < cell->num_nodes; i++) {
        char key[KEY_SIZE];
        node_key(key, cell->reduction, i);
        EG_TRY(eg_append(cell->nodes, eg_new(enas_node, cell->base.ctx, key, i, cell->out_channels, cell->reduction,
                                             cell->drop_path)));
    }
    return EG_OK;
}

/* To as many channels as a node has. */
static eg_module *calibration(eg_context *ctx, int64_t in_channels, int64_t out_channels)
{
    return in_channels == out_channels ? eg_identity(ctx) : eg__enas_std_conv(ctx, in_channels, out_channels);
}

static eg_status cell_build(eg_module *self)
{
    eg_enas_micro_layer *cell = (eg_enas_micro_layer *)self;
    eg_context *ctx = self->ctx;
    int64_t pp = cell->in_channels_pp, p = cell->in_channels_p, out = cell->out_channels;
    if (cell->reduction) {
        EG_SLOT(cell, reduce0, eg__factorized_reduce(ctx, pp, out, .no_relu = true));
        EG_SLOT(cell, reduce1, eg__factorized_reduce(ctx, p, out, .no_relu = true));
        pp = p = out;
    }
    EG_SLOT(cell, preproc0, calibration(ctx, pp, out));
    EG_SLOT(cell, preproc1, calibration(ctx, p, out));
    EG_TRY(EG_SLOT(cell, nodes, eg_module_list(ctx)));
    EG_TRY(add_nodes(cell));
    EG_TRY(EG_PARAM(cell, final_conv_w,
                    eg_empty(ctx, EG_F32, EG_SHAPE(out, (cell->num_nodes + 2) * out, 1, 1), EG_LAYOUT_ROW_MAJOR)));
    EG_TRY(eg_init_kaiming_normal(cell->final_conv_w, 0));
    EG_SLOT(cell, bn, eg_batch_norm2d(ctx, out, .no_affine = true));
    return eg_module_status(self);
}

/* Marks what one half of a node took of n states. */
static eg_status mark_used(const eg_tensor *mask, size_t n, bool used[MAX_STATES])
{
    float taken[MAX_STATES];
    EG_TRY(eg_tensor_read(mask, taken, n));
    for (size_t i = 0; i < n; i++)
        used[i] = used[i] || taken[i] != 0;
    return EG_OK;
}

/* The 1x1 convolution of all states that are left over, side by side, by their slices of the weight. */
static eg_tensor *join(const eg_enas_micro_layer *cell, eg_tensor *const *states, const bool *used)
{
    eg_tensor *left[MAX_STATES], *slices[MAX_STATES];
    size_t n = 0;
    int64_t c = cell->out_channels;
    for (int64_t i = 0; i < cell->num_nodes + 2; i++) {
        if (used[i] || eg_is_none(states[i]))
            continue;
        left[n] = states[i];
        slices[n++] = eg_slice(cell->final_conv_w, 1, i * c, (i + 1) * c, 1);
    }
    return eg_f_conv2d(eg_f_relu(eg_concat(left, n, 1)), eg_concat(slices, n, 1), eg_none);
}

static eg_tensor *cell_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_enas_micro_layer *cell = (eg_enas_micro_layer *)self;
    eg_tensor *before = cell->reduction ? eg_call(cell->reduce0, in[0]) : in[0];
    eg_tensor *previous = cell->reduction ? eg_call(cell->reduce1, in[1]) : in[1];
    eg_tensor *states[MAX_STATES] = {eg_call(cell->preproc0, before), eg_call(cell->preproc1, previous)};
    bool used[MAX_STATES] = {false};
    for (size_t i = 2; i < (size_t)cell->num_nodes + 2; i++) {
        eg_tensor *out = eg_module_call(eg_module_child_at(cell->nodes, i - 2, NULL), states, i);
        if (out == NULL || mark_used(eg_tuple_get(out, 1), i, used) != EG_OK ||
            mark_used(eg_tuple_get(out, 2), i, used) != EG_OK)
            return NULL;
        states[i] = eg_tuple_get(out, 0);
    }
    eg_tensor *y = eg_call(cell->bn, join(cell, states, used));
    return y != NULL ? eg_tuple(self->ctx, (eg_tensor *const[]){previous, y}, 2) : NULL;
}

EG_NAMED_CLASS(eg_enas_micro_layer, "ENASMicroLayer", .build = cell_build, .forward = cell_forward, .n_inputs = 2,
               .fields = EG_FIELDS(
                   EG_INT(eg_enas_micro_layer, num_nodes, .min = 1, .max = MAX_NODES, .help = "nodes"),
                   EG_INT(eg_enas_micro_layer, in_channels_pp, EG_AT_LEAST(1), .help = "channels of the first input"),
                   EG_INT(eg_enas_micro_layer, in_channels_p, EG_AT_LEAST(1), .help = "channels of the second input"),
                   EG_INT(eg_enas_micro_layer, out_channels, .min = 2, .max = EG__MAX_CHANNELS,
                          .help = "channels of a node, and out"),
                   EG_BOOL(eg_enas_micro_layer, reduction, .help = "halves the image"),
                   EG_FLOAT(eg_enas_micro_layer, drop_path, .min = 0, .max = 1,
                            .help = "halves of nodes dropped in training")));

/* ---- the network ---- */

enum { NODES = 5, CHANNELS = 20, LAYERS = 8, STEM_MULTIPLIER = 3 };

typedef struct enas_micro_network {
    eg_module base;
    int64_t in_channels, classes, channels, layers;
    double drop_path;
    eg_module *stem, *cells, *classifier;
} enas_micro_network;

/* Adds all cells; *channels receives that of the last one's output. */
static eg_status build_cells(const enas_micro_network *net, int64_t *channels)
{
    int64_t c = net->channels, before = STEM_MULTIPLIER * c, previous = before;
    for (int64_t i = 0; i < net->layers; i++) {
        bool reduction = i == net->layers / 3 || i == 2 * net->layers / 3;
        c *= reduction ? 2 : 1;
        EG_TRY(eg_append(net->cells,
                         eg_enas_micro_layer(net->base.ctx, NODES, before, previous, c, reduction, net->drop_path)));
        before = reduction ? c : previous;
        previous = c;
    }
    *channels = previous;
    return EG_OK;
}

static eg_status network_build(eg_module *self)
{
    enas_micro_network *net = (enas_micro_network *)self;
    eg_context *ctx = self->ctx;
    int64_t stem = STEM_MULTIPLIER * net->channels, out = 0;
    EG_SLOT(net, stem,
            eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, net->in_channels, stem, 3, .padding = 1, .no_bias = true),
                                          eg_batch_norm2d(ctx, stem))));
    EG_TRY(EG_SLOT(net, cells, eg_module_list(ctx)));
    EG_TRY(build_cells(net, &out));
    EG_SLOT(net, classifier,
            eg_sequential(ctx, EG_MODULES(eg_relu(ctx), eg_global_avg_pool2d(ctx), eg_linear(ctx, out, net->classes))));
    return eg_module_status(self);
}

static eg_tensor *network_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    enas_micro_network *net = (enas_micro_network *)self;
    eg_tensor *before = eg_call(net->stem, in[0]), *previous = before;
    for (size_t i = 0; i < (size_t)net->layers; i++) {
        eg_tensor *out = eg_call(eg_module_child_at(net->cells, i, NULL), before, previous);
        if (out == NULL)
            return NULL;
        before = eg_tuple_get(out, 0);
        previous = eg_tuple_get(out, 1);
    }
    return eg_call(net->classifier, previous);
}

static EG_NAMED_CLASS(enas_micro_network, "ENASMicroNetwork", .build = network_build, .forward = network_forward,
                      .fields = EG_FIELDS(EG_INT(enas_micro_network, in_channels, EG_AT_LEAST(1),
                                                 .help = "channels of the image"),
                                          EG_INT(enas_micro_network, classes, EG_AT_LEAST(1), .help = "classes"),
                                          EG_INT(enas_micro_network, channels, .min = 2, .max = EG__SPACE_MAX_CHANNELS,
                                                 .def = CHANNELS, .help = "of first cells"),
                                          EG_INT(enas_micro_network, layers, .min = 1, .max = EG__SPACE_MAX_LAYERS,
                                                 .def = LAYERS, .help = "cells"),
                                          EG_FLOAT(enas_micro_network, drop_path, .min = 0, .max = 1,
                                                   .help = "halves of nodes dropped in training")));

static eg_module *build(eg_context *ctx, const eg_space_options *o)
{
    return eg_new(enas_micro_network, ctx, o->input.dims[0], o->classes, o->channels, o->layers, o->drop_path);
}

static const eg_class *const classes[] = {&enas_micro_network_class, &eg_enas_micro_layer_class, &enas_node_class,
                                          &eg__factorized_reduce_class, NULL};

const eg_space eg__enas_micro_space = {
    .name = "enas_micro",
    .help = "cells of 5 nodes, each two layers of five on any states before; for small color images",
    .source = "Pham et al., ENAS, ICML 2018",
    .classes = classes,
    .build = build};

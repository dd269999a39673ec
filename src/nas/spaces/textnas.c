/*
 * nas/spaces/textnas.c - TextNAS: layers over sequences, for texts and other things in a row.
 *
 * A layer takes one of the five layers before it through one of eight operations (convolutions of 1, 3, 5, 7 positions,
 * pools, a recurrent layer, attention), and any of the layers before it are added. All layers, mixed by learned weights
 * and averaged over positions, are classified.
 *
 * A sequence (N, C, L) is an image of height 1: convolutions, pools and batch norms are those of images, and since
 * these lie channels-last in memory, what other layers take, (N, L, C), is a view. There is no mask: padding is word 0,
 * whose vector is zero and stays it.
 */
#include "nas/internal.h"

#include <inttypes.h>

enum { CHANNELS = 64, LAYERS = 8, MAX_LAYERS = 256, NEAREST = 5, HEADS = 4, KEY_SIZE = 40 };

/* (N, C, 1, L) <-> (N, L, C) */
static eg_tensor *positions_first(eg_tensor *x)
{
    eg_shape s = eg_tensor_shape(x);
    return eg_permute(eg_reshape(x, EG_SHAPE(s.dims[0], s.dims[1], s.dims[3])), EG_SHAPE(0, 2, 1));
}

static eg_tensor *channels_first(eg_tensor *x)
{
    eg_shape s = eg_tensor_shape(x);
    return eg_reshape(eg_permute(x, EG_SHAPE(0, 2, 1)), EG_SHAPE(s.dims[0], s.dims[2], 1, s.dims[1]));
}

/* ---- operations ---- */

static eg_module *conv(eg_context *ctx, int64_t in_channels, int64_t out_channels, int64_t length)
{
    return eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, in_channels, out_channels, EG_HW(1, length),
                                                   .padding = EG_HW(0, length / 2), .no_bias = true),
                                         eg_batch_norm2d(ctx, out_channels, .relu = true)));
}

/* A layer over (N, L, C), given sequences as they are here. A recurrent layer's directions are added up. */
typedef struct over_positions {
    eg_module base;
    int64_t channels;
    bool attention;
    eg_module *layer;
} over_positions;

static eg_status over_positions_build(eg_module *self)
{
    over_positions *o = (over_positions *)self;
    int64_t c = o->channels, heads = c % HEADS == 0 ? HEADS : 1;
    return EG_SLOT(o, layer,
                   o->attention ? eg_multihead_attention(self->ctx, c, heads, .batch_first = true)
                                : eg_gru(self->ctx, c, c, .batch_first = true, .bidirectional = true));
}

static eg_tensor *over_positions_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    over_positions *o = (over_positions *)self;
    eg_tensor *y = eg_call(o->layer, positions_first(in[0]));
    if (y == NULL || o->attention)
        return channels_first(y);
    eg_tensor *both = eg_split(eg_tuple_get(y, 0), o->channels, -1);
    return both != NULL ? channels_first(eg_add(eg_tuple_get(both, 0), eg_tuple_get(both, 1))) : NULL;
}

static EG_NAMED_CLASS(over_positions, "OverPositions", .build = over_positions_build, .forward = over_positions_forward,
                      .fields = EG_FIELDS(EG_INT(over_positions, channels, EG_AT_LEAST(1), .help = "channels in, out"),
                                          EG_BOOL(over_positions, attention, .help = "attention, else a GRU")));

static eg_module *make_op(eg_context *ctx, const char *key, int64_t c)
{
    const eg_hw window = EG_HW(1, 3), step = EG_HW(1, 1), padding = EG_HW(0, 1);
    return eg_layer_choice(
        ctx,
        EG_CHOICES({"conv1", conv(ctx, c, c, 1)}, {"conv3", conv(ctx, c, c, 3)}, {"conv5", conv(ctx, c, c, 5)},
                   {"conv7", conv(ctx, c, c, 7)},
                   {"avgpool", eg_avg_pool2d(ctx, window, .stride = step, .padding = padding, .exclude_pad = true)},
                   {"maxpool", eg_max_pool2d(ctx, window, .stride = step, .padding = padding)},
                   {"gru", eg_new(over_positions, ctx, c)}, {"attention", eg_new(over_positions, ctx, c, true)}),
        .key = key);
}

/* ---- a layer ---- */

typedef struct text_layer {
    eg_module base;
    const char *key;
    int64_t index, channels;
    double drop_path;
    eg_module *input, *op, *skips, *norm;
} text_layer;

/* Chooses among the layers from .. to - 1. */
static eg_module *make_choice(const text_layer *l, const char *role, int64_t from, eg_opt_f64 n_chosen)
{
    char labels[MAX_LAYERS][KEY_SIZE], key[KEY_SIZE + 16];
    const char *sources[MAX_LAYERS + 1] = {NULL};
    for (int64_t i = from; i < l->index; i++) {
        snprintf(labels[i], KEY_SIZE, "layer_%" PRId64, i);
        sources[i - from] = labels[i];
    }
    snprintf(key, sizeof(key), "%s_%s", l->key, role);
    return eg_input_choice(l->base.ctx, .choose_from = sources, .n_chosen = n_chosen, .key = key);
}

static eg_status layer_build(eg_module *self)
{
    text_layer *l = (text_layer *)self;
    char key[KEY_SIZE + 16];
    EG_TRY(eg__scope_check_key(self));
    snprintf(key, sizeof(key), "%s_op", l->key);
    if (l->index > 0)
        EG_SLOT(l, input, make_choice(l, "input", EG_MAX(l->index - NEAREST, 0), EG_N(1)));
    EG_SLOT(l, op, make_op(self->ctx, key, l->channels));
    if (l->index > 0)
        EG_SLOT(l, skips, make_choice(l, "skips", 0, (eg_opt_f64){.set = false}));
    EG_SLOT(l, norm, eg_batch_norm2d(self->ctx, l->channels));
    return eg_module_status(self);
}

/* What all layers before give; the first one gets the sequence. */
static eg_tensor *layer_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    text_layer *l = (text_layer *)self;
    if (l->index == 0)
        return eg_call(l->norm, eg__run_edge(self, l->op, in[0], l->drop_path));
    size_t n = EG_MIN(n_in, (size_t)NEAREST);
    eg_tensor *x = eg_module_call(l->input, in + n_in - n, n);
    eg_tensor *y = x != NULL && eg_is_none(x) ? x : eg__run_edge(self, l->op, x, l->drop_path);
    return eg_call(l->norm, eg_add(y, eg_module_call(l->skips, in, n_in)));
}

static EG_NAMED_CLASS(
    text_layer, "TextLayer", .super = &eg_mutable_scope_class, .build = layer_build, .forward = layer_forward,
    .n_inputs = EG_ANY_INPUTS,
    .fields = EG_FIELDS(EG_TEXT(text_layer, key, .help = "key of the scope"),
                        EG_INT(text_layer, index, .min = 0, .max = MAX_LAYERS - 1, .help = "number of the layer"),
                        EG_INT(text_layer, channels, EG_AT_LEAST(1), .help = "channels in and out"),
                        EG_FLOAT(text_layer, drop_path, .min = 0, .max = 1, .help = "operations dropped in training")));

/* ---- the network ---- */

typedef struct text_network {
    eg_module base;
    int64_t features, classes, channels, layers, vocabulary;
    double drop_path;
    eg_module *embedding, *stem, *cells, *classifier;
    eg_tensor *mix; /* of the layers, before a softmax */
} text_network;

static eg_status network_build(eg_module *self)
{
    text_network *net = (text_network *)self;
    eg_context *ctx = self->ctx;
    int64_t c = net->channels;
    if (net->vocabulary > 0)
        EG_SLOT(net, embedding, eg_embedding(ctx, net->vocabulary, c, .padding_idx = EG_F64(0)));
    EG_SLOT(net, stem, conv(ctx, net->vocabulary > 0 ? c : net->features, c, 1));
    EG_TRY(EG_SLOT(net, cells, eg_module_list(ctx)));
    for (int64_t i = 0; i < net->layers; i++) {
        char key[KEY_SIZE];
        snprintf(key, KEY_SIZE, "layer_%" PRId64, i);
        EG_TRY(eg_append(net->cells, eg_new(text_layer, ctx, key, i, c, net->drop_path)));
    }
    EG_PARAM(net, mix, eg_zeros(ctx, EG_SHAPE(net->layers)));
    EG_SLOT(net, classifier,
            eg_sequential(ctx, EG_MODULES(eg_global_avg_pool2d(ctx), eg_linear(ctx, c, net->classes))));
    return eg_module_status(self);
}

/* Data sets hold numbers: words as int64. */
static eg_tensor *words(eg_context *ctx, eg_tensor *x)
{
    if (x == NULL || eg_tensor_is_shape_only(x) || eg_tensor_dtype(x) == EG_I64)
        return x;
    eg_shape shape = eg_tensor_shape(x);
    size_t n = (size_t)eg_tensor_numel(x);
    eg_tensor *ids = eg_empty(ctx, EG_I64, shape, EG_LAYOUT_ROW_MAJOR);
    float *values = eg__calloc(n + 1, sizeof(*values));
    eg_status status = ids != NULL && values != NULL ? eg_tensor_read(x, values, n) : EG_ENOMEM;
    int64_t *out = status == EG_OK ? eg_tensor_data(ids) : NULL;
    for (size_t i = 0; i < n && out != NULL; i++)
        out[i] = values[i] >= 0 && values[i] < (float)INT32_MAX ? (int64_t)(values[i] + 0.5F) : -1;
    eg_free(values);
    return status == EG_OK ? ids : NULL;
}

/* (N, L) words, or numbers: the last dimension is the sequence, all before it are the features of a position. */
static eg_tensor *sequence(const text_network *net, eg_tensor *x)
{
    if (net->embedding != NULL)
        return channels_first(eg_call(net->embedding, words(net->base.ctx, x)));
    int64_t n = eg_tensor_size(x, 0);
    return eg_reshape(x, EG_SHAPE(n, net->features, 1, eg_tensor_size(x, -1)));
}

static eg_tensor *network_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    text_network *net = (text_network *)self;
    size_t n = (size_t)net->layers;
    eg_tensor *outputs[MAX_LAYERS], *x = eg_call(net->stem, sequence(net, in[0]));
    for (size_t i = 0; i < n; i++) {
        eg_module *layer = eg_module_child_at(net->cells, i, NULL);
        outputs[i] = i == 0 ? eg_call(layer, x) : eg_module_call(layer, outputs, i);
    }
    return eg_call(net->classifier, eg_weighted_sum(outputs, n, eg_f_softmax(net->mix, 0)));
}

static EG_NAMED_CLASS(
    text_network, "TextNetwork", .build = network_build, .forward = network_forward,
    .fields = EG_FIELDS(EG_INT(text_network, features, EG_AT_LEAST(1), .help = "numbers at each position"),
                        EG_INT(text_network, classes, EG_AT_LEAST(1), .help = "classes"),
                        EG_INT(text_network, channels, EG_AT_LEAST(1), .def = CHANNELS, .help = "of all layers"),
                        EG_INT(text_network, layers, .min = 1, .max = MAX_LAYERS, .def = LAYERS, .help = "layers"),
                        EG_INT(text_network, vocabulary, EG_AT_LEAST(0), .help = "words; 0 = inputs are numbers"),
                        EG_FLOAT(text_network, drop_path, .min = 0, .max = 1, .help = "dropped in training")));

static eg_module *build(eg_context *ctx, const eg_space_options *o)
{
    int64_t length = o->input.dims[o->input.ndim - 1], features = eg_shape_numel(o->input) / length;
    if (o->vocabulary > 0 && features != 1) {
        char shape[EG_SHAPE_TEXT_SIZE];
        eg_fail(EG_ESHAPE, "space 'textnas': input is %s, expected (L): a row of words",
                eg_shape_format(o->input, shape, sizeof(shape)));
        return NULL;
    }
    return eg_new(text_network, ctx, features, o->classes, o->channels, o->layers, o->vocabulary, o->drop_path);
}

static const eg_class *const classes[] = {&text_network_class, &text_layer_class, &over_positions_class, NULL};

const eg_space eg__textnas_space = {
    .name = "textnas",
    .help = "layers of eight operations over sequences, with any shortcuts; for texts and series",
    .source = "Wang et al., TextNAS, AAAI 2020",
    .any_input = true,
    .classes = classes,
    .build = build};

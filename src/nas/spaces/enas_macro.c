/*
 * nas/spaces/enas_macro.c - the macro space of ENAS: a chain of layers with any shortcuts between them.
 *
 * Where the image is halved, one module halves all states so far, so that shortcuts fit. Which of them an input choice
 * is given, and what it calls them, is as in the classic zoo: of the states up to the input of the layer before.
 */
#include "engraft/zoo.h"
#include "nas/internal.h"

#include <inttypes.h>

enum { FILTERS = 24, LAYERS = 12, MAX_LAYERS = 256, KEY_SIZE = 32 };

/* ---- a layer ---- */

typedef struct enas_macro_layer {
    eg_module base;
    const char *key;
    int64_t index, filters;
    double drop_path;
    eg_module *op, *skipconnect, *batch_norm;
} enas_macro_layer;

static eg_module *make_op(eg_context *ctx, const char *key, int64_t c)
{
    return eg_layer_choice(ctx,
                           EG_MODULES(eg__enas_conv_branch(ctx, c, 3, false), eg__enas_conv_branch(ctx, c, 3, true),
                                      eg__enas_conv_branch(ctx, c, 5, false), eg__enas_conv_branch(ctx, c, 5, true),
                                      eg__enas_pool_branch(ctx, c, eg__enas_avg_pool(ctx)),
                                      eg__enas_pool_branch(ctx, c, eg__enas_max_pool(ctx))),
                           .key = key);
}

static eg_module *make_skipconnect(eg_context *ctx, const char *key, int64_t n)
{
    char labels[MAX_LAYERS][KEY_SIZE];
    const char *sources[MAX_LAYERS + 1] = {NULL};
    for (int64_t i = 0; i < n; i++) {
        snprintf(labels[i], KEY_SIZE, "layer_%" PRId64, i);
        sources[i] = labels[i];
    }
    return eg_input_choice(ctx, .choose_from = sources, .key = key);
}

static eg_status layer_build(eg_module *self)
{
    enas_macro_layer *l = (enas_macro_layer *)self;
    char op[KEY_SIZE], skipconnect[KEY_SIZE];
    EG_TRY(eg__scope_check_key(self));
    snprintf(op, KEY_SIZE, "LayerChoice%" PRId64, EG_MAX(2 * l->index, 1));
    snprintf(skipconnect, KEY_SIZE, "InputChoice%" PRId64, 2 * l->index + 1);
    EG_SLOT(l, op, make_op(self->ctx, op, l->filters));
    if (l->index > 0)
        EG_SLOT(l, skipconnect, make_skipconnect(self->ctx, skipconnect, l->index));
    EG_SLOT(l, batch_norm, eg_batch_norm2d(self->ctx, l->filters));
    return eg_module_status(self);
}

/* All states so far: what the stem gives, and each layer. */
static eg_tensor *layer_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    enas_macro_layer *l = (enas_macro_layer *)self;
    eg_tensor *y = eg__run_edge(self, l->op, in[n_in - 1], l->drop_path);
    if (l->skipconnect != NULL)
        y = eg_add(y, eg_module_call(l->skipconnect, in, n_in - 1));
    return eg_call(l->batch_norm, y);
}

static EG_NAMED_CLASS(
    enas_macro_layer, "ENASMacroLayer", .super = &eg_mutable_scope_class, .build = layer_build,
    .forward = layer_forward, .n_inputs = EG_ANY_INPUTS,
    .fields = EG_FIELDS(EG_TEXT(enas_macro_layer, key, .help = "key of the scope"),
                        EG_INT(enas_macro_layer, index, .min = 0, .max = MAX_LAYERS - 1, .help = "number of the layer"),
                        EG_INT(enas_macro_layer, filters, EG_AT_LEAST(1), .help = "channels in and out"),
                        EG_FLOAT(enas_macro_layer, drop_path, .min = 0, .max = 1, .help = "dropped in training")));

/* ---- the network ---- */

/* Which pool follows layer i: 0, 1, or -1 for none. */
static int pool_after(const eg_enas_macro *net, size_t i)
{
    size_t third = (size_t)net->num_layers / 3;
    return i + 1 == third ? 0 : third > 0 && i + 1 == 2 * third ? 1 : -1;
}

static eg_status add_layers(const eg_enas_macro *net)
{
    eg_context *ctx = net->base.ctx;
    for (int64_t i = 0; i < net->num_layers; i++) {
        char key[KEY_SIZE];
        snprintf(key, KEY_SIZE, "layer_%" PRId64, i);
        EG_TRY(eg_append(net->layers, eg_new(enas_macro_layer, ctx, key, i, net->out_filters, net->drop_path)));
        if (pool_after(net, (size_t)i) >= 0)
            EG_TRY(eg_append(net->pool_layers,
                             eg__factorized_reduce(ctx, net->out_filters, net->out_filters, .no_relu = true)));
    }
    return EG_OK;
}

static eg_status network_build(eg_module *self)
{
    eg_enas_macro *net = (eg_enas_macro *)self;
    eg_context *ctx = self->ctx;
    int64_t c = net->out_filters;
    EG_SLOT(net, stem,
            eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, net->in_channels, c, 3, .padding = 1, .no_bias = true),
                                          eg_batch_norm2d(ctx, c))));
    EG_SLOT(net, layers, eg_module_list(ctx));
    EG_TRY(EG_SLOT(net, pool_layers, eg_module_list(ctx)));
    EG_TRY(add_layers(net));
    EG_SLOT(net, dropout, eg_dropout(ctx, net->dropout_rate));
    EG_SLOT(net, dense, eg_linear(ctx, c, net->num_classes));
    return eg_module_status(self);
}

/* Runs all layers. `states` has room for as many and one more; the last one is returned. */
static eg_tensor *run_layers(const eg_enas_macro *net, eg_tensor *x, eg_tensor **states)
{
    size_t n = 0;
    states[n++] = x;
    for (size_t i = 0; i < (size_t)net->num_layers; i++) {
        states[n] = eg_module_call(eg_module_child_at(net->layers, i, NULL), states, n);
        n++;
        int pool = pool_after(net, i);
        for (size_t k = 0; k < n && pool >= 0; k++)
            states[k] = eg_call(eg_module_child_at(net->pool_layers, (size_t)pool, NULL), states[k]);
    }
    return states[n - 1];
}

static eg_tensor *network_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    eg_enas_macro *net = (eg_enas_macro *)self;
    eg_tensor *states[MAX_LAYERS + 1];
    eg_tensor *y = run_layers(net, eg_call(net->stem, in[0]), states);
    y = eg_f_flatten(eg_f_adaptive_avg_pool2d(y, 1), 1, -1);
    return eg_call(net->dense, eg_call(net->dropout, y));
}

EG_NAMED_CLASS(eg_enas_macro, "ENASMacroGeneralModel", .build = network_build, .forward = network_forward,
               .fields = EG_FIELDS(
                   EG_INT(eg_enas_macro, num_layers, .min = 1, .max = MAX_LAYERS, .def = LAYERS, .help = "layers"),
                   EG_INT(eg_enas_macro, out_filters, EG_AT_LEAST(2), .def = FILTERS, .help = "channels of all layers"),
                   EG_INT(eg_enas_macro, in_channels, EG_AT_LEAST(1), .def = 3, .help = "channels of the image"),
                   EG_INT(eg_enas_macro, num_classes, EG_AT_LEAST(1), .def = 10, .help = "classes"),
                   EG_FLOAT(eg_enas_macro, dropout_rate, .min = 0, .max = 1, .help = "before the classifier"),
                   EG_FLOAT(eg_enas_macro, drop_path, .min = 0, .max = 1, .help = "operations dropped in training")));

static eg_module *build(eg_context *ctx, const eg_space_options *o)
{
    return eg_enas_macro(ctx, o->layers, o->channels, o->input.dims[0], o->classes, .drop_path = o->drop_path);
}

static const eg_class *const classes[] = {&eg_enas_macro_class, &enas_macro_layer_class, &eg__factorized_reduce_class,
                                          NULL};

const eg_space eg__enas_macro_space = {.name = "enas_macro",
                                       .help = "a chain of layers of six operations with any shortcuts; for images",
                                       .source = "Pham et al., ENAS, ICML 2018",
                                       .classes = classes,
                                       .build = build};

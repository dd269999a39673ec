/*
 * nas/spaces/nasbench201.c - the cell and the network of NAS-Bench-201, whose 15,625 networks were all trained.
 *
 * All cells share the choices of their six edges. Parameters and multiply-accumulates of the network are those of the
 * benchmark, so an architecture can be looked up in it.
 */
#include "engraft/zoo.h"
#include "nas/internal.h"

enum { NODES = 4 };

/* ---- candidates ---- */

/* Zeros of the shape that the other candidates give. */
typedef struct zero {
    eg_module base;
    int64_t channels, stride;
} zero;

static eg_tensor *zero_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const zero *z = (zero *)self;
    return eg__zero_image(in[0], z->channels, z->stride);
}

static EG_NAMED_CLASS(
    zero, "Zero", .forward = zero_forward,
    .fields = EG_FIELDS(EG_INT(zero, channels, .min = 1, .max = EG__MAX_CHANNELS, .help = "channels out"),
                        EG_INT(zero, stride, .min = 1, .max = EG__MAX_HW, .help = "step of the image")));

static eg_module *relu_conv_norm(const eg_nasbench201_cell *cell, int64_t in_channels, int64_t kernel, int64_t stride)
{
    eg_context *ctx = cell->base.ctx;
    return eg_sequential(ctx, EG_MODULES(eg_relu(ctx),
                                         eg_conv2d(ctx, in_channels, cell->C_out, kernel, .stride = stride,
                                                   .padding = kernel / 2, .no_bias = true),
                                         eg_batch_norm2d(ctx, cell->C_out, .no_affine = cell->no_bn_affine,
                                                         .momentum = cell->bn_momentum,
                                                         .no_track_running_stats = cell->no_bn_track_running_stats)));
}

static eg_module *avg_pool(const eg_nasbench201_cell *cell, int64_t in_channels, int64_t stride)
{
    eg_context *ctx = cell->base.ctx;
    eg_module *pool = eg_avg_pool2d(ctx, 3, .stride = stride, .padding = 1, .exclude_pad = true);
    return in_channels == cell->C_out ? pool
                                      : eg_sequential(ctx, EG_MODULES(relu_conv_norm(cell, in_channels, 1, 1), pool));
}

static eg_module *skip(const eg_nasbench201_cell *cell, int64_t in_channels, int64_t stride)
{
    if (stride == 1 && in_channels == cell->C_out)
        return eg_identity(cell->base.ctx);
    if (stride != 2 || cell->C_out < 2)
        return relu_conv_norm(cell, in_channels, 1, stride);
    return eg__factorized_reduce(cell->base.ctx, in_channels, cell->C_out, .affine = !cell->no_bn_affine,
                                 .momentum = cell->bn_momentum,
                                 .no_track_running_stats = cell->no_bn_track_running_stats);
}

/* ---- the cell ---- */

static eg_module *make_edge(const eg_nasbench201_cell *cell, const char *key, bool first)
{
    int64_t c = first ? cell->C_in : cell->C_out, stride = first ? cell->stride : 1;
    return eg_layer_choice(
        cell->base.ctx,
        EG_CHOICES({"none", eg_new(zero, cell->base.ctx, cell->C_out, stride)},
                   {"avg_pool_3x3", avg_pool(cell, c, stride)}, {"conv_3x3", relu_conv_norm(cell, c, 3, stride)},
                   {"conv_1x1", relu_conv_norm(cell, c, 1, stride)}, {"skip_connect", skip(cell, c, stride)}),
        .reduction = EG_CHOICE_MEAN, .key = key);
}

static eg_status cell_build(eg_module *self)
{
    for (int i = 1; i < NODES; i++) {
        for (int j = 0; j < i; j++) {
            char key[32];
            snprintf(key, sizeof(key), "%d_%d", j, i);
            EG_TRY(eg_module_add_child(self, key, NULL, make_edge((eg_nasbench201_cell *)self, key, j == 0)));
        }
    }
    return EG_OK;
}

static eg_tensor *cell_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    double drop_path = ((eg_nasbench201_cell *)self)->drop_path;
    eg_tensor *nodes[NODES] = {in[0]};
    size_t edge = 0;
    for (size_t i = 1; i < NODES; i++) {
        eg_tensor *incoming[NODES];
        for (size_t j = 0; j < i; j++)
            incoming[j] = eg__run_edge(self, eg__child_at(self, edge++), nodes[j], drop_path);
        nodes[i] = eg_add_n(incoming, i);
    }
    return nodes[NODES - 1];
}

EG_NAMED_CLASS(
    eg_nasbench201_cell, "NASBench201Cell", .build = cell_build, .forward = cell_forward,
    .fields = EG_FIELDS(
        EG_TEXT(eg_nasbench201_cell, cell_id, .help = "a name to print"),
        EG_INT(eg_nasbench201_cell, C_in, EG_AT_LEAST(1), .help = "channels in"),
        EG_INT(eg_nasbench201_cell, C_out, EG_AT_LEAST(1), .help = "channels out"),
        EG_INT(eg_nasbench201_cell, stride, EG_AT_LEAST(1), .def = 1, .help = "of the edges from the input"),
        EG_BOOL(eg_nasbench201_cell, no_bn_affine, .help = "batch norms without weight and bias"),
        EG_OPT_FLOAT(eg_nasbench201_cell, bn_momentum, .min = 0, .max = 1, .def = 0.1, .help = "of batch norms"),
        EG_BOOL(eg_nasbench201_cell, no_bn_track_running_stats, .help = "batch norms without running statistics"),
        EG_FLOAT(eg_nasbench201_cell, drop_path, .min = 0, .max = 1, .help = "edges dropped in training")));

/* ---- the network ---- */

enum { CHANNELS = 16, CELLS = 5, STAGES = 3 };

static eg_module *conv(eg_context *ctx, int64_t in_channels, int64_t out_channels, int64_t stride)
{
    return eg_conv2d(ctx, in_channels, out_channels, 3, .stride = stride, .padding = 1, .no_bias = true);
}

/* Between stages: a residual block that halves the image (rounded up) and doubles the channels. */
typedef struct reduction_block {
    eg_module base;
    int64_t channels;
    eg_module *body, *downsample;
} reduction_block;

static eg_status reduction_build(eg_module *self)
{
    reduction_block *b = (reduction_block *)self;
    eg_context *ctx = self->ctx;
    int64_t c = b->channels, out = 2 * c;
    EG_SLOT(b, body,
            eg_sequential(ctx, EG_MODULES(eg_relu(ctx), conv(ctx, c, out, 2), eg_batch_norm2d(ctx, out, .relu = true),
                                          conv(ctx, out, out, 1), eg_batch_norm2d(ctx, out))));
    EG_SLOT(b, downsample,
            eg_sequential(
                ctx, EG_MODULES(eg_avg_pool2d(ctx, 2, .ceil_mode = true), eg_conv2d(ctx, c, out, 1, .no_bias = true))));
    return eg_module_status(self);
}

static eg_tensor *reduction_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    reduction_block *b = (reduction_block *)self;
    eg_tensor *y = eg_call(b->body, in[0]);
    return eg_add(y, eg_call(b->downsample, in[0]));
}

static EG_NAMED_CLASS(reduction_block, "ReductionBlock", .build = reduction_build, .forward = reduction_forward,
                      .fields = EG_FIELDS(EG_INT(reduction_block, channels, .min = 1, .max = EG__MAX_CHANNELS,
                                                 .help = "channels in, half of those out")));

static eg_status add_stages(eg_module *net, const eg_space_options *o, int64_t c, int64_t cells)
{
    eg_context *ctx = net->ctx;
    for (int stage = 0; stage < STAGES; stage++) {
        if (stage > 0) {
            EG_TRY(eg_append(net, eg_new(reduction_block, ctx, c)));
            c *= 2;
        }
        for (int64_t i = 0; i < cells; i++)
            EG_TRY(eg_append(net, eg_nasbench201_cell(ctx, NULL, c, c, .drop_path = o->drop_path)));
    }
    EG_TRY(eg_append(net, eg_batch_norm2d(ctx, c, .relu = true)));
    EG_TRY(eg_append(net, eg_global_avg_pool2d(ctx)));
    return eg_append(net, eg_linear(ctx, c, o->classes));
}

static eg_module *build(eg_context *ctx, const eg_space_options *o)
{
    int64_t c = o->channels > 0 ? o->channels : CHANNELS, cells = o->layers > 0 ? o->layers : CELLS;
    eg_module *net = eg_sequential(ctx, EG_MODULES(conv(ctx, o->input.dims[0], c, 1), eg_batch_norm2d(ctx, c)));
    if (net != NULL && add_stages(net, o, c, cells) == EG_OK)
        return net;
    eg_module_release(net);
    return NULL;
}

static const eg_class *const classes[] = {&eg_nasbench201_cell_class, &reduction_block_class, &zero_class,
                                          &eg__factorized_reduce_class, NULL};

const eg_space eg__nasbench201_space = {
    .name = "nasbench201",
    .help = "15 equal cells of 6 edges, 5 layers for each edge: 15,625 networks, all in the benchmark",
    .source = "Dong and Yang, NAS-Bench-201, ICLR 2020",
    .classes = classes,
    .build = build};

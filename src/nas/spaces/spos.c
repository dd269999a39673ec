/*
 * nas/spaces/spos.c - the block space of Single Path One-Shot: 20 blocks of ShuffleNetV2, each with a kernel of 3, 5 or
 * 7, or of three separable convolutions in a row.
 *
 * Images of 64 and more are halved five times, by the stem and by each stage, as in the paper; smaller ones by the
 * stages alone.
 */
#include "engraft/zoo.h"
#include "nas/internal.h"

#include <inttypes.h>

enum { CHANNELS = 16, LAYERS = 20, STAGES = 4, SMALL_SIDE = 64, LAST = 64 };

/* ---- a block ---- */

static eg_status add_depthwise(eg_module *net, int64_t channels, int64_t kernel, int64_t stride)
{
    EG_TRY(eg_append(net, eg_conv2d(net->ctx, channels, channels, kernel, .stride = stride, .padding = kernel / 2,
                                    .groups = channels, .no_bias = true)));
    return eg_append(net, eg_batch_norm2d(net->ctx, channels));
}

static eg_status add_pointwise(eg_module *net, int64_t in_channels, int64_t out_channels)
{
    EG_TRY(eg_append(net, eg_conv2d(net->ctx, in_channels, out_channels, 1, .no_bias = true)));
    return eg_append(net, eg_batch_norm2d(net->ctx, out_channels, .relu = true));
}

/* Depthwise convolution, 1x1 convolution. */
static eg_status add_separable(eg_module *net, int64_t in_channels, int64_t out_channels, int64_t kernel,
                               int64_t stride)
{
    EG_TRY(add_depthwise(net, in_channels, kernel, stride));
    return add_pointwise(net, in_channels, out_channels);
}

static eg_status block_build(eg_module *self)
{
    eg_shufflenet_block *b = (eg_shufflenet_block *)self;
    bool halved = b->stride > 1;
    int64_t in = halved ? b->in_channels : b->in_channels / 2, out = b->out_channels - in, mid = b->out_channels / 2;
    EG_CHECK(out > 0 && (halved || b->in_channels % 2 == 0), EG_EINVAL,
             "ShuffleNet block: %" PRId64 " to %" PRId64 " channels, expected %s", b->in_channels, b->out_channels,
             halved ? "more than before" : "an even number before, and more than half of it after");
    EG_CHECK(b->kernel_size % 2 == 1, EG_EINVAL, "ShuffleNet block: a kernel of %" PRId64 ", expected an odd number",
             b->kernel_size);
    EG_TRY(EG_SLOT(b, branch_main, eg_sequential(self->ctx)));
    if (b->xception) {
        EG_TRY(add_separable(b->branch_main, in, mid, b->kernel_size, b->stride));
        EG_TRY(add_separable(b->branch_main, mid, mid, b->kernel_size, 1));
        EG_TRY(add_separable(b->branch_main, mid, out, b->kernel_size, 1));
    } else {
        EG_TRY(add_pointwise(b->branch_main, in, mid));
        EG_TRY(add_separable(b->branch_main, mid, out, b->kernel_size, b->stride));
    }
    if (!halved)
        return EG_OK;
    EG_TRY(EG_SLOT(b, branch_proj, eg_sequential(self->ctx)));
    return add_separable(b->branch_proj, in, in, b->kernel_size, b->stride);
}

/* Every second channel goes through, those between are left as they are: that is a split and a shuffle in one. */
static eg_tensor *block_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    eg_shufflenet_block *b = (eg_shufflenet_block *)self;
    bool halved = b->branch_proj != NULL;
    eg_tensor *kept = halved ? eg_call(b->branch_proj, in[0]) : eg_slice(in[0], 1, 0, INT64_MAX, 2);
    eg_tensor *x = halved ? in[0] : eg_slice(in[0], 1, 1, INT64_MAX, 2);
    eg_tensor *both[2] = {kept, eg__run_edge(self, b->branch_main, x, b->drop_path)};
    return eg_concat(both, 2, 1);
}

EG_NAMED_CLASS(eg_shufflenet_block, "ShuffleNetBlock", .build = block_build, .forward = block_forward,
               .fields = EG_FIELDS(
                   EG_INT(eg_shufflenet_block, in_channels, EG_AT_LEAST(1), .help = "channels in"),
                   EG_INT(eg_shufflenet_block, out_channels, EG_AT_LEAST(2), .help = "channels out"),
                   EG_INT(eg_shufflenet_block, kernel_size, .min = 1, .max = 15, .help = "of depthwise convolutions"),
                   EG_INT(eg_shufflenet_block, stride, .min = 1, .max = 2, .def = 1, .help = "2 halves the image"),
                   EG_BOOL(eg_shufflenet_block, xception, .help = "three separable convolutions"),
                   EG_FLOAT(eg_shufflenet_block, drop_path, .min = 0, .max = 1,
                            .help = "main branches dropped in training")));

/* ---- the network ---- */

static const int64_t sizes[STAGES] = {4, 4, 8, 4}, widths[STAGES] = {4, 10, 20, 40};

static eg_module *choice(eg_context *ctx, const char *key, const int64_t c[2], int64_t stride, double drop_path)
{
#define BLOCK(kernel, xception) eg_shufflenet_block(ctx, c[0], c[1], kernel, stride, xception, drop_path)
    return eg_layer_choice(ctx,
                           EG_CHOICES({"shuffle3x3", BLOCK(3, false)}, {"shuffle5x5", BLOCK(5, false)},
                                      {"shuffle7x7", BLOCK(7, false)}, {"xception3x3", BLOCK(3, true)}),
                           .key = key);
#undef BLOCK
}

static eg_status add_blocks(eg_module *net, const eg_space_options *o, int64_t c, int64_t layers)
{
    eg_context *ctx = net->ctx;
    int64_t channels[2] = {c};
    size_t before = STAGES;
    for (int64_t i = 0; i < layers; i++) {
        size_t stage = eg__stage_of(sizes, STAGES, i, layers);
        channels[1] = widths[stage] * c;
        char key[40];
        snprintf(key, sizeof(key), "LayerChoice%" PRId64, i + 1);
        EG_TRY(eg_append(net, choice(ctx, key, channels, stage == before ? 1 : 2, o->drop_path)));
        before = stage;
        channels[0] = channels[1];
    }
    EG_TRY(add_pointwise(net, channels[0], LAST * c));
    EG_TRY(eg_append(net, eg_global_avg_pool2d(ctx)));
    EG_TRY(eg_append(net, eg_dropout(ctx, 0.1)));
    return eg_append(net, eg_linear(ctx, LAST * c, o->classes, .no_bias = true));
}

static eg_module *build(eg_context *ctx, const eg_space_options *o)
{
    int64_t c = o->channels > 0 ? o->channels : CHANNELS, layers = o->layers > 0 ? o->layers : LAYERS;
    bool small = EG_MIN(o->input.dims[1], o->input.dims[2]) < SMALL_SIDE;
    eg_module *net = eg_sequential(
        ctx, EG_MODULES(eg_conv2d(ctx, o->input.dims[0], c, 3, .stride = small ? 1 : 2, .padding = 1, .no_bias = true),
                        eg_batch_norm2d(ctx, c, .relu = true)));
    if (net != NULL && add_blocks(net, o, c, layers) == EG_OK)
        return net;
    eg_module_release(net);
    return NULL;
}

static const eg_class *const classes[] = {&eg_shufflenet_block_class, NULL};

const eg_space eg__spos_space = {.name = "spos",
                                 .help = "20 blocks of ShuffleNetV2 of four kinds; for images of any size",
                                 .source = "Guo et al., Single Path One-Shot, ECCV 2020",
                                 .classes = classes,
                                 .build = build};

/*
 * nas/spaces/proxylessnas.c - the mobile space of ProxylessNAS: a chain of inverted bottlenecks of open kernel size and
 * expansion. Where a block keeps the shape it is a residual, and "Zero" leaves the residual alone: so depth is open
 * too.
 *
 * Images of 64 and more are halved five times, by the stem and by four of the six stages, as in the paper; smaller ones
 * by neither the stem nor the first stage.
 */
#include "nas/internal.h"

#include <inttypes.h>

enum { CHANNELS = 32, LAYERS = 21, STAGES = 6, HEAD = 40, SMALL_SIDE = 64 };

static const int64_t sizes[STAGES] = {4, 4, 4, 4, 4, 1}, widths[STAGES] = {24, 40, 80, 96, 192, 320};
static const bool halves[STAGES] = {true, true, true, false, true, false};

/* A width of the paper for a stem of c channels. */
static int64_t scaled(int64_t width, int64_t c)
{
    return (width * c + CHANNELS - 1) / CHANNELS;
}

/* Nothing at all, at no cost. */
static eg_tensor *no_branch_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)self, (void)in, (void)n_in;
    return eg_none;
}

typedef eg_activation no_branch;
static EG_NAMED_CLASS(no_branch, "NoBranch", .forward = no_branch_forward);

/* One of the 21 blocks: six candidates, or seven where the shape is kept. */
static eg_module *make_block(eg_context *ctx, const char *key, const int64_t c[2], int64_t stride, double drop_path)
{
    bool residual = stride == 1 && c[0] == c[1];
    const eg_named_module candidates[] = {
        {"3x3_MBConv3", eg__mbconv(ctx, c[0], c[1], 3, stride, 3)},
        {"3x3_MBConv6", eg__mbconv(ctx, c[0], c[1], 3, stride, 6)},
        {"5x5_MBConv3", eg__mbconv(ctx, c[0], c[1], 5, stride, 3)},
        {"5x5_MBConv6", eg__mbconv(ctx, c[0], c[1], 5, stride, 6)},
        {"7x7_MBConv3", eg__mbconv(ctx, c[0], c[1], 7, stride, 3)},
        {"7x7_MBConv6", eg__mbconv(ctx, c[0], c[1], 7, stride, 6)},
        {"Zero", residual ? eg_new(no_branch, ctx) : NULL},
    };
    eg_module *choice =
        eg_layer_choice(ctx, .named = candidates, .n_named = EG_COUNT(candidates) - !residual, .key = key);
    return residual ? eg__residual(ctx, EG_NAMED({"conv", choice}), .drop_path = drop_path) : choice;
}

static eg_status add_blocks(eg_module *net, const eg_space_options *o, int64_t c, int64_t layers, bool small)
{
    int64_t channels[2] = {scaled(CHANNELS / 2, c)}, in_stage = 0;
    size_t before = STAGES;
    for (int64_t i = 0; i < layers; i++) {
        size_t stage = eg__stage_of(sizes, STAGES, i, layers);
        bool first = stage != before;
        before = stage;
        in_stage = first ? 0 : in_stage + 1;
        int64_t stride = first && halves[stage] && !(small && stage == 0) ? 2 : 1;
        channels[1] = scaled(widths[stage], c);
        char key[40];
        snprintf(key, sizeof(key), "s%zu_c%" PRId64, stage + 1, in_stage);
        EG_TRY(eg_append(net, make_block(net->ctx, key, channels, stride, o->drop_path)));
        channels[0] = channels[1];
    }
    EG_TRY(eg_append(net, eg__mobile_conv(net->ctx, channels[0], HEAD * c, 1, 1)));
    EG_TRY(eg_append(net, eg_global_avg_pool2d(net->ctx)));
    return eg_append(net, eg_linear(net->ctx, HEAD * c, o->classes));
}

static eg_module *build(eg_context *ctx, const eg_space_options *o)
{
    int64_t c = o->channels > 0 ? o->channels : CHANNELS, layers = o->layers > 0 ? o->layers : LAYERS;
    bool small = EG_MIN(o->input.dims[1], o->input.dims[2]) < SMALL_SIDE;
    eg_module *net = eg_sequential(ctx, EG_MODULES(eg__mobile_conv(ctx, o->input.dims[0], c, 3, small ? 1 : 2),
                                                   eg__mbconv(ctx, c, scaled(CHANNELS / 2, c), 3, 1, 1)));
    if (net != NULL && add_blocks(net, o, c, layers, small) == EG_OK)
        return net;
    eg_module_release(net);
    return NULL;
}

static const eg_class *const classes[] = {&eg__residual_class, &no_branch_class, NULL};

const eg_space eg__proxylessnas_space = {
    .name = "proxylessnas",
    .help = "21 inverted bottlenecks of open kernel size and expansion, or left out; for images of any size",
    .source = "Cai, Zhu and Han, ProxylessNAS, ICLR 2019",
    .classes = classes,
    .build = build};

/*
 * nas/spaces/nasbench_macro.c - NAS-Bench-Macro: eight layers of three candidates, 6,561 networks, all trained.
 *
 * Parameters and multiply-accumulates of each network are those of the benchmark, so an architecture can be looked up
 * in it: its digits are the decisions, layer by layer.
 */
#include "nas/internal.h"

#include <inttypes.h>

enum { CHANNELS = 32, LAYERS = 8, STAGES = 3, HEAD = 40 };

static const int64_t sizes[STAGES] = {2, 3, 3};

/* From which channels to which, and the step of the image. */
typedef struct layer_shape {
    int64_t in_channels, out_channels, stride;
} layer_shape;

static bool keeps(const layer_shape *s)
{
    return s->stride == 1 && s->in_channels == s->out_channels;
}

/* Candidate "0": nothing, or where the shape changes the least that changes it. */
static eg_module *skip(eg_context *ctx, const layer_shape *s)
{
    if (keeps(s))
        return eg_identity(ctx);
    return eg_sequential(
        ctx, EG_MODULES(eg_conv2d(ctx, s->in_channels, s->out_channels, 1, .stride = s->stride, .no_bias = true),
                        eg_batch_norm2d(ctx, s->out_channels)));
}

static eg_module *mbconv(eg_context *ctx, const layer_shape *s, int64_t kernel, int64_t expansion, double drop_path)
{
    eg_module *body = eg__mbconv(ctx, s->in_channels, s->out_channels, kernel, s->stride, expansion);
    return keeps(s) ? eg__residual(ctx, EG_NAMED({"conv", body}), .drop_path = drop_path) : body;
}

static eg_status add_layers(eg_module *net, const eg_space_options *o, int64_t c, int64_t layers)
{
    eg_context *ctx = net->ctx;
    layer_shape s = {.in_channels = c};
    size_t before = STAGES;
    for (int64_t i = 0; i < layers; i++) {
        size_t stage = eg__stage_of(sizes, STAGES, i, layers);
        s.out_channels = 2 * c << stage;
        s.stride = stage == before ? 1 : 2;
        before = stage;
        char key[32];
        snprintf(key, sizeof(key), "layer_%" PRId64, i);
        EG_TRY(eg_append(net, eg_layer_choice(ctx,
                                              EG_MODULES(skip(ctx, &s), mbconv(ctx, &s, 3, 3, o->drop_path),
                                                         mbconv(ctx, &s, 5, 6, o->drop_path)),
                                              .key = key)));
        s.in_channels = s.out_channels;
    }
    EG_TRY(eg_append(net, eg__mobile_conv(ctx, s.in_channels, HEAD * c, 1, 1)));
    EG_TRY(eg_append(net, eg_global_avg_pool2d(ctx)));
    return eg_append(net, eg_linear(ctx, HEAD * c, o->classes));
}

static eg_module *build(eg_context *ctx, const eg_space_options *o)
{
    int64_t c = o->channels > 0 ? o->channels : CHANNELS, layers = o->layers > 0 ? o->layers : LAYERS;
    eg_module *net = eg_sequential(ctx, EG_MODULES(eg__mobile_conv(ctx, o->input.dims[0], c, 3, 1)));
    if (net != NULL && add_layers(net, o, c, layers) == EG_OK)
        return net;
    eg_module_release(net);
    return NULL;
}

static const eg_class *const classes[] = {&eg__residual_class, NULL};

const eg_space eg__nasbench_macro_space = {
    .name = "nasbench_macro",
    .help = "8 layers, each nothing or one of two inverted bottlenecks: 6,561 networks, all in the benchmark",
    .source = "Su et al., Prioritized Architecture Sampling with Monte-Carlo Tree Search, CVPR 2021",
    .classes = classes,
    .build = build};

/*
 * nas/spaces/mobile_ops.c - the blocks of networks for phones: inverted bottlenecks (Sandler et al., MobileNetV2, CVPR
 * 2018), residuals around them, and how a number of layers is spread over stages.
 */
#include "nas/internal.h"

eg_module *eg__mobile_conv(eg_context *ctx, int64_t in_channels, int64_t out_channels, int64_t kernel, int64_t stride)
{
    return eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, in_channels, out_channels, kernel, .stride = stride,
                                                   .padding = kernel / 2, .no_bias = true),
                                         eg_batch_norm2d(ctx, out_channels), eg_relu6(ctx)));
}

/* Adds a 1x1 convolution, or a depthwise one, and its batch norm. */
static eg_status add_conv(eg_module *net, int64_t in_channels, int64_t out_channels, int64_t kernel, int64_t stride)
{
    eg_context *ctx = net->ctx;
    EG_TRY(eg_append(net, eg_conv2d(ctx, in_channels, out_channels, kernel, .stride = stride, .padding = kernel / 2,
                                    .groups = kernel > 1 ? in_channels : 1, .no_bias = true)));
    return eg_append(net, eg_batch_norm2d(ctx, out_channels));
}

static eg_status add_mbconv(eg_module *net, const eg__mbconv_args *a)
{
    int64_t hidden = a->in_channels * a->expansion;
    if (a->expansion > 1) {
        EG_TRY(add_conv(net, a->in_channels, hidden, 1, 1));
        EG_TRY(eg_append(net, eg_relu6(net->ctx)));
    }
    EG_TRY(add_conv(net, hidden, hidden, a->kernel, a->stride));
    EG_TRY(eg_append(net, eg_relu6(net->ctx)));
    return add_conv(net, hidden, a->out_channels, 1, 1);
}

eg_module *eg__mbconv_with(eg_context *ctx, const eg__mbconv_args *args)
{
    eg_module *net = eg_sequential(ctx);
    if (net != NULL && add_mbconv(net, args) == EG_OK)
        return net;
    eg_module_release(net);
    return NULL;
}

static eg_tensor *residual_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    double drop_path = ((eg__residual *)self)->drop_path;
    return eg_add(in[0], eg__run_edge(self, eg__child_at(self, 0), in[0], drop_path));
}

EG_NAMED_CLASS(eg__residual, "Residual", .forward = residual_forward,
               .fields = EG_FIELDS(EG_NAMED_FIELD(eg__residual), EG_FLOAT(eg__residual, drop_path, .min = 0, .max = 1,
                                                                          .help = "of the branch, in training")));

size_t eg__stage_of(const int64_t *sizes, size_t n_stages, int64_t layer, int64_t layers)
{
    int64_t all = 0;
    for (size_t i = 0; i < n_stages; i++)
        all += sizes[i];
    int64_t place = layer * all / layers;
    size_t stage = 0;
    while (stage + 1 < n_stages && place >= sizes[stage])
        place -= sizes[stage++];
    return stage;
}

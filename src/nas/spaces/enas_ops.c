/*
 * nas/spaces/enas_ops.c - the blocks of ENAS (Pham et al., ICML 2018), which both of its spaces are made of. Only the
 * batch norms that end a candidate of a cell have weights.
 */
#include "nas/internal.h"

static eg_module *norm(eg_context *ctx, int64_t channels, bool relu)
{
    return eg_batch_norm2d(ctx, channels, .no_affine = true, .relu = relu);
}

static eg_module *conv(eg_context *ctx, int64_t channels, int64_t kernel)
{
    return eg_conv2d(ctx, channels, channels, kernel, .padding = kernel / 2, .no_bias = true);
}

static eg_module *depthwise(eg_context *ctx, int64_t channels, int64_t kernel)
{
    return eg_conv2d(ctx, channels, channels, kernel, .padding = kernel / 2, .groups = channels, .no_bias = true);
}

eg_module *eg__enas_std_conv(eg_context *ctx, int64_t in_channels, int64_t out_channels)
{
    return eg_sequential(
        ctx, EG_MODULES(eg_conv2d(ctx, in_channels, out_channels, 1, .no_bias = true), norm(ctx, out_channels, true)));
}

eg_module *eg__enas_sep_conv_bn(eg_context *ctx, int64_t channels, int64_t kernel)
{
    return eg_sequential(ctx, EG_MODULES(eg_relu(ctx), depthwise(ctx, channels, kernel), conv(ctx, channels, 1),
                                         eg_batch_norm2d(ctx, channels)));
}

eg_module *eg__enas_avg_pool(eg_context *ctx)
{
    return eg_avg_pool2d(ctx, 3, .stride = 1, .padding = 1, .exclude_pad = true);
}

eg_module *eg__enas_max_pool(eg_context *ctx)
{
    return eg_max_pool2d(ctx, 3, .stride = 1, .padding = 1);
}

eg_module *eg__enas_conv_branch(eg_context *ctx, int64_t channels, int64_t kernel, bool separable)
{
    eg_module *before = eg__enas_std_conv(ctx, channels, channels);
    if (!separable)
        return eg_sequential(ctx, EG_MODULES(before, conv(ctx, channels, kernel), norm(ctx, channels, true)));
    return eg_sequential(
        ctx, EG_MODULES(before, depthwise(ctx, channels, kernel), conv(ctx, channels, 1), norm(ctx, channels, true)));
}

eg_module *eg__enas_pool_branch(eg_context *ctx, int64_t channels, eg_module *pool)
{
    return eg_sequential(ctx, EG_MODULES(eg__enas_std_conv(ctx, channels, channels), pool, norm(ctx, channels, false)));
}

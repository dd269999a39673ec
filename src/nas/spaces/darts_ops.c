/*
 * nas/spaces/darts_ops.c - the candidates of DARTS (Liu et al., ICLR 2019), as their authors made them: batch norms
 * without weights of their own, because a softmax already scales what the candidates give.
 */
#include "nas/internal.h"

static eg_module *norm(eg_context *ctx, int64_t channels, bool relu)
{
    return eg_batch_norm2d(ctx, channels, .no_affine = true, .relu = relu);
}

static eg_module *conv(eg_context *ctx, int64_t in_channels, int64_t out_channels)
{
    return eg_conv2d(ctx, in_channels, out_channels, 1, .no_bias = true);
}

eg_module *eg__darts_pool_max(eg_context *ctx, int64_t channels, int64_t stride)
{
    return eg_sequential(ctx,
                         EG_MODULES(eg_max_pool2d(ctx, 3, .stride = stride, .padding = 1), norm(ctx, channels, false)));
}

eg_module *eg__darts_pool_avg(eg_context *ctx, int64_t channels, int64_t stride)
{
    return eg_sequential(ctx, EG_MODULES(eg_avg_pool2d(ctx, 3, .stride = stride, .padding = 1, .exclude_pad = true),
                                         norm(ctx, channels, false)));
}

eg_module *eg__darts_sep_conv(eg_context *ctx, int64_t channels, int64_t kernel, int64_t stride)
{
    int64_t c = channels, p = kernel / 2;
    return eg_sequential(
        ctx, EG_MODULES(eg_relu(ctx),
                        eg_conv2d(ctx, c, c, kernel, .stride = stride, .padding = p, .groups = c, .no_bias = true),
                        conv(ctx, c, c), norm(ctx, c, true),
                        eg_conv2d(ctx, c, c, kernel, .padding = p, .groups = c, .no_bias = true), conv(ctx, c, c),
                        norm(ctx, c, false)));
}

eg_module *eg__darts_dil_conv(eg_context *ctx, int64_t channels, int64_t kernel, int64_t stride)
{
    int64_t c = channels;
    return eg_sequential(ctx, EG_MODULES(eg_relu(ctx),
                                         eg_conv2d(ctx, c, c, kernel, .stride = stride, .padding = kernel - 1,
                                                   .dilation = 2, .groups = c, .no_bias = true),
                                         conv(ctx, c, c), norm(ctx, c, false)));
}

eg_module *eg__darts_relu_conv_bn(eg_context *ctx, int64_t in_channels, int64_t out_channels)
{
    return eg_sequential(
        ctx, EG_MODULES(eg_relu(ctx), conv(ctx, in_channels, out_channels), norm(ctx, out_channels, false)));
}

/* ---- half the image: two 1x1 convolutions of stride 2, one of them a pixel further ---- */

typedef struct eg__factorized_reduce {
    eg_module base;
    int64_t in_channels, out_channels;
    eg_module *conv0, *conv1, *norm;
} eg__factorized_reduce;

static eg_status factorized_reduce_build(eg_module *self)
{
    eg__factorized_reduce *f = (eg__factorized_reduce *)self;
    int64_t half = f->out_channels / 2;
    EG_SLOT(f, conv0, eg_conv2d(self->ctx, f->in_channels, half, 1, .stride = 2, .no_bias = true));
    EG_SLOT(f, conv1, eg_conv2d(self->ctx, f->in_channels, f->out_channels - half, 1, .stride = 2, .no_bias = true));
    return EG_SLOT(f, norm, norm(self->ctx, f->out_channels, false));
}

/* x without its first row and column. Of an odd size a line of zeros is added, so that both halves come out alike. */
static eg_tensor *shifted(eg_tensor *x)
{
    int64_t odd_h = eg_tensor_size(x, 2) % 2, odd_w = eg_tensor_size(x, 3) % 2;
    if (odd_h != 0 || odd_w != 0)
        x = eg_f_pad(x, EG_SHAPE(0, odd_w, 0, odd_h), 0);
    return eg_slice(eg_slice(x, 2, 1, INT64_MAX, 1), 3, 1, INT64_MAX, 1);
}

static eg_tensor *factorized_reduce_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    eg__factorized_reduce *f = (eg__factorized_reduce *)self;
    eg_tensor *x = eg_f_relu(in[0]);
    eg_tensor *halves[2] = {eg_call(f->conv0, x), eg_call(f->conv1, shifted(x))};
    return eg_call(f->norm, eg_concat(halves, 2, 1));
}

EG_NAMED_CLASS(eg__factorized_reduce, "FactorizedReduce", .build = factorized_reduce_build,
               .forward = factorized_reduce_forward,
               .fields = EG_FIELDS(EG_INT(eg__factorized_reduce, in_channels, EG_AT_LEAST(1), .help = "channels in"),
                                   EG_INT(eg__factorized_reduce, out_channels, EG_AT_LEAST(2),
                                          .help = "channels out")));

eg_module *eg__darts_factorized_reduce(eg_context *ctx, int64_t in_channels, int64_t out_channels)
{
    return eg_new(eg__factorized_reduce, ctx, in_channels, out_channels);
}

eg_module *eg__darts_skip(eg_context *ctx, int64_t channels, int64_t stride)
{
    return stride == 1 ? eg_identity(ctx) : eg__darts_factorized_reduce(ctx, channels, channels);
}

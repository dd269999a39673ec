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

static eg_status factorized_reduce_build(eg_module *self)
{
    eg__factorized_reduce *f = (eg__factorized_reduce *)self;
    int64_t half = f->out_channels / 2;
    EG_SLOT(f, conv0, eg_conv2d(self->ctx, f->in_channels, half, 1, .stride = 2, .no_bias = true));
    EG_SLOT(f, conv1, eg_conv2d(self->ctx, f->in_channels, f->out_channels - half, 1, .stride = 2, .no_bias = true));
    return EG_SLOT(f, norm,
                   eg_batch_norm2d(self->ctx, f->out_channels, .no_affine = !f->affine, .momentum = f->momentum,
                                   .no_track_running_stats = f->no_track_running_stats));
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
    eg_tensor *x = f->no_relu ? in[0] : eg_f_relu(in[0]);
    eg_tensor *halves[2] = {eg_call(f->conv0, x), eg_call(f->conv1, shifted(x))};
    return eg_call(f->norm, eg_concat(halves, 2, 1));
}

EG_NAMED_CLASS(eg__factorized_reduce, "FactorizedReduce", .build = factorized_reduce_build,
               .forward = factorized_reduce_forward,
               .fields = EG_FIELDS(EG_INT(eg__factorized_reduce, in_channels, EG_AT_LEAST(1), .help = "channels in"),
                                   EG_INT(eg__factorized_reduce, out_channels, EG_AT_LEAST(2), .help = "channels out"),
                                   EG_BOOL(eg__factorized_reduce, no_relu, .help = "without the ReLU at the beginning"),
                                   EG_BOOL(eg__factorized_reduce, affine, .help = "the batch norm has weight and bias"),
                                   EG_OPT_FLOAT(eg__factorized_reduce, momentum, .min = 0, .max = 1, .def = 0.1,
                                                .help = "of the batch norm"),
                                   EG_BOOL(eg__factorized_reduce, no_track_running_stats,
                                           .help = "the batch norm has no running statistics")));

eg_module *eg__darts_skip(eg_context *ctx, int64_t channels, int64_t stride)
{
    return stride == 1 ? eg_identity(ctx) : eg__factorized_reduce(ctx, channels, channels);
}

eg_tensor *eg__run_edge(const eg_module *cell, eg_module *edge, eg_tensor *x, double drop_path)
{
    eg_tensor *y = eg_call(edge, x);
    bool drop = drop_path > 0 && cell->training && y != x && !eg_is_none(y);
    return drop ? eg_f_drop_path(y, drop_path, true) : y;
}

eg_tensor *eg__zero_image(eg_tensor *x, int64_t channels, int64_t stride)
{
    eg_shape shape = eg_tensor_shape(x);
    if (shape.ndim != 4) {
        char text[EG_SHAPE_TEXT_SIZE];
        eg_fail(EG_ESHAPE, "input is %s, expected images (N, C, H, W)", eg_shape_format(shape, text, sizeof(text)));
        return NULL;
    }
    shape.dims[1] = channels;
    shape.dims[2] = (shape.dims[2] + stride - 1) / stride;
    shape.dims[3] = (shape.dims[3] + stride - 1) / stride;
    return eg_tensor_is_shape_only(x) ? eg_shape_only(x->ctx, shape) : eg_zeros(x->ctx, shape);
}

#include "nn/internal.h"

#include <inttypes.h>

static eg_tensor *zero_counter(eg_context *ctx)
{
    eg_tensor *t = eg_empty(ctx, EG_I64, EG_SCALAR, EG_LAYOUT_ROW_MAJOR);
    if (t != NULL)
        *eg__i64(t) = 0;
    return t;
}

static eg_status build(eg_module *self)
{
    eg_batch_norm2d *b = EG_CAST(self, eg_batch_norm2d);
    eg_shape channels = EG_SHAPE(b->num_features);
    EG_TRY(EG_PARAM(b, weight, b->no_affine ? eg_none : eg_ones(self->ctx, channels)));
    EG_TRY(EG_PARAM(b, bias, b->no_affine ? eg_none : eg_zeros(self->ctx, channels)));
    bool none = b->no_track_running_stats;
    EG_TRY(EG_BUFFER(b, running_mean, none ? eg_none : eg_zeros(self->ctx, channels)));
    EG_TRY(EG_BUFFER(b, running_var, none ? eg_none : eg_ones(self->ctx, channels)));
    return EG_BUFFER(b, num_batches_tracked, none ? eg_none : zero_counter(self->ctx));
}

static bool tracks(const eg_batch_norm2d *b)
{
    return b->base.training && !b->no_track_running_stats;
}

eg_batch_norm_args eg__batch_norm2d_args(const eg_batch_norm2d *b, eg_tensor *x)
{
    double momentum = b->momentum.value;
    if (tracks(b) && b->cumulative)
        momentum = 1 / ((double)*eg__i64(b->num_batches_tracked) + 1);
    return (eg_batch_norm_args){.x = x,
                                .running_mean = b->running_mean,
                                .running_var = b->running_var,
                                .weight = b->weight,
                                .bias = b->bias,
                                .training = b->base.training || b->no_track_running_stats,
                                .momentum = momentum,
                                .eps = b->eps,
                                .relu = b->relu};
}

void eg__batch_norm2d_count(eg_batch_norm2d *b)
{
    if (!tracks(b) || eg__is_repeating(b->base.ctx))
        return;
    ++*eg__i64(b->num_batches_tracked);
    eg_tensor_touch(b->num_batches_tracked);
}

static eg_tensor *normalize(eg_batch_norm2d *b, eg_tensor *x, bool relu, double relu_max)
{
    eg_batch_norm_args args = eg__batch_norm2d_args(b, x);
    args.relu = relu;
    args.relu_max = relu_max;
    eg_tensor *y = eg_f_batch_norm_with(&args);
    if (y != NULL && !eg_tensor_is_shape_only(x))
        eg__batch_norm2d_count(b);
    return y;
}

static eg_tensor *forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    eg_batch_norm2d *b = EG_CAST(self, eg_batch_norm2d);
    return normalize(b, in[0], b->relu, 0);
}

eg_tensor *eg__batch_norm2d_forward_relu(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return normalize(EG_CAST(self, eg_batch_norm2d), in[0], true, 0);
}

eg_tensor *eg__batch_norm2d_forward_relu6(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return normalize(EG_CAST(self, eg_batch_norm2d), in[0], true, 6);
}

static void describe(const eg_module *self, char *text, size_t size)
{
    const eg_batch_norm2d *b = (const eg_batch_norm2d *)self;
    char eps[EG__NUMBER_TEXT_SIZE], momentum[EG__NUMBER_TEXT_SIZE];
    snprintf(text, size, "%" PRId64 ", eps=%s, momentum=%s, affine=%s, track_running_stats=%s%s", b->num_features,
             eg__number_text(b->eps, eps), b->cumulative ? "None" : eg__number_text(b->momentum.value, momentum),
             b->no_affine ? "False" : "True", b->no_track_running_stats ? "False" : "True",
             b->relu ? ", relu=True" : "");
}

EG_NAMED_CLASS(eg_batch_norm2d, "BatchNorm2d", .build = build, .forward = forward, .describe = describe,
               .fields = EG_FIELDS(
                   EG_INT(eg_batch_norm2d, num_features, .min = 1, .max = EG__MAX_CHANNELS, .help = "channels"),
                   EG_FLOAT(eg_batch_norm2d, eps, .max = 1, .def = 1e-5, .help = "added to the variance"),
                   EG_OPT_FLOAT(eg_batch_norm2d, momentum, .max = 1, .def = 0.1, .help = "weight of new statistics"),
                   EG_BOOL(eg_batch_norm2d, no_affine, .help = "without weight and bias"),
                   EG_BOOL(eg_batch_norm2d, relu, .help = "max(0, .) after it, fused"),
                   EG_BOOL(eg_batch_norm2d, cumulative, .help = "running statistics are the mean over all batches"),
                   EG_BOOL(eg_batch_norm2d, no_track_running_stats, .help = "batch statistics in evaluation too")));

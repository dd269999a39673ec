/*
 * ops/interpolate.c - images in another size, and the exchange of channels for size (pixel shuffle).
 */
#include "ops/internal.h"

#include <math.h>

static eg_status output_size(const eg__interpolate_attrs *attrs, eg_shape x, int axis, int64_t *size)
{
    *size = attrs->size[axis];
    if (attrs->scale_factor == 0)
        return EG_OK;
    double scaled = floor((double)x.dims[2 + axis] * attrs->scale_factor);
    EG_CHECK(scaled >= 1 && scaled < (double)(1 << 30), EG_ESHAPE,
             "input %s times the scale factor %g has a size of %g, expected 1 to %d", EG__TEXT(x), attrs->scale_factor,
             scaled, (1 << 30) - 1);
    *size = (int64_t)scaled;
    return EG_OK;
}

static eg_status interpolate_infer(const eg_op_call *call, eg_spec *out)
{
    const eg__interpolate_attrs *attrs = call->attrs;
    eg_shape shape = call->in[0]->shape;
    EG_TRY(eg__check_input(call, 0, "input"));
    EG_TRY(eg__check_ndim(call->in[0], "input", 4, "(N, C, H, W)"));
    EG_CHECK(attrs->mode == EG_NEAREST || attrs->mode == EG_BILINEAR, EG_EINVAL,
             "mode is %d, expected EG_NEAREST or EG_BILINEAR", (int)attrs->mode);
    EG_CHECK(!attrs->align_corners || attrs->mode == EG_BILINEAR, EG_EINVAL,
             "align_corners is set, expected it with EG_BILINEAR only");
    bool sized = attrs->size[0] != 0 || attrs->size[1] != 0;
    EG_CHECK(sized != (attrs->scale_factor != 0), EG_EINVAL, "%s given, expected one of them",
             sized ? "both size and scale_factor are" : "neither size nor scale_factor is");
    if (sized)
        EG_TRY(eg__check_hw(attrs->size, "size", 1));
    EG_CHECK(attrs->scale_factor >= 0 && isfinite(attrs->scale_factor), EG_EINVAL,
             "scale factor is %g, expected more than 0", attrs->scale_factor);
    for (int a = 0; a < 2; a++)
        EG_TRY(output_size(attrs, call->in[0]->shape, a, &shape.dims[2 + a]));
    return eg__spec_set(out, call->in[0], shape);
}

/* As in PyTorch: a scale factor that was given is used itself, not the quotient of the sizes that it led to. */
static eg__interpolate kernel_attrs(const void *op_attrs, eg_shape x, eg_shape y)
{
    const eg__interpolate_attrs *attrs = op_attrs;
    eg__interpolate ip = {.mode = attrs->mode == EG_BILINEAR ? EG__BILINEAR : EG__NEAREST,
                          .align_corners = attrs->align_corners};
    for (int a = 0; a < 2; a++) {
        double in = (double)x.dims[2 + a], out = (double)y.dims[2 + a];
        if (ip.align_corners)
            ip.ratio[a] = out > 1 ? (in - 1) / (out - 1) : 0;
        else
            ip.ratio[a] = attrs->scale_factor != 0 ? 1 / attrs->scale_factor : in / out;
    }
    return ip;
}

static eg_status interpolate_forward(eg_op_call *call)
{
    const eg_tensor *x = call->in[0];
    eg__interpolate ip = kernel_attrs(call->attrs, x->shape, call->out[0]->shape);
    return eg__kernels(call->ctx, x->dtype)->interpolate(&ip, x, call->out[0]);
}

static eg_status interpolate_backward(eg_op_grad *grad)
{
    const eg_tensor *dy = grad->grad_out[0];
    eg_tensor *dx = eg_op_grad_new(grad, 0);
    if (!dx)
        return eg__pending();
    eg__interpolate ip = kernel_attrs(grad->attrs, dx->shape, dy->shape);
    return eg__kernels(grad->ctx, dy->dtype)->interpolate_backward(&ip, dy, dx);
}

const eg_op eg__op_interpolate = {
    .struct_size = sizeof(eg_op),
    .name = "interpolate",
    .attrs_size = sizeof(eg__interpolate_attrs),
    .infer = interpolate_infer,
    .forward = interpolate_forward,
    .backward = interpolate_backward,
};

eg_tensor *eg_f_interpolate_with(const eg_interpolate_args *args)
{
    if (!args)
        return eg__null(__func__, "args");
    eg__interpolate_attrs attrs = {.size = {eg_hw_h(args->size), eg_hw_w(args->size)},
                                   .scale_factor = args->scale_factor,
                                   .mode = args->mode,
                                   .align_corners = args->align_corners};
    return eg_apply(&eg__op_interpolate, &args->x, 1, &attrs);
}

/* ---- pixel shuffle: one copy, between a small image of many channels and a large one of few ---- */

/* Both as (n, c, row in the block, column in the block, h, w). */
static eg_tensor blocks_of_channels(const eg_tensor *t, int64_t r)
{
    const int64_t *size = t->shape.dims, *s = t->strides;
    const int64_t strides[] = {s[0], s[1] * r * r, s[1] * r, s[1], s[2], s[3]};
    return eg__operand(t, EG_SHAPE(size[0], size[1] / (r * r), r, r, size[2], size[3]), strides, 0);
}

static eg_tensor blocks_of_pixels(const eg_tensor *t, int64_t r)
{
    const int64_t *size = t->shape.dims, *s = t->strides;
    const int64_t strides[] = {s[0], s[1], s[2], s[3], s[2] * r, s[3] * r};
    return eg__operand(t, EG_SHAPE(size[0], size[1], r, r, size[2] / r, size[3] / r), strides, 0);
}

static eg_status shuffle(const eg_tensor *x, eg_tensor *y, int64_t r, bool up)
{
    eg_tensor from = up ? blocks_of_channels(x, r) : blocks_of_pixels(x, r);
    eg_tensor to = up ? blocks_of_pixels(y, r) : blocks_of_channels(y, r);
    return eg__kernels(x->ctx, x->dtype)->copy(&from, &to);
}

static bool is_up(const eg_op *op)
{
    return op == &eg__op_pixel_shuffle;
}

static eg_status shuffle_infer(const eg_op_call *call, eg_spec *out)
{
    int64_t r = ((const eg__shuffle_attrs *)call->attrs)->factor;
    eg_shape x = call->in[0]->shape, shape;
    EG_TRY(eg__check_input(call, 0, "input"));
    EG_TRY(eg__check_ndim(call->in[0], "input", 4, "(N, C, H, W)"));
    EG_CHECK(r >= 1 && r < 1 << 15, EG_EINVAL, "factor is %lld, expected 1 to %d", (long long)r, (1 << 15) - 1);
    if (is_up(call->op)) {
        EG_CHECK(x.dims[1] % (r * r) == 0, EG_ESHAPE,
                 "input has %lld channels, expected a multiple of the factor's square, %lld", (long long)x.dims[1],
                 (long long)(r * r));
        shape = EG_SHAPE(x.dims[0], x.dims[1] / (r * r), x.dims[2] * r, x.dims[3] * r);
    } else {
        EG_CHECK(x.dims[2] % r == 0 && x.dims[3] % r == 0, EG_ESHAPE,
                 "input %s has a height or width that is no multiple of the factor %lld", EG__TEXT(x), (long long)r);
        shape = EG_SHAPE(x.dims[0], x.dims[1] * r * r, x.dims[2] / r, x.dims[3] / r);
    }
    return eg__spec_set(out, call->in[0], shape);
}

static eg_status shuffle_forward(eg_op_call *call)
{
    return shuffle(call->in[0], call->out[0], ((const eg__shuffle_attrs *)call->attrs)->factor, is_up(call->op));
}

static eg_status shuffle_backward(eg_op_grad *grad)
{
    eg_tensor *dx = eg_op_grad_new(grad, 0);
    if (!dx)
        return eg__pending();
    return shuffle(grad->grad_out[0], dx, ((const eg__shuffle_attrs *)grad->attrs)->factor, !is_up(grad->op));
}

#define SHUFFLE(record)                                                                                                \
    const eg_op eg__op_##record = {                                                                                    \
        .struct_size = sizeof(eg_op),                                                                                  \
        .name = #record,                                                                                               \
        .attrs_size = sizeof(eg__shuffle_attrs),                                                                       \
        .infer = shuffle_infer,                                                                                        \
        .forward = shuffle_forward,                                                                                    \
        .backward = shuffle_backward,                                                                                  \
    }
SHUFFLE(pixel_shuffle);
SHUFFLE(pixel_unshuffle);

eg_tensor *eg_f_pixel_shuffle(eg_tensor *x, int64_t upscale_factor)
{
    return eg_apply(&eg__op_pixel_shuffle, &x, 1, &(eg__shuffle_attrs){.factor = upscale_factor});
}

eg_tensor *eg_f_pixel_unshuffle(eg_tensor *x, int64_t downscale_factor)
{
    return eg_apply(&eg__op_pixel_unshuffle, &x, 1, &(eg__shuffle_attrs){.factor = downscale_factor});
}

/*
 * ops/conv.c - convolution in two dimensions.
 *
 * y[n][o][p] = b[o] + sum over c, t of x[n][c][p * stride - padding + t * dilation] * w[o][c][t], per group.
 */
#include "ops/internal.h"

static int64_t output_size(const eg__window *w, int axis, int64_t input, int64_t kernel)
{
    return (input + 2 * w->padding[axis] - w->dilation[axis] * (kernel - 1) - 1) / w->stride[axis] + 1;
}

static eg_status check_window(const eg__window *w, const eg_shape x, const eg_shape weight)
{
    EG_TRY(eg__check_hw(w->stride, "stride", 1));
    EG_TRY(eg__check_hw(w->padding, "padding", 0));
    EG_TRY(eg__check_hw(w->dilation, "dilation", 1));
    EG_TRY(eg__check_hw(&weight.dims[2], "kernel size", 1));
    for (int a = 0; a < 2; a++) {
        int64_t kernel = weight.dims[2 + a], size = x.dims[2 + a];
        EG_CHECK(w->dilation[a] * (kernel - 1) + 1 <= size + 2 * w->padding[a], EG_ESHAPE,
                 "kernel (%lld, %lld) with dilation (%lld, %lld) is larger than the padded input (%lld, %lld)",
                 (long long)weight.dims[2], (long long)weight.dims[3], (long long)w->dilation[0],
                 (long long)w->dilation[1], (long long)(x.dims[2] + 2 * w->padding[0]),
                 (long long)(x.dims[3] + 2 * w->padding[1]));
    }
    return EG_OK;
}

static eg_status conv2d_infer(const eg_op_call *call, eg_spec *out)
{
    const eg__window *w = &((const eg__conv2d_attrs *)call->attrs)->window;
    eg_shape x = call->in[0]->shape, weight = call->in[1]->shape;
    EG_TRY(eg__check_ndim(call->in[0], "input", 4, "(N, C, H, W)"));
    EG_TRY(eg__check_ndim(call->in[1], "weight", 4, "(out, in / groups, height, width)"));
    EG_TRY(eg__check_input(call, 0, "input"));
    EG_TRY(eg__check_input(call, 1, "weight"));
    EG_CHECK(w->groups >= 1 && weight.dims[0] % w->groups == 0 && x.dims[1] % w->groups == 0, EG_ESHAPE,
             "%lld groups do not divide %lld input and %lld output channels", (long long)w->groups,
             (long long)x.dims[1], (long long)weight.dims[0]);
    EG_CHECK(x.dims[1] / w->groups == weight.dims[1], EG_ESHAPE, "input has %lld channels, weight expects %lld",
             (long long)x.dims[1], (long long)(weight.dims[1] * w->groups));
    EG_TRY(eg__check_vector(call, 2, "bias", weight.dims[0]));
    EG_TRY(check_window(w, x, weight));
    *out = (eg_spec){.dtype = call->in[0]->dtype, .layout = EG_LAYOUT_DEFAULT};
    out->shape = EG_SHAPE(x.dims[0], weight.dims[0], output_size(w, 0, x.dims[2], weight.dims[2]),
                          output_size(w, 1, x.dims[3], weight.dims[3]));
    EG_CHECK(eg_shape_numel(out->shape) >= 0, EG_ESHAPE, "an output %s has more elements than can be counted",
             EG__TEXT(out->shape));
    return EG_OK;
}

static eg__window window_of(const void *attrs, eg_shape weight)
{
    eg__window w = ((const eg__conv2d_attrs *)attrs)->window;
    w.kernel[0] = weight.dims[2];
    w.kernel[1] = weight.dims[3];
    return w;
}

static eg_status conv2d_forward(eg_op_call *call)
{
    eg__window w = window_of(call->attrs, call->in[1]->shape);
    const eg_kernels *k = eg__kernels(call->ctx, call->in[0]->dtype);
    EG_TRY(k->conv2d(&w, call->in[0], call->in[1], eg__optional(call->in[2]), call->out[0]));
    if (call->needs_grad[0])
        EG_TRY(eg_op_save(call, call->in[1]));
    if (call->needs_grad[1])
        EG_TRY(eg_op_save(call, call->in[0]));
    return EG_OK;
}

/* Kernels write the gradient of a weight in row-major order; a weight that was computed (not a parameter) may have
 * another. */
eg_status eg__conv2d_weight_gradient(const eg_kernels *k, const eg__window *w, const eg_tensor *x, const eg_tensor *dy,
                                     eg_tensor *dw, eg_tensor *db)
{
    if (eg__is_row_major(dw))
        return k->conv2d_backward_weight(w, x, dy, dw, db);
    eg_tensor *ordered = eg__tensor_new(dw->ctx, dw->dtype, dw->shape, EG_LAYOUT_ROW_MAJOR);
    if (!ordered)
        return eg__pending();
    eg_status status = k->conv2d_backward_weight(w, x, dy, ordered, db);
    if (status == EG_OK)
        status = k->copy(ordered, dw);
    eg_tensor_release(ordered);
    return status;
}

eg_status eg__sum_channels(const eg_tensor *dy, eg_tensor *db)
{
    eg_tensor sums =
        eg__operand(db, EG_SHAPE(1, db->shape.dims[0], 1, 1), (const int64_t[]){0, db->strides[0], 0, 0}, 0);
    return eg__kernels(dy->ctx, dy->dtype)->reduce(EG__SUM, dy, &sums, NULL);
}

static eg_status conv2d_backward(eg_op_grad *grad)
{
    eg__window w = window_of(grad->attrs, grad->in_spec[1].shape);
    const eg_tensor *dy = grad->grad_out[0];
    size_t next = 0;
    if (grad->needs_grad[0]) {
        bool add;
        eg_tensor *dx = eg_op_grad_into(grad, 0, NULL, &add);
        if (!dx)
            return eg__pending();
        EG_TRY(eg__kernels(grad->ctx, dy->dtype)->conv2d_backward_input(&w, grad->saved[next++], dy, dx, add));
    }
    eg_tensor *dw = grad->needs_grad[1] ? eg_op_grad_new(grad, 1) : NULL;
    eg_tensor *db = grad->needs_grad[2] ? eg_op_grad_new(grad, 2) : NULL;
    if ((grad->needs_grad[1] && !dw) || (grad->needs_grad[2] && !db))
        return eg__pending();
    if (dw)
        return eg__conv2d_weight_gradient(eg__kernels(grad->ctx, dy->dtype), &w, grad->saved[next], dy, dw, db);
    return db ? eg__sum_channels(dy, db) : EG_OK;
}

static uint64_t conv2d_macs(const eg_op_call *call)
{
    const eg__window *w = &((const eg__conv2d_attrs *)call->attrs)->window;
    eg_shape x = call->in[0]->shape, weight = call->in[1]->shape;
    uint64_t macs = (uint64_t)eg_shape_numel(weight);
    macs = eg__mul_saturated(macs, (uint64_t)x.dims[0]);
    macs = eg__mul_saturated(macs, (uint64_t)output_size(w, 0, x.dims[2], weight.dims[2]));
    return eg__mul_saturated(macs, (uint64_t)output_size(w, 1, x.dims[3], weight.dims[3]));
}

const eg_op eg__op_conv2d = {
    .struct_size = sizeof(eg_op),
    .name = "conv2d",
    .attrs_size = sizeof(eg__conv2d_attrs),
    .optional = 1u << 2,
    .infer = conv2d_infer,
    .forward = conv2d_forward,
    .backward = conv2d_backward,
    .macs = conv2d_macs,
};

eg_tensor *eg_f_conv2d_with(const eg_conv2d_args *args)
{
    if (!args)
        return eg__null(__func__, "args");
    eg_hw stride = args->stride ? args->stride : 1, dilation = args->dilation ? args->dilation : 1;
    eg__conv2d_attrs attrs = {.window = {
                                  .stride = {eg_hw_h(stride), eg_hw_w(stride)},
                                  .padding = {eg_hw_h(args->padding), eg_hw_w(args->padding)},
                                  .dilation = {eg_hw_h(dilation), eg_hw_w(dilation)},
                                  .groups = args->groups ? args->groups : 1,
                              }};
    return eg_apply(&eg__op_conv2d, (eg_tensor *const[]){args->x, args->weight, args->bias}, 3, &attrs);
}

/*
 * ops/pool.c - max, average and adaptive average pooling in two dimensions, with PyTorch's rules of size.
 */
#include "ops/internal.h"

/* In ceil mode the last window may reach past the padding, but must start before its end. */
static int64_t output_size(const eg__pool2d_attrs *attrs, int axis, int64_t input)
{
    const eg__window *w = &attrs->window;
    int64_t room = input + 2 * w->padding[axis] - w->dilation[axis] * (w->kernel[axis] - 1) - 1;
    if (attrs->ceil_mode)
        room += w->stride[axis] - 1;
    if (room < 0)
        return 0;
    int64_t size = room / w->stride[axis] + 1;
    if (attrs->ceil_mode && (size - 1) * w->stride[axis] >= input + w->padding[axis])
        size--;
    return size;
}

static eg_status check_window(const eg__window *w, eg_shape x)
{
    EG_TRY(eg__check_hw(w->kernel, "kernel size", 1));
    EG_TRY(eg__check_hw(w->stride, "stride", 1));
    EG_TRY(eg__check_hw(w->dilation, "dilation", 1));
    EG_TRY(eg__check_hw(w->padding, "padding", 0));
    for (int a = 0; a < 2; a++) {
        EG_CHECK(w->padding[a] <= w->kernel[a] / 2, EG_EINVAL,
                 "padding is (%lld, %lld), expected at most half of the kernel size (%lld, %lld)",
                 (long long)w->padding[0], (long long)w->padding[1], (long long)w->kernel[0], (long long)w->kernel[1]);
        /* else the first window could lie in the padding alone */
        EG_CHECK(w->padding[a] == 0 || w->dilation[a] <= x.dims[2 + a], EG_ESHAPE,
                 "dilation %lld is larger than the input's %lld", (long long)w->dilation[a], (long long)x.dims[2 + a]);
    }
    return EG_OK;
}

static eg_status pool2d_infer(const eg_op_call *call, eg_spec *out)
{
    const eg__pool2d_attrs *attrs = call->attrs;
    const eg__window *w = &attrs->window;
    eg_shape x = call->in[0]->shape;
    EG_TRY(eg__check_ndim(call->in[0], "input", 4, "(N, C, H, W)"));
    EG_TRY(eg__check_input(call, 0, "input"));
    EG_TRY(check_window(w, x));
    eg_shape shape = EG_SHAPE(x.dims[0], x.dims[1], output_size(attrs, 0, x.dims[2]), output_size(attrs, 1, x.dims[3]));
    EG_CHECK(shape.dims[2] >= 1 && shape.dims[3] >= 1, EG_ESHAPE,
             "kernel (%lld, %lld) with dilation (%lld, %lld) is larger than the padded input (%lld, %lld)",
             (long long)w->kernel[0], (long long)w->kernel[1], (long long)w->dilation[0], (long long)w->dilation[1],
             (long long)(x.dims[2] + 2 * w->padding[0]), (long long)(x.dims[3] + 2 * w->padding[1]));
    return eg__spec_set(out, call->in[0], shape);
}

static eg__pool2d_attrs pool2d_attrs(const eg_pool2d_args *args)
{
    eg_hw stride = args->stride ? args->stride : args->kernel_size, dilation = args->dilation ? args->dilation : 1;
    return (eg__pool2d_attrs){
        .window = {.kernel = {eg_hw_h(args->kernel_size), eg_hw_w(args->kernel_size)},
                   .stride = {eg_hw_h(stride), eg_hw_w(stride)},
                   .padding = {eg_hw_h(args->padding), eg_hw_w(args->padding)},
                   .dilation = {eg_hw_h(dilation), eg_hw_w(dilation)},
                   .groups = 1,
                   .exclude_pad = args->exclude_pad},
        .ceil_mode = args->ceil_mode,
    };
}

/* ---- maximum ---- */

static eg_status max_pool2d_forward(eg_op_call *call)
{
    const eg__window *w = &((const eg__pool2d_attrs *)call->attrs)->window;
    eg_tensor *workspace = NULL;
    eg_status status = eg__kernels(call->ctx, call->in[0]->dtype)
                           ->max_pool2d(w, call->in[0], call->out[0], call->needs_grad[0] ? &workspace : NULL);
    if (status == EG_OK && workspace)
        status = eg_op_save(call, workspace);
    eg_tensor_release(workspace);
    return status;
}

static eg_status max_pool2d_backward(eg_op_grad *grad)
{
    const eg__window *w = &((const eg__pool2d_attrs *)grad->attrs)->window;
    bool add;
    eg_tensor *dx = eg_op_grad_into(grad, 0, NULL, &add);
    if (!dx)
        return eg__pending();
    return eg__kernels(grad->ctx, dx->dtype)->max_pool2d_backward(w, grad->saved[0], grad->grad_out[0], dx, add);
}

const eg_op eg__op_max_pool2d = {
    .struct_size = sizeof(eg_op),
    .name = "max_pool2d",
    .attrs_size = sizeof(eg__pool2d_attrs),
    .stateless = true,
    .infer = pool2d_infer,
    .forward = max_pool2d_forward,
    .backward = max_pool2d_backward,
};

eg_tensor *eg_f_max_pool2d_with(const eg_pool2d_args *args)
{
    if (!args)
        return eg__null(__func__, "args");
    eg__pool2d_attrs attrs = pool2d_attrs(args);
    return eg_apply(&eg__op_max_pool2d, &args->x, 1, &attrs);
}

/* ---- average ---- */

static eg_status avg_pool2d_infer(const eg_op_call *call, eg_spec *out)
{
    const eg__window *w = &((const eg__pool2d_attrs *)call->attrs)->window;
    EG_CHECK(w->dilation[0] == 1 && w->dilation[1] == 1, EG_EINVAL,
             "dilation is (%lld, %lld), average pooling has none", (long long)w->dilation[0],
             (long long)w->dilation[1]);
    return pool2d_infer(call, out);
}

static eg_status avg_pool2d_forward(eg_op_call *call)
{
    const eg__window *w = &((const eg__pool2d_attrs *)call->attrs)->window;
    return eg__kernels(call->ctx, call->in[0]->dtype)->avg_pool2d(w, call->in[0], call->out[0]);
}

static eg_status avg_pool2d_backward(eg_op_grad *grad)
{
    const eg__window *w = &((const eg__pool2d_attrs *)grad->attrs)->window;
    bool add;
    eg_tensor *dx = eg_op_grad_into(grad, 0, NULL, &add);
    if (!dx)
        return eg__pending();
    return eg__kernels(grad->ctx, dx->dtype)->avg_pool2d_backward(w, grad->grad_out[0], dx, add);
}

const eg_op eg__op_avg_pool2d = {
    .struct_size = sizeof(eg_op),
    .name = "avg_pool2d",
    .attrs_size = sizeof(eg__pool2d_attrs),
    .stateless = true,
    .infer = avg_pool2d_infer,
    .forward = avg_pool2d_forward,
    .backward = avg_pool2d_backward,
};

eg_tensor *eg_f_avg_pool2d_with(const eg_pool2d_args *args)
{
    if (!args)
        return eg__null(__func__, "args");
    eg__pool2d_attrs attrs = pool2d_attrs(args);
    return eg_apply(&eg__op_avg_pool2d, &args->x, 1, &attrs);
}

/* ---- adaptive average: output i averages inputs floor(i H / n) .. ceil((i + 1) H / n) - 1 ---- */

static eg_status adaptive_infer(const eg_op_call *call, eg_spec *out)
{
    const eg__adaptive_pool_attrs *attrs = call->attrs;
    eg_shape x = call->in[0]->shape;
    EG_TRY(eg__check_ndim(call->in[0], "input", 4, "(N, C, H, W)"));
    EG_TRY(eg__check_input(call, 0, "input"));
    EG_TRY(eg__check_hw(attrs->output, "output size", 1));
    return eg__spec_set(out, call->in[0], EG_SHAPE(x.dims[0], x.dims[1], attrs->output[0], attrs->output[1]));
}

static eg_status adaptive_forward(eg_op_call *call)
{
    return eg__kernels(call->ctx, call->in[0]->dtype)->adaptive_avg_pool2d(call->in[0], call->out[0]);
}

static eg_status adaptive_backward(eg_op_grad *grad)
{
    eg_tensor *dx = eg_op_grad_new(grad, 0);
    if (!dx)
        return eg__pending();
    return eg__kernels(grad->ctx, dx->dtype)->adaptive_avg_pool2d_backward(grad->grad_out[0], dx);
}

const eg_op eg__op_adaptive_avg_pool2d = {
    .struct_size = sizeof(eg_op),
    .name = "adaptive_avg_pool2d",
    .attrs_size = sizeof(eg__adaptive_pool_attrs),
    .stateless = true,
    .infer = adaptive_infer,
    .forward = adaptive_forward,
    .backward = adaptive_backward,
};

eg_tensor *eg_f_adaptive_avg_pool2d(eg_tensor *x, eg_hw output_size)
{
    eg__adaptive_pool_attrs attrs = {.output = {eg_hw_h(output_size), eg_hw_w(output_size)}};
    return eg_apply(&eg__op_adaptive_avg_pool2d, &x, 1, &attrs);
}

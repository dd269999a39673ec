/*
 * ops/conv_transpose.c - transposed convolution, and convolution in one dimension: both are what conv2d's kernels
 * compute.
 *
 * A transposed convolution is the gradient of a convolution to its input. So its forward pass is that kernel, its
 * gradient to the input the convolution, and its gradient to the weight that of the convolution with input and output
 * exchanged.
 */
#include "autograd/internal.h"
#include "ops/internal.h"

static int64_t output_size(const eg__conv_transpose2d_attrs *attrs, int axis, int64_t input, int64_t kernel)
{
    const eg__window *w = &attrs->window;
    return (input - 1) * w->stride[axis] - 2 * w->padding[axis] + w->dilation[axis] * (kernel - 1) +
           attrs->output_padding[axis] + 1;
}

static eg_status check_window(const eg__conv_transpose2d_attrs *attrs, eg_shape x, eg_shape weight)
{
    const eg__window *w = &attrs->window;
    EG_TRY(eg__check_hw(w->stride, "stride", 1));
    EG_TRY(eg__check_hw(w->padding, "padding", 0));
    EG_TRY(eg__check_hw(attrs->output_padding, "output padding", 0));
    EG_TRY(eg__check_hw(w->dilation, "dilation", 1));
    EG_TRY(eg__check_hw(&weight.dims[2], "kernel size", 1));
    EG_TRY(eg__check_hw(&x.dims[2], "input size", 1));
    for (int a = 0; a < 2; a++) {
        int64_t more = attrs->output_padding[a];
        EG_CHECK(more < w->stride[a] || more < w->dilation[a], EG_EINVAL,
                 "output padding is %lld, expected less than the stride %lld or the dilation %lld", (long long)more,
                 (long long)w->stride[a], (long long)w->dilation[a]);
    }
    return EG_OK;
}

static eg_status conv_transpose2d_infer(const eg_op_call *call, eg_spec *out)
{
    const eg__conv_transpose2d_attrs *attrs = call->attrs;
    int64_t groups = attrs->window.groups;
    eg_shape x = call->in[0]->shape, weight = call->in[1]->shape;
    EG_TRY(eg__check_ndim(call->in[0], "input", 4, "(N, C, H, W)"));
    EG_TRY(eg__check_ndim(call->in[1], "weight", 4, "(in, out / groups, height, width)"));
    EG_TRY(eg__check_input(call, 0, "input"));
    EG_TRY(eg__check_input(call, 1, "weight"));
    EG_CHECK(groups >= 1 && weight.dims[0] % groups == 0, EG_ESHAPE, "%lld groups do not divide %lld input channels",
             (long long)groups, (long long)weight.dims[0]);
    EG_CHECK(x.dims[1] == weight.dims[0], EG_ESHAPE, "input has %lld channels, weight expects %lld",
             (long long)x.dims[1], (long long)weight.dims[0]);
    EG_CHECK(weight.dims[1] <= INT64_MAX / groups, EG_ESHAPE, "%lld groups of %lld output channels cannot be counted",
             (long long)groups, (long long)weight.dims[1]);
    EG_TRY(eg__check_vector(call, 2, "bias", weight.dims[1] * groups));
    EG_TRY(check_window(attrs, x, weight));
    int64_t size[2];
    for (int a = 0; a < 2; a++)
        size[a] = output_size(attrs, a, x.dims[2 + a], weight.dims[2 + a]);
    EG_CHECK(size[0] >= 1 && size[1] >= 1, EG_ESHAPE, "the output would have the size (%lld, %lld)", (long long)size[0],
             (long long)size[1]);
    eg_shape shape = EG_SHAPE(x.dims[0], weight.dims[1] * groups, size[0], size[1]);
    EG_TRY(eg__spec_set(out, call->in[0], shape));
    out->layout = EG_LAYOUT_DEFAULT;
    return EG_OK;
}

/* The convolution whose gradient this is. */
static eg__window window_of(const void *attrs, eg_shape weight)
{
    eg__window w = ((const eg__conv_transpose2d_attrs *)attrs)->window;
    w.kernel[0] = weight.dims[2];
    w.kernel[1] = weight.dims[3];
    return w;
}

static eg_status conv_transpose2d_forward(eg_op_call *call)
{
    eg_tensor *x = call->in[0], *weight = call->in[1], *bias = call->in[2], *y = call->out[0];
    eg__window w = window_of(call->attrs, weight->shape);
    const eg_kernels *k = eg__kernels(call->ctx, x->dtype);
    EG_TRY(k->conv2d_backward_input(&w, weight, x, y, false));
    if (!eg_is_none(bias)) {
        const int64_t strides[EG_MAX_DIMS] = {0, bias->strides[0]};
        eg_tensor channels = eg__operand(bias, EG_SHAPE(1, bias->shape.dims[0], 1, 1), strides, 0);
        EG_TRY(k->binary(EG__ADD, y, &channels, y));
    }
    if (call->needs_grad[0])
        EG_TRY(eg_op_save(call, weight));
    return call->needs_grad[1] ? eg_op_save(call, x) : EG_OK;
}

static eg_status conv_transpose2d_backward(eg_op_grad *grad)
{
    const eg_tensor *dy = grad->grad_out[0];
    eg__window w = window_of(grad->attrs, grad->in_spec[1].shape);
    const eg_kernels *k = eg__kernels(grad->ctx, dy->dtype);
    eg_tensor *d[3] = {NULL};
    for (size_t i = 0; i < EG_COUNT(d); i++)
        if (grad->needs_grad[i] && !(d[i] = eg_op_grad_new(grad, i)))
            return eg__pending();
    size_t next = 0;
    if (d[0])
        EG_TRY(k->conv2d(&w, dy, grad->saved[next++], NULL, d[0]));
    if (d[1])
        EG_TRY(eg__conv2d_weight_gradient(k, &w, dy, grad->saved[next], d[1], NULL));
    return d[2] ? eg__sum_channels(dy, d[2]) : EG_OK;
}

static uint64_t conv_transpose2d_macs(const eg_op_call *call)
{
    eg_shape x = call->in[0]->shape;
    uint64_t positions = (uint64_t)(eg_shape_numel(x) / x.dims[1]);
    return eg__mul_saturated((uint64_t)eg_shape_numel(call->in[1]->shape), positions);
}

const eg_op eg__op_conv_transpose2d = {
    .struct_size = sizeof(eg_op),
    .name = "conv_transpose2d",
    .attrs_size = sizeof(eg__conv_transpose2d_attrs),
    .optional = 1u << 2,
    .infer = conv_transpose2d_infer,
    .forward = conv_transpose2d_forward,
    .backward = conv_transpose2d_backward,
    .macs = conv_transpose2d_macs,
};

eg_tensor *eg_f_conv_transpose2d_with(const eg_conv_transpose2d_args *args)
{
    if (!args)
        return eg__null(__func__, "args");
    eg_hw stride = args->stride ? args->stride : 1, dilation = args->dilation ? args->dilation : 1;
    eg__conv_transpose2d_attrs attrs = {
        .window = {.stride = {eg_hw_h(stride), eg_hw_w(stride)},
                   .padding = {eg_hw_h(args->padding), eg_hw_w(args->padding)},
                   .dilation = {eg_hw_h(dilation), eg_hw_w(dilation)},
                   .groups = args->groups ? args->groups : 1},
        .output_padding = {eg_hw_h(args->output_padding), eg_hw_w(args->output_padding)},
    };
    return eg_apply(&eg__op_conv_transpose2d, (eg_tensor *const[]){args->x, args->weight, args->bias}, 3, &attrs);
}

/* ---- in one dimension: images of height 1 ----
 * The views around conv2d cost nothing. Its result is channels-last, and so is the sequence that is a view of it, which
 * operations on single elements keep; so only a sequence that comes row-major, from outside, is copied. */

static eg_status check_conv1d(const eg_tensor *x, const eg_tensor *weight)
{
    EG_CHECK(x->kind == EG__DENSE && weight->kind == EG__DENSE, EG_EINVAL,
             "input or weight is none or a tuple, expected tensors");
    EG_TRY(eg__check_ndim(x, "input", 3, "(N, C, L)"));
    EG_TRY(eg__check_ndim(weight, "weight", 3, "(out, in / groups, length)"));
    for (int d = 0; d < 3; d++)
        EG_CHECK(x->shape.dims[d] > 0 && weight->shape.dims[d] > 0, EG_ESHAPE,
                 "input %s or weight %s has a dimension of size 0", EG__TEXT(x->shape), EG__TEXT(weight->shape));
    return EG_OK;
}

static eg_tensor *with_height(eg_tensor *t)
{
    const int64_t *size = t->shape.dims;
    return eg_reshape(t, EG_SHAPE(size[0], size[1], 1, size[2]));
}

eg_tensor *eg_f_conv1d_with(const eg_conv1d_args *args)
{
    if (!args || !args->x || !args->weight)
        return eg__null("conv1d", args ? "an input" : "args");
    eg_tensor *x = args->x;
    eg_status status = check_conv1d(x, args->weight);
    if (status != EG_OK) {
        eg__op_fail(status, "conv1d", x->ctx ? eg__call_path(x->ctx) : "");
        return NULL;
    }
    eg_tensor *y = eg_f_conv2d(with_height(x), with_height(args->weight), args->bias,
                               .stride = EG_HW(1, args->stride ? args->stride : 1), .padding = EG_HW(0, args->padding),
                               .dilation = EG_HW(1, args->dilation ? args->dilation : 1), .groups = args->groups);
    return y ? eg_reshape(y, EG_SHAPE(y->shape.dims[0], y->shape.dims[1], y->shape.dims[3])) : NULL;
}

/*
 * Blurring before and after steps over pixels (Zhang 2019, "Making convolutional networks shift-invariant again").
 */
#include "nn/internal.h"

/* [1 2 1; 2 4 2; 1 2 1] / 16 */
static eg_status add_filter(eg_module *self, eg_tensor **filter)
{
    static const float taps[] = {1 / 16.f, 2 / 16.f, 1 / 16.f, 2 / 16.f, 4 / 16.f,
                                 2 / 16.f, 1 / 16.f, 2 / 16.f, 1 / 16.f};
    return eg_module_add_buffer(self, "blur_filter", filter, eg_from_data(self->ctx, EG_SHAPE(1, 1, 3, 3), taps));
}

/* Each channel by itself. */
static eg_tensor *blur(eg_tensor *x, eg_tensor *filter, eg_hw stride)
{
    int64_t channels = eg_tensor_size(x, 1);
    if (channels < 1)
        return NULL;
    eg_tensor *weight = eg_mul(eg_ones(eg_tensor_context(x), EG_SHAPE(channels, 1, 1, 1)), filter);
    return eg_f_conv2d(x, weight, eg_none, .stride = stride, .padding = 1, .groups = channels);
}

static eg_status conv_build(eg_module *self)
{
    eg_blur_conv2d *b = EG_CAST(self, eg_blur_conv2d);
    return add_filter(self, &b->blur_filter);
}

static eg_tensor *conv_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_blur_conv2d *b = EG_CAST(self, eg_blur_conv2d);
    eg_module *conv = eg__child_at(self, 0);
    if (conv == NULL) {
        eg_fail(EG_EINVAL, "BlurConv2d: has no convolution");
        return NULL;
    }
    if (b->conv_first)
        return blur(eg_call(conv, in[0]), b->blur_filter, b->stride);
    return eg_call(conv, blur(in[0], b->blur_filter, 1));
}

EG_NAMED_CLASS(eg_blur_conv2d, "BlurConv2d", .build = conv_build, .forward = conv_forward,
               .fields = EG_FIELDS(EG_NAMED_FIELD(eg_blur_conv2d),
                                   EG_BOOL(eg_blur_conv2d, conv_first,
                                           .help = "blur what the convolution has computed"),
                                   EG_HW_FIELD(eg_blur_conv2d, stride, .min = 1, .max = EG__MAX_HW, .def = 1,
                                               .help = "step of the blur, with conv_first")));

static eg_status pool_build(eg_module *self)
{
    return add_filter(self, &EG_CAST(self, eg_blur_max_pool2d)->blur_filter);
}

static eg_tensor *pool_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_blur_max_pool2d *p = EG_CAST(self, eg_blur_max_pool2d);
    eg_tensor *y = eg_f_max_pool2d(in[0], .kernel_size = p->kernel_size, .stride = 1, .padding = p->padding,
                                   .dilation = p->dilation);
    return blur(y, p->blur_filter, p->stride != 0 ? p->stride : p->kernel_size);
}

EG_NAMED_CLASS(eg_blur_max_pool2d, "BlurMaxPool2d", .build = pool_build, .forward = pool_forward,
               .fields = EG_FIELDS(
                   EG_HW_FIELD(eg_blur_max_pool2d, kernel_size, .min = 1, .max = EG__MAX_HW, .help = "of the window"),
                   EG_HW_FIELD(eg_blur_max_pool2d, stride, .max = EG__MAX_HW, .help = "of the blur; 0 = kernel_size"),
                   EG_HW_FIELD(eg_blur_max_pool2d, padding, .max = EG__MAX_HW, .help = "on both sides"),
                   EG_HW_FIELD(eg_blur_max_pool2d, dilation, .min = 1, .max = EG__MAX_HW, .def = 1,
                               .help = "distance of taps")));

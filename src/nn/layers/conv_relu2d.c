/*
 * A convolution and the ReLU behind it, of eg_fuse_conv_bn_relu().
 */
#include "nn/internal.h"

static eg_tensor *forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    eg_tensor *y = eg_conv2d_class.forward(self, in, n_in);
    return y != NULL ? eg_f_relu(y) : NULL;
}

EG_NAMED_CLASS(eg_conv_relu2d, "ConvReLU2d", .super = &eg_conv2d_class, .forward = forward);

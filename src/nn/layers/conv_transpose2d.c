#include "nn/internal.h"

static eg_status build(eg_module *self)
{
    eg_conv_transpose2d *c = EG_CAST(self, eg_conv_transpose2d);
    EG_TRY(eg__check_groups("ConvTranspose2d", c->in_channels, c->out_channels, c->groups));
    eg_shape weight =
        EG_SHAPE(c->in_channels, c->out_channels / c->groups, eg_hw_h(c->kernel_size), eg_hw_w(c->kernel_size));
    return eg__add_weight_and_biases(self, &c->weight, &c->bias, weight, c->no_bias ? 0 : c->out_channels);
}

static eg_tensor *forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_conv_transpose2d *c = EG_CAST(self, eg_conv_transpose2d);
    return eg_f_conv_transpose2d(in[0], c->weight, c->bias, .stride = c->stride, .padding = c->padding,
                                 .output_padding = c->output_padding, .dilation = c->dilation, .groups = c->groups);
}

static void describe(const eg_module *self, char *text, size_t size)
{
    const eg_conv_transpose2d *c = (const eg_conv_transpose2d *)self;
    eg__describe_conv2d(&(eg__conv2d_text){c->in_channels, c->out_channels, c->kernel_size, c->stride, c->padding,
                                           c->dilation, c->output_padding, c->groups, c->no_bias},
                        text, size);
}

EG_NAMED_CLASS(
    eg_conv_transpose2d, "ConvTranspose2d", .build = build, .forward = forward, .describe = describe,
    .fields = EG_FIELDS(
        EG_INT(eg_conv_transpose2d, in_channels, .min = 1, .max = EG__MAX_CHANNELS, .help = "channels in"),
        EG_INT(eg_conv_transpose2d, out_channels, .min = 1, .max = EG__MAX_CHANNELS, .help = "channels out"),
        EG_HW_FIELD(eg_conv_transpose2d, kernel_size, .min = 1, .max = EG__MAX_HW,
                    .help = "height and width of the window"),
        EG_HW_FIELD(eg_conv_transpose2d, stride, .min = 1, .max = EG__MAX_HW, .def = 1, .help = "step of the window"),
        EG_HW_FIELD(eg_conv_transpose2d, padding, .max = EG__MAX_HW, .help = "taken from both sides of the output"),
        EG_HW_FIELD(eg_conv_transpose2d, output_padding, .max = EG__MAX_HW,
                    .help = "added to one side of the output, less than the stride or the dilation"),
        EG_HW_FIELD(eg_conv_transpose2d, dilation, .min = 1, .max = EG__MAX_HW, .def = 1, .help = "distance of taps"),
        EG_INT(eg_conv_transpose2d, groups, .min = 1, .max = EG__MAX_CHANNELS, .def = 1,
               .help = "blocks of connections"),
        EG_BOOL(eg_conv_transpose2d, no_bias, .help = "leave the bias out")));

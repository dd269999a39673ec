#include "nn/internal.h"

#include <inttypes.h>

static eg_status build(eg_module *self)
{
    eg_conv1d *c = EG_CAST(self, eg_conv1d);
    EG_TRY(eg__check_groups("Conv1d", c->in_channels, c->out_channels, c->groups));
    eg_shape weight = EG_SHAPE(c->out_channels, c->in_channels / c->groups, c->kernel_size);
    return eg__add_weight_and_bias(self, &c->weight, &c->bias, weight, c->no_bias);
}

static eg_tensor *forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_conv1d *c = EG_CAST(self, eg_conv1d);
    return eg_f_conv1d(in[0], c->weight, c->bias, .stride = c->stride, .padding = c->padding, .dilation = c->dilation,
                       .groups = c->groups);
}

static void describe(const eg_module *self, char *text, size_t size)
{
    const eg_conv1d *c = (const eg_conv1d *)self;
    eg__text out = {text, size};
    eg__text_add(&out, "%" PRId64 ", %" PRId64 ", kernel_size=(%" PRId64 ",), stride=(%" PRId64 ",)", c->in_channels,
                 c->out_channels, c->kernel_size, c->stride);
    if (c->padding != 0)
        eg__text_add(&out, ", padding=(%" PRId64 ",)", c->padding);
    if (c->dilation != 1)
        eg__text_add(&out, ", dilation=(%" PRId64 ",)", c->dilation);
    if (c->groups != 1)
        eg__text_add(&out, ", groups=%" PRId64, c->groups);
    if (c->no_bias)
        eg__text_add(&out, ", bias=False");
}

EG_NAMED_CLASS(
    eg_conv1d, "Conv1d", .build = build, .forward = forward, .describe = describe,
    .fields = EG_FIELDS(EG_INT(eg_conv1d, in_channels, .min = 1, .max = EG__MAX_CHANNELS, .help = "channels in"),
                        EG_INT(eg_conv1d, out_channels, .min = 1, .max = EG__MAX_CHANNELS, .help = "channels out"),
                        EG_INT(eg_conv1d, kernel_size, .min = 1, .max = EG__MAX_HW, .help = "length of the window"),
                        EG_INT(eg_conv1d, stride, .min = 1, .max = EG__MAX_HW, .def = 1, .help = "step of the window"),
                        EG_INT(eg_conv1d, padding, .max = EG__MAX_HW, .help = "zeros on both sides"),
                        EG_INT(eg_conv1d, dilation, .min = 1, .max = EG__MAX_HW, .def = 1, .help = "distance of taps"),
                        EG_INT(eg_conv1d, groups, .min = 1, .max = EG__MAX_CHANNELS, .def = 1,
                               .help = "blocks of connections"),
                        EG_BOOL(eg_conv1d, no_bias, .help = "leave the bias out")));

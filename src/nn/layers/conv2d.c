#include "nn/internal.h"

#include <inttypes.h>

eg_status eg__check_groups(const char *name, int64_t in_channels, int64_t out_channels, int64_t groups)
{
    EG_CHECK(in_channels % groups == 0 && out_channels % groups == 0, EG_EINVAL,
             "%s: in_channels %" PRId64 " and out_channels %" PRId64 " must be multiples of groups %" PRId64, name,
             in_channels, out_channels, groups);
    return EG_OK;
}

static eg_status build(eg_module *self)
{
    eg_conv2d *c = EG_CAST(self, eg_conv2d);
    EG_TRY(eg__check_groups("Conv2d", c->in_channels, c->out_channels, c->groups));
    eg_shape weight =
        EG_SHAPE(c->out_channels, c->in_channels / c->groups, eg_hw_h(c->kernel_size), eg_hw_w(c->kernel_size));
    return eg__add_weight_and_bias(self, &c->weight, &c->bias, weight, c->no_bias);
}

static eg_tensor *forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_conv2d *c = EG_CAST(self, eg_conv2d);
    return eg_f_conv2d(in[0], c->weight, c->bias, .stride = c->stride, .padding = c->padding, .dilation = c->dilation,
                       .groups = c->groups);
}

void eg__describe_conv2d(const eg__conv2d_text *c, char *text, size_t size)
{
    char hw[EG__NUMBER_TEXT_SIZE];
    eg__text out = {text, size};
    eg__text_add(&out, "%" PRId64 ", %" PRId64, c->in_channels, c->out_channels);
    eg__text_add(&out, ", kernel_size=%s", eg__hw_text(c->kernel_size, false, hw));
    eg__text_add(&out, ", stride=%s", eg__hw_text(c->stride, false, hw));
    if (c->padding != 0)
        eg__text_add(&out, ", padding=%s", eg__hw_text(c->padding, false, hw));
    if (c->dilation != 1)
        eg__text_add(&out, ", dilation=%s", eg__hw_text(c->dilation, false, hw));
    if (c->output_padding != 0)
        eg__text_add(&out, ", output_padding=%s", eg__hw_text(c->output_padding, false, hw));
    if (c->groups != 1)
        eg__text_add(&out, ", groups=%" PRId64, c->groups);
    if (c->no_bias)
        eg__text_add(&out, ", bias=False");
}

static void describe(const eg_module *self, char *text, size_t size)
{
    const eg_conv2d *c = (const eg_conv2d *)self;
    eg__describe_conv2d(&(eg__conv2d_text){c->in_channels, c->out_channels, c->kernel_size, c->stride, c->padding,
                                           c->dilation, 0, c->groups, c->no_bias},
                        text, size);
}

EG_NAMED_CLASS(
    eg_conv2d, "Conv2d", .build = build, .forward = forward, .describe = describe,
    .fields = EG_FIELDS(
        EG_INT(eg_conv2d, in_channels, .min = 1, .max = EG__MAX_CHANNELS, .help = "channels in"),
        EG_INT(eg_conv2d, out_channels, .min = 1, .max = EG__MAX_CHANNELS, .help = "channels out"),
        EG_HW_FIELD(eg_conv2d, kernel_size, .min = 1, .max = EG__MAX_HW, .help = "height and width of the window"),
        EG_HW_FIELD(eg_conv2d, stride, .min = 1, .max = EG__MAX_HW, .def = 1, .help = "step of the window"),
        EG_HW_FIELD(eg_conv2d, padding, .max = EG__MAX_HW, .help = "zeros on both sides"),
        EG_HW_FIELD(eg_conv2d, dilation, .min = 1, .max = EG__MAX_HW, .def = 1, .help = "distance of taps"),
        EG_INT(eg_conv2d, groups, .min = 1, .max = EG__MAX_CHANNELS, .def = 1, .help = "blocks of connections"),
        EG_BOOL(eg_conv2d, no_bias, .help = "leave the bias out")));

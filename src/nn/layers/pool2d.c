#include "nn/internal.h"

static eg_status build(eg_module *self)
{
    eg_pool2d *p = (eg_pool2d *)self;
    if (p->stride == 0)
        p->stride = p->kernel_size;
    EG_CHECK(eg_hw_h(p->stride) > 0 && eg_hw_w(p->stride) > 0, EG_EINVAL, "%s: 'stride' has a 0, expected at least 1",
             self->cls->name);
    EG_CHECK(2 * eg_hw_h(p->padding) <= eg_hw_h(p->kernel_size) && 2 * eg_hw_w(p->padding) <= eg_hw_w(p->kernel_size),
             EG_EINVAL, "%s: 'padding' is more than half of 'kernel_size'", self->cls->name);
    return EG_OK;
}

static eg_tensor *max_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_pool2d *p = EG_CAST(self, eg_max_pool2d);
    return eg_f_max_pool2d(in[0], .kernel_size = p->kernel_size, .stride = p->stride, .padding = p->padding,
                           .dilation = p->dilation, .ceil_mode = p->ceil_mode);
}

static eg_tensor *avg_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_pool2d *p = EG_CAST(self, eg_avg_pool2d);
    return eg_f_avg_pool2d(in[0], .kernel_size = p->kernel_size, .stride = p->stride, .padding = p->padding,
                           .ceil_mode = p->ceil_mode, .exclude_pad = p->exclude_pad);
}

static void window(const eg_pool2d *p, eg__text *out)
{
    char hw[EG__NUMBER_TEXT_SIZE];
    eg__text_add(out, "kernel_size=%s", eg__hw_text(p->kernel_size, true, hw));
    eg__text_add(out, ", stride=%s", eg__hw_text(p->stride, true, hw));
    eg__text_add(out, ", padding=%s", eg__hw_text(p->padding, true, hw));
}

static void max_describe(const eg_module *self, char *text, size_t size)
{
    const eg_pool2d *p = (const eg_pool2d *)self;
    char hw[EG__NUMBER_TEXT_SIZE];
    eg__text out = {text, size};
    window(p, &out);
    eg__text_add(&out, ", dilation=%s, ceil_mode=%s", eg__hw_text(p->dilation, true, hw),
                 p->ceil_mode ? "True" : "False");
}

static void avg_describe(const eg_module *self, char *text, size_t size)
{
    eg__text out = {text, size};
    window((const eg_pool2d *)self, &out);
}

#define WINDOW_FIELDS                                                                                                  \
    EG_HW_FIELD(eg_pool2d, kernel_size, .min = 1, .max = EG__MAX_HW, .help = "height and width of the window"),        \
        EG_HW_FIELD(eg_pool2d, stride, .max = EG__MAX_HW, .help = "step of the window; 0 = kernel_size"),              \
        EG_HW_FIELD(eg_pool2d, padding, .max = EG__MAX_HW, .help = "on both sides, at most half of the window"),       \
        EG_BOOL(eg_pool2d, ceil_mode, .help = "windows may begin inside and end outside")

EG_NAMED_CLASS(eg_max_pool2d, "MaxPool2d", .build = build, .forward = max_forward, .describe = max_describe,
               .fields = EG_FIELDS(WINDOW_FIELDS, EG_HW_FIELD(eg_pool2d, dilation, .min = 1, .max = EG__MAX_HW,
                                                              .def = 1, .help = "distance of taps")));

EG_NAMED_CLASS(eg_avg_pool2d, "AvgPool2d", .build = build, .forward = avg_forward, .describe = avg_describe,
               .fields = EG_FIELDS(WINDOW_FIELDS,
                                   EG_BOOL(eg_pool2d, exclude_pad, .help = "padding does not count in the mean")));

/* ---- to a given size ---- */

static eg_tensor *adaptive_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_f_adaptive_avg_pool2d(in[0], EG_CAST(self, eg_adaptive_avg_pool2d)->output_size);
}

static void adaptive_describe(const eg_module *self, char *text, size_t size)
{
    char hw[EG__NUMBER_TEXT_SIZE];
    snprintf(text, size, "output_size=%s", eg__hw_text(((const eg_adaptive_avg_pool2d *)self)->output_size, true, hw));
}

EG_NAMED_CLASS(eg_adaptive_avg_pool2d, "AdaptiveAvgPool2d", .forward = adaptive_forward, .describe = adaptive_describe,
               .fields = EG_FIELDS(EG_HW_FIELD(eg_adaptive_avg_pool2d, output_size, .min = 1, .max = EG__MAX_HW,
                                               .help = "height and width out")));

static eg_tensor *global_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)self;
    (void)n_in;
    return eg_f_flatten(eg_f_adaptive_avg_pool2d(in[0], 1), 1, -1);
}

EG_NAMED_CLASS(eg_global_avg_pool2d, "GlobalAvgPool2d", .forward = global_forward);

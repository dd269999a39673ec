#include "nn/internal.h"

#include <inttypes.h>

static const char *const modes[] = {"nearest", "bilinear", NULL};

static eg_status build(eg_module *self)
{
    const eg_upsample *u = EG_CAST(self, eg_upsample);
    EG_CHECK((u->size != 0) != (u->scale_factor != 0), EG_EINVAL, "Upsample: %s of 'size' and 'scale_factor' given",
             u->size != 0 ? "both" : "none");
    EG_CHECK(u->size == 0 || (eg_hw_h(u->size) > 0 && eg_hw_w(u->size) > 0), EG_EINVAL,
             "Upsample: 'size' has a 0, expected at least 1");
    EG_CHECK(!u->align_corners || u->mode == EG_BILINEAR, EG_EINVAL,
             "Upsample: 'align_corners' is set, expected it with mode bilinear only");
    return EG_OK;
}

static eg_tensor *forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_upsample *u = EG_CAST(self, eg_upsample);
    return eg_f_interpolate(in[0], .size = u->size, .scale_factor = u->scale_factor, .mode = (eg_interpolation)u->mode,
                            .align_corners = u->align_corners);
}

static void describe(const eg_module *self, char *text, size_t size)
{
    const eg_upsample *u = (const eg_upsample *)self;
    char number[EG__NUMBER_TEXT_SIZE];
    eg__text out = {text, size};
    if (u->size != 0)
        eg__text_add(&out, "size=%s", eg__hw_text(u->size, true, number));
    else
        eg__text_add(&out, "scale_factor=%s", eg__number_text(u->scale_factor, number));
    eg__text_add(&out, ", mode=%s", modes[u->mode]);
}

EG_NAMED_CLASS(eg_upsample, "Upsample", .build = build, .forward = forward, .describe = describe,
               .fields = EG_FIELDS(EG_HW_FIELD(eg_upsample, size, .max = EG__MAX_HW, .help = "height and width out"),
                                   EG_FLOAT(eg_upsample, scale_factor, .max = EG__MAX_HW,
                                            .help = "factor of height and width"),
                                   EG_ENUM(eg_upsample, mode, .values = modes, .help = "how pixels are made"),
                                   EG_BOOL(eg_upsample, align_corners, .help = "corner pixels keep their places")));

/* ---- channels for size ---- */

static eg_tensor *shuffle_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_f_pixel_shuffle(in[0], EG_CAST(self, eg_pixel_shuffle)->upscale_factor);
}

static eg_tensor *unshuffle_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_f_pixel_unshuffle(in[0], EG_CAST(self, eg_pixel_unshuffle)->downscale_factor);
}

EG_NAMED_CLASS(eg_pixel_shuffle, "PixelShuffle", .forward = shuffle_forward,
               .fields = EG_FIELDS(EG_INT(eg_pixel_shuffle, upscale_factor, .min = 1, .max = 32767,
                                          .help = "how many times larger")));
EG_NAMED_CLASS(eg_pixel_unshuffle, "PixelUnshuffle", .forward = unshuffle_forward,
               .fields = EG_FIELDS(EG_INT(eg_pixel_unshuffle, downscale_factor, .min = 1, .max = 32767,
                                          .help = "how many times smaller")));

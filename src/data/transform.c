/*
 * data/transform.c - augmentation of images.
 */
#include "data/internal.h"

#include <string.h>

static int64_t random_below(eg_rng *rng, int64_t n)
{
    return (int64_t)eg_rng_below(rng, (uint64_t)n);
}

static void random_crop(const void *payload, float *sample, eg_shape shape, float *scratch, eg_rng *rng)
{
    int64_t padding = (int64_t)((const eg_transform *)payload)->amount;
    int64_t height = shape.dims[1], width = shape.dims[2];
    int64_t dy = random_below(rng, 2 * padding + 1) - padding, dx = random_below(rng, 2 * padding + 1) - padding;
    size_t numel = (size_t)eg_shape_numel(shape);
    memcpy(scratch, sample, numel * sizeof *sample);
    memset(sample, 0, numel * sizeof *sample);
    int64_t x0 = EG_MAX(0, -dx), x1 = EG_MIN(width, width - dx);
    if (x0 >= x1)
        return;
    for (int64_t c = 0; c < shape.dims[0]; c++)
        for (int64_t y = EG_MAX(0, -dy); y < EG_MIN(height, height - dy); y++)
            memcpy(sample + (c * height + y) * width + x0, scratch + (c * height + y + dy) * width + x0 + dx,
                   (size_t)(x1 - x0) * sizeof *sample);
}

static void random_flip(const void *payload, float *sample, eg_shape shape, float *scratch, eg_rng *rng)
{
    (void)scratch;
    if (eg_rng_uniform(rng) >= ((const eg_transform *)payload)->amount)
        return;
    int64_t rows = shape.dims[0] * shape.dims[1], width = shape.dims[2];
    for (int64_t row = 0; row < rows; row++)
        for (float *left = sample + row * width, *right = left + width - 1; left < right; left++, right--) {
            float value = *left;
            *left = *right;
            *right = value;
        }
}

static void cutout(const void *payload, float *sample, eg_shape shape, float *scratch, eg_rng *rng)
{
    (void)scratch;
    int64_t length = (int64_t)((const eg_transform *)payload)->amount;
    int64_t height = shape.dims[1], width = shape.dims[2];
    int64_t top = random_below(rng, height) - length / 2, left = random_below(rng, width) - length / 2;
    int64_t x0 = EG_MAX(0, left), x1 = EG_MIN(width, left + length);
    if (x0 >= x1)
        return;
    for (int64_t c = 0; c < shape.dims[0]; c++)
        for (int64_t y = EG_MAX(0, top); y < EG_MIN(height, top + length); y++)
            memset(sample + (c * height + y) * width + x0, 0, (size_t)(x1 - x0) * sizeof *sample);
}

eg_transform eg_random_crop(int64_t padding)
{
    return (eg_transform){.apply = random_crop, .amount = (double)padding};
}

eg_transform eg_random_flip(double p)
{
    return (eg_transform){.apply = random_flip, .amount = p};
}

eg_transform eg_cutout(int64_t length)
{
    return (eg_transform){.apply = cutout, .amount = (double)length};
}

eg_status eg__transform_check(const eg_transform *transform, eg_shape shape)
{
    static const struct {
        eg_transform_fn apply;
        const char *name;
        double most;
    } built_in[] = {
        {random_crop, "random crop", 1 << 20}, {random_flip, "random flip", 1}, {cutout, "cutout", 1 << 20}};

    EG_CHECK(transform->apply, EG_EINVAL, "loader: a transform has no function");
    for (size_t i = 0; i < EG_COUNT(built_in); i++) {
        if (transform->apply != built_in[i].apply)
            continue;
        char text[EG_SHAPE_TEXT_SIZE];
        EG_CHECK(shape.ndim == 3, EG_EINVAL, "%s: needs images (C, H, W), the samples are %s", built_in[i].name,
                 eg_shape_format(shape, text, sizeof text));
        EG_CHECK(transform->amount >= 0 && transform->amount <= built_in[i].most, EG_EINVAL, "%s: %g is not in 0 .. %g",
                 built_in[i].name, transform->amount, built_in[i].most);
    }
    return EG_OK;
}

/*
 * data/dataset.c - data sets in memory.
 */
#include "data/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

eg_dataset *eg__dataset_new(eg_context *ctx, eg_shape shape, size_t n, int64_t classes)
{
    eg_dataset *dataset = eg__calloc(1, sizeof *dataset);
    if (!dataset)
        return NULL;
    atomic_init(&dataset->refs, 1);
    dataset->ctx = ctx;
    dataset->shape = shape;
    dataset->n = n;
    dataset->numel = (size_t)eg_shape_numel(shape);
    dataset->classes = classes;
    return dataset;
}

eg_dataset *eg_dataset_retain(eg_dataset *dataset)
{
    if (dataset)
        atomic_fetch_add(&dataset->refs, 1);
    return dataset;
}

void eg_dataset_release(eg_dataset *dataset)
{
    if (!dataset || atomic_fetch_sub(&dataset->refs, 1) != 1)
        return;
    eg_dataset_release(dataset->root);
    free(dataset->labels);
    free(dataset->bytes);
    free(dataset->table);
    free(dataset->values);
    free(dataset->indices);
    free(dataset);
}

size_t eg_dataset_size(const eg_dataset *dataset)
{
    return dataset ? dataset->n : 0;
}

int64_t eg_dataset_classes(const eg_dataset *dataset)
{
    return dataset ? dataset->classes : 0;
}

eg_shape eg_dataset_shape(const eg_dataset *dataset)
{
    return dataset ? dataset->shape : EG_SCALAR;
}

int64_t eg_dataset_label(const eg_dataset *dataset, size_t i)
{
    if (!dataset) {
        eg__null(__func__, "data set");
        return -1;
    }
    if (i >= dataset->n) {
        eg_fail(EG_EINVAL, "sample %zu: the data set has %zu", i, dataset->n);
        return -1;
    }
    return dataset->root ? dataset->root->labels[dataset->indices[i]] : dataset->labels[i];
}

size_t eg__dataset_channels(const eg_dataset *dataset)
{
    return dataset->shape.ndim == 3 ? (size_t)dataset->shape.dims[0] : 1;
}

void eg__to_channels_last(const float *src, float *dst, size_t channels, size_t pixels)
{
    for (size_t c = 0; c < channels; c++)
        for (size_t p = 0; p < pixels; p++)
            dst[p * channels + c] = src[c * pixels + p];
}

void eg__dataset_fill(const eg_dataset *dataset, size_t i, float *out, bool channels_last)
{
    if (dataset->root) {
        i = dataset->indices[i];
        dataset = dataset->root;
    }
    size_t channels = eg__dataset_channels(dataset), pixels = dataset->numel / channels;
    if (dataset->bytes) {
        const uint8_t *bytes = dataset->bytes + i * dataset->numel;
        size_t step = channels_last ? channels : 1, stride = channels_last ? 1 : pixels;
        for (size_t c = 0; c < channels; c++)
            for (size_t p = 0; p < pixels; p++)
                out[c * stride + p * step] = dataset->table[c][bytes[c * pixels + p]];
        return;
    }
    const float *values = dataset->values + i * dataset->numel;
    if (channels_last)
        eg__to_channels_last(values, out, channels, pixels);
    else
        memcpy(out, values, dataset->numel * sizeof *out);
}

eg_status eg_dataset_read(const eg_dataset *dataset, size_t i, float *out, int64_t *label)
{
    if (!dataset || !out) {
        eg__null(__func__, dataset ? "output" : "data set");
        return eg_error_last()->code;
    }
    EG_CHECK(i < dataset->n, EG_EINVAL, "sample %zu: the data set has %zu", i, dataset->n);
    eg__dataset_fill(dataset, i, out, false);
    if (label)
        *label = eg_dataset_label(dataset, i);
    return EG_OK;
}

/* Mean and deviation of a channel, from how often each byte occurs: exact, and one pass over the data. */
static void byte_statistics(const uint64_t *count, double *mean, double *deviation)
{
    double n = 0, sum = 0, squares = 0;
    for (int value = 0; value < 256; value++) {
        n += (double)count[value];
        sum += (double)count[value] * value;
    }
    *mean = sum / n;
    for (int value = 0; value < 256; value++)
        squares += (double)count[value] * (value - *mean) * (value - *mean);
    *deviation = sqrt(squares / n);
}

eg_status eg__dataset_make_table(eg_dataset *dataset, const uint8_t *train, size_t n)
{
    size_t channels = eg__dataset_channels(dataset), pixels = dataset->numel / channels;
    dataset->table = eg__calloc(channels, sizeof *dataset->table);
    if (!dataset->table)
        return EG_ENOMEM;
    for (size_t c = 0; c < channels; c++) {
        double mean = 0, deviation = 255;
        if (train) {
            uint64_t count[256] = {0};
            for (size_t i = 0; i < n; i++)
                for (size_t p = 0; p < pixels; p++)
                    count[train[(i * channels + c) * pixels + p]]++;
            byte_statistics(count, &mean, &deviation);
            if (deviation <= 0) /* a constant channel becomes zero */
                deviation = 1;
        }
        for (int value = 0; value < 256; value++)
            dataset->table[c][value] = (float)((value - mean) / deviation);
    }
    return EG_OK;
}

static eg_status check_arrays(const float *data, eg_shape shape, const int64_t *labels, size_t n, int64_t classes)
{
    char text[EG_SHAPE_TEXT_SIZE];
    EG_CHECK(data && labels, EG_EINVAL, "data set from arrays: %s is NULL", data ? "labels" : "data");
    EG_CHECK(shape.ndim >= 1 && shape.ndim <= 3 && eg_shape_numel(shape) > 0, EG_EINVAL,
             "data set from arrays: shape %s, expected 1 to 3 dimensions above 0",
             eg_shape_format(shape, text, sizeof text));
    EG_CHECK(n > 0 && classes > 0, EG_EINVAL,
             "data set from arrays: %zu samples of %lld classes, expected at least one", n, (long long)classes);
    for (size_t i = 0; i < n; i++)
        EG_CHECK(labels[i] >= 0 && labels[i] < classes, EG_EINVAL,
                 "data set from arrays: label %lld of sample %zu, expected 0 .. %lld", (long long)labels[i], i,
                 (long long)classes - 1);
    return EG_OK;
}

eg_dataset *eg_dataset_from_arrays(eg_context *ctx, const float *data, eg_shape shape, const int64_t *labels, size_t n,
                                   int64_t classes)
{
    if (!ctx)
        return eg__null(__func__, "context");
    if (check_arrays(data, shape, labels, n, classes) != EG_OK)
        return NULL;
    size_t numel = (size_t)eg_shape_numel(shape);
    if (n > SIZE_MAX / sizeof *data / numel) {
        eg_fail(EG_EINVAL, "data set from arrays: %zu samples of %zu numbers exceed the memory", n, numel);
        return NULL;
    }
    eg_dataset *dataset = eg__dataset_new(ctx, shape, n, classes);
    if (!dataset)
        return NULL;
    dataset->values = eg__calloc(n * numel, sizeof *data);
    dataset->labels = eg__calloc(n, sizeof *labels);
    if (!dataset->values || !dataset->labels) {
        eg_dataset_release(dataset);
        return NULL;
    }
    memcpy(dataset->values, data, n * numel * sizeof *data);
    memcpy(dataset->labels, labels, n * sizeof *labels);
    return dataset;
}

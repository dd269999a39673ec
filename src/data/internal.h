/*
 * data/internal.h - how samples are kept, and the readers of the file formats.
 */
#ifndef EG_DATA_INTERNAL_H
#define EG_DATA_INTERNAL_H

#include "base/internal.h"
#include "engraft/data.h"

#include <stdatomic.h>

/** Samples lie in logical order (C, H, W), one after the other: as bytes, which a table per channel turns into the
 * final numbers, or as the final numbers themselves. A subset has neither: it lists samples of `root`, which is never a
 * subset. */
struct eg_dataset {
    atomic_size_t refs;
    eg_context *ctx;
    eg_shape shape;
    size_t n, numel; /* samples; numbers of one sample */
    int64_t classes;
    int64_t *labels;
    uint8_t *bytes;
    float (*table)[256]; /* by channel */
    float *values;
    eg_dataset *root;
    size_t *indices;
};

/** An empty data set with one reference; the caller fills in labels and samples. */
eg_dataset *eg__dataset_new(eg_context *ctx, eg_shape shape, size_t n, int64_t classes);
/** Channels of a sample: 1 unless it has three dimensions. */
size_t eg__dataset_channels(const eg_dataset *dataset);
/** Makes the table: byte / 255, normalized by the statistics of `n` samples at `train` (NULL: not normalized). */
eg_status eg__dataset_make_table(eg_dataset *dataset, const uint8_t *train, size_t n);
/** Writes sample i (in range) to `out`, as (C, H, W) or (H, W, C). Thread-safe. */
void eg__dataset_fill(const eg_dataset *dataset, size_t i, float *out, bool channels_last);
/** `src` (C, H, W) to `dst` (H, W, C). */
void eg__to_channels_last(const float *src, float *dst, size_t channels, size_t pixels);

/* ---- files, plain or compressed by gzip: told apart by their content ---- */

typedef struct eg__input {
    void *file; /* gzFile */
    char *path;
    uint64_t limit; /* no more than this can come out of the file */
} eg__input;
eg_status eg__input_open(eg__input *input, const char *path);
/** Opens DIR/NAME or else DIR/NAME.gz. */
eg_status eg__input_open_in(eg__input *input, const char *directory, const char *name);
/** Reads up to n bytes; *got is less only at the end of the data. */
eg_status eg__input_read(eg__input *input, void *out, size_t n, size_t *got);
void eg__input_close(eg__input *input); /* all-zero is allowed */

/** An array of bytes in the format of MNIST (yann.lecun.com/exdb/mnist). */
typedef struct eg__idx {
    uint8_t *data;
    size_t dims[3];
} eg__idx;
/** Reads an array of `ndim` (1 or 3) dimensions; data is for eg_free(). EFORMAT unless the file holds exactly what its
 * header says. */
eg_status eg__idx_read(eg__input *input, int ndim, eg__idx *idx);

typedef struct eg__csv {
    float *values; /* (rows, columns) */
    int64_t *labels;
    size_t rows, columns;
    int64_t classes;
} eg__csv;
/** Parses a text that ends in a NUL at text[size]; `path` is for messages. */
eg_status eg__csv_parse(const char *text, size_t size, const char *path, eg__csv *csv);
void eg__csv_free(eg__csv *csv);

/* ---- the kinds of data set that eg_dataset_open() knows: NULL on failure. `path` is what follows the colon ---- */

eg_dataset *eg__open_fashion_mnist(const eg_dataset_options *options, const char *path);
eg_dataset *eg__open_idx(const eg_dataset_options *options, const char *path);
eg_dataset *eg__open_cifar10(const eg_dataset_options *options, const char *path);
eg_dataset *eg__open_csv(const eg_dataset_options *options, const char *path);

/** EINVAL unless the transform can be applied to samples of this shape. */
eg_status eg__transform_check(const eg_transform *transform, eg_shape shape);

#endif

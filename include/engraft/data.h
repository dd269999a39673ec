/** @file
 * engraft/data.h - data sets, transforms, and the loader that makes batches of them.
 */
#ifndef ENGRAFT_DATA_H
#define ENGRAFT_DATA_H

#include "autograd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------- data sets */

/** Which part of a data set. */
typedef enum eg_dataset_split { EG_TRAIN, EG_TEST } eg_dataset_split;

/** Samples of one shape with labels 0 .. classes-1. Reference-counted; safe to read from several threads. It lives no
 *  longer than its context, in which loaders make their tensors. */
typedef struct eg_dataset eg_dataset;

/** What eg_dataset_open() takes. */
typedef struct eg_dataset_options {
    size_t struct_size;
    eg_context *ctx;
    const char *spec;
    eg_dataset_split split;
    bool normalize_off; /**< leave values in 0 .. 1 (images) or as they are (CSV) */
} eg_dataset_options;
/** Opens a data set by a spec, e.g. eg_dataset_open(ctx, "fashion-mnist", .split = EG_TRAIN):
 *    fashion-mnist   Debian's dataset-fashion-mnist (or the folder that EG_FASHION_MNIST names)
 *    idx:DIR         train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-.., each plain or .gz;
 *                    as many classes as the training labels name, which must be 0 .. classes-1
 *    cifar10:DIR     data_batch_*.bin and test_batch.bin, or any *train*.bin and *test*.bin, plain or .gz
 *    csv:FILE        numbers separated by commas, label last (0, 1, ..), a header line without numbers allowed;
 *                    decimal numbers, also in quotes; every fifth row is the test split
 *  Values are scaled to 0 .. 1 for images, then normalized by the mean and deviation of each channel (column) of the
 *  training split. NULL: EINVAL (unknown spec), ENOENT, EIO, EFORMAT (file, position, what was expected; labels out of
 *  range). */
#define eg_dataset_open(...)                                                                                           \
    eg_dataset_open_with(&(eg_dataset_options){.struct_size = sizeof(eg_dataset_options), .ctx = __VA_ARGS__})
/** The same from a struct, whose struct_size must be set (else EINVAL). */
EG_API eg_dataset *eg_dataset_open_with(const eg_dataset_options *options);
/** Whether a spec has one of these forms; no file is looked at. EINVAL, saying what was expected. */
EG_API eg_status eg_dataset_check_spec(const char *spec);
/** n samples of `shape` (1 to 3 dimensions; images C, H, W) from memory, copied. EINVAL for a label outside 0 ..
 *  classes-1. */
EG_API eg_dataset *eg_dataset_from_arrays(eg_context *ctx, const float *data, eg_shape shape, const int64_t *labels,
                                          size_t n, int64_t classes);
/** The samples `indices`, of the same set (kept); none when n is 0. EINVAL for an index out of range. */
EG_API eg_dataset *eg_dataset_subset(eg_dataset *dataset, const size_t *indices, size_t n);
/** `n` samples drawn with `seed`, classes in equal shares as far as they go, in the set's order; all when n is 0 or too
 *  large. */
EG_API eg_dataset *eg_dataset_sample(eg_dataset *dataset, size_t n, uint64_t seed);
/** Two parts: the first has round(fraction * size) samples; drawn with `seed`, the same fraction of each class. Each
 *  part is the caller's to release; NULL on failure (EINVAL: fraction outside 0 .. 1). */
EG_API eg_status eg_dataset_divide(eg_dataset *dataset, double fraction, uint64_t seed, eg_dataset **first,
                                   eg_dataset **second);
/** One more reference; returns `dataset`. */
EG_API eg_dataset *eg_dataset_retain(eg_dataset *dataset);
/** Ends a reference; the last one frees. */
EG_API void eg_dataset_release(eg_dataset *dataset);
/** Number of samples. */
EG_API size_t eg_dataset_size(const eg_dataset *dataset);
/** Number of classes: labels are 0 .. classes-1. */
EG_API int64_t eg_dataset_classes(const eg_dataset *dataset);
/** Of one sample: (C, H, W) for images. */
EG_API eg_shape eg_dataset_shape(const eg_dataset *dataset);
/** Label of sample i; -1 and EINVAL when out of range. */
EG_API int64_t eg_dataset_label(const eg_dataset *dataset, size_t i);
/** Copies sample i out in logical order, normalized as the loader would. `label` may be NULL. EINVAL: out of range. */
EG_API eg_status eg_dataset_read(const eg_dataset *dataset, size_t i, float *out, int64_t *label);

/* ---------------------------------------------------------------------------------------------- transforms */

/** Augmentation of one sample, (C, H, W) in place, after normalization. `scratch` has room for another sample. `rng`
 *  depends on seed, epoch and sample only. Must be thread-safe. */
typedef void (*eg_transform_fn)(const void *payload, float *sample, eg_shape shape, float *scratch, eg_rng *rng);
/** A transform: a built-in one, or one's own function and payload. A plain value. */
typedef struct eg_transform {
    eg_transform_fn apply;
    double amount;       /**< payload of the built-in ones: pass &transform */
    const void *payload; /**< of one's own; NULL = the eg_transform itself */
} eg_transform;
/** Zeros around, then a random window of the original size. The three transforms here are for images: making a loader
 *  of other samples, or with an amount out of range, is EINVAL. */
EG_API eg_transform eg_random_crop(int64_t padding);
/** Left to right with probability p. */
EG_API eg_transform eg_random_flip(double p);
/** A square of zeros of side `length` around a random center (DeVries and Taylor 2017). */
EG_API eg_transform eg_cutout(int64_t length);

/* ---------------------------------------------------------------------------------------------- loader */

/** Makes batches in background threads. Order and augmentation depend on seed, epoch and sample, never on the number of
 *  workers. */
typedef struct eg_loader eg_loader;

/** What eg_loader_new() takes. */
typedef struct eg_loader_options {
    size_t struct_size;
    eg_dataset *dataset; /**< retained */
    size_t batch_size;   /**< at least 1 */
    bool shuffle;        /**< a new order each epoch */
    bool drop_last;      /**< leave out an incomplete last batch */
    int workers;         /**< threads; 0 = batches are made in the caller */
    uint64_t seed;
    const eg_transform *transforms; /**< applied in order; copied */
    size_t n_transforms;
} eg_loader_options;
/** eg_loader_new(dataset, 64, .shuffle = true, .workers = 2). NULL on failure: EINVAL (naming the option), ENOMEM. */
#define eg_loader_new(...)                                                                                             \
    eg_loader_new_with(&(eg_loader_options){.struct_size = sizeof(eg_loader_options), .dataset = __VA_ARGS__})
/** The same from a struct, whose struct_size must be set (else EINVAL). */
EG_API eg_loader *eg_loader_new_with(const eg_loader_options *options);
/** Ends its threads. */
EG_API void eg_loader_free(eg_loader *loader);
/** Number of batches of an epoch. */
EG_API size_t eg_loader_size(const eg_loader *loader);
/** Goes to a batch of an epoch (its number of batches = the end); workers start on what follows. Called for each epoch;
 *  a loader that was never started begins with batch 0 of epoch 0. EINVAL for a batch beyond the end. */
EG_API eg_status eg_loader_start(eg_loader *loader, uint64_t epoch, size_t batch);

/** What eg_loader_next() fills in. */
typedef struct eg_batch {
    eg_tensor *x; /**< (N, C, H, W) float32, channels-last; (N, D) for samples (D) */
    eg_tensor *y; /**< (N) int64 */
    size_t size;  /**< N; 0 = the epoch has ended (x and y are NULL), until eg_loader_start() */
} eg_batch;
/** The next batch, its tensors in the current scope. */
EG_API eg_status eg_loader_next(eg_loader *loader, eg_batch *batch);

#ifdef __cplusplus
}
#endif
#endif

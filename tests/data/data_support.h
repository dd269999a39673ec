/*
 * tests/data/data_support.h - small data files, made on the spot.
 */
#ifndef EG_TESTS_DATA_SUPPORT_H
#define EG_TESTS_DATA_SUPPORT_H

#include "support.h"

#include "engraft/data.h"

#include <zlib.h>

/** Writes a file, compressed when its name ends in ".gz". */
static inline void write_file(const char *directory, const char *name, const void *data, size_t size)
{
    char path[TEMPORARY_PATH_SIZE];
    temporary_path(directory, name, path);
    size_t length = strlen(name);
    bool packed = length > 3 && strcmp(name + length - 3, ".gz") == 0;
    gzFile file = gzopen(path, packed ? "wb" : "wbT");
    assert_non_null(file);
    assert_true(size == 0 || gzwrite(file, data, (unsigned)size) == (int)size);
    assert_int_equal(gzclose(file), Z_OK);
}

static inline char *read_file(const char *directory, const char *name, size_t *size)
{
    char path[TEMPORARY_PATH_SIZE], *data = calloc(1, 1 << 20);
    FILE *file = fopen(temporary_path(directory, name, path), "rb");
    assert_non_null(file);
    *size = fread(data, 1, 1 << 20, file);
    fclose(file);
    return data;
}

static inline void put_big_endian(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> (24 - 8 * i));
}

/** An idx file of n images of height x width with pixel values i + position, or n labels i % classes (height = 0). */
static inline size_t make_idx(uint8_t *to, uint32_t n, uint32_t height, uint32_t width, uint32_t classes)
{
    bool images = height > 0;
    size_t at = images ? 16 : 8, numel = images ? (size_t)height * width : 1;
    put_big_endian(to, images ? 0x803 : 0x801);
    put_big_endian(to + 4, n);
    if (images) {
        put_big_endian(to + 8, height);
        put_big_endian(to + 12, width);
    }
    for (uint32_t i = 0; i < n; i++)
        for (size_t p = 0; p < numel; p++)
            to[at++] = (uint8_t)(images ? (i * 7 + p * 3) % 256 : i % classes);
    return at;
}

enum { IDX_TRAIN = 30, IDX_TEST = 20, IDX_HEIGHT = 4, IDX_WIDTH = 5, IDX_BYTES = 4096 };

/** The four files of an idx folder with ten classes; `suffix` is "" or ".gz". */
static inline void make_idx_folder(const char *directory, const char *suffix)
{
    static const struct {
        const char *name;
        uint32_t n, height;
    } files[] = {{"train-images-idx3-ubyte", IDX_TRAIN, IDX_HEIGHT},
                 {"train-labels-idx1-ubyte", IDX_TRAIN, 0},
                 {"t10k-images-idx3-ubyte", IDX_TEST, IDX_HEIGHT},
                 {"t10k-labels-idx1-ubyte", IDX_TEST, 0}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        uint8_t data[IDX_BYTES];
        char name[64];
        snprintf(name, sizeof name, "%s%s", files[i].name, suffix);
        write_file(directory, name, data, make_idx(data, files[i].n, files[i].height, IDX_WIDTH, 10));
    }
}

static inline eg_dataset *open_spec(eg_context *ctx, const char *kind, const char *path, eg_dataset_split split,
                                    bool normalize_off)
{
    char spec[TEMPORARY_PATH_SIZE + 16];
    snprintf(spec, sizeof spec, "%s:%s", kind, path);
    return eg_dataset_open(ctx, spec, .split = split, .normalize_off = normalize_off);
}

/** n images of (channels, size, size): pixel values tell sample and position; labels i % classes. */
static inline eg_dataset *make_images(eg_context *ctx, size_t n, int64_t channels, int64_t size, int64_t classes)
{
    size_t numel = (size_t)(channels * size * size);
    float *data = calloc(n * numel, sizeof *data);
    int64_t *labels = calloc(n, sizeof *labels);
    for (size_t i = 0; i < n * numel; i++)
        data[i] = (float)(i + 1);
    for (size_t i = 0; i < n; i++)
        labels[i] = (int64_t)i % classes;
    eg_dataset *dataset = eg_dataset_from_arrays(ctx, data, EG_SHAPE(channels, size, size), labels, n, classes);
    assert_made(dataset);
    free(data);
    free(labels);
    return dataset;
}

#endif

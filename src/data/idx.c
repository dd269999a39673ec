/*
 * data/idx.c - the format of MNIST and its kin.
 */
#include "data/internal.h"

#include <stdlib.h>
#include <string.h>

static uint32_t big_endian(const uint8_t *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static eg_status read_header(eg__input *input, int ndim, eg__idx *idx, size_t *total)
{
    uint8_t header[16];
    size_t size = 4 + 4 * (size_t)ndim, got = 0;
    EG_TRY(eg__input_read(input, header, size, &got));
    EG_CHECK(got == size, EG_EFORMAT, "'%s': ends after %zu bytes, expected a header of %zu", input->path, got, size);
    uint32_t magic = big_endian(header), expected = 0x0800u + (uint32_t)ndim;
    EG_CHECK(magic == expected, EG_EFORMAT,
             "'%s': magic number 0x%08x, expected 0x%08x (%d-dimensional array of bytes)", input->path, magic, expected,
             ndim);
    uint64_t product = 1, limit = EG_MIN(input->limit, (uint64_t)PTRDIFF_MAX);
    for (int i = 0; i < ndim; i++) {
        uint32_t size_i = big_endian(header + 4 + 4 * i);
        EG_CHECK(size_i > 0, EG_EFORMAT, "'%s': dimension %d is 0, expected at least 1", input->path, i);
        EG_CHECK(product <= limit / size_i, EG_EFORMAT, "'%s': the header claims more data than the file can hold",
                 input->path);
        product *= size_i;
        idx->dims[i] = size_i;
    }
    *total = (size_t)product;
    return EG_OK;
}

eg_status eg__idx_read(eg__input *input, int ndim, eg__idx *idx)
{
    *idx = (eg__idx){0};
    size_t total = 0, got = 0, more = 0;
    EG_TRY(read_header(input, ndim, idx, &total));
    uint8_t *data = eg__calloc(total, 1), extra;
    if (!data)
        return EG_ENOMEM;
    eg_status status = eg__input_read(input, data, total, &got);
    if (status == EG_OK && got == total) /* reading past the end also makes zlib verify its checksum */
        status = eg__input_read(input, &extra, 1, &more);
    if (status == EG_OK && (got < total || more > 0))
        status = eg_fail(EG_EFORMAT, "'%s': %s the %zu bytes of data that its header says", input->path,
                         got < total ? "ends before" : "goes on after", total);
    if (status != EG_OK) {
        free(data);
        return status;
    }
    idx->data = data;
    return EG_OK;
}

/* ---- a folder of four files ---- */

typedef struct idx_part {
    eg__idx images, labels;
    char *labels_path;
} idx_part;

static void part_free(idx_part *part)
{
    free(part->images.data);
    free(part->labels.data);
    eg_free(part->labels_path);
}

static eg_status read_array(const char *directory, const char *name, int ndim, eg__idx *idx, char **path)
{
    eg__input input;
    EG_TRY(eg__input_open_in(&input, directory, name));
    eg_status status = eg__idx_read(&input, ndim, idx);
    if (path) {
        *path = input.path;
        input.path = NULL;
    }
    eg__input_close(&input);
    return status;
}

static eg_status read_part(const char *directory, bool train, idx_part *part)
{
    EG_TRY(read_array(directory, train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte", 3, &part->images, NULL));
    EG_TRY(read_array(directory, train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte", 1, &part->labels,
                      &part->labels_path));
    EG_CHECK(part->images.dims[0] == part->labels.dims[0], EG_EFORMAT, "'%s': %zu labels for %zu images",
             part->labels_path, part->labels.dims[0], part->images.dims[0]);
    return EG_OK;
}

/* As many classes as the training labels name; a label beyond that number leaves a gap, and is reported by
 * check_labels(). */
static int64_t count_classes(const eg__idx *labels)
{
    bool seen[256] = {false};
    int64_t classes = 0;
    for (size_t i = 0; i < labels->dims[0]; i++) {
        classes += !seen[labels->data[i]];
        seen[labels->data[i]] = true;
    }
    return classes;
}

static eg_status check_labels(const idx_part *part, int64_t classes)
{
    for (size_t i = 0; i < part->labels.dims[0]; i++)
        EG_CHECK(part->labels.data[i] < classes, EG_EFORMAT, "'%s': label %d at position %zu, expected 0 .. %lld",
                 part->labels_path, part->labels.data[i], i, (long long)classes - 1);
    return EG_OK;
}

/* Takes the images out of `part`. */
static eg_dataset *make_dataset(const eg_dataset_options *options, idx_part *part, const uint8_t *train, size_t n_train,
                                int64_t classes)
{
    const size_t *dims = part->images.dims;
    eg_dataset *dataset =
        eg__dataset_new(options->ctx, EG_SHAPE(1, (int64_t)dims[1], (int64_t)dims[2]), dims[0], classes);
    if (!dataset)
        return NULL;
    dataset->labels = eg__calloc(dims[0], sizeof *dataset->labels);
    if (!dataset->labels || eg__dataset_make_table(dataset, options->normalize_off ? NULL : train, n_train) != EG_OK) {
        eg_dataset_release(dataset);
        return NULL;
    }
    for (size_t i = 0; i < dims[0]; i++)
        dataset->labels[i] = part->labels.data[i];
    dataset->bytes = part->images.data;
    part->images.data = NULL;
    return dataset;
}

/* `classes`: 0 = as many as the labels name. The training part is always read: statistics and classes come from it. */
static eg_dataset *open_folder(const eg_dataset_options *options, const char *directory, int64_t classes)
{
    idx_part train = {0}, test = {0}, *wanted = options->split == EG_TRAIN ? &train : &test;
    eg_dataset *dataset = NULL;
    eg_status status = read_part(directory, true, &train);
    if (status == EG_OK) {
        classes = classes ? classes : count_classes(&train.labels);
        status = check_labels(&train, classes);
    }
    if (status == EG_OK && wanted == &test) {
        status = read_part(directory, false, &test);
        if (status == EG_OK)
            status = check_labels(&test, classes);
        const size_t *a = train.images.dims, *b = test.images.dims;
        if (status == EG_OK && (a[1] != b[1] || a[2] != b[2]))
            status = eg_fail(EG_EFORMAT, "'%s': test images of %zux%zu, expected %zux%zu as in training", directory,
                             b[1], b[2], a[1], a[2]);
    }
    if (status == EG_OK)
        dataset = make_dataset(options, wanted, train.images.data, train.images.dims[0], classes);
    part_free(&train);
    part_free(&test);
    return dataset;
}

eg_dataset *eg__open_idx(const eg_dataset_options *options, const char *path)
{
    return open_folder(options, path, 0);
}

eg_dataset *eg__open_fashion_mnist(const eg_dataset_options *options, const char *path)
{
    (void)path;
    const char *directory = getenv("EG_FASHION_MNIST");
    if (!directory || !*directory)
        directory = "/usr/share/datasets/fashion-mnist";
    if (!eg__file_exists(directory)) {
        eg_fail(EG_ENOENT,
                "fashion-mnist: there is no '%s'; install the package dataset-fashion-mnist or let EG_FASHION_MNIST "
                "name the folder",
                directory);
        return NULL;
    }
    return open_folder(options, directory, 10);
}

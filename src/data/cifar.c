/*
 * data/cifar.c - the binary version of CIFAR-10: records of a label and 32 x 32 pixels in three planes.
 */
#include "data/internal.h"

#include <dirent.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHANNELS = 3,
    SIDE = 32,
    PIXELS = SIDE * SIDE,
    IMAGE = CHANNELS * PIXELS,
    RECORD = 1 + IMAGE,
    CLASSES = 10,
    CHUNK = 256
};
/* Ten times the real set: what a small file of crafted gzip data may make us take. */
#define MOST_RECORDS ((size_t)600000)

typedef struct cifar {
    uint8_t *images;
    int64_t *labels;
    size_t n, images_capacity, labels_capacity;
} cifar;

static void cifar_free(cifar *set)
{
    free(set->images);
    free(set->labels);
}

static eg_status take_record(cifar *set, const uint8_t *record, const char *path, size_t position)
{
    EG_CHECK(record[0] < CLASSES, EG_EFORMAT, "'%s': label %d of record %zu, expected 0 .. %d", path, record[0],
             position, CLASSES - 1);
    EG_CHECK(set->n < MOST_RECORDS, EG_EFORMAT, "'%s': more than %zu records", path, MOST_RECORDS);
    EG_TRY(eg__grow(&set->images, &set->images_capacity, set->n + 1, IMAGE));
    EG_TRY(eg__grow(&set->labels, &set->labels_capacity, set->n + 1, sizeof *set->labels));
    memcpy(set->images + set->n * IMAGE, record + 1, IMAGE);
    set->labels[set->n++] = record[0];
    return EG_OK;
}

static eg_status read_records(eg__input *input, cifar *set, uint8_t *chunk)
{
    size_t got, position = 0;
    do {
        EG_TRY(eg__input_read(input, chunk, (size_t)CHUNK * RECORD, &got));
        EG_CHECK(got % RECORD == 0, EG_EFORMAT, "'%s': %zu bytes after %zu records, expected records of %d",
                 input->path, got % RECORD, position + got / RECORD, RECORD);
        for (size_t i = 0; i < got / RECORD; i++)
            EG_TRY(take_record(set, chunk + i * RECORD, input->path, position++));
    } while (got == (size_t)CHUNK * RECORD);
    EG_CHECK(position > 0, EG_EFORMAT, "'%s': is empty, expected records of %d bytes", input->path, RECORD);
    return EG_OK;
}

static eg_status read_file(const char *directory, const char *name, cifar *set)
{
    char *path = eg__format("%s/%s", directory, name);
    uint8_t *chunk = eg__calloc(CHUNK, RECORD);
    eg__input input = {0};
    eg_status status = path && chunk ? eg__input_open(&input, path) : EG_ENOMEM;
    if (status == EG_OK)
        status = read_records(&input, set, chunk);
    eg__input_close(&input);
    eg_free(path);
    free(chunk);
    return status;
}

/* ---- which files ---- */

typedef struct names {
    char **items;
    size_t n, capacity;
} names;

static void names_free(names *list)
{
    for (size_t i = 0; i < list->n; i++)
        eg_free(list->items[i]);
    free(list->items);
}

static eg_status names_add(names *list, const char *name)
{
    EG_TRY(eg__grow(&list->items, &list->capacity, list->n + 1, sizeof *list->items));
    char *copy = eg__strdup(name);
    if (!copy)
        return EG_ENOMEM;
    list->items[list->n++] = copy;
    return EG_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names in the folder that match "GLOB.bin" or "GLOB.bin.gz", sorted; of a pair only the plain one. */
static eg_status find_names(const char *directory, const char *glob, names *list)
{
    DIR *folder = opendir(directory);
    if (!folder)
        return eg__fail_errno("open folder", directory);
    char plain[64], packed[64];
    snprintf(plain, sizeof plain, "%s.bin", glob);
    snprintf(packed, sizeof packed, "%s.bin.gz", glob);
    eg_status status = EG_OK;
    for (struct dirent *entry; status == EG_OK && (entry = readdir(folder));)
        if (fnmatch(plain, entry->d_name, 0) == 0 || fnmatch(packed, entry->d_name, 0) == 0)
            status = names_add(list, entry->d_name);
    closedir(folder);
    if (list->n > 0)
        qsort(list->items, list->n, sizeof *list->items, compare_names);
    size_t kept = 0;
    for (size_t i = 0; i < list->n; i++) {
        size_t length = kept > 0 ? strlen(list->items[kept - 1]) : 0;
        if (length > 0 && strncmp(list->items[i], list->items[kept - 1], length) == 0 &&
            strcmp(list->items[i] + length, ".gz") == 0)
            eg_free(list->items[i]);
        else
            list->items[kept++] = list->items[i];
    }
    list->n = kept;
    return status;
}

static eg_status read_split(const char *directory, bool train, cifar *set)
{
    names list = {0};
    eg_status status = find_names(directory, train ? "data_batch_*" : "test_batch", &list);
    if (status == EG_OK && list.n == 0)
        status = find_names(directory, train ? "*train*" : "*test*", &list);
    if (status == EG_OK && list.n == 0)
        status = eg_fail(EG_ENOENT, "folder '%s' has neither %s (.bin or .bin.gz)", directory,
                         train ? "data_batch_* nor *train*" : "test_batch nor *test*");
    for (size_t i = 0; i < list.n && status == EG_OK; i++)
        status = read_file(directory, list.items[i], set);
    names_free(&list);
    return status;
}

eg_dataset *eg__open_cifar10(const eg_dataset_options *options, const char *path)
{
    cifar train = {0}, test = {0}, *wanted = options->split == EG_TRAIN ? &train : &test;
    eg_dataset *dataset = NULL;
    bool needs_train = options->split == EG_TRAIN || !options->normalize_off;
    eg_status status = needs_train ? read_split(path, true, &train) : EG_OK;
    if (status == EG_OK && options->split == EG_TEST)
        status = read_split(path, false, &test);
    if (status == EG_OK)
        dataset = eg__dataset_new(options->ctx, EG_SHAPE(CHANNELS, SIDE, SIDE), wanted->n, CLASSES);
    if (dataset && eg__dataset_make_table(dataset, options->normalize_off ? NULL : train.images, train.n) != EG_OK) {
        eg_dataset_release(dataset);
        dataset = NULL;
    }
    if (dataset) {
        dataset->bytes = wanted->images;
        dataset->labels = wanted->labels;
        *wanted = (cifar){0};
    }
    cifar_free(&train);
    cifar_free(&test);
    return dataset;
}

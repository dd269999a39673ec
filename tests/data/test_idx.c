/*
 * tests/data/test_idx.c - folders in MNIST's format: whole, compressed, and broken in every way we could think of.
 */
#include "data/data_support.h"

typedef struct fixture {
    eg_context *ctx;
    char *directory;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->ctx = eg_context_new(.seed = 1, .threads = 1);
    f->directory = temporary_make();
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    temporary_remove(f->directory);
    eg_context_free(f->ctx);
    free(f);
    eg_error_clear();
    return 0;
}

static void check_folder(fixture *f)
{
    eg_dataset *train = open_spec(f->ctx, "idx", f->directory, EG_TRAIN, false);
    eg_dataset *test = open_spec(f->ctx, "idx", f->directory, EG_TEST, true);
    assert_made(train);
    assert_made(test);
    assert_int_equal(eg_dataset_size(train), IDX_TRAIN);
    assert_int_equal(eg_dataset_size(test), IDX_TEST);
    assert_int_equal(eg_dataset_classes(train), 10);
    assert_true(eg_shape_equal(eg_dataset_shape(train), EG_SHAPE(1, IDX_HEIGHT, IDX_WIDTH)));
    assert_int_equal(eg_dataset_label(train, 13), 3);
    float sample[IDX_HEIGHT * IDX_WIDTH];
    int64_t label = -1;
    assert_ok(eg_dataset_read(test, 2, sample, &label));
    assert_int_equal(label, 2);
    for (size_t p = 0; p < IDX_HEIGHT * IDX_WIDTH; p++)
        assert_close((double)sample[p], (double)((14 + 3 * p) % 256) / 255, 1e-7);
    double sum = 0, squares = 0, n = IDX_TRAIN * IDX_HEIGHT * IDX_WIDTH;
    for (size_t i = 0; i < IDX_TRAIN; i++) {
        assert_ok(eg_dataset_read(train, i, sample, NULL));
        for (size_t p = 0; p < IDX_HEIGHT * IDX_WIDTH; p++) {
            sum += (double)sample[p];
            squares += (double)(sample[p] * sample[p]);
        }
    }
    assert_close(sum / n, 0, 1e-5);
    assert_close(squares / n, 1, 1e-5);
    eg_dataset_release(train);
    eg_dataset_release(test);
}

static void test_plain(void **state)
{
    fixture *f = *state;
    make_idx_folder(f->directory, "");
    check_folder(f);
}

static void test_compressed(void **state)
{
    fixture *f = *state;
    make_idx_folder(f->directory, ".gz");
    check_folder(f);
}

/* The test split is normalized by the training split's numbers. */
static void test_statistics_of_training(void **state)
{
    fixture *f = *state;
    make_idx_folder(f->directory, "");
    eg_dataset *train = open_spec(f->ctx, "idx", f->directory, EG_TRAIN, false);
    eg_dataset *test = open_spec(f->ctx, "idx", f->directory, EG_TEST, false);
    float a[IDX_HEIGHT * IDX_WIDTH], b[IDX_HEIGHT * IDX_WIDTH];
    assert_ok(eg_dataset_read(train, 3, a, NULL)); /* the same bytes in both */
    assert_ok(eg_dataset_read(test, 3, b, NULL));
    assert_memory_equal(a, b, sizeof a);
    eg_dataset_release(train);
    eg_dataset_release(test);
}

/* Puts `size` bytes in the place of a training file and expects opening to fail. */
static void expect_broken(fixture *f, const char *name, const void *data, size_t size, const char *part)
{
    make_idx_folder(f->directory, "");
    write_file(f->directory, name, data, size);
    assert_refused(open_spec(f->ctx, "idx", f->directory, EG_TRAIN, false), EG_EFORMAT, part);
}

static const char images_name[] = "train-images-idx3-ubyte", labels_name[] = "train-labels-idx1-ubyte";

static void test_truncated_anywhere(void **state)
{
    fixture *f = *state;
    uint8_t data[IDX_BYTES];
    size_t size = make_idx(data, IDX_TRAIN, IDX_HEIGHT, IDX_WIDTH, 10);
    for (size_t n = 0; n < size; n += n < 20 ? 1 : 97)
        expect_broken(f, images_name, data, n, "ends ");
    expect_broken(f, images_name, data, size - 1, "600 bytes");
    data[size] = 0;
    expect_broken(f, images_name, data, size + 1, "goes on after");
}

static void test_wrong_headers(void **state)
{
    fixture *f = *state;
    uint8_t data[IDX_BYTES];
    size_t size = make_idx(data, IDX_TRAIN, IDX_HEIGHT, IDX_WIDTH, 10);
    data[2] = 0x0d; /* floats */
    expect_broken(f, images_name, data, size, "magic number 0x00000d03, expected 0x00000803");
    make_idx(data, IDX_TRAIN, IDX_HEIGHT, IDX_WIDTH, 10);
    put_big_endian(data + 8, 0);
    expect_broken(f, images_name, data, size, "dimension 1 is 0");
    for (int i = 0; i < 3; i++) /* 2^96 bytes: must not be asked for */
        put_big_endian(data + 4 + 4 * i, UINT32_MAX);
    expect_broken(f, images_name, data, size, "more data than the file can hold");
    size = make_idx(data, IDX_TRAIN - 1, IDX_HEIGHT, IDX_WIDTH, 10);
    expect_broken(f, images_name, data, size, "30 labels for 29 images");
    size = make_idx(data, 0, 0, 0, 10);
    expect_broken(f, labels_name, data, size, "dimension 0 is 0");
    expect_broken(f, labels_name, "", 0, "ends after 0 bytes");
}

static void test_compressed_broken(void **state)
{
    fixture *f = *state;
    make_idx_folder(f->directory, ".gz");
    size_t size;
    char *packed = read_file(f->directory, "train-images-idx3-ubyte.gz", &size), path[TEMPORARY_PATH_SIZE];
    temporary_path(f->directory, "train-images-idx3-ubyte.gz", path);
    for (size_t n = 0; n < size; n += 5) {
        FILE *file = fopen(path, "wb");
        assert_int_equal(fwrite(packed, 1, n, file), n);
        fclose(file);
        if (open_spec(f->ctx, "idx", f->directory, EG_TRAIN, false))
            fail_msg("%zu of %zu compressed bytes were accepted", n, size);
        assert_recorded(EG_EFORMAT, "train-images-idx3-ubyte.gz'");
    }
    packed[size - 6] ^= 1; /* the checksum */
    FILE *file = fopen(path, "wb");
    assert_int_equal(fwrite(packed, 1, size, file), size);
    fclose(file);
    assert_refused(open_spec(f->ctx, "idx", f->directory, EG_TRAIN, false), EG_EFORMAT, "compressed data is broken");
    free(packed);
}

/* A compressed file may hold far more than it should: it is read no further than one byte past what its header says. */
static void test_bomb(void **state)
{
    fixture *f = *state;
    make_idx_folder(f->directory, "");
    char path[TEMPORARY_PATH_SIZE];
    remove(temporary_path(f->directory, images_name, path));
    size_t size = 64 << 20;
    uint8_t *data = calloc(1, size);
    make_idx(data, IDX_TRAIN, IDX_HEIGHT, IDX_WIDTH, 10);
    write_file(f->directory, "train-images-idx3-ubyte.gz", data, size);
    free(data);
    assert_refused(open_spec(f->ctx, "idx", f->directory, EG_TRAIN, false), EG_EFORMAT, "goes on after the 600 bytes");
}

static void test_labels(void **state)
{
    fixture *f = *state;
    uint8_t data[IDX_BYTES];
    size_t size = make_idx(data, IDX_TRAIN, 0, 0, 10);
    data[8 + 17] = 200;
    expect_broken(f, labels_name, data, size, "train-labels-idx1-ubyte': label 200 at position 17, expected 0 .. 10");
    make_idx_folder(f->directory, "");
    size = make_idx(data, IDX_TEST, 0, 0, 10);
    data[8 + 5] = 10;
    write_file(f->directory, "t10k-labels-idx1-ubyte", data, size);
    assert_refused(open_spec(f->ctx, "idx", f->directory, EG_TEST, false), EG_EFORMAT,
                   "t10k-labels-idx1-ubyte': label 10 at position 5, expected 0 .. 9");
    /* Fashion-MNIST has ten classes whatever its labels say. */
    size = make_idx(data, IDX_TRAIN, 0, 0, 11);
    write_file(f->directory, labels_name, data, size);
    setenv("EG_FASHION_MNIST", f->directory, 1);
    assert_refused(eg_dataset_open(f->ctx, "fashion-mnist"), EG_EFORMAT, "label 10 at position 10, expected 0 .. 9");
    unsetenv("EG_FASHION_MNIST");
}

static void test_sizes_differ(void **state)
{
    fixture *f = *state;
    uint8_t data[IDX_BYTES];
    make_idx_folder(f->directory, "");
    write_file(f->directory, "t10k-images-idx3-ubyte", data, make_idx(data, IDX_TEST, IDX_HEIGHT + 1, IDX_WIDTH, 10));
    assert_refused(open_spec(f->ctx, "idx", f->directory, EG_TEST, false), EG_EFORMAT,
                   "test images of 5x5, expected 4x5");
}

static void test_missing(void **state)
{
    fixture *f = *state;
    char path[TEMPORARY_PATH_SIZE];
    assert_refused(open_spec(f->ctx, "idx", f->directory, EG_TRAIN, false), EG_ENOENT, "train-images-idx3-ubyte.gz'");
    setenv("EG_FASHION_MNIST", temporary_path(f->directory, "nowhere", path), 1);
    assert_refused(eg_dataset_open(f->ctx, "fashion-mnist"), EG_ENOENT, "install the package dataset-fashion-mnist");
    unsetenv("EG_FASHION_MNIST");
}

static void test_specs(void **state)
{
    fixture *f = *state;
    assert_refused(eg_dataset_open(f->ctx, "imagenet"), EG_EINVAL, "unknown data set 'imagenet'");
    assert_refused(eg_dataset_open(f->ctx, "idx"), EG_EINVAL, "expected 'idx:DIR'");
    assert_refused(eg_dataset_open(f->ctx, "csv:"), EG_EINVAL, "expected 'csv:FILE'");
    assert_refused(eg_dataset_open(f->ctx, "fashion-mnist:x"), EG_EINVAL, "expected 'fashion-mnist'");
    assert_refused(eg_dataset_open(f->ctx, NULL), EG_EINVAL, "spec");
    assert_refused(eg_dataset_open(NULL, "idx:."), EG_EINVAL, "context");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_plain, setup, teardown),
        cmocka_unit_test_setup_teardown(test_compressed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_statistics_of_training, setup, teardown),
        cmocka_unit_test_setup_teardown(test_truncated_anywhere, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_headers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_compressed_broken, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bomb, setup, teardown),
        cmocka_unit_test_setup_teardown(test_labels, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sizes_differ, setup, teardown),
        cmocka_unit_test_setup_teardown(test_missing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_specs, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

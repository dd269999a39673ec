/*
 * tests/data/test_cifar_csv.c - CIFAR-10's binary format, and tables in text.
 */
#include "data/data_support.h"

#include <locale.h>

enum { RECORD = 3073, PIXELS = 1024 };

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

/* ---- CIFAR-10 ---- */

/* Records with labels first, first + 1, ..; planes filled with label + 10 * channel. */
static void write_records(fixture *f, const char *name, uint8_t first, size_t n, size_t cut)
{
    uint8_t *data = calloc(n + 1, RECORD);
    for (size_t i = 0; i < n; i++) {
        uint8_t *record = data + i * RECORD;
        record[0] = (uint8_t)(first + i);
        for (size_t p = 0; p < 3 * PIXELS; p++)
            record[1 + p] = (uint8_t)(record[0] + 10 * (p / PIXELS));
    }
    write_file(f->directory, name, data, n * RECORD - cut);
    free(data);
}

static void test_cifar(void **state)
{
    fixture *f = *state;
    write_records(f, "data_batch_1.bin", 0, 4, 0);
    write_records(f, "data_batch_2.bin.gz", 4, 6, 0);
    write_records(f, "data_batch_1.bin.gz", 0, 9, 0); /* the plain one of a pair counts */
    write_records(f, "test_batch.bin", 7, 3, 0);
    eg_dataset *train = open_spec(f->ctx, "cifar10", f->directory, EG_TRAIN, true);
    eg_dataset *test = open_spec(f->ctx, "cifar10", f->directory, EG_TEST, false);
    assert_made(train);
    assert_made(test);
    assert_int_equal(eg_dataset_size(train), 10);
    assert_int_equal(eg_dataset_size(test), 3);
    assert_int_equal(eg_dataset_classes(test), 10);
    assert_true(eg_shape_equal(eg_dataset_shape(train), EG_SHAPE(3, 32, 32)));
    float sample[3 * PIXELS];
    int64_t label;
    for (size_t i = 0; i < 10; i++) {
        assert_ok(eg_dataset_read(train, i, sample, &label));
        assert_int_equal(label, i);
        for (size_t c = 0; c < 3; c++)
            assert_close((double)sample[c * PIXELS + 500], (double)(i + 10 * c) / 255, 1e-7);
    }
    assert_ok(
        eg_dataset_read(test, 0, sample, &label)); /* channel values 0 .. 9 in training: mean 4.5, variance 8.25 */
    for (size_t c = 0; c < 3; c++)
        assert_close((double)sample[c * PIXELS], (7 - 4.5) / sqrt(8.25), 1e-6);
    eg_dataset_release(train);
    eg_dataset_release(test);
}

static void test_cifar_other_names(void **state)
{
    fixture *f = *state;
    write_records(f, "train4.bin.gz", 0, 4, 0);
    write_records(f, "my-test.bin", 1, 2, 0);
    eg_dataset *test = open_spec(f->ctx, "cifar10", f->directory, EG_TEST, false);
    assert_made(test);
    assert_int_equal(eg_dataset_size(test), 2);
    eg_dataset_release(test);
}

static void test_cifar_broken(void **state)
{
    fixture *f = *state;
    assert_refused(open_spec(f->ctx, "cifar10", f->directory, EG_TRAIN, false), EG_ENOENT, "neither data_batch_*");
    static const size_t cuts[] = {1, 100, RECORD - 1, RECORD + 1, 2 * RECORD - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++)
        for (int packed = 0; packed < 2; packed++) {
            char path[TEMPORARY_PATH_SIZE];
            remove(temporary_path(f->directory, "data_batch_1.bin", path));
            write_records(f, packed ? "data_batch_1.bin.gz" : "data_batch_1.bin", 0, 2, cuts[i]);
            assert_refused(open_spec(f->ctx, "cifar10", f->directory, EG_TRAIN, false), EG_EFORMAT,
                           "expected records of 3073");
        }
    write_records(f, "data_batch_1.bin", 0, 0, 0);
    assert_refused(open_spec(f->ctx, "cifar10", f->directory, EG_TRAIN, false), EG_EFORMAT, "is empty");
    write_records(f, "data_batch_1.bin", 7, 4, 0);
    assert_refused(open_spec(f->ctx, "cifar10", f->directory, EG_TRAIN, false), EG_EFORMAT,
                   "label 10 of record 3, expected 0 .. 9");
    char path[TEMPORARY_PATH_SIZE];
    temporary_path(f->directory, "nowhere", path);
    assert_refused(open_spec(f->ctx, "cifar10", path, EG_TRAIN, false), EG_ENOENT, "nowhere");
}

/* ---- CSV ---- */

static eg_dataset *open_text(fixture *f, const char *text, eg_dataset_split split, bool normalize_off)
{
    char path[TEMPORARY_PATH_SIZE];
    write_file(f->directory, "t.csv", text, strlen(text));
    return open_spec(f->ctx, "csv", temporary_path(f->directory, "t.csv", path), split, normalize_off);
}

static void test_csv(void **state)
{
    fixture *f = *state;
    const char text[] = "\xef\xbb\xbfwidth,length,kind\r\n1,2.5,0\r\n\r\n 3 ,-4e0,1\r\n5,6,2\n7,8,0\n9,10,1\n11,12,2";
    eg_dataset *train = open_text(f, text, EG_TRAIN, true);
    assert_made(train);
    assert_int_equal(eg_dataset_size(train), 5);
    assert_int_equal(eg_dataset_classes(train), 3);
    assert_true(eg_shape_equal(eg_dataset_shape(train), EG_SHAPE(2)));
    eg_dataset *test = open_text(f, text, EG_TEST, true);
    assert_made(test);
    assert_int_equal(eg_dataset_size(test), 1); /* the fifth row */
    float row[2];
    int64_t label;
    assert_ok(eg_dataset_read(test, 0, row, &label));
    assert_true(row[0] == 9 && row[1] == 10 && label == 1);
    assert_ok(eg_dataset_read(train, 1, row, &label));
    assert_true(row[0] == 3 && row[1] == -4 && label == 1);
    eg_dataset_release(train);
    eg_dataset_release(test);
}

static void test_csv_quoted(void **state)
{
    fixture *f = *state;
    const char *texts[] = {"\"1\",\" 2.5 \",\"0\"\n3,\"4\" ,1\n5,6,0\n7,8,0\n9,10,1\n",
                           "\"a, b\",\"c\"\n1,2.5,0\n3,4,1\n5,6,0\n7,8,0\n9,10,1\n"};
    for (size_t i = 0; i < 2; i++) {
        eg_dataset *train = open_text(f, texts[i], EG_TRAIN, true);
        assert_made(train);
        assert_int_equal(eg_dataset_size(train), 4);
        float row[2];
        int64_t label;
        assert_ok(eg_dataset_read(train, 0, row, &label));
        assert_true(row[0] == 1 && row[1] == 2.5f && label == 0);
        assert_ok(eg_dataset_read(train, 1, row, &label));
        assert_true(row[0] == 3 && row[1] == 4 && label == 1);
        eg_dataset_release(train);
    }
}

static void test_csv_normalized(void **state)
{
    fixture *f = *state;
    const char text[] = "1,5,0\n3,5,1\n1,5,0\n3,5,1\n9,9,0\n";
    eg_dataset *train = open_text(f, text, EG_TRAIN, false), *test = open_text(f, text, EG_TEST, false);
    float row[2];
    assert_ok(eg_dataset_read(train, 1, row, NULL));
    assert_close((double)row[0], 1, 1e-6);
    assert_close((double)row[1], 0, 1e-6); /* a constant column */
    assert_ok(eg_dataset_read(test, 0, row, NULL));
    assert_close((double)row[0], 7, 1e-6);
    assert_close((double)row[1], 4, 1e-6);
    eg_dataset_release(train);
    eg_dataset_release(test);
}

static void test_csv_broken(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "has no rows"},
        {"a,b,c\n", "has no rows"},
        {"1,2,0\n", "has 1 rows, expected at least 5"},
        {"1,2,0\n1,x,0\n", "line 2, field 2: 'x' is not a decimal number"},
        {"1,2,0\n1,,0\n", "line 2, field 2: '' is not a decimal number"},
        {"1,2,0\n1,2,\n", "line 2, field 3: '' is not a decimal number"},
        {"1,2,0\n1,2\n", "line 2 has 2 fields, expected 3"},
        {"1,2,0\n1,2,3,0\n", "line 2 has more than 3 fields"},
        {"1\n2\n", "line 1 has 1 fields, expected 2"},
        {"1,a,0\n", "line 1, field 2: 'a' is not a decimal number"},
        {"1,2,0\n1,2,-1\n", "line 2: label -1, expected a class"},
        {"1,2,0\n1,2,1.5\n", "line 2: label 1.5, expected a class"},
        {"1,2,0\n1,2,1e9\n", "line 2: label 1e+09, expected a class"},
        {"1,2,0\n1,2,nan\n", "line 2, field 3: 'nan' is not a decimal number"},
        {"1,2,0\n1,inf,1\n", "line 2, field 2: 'inf' is not a decimal number"},
        {"1,2,0\n1,1e99,1\n", "line 2, field 2: 1e+99 is outside of float32"},
        {"1,2,0\n1,2,0 7\n", "line 2, field 3"},
        {"1,2,0\n0x10,2,0\n", "line 2, field 1: '0x10' is not a decimal number"},
        {"0x10,0x2,0x0\n1,2,0\n", "line 1, field 1: '0x10' is not a decimal number"}, /* no header */
        {"1,2,0\n1,\"2,0\n", "line 2, field 2: '\"2' is not a decimal number"},
        {"1,2,0\n1,2\",0\n", "line 2, field 2: '2\"' is not a decimal number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_refused(open_text(f, cases[i].text, EG_TRAIN, false), EG_EFORMAT, cases[i].message);
    assert_refused(eg_dataset_open(f->ctx, "csv:/nowhere/t.csv"), EG_ENOENT, "/nowhere/t.csv");
}

/* Numbers have a decimal point, whatever the program's locale says. */
static void test_csv_locale(void **state)
{
    fixture *f = *state;
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) {
        print_message("the locale de_DE.UTF-8 is not installed\n");
        skip();
    }
    eg_dataset *train = open_text(f, "1.5,0\n1,0\n1,0\n1,0\n1,0\n", EG_TRAIN, true);
    setlocale(LC_NUMERIC, "C");
    assert_made(train);
    float row[1];
    assert_ok(eg_dataset_read(train, 0, row, NULL));
    assert_true(row[0] == 1.5F);
    eg_dataset_release(train);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cifar, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cifar_other_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cifar_broken, setup, teardown),
        cmocka_unit_test_setup_teardown(test_csv, setup, teardown),
        cmocka_unit_test_setup_teardown(test_csv_quoted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_csv_normalized, setup, teardown),
        cmocka_unit_test_setup_teardown(test_csv_broken, setup, teardown),
        cmocka_unit_test_setup_teardown(test_csv_locale, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Files that are either old or new, whole; JSON texts.
 */
#include "support.h"

#include "base/internal.h"

#include <locale.h>
#include <sys/stat.h>

static int setup(void **state)
{
    eg_error_clear();
    *state = temporary_make();
    return 0;
}

static int teardown(void **state)
{
    temporary_remove(*state);
    return 0;
}

static void assert_content(const char *path, const char *expected)
{
    char *data;
    size_t size;
    assert_ok(eg__file_read(path, 0, &data, &size));
    assert_int_equal(size, strlen(expected));
    assert_string_equal(data, expected);
    eg_free(data);
}

static void test_round_trip(void **state)
{
    char path[TEMPORARY_PATH_SIZE];
    temporary_path(*state, "file", path);
    assert_false(eg__file_exists(path));
    assert_ok(eg__file_write(path, "old", 3));
    assert_content(path, "old");
    assert_ok(eg__file_write(path, "", 0));
    assert_content(path, "");
    assert_true(eg__file_exists(path));
    assert_int_equal(directory_count(*state), 1);
    enum { SIZE = 1 << 20 };
    char *large = malloc(SIZE), *data;
    size_t size;
    for (int i = 0; i < SIZE; i++)
        large[i] = (char)(i * 7);
    assert_ok(eg__file_write(path, large, SIZE));
    assert_ok(eg__file_read(path, SIZE, &data, &size));
    assert_int_equal(size, SIZE);
    assert_memory_equal(data, large, SIZE);
    assert_int_equal(data[size], 0);
    assert_fails(eg__file_read(path, SIZE - 1, &data, &size), EG_EFORMAT, "is larger than");
    eg_free(data);
    free(large);
}

static void test_an_abandoned_write_changes_nothing(void **state)
{
    char path[TEMPORARY_PATH_SIZE];
    assert_ok(eg__file_write(temporary_path(*state, "file", path), "old", 3));
    eg__writer writer;
    assert_ok(eg__writer_open(&writer, path));
    assert_ok(eg__writer_put(&writer, "new", 3));
    assert_content(path, "old");
    eg__writer_abort(&writer);
    assert_content(path, "old");
    assert_int_equal(directory_count(*state), 1);
    assert_ok(eg__writer_open(&writer, path));
    eg__writer other; /* two at once do not disturb each other; the last one wins */
    assert_ok(eg__writer_open(&other, path));
    assert_ok(eg__writer_put(&writer, "one", 3));
    assert_ok(eg__writer_put(&other, "two", 3));
    assert_ok(eg__writer_close(&other));
    assert_content(path, "two");
    assert_ok(eg__writer_close(&writer));
    assert_content(path, "one");
    assert_int_equal(directory_count(*state), 1);
}

static void test_failures_name_the_file(void **state)
{
    char path[TEMPORARY_PATH_SIZE], *data;
    size_t size;
    temporary_path(*state, "no/such", path);
    assert_fails(eg__file_read(path, 0, &data, &size), EG_ENOENT, path);
    assert_fails(eg__file_write(path, "x", 1), EG_ENOENT, path);
    const char *directory = *state;
    assert_fails(eg__file_read(directory, 0, &data, &size), EG_EIO, directory);
    assert_fails(eg__file_write(directory, "x", 1), EG_EIO, directory); /* a directory is not replaced */
    int descriptor = 0;
    uint64_t length = 0;
    assert_fails(eg__open_regular(path, &descriptor, &length), EG_ENOENT, "No such file");
    assert_fails(eg__open_regular(directory, &descriptor, &length), EG_EIO, "is not a regular file");
    assert_fails(eg__open_regular("/dev/null", &descriptor, &length), EG_EIO, "'/dev/null' is not a regular file");
    assert_int_equal(descriptor, -1);
    assert_int_equal(directory_count(*state), 0);
}

static void test_devices_are_written_not_replaced(void **state)
{
    (void)state;
    struct stat info;
    assert_ok(eg__file_write("/dev/null", "x", 1));
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    if (eg__file_exists("/dev/full"))
        assert_fails(eg__file_write("/dev/full", "x", 1), EG_EIO, "cannot write '/dev/full'");
}

static void test_make_directory(void **state)
{
    char path[TEMPORARY_PATH_SIZE], file[TEMPORARY_PATH_SIZE];
    assert_ok(eg__make_directory(temporary_path(*state, "a/b//c/", path)));
    assert_ok(eg__make_directory(path));
    assert_true(eg__file_exists(temporary_path(*state, "a/b/c", path)));
    assert_ok(eg__file_write(temporary_path(*state, "file", file), "x", 1));
    assert_int_not_equal(eg__make_directory(temporary_path(*state, "file/d", path)), EG_OK);
    assert_fails(eg__make_directory(file), EG_EIO, "cannot make directory");
    assert_fails(eg__make_directory(""), EG_EINVAL, "empty");
}

/* Real numbers in the fewest digits that read back, in texts that are left alone, in any locale. */
static void expect_numbers(void)
{
    const double numbers[] = {0.1,      0.025, 1.0 / 3, 2, -0.0, 1e22, 5e-4, 1e-300, 5e-324, 123456789012345678.0,
                              0.1 + 0.2};
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_array_append_new(list, json_real(numbers[i]));
    json_t *json = json_pack("{s:o, s:i, s:s}", "n", list, "whole", 12, "text", "a\\ \"0.10000000000000001\" 1,5");
    char *text = eg__json_text(json);
    assert_string_equal(
        text, "{\n  \"n\": [\n    0.1,\n    0.025,\n    0.3333333333333333,\n    2.0,\n    -0.0,\n    1e+22,\n"
              "    0.0005,\n    1e-300,\n    4.94065645841247e-324,\n    1.2345678901234568e+17,\n"
              "    0.30000000000000004\n  ],\n"
              "  \"text\": \"a\\\\ \\\"0.10000000000000001\\\" 1,5\",\n  \"whole\": 12\n}\n");
    json_t *again = json_loads(text, 0, NULL);
    assert_true(json_equal(json, again));
    eg_free(text);
    json_decref(again);
    json_decref(json);
}

static void test_json_numbers(void **state)
{
    (void)state;
    expect_numbers();
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8")) {
        expect_numbers();
        setlocale(LC_NUMERIC, "C");
    }
}

static void test_json(void **state)
{
    char path[TEMPORARY_PATH_SIZE];
    temporary_path(*state, "a.json", path);
    json_t *json = json_pack("{s:i, s:[f, b], s:{}}", "zebra", 3, "alpha", 0.1, 1, "empty");
    assert_ok(eg__json_write(json, path));
    assert_content(path, "{\n  \"alpha\": [\n    0.1,\n    true\n  ],\n"
                         "  \"empty\": {},\n  \"zebra\": 3\n}\n");
    json_t *again = eg__json_read(path, 0);
    assert_true(json_equal(json, again));
    json_decref(json);
    json_decref(again);
    const char *bad = "{\n \"a\": 1,\n \"a\": 2}";
    assert_refused(eg__json_parse(bad, strlen(bad), "file.json"), EG_EFORMAT, "'file.json' line 3 column");
    assert_refused(eg__json_parse("[1,", 3, "f"), EG_EFORMAT, "'f' line 1 column 3");
    assert_refused(eg__json_parse("[] x", 4, "f"), EG_EFORMAT, "end of file");
    assert_refused(eg__json_parse("", 0, "f"), EG_EFORMAT, "'f'");
    assert_refused(eg__json_read(*state, 0), EG_EIO, "cannot read");
    json = eg__json_parse("3", 1, "f");
    assert_int_equal(json_integer_value(json), 3);
    char *text = eg__json_text(json);
    assert_string_equal(text, "3\n");
    eg_free(text);
    json_decref(json);
    assert_refused(eg__json_text(NULL), EG_EINVAL, "cannot write as JSON");
}

static void test_clock(void **state)
{
    (void)state;
    double before = eg__now();
    assert_true(eg__now() >= before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_abandoned_write_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failures_name_the_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_devices_are_written_not_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(test_make_directory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_json, setup, teardown),
        cmocka_unit_test(test_json_numbers),
        cmocka_unit_test(test_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

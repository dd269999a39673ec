/*
 * tests/io/test_safetensors.c - files of tensors: what is written is read, and nothing broken is.
 */
#include "support.h"

#include "engraft/io.h"
#include "engraft/layers.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

typedef struct fixture {
    eg_context *ctx;
    char *directory;
    char path[TEMPORARY_PATH_SIZE];
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->ctx = eg_context_new(.seed = 1, .threads = 1);
    f->directory = temporary_make();
    temporary_path(f->directory, "t.safetensors", f->path);
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

static void write_bytes(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    fclose(file);
}

static char *read_bytes(const char *path, size_t *size)
{
    char *data = calloc(1, 1 << 16);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    *size = fread(data, 1, 1 << 16, file);
    fclose(file);
    return data;
}

/* A file of this header and these bytes of data. */
static void write_raw(const char *path, const char *header, const void *data, size_t size)
{
    uint8_t *file = calloc(1, 8 + strlen(header) + size);
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)((uint64_t)strlen(header) >> (8 * i));
    memcpy(file + 8, header, strlen(header));
    if (size > 0)
        memcpy(file + 8 + strlen(header), data, size);
    write_bytes(path, file, 8 + strlen(header) + size);
    free(file);
}

static eg_state *sample_state(eg_context *ctx)
{
    eg_state *state = eg_state_new();
    float data[24];
    for (size_t i = 0; i < 24; i++)
        data[i] = (float)i / 7;
    assert_ok(eg_state_put(state, "conv.weight",
                           eg_from_data(ctx, EG_SHAPE(2, 3, 2, 2), data))); /* channels-last in memory */
    assert_ok(eg_state_put(state, "a", eg_from_data(ctx, EG_SHAPE(3), data)));
    assert_ok(eg_state_put(state, "labels", eg_from_labels(ctx, 2, (const int64_t[]){INT64_MIN, INT64_MAX})));
    eg_tensor *wide = eg_empty(ctx, EG_F64, EG_SCALAR, EG_LAYOUT_DEFAULT),
              *bytes = eg_empty(ctx, EG_U8, EG_SHAPE(3), EG_LAYOUT_DEFAULT);
    *(double *)eg_tensor_data(wide) = 1.0 / 3;
    memcpy(eg_tensor_data(bytes), "\x01\xff\x80", 3);
    assert_ok(eg_state_put(state, "lr", wide));
    assert_ok(eg_state_put(state, "bytes", bytes));
    return state;
}

static void test_round_trip(void **state)
{
    fixture *f = *state;
    eg_state *saved = sample_state(f->ctx);
    assert_ok(eg_safetensors_save(saved, f->path, "{\"epoch\": \"3\"}"));
    assert_int_equal(directory_count(f->directory), 1);
    char *metadata = NULL;
    eg_state *loaded = eg_safetensors_load(f->ctx, f->path, &metadata);
    assert_made(loaded);
    assert_non_null(strstr(metadata, "\"epoch\": \"3\""));
    eg_free(metadata);
    assert_int_equal(eg_state_size(loaded), 5);
    static const char *const order[] = {"labels", "lr", "a", "conv.weight",
                                        "bytes"}; /* wide ones first, then by name */
    for (size_t i = 0; i < 5; i++) {
        const char *name;
        eg_tensor *got = eg_state_at(loaded, i, &name), *expected = eg_state_get(saved, name);
        assert_string_equal(name, order[i]);
        assert_int_equal(eg_tensor_dtype(got), eg_tensor_dtype(expected));
        assert_true(eg_shape_equal(eg_tensor_shape(got), eg_tensor_shape(expected)));
        if (eg_tensor_ndim(got) < 2)
            assert_memory_equal(eg_tensor_data(got), eg_tensor_data(expected),
                                (size_t)eg_tensor_numel(got) * eg_dtype_size(eg_tensor_dtype(got)));
    }
    float data[24];
    const float *rows = eg_tensor_data(eg_state_get(loaded, "conv.weight"));
    assert_ok(eg_tensor_read(eg_state_get(saved, "conv.weight"), data, 24));
    assert_memory_equal(rows, data, sizeof data); /* row-major */
    eg_state_free(saved);
    eg_state_free(loaded);
}

/* The same state gives the same bytes, whatever the order it was put together in. */
static void test_deterministic(void **state)
{
    fixture *f = *state;
    eg_state *saved = sample_state(f->ctx), *reversed = eg_state_new();
    for (size_t i = eg_state_size(saved); i-- > 0;) {
        const char *name;
        eg_tensor *t = eg_state_at(saved, i, &name);
        assert_ok(eg_state_put(reversed, name, t));
    }
    size_t a_size, b_size;
    assert_ok(eg_safetensors_save(saved, f->path, NULL));
    char *a = read_bytes(f->path, &a_size);
    assert_ok(eg_safetensors_save(reversed, f->path, NULL));
    char *b = read_bytes(f->path, &b_size);
    assert_int_equal(a_size, b_size);
    assert_memory_equal(a, b, a_size);
    assert_int_equal((8 + (size_t)(uint8_t)a[0] + 256 * (size_t)(uint8_t)a[1]) % 8, 0); /* numbers begin aligned */
    free(a);
    free(b);
    eg_state_free(saved);
    eg_state_free(reversed);
}

static void test_empty(void **state)
{
    fixture *f = *state;
    eg_state *none = eg_state_new();
    assert_ok(eg_safetensors_save(none, f->path, NULL));
    char *metadata = NULL;
    eg_state *loaded = eg_safetensors_load(f->ctx, f->path, &metadata);
    assert_made(loaded);
    assert_int_equal(eg_state_size(loaded), 0);
    assert_string_equal(metadata, "{}");
    eg_free(metadata);
    eg_state_free(loaded);
    eg_state_free(none);
}

/* ---- conversions ---- */

static eg_tensor *load_one(fixture *f, eg_state **loaded, const char *dtype, size_t n, const void *data, size_t size)
{
    char header[200];
    snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}", dtype, n,
             size);
    write_raw(f->path, header, data, size);
    *loaded = eg_safetensors_load(f->ctx, f->path, NULL);
    return *loaded ? eg_state_get(*loaded, "t") : NULL;
}

static void expect_integers(fixture *f, const char *dtype, const void *data, size_t size, int64_t first, int64_t second)
{
    eg_state *loaded;
    eg_tensor *t = load_one(f, &loaded, dtype, 2, data, size);
    int64_t got[2];
    assert_made(t);
    assert_int_equal(eg_tensor_dtype(t), EG_I64);
    assert_ok(eg_tensor_read_i64(t, got, 2));
    assert_true(got[0] == first && got[1] == second);
    eg_state_free(loaded);
}

static void test_integers(void **state)
{
    fixture *f = *state;
    expect_integers(f, "I8", "\x80\x7f", 2, -128, 127);
    expect_integers(f, "I16", "\xff\xff\x34\x12", 4, -1, 0x1234);
    expect_integers(f, "I32", "\0\0\0\x80\x01\0\0\0", 8, INT32_MIN, 1);
    expect_integers(f, "U16", "\xff\xff\x34\x12", 4, 65535, 0x1234);
    expect_integers(f, "U32", "\0\0\0\x80\x01\0\0\0", 8, 2147483648LL, 1);
    expect_integers(f, "U64", "\xff\xff\xff\xff\xff\xff\xff\x7f\x05\0\0\0\0\0\0", 16, INT64_MAX, 5);
    expect_integers(f, "BOOL", "\0\x01", 2, 0, 1);
    eg_state *loaded;
    assert_refused(load_one(f, &loaded, "U64", 2, "\0\0\0\0\0\0\0\x80\x05\0\0\0\0\0\0", 16), EG_EFORMAT,
                   "tensor 't': holds 9223372036854775808");
}

static void test_halves(void **state)
{
    fixture *f = *state;
    static const uint16_t halves[] = {0x0000, 0x8000, 0x3c00, 0xc000, 0x7bff, 0x0001,
                                      0x03ff, 0x0400, 0x7c00, 0xfc00, 0x3555, 0x7e00};
    static const float expected[] = {0,          -0.0F,    1,        -2,        65504,      0x1p-24F,
                                     0x3ffp-24F, 0x1p-14F, INFINITY, -INFINITY, 0x1.554p-2F};
    enum { COUNT = sizeof halves / sizeof halves[0] };
    uint8_t bytes[2 * COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        bytes[2 * i] = (uint8_t)(halves[i] & 0xff);
        bytes[2 * i + 1] = (uint8_t)(halves[i] >> 8);
    }
    eg_state *loaded;
    eg_tensor *t = load_one(f, &loaded, "F16", COUNT, bytes, sizeof bytes);
    assert_made(t);
    assert_int_equal(eg_tensor_dtype(t), EG_F32);
    assert_memory_equal(eg_tensor_data(t), expected, sizeof expected);
    assert_true(isnan(((float *)eg_tensor_data(t))[COUNT - 1]));
    eg_state_free(loaded);
    t = load_one(f, &loaded, "BF16", 2, "\x80\x3f\x49\xc0", 4);
    assert_made(t);
    assert_tensor(t, 0, 1, -3.140625F);
    eg_state_free(loaded);
}

/* ---- broken files ---- */

static void test_truncated_anywhere(void **state)
{
    fixture *f = *state;
    eg_state *saved = sample_state(f->ctx);
    assert_ok(eg_safetensors_save(saved, f->path, NULL));
    size_t size;
    char *data = read_bytes(f->path, &size);
    for (size_t n = 0; n < size; n++) {
        write_bytes(f->path, data, n);
        assert_refused(eg_safetensors_load(f->ctx, f->path, NULL), EG_EFORMAT, "t.safetensors'");
    }
    write_bytes(f->path, data, size + 1); /* one zero byte too many */
    assert_refused(eg_safetensors_load(f->ctx, f->path, NULL), EG_EFORMAT, "bytes of data");
    free(data);
    eg_state_free(saved);
}

/* Any single flipped bit gives a failure or a file that loads: never anything else. */
static void test_flipped_bits(void **state)
{
    fixture *f = *state;
    eg_state *saved = sample_state(f->ctx);
    assert_ok(eg_safetensors_save(saved, f->path, NULL));
    eg_state_free(saved);
    size_t size;
    char *data = read_bytes(f->path, &size);
    for (size_t i = 0; i < 8 * size; i += 3) {
        data[i / 8] ^= (char)(1 << i % 8);
        write_bytes(f->path, data, size);
        eg_state *loaded = eg_safetensors_load(f->ctx, f->path, NULL);
        if (!loaded)
            assert_recorded(EG_EFORMAT, "t.safetensors'");
        eg_state_free(loaded);
        data[i / 8] ^= (char)(1 << i % 8);
    }
    free(data);
}

static void test_bad_headers(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *header, *message;
    } cases[] = {
        /* with 8 bytes of data */
        {"[]", "does not begin with '{'"},
        {" {}", "does not begin with '{'"},
        {"{\"a\":", "line 1"},
        {"{}", "8 bytes of data, expected 0"},
        {"{\"a\":7}", "tensor 'a': expected \"dtype\""},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", "tensor 'a': expected \"dtype\""},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"more\":1}}",
         "tensor 'a': expected \"dtype\""},
        {"{\"a\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]}}", "unknown dtype 'C64'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", "shape is not a list"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", "at most 6 sizes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", "dimension 0 is not a size"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", "dimension 0 is not a size"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}", "too large"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,8]}}",
         "8 bytes for 4611686018427387904 numbers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", "8 bytes for 3 numbers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", "not within the 8 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", "not within the 8 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", "not within the 8 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", "begins at 4, expected 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", "8 bytes of data, expected 4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],"
         "\"data_offsets\":[4,8]}}",
         "tensor 'b' begins at 4, expected 8"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_"
         "offsets\":[4,8]}}",
         "tensor 'b' begins at 4, expected 3"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
         "\"data_offsets\":[4,8]}}",
         "duplicate"},
        {"{\"__metadata__\":{\"k\":1},\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         "'k' is not text"},
        {"{\"__metadata__\":[],\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "not an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_raw(f->path, cases[i].header, "12345678", 8);
        assert_refused(eg_safetensors_load(f->ctx, f->path, NULL), EG_EFORMAT, cases[i].message);
    }
    write_bytes(f->path, "\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
    assert_refused(eg_safetensors_load(f->ctx, f->path, NULL), EG_EFORMAT,
                   "header of 9223372036854775807 bytes, expected 2 .. 2");
    /* Spaces after the header are allowed, and tensors without elements anywhere. */
    write_raw(f->path,
              "{\"e\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[8,8]},"
              "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}   ",
              "12345678", 8);
    eg_state *loaded = eg_safetensors_load(f->ctx, f->path, NULL);
    assert_made(loaded);
    const char *name;
    eg_state_at(loaded, 0, &name);
    assert_string_equal(name, "a"); /* in the order of the file */
    eg_state_free(loaded);
}

static void test_no_file(void **state)
{
    fixture *f = *state;
    assert_refused(eg_safetensors_load(f->ctx, f->path, NULL), EG_ENOENT, "t.safetensors");
    assert_refused(eg_safetensors_load(f->ctx, f->directory, NULL), EG_EIO, "not a regular file");
    assert_refused(eg_safetensors_load(f->ctx, "/dev/zero", NULL), EG_EIO, "not a regular file");
    assert_refused(eg_safetensors_load(NULL, f->path, NULL), EG_EINVAL, "context");
}

/* ---- writing that fails ---- */

static void test_cannot_write(void **state)
{
    fixture *f = *state;
    eg_state *saved = sample_state(f->ctx);
    assert_ok(eg_safetensors_save(saved, f->path, NULL));
    size_t size, now;
    char *before = read_bytes(f->path, &size), other[TEMPORARY_PATH_SIZE + 8];
    if (access("/dev/full", W_OK) == 0)
        assert_fails(eg_safetensors_save(saved, "/dev/full", NULL), EG_EIO, "'/dev/full'");
    snprintf(other, sizeof other, "%s/x", f->path); /* below a file */
    assert_fails(eg_safetensors_save(saved, other, NULL), EG_ENOENT, "t.safetensors/x");
    /* A disk that fills up midway: the old file stays, and nothing else is left. */
    struct rlimit limit, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = (struct rlimit){.rlim_cur = 100, .rlim_max = limit.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    eg_status status = eg_safetensors_save(saved, f->path, "{\"more\": \"text\"}");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, EG_EIO);
    assert_recorded(EG_EIO, "t.safetensors");
    char *after = read_bytes(f->path, &now);
    assert_int_equal(now, size);
    assert_memory_equal(before, after, size);
    assert_int_equal(directory_count(f->directory), 1);
    free(before);
    free(after);
    eg_state_free(saved);
}

static void test_unwritable_directory(void **state)
{
    fixture *f = *state;
    if (geteuid() == 0) {
        print_message("permissions do not bind the superuser\n");
        skip();
    }
    eg_state *saved = sample_state(f->ctx);
    assert_int_equal(chmod(f->directory, 0500), 0);
    assert_fails(eg_safetensors_save(saved, f->path, NULL), EG_EIO, "t.safetensors");
    assert_int_equal(chmod(f->directory, 0700), 0);
    eg_state_free(saved);
}

static void test_not_savable(void **state)
{
    fixture *f = *state;
    eg_state *saved = eg_state_new();
    assert_fails(eg_safetensors_save(saved, f->path, "[]"), EG_EINVAL, "not a JSON object");
    assert_fails(eg_safetensors_save(saved, f->path, "{"), EG_EINVAL, "metadata");
    assert_fails(eg_safetensors_save(saved, f->path, "{\"a\":1}"), EG_EINVAL, "'a' is not text");
    eg_state *bad_name = eg_state_new();
    assert_ok(eg_state_put(bad_name, "a\xff", eg_zeros(f->ctx, EG_SHAPE(2))));
    assert_fails(eg_safetensors_save(bad_name, f->path, NULL), EG_EINVAL, "the name is no valid UTF-8");
    eg_state_free(bad_name);
    assert_ok(eg_state_put(saved, "s", eg_shape_only(f->ctx, EG_SHAPE(2))));
    assert_fails(eg_safetensors_save(saved, f->path, NULL), EG_EINVAL, "tensor 's' has no numbers");
    assert_fails(eg_safetensors_save(NULL, f->path, NULL), EG_EINVAL, "state");
    assert_int_equal(directory_count(f->directory), 0);
    eg_state_free(saved);
}

static void test_module(void **state)
{
    fixture *f = *state;
    eg_module *a = eg_conv2d(f->ctx, 2, 3, 3), *b = eg_conv2d(f->ctx, 2, 3, 3), *other = eg_conv2d(f->ctx, 2, 4, 3);
    assert_ok(eg_module_save(a, f->path));
    assert_ok(eg_module_load(b, f->path));
    float x[54], y[54];
    assert_ok(eg_tensor_read(eg_module_tensor(a, "weight"), x, 54));
    assert_ok(eg_tensor_read(eg_module_tensor(b, "weight"), y, 54));
    assert_memory_equal(x, y, sizeof x);
    assert_fails(eg_module_load(other, f->path), EG_ESHAPE, "t.safetensors");
    assert_fails(eg_module_save(NULL, f->path), EG_EINVAL, "module");
    eg_module_release(a);
    eg_module_release(b);
    eg_module_release(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deterministic, setup, teardown),
        cmocka_unit_test_setup_teardown(test_empty, setup, teardown),
        cmocka_unit_test_setup_teardown(test_integers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_halves, setup, teardown),
        cmocka_unit_test_setup_teardown(test_truncated_anywhere, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flipped_bits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_headers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cannot_write, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unwritable_directory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_savable, setup, teardown),
        cmocka_unit_test_setup_teardown(test_module, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Arrays, text, maps, hashes, and "did you mean".
 */
#include "support.h"

#include "base/internal.h"

static void test_zeroed_memory(void **state)
{
    (void)state;
    char *nothing = eg__calloc(0, 4), *some = eg__calloc(3, 1);
    assert_non_null(nothing);
    assert_int_equal(some[0] | some[1] | some[2], 0);
    eg_free(nothing);
    eg_free(some);
    eg_free(NULL);
    assert_refused(eg__calloc(SIZE_MAX / 2, 4), EG_ENOMEM, "out of memory");
}

static void test_grow(void **state)
{
    (void)state;
    int64_t *array = NULL;
    size_t capacity = 0;
    for (size_t n = 0; n < 100; n++) {
        assert_ok(eg__grow(&array, &capacity, n + 1, sizeof *array));
        assert_int_equal(array[n], 0);
        array[n] = (int64_t)n;
    }
    for (size_t n = 0; n < 100; n++)
        assert_int_equal(array[n], n);
    assert_fails(eg__grow(&array, &capacity, SIZE_MAX / 4, sizeof *array), EG_ENOMEM, "out of memory");
    assert_int_equal(array[99], 99);
    free(array);
}

static void test_text(void **state)
{
    (void)state;
    eg__buf buf = {0};
    eg__buf_append(&buf, "ab", 2);
    for (int i = 0; i < 100; i++)
        eg__buf_printf(&buf, "%d,", i);
    char *text = eg__buf_take(&buf);
    assert_int_equal(strncmp(text, "ab0,1,2,", 8), 0);
    assert_int_equal(strlen(text), 2 + 10 * 2 + 90 * 3);
    assert_int_equal(buf.len, 0);
    eg_free(text);
    text = eg__buf_take(&buf);
    assert_string_equal(text, "");
    eg_free(text);
    text = eg__format("%s-%03d", "x", 7);
    assert_string_equal(text, "x-007");
    eg_free(text);
    text = eg__strdup("copy");
    assert_string_equal(text, "copy");
    eg_free(text);
    assert_true(eg__strdup(NULL) == NULL);
}

static void test_map(void **state)
{
    (void)state;
    eg__map map = {0};
    int values[500];
    char key[32];
    assert_true(eg__map_get(&map, "nothing yet") == NULL);
    for (size_t i = 0; i < 500; i++) {
        snprintf(key, sizeof key, "key%zu", i);
        assert_ok(eg__map_put(&map, key, &values[i]));
    }
    assert_ok(eg__map_put(&map, "key7", NULL));
    assert_int_equal(map.n, 500);
    for (size_t i = 0; i < 500; i++) {
        snprintf(key, sizeof key, "key%zu", i);
        assert_string_equal(map.entries[i].key, key);
        assert_true(eg__map_get(&map, key) == (i == 7 ? NULL : &values[i]));
    }
    assert_non_null(eg__map_find(&map, "key7")); /* there, with the value NULL */
    assert_true(eg__map_find(&map, "key500") == NULL);
    assert_true(eg__map_find(&map, "") == NULL);
    assert_ok(eg__map_put(&map, "", values));
    assert_true(eg__map_get(&map, "") == values);
    eg__map_free(&map);
    assert_int_equal(map.n, 0);
}

static void test_hash(void **state)
{
    (void)state;
    const char text[] = "0123456789abcdefghij";
    uint64_t seen[2 * sizeof text];
    size_t n = 0;
    for (size_t size = 0; size < sizeof text; size++)
        for (uint64_t seed = 0; seed < 2; seed++)
            seen[n++] = eg__hash(text, size, seed);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            assert_true(seen[i] != seen[j]);
    /* goes into files and random streams: must not change */
    assert_true(eg__hash("shuffle", 7, 0) == UINT64_C(0xd75357964d2ea6c8));
    assert_true(eg__hash("0123456789", 10, 5) == UINT64_C(0x776d751ecdf25eb1));
    assert_true(eg_rng_make(0, "shuffle", 0).stream == UINT64_C(0xd75357964d2ea6c8));
}

static const char *closest(const char *name, char *text, size_t size)
{
    static const char *const names[] = {"relu", "relu6", "gelu", "conv2d", "batch_norm", NULL, "max_pool2d"};
    return eg_closest_name(name, names, EG_COUNT(names), text, size);
}

static void test_closest(void **state)
{
    (void)state;
    char text[64];
    assert_string_equal(closest("rleu", text, sizeof text), "'relu'");
    assert_string_equal(closest("conv2", text, sizeof text), "'conv2d'");
    assert_string_equal(closest("relu", text, sizeof text), "'relu', 'relu6' or 'gelu'");
    assert_string_equal(closest("batchnorm", text, sizeof text), "'batch_norm'");
    assert_string_equal(closest("attention", text, sizeof text), "");
    assert_string_equal(closest("x", text, sizeof text), "");
    assert_string_equal(closest(NULL, text, sizeof text), "");
    assert_string_equal(closest("conv2", text, 4), "'co");
    char longest[200];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_string_equal(closest(longest, text, sizeof text), "");
    assert_string_equal(eg_closest_name("x", NULL, 0, text, sizeof text), "");
    assert_int_equal(eg_error_last()->code, EG_OK);
    assert_string_equal(eg_closest_name("x", NULL, 1, text, sizeof text), "");
    assert_int_equal(eg_error_last()->code, EG_EINVAL);
    eg_error_clear();
    assert_true(closest("rleu", NULL, 8) == NULL);
    assert_int_equal(eg_error_last()->code, EG_EINVAL);
    eg_error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zeroed_memory), cmocka_unit_test(test_grow), cmocka_unit_test(test_text),
        cmocka_unit_test(test_map),           cmocka_unit_test(test_hash), cmocka_unit_test(test_closest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

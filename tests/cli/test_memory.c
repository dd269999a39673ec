/* Options about memory: what they take, what they say, and that a run goes on as it was started. */
#include "command_support.h"

static void test_wrong_values(void **state)
{
    (void)state;
    engraft_fails(SEARCH "--out @/x --memory tiny", 2, "unknown memory 'tiny', expected 'normal' or 'low'");
    engraft_fails(SEARCH "--out @/x --max-memory 2T", 2, "'2T' is no size of memory");
    engraft_fails(SEARCH "--out @/x --max-memory 0", 2, "'0' is no size of memory");
    engraft_fails("show --space cells --batch 8", 2, "go with '--memory'");
}

static void test_show(void **state)
{
    (void)state;
    json_t *shown = engraft_json("show --space cells --memory --batch 16 --threads 1 --json");
    const json_t *rows = json_object_get(shown, "memory");
    assert_int_equal(json_array_size(rows), 4); /* darts and spos, normal and low */
    json_int_t normal = json_integer_value(json_object_get(json_array_get(rows, 0), "total")),
               low = json_integer_value(json_object_get(json_array_get(rows, 1), "total"));
    assert_true(0 < low && low < normal);
    json_decref(shown);
    outcome o = engraft("show --space cells --memory --batch 16 --threads 1");
    assert_int_equal(o.status, 0);
    expect_part("show --memory", o.out, "activations        total");
    expect_part("show --memory", o.out, "darts      low ");
    assert_null(strstr(o.out, "spos       low ")); /* it would change nothing */
    free(o.out), free(o.err);
}

static void test_limits(void **state)
{
    (void)state;
    engraft_fails(SEARCH "--strategy darts --out @/small --max-memory 100K", 1,
                  "100.0 KiB are allowed: no batch would fit");
    engraft_fails(SEARCH "--strategy darts --out @/small --max-memory 10", 1, "10 bytes are allowed: no batch");
    char path[TEMPORARY_PATH_SIZE];
    assert_int_not_equal(access(temporary_path(directory, "small", path), F_OK), 0);
    json_decref(engraft_json(SEARCH "--strategy random --out @/any --max-memory 100K --json")); /* trains nothing */
    engraft_fails("retrain --run @/any --epochs 1 --batch 16 --threads 1 --out @/r --max-memory 200K", 1,
                  "are allowed: a batch of");
    json_decref(engraft_json("retrain --run @/any --epochs 1 --batch 16 --threads 1 --out @/r --max-memory 1G --json"));
    json_t *shown = engraft_json("show --run @/r --memory --json");
    assert_int_equal(json_array_size(json_object_get(shown, "memory")), 1);
    json_decref(shown);
}

/* The way of a run is one of its options. */
static void test_resume(void **state)
{
    (void)state;
    json_t *first = engraft_json(SEARCH "--strategy darts --memory low --out @/low --json");
    char path[TEMPORARY_PATH_SIZE];
    remove(temporary_path(directory, "low/result.json", path));
    json_t *again = engraft_json("search --resume --out @/low --json");
    assert_true(json_equal(json_object_get(first, "arch"), json_object_get(again, "arch")));
    engraft_fails("search --resume --memory normal --out @/low", 1, "memory");
    json_decref(first), json_decref(again);
}

int main(void)
{
    setenv("EG_POOL", "on", 1); /* what is predicted and measured here is the pool */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wrong_values), cmocka_unit_test(test_show),
                                       cmocka_unit_test(test_limits), cmocka_unit_test(test_resume)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* Meters: the numbers, and the texts of the reference. */
#include "support.h"

#include "engraft/train.h"

static void test_meter_numbers(void **state)
{
    (void)state;
    eg_meter meter = {0};
    eg_meter_update(&meter, 3, 2);
    eg_meter_update(&meter, 1, 1);
    assert_close(meter.val, 1, 0);
    assert_close(meter.sum, 7, 0);
    assert_int_equal(meter.count, 3);
    assert_close(meter.avg, 7.0 / 3.0, 1e-15);
}

static void test_group_texts(void **state)
{
    (void)state;
    eg_meter_group *group = eg_meter_group_new();
    assert_made(group);
    assert_ok(eg_meter_group_update(group, "acc1", 0.5, 1));
    assert_ok(eg_meter_group_update(group, "loss", 2, 1));
    assert_ok(eg_meter_group_update(group, "acc1", 0.25, 1));
    assert_ok(eg_meter_group_update(group, "loss", 1, 1));
    char *text = eg_meter_group_text(group), *summary = eg_meter_group_summary(group);
    assert_string_equal(text, "acc1 0.250000 (0.375000)  loss 1.000000 (1.500000)");
    assert_string_equal(summary, "acc1: 0.375000  loss: 1.500000");
    eg_free(text);
    eg_free(summary);
    eg_meter_group_free(group);
}

static void test_group_access(void **state)
{
    (void)state;
    eg_meter_group *group = eg_meter_group_new();
    assert_made(group);
    char *text = eg_meter_group_text(group);
    assert_string_equal(text, "");
    eg_free(text);
    const char *name;
    for (int i = 0; i < 20; i++) {
        char key[16];
        snprintf(key, sizeof key, "m%d", i);
        assert_ok(eg_meter_group_update(group, key, i, 1));
    }
    const eg_meter *third = eg_meter_group_get(group, "m3");
    assert_made(third);
    assert_close(third->val, 3, 0);
    assert_int_equal(eg_meter_group_size(group), 20);
    assert_made(eg_meter_group_at(group, 19, &name));
    assert_string_equal(name, "m19");
    assert_refused(eg_meter_group_get(group, "m20"), EG_ENOENT, "'m20'");
    assert_refused(eg_meter_group_at(group, 20, NULL), EG_EINVAL, "20");
    eg_meter_group_reset(group);
    assert_int_equal(eg_meter_group_size(group), 0);
    eg_meter_group_free(group);
    eg_meter_group_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meter_numbers),
        cmocka_unit_test(test_group_texts),
        cmocka_unit_test(test_group_access),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

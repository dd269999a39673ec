/* Limits of what is searched for: --max-params and --max-macs. */
#include "command_support.h"

static json_int_t cost_of(const char *show, const char *what)
{
    json_t *shown = engraft_json(show);
    json_int_t cost = json_integer_value(json_object_get(shown, what));
    json_decref(shown);
    assert_true(cost > 0);
    return cost;
}

/* Without a limit some draw is larger: so the limits below are ones. */
static void test_limits_hold(void **state)
{
    (void)state;
    json_int_t params = 0, macs = 0;
    for (int seed = 0; seed < 6; seed++) {
        char line[200];
        snprintf(line, sizeof line, SEARCH "--strategy random --seed %d --out @/free%d --json", seed, seed);
        json_decref(engraft_json(line));
        snprintf(line, sizeof line, "show --run @/free%d --json", seed);
        json_int_t p = cost_of(line, "params"), m = cost_of(line, "macs");
        params = seed == 0 || p < params ? p : params;
        macs = seed == 0 || m < macs ? m : macs;
    }
    static const char *const ways[] = {"random", "spos --epochs 1 --evaluations 3", "darts --epochs 1"};
    for (int i = 0; i < 3; i++) {
        char line[300];
        snprintf(line, sizeof line,
                 SEARCH "--strategy %s --max-params %lld --max-macs %.9fk --seed 9 --out @/limited%d --json", ways[i],
                 (long long)params, (double)macs / 1000, i);
        json_decref(engraft_json(line));
        snprintf(line, sizeof line, "show --run @/limited%d --json", i);
        assert_true(cost_of(line, "params") <= params);
        assert_true(cost_of(line, "macs") <= macs);
    }
}

static void test_impossible_limits_are_named(void **state)
{
    (void)state;
    engraft_fails(SEARCH "--strategy random --max-params 10 --out @/few", 1,
                  "'at most 10 parameters' failed in 10000 of them");
    engraft_fails(SEARCH "--strategy spos --epochs 1 --max-macs 0.1k --max-memory 1G --out @/slow", 1,
                  "'at most 100 multiplications (MACs)' failed in 10000 of them");
    engraft_fails(SEARCH "--max-params 1.5 --out @/x", 2, "'1.5' is no count, expected a whole number");
    engraft_fails(SEARCH "--max-params -3 --out @/x", 2, "'-3' is no count");
    engraft_fails(SEARCH "--max-macs 3T --out @/x", 2, "'3T' is no count");
}

/* A limit is part of what a run is. */
static void test_limits_are_recorded(void **state)
{
    (void)state;
    json_decref(engraft_json(SEARCH "--strategy random --max-params 1M --out @/kept --json"));
    json_decref(engraft_json("search --resume --out @/kept --json"));
    engraft_fails(SEARCH "--strategy random --max-params 2M --resume --out @/kept", 1, "max-params");
    outcome o = engraft("search --help");
    expect_part("search --help", o.out, "--max-params N");
    expect_part("search --help", o.out, "--max-macs N");
    free(o.out), free(o.err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits_hold),
        cmocka_unit_test(test_impossible_limits_are_named),
        cmocka_unit_test(test_limits_are_recorded),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

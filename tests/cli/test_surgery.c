/* engraft surgery: models listed, changed into new folders, compared, and changed back. */
#include "command_support.h"

#include <sys/stat.h>

static const char model[] =
    "{\"class\": \"Sequential\", \"modules\": ["
    "{\"class\": \"Conv2d\", \"in_channels\": 3, \"out_channels\": 8, \"kernel_size\": 3, \"padding\": 1},"
    "{\"class\": \"BatchNorm2d\", \"num_features\": 8}, {\"class\": \"ReLU\"},"
    "{\"class\": \"GlobalAvgPool2d\"}, {\"class\": \"Linear\", \"in_features\": 8, \"out_features\": 4}]}";

static void write_model(void)
{
    char path[TEMPORARY_PATH_SIZE];
    if (access(temporary_path(directory, "model.json", path), F_OK) != 0)
        write_to("model.json", model);
}

static const char *text_of(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    assert_non_null(text);
    return text;
}

static void test_ls(void **state)
{
    (void)state;
    write_model();
    json_t *json = engraft_json("surgery ls @/model.json --input 3,8,8 --json");
    const json_t *modules = json_object_get(json, "modules");
    assert_int_equal(json_array_size(modules), 6);
    assert_string_equal(text_of(json_array_get(modules, 1), "class"), "Conv2d");
    assert_int_equal(json_integer_value(json_object_get(json, "parameters")), 3 * 8 * 9 + 8 + 16 + 8 * 4 + 4);
    assert_int_equal(json_integer_value(json_object_get(json, "macs")), 3 * 8 * 9 * 64 + 8 * 4);
    json_decref(json);
    outcome o = engraft("surgery ls @ --tree --input 3,8,8");
    expect_status("surgery ls", &o, 0);
    expect_part("surgery ls", o.out, "\u251c\u2500 0");
    expect_part("surgery ls", o.out, "\u2514\u2500 4");
    expect_part("surgery ls", o.out, "99.8 %");
    outcome_free(o);
    engraft_fails("surgery ls @/nothing.json", 1, "nothing.json");
    engraft_fails("surgery ls @ --input 3,x", 2, "such as 3,32,32");
    engraft_fails("surgery ls @ --input 3,8", 1, "expected (N, C, H, W)");
    engraft_fails("surgery ls nothing", 1, "no file or folder 'nothing'");
    json = engraft_json("surgery ls @ --json");
    assert_true(json_is_null(json_object_get(json, "macs")));
    json_decref(json);
    engraft_fails("surgery ls", 2, "usage: engraft surgery ls MODEL");
    engraft_fails("surgery lss @", 2, "did you mean 'ls'?");
    engraft_fails("surgery", 2, "usage: engraft surgery");
}

static void test_count(void **state)
{
    (void)state;
    write_model();
    outcome o = engraft("surgery count @ Conv2d");
    expect_status("count", &o, 0);
    assert_string_equal(o.out, "1\n");
    outcome_free(o);
    o = engraft("surgery count @ LSTM");
    expect_status("count", &o, 3);
    outcome_free(o);
    engraft_fails("surgery count @ Conf2d", 1, "did you mean");
    json_t *json = engraft_json("surgery count @ --json");
    assert_int_equal(json_integer_value(json_object_get(json, "ReLU")), 1);
    json_decref(json);
}

static void test_plan(void **state)
{
    (void)state;
    write_model();
    json_t *json =
        engraft_json("surgery plan @ --replace ReLU=SiLU --method ghost_batch_norm(ghost_batch_size=2) --json");
    json_decref(json);
    outcome o = engraft("surgery plan @ --replace ReLU=SiLU --at 7");
    expect_status("plan", &o, 3);
    expect_part("plan", o.err, "matched no module");
    outcome_free(o);
    engraft_fails("surgery plan @", 2, "nothing is to be done");
    engraft_fails("surgery plan @ --method factorise", 1, "did you mean 'factorize'?");
    engraft_fails("surgery plan @ --method factorize(rank=-1)", 1, "rank");
    engraft_fails("surgery plan @ --method factorize(rank=1", 1, "not closed");
    engraft_fails("surgery plan @ --method factorize(rank)", 1, "no '='");
    engraft_fails("surgery plan @ --replace ReLU", 2, "CLASS=METHOD");
    engraft_fails("surgery plan @ --replace ReLU=drop_layers(first=0)", 1, "nothing to single modules");
    engraft_fails("surgery plan @ --at 2", 2, "stands behind");
    engraft_fails("surgery plan @ --replace ReLU=SiLU --at 2 --at 3", 2, "stands behind");
    engraft_fails("surgery plan @ --recipe x.json --at 2", 2, "limits no recipe");
    engraft_fails("surgery plan @ --method fold_batch_norm", 1, "needs to run the model: give --input");
    o = engraft("surgery plan @ --replace LSTM=ReLU --json");
    expect_status("plan", &o, 3);
    expect_part("plan", o.out, "\"replacements\": []");
    outcome_free(o);
    engraft_fails("surgery plan @ --replace ReLU=Linear(in_features=5,out_features=5) --input 3,8,8", 1,
                  "would no longer run");
}

static void test_apply_and_undo(void **state)
{
    (void)state;
    write_model();
    outcome o =
        engraft("surgery apply @ --method fold_batch_norm --replace ReLU=Hardswish --input 3,8,8 --out @/after");
    expect_status("apply", &o, 0);
    outcome_free(o);
    engraft_fails("surgery apply @ --method fold_batch_norm --input 3,8,8 --out @/after", 1, "is there already");
    engraft_fails("surgery apply @ --method fold_batch_norm --input 3,8,8", 2, "--out");
    o = engraft("surgery count @/after Hardswish");
    assert_string_equal(o.out, "1\n");
    outcome_free(o);
    o = engraft("surgery count @/after BatchNorm2d");
    expect_status("count", &o, 3);
    outcome_free(o);
    o = engraft("surgery undo @/after --out @/back");
    expect_status("undo", &o, 0);
    outcome_free(o);
    engraft_fails("surgery undo @/back --out @/more", 1, "no folder 'before'");
    o = engraft("surgery diff @/after/before @/back");
    expect_status("diff", &o, 0);
    expect_part("diff", o.out, "no difference");
    outcome_free(o);
    o = engraft("surgery verify @/after/before @/back --input 3,8,8");
    expect_status("verify", &o, 0);
    expect_part("verify", o.out, "0 of 4 numbers differ");
    outcome_free(o);
    o = engraft("surgery verify @/after/before @/after --tolerance 1e-6");
    expect_status("verify", &o, 1);
    outcome_free(o);
    o = engraft("surgery apply @/back --recipe @/after/surgery.json --input 3,8,8 --out @/again");
    expect_status("recipe", &o, 0);
    outcome_free(o);
    o = engraft("surgery diff @/after @/again");
    expect_part("diff", o.out, "no difference");
    outcome_free(o);
}

static void test_cost_and_verify(void **state)
{
    (void)state;
    write_model();
    json_t *json = engraft_json("surgery cost @ --method fold_batch_norm --input 3,8,8 --repeats -1 --json");
    assert_non_null(json_object_get(json, "verdict"));
    json_decref(json);
    json = engraft_json("surgery cost @ --input 3,8,8 --repeats 3 --json");
    assert_int_equal(json_integer_value(json_object_get(json, "parameters")), 276);
    json_decref(json);
    outcome o = engraft("surgery verify @ --method fold_batch_norm --input 3,8,8");
    expect_status("verify", &o, 0);
    outcome_free(o);
    engraft_fails("surgery cost @", 1, "give --input");
}

/* What each form of a rule is held to: a promise of 'trained' would let all outputs pass. */
static void test_verify_holds_to_the_promise(void **state)
{
    (void)state;
    write_model();
    outcome o = engraft("surgery apply @ --method fold_batch_norm --input 3,8,8 --out @/folded");
    expect_status("apply", &o, 0);
    outcome_free(o);
    o = engraft("surgery apply @ --replace ReLU=SiLU --input 3,8,8 --out @/smooth");
    expect_status("apply", &o, 0);
    outcome_free(o);
    static const struct {
        const char *rule, *promise;
    } rows[] = {
        {"--method fold_batch_norm", "exact"},
        {"--method factorize(rank=1,min_channels=2)", "trained"},
        {"--replace BatchNorm2d=ghost_batch_norm(ghost_batch_size=2)", "exact"},
        {"--replace ReLU=SiLU", "trained"},
        {"--replace BatchNorm2d=ghost_batch_norm(ghost_batch_size=2) --replace ReLU=SiLU", "trained"},
        {"--recipe @/folded/surgery.json", "exact"},
        {"--recipe @/smooth/surgery.json", "trained"},
        {"--recipe @/folded/surgery.json --replace ReLU=SiLU", "trained"},
        {"--replace ReLU=SiLU --tolerance 100", "close"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char line[512];
        snprintf(line, sizeof(line), "surgery verify @ %s --input 3,8,8 --json", rows[i].rule);
        json_t *json = engraft_json(line);
        if (strcmp(text_of(json, "promise"), rows[i].promise) != 0)
            fail_msg("%s: held to '%s', expected '%s'", line, text_of(json, "promise"), rows[i].promise);
        json_decref(json);
    }
    engraft_fails("surgery verify @ @/folded --method fold_batch_norm --input 3,8,8", 2, "go with one");
    engraft_fails("surgery diff @ @/folded --method fold_batch_norm", 2, "go with one");
}

/* A folder says itself what it was made by, and on what shape. */
static void test_folders_are_known(void **state)
{
    (void)state;
    write_model();
    outcome o = engraft("surgery apply @ --replace ReLU=SiLU --input 3,8,8 --out @/silu");
    expect_status("apply", &o, 0);
    outcome_free(o);
    json_t *json = engraft_json("surgery verify @/silu/before @/silu --json");
    assert_string_equal(text_of(json, "promise"), "trained");
    json_decref(json);
    json = engraft_json("surgery ls @/silu --json");
    assert_int_equal(json_integer_value(json_object_get(json, "macs")), 3 * 8 * 9 * 64 + 8 * 4);
    json_decref(json);
    o = engraft("surgery apply @/silu --method fold_batch_norm --out @/silu_folded");
    expect_status("apply", &o, 0);
    outcome_free(o);
    json = engraft_json("surgery undo @/silu_folded --out @/unfolded --json");
    expect_part("undo", text_of(json, "model"), "unfolded");
    json_decref(json);
}

/* Without weights, numbers are random: nobody is to take them for those of a model. */
static void test_missing_weights(void **state)
{
    (void)state;
    write_to("lone.json", model);
    engraft_fails("surgery verify @/lone.json @/lone.json --input 3,8,8", 1, "has no weights beside it");
    outcome o = engraft("surgery apply @/lone.json --replace ReLU=SiLU --out @/lone");
    expect_status("apply", &o, 0);
    expect_part("apply", o.err, "random");
    outcome_free(o);
}

/* A folder is there whole or not at all. */
static void test_failures_leave_no_folder(void **state)
{
    (void)state;
    char path[TEMPORARY_PATH_SIZE];
    write_model();
    engraft_fails("surgery apply @ --replace ReLU=SiLU --out @/no/such/place", 1, "cannot make the folder");
    assert_int_equal(mkdir(temporary_path(directory, "half.partial", path), 0777), 0);
    engraft_fails("surgery apply @ --replace ReLU=SiLU --out @/half", 1, "runs or was killed");
    assert_int_equal(rmdir(path), 0);
    outcome o = engraft("surgery apply @ --replace ReLU=SiLU --out @/half");
    expect_status("apply", &o, 0);
    outcome_free(o);
    assert_int_equal(access(path, F_OK), -1);
}

/* Spaces run with all their candidates, and become spaces that can be searched. */
static void test_spaces(void **state)
{
    (void)state;
    outcome o = engraft("surgery plan cells --replace MaxPool2d=AvgPool2d(kernel_size=2)");
    expect_status("plan", &o, 1);
    expect_part("plan", o.err, "would no longer run");
    outcome_free(o);
    o = engraft("surgery apply cells --replace MaxPool2d=AvgPool2d(kernel_size=3,stride=1,padding=1) --out @/space");
    expect_status("apply", &o, 0);
    outcome_free(o);
    o = engraft("surgery count @/space MaxPool2d");
    expect_status("count", &o, 3);
    outcome_free(o);
    json_t *json = engraft_json("show --space @/space/space.json --json");
    assert_int_equal(json_array_size(json_object_get(json, "mutables")), 12);
    json_decref(json);
    o = engraft("surgery diff @/space/before/space.json @/space");
    expect_status("diff", &o, 0);
    expect_part("diff", o.out, "AvgPool2d");
    outcome_free(o);
}

static void test_methods(void **state)
{
    (void)state;
    json_t *json = engraft_json("surgery methods --json");
    assert_true(json_array_size(json_object_get(json, "methods")) >= 14);
    json_decref(json);
    engraft_fails("surgery methods nothing_like_it", 1, "there is no method");
    json = engraft_json("surgery methods prune_channels --json");
    json_t *score =
        json_object_get(json_object_get(json_array_get(json_object_get(json, "methods"), 0), "options"), "score");
    assert_int_equal(json_array_size(json_object_get(score, "values")), 4);
    json_decref(json);
    outcome o = engraft("surgery methods new_head");
    expect_part("methods", o.out, "(required)");
    outcome_free(o);
    o = engraft("surgery help ls");
    expect_part("help", o.out, "--tree");
    outcome_free(o);
    o = engraft("help surgery");
    expect_part("help", o.out, "surgery verify");
    outcome_free(o);
    o = engraft("help surgery ls");
    expect_part("help", o.out, "--tree");
    outcome_free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ls),
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_apply_and_undo),
        cmocka_unit_test(test_cost_and_verify),
        cmocka_unit_test(test_verify_holds_to_the_promise),
        cmocka_unit_test(test_folders_are_known),
        cmocka_unit_test(test_missing_weights),
        cmocka_unit_test(test_failures_leave_no_folder),
        cmocka_unit_test(test_spaces),
        cmocka_unit_test(test_methods),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

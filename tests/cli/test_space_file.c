/* Spaces as files, through the program: shown, edited, searched, retrained, measured; runs do without the file. */
#include "command_support.h"

#include "engraft/zoo.h"

static char path[TEMPORARY_PATH_SIZE];

static char *file_path(const char *name)
{
    temporary_path(directory, name, path);
    return path;
}

/* `show --as-file` into a file. */
static void begin_file(const char *options, const char *name)
{
    char pattern[512];
    snprintf(pattern, sizeof pattern,
             "show --space cells --input 1,8,8 --classes 3 --channels 4 --layers 2 --as-file %s", options);
    outcome o = engraft(pattern);
    expect_status(pattern, &o, 0);
    write_to(name, o.out);
    outcome_free(o);
}

/* A person's edit of the expanded file: a candidate less, another kernel. */
static void write_edited(const char *name, int64_t kernel)
{
    begin_file("--expand", name);
    json_t *json = json_load_file(file_path(name), 0, NULL);
    json_object_set_new(json, "name", json_string("mine"));
    json_t *cell = json_array_get(json_object_get(json_object_get(json, "model"), "modules"), 1);
    json_t *named = json_object_get(json_object_get(json_object_get(cell, "children"), "op1"), "named");
    assert_int_equal(json_object_del(named, "maxpool"), 0);
    json_t *conv = json_array_get(json_object_get(json_object_get(named, "sep5x5"), "modules"), 0);
    json_object_set_new(conv, "kernel_size", json_integer((json_int_t)kernel));
    json_object_set_new(conv, "padding", json_integer((json_int_t)kernel / 2));
    assert_int_equal(json_dump_file(json, path, JSON_INDENT(1)), 0);
    json_decref(json);
}

static const char *text_of(const json_t *json, const char *key)
{
    return json_string_value(json_object_get(json, key));
}

#define FILE_SEARCH "search --data idx:@ --batch 16 --threads 1 --seed 3 "

/* From a file to a measured network, the file gone as soon as the search has begun. */
static void test_without_the_file(void **state)
{
    (void)state;
    write_edited("mine.json", 7);
    json_t *search =
        engraft_json(FILE_SEARCH "--space @/mine.json --strategy spos --epochs 1 --evaluations 3 --out @/s --json");
    assert_string_equal(text_of(search, "space"), "mine");
    char *copy = slurp(file_path("s/space.json")), *original = slurp(file_path("mine.json"));
    assert_string_equal(copy, original);
    free(copy), free(original);
    assert_int_equal(remove(path), 0);

    json_t *again = engraft_json("search --resume --out @/s --json");
    assert_true(json_equal(again, search));
    json_t *retrain = engraft_json("retrain --run @/s --epochs 2 --batch 16 --lr 0.1 --threads 1 --out @/r --json");
    assert_string_equal(text_of(retrain, "space"), "mine");
    temporary_remove_tree(file_path("s"));
    json_t *again2 = engraft_json("retrain --resume --out @/r --json");
    assert_true(json_equal(again2, retrain));
    json_t *eval = engraft_json("eval --run @/r --threads 1 --json");
    assert_true(json_equal(json_object_get(eval, "test_accuracy"), json_object_get(retrain, "test_accuracy")));
    json_t *show = engraft_json("show --run @/r --json");
    assert_true(json_equal(json_object_get(show, "params"), json_object_get(retrain, "params")));
    assert_string_equal(text_of(show, "space"), "mine");
    json_t *both = engraft_json("compare --run @/r --control @/r --json");
    json_decref(search), json_decref(again), json_decref(retrain), json_decref(again2), json_decref(eval);
    json_decref(show), json_decref(both);
}

/* A search that was cut in two gives what one in one piece gives. */
static void test_resume(void **state)
{
    (void)state;
    write_edited("whole.json", 7);
    json_t *whole = engraft_json(FILE_SEARCH "--space @/whole.json --strategy darts --epochs 2 --out @/whole --json");
    json_t *begun = engraft_json(FILE_SEARCH "--space @/whole.json --strategy darts --epochs 2 --out @/cut --json");
    assert_int_equal(remove(file_path("cut/result.json")), 0);
    assert_int_equal(remove(file_path("cut/arch.json")), 0);
    assert_int_equal(remove(file_path("whole.json")), 0);
    json_t *resumed = engraft_json("search --resume --out @/cut --json");
    assert_true(json_equal(json_object_get(whole, "arch"), json_object_get(resumed, "arch")));
    json_decref(whole), json_decref(begun), json_decref(resumed);
}

static void test_another_file_is_refused(void **state)
{
    (void)state;
    write_edited("one.json", 7);
    write_edited("two.json", 3);
    json_decref(engraft_json(FILE_SEARCH "--space @/one.json --strategy random --out @/one --json"));
    json_decref(engraft_json(FILE_SEARCH "--space @/two.json --strategy random --out @/two --json"));
    json_decref(engraft_json("search --resume --space @/one.json --out @/one --json"));
    engraft_fails("search --resume --space @/two.json --out @/one", 1, "two.json' is not the space that the run in '");
    engraft_fails("search --resume --space cells --out @/one", 1, "run with space \"space.json\", not \"cells\"");
    json_decref(engraft_json("retrain --run @/one --epochs 1 --batch 16 --threads 1 --out @/r1 --json"));
    engraft_fails("retrain --resume --run @/two --out @/r1", 1, "/two' is not that of the run");
    write_edited("one/space.json", 3);
    engraft_fails("search --resume --out @/one", 1, "space.json' is not the space that this run was started with");
    engraft_fails("show --run @/one", 1, "space.json' is not the space that this run was started with");
    assert_int_equal(remove(file_path("one/space.json")), 0);
    engraft_fails("retrain --run @/one --out @/r2", 1, "cannot open '");
}

static void test_retrain_from_files(void **state)
{
    (void)state;
    write_edited("from.json", 7);
    json_decref(engraft_json(FILE_SEARCH "--space @/from.json --strategy random --out @/from --json"));
    json_t *retrain =
        engraft_json("retrain --space @/from.json --arch @/from/arch.json --data idx:@ --epochs 1 --batch 16 "
                     "--threads 1 --out @/from-r --json");
    assert_string_equal(text_of(retrain, "space"), "mine");
    json_decref(retrain);
}

static void test_show(void **state)
{
    (void)state;
    begin_file("", "short.json");
    begin_file("--expand", "long.json");
    outcome built_in = engraft("show --space cells --input 1,8,8 --classes 3 --channels 4 --layers 2"),
            short_file = engraft("show --space @/short.json"), long_file = engraft("show --space @/long.json");
    expect_status("show", &short_file, 0);
    assert_string_equal(built_in.out, short_file.out);
    assert_string_equal(built_in.out, long_file.out);
    outcome_free(built_in), outcome_free(short_file), outcome_free(long_file);
    outcome again = engraft("show --space @/long.json --as-file");
    char *text = slurp(file_path("short.json"));
    assert_string_equal(again.out, text);
    free(text);
    outcome_free(again);
    json_decref(engraft_json("show --space @/short.json --memory --json"));
}

static void test_schema(void **state)
{
    (void)state;
    outcome o = engraft("spaces --schema");
    char *committed = slurp(EG_SOURCE_DIR "/docs/space.schema.json");
    assert_string_equal(o.out, committed);
    free(committed);
    outcome_free(o);
}

/* The small space of docs/space-files.md is found in the page, and searched. */
static void test_documented_example(void **state)
{
    (void)state;
    char *page = slurp(EG_SOURCE_DIR "/docs/space-files.md"), *from = strstr(page, "```json\n");
    assert_non_null(from);
    from += strlen("```json\n");
    char *to = strstr(from, "```");
    assert_non_null(to);
    *to = '\0';
    json_t *json = json_loads(from, 0, NULL);
    assert_non_null(json);
    /* for the data of these tests */
    json_object_set_new(json, "input", json_pack("[i, i, i]", 1, SIDE, SIDE));
    json_object_set_new(json, "classes", json_integer(LABELS));
    json_t *modules = json_object_get(json_object_get(json, "model"), "modules");
    json_object_set_new(json_array_get(modules, json_array_size(modules) - 1), "out_features", json_integer(LABELS));
    assert_int_equal(json_dump_file(json, file_path("documented.json"), 0), 0);
    json_decref(json);
    json_t *search =
        engraft_json(FILE_SEARCH "--space @/documented.json --strategy darts --epochs 1 --out @/documented --json");
    assert_true(json_object_size(json_object_get(search, "arch")) >= 2);
    json_decref(search);
    *to = '`';
    to = strstr(from, "```");
    *to = '\0';
    write_to("asis.json", from);
    outcome o = engraft("show --space @/asis.json");
    expect_status("show", &o, 0);
    outcome_free(o);
    free(page);
}

/* Numbers that are searched for: by spos, then retrained, and shown. */
static void test_value_choices(void **state)
{
    (void)state;
#define WIDTH "{\"value_choice\": [4, 6, 8], \"key\": \"width\"}"
    write_to("values.json",
             "{\"format\": \"engraft-space/1\", \"name\": \"values\", \"input\": [1, 8, 8], \"classes\": 3, "
             "\"model\": {\"class\": \"Sequential\", \"modules\": ["
             "{\"class\": \"Conv2d\", \"in_channels\": 1, \"out_channels\": " WIDTH ", \"kernel_size\": "
             "{\"value_choice\": [3, 5], \"key\": \"kernel\"}, \"padding\": {\"value_choice\": [1, 2], \"key\": "
             "\"kernel\"}}, {\"class\": \"BatchNorm2d\", \"num_features\": " WIDTH ", \"relu\": true}, "
             "{\"class\": \"Repeat\", \"depth\": {\"value_choice\": [0, 1, 2], \"key\": \"depth\"}, \"modules\": "
             "[{\"class\": \"Conv2d\", \"in_channels\": " WIDTH ", \"out_channels\": " WIDTH ", \"kernel_size\": 1}, "
             "{\"class\": \"ReLU\"}]}, {\"class\": \"GlobalAvgPool2d\"}, "
             "{\"class\": \"Linear\", \"in_features\": " WIDTH ", \"out_features\": 3}]}}");
    json_t *search = engraft_json(
        FILE_SEARCH "--space @/values.json --strategy spos --epochs 1 --evaluations 6 --out @/values --json");
    json_t *arch = json_object_get(search, "arch");
    assert_int_equal(json_object_size(arch), 3);
    json_int_t width = json_integer_value(json_object_get(arch, "width"));
    assert_true(width == 4 || width == 6 || width == 8);
    assert_int_equal(remove(file_path("values.json")), 0);
    json_t *retrain = engraft_json("retrain --run @/values --epochs 1 --batch 16 --threads 1 --out @/values-r --json");
    json_t *show = engraft_json("show --run @/values --json");
    assert_true(json_equal(json_object_get(show, "params"), json_object_get(retrain, "params")));
    outcome file = engraft("show --space @/values/space.json --as-file --expand");
    expect_status("show", &file, 0);
    char *text = slurp(file_path("values/space.json"));
    json_t *a = json_loads(text, 0, NULL), *b = json_loads(file.out, 0, NULL);
    assert_true(a && json_equal(a, b));
    free(text);
    outcome_free(file);
    json_decref(a), json_decref(b), json_decref(search), json_decref(retrain), json_decref(show);
}

/* Architectures that the program finds in a space are such as the space's constraint wants. */
static void test_constraint(void **state)
{
    (void)state;
    for (int seed = 0; seed < 8; seed++) {
        char line[256], name[64];
        snprintf(line, sizeof line,
                 "search --space nasbench101 --data idx:@ --channels 2 --layers 1 --strategy random --seed %d "
                 "--threads 1 --out @/nb%d --json",
                 seed, seed);
        json_decref(engraft_json(line));
        snprintf(name, sizeof name, "nb%d/arch.json", seed);
        eg_arch *arch = eg_arch_load(file_path(name));
        assert_made(arch);
        assert_ok(eg_nasbench101_check(arch));
        eg_arch_free(arch);
    }
}

static void test_refused(void **state)
{
    (void)state;
    begin_file("", "cells.json");
    write_to("bad.json",
             "{\"format\": \"engraft-space/1\", \"input\": [1, 8, 8], \"classes\": 3, \"model\": {\"class\": "
             "\"Linear\", \"in_features\": 64, \"out_features\": -1}}");
    write_to("torn.json", "{\"format\"");
    static const struct {
        const char *line;
        int status;
        const char *part;
    } cases[] = {
        {FILE_SEARCH "--space @/none.json --out @/x", 1, "cannot open '"},
        {FILE_SEARCH "--space @/torn.json --out @/x", 1, "/torn.json' line 1"},
        {"show --as-file --space @/torn.json", 1, "/torn.json' line 1"},
        {FILE_SEARCH "--space @/bad.json --out @/x", 1, "/bad.json': model: Linear: 'out_features' is -1, expected"},
        {FILE_SEARCH "--space @/cells.json --channels 8 --out @/x", 1,
         "'--channels' is no option of a space in a file: edit '"},
        {"show --space @/cells.json --input 3,8,8", 1,
         "is for an input of (1, 8, 8) and 3 classes, but the data has (3, 8, 8)"},
        {"show --space @/cells.json --layers 3", 1, "'--layers' is no option of a space in a file: edit '"},
        {"show --space @/cells.json --as-file --layers 3", 1, "'--layers' is no option of a space in a file"},
        {"show --space cells --input 3,8", 1, "expected images"},
        {"show --space cells --input x", 2, "'x' is no sizes of a sample, expected such as 3,32,32"},
        {"show --space cells --input 3,", 2, "is no sizes of a sample"},
        {"show --space cells --input 1,1,1,1", 2, "is no sizes of a sample"},
        {"show --space cells --expand", 2, "'--expand' goes with '--as-file'"},
        {"show --space cells --as-file --json", 2, "'--as-file' goes with '--space', and without"},
        {"show --space cells --data idx:@ --input 1,8,8", 2, "'--data' says what"},
        {"search --space cellz --out @/x", 2, "there is no space 'cellz', did you mean 'cells'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        engraft_fails(cases[i].line, cases[i].status, cases[i].part);
    assert_true(access(file_path("x"), F_OK) != 0); /* nothing of a run is left behind */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_the_file),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_another_file_is_refused),
        cmocka_unit_test(test_retrain_from_files),
        cmocka_unit_test(test_show),
        cmocka_unit_test(test_schema),
        cmocka_unit_test(test_documented_example),
        cmocka_unit_test(test_value_choices),
        cmocka_unit_test(test_constraint),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

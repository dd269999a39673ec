/* What runs leave for others: networks for programs, graphs for TensorBoard, candidates with what they were; and what
 * the program says of options that do nothing and of runs that do not compare. */
#include "command_support.h"
#include "engraft/engraft.h"

#include <dirent.h>

static char path[TEMPORARY_PATH_SIZE];

static char *file_path(const char *name)
{
    temporary_path(directory, name, path);
    return path;
}

static bool has_event_file(const char *name)
{
    DIR *d = opendir(file_path(name));
    assert_non_null(d);
    bool found = false;
    for (struct dirent *entry; (entry = readdir(d));)
        found = found || strncmp(entry->d_name, "events.out.tfevents.", 20) == 0;
    closedir(d);
    return found;
}

/* The files of a retraining are all that a program needs. */
static void test_network(void **state)
{
    (void)state;
    json_decref(engraft_json(SEARCH "--strategy random --out @/s --json"));
    json_t *result = engraft_json("retrain --run @/s --epochs 2 --batch 16 --threads 1 --out @/r --json");
    eg_context *ctx = eg_context_new(.threads = 1);
    assert_int_equal(eg_nas_register(ctx), EG_OK);
    eg_module *net = eg_module_load_json(ctx, file_path("r/model.json"));
    assert_int_equal(eg_module_load(net, file_path("r/model.safetensors")), EG_OK);
    char spec[TEMPORARY_PATH_SIZE + 8];
    snprintf(spec, sizeof spec, "idx:%s", directory);
    eg_dataset *test = eg_dataset_open(ctx, spec, .split = EG_TEST);
    assert_close(eg_evaluate(net, test, 256), json_number_value(json_object_get(result, "test_accuracy")), 1e-9);
    eg_dataset_release(test);
    eg_module_release(net);
    eg_context_free(ctx);
    json_decref(result);
}

static void test_graphs(void **state)
{
    (void)state;
    outcome o = engraft("show --space cells --channels 4 --layers 2 --graph @/graph");
    expect_status("show --graph", &o, 0);
    expect_part("show --graph", o.out, "/graph/graph.json\n");
    outcome_free(o);
    json_t *graph = json_load_file(file_path("graph/graph.json"), 0, NULL);
    assert_true(json_array_size(json_object_get(graph, "node")) > 0);
    json_decref(graph);
    assert_true(has_event_file("graph"));

    json_decref(engraft_json(SEARCH "--strategy darts --epochs 1 --visualize --out @/visual --json"));
    assert_true(has_event_file("visual"));
    assert_int_equal(access(file_path("visual/graph.json"), F_OK), 0);
    char *log = slurp(file_path("visual/log"));
    expect_part("search --visualize", log, "cell0_op1");
    free(log);
}

/* Candidates as events, the best of which is the result. */
static void test_candidates(void **state)
{
    (void)state;
    json_t *search = engraft_json(SEARCH "--strategy spos --epochs 1 --evaluations 4 --out @/spos --json");
    char *events = slurp(file_path("spos/events.jsonl")), *rest = events;
    double best = -1;
    json_t *found = NULL;
    for (char *line; (line = strtok_r(rest, "\n", &rest));) {
        json_t *event = json_loads(line, 0, NULL);
        const char *name = json_string_value(json_object_get(event, "event"));
        double accuracy = json_number_value(json_object_get(event, "accuracy"));
        if (name && strcmp(name, "candidate") == 0 && accuracy > best) {
            json_decref(found);
            found = json_incref(json_object_get(event, "arch"));
            best = accuracy;
        }
        json_decref(event);
    }
    free(events);
    assert_true(json_equal(found, json_object_get(search, "arch")));
    assert_close(json_number_value(json_object_get(search, "validation_accuracy")), best, 1e-9);
    json_decref(found), json_decref(search);
    search = engraft_json(SEARCH "--strategy random --out @/nothing-measured --json");
    assert_null(json_object_get(search, "validation_accuracy"));
    json_decref(search);
}

static void expect_warnings(const char *pattern, const char *const *parts, size_t n)
{
    outcome o = engraft(pattern);
    expect_status(pattern, &o, 0);
    size_t found = 0;
    for (const char *p = o.err; (p = strstr(p, "has no effect")); p++)
        found++;
    assert_int_equal(found, n);
    for (size_t i = 0; i < n; i++)
        expect_part(pattern, o.err, parts[i]);
    outcome_free(o);
}

static void test_options_without_effect(void **state)
{
    (void)state;
    expect_warnings(SEARCH "--strategy spos --epochs 1 --evaluations 2 --memory low --arch-lr 0.1 --out @/w1",
                    (const char *const[]){"'--memory' has no effect with strategy 'spos'", "'--arch-lr'"}, 2);
    expect_warnings(SEARCH "--strategy darts --epochs 1 --choice random --warmup 0.5 --out @/w2",
                    (const char *const[]){"'--choice' has no effect with strategy 'darts'"}, 1);
    expect_warnings("search --space cells --data idx:@ --strategy random --lr 0.1 --out @/w3",
                    (const char *const[]){"strategy 'random' trains nothing: '--lr' has no effect"}, 1);
    expect_warnings("search --resume --out @/w1", NULL, 0); /* said once */
}

static void test_compare_unlike(void **state)
{
    (void)state;
    json_decref(engraft_json("search --space mlp --data idx:@ --strategy random --seed 3 --out @/m --json"));
    json_decref(engraft_json(SEARCH "--strategy random --out @/c --json"));
    json_decref(engraft_json("retrain --run @/m --epochs 1 --batch 16 --threads 1 --out @/mr --json"));
    json_decref(engraft_json("retrain --run @/c --epochs 1 --batch 16 --threads 1 --out @/cr --json"));
    outcome o = engraft("compare --run @/mr --control @/cr");
    expect_status("compare", &o, 0);
    expect_part("compare", o.out, "note: they are of different spaces");
    expect_part("compare", o.out, "cell0_op1"); /* which only the control has */
    outcome_free(o);
    o = engraft("compare --run @/cr --control @/cr");
    assert_null(strstr(o.out, "note:"));
    outcome_free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_network),        cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_candidates),     cmocka_unit_test(test_options_without_effect),
        cmocka_unit_test(test_compare_unlike),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* Run directories that were edited, or that two processes are in: refused by name, and mended as the message says. */
#include "command_support.h"

/* Results are files that people can reach: what is no result is not reported as one. */
static void test_bad_results(void **state)
{
    (void)state;
    json_decref(engraft_json(SEARCH "--strategy random --out @/rs --json"));
    json_t *retrain = engraft_json("retrain --run @/rs --epochs 1 --batch 16 --threads 1 --out @/rr --json");
    const char *const texts[][2] = {{"[]", "/rr/result.json' is no JSON object: delete it to measure again"},
                                    {"{", "/rr/result.json' is no JSON object"},
                                    {"{}", "/rr/result.json' lacks the number 'test_accuracy'"},
                                    {"{\"test_accuracy\": \"high\"}", "lacks the number 'test_accuracy'"},
                                    {"{\"test_accuracy\": 0.5}", "lacks the number 'params'"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_to("rr/result.json", texts[i][0]);
        engraft_fails("retrain --resume --out @/rr", 1, texts[i][1]);
        engraft_fails("compare --run @/rr --control @/rr", 1, texts[i][1]);
    }
    char path[TEMPORARY_PATH_SIZE];
    remove(temporary_path(directory, "rr/result.json", path));
    json_t *again = engraft_json("retrain --resume --out @/rr --json");
    assert_true(json_equal(json_object_get(again, "test_accuracy"), json_object_get(retrain, "test_accuracy")));
    write_to("rs/result.json", "{}");
    engraft_fails("search --resume --out @/rs", 1, "/rs/result.json' lacks the number 'seconds'");
    write_to("rs/result.json", "{\"seconds\": 1}");
    engraft_fails("search --resume --out @/rs", 1, "/rs/result.json' lacks the object 'arch'");
    json_decref(retrain), json_decref(again);
}

/* A retraining goes on with the architecture that it was started with, or not at all. */
static void test_resume_keeps_the_architecture(void **state)
{
    (void)state;
    json_decref(engraft_json(SEARCH "--strategy random --out @/ka --json"));
    char path[TEMPORARY_PATH_SIZE];
    char *text = slurp(temporary_path(directory, "ka/arch.json", path));
    json_t *arch = json_loads(text, 0, NULL);
    const char *now = json_string_value(json_object_get(arch, "cell0_op1"));
    assert_non_null(now);
    json_t *show = engraft_json("show --run @/ka --json");
    size_t i;
    const json_t *item;
    json_array_foreach(json_object_get(show, "mutables"), i, item)
    {
        if (strcmp(json_string_value(json_object_get(item, "key")), "cell0_op1") != 0)
            continue;
        const json_t *candidates = json_object_get(item, "candidates");
        const char *first = json_string_value(json_array_get(candidates, 0)),
                   *second = json_string_value(json_array_get(candidates, 1));
        json_object_set_new(arch, "cell0_op1", json_string(strcmp(first, now) == 0 ? second : first));
        break;
    }
    char *other = json_dumps(arch, 0);
    json_decref(engraft_json("retrain --run @/ka --epochs 1 --batch 16 --threads 1 --out @/kr --json"));
    write_to("other.json", other);
    engraft_fails("retrain --resume --arch @/other.json --out @/kr", 1,
                  "/other.json' is not that of the run, '"); /* ".../kr/arch.json'" */
    json_decref(engraft_json("retrain --resume --arch @/ka/arch.json --out @/kr --json"));
    write_to("kr/arch.json", other);
    engraft_fails("retrain --resume --out @/kr", 1,
                  "/kr/arch.json' is not the architecture that this run was started with");
    remove(temporary_path(directory, "kr/arch.json", path)); /* as a kill may leave it */
    json_decref(engraft_json("retrain --resume --out @/kr --json"));
    write_to("ka/arch.json", other);
    engraft_fails("retrain --resume --run @/ka --out @/kr", 1, "/kr/arch.json'");
    free(other);
    free(text);
    json_decref(arch), json_decref(show);
}

/* While one process is in a run, no other one gets in; a kill gives the run free. */
static void test_one_process_a_run(void **state)
{
    (void)state;
    char line[2048], out[TEMPORARY_PATH_SIZE], err[TEMPORARY_PATH_SIZE], events[TEMPORARY_PATH_SIZE];
    snprintf(line, sizeof line,
             "search --space cells --data idx:%s --channels 4 --layers 2 --strategy spos --epochs 100000 --batch 16 "
             "--threads 1 --out %s/one",
             directory, directory);
    pid_t child = start_program(line, temporary_path(directory, "one.out", out),
                                temporary_path(directory, "one.err", err), RLIM_INFINITY);
    temporary_path(directory, "one/events.jsonl", events);
    for (int i = 0; i < 3000 && access(events, F_OK) != 0; i++)
        usleep(10000);
    engraft_fails("search --resume --out @/one", 1, "/one' is in use by another process");
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(wait_program(child), 128 + SIGKILL);
    engraft_fails("search --resume --out @/one --seed 4", 1, "seed 0, not 4");
    assert_int_equal(remove(events), 0);
    child = start_program(strcat(line, " --resume"), out, err, RLIM_INFINITY);
    for (int i = 0; i < 3000 && access(events, F_OK) != 0; i++)
        usleep(10000);
    assert_int_equal(kill(child, SIGINT), 0);
    assert_int_equal(wait_program(child), 1);
    char *text = slurp(err);
    expect_part("search", text, "to go on: engraft search --resume --out ");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_results),
        cmocka_unit_test(test_resume_keeps_the_architecture),
        cmocka_unit_test(test_one_process_a_run),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

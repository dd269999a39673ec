/*
 * Classic mode: what the environment asks for, parameters of a trial, results.
 */
#include "nas/toy.h"

#include <fcntl.h>
#include <unistd.h>

static log_record heard;

static int setup(void **state)
{
    unsetenv("EG_GEN_SEARCH_SPACE");
    unsetenv("EG_TRIAL_PARAMETERS");
    unsetenv("EG_TRIAL_RESULTS");
    heard = (log_record){0};
    *state = eg_context_new(.seed = 1, .threads = 1, .log = record_log, .log_payload = &heard);
    return *state == NULL;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    return 0;
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void check_file(const char *path, const char *expected)
{
    char text[2000] = "";
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(text, expected);
}

/* ---- dry run ---- */

static void a_search_space_is_written_and_the_program_ends(void **state)
{
    eg_context *ctx = *state;
    char *directory = temporary_make(), path[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "space.json", path);
    eg_module *net = eg_new(pick, ctx, true);
    setenv("EG_GEN_SEARCH_SPACE", path, 1);
    setenv("EG_TRIAL_PARAMETERS", "/nowhere", 1); /* of no account */
    assert_null(eg_get_and_apply_next_architecture(net));
    assert_int_equal(eg_error_first()->code, EG_EDONE);
    assert_int_equal(eg_exit_status(NULL), 0); /* no failure: the program ends well */
    assert_recorded(EG_EDONE, "the search space was written to '");
    assert_null(eg_mutable_mutator(net));
    char *text = eg_search_space_text(net);
    check_file(path, text);
    eg_free(text);
    setenv("EG_GEN_SEARCH_SPACE", "/nowhere/space.json", 1);
    assert_refused(eg_get_and_apply_next_architecture(net), EG_ENOENT, "/nowhere/space.json");
    eg_module_release(net);
    temporary_remove(directory);
}

/* ---- stand-alone ---- */

static void stand_alone_takes_the_first(void **state)
{
    eg_context *ctx = *state;
    for (int any = 0; any < 2; any++) {
        eg_module *net = eg_new(pick, ctx, any == 1);
        eg_mutator *mutator = eg_get_and_apply_next_architecture(net);
        assert_made(mutator);
        assert_non_null(strstr(heard.last, "no experiment runs this trial"));
        assert_close(run_on_one(net), any == 1 ? 3 : 2, 0); /* 1 from each layer; all three inputs, or the first two */
        assert_ok(eg_report_intermediate_result(mutator, 0.5));
        assert_string_equal(heard.last, "result of the trial: {\"parameter_id\":null,\"type\":\"PERIODICAL\","
                                        "\"sequence\":0,\"value\":0.5}");
        assert_ok(eg_report_final_result(mutator, 1));
        assert_fails(eg_report_final_result(mutator, 1), EG_EINVAL, "reported already");
        eg_mutator_detach(mutator);
        eg_module_release(net);
    }
    assert_refused(eg_get_and_apply_next_architecture(NULL), EG_EINVAL, "model");
}

/* ---- a trial ---- */

#define GOOD                                                                                                           \
    "{\"parameter_id\": 7, \"parameters\": {\"left\": {\"_value\": \"b\", \"_idx\": 1}, \"right\": {\"_value\": "      \
    "\"2\", \"_idx\": 2}, \"merge\": {\"_value\": [\"right\", \"left\"], \"_idx\": [1, 0]}}}"

static void a_trial_reads_parameters_and_reports(void **state)
{
    eg_context *ctx = *state;
    char *directory = temporary_make(), parameters[TEMPORARY_PATH_SIZE], results[TEMPORARY_PATH_SIZE];
    write_file(temporary_path(directory, "parameters", parameters), GOOD);
    setenv("EG_TRIAL_PARAMETERS", parameters, 1);
    setenv("EG_TRIAL_RESULTS", temporary_path(directory, "results", results), 1);
    eg_module *net = eg_new(pick, ctx, false);
    eg_mutator *mutator = eg_get_and_apply_next_architecture(net);
    assert_made(mutator);
    unsetenv("EG_TRIAL_RESULTS"); /* was read already */
    assert_int_equal(heard.lines, 0);
    assert_close(run_on_one(net), 110, 0);
    assert_ok(eg_mutator_reset(mutator)); /* samples are what was given */
    assert_close(run_on_one(net), 110, 0);
    eg_arch *arch = eg_mutator_export(mutator);
    char *text = eg_arch_text(arch);
    assert_string_equal(
        text, "{\n  \"left\": \"b\",\n  \"merge\": [\n    \"left\",\n    \"right\"\n  ],\n  \"right\": 2\n}\n");
    eg_free(text);
    eg_arch_free(arch);
    assert_ok(eg_report_intermediate_result(mutator, 0.1));
    assert_fails(eg_report_intermediate_result(mutator, (double)NAN), EG_EINVAL, "expected a finite number");
    assert_ok(eg_report_final_result(mutator, 2));
    assert_fails(eg_report_intermediate_result(mutator, 3), EG_EINVAL, "reported already");
    check_file(results, "{\"parameter_id\":7,\"type\":\"PERIODICAL\",\"sequence\":0,\"value\":0.10000000000000001}\n"
                        "{\"parameter_id\":7,\"type\":\"FINAL\",\"sequence\":1,\"value\":2.0}\n");
    eg_mutator_detach(mutator);
    eg_module_release(net);
    temporary_remove(directory);
}

static void descriptors(void **state)
{
    eg_context *ctx = *state;
    int in[2], out[2];
    char place[24], text[200] = "";
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    assert_int_equal(write(in[1], GOOD, strlen(GOOD)), (ssize_t)strlen(GOOD));
    close(in[1]);
    snprintf(place, sizeof place, "fd:%d", in[0]);
    setenv("EG_TRIAL_PARAMETERS", place, 1);
    snprintf(place, sizeof place, "fd:%d", out[1]);
    setenv("EG_TRIAL_RESULTS", place, 1);
    eg_module *net = eg_new(pick, ctx, false);
    eg_mutator *mutator = eg_get_and_apply_next_architecture(net);
    assert_made(mutator);
    assert_ok(eg_report_final_result(mutator, 0.75));
    assert_true(read(out[0], text, sizeof text - 1) > 0);
    assert_string_equal(text, "{\"parameter_id\":7,\"type\":\"FINAL\",\"sequence\":0,\"value\":0.75}\n");
    eg_mutator_detach(mutator);
    close(in[0]);
    close(out[0]);
    close(out[1]);
    assert_refused(eg_get_and_apply_next_architecture(net), EG_EIO, "cannot read 'fd:");
    setenv("EG_TRIAL_PARAMETERS", "/nowhere/parameters", 1);
    assert_refused(eg_get_and_apply_next_architecture(net), EG_ENOENT, "/nowhere/parameters");
    assert_null(eg_mutable_mutator(net)); /* nothing stays bound */
    eg_module_release(net);
}

/* ---- what parameters can be ---- */

typedef struct parameters_case {
    const char *left, *right, *merge, *more; /* entries, NULL = absent */
    double result;                           /* 0 = refused */
    const char *error;
} parameters_case;

#define L "{\"_value\": \"a\", \"_idx\": 0}"
#define R "{\"_value\": \"0\", \"_idx\": 0}"
#define M "{\"_value\": [\"left\", \"right\"], \"_idx\": [0, 1]}"

static const parameters_case parameters_cases[] = {
    {L, R, M, NULL, 2, NULL},
    {"{\"_idx\": 2, \"_value\": \"c\"}", R, M, NULL, 101, NULL},
    {L, "{\"_value\": 1, \"_idx\": 1}", M, NULL, 11, NULL}, /* a number for a name of digits */
    {L, R, "{\"_value\": [\"\", \"right\"], \"_idx\": [2, 1]}", NULL, 2, NULL},
    /* keys */
    {L, R, NULL, NULL, 0, "missing keys in the architecture: 'merge'"},
    {L, R, M, "\"lft\": " L ", ", 0, "unexpected keys in the architecture: 'lft'"},
    {L, R, NULL, "\"merg\": " M ", ", 0, "'merg' (did you mean 'merge'?)"},
    /* entries */
    {"\"a\"", R, M, NULL, 0, "'left' is not {\"_value\": .., \"_idx\": ..}"},
    {"{\"_value\": \"a\"}", R, M, NULL, 0, "'left' is not {"},
    {"{\"_idx\": 0}", R, M, NULL, 0, "'left' is not {"},
    {"{\"_idx\": 0, \"_value\": \"a\", \"more\": 1}", R, M, NULL, 0, "'left' is not {"},
    {"{\"_value\": \"b\", \"_idx\": 0}", R, M, NULL, 0,
     "'left' has _value \"b\" at _idx 0, where its candidate is 'a'"},
    {"{\"_value\": \"a\", \"_idx\": 3}", R, M, NULL, 0, "an _idx of 'left' is not among 0 to 2"},
    {"{\"_value\": \"c\", \"_idx\": -1}", R, M, NULL, 0, "an _idx of 'left' is not among 0 to 2"},
    {"{\"_value\": \"a\", \"_idx\": 0.0}", R, M, NULL, 0, "an _idx of 'left' is not among"},
    {"{\"_value\": \"a\", \"_idx\": true}", R, M, NULL, 0, "an _idx of 'left' is not among"},
    {"{\"_value\": [\"a\"], \"_idx\": [0]}", R, M, NULL, 0, "'left' is a list, expected one candidate"},
    {"{\"_value\": null, \"_idx\": 0}", R, M, NULL, 0, "'left' has _value null at _idx 0"},
    {L, R, "{\"_value\": \"left\", \"_idx\": 0}", NULL, 0, "_value and _idx of 'merge' are not both lists"},
    {L, R, "{\"_value\": [\"right\", \"left\"], \"_idx\": [0, 1]}", NULL, 0, "'merge' has _value \"right\" at _idx 0"},
    {L, R, "{\"_value\": [\"left\", \"left\"], \"_idx\": [0, 0]}", NULL, 0, "'merge' has candidate 0 twice"},
    /* what the reference lets pass */
    {L, R, "{\"_value\": [\"left\", \"right\", \"\"], \"_idx\": [0, 1]}", NULL, 0,
     "'merge' has 3 entries in _value, but 2 in _idx"},
    {L, R, "{\"_value\": [\"left\"], \"_idx\": [0, 1]}", NULL, 0, "'merge' has 1 entries in _value, but 2 in _idx"},
    {L, R, "{\"_value\": [\"left\"], \"_idx\": [0]}", NULL, 0, "'merge' has 1 inputs, expected its n_chosen, 2"},
    {L, R, "{\"_value\": [], \"_idx\": []}", NULL, 0, "'merge' has 0 inputs, expected its n_chosen, 2"},
};

static void parameters_are_checked(void **state)
{
    eg_module *net = eg_new(pick, *state, false);
    eg_mutator *mutator = eg_classic_mutator_new(net);
    assert_made(mutator);
    for (size_t i = 0; i < sizeof parameters_cases / sizeof *parameters_cases; i++) {
        const parameters_case *c = &parameters_cases[i];
        char text[1000], merge[300] = "";
        if (c->merge != NULL)
            snprintf(merge, sizeof merge, "\"merge\": %s, ", c->merge);
        snprintf(text, sizeof text, "{\"parameter_id\": \"x\", \"parameters\": {%s%s\"left\": %s, \"right\": %s}}",
                 c->more != NULL ? c->more : "", merge, c->left, c->right);
        double before = run_on_one(net);
        if (c->error != NULL) {
            assert_fails(eg_classic_mutator_set(mutator, text), EG_EINVAL, c->error);
            assert_close(run_on_one(net), before, 0);
        } else {
            assert_ok(eg_classic_mutator_set(mutator, text));
            assert_close(run_on_one(net), c->result, 0);
        }
    }
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void other_texts_are_refused(void **state)
{
    eg_module *net = eg_new(pick, *state, true);
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "null",
                                      "{\"parameters\": {}}",
                                      "{\"parameter_id\": 1}",
                                      "{\"parameter_id\": 1.5, \"parameters\": {}}",
                                      "{\"parameter_id\": 1, \"parameters\": []}",
                                      "{\"parameter_id\": 1, \"parameter_id\": 2, \"parameters\": {}}"};
    eg_mutator *mutator = eg_classic_mutator_new(net);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(eg_classic_mutator_set(mutator, bad[i]), EG_EFORMAT, "trial parameters");
    assert_fails(eg_classic_mutator_set(mutator, NULL), EG_EINVAL, "no parameters");
    /* any number where n_chosen is unset */
    assert_ok(eg_classic_mutator_set(mutator, "{\"parameter_id\": 1, \"parameters\": {\"left\": " L ", \"right\": " R
                                              ", \"merge\": {\"_value\": [], \"_idx\": []}}}"));
    assert_close(run_on_one(net), -1, 0); /* none */
    eg_mutator_detach(mutator);
    mutator = eg_random_mutator_new(net);
    assert_fails(eg_classic_mutator_set(mutator, "{}"), EG_EINVAL, "a ClassicMutator");
    assert_fails(eg_report_final_result(mutator, 1), EG_EINVAL, "a ClassicMutator");
    assert_refused(eg_get_and_apply_next_architecture(net), EG_EINVAL, "has a RandomMutator already");
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_search_space_is_written_and_the_program_ends),
        TEST(stand_alone_takes_the_first),
        TEST(a_trial_reads_parameters_and_reports),
        TEST(descriptors),
        TEST(parameters_are_checked),
        TEST(other_texts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

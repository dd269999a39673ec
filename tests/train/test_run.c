/* Run directories: run.json and events.jsonl. */
#include "train_support.h"

#include <signal.h>
#include <sys/resource.h>

static void test_create_and_load(void **state)
{
    (void)state;
    char *directory = temporary_make(), run[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "a/run", run);
    const char *options = "{\"command\": \"search\", \"seed\": 1, \"lr\": 0.1}";
    assert_ok(eg_run_create(run, options, false));
    char *text = eg_run_load(run);
    assert_made(text);
    assert_non_null(strstr(text, "\"command\": \"search\""));
    assert_non_null(strstr(text, "\"engraft\": \"" EG_VERSION_STRING "\""));
    eg_free(text);
    assert_fails(eg_run_create(run, options, false), EG_EINVAL, "holds a run already");
    assert_ok(eg_run_create(run, options, true));
    assert_fails(eg_run_create(run, "{\"command\": \"search\", \"seed\": 2, \"lr\": 0.1}", true), EG_EINVAL,
                 "seed 1, not 2");
    assert_fails(eg_run_create(run, "{\"command\": \"search\", \"seed\": 1}", true), EG_EINVAL,
                 "lr, which is not set now");
    assert_fails(eg_run_create(run, "{\"command\": \"search\", \"seed\": 1, \"lr\": 0.1, \"x\": 1}", true), EG_EINVAL,
                 "x unset, not 1");
    assert_fails(eg_run_create(run, "[1]", true), EG_EINVAL, "no JSON object");
    temporary_remove(directory);
}

static void test_resume_of_nothing_starts(void **state)
{
    (void)state;
    char *directory = temporary_make(), run[TEMPORARY_PATH_SIZE];
    assert_ok(eg_run_create(temporary_path(directory, "run", run), "{\"a\": 1}", true));
    assert_ok(eg_run_create(run, "{\"a\": 1}", true));
    temporary_remove(directory);
}

static void test_load_refuses(void **state)
{
    (void)state;
    char *directory = temporary_make(), file[TEMPORARY_PATH_SIZE];
    assert_refused(eg_run_load(directory), EG_ENOENT, "is no run");
    write_text(temporary_path(directory, "run.json", file), "{\"a\": ");
    assert_refused(eg_run_load(directory), EG_EFORMAT, "run.json");
    write_text(file, "[]");
    assert_refused(eg_run_load(directory), EG_EFORMAT, "no JSON object");
    temporary_remove(directory);
}

static void test_events(void **state)
{
    (void)state;
    char *directory = temporary_make(), file[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "events.jsonl", file);
    assert_ok(eg_run_event(directory, "start", NULL));
    FILE *torn = fopen(file, "ab");
    assert_non_null(torn);
    fputs("{\"time\": 1, \"ev", torn);
    fclose(torn);
    assert_ok(eg_run_event(directory, "epoch", "{\"loss\": 0.5}"));
    assert_fails(eg_run_event(directory, "epoch", "0.5"), EG_EINVAL, "no JSON object");
    assert_fails(eg_run_event(directory, "epoch", "{"), EG_EFORMAT, "fields of an event");
    size_t size;
    char *text = read_file(file, &size), *rest = text;
    const char *lines[4] = {strtok_r(rest, "\n", &rest), strtok_r(NULL, "\n", &rest), strtok_r(NULL, "\n", &rest),
                            strtok_r(NULL, "\n", &rest)};
    assert_non_null(strstr(lines[0], "\"event\":\"start\""));
    assert_string_equal(lines[1], "{\"time\": 1, \"ev");
    assert_non_null(strstr(lines[2], "\"event\":\"epoch\",\"loss\":0.5}"));
    assert_null(lines[3]);
    free(text);
    temporary_remove(directory);
}

/* A file that may not grow stands for a full disk. */
static void test_no_room(void **state)
{
    (void)state;
    char *directory = temporary_make(), run[TEMPORARY_PATH_SIZE], leftover[TEMPORARY_PATH_SIZE];
    struct rlimit before, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    tight = before;
    tight.rlim_cur = 8;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    eg_status created = eg_run_create(temporary_path(directory, "run", run), "{\"command\": \"search\"}", false);
    eg_status event = eg_run_event(directory, "start", NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(created, EG_EIO);
    assert_int_equal(event, EG_EIO);
    assert_recorded(EG_EIO, "events.jsonl");
    assert_false(access(temporary_path(run, "run.json", leftover), F_OK) == 0);
    temporary_remove(directory);
}

static void test_unwritable(void **state)
{
    (void)state;
    char *directory = temporary_make(), file[TEMPORARY_PATH_SIZE];
    write_text(temporary_path(directory, "file", file), "x");
    assert_fails(eg_run_create(file, "{}", false), EG_EIO, "/file'");
    assert_fails(eg_run_event(file, "start", NULL), EG_ENOENT, "events.jsonl");
    assert_fails(eg_run_create("", "{}", false), EG_EINVAL, "directory");
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create_and_load), cmocka_unit_test(test_resume_of_nothing_starts),
        cmocka_unit_test(test_load_refuses),    cmocka_unit_test(test_events),
        cmocka_unit_test(test_no_room),         cmocka_unit_test(test_unwritable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

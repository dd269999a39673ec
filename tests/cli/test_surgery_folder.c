/* engraft surgery: its folders are there whole or not at all, and know the shape that the surgery has run on. */
#include "command_support.h"

#include <sys/resource.h>
#include <sys/stat.h>

static const char model[] = "{\"class\": \"Sequential\", \"modules\": [{\"class\": \"Linear\", \"in_features\": 32, "
                            "\"out_features\": 32}, {\"class\": \"ReLU\"}]}";

/* Folders, finished or not, of that name. */
static size_t count_folders(const char *name)
{
    DIR *open = opendir(directory);
    assert_non_null(open);
    size_t n = 0;
    for (const struct dirent *entry; (entry = readdir(open)) != NULL;)
        n += strncmp(entry->d_name, name, strlen(name)) == 0;
    closedir(open);
    return n;
}

/* Files of at most `bytes`, for what the test starts. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void test_full_disk(void **state)
{
    (void)state;
    write_to("model.json", model);
    limit_files(2048); /* less than the weights take */
    outcome o = engraft("surgery apply @/model.json --method activation_swap --out @/after");
    limit_files(RLIM_INFINITY);
    expect_status("apply", &o, 1);
    expect_part("apply", o.err, "cannot write");
    outcome_free(o);
    assert_int_equal(count_folders("after"), 0);
    o = engraft("surgery apply @/model.json --method activation_swap --out @/after/");
    expect_status("apply", &o, 0);
    outcome_free(o);
    limit_files(2048);
    o = engraft("surgery undo @/after --out @/back");
    limit_files(RLIM_INFINITY);
    expect_status("undo", &o, 1);
    outcome_free(o);
    assert_int_equal(count_folders("back"), 0);
    engraft_fails("surgery apply @/model.json --method activation_swap --out @/nothing/after", 1, "cannot make");
}

/* As mkdir() would have made it. */
static void test_mode(void **state)
{
    (void)state;
    char path[TEMPORARY_PATH_SIZE];
    struct stat after, made;
    assert_int_equal(stat(temporary_path(directory, "after", path), &after), 0);
    assert_int_equal(mkdir(temporary_path(directory, "plain", path), 0777), 0);
    assert_int_equal(stat(path, &made), 0);
    assert_int_equal(after.st_mode, made.st_mode);
}

static void test_inputs(void **state)
{
    (void)state;
    outcome o = engraft("surgery apply @/model.json --method widen --input 32 --out @/wide");
    expect_status("apply", &o, 3); /* its output is fixed */
    outcome_free(o);
    o = engraft("surgery apply @/model.json --method activation_swap --input 32 --out @/shaped");
    expect_status("apply", &o, 0);
    outcome_free(o);
    o = engraft("surgery ls @/shaped");
    expect_part("ls", o.out, "(1, 32)");
    outcome_free(o);
    json_t *json = engraft_json("surgery cost @/shaped --repeats -1 --json");
    json_decref(json);
    o = engraft("surgery verify @/shaped --method layer_freezing");
    expect_status("verify", &o, 3); /* nothing to freeze, but the shape is known */
    outcome_free(o);
    static const char *const bad[] = {"{",
                                      "[]",
                                      "{\"inputs\": [[0, 1e9]]}",
                                      "{\"inputs\": [[1, 2], [3]]}",
                                      "{\"inputs\": [[1,1,1,1,1,1,1,1,1,1,1,1]]}",
                                      "{\"inputs\": [{\"a\": 1}]}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        write_to("shaped/surgery.json", bad[i]);
        o = engraft("surgery ls @/shaped");
        expect_status(bad[i], &o, 0);
        outcome_free(o);
        engraft_fails("surgery cost @/shaped", 1, "give --input");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_full_disk), cmocka_unit_test(test_mode),
                                       cmocka_unit_test(test_inputs)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

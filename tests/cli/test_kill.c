/* A search and a retraining that are killed at any moment and resumed come to the same bits. */
#include "cli_support.h"

#include <time.h>

static char *directory;

static int set_up(void **state)
{
    (void)state;
    directory = temporary_make();
    write_data(directory);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temporary_remove(directory);
    return 0;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void expect_success(const char *line)
{
    outcome o = run_program(directory, line);
    if (o.status != 0)
        fail_msg("engraft %s: exit status %d: %s", line, o.status, o.err);
    outcome_free(o);
}

/* Starts a command and kills it after that time; false when it had ended before. */
static bool kill_after(const char *line, double seconds)
{
    char out[TEMPORARY_PATH_SIZE], err[TEMPORARY_PATH_SIZE];
    pid_t child = start_program(line, temporary_path(directory, "stdout", out),
                                temporary_path(directory, "stderr", err), RLIM_INFINITY);
    usleep((useconds_t)(seconds * 1e6));
    kill(child, SIGKILL);
    int status = wait_program(child);
    if (status != 0 && status != 128 + SIGKILL) {
        char *text = slurp(err);
        fail_msg("engraft %s: exit status %d: %s", line, status, text);
    }
    return status != 0;
}

static void expect_same(const char *a, const char *b)
{
    char x[TEMPORARY_PATH_SIZE], y[TEMPORARY_PATH_SIZE], line[2 * TEMPORARY_PATH_SIZE + 16];
    snprintf(line, sizeof line, "cmp %s %s", temporary_path(directory, a, x), temporary_path(directory, b, y));
    assert_int_equal(system(line), 0);
}

enum { KILLS = 10 };

/* Runs `whole` to its end; then `piece` with kills at ten random moments, and a last time to its end. */
static void kill_and_resume(const char *whole, const char *piece)
{
    double start = now();
    expect_success(whole);
    double length = now() - start;
    srand(42);
    size_t killed = 0;
    for (int i = 0; i < KILLS;
         i++) /* each goes on from where the last was killed: a part of the whole time is enough */
        killed += kill_after(piece, length * (0.02 + 0.3 * (double)rand() / (double)RAND_MAX));
    expect_success(piece);
    assert_true(killed >= 3);
}

static void test_search(void **state)
{
    (void)state;
    char whole[2048], piece[2048];
    const char *common = "search --space cells --channels 4 --layers 2 --strategy spos --batch 8 --epochs 8 "
                         "--evaluations 12 --seed 3 --threads 1 "
                         "--checkpoint-seconds 0.01";
    snprintf(whole, sizeof whole, "%s --data idx:%s --out %s/whole", common, directory, directory);
    snprintf(piece, sizeof piece, "%s --data idx:%s --out %s/pieces --resume", common, directory, directory);
    kill_and_resume(whole, piece);
    expect_same("whole/arch.json", "pieces/arch.json");
}

static void test_darts_search(void **state)
{
    (void)state;
    char whole[2048], piece[2048];
    const char *common =
        "search --space cells --channels 4 --layers 2 --strategy darts --batch 8 --epochs 3 --seed 3 --threads 1 "
        "--checkpoint-seconds 0.01";
    snprintf(whole, sizeof whole, "%s --data idx:%s --out %s/dwhole", common, directory, directory);
    snprintf(piece, sizeof piece, "%s --data idx:%s --out %s/dpieces --resume", common, directory, directory);
    kill_and_resume(whole, piece);
    expect_same("dwhole/arch.json", "dpieces/arch.json");
}

static void test_retrain(void **state)
{
    (void)state;
    char whole[2048], piece[2048];
    snprintf(whole, sizeof whole,
             "search --space cells --channels 4 --layers 2 --strategy random --seed 3 --data idx:%s --out %s/random",
             directory, directory);
    expect_success(whole);
    const char *common = "--batch 8 --epochs 12 --threads 1 --checkpoint-seconds 0.01";
    snprintf(whole, sizeof whole, "retrain %s --run %s/random --out %s/rwhole", common, directory, directory);
    snprintf(piece, sizeof piece, "retrain %s --run %s/random --out %s/rpieces --resume", common, directory, directory);
    kill_and_resume(whole, piece);
    expect_same("rwhole/model.safetensors", "rpieces/model.safetensors");
    expect_same("rwhole/arch.json", "rpieces/arch.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_search),
        cmocka_unit_test(test_darts_search),
        cmocka_unit_test(test_retrain),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

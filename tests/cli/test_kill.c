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

static void expect_same(const char *whole, const char *pieces, const char *file)
{
    char line[3 * TEMPORARY_PATH_SIZE];
    snprintf(line, sizeof line, "cmp %s/%s/%s %s/%s/%s", directory, whole, file, directory, pieces, file);
    assert_int_equal(system(line), 0);
}

enum { KILLS = 10, STARTS = 100 };

/* What a command writes into `whole` without interruption, it writes into `pieces` too, however often it is killed. */
typedef struct job {
    const char *command; /* all but --out */
    const char *whole, *pieces;
    const char *const *files;
} job;

static void expect_same_files(const job *j)
{
    for (size_t i = 0; j->files[i]; i++)
        expect_same(j->whole, j->pieces, j->files[i]);
}

/* Kills at ten random moments. A run that came to its end before is compared, and another begun. */
static void kill_and_resume(const job *j)
{
    char whole[2048], piece[2048], begin_again[TEMPORARY_PATH_SIZE + 64];
    snprintf(whole, sizeof whole, "%s --out %s/%s", j->command, directory, j->whole);
    snprintf(piece, sizeof piece, "%s --out %s/%s --resume", j->command, directory, j->pieces);
    snprintf(begin_again, sizeof begin_again, "rm -rf %s/%s", directory, j->pieces);
    double start = now();
    expect_success(whole);
    double length = now() - start;
    srand(42);
    int killed = 0;
    for (int i = 0; killed < KILLS && i < STARTS; i++) {
        if (kill_after(piece, length * (0.02 + 0.6 * (double)rand() / (double)RAND_MAX))) {
            killed++;
        } else {
            expect_same_files(j);
            assert_int_equal(system(begin_again), 0);
        }
    }
    assert_int_equal(killed, KILLS);
    expect_success(piece);
    expect_same_files(j);
}

static void test_search(void **state)
{
    (void)state;
    char command[1024];
    snprintf(command, sizeof command,
             "search --space cells --channels 4 --layers 2 --strategy spos --batch 8 --epochs 40 --evaluations 40 "
             "--seed 3 --threads 1 --checkpoint-seconds 0.01 --data idx:%s",
             directory);
    const char *const files[] = {"arch.json", NULL};
    kill_and_resume(&(job){command, "whole", "pieces", files});
}

static void test_darts_search(void **state)
{
    (void)state;
    char command[1024];
    snprintf(command, sizeof command,
             "search --space cells --channels 4 --layers 2 --strategy darts --batch 8 --epochs 15 --seed 3 "
             "--threads 1 --checkpoint-seconds 0.01 --data idx:%s",
             directory);
    const char *const files[] = {"arch.json", NULL};
    kill_and_resume(&(job){command, "dwhole", "dpieces", files});
}

static void test_retrain(void **state)
{
    (void)state;
    char command[1024];
    snprintf(command, sizeof command,
             "search --space cells --channels 4 --layers 2 --strategy random --seed 3 --data idx:%s --out %s/random",
             directory, directory);
    expect_success(command);
    snprintf(command, sizeof command,
             "retrain --batch 8 --epochs 60 --threads 1 --checkpoint-seconds 0.01 --run %s/random", directory);
    const char *const files[] = {"model.safetensors", "arch.json", NULL};
    kill_and_resume(&(job){command, "rwhole", "rpieces", files});
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

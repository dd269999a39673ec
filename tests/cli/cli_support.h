/*
 * tests/cli/cli_support.h - runs the program and keeps what it says; a tiny data set in idx files.
 */
#ifndef EG_TESTS_CLI_SUPPORT_H
#define EG_TESTS_CLI_SUPPORT_H

#include "support.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#ifndef EG_PROGRAM
#define EG_PROGRAM "engraft"
#endif

typedef struct outcome {
    int status; /* exit status; 128 + number when a signal ended it */
    char *out, *err;
} outcome;

enum { MAX_ARGUMENTS = 48, OUTPUT_SIZE = 1 << 17 };

/* One command line as text, cut at spaces. Starts the program; its output goes to two files. */
static inline pid_t start_program(const char *line, const char *out, const char *err, rlim_t file_limit)
{
    char text[4096], *rest = text, *argv[MAX_ARGUMENTS] = {NULL};
    const char *program = getenv("ENGRAFT") ? getenv("ENGRAFT") : EG_PROGRAM;
    size_t n = 0;
    assert_true((size_t)snprintf(text, sizeof text, "%s", line) < sizeof text);
    char name[] = "engraft";
    argv[n++] = name;
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        assert_true(n + 1 < MAX_ARGUMENTS);
        argv[n++] = word;
    }
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0)
        return child;
    int to_out = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0666), to_err = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (to_out < 0 || to_err < 0 || dup2(to_out, STDOUT_FILENO) < 0 || dup2(to_err, STDERR_FILENO) < 0)
        _exit(126);
    if (file_limit != RLIM_INFINITY)
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){file_limit, RLIM_INFINITY});
    execv(program, argv);
    _exit(127);
}

static inline int wait_program(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static inline char *slurp(const char *path)
{
    char *text = calloc(OUTPUT_SIZE, 1);
    FILE *file = fopen(path, "rb");
    assert_true(text && file);
    size_t n = fread(text, 1, OUTPUT_SIZE - 1, file);
    assert_true(n < OUTPUT_SIZE - 1);
    fclose(file);
    return text;
}

static inline outcome run_limited(const char *directory, const char *line, rlim_t file_limit)
{
    char out[TEMPORARY_PATH_SIZE], err[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "stdout", out);
    temporary_path(directory, "stderr", err);
    int status = wait_program(start_program(line, out, err, file_limit));
    return (outcome){.status = status, .out = slurp(out), .err = slurp(err)};
}

static inline outcome run_program(const char *directory, const char *line)
{
    return run_limited(directory, line, RLIM_INFINITY);
}

static inline void outcome_free(outcome o)
{
    free(o.out);
    free(o.err);
}

/* ---- data ---- */

enum { SIDE = 8, LABELS = 3 };

static inline void put_u32(FILE *file, uint32_t value)
{
    const unsigned char bytes[] = {(unsigned char)(value >> 24), (unsigned char)(value >> 16),
                                   (unsigned char)(value >> 8), (unsigned char)value};
    assert_int_equal(fwrite(bytes, 1, 4, file), 4);
}

/* Noise with a bright row whose place is the label. */
static inline void write_idx(const char *directory, const char *images_name, const char *labels_name, uint32_t n)
{
    char path[TEMPORARY_PATH_SIZE];
    FILE *images = fopen(temporary_path(directory, images_name, path), "wb"),
         *labels = fopen(temporary_path(directory, labels_name, path), "wb");
    assert_true(images && labels);
    put_u32(images, 0x803), put_u32(images, n), put_u32(images, SIDE), put_u32(images, SIDE);
    put_u32(labels, 0x801), put_u32(labels, n);
    uint32_t noise = 12345;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t label = i % LABELS;
        fputc((int)label, labels);
        for (uint32_t k = 0; k < SIDE * SIDE; k++) {
            noise = noise * 1664525u + 1013904223u;
            fputc((int)((noise >> 24) % 96 + (k / SIDE == 2 * label + 1 ? 128 : 0)), images);
        }
    }
    assert_int_equal(fclose(images), 0);
    assert_int_equal(fclose(labels), 0);
}

static inline void write_data(const char *directory)
{
    write_idx(directory, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", 96);
    write_idx(directory, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 30);
}

#endif

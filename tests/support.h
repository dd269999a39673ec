/*
 * tests/support.h - what the tests share: cmocka, checks that show the library's own message, temporary directories.
 * Include it first: cmocka wants its standard headers before it.
 */
#ifndef EG_TESTS_SUPPORT_H
#define EG_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engraft/tensor.h"

#ifndef EG_SOURCE_DIR
#define EG_SOURCE_DIR "."
#endif

/** The status is EG_OK, or the test fails with the library's message. */
#define assert_ok(expression)                                                                                          \
    do {                                                                                                               \
        eg_status status_ = (expression);                                                                              \
        if (status_ != EG_OK)                                                                                          \
            fail_msg("%s: %s: %s", #expression, eg_status_name(status_), eg_error_last()->message);                    \
    } while (0)

/** The pointer is not NULL, or the test fails with the library's message. */
#define assert_made(pointer)                                                                                           \
    do {                                                                                                               \
        if (!(pointer))                                                                                                \
            fail_msg("%s is NULL: %s", #pointer, eg_error_last()->message);                                            \
    } while (0)

/** The last failure has that status, and its text contains `part`. Clears the record. */
#define assert_recorded(status, part)                                                                                  \
    do {                                                                                                               \
        assert_int_equal(eg_error_last()->code, (status));                                                             \
        if (!strstr(eg_error_last()->message, (part)))                                                                 \
            fail_msg("message \"%s\" does not contain \"%s\"", eg_error_last()->message, (part));                      \
        eg_error_clear();                                                                                              \
    } while (0)

/** The call returns that status, and its record says so. */
#define assert_fails(expression, status, part)                                                                         \
    do {                                                                                                               \
        assert_int_equal((expression), (status));                                                                      \
        assert_recorded((status), (part));                                                                             \
    } while (0)

/** The same for a call that returns a pointer. */
#define assert_refused(expression, status, part)                                                                       \
    do {                                                                                                               \
        if ((expression) != NULL)                                                                                      \
            fail_msg("%s: expected NULL", #expression);                                                                \
        assert_recorded((status), (part));                                                                             \
    } while (0)

#define assert_close(a, b, tolerance)                                                                                  \
    do {                                                                                                               \
        double a_ = (a), b_ = (b);                                                                                     \
        if (!(fabs(a_ - b_) <= (tolerance)))                                                                           \
            fail_msg("%s is %.9g, expected %.9g", #a, a_, b_);                                                         \
    } while (0)

/** The tensor's numbers in logical row-major order are those. */
static inline void assert_numbers(const eg_tensor *t, const float *expected, size_t n, double tolerance)
{
    float *got = calloc(n + 1, sizeof *got);
    assert_non_null(got);
    assert_ok(eg_tensor_read(t, got, n));
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)expected[i]) <= tolerance))
            fail_msg("number %zu is %.9g, expected %.9g", i, (double)got[i], (double)expected[i]);
    free(got);
}

#define assert_tensor(t, tolerance, ...)                                                                               \
    assert_numbers((t), (const float[]){__VA_ARGS__}, sizeof((const float[]){__VA_ARGS__}) / sizeof(float), (tolerance))

/** A fresh directory; temporary_remove() removes it and frees the name. */
static inline char *temporary_make(void)
{
    const char *base = getenv("TMPDIR");
    char *path = calloc(1, 512);
    assert_non_null(path);
    snprintf(path, 512, "%s/engraft-test-XXXXXX", base && base[0] ? base : "/tmp");
    assert_non_null(mkdtemp(path));
    return path;
}

static inline void temporary_remove_tree(const char *path)
{
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        char child[1024];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if ((size_t)snprintf(child, sizeof child, "%s/%s", path, entry->d_name) < sizeof child)
            temporary_remove_tree(child);
    }
    if (directory)
        closedir(directory);
    remove(path);
}

static inline void temporary_remove(char *path)
{
    temporary_remove_tree(path);
    free(path);
}

/** The path of a file in a directory, written into `text` of TEMPORARY_PATH_SIZE bytes. */
#define TEMPORARY_PATH_SIZE 1024
static inline const char *temporary_path(const char *directory, const char *name, char *text)
{
    assert_true((size_t)snprintf(text, TEMPORARY_PATH_SIZE, "%s/%s", directory, name) < TEMPORARY_PATH_SIZE);
    return text;
}

/** How many entries a directory has. */
static inline size_t directory_count(const char *path)
{
    size_t n = 0;
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(directory);
    return n;
}

#endif

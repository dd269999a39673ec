/*
 * tests/cli/command_support.h - whole commands in one directory a file of tests, and what is expected of them.
 */
#ifndef EG_TESTS_CLI_COMMAND_SUPPORT_H
#define EG_TESTS_CLI_COMMAND_SUPPORT_H

#include "cli_support.h"

static char *directory; /* with the data and all runs of this file */

static inline int set_up(void **state)
{
    (void)state;
    directory = temporary_make();
    write_data(directory);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    temporary_remove(directory);
    return 0;
}

/* Runs a command in which every @ stands for the directory. */
static inline outcome engraft(const char *pattern)
{
    char line[4096] = "";
    for (const char *p = pattern; *p; p++) {
        size_t len = strlen(line);
        snprintf(line + len, sizeof line - len, *p == '@' ? "%s" : "%.1s", *p == '@' ? directory : p);
    }
    return run_program(directory, line);
}

static inline void expect_status(const char *pattern, const outcome *o, int status)
{
    if (o->status != status)
        fail_msg("engraft %s: exit status %d, expected %d: %s", pattern, o->status, status, o->err);
}

static inline void expect_part(const char *pattern, const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("engraft %s: \"%s\" does not contain \"%s\"", pattern, text, part);
}

/* A command that succeeds and prints one JSON object and nothing else. */
static inline json_t *engraft_json(const char *pattern)
{
    outcome o = engraft(pattern);
    expect_status(pattern, &o, 0);
    json_t *json = json_loads(o.out, 0, NULL);
    if (!json_is_object(json))
        fail_msg("engraft %s: not one JSON object: %s", pattern, o.out);
    outcome_free(o);
    return json;
}

/* A command that fails with a single line. */
static inline void engraft_fails(const char *pattern, int status, const char *part)
{
    outcome o = engraft(pattern);
    expect_status(pattern, &o, status);
    expect_part(pattern, o.err, part);
    assert_string_equal(o.out, "");
    const char *end = strchr(o.err, '\n');
    if (strncmp(o.err, "engraft", 7) != 0 || !end || end[1] != '\0')
        fail_msg("engraft %s: not one line: %s", pattern, o.err);
    outcome_free(o);
}

#define SEARCH "search --space cells --data idx:@ --channels 4 --layers 2 --batch 16 --threads 1 --seed 3 "

static inline void write_to(const char *name, const char *text)
{
    char path[TEMPORARY_PATH_SIZE];
    FILE *file = fopen(temporary_path(directory, name, path), "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

#endif

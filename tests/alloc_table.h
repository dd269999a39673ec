/*
 * tests/alloc_table.h - tables of functions, each tried with every allocation that it makes failing in turn, and the
 * check that a table leaves out nothing that a header promises.
 *
 * A trial makes a fresh world, fails the n-th allocation of the row (that one alone, then also all after it), checks
 * that the world is as it was, and runs the row again without failures in the same world. Leaks are found by the
 * sanitizer, those of tensors also by counting bytes.
 */
#ifndef EG_TESTS_ALLOC_TABLE_H
#define EG_TESTS_ALLOC_TABLE_H

#include "support_alloc.h"

#include "engraft/autograd.h"

#include <ctype.h>
#include <jansson.h>

/** The head of every world: what a row works on. */
typedef struct alloc_world {
    eg_context *ctx;
    eg_tape *tape;
} alloc_world;

typedef struct alloc_row {
    const char *covers;               /* names of functions and classes, separated by spaces */
    eg_status (*work)(void *payload); /* of a world; leaves it as it was */
    bool parses;                      /* JSON, see alloc_for_jansson() */
} alloc_row;

typedef struct alloc_table {
    const char *backend;
    size_t world_size;
    void (*setup)(void *world);    /* after the context was made */
    void (*teardown)(void *world); /* before it is freed */
    void (*check)(void *world);    /* after a failure */
    const alloc_row *rows;
    size_t n_rows;
    long dense; /* so many allocations of a row are all tried, of more only some */
} alloc_table;

/** What a constructor returned, as a status. */
static inline eg_status alloc_made(const void *made)
{
    return made ? EG_OK : eg_error_last()->code;
}

static inline void *alloc_world_new(const alloc_table *table)
{
    alloc_world *world = calloc(1, table->world_size);
    assert_non_null(world);
    world->ctx = eg_context_new(.seed = 7, .threads = 1, .backend = table->backend);
    assert_made(world->ctx);
    world->tape = eg_tape_begin(world->ctx, EG_NO_GRAD);
    assert_made(world->tape);
    table->setup(world);
    return world;
}

static inline void alloc_world_free(const alloc_table *table, void *payload)
{
    alloc_world *world = payload;
    table->teardown(world);
    eg_tape_end(world->tape);
    if (strcmp(table->backend, "ref") == 0) /* the fast kernels keep scratch memory in the context */
        assert_int_equal(eg_context_get_stats(world->ctx).bytes_in_use, 0);
    eg_context_free(world->ctx);
    free(world);
}

/* jansson's writer copes with want of memory, its parser does not: it drops characters, or asserts. */
static bool alloc_spare_jansson = false;

static void *alloc_for_jansson(size_t size)
{
    return alloc_spare_jansson ? __real_malloc(size) : malloc(size);
}

static inline bool alloc_failed_well(eg_status status)
{
    return status == EG_ENOMEM && eg_error_last()->code == EG_ENOMEM && eg_error_first()->code == EG_ENOMEM;
}

/* One trial; returns how many allocations failed. */
static inline long alloc_try(const alloc_table *table, const alloc_row *row, long n, bool all_after)
{
    alloc_world *world = alloc_world_new(table);
    eg_tape *tape = eg_tape_begin(world->ctx, EG_NO_GRAD);
    assert_made(tape);
    eg_error_clear();
    alloc_fail_all = all_after;
    alloc_failures = 0;
    alloc_spare_jansson = row->parses;
    alloc_countdown = n;
    eg_status status = row->work(world);
    alloc_countdown = -1;
    long failures = alloc_failures;
    eg_tape_end(tape);
    if (status != EG_OK && (failures == 0 || !alloc_failed_well(status)))
        fail_msg("%s, allocation %ld%s: returned %s, last failure (%s, in %s): %s, first: %s", row->covers, n,
                 all_after ? " and all after" : "", eg_status_name(status), eg_status_name(eg_error_last()->code),
                 eg_error_last()->where, eg_error_last()->message, eg_error_first()->message);
    eg_error_clear();
    table->check(world);
    tape = eg_tape_begin(world->ctx, EG_NO_GRAD);
    if (failures > 0 && row->work(world) != EG_OK)
        fail_msg("%s, after allocation %ld%s had failed: %s", row->covers, n, all_after ? " and all after" : "",
                 eg_error_last()->message);
    eg_tape_end(tape);
    table->check(world);
    alloc_world_free(table, world);
    return failures;
}

/* All of the first `dense`, then ever fewer: long works repeat themselves. */
static inline long alloc_next(long n, long dense)
{
    return n + 1 + (n < dense ? 0 : n * 8 / dense);
}

/** One test for each row: { row.covers, alloc_test_row, NULL, NULL, &target }. */
typedef struct alloc_target {
    const alloc_table *table;
    const alloc_row *row;
} alloc_target;

static inline void alloc_test_row(void **state)
{
    const alloc_target *target = *state;
    for (int all_after = 0; all_after < 2; all_after++) {
        long n = 0;
        while (alloc_try(target->table, target->row, n, all_after) > 0)
            n = alloc_next(n, target->table->dense);
        assert_true(n > 0); /* a row that allocates nothing tries nothing */
    }
}

/** Fills tests[n_rows] and targets[n_rows]. */
static inline void alloc_make_tests(const alloc_table *table, struct CMUnitTest *tests, alloc_target *targets)
{
    for (size_t i = 0; i < table->n_rows; i++) {
        targets[i] = (alloc_target){table, &table->rows[i]};
        tests[i] = (struct CMUnitTest){table->rows[i].covers, alloc_test_row, NULL, NULL, &targets[i]};
    }
}

/* ---- completeness ---- */

/* Whether a list of names separated by spaces holds this one. */
static inline bool alloc_listed(const char *list, const char *name, size_t length)
{
    for (const char *at = list; *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (strcspn(at, " ") == length && strncmp(at, name, length) == 0)
            return true;
    return false;
}

static inline void alloc_check_name(const alloc_table *table, const char *lent, const char *name, size_t length)
{
    bool found = alloc_listed(lent, name, length);
    for (size_t i = 0; i < table->n_rows && !found; i++)
        found = alloc_listed(table->rows[i].covers, name, length);
    if (!found)
        fail_msg("%.*s is in no row, nor said to lend", (int)length, name);
}

/* Every "eg_.._class" of a declaration. */
static inline void alloc_check_classes(const alloc_table *table, const char *lent, const char *from, const char *to)
{
    while (from < to) {
        size_t length = 0;
        while (from + length < to && (isalnum((unsigned char)from[length]) || from[length] == '_'))
            length++;
        if (length > 10 && strncmp(from, "eg_", 3) == 0 && strncmp(from + length - 6, "_class", 6) == 0)
            alloc_check_name(table, lent, from, length);
        from += length + 1;
    }
}

/** Every function of a public header that returns a pointer to something not const, and every module class, is in a
 *  row or in `lent`: names of those that hand over nothing. */
static inline void alloc_check_complete(const alloc_table *table, const char *header, const char *lent)
{
    char path[TEMPORARY_PATH_SIZE], *text = calloc(1, 1 << 18);
    snprintf(path, sizeof path, "%s/include/engraft/%s", EG_SOURCE_DIR, header);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("cannot open %s", path);
    size_t size = fread(text, 1, (1 << 18) - 1, file), n = 0;
    assert_true(size > 0 && feof(file));
    fclose(file);
    for (char *at = text; (at = strstr(at, "\nEG_API ")); n++) {
        at += 8;
        char *end = strchr(at, ';'), *open = memchr(at, '(', (size_t)(end - at));
        if (strncmp(at, "extern const eg_class ", 22) == 0)
            alloc_check_classes(table, lent, at + 22, end);
        char *star = open ? memchr(at, '*', (size_t)(open - at)) : NULL;
        if (star && strncmp(at, "const ", 6) != 0)
            alloc_check_name(table, lent, star + 1, (size_t)(open - star - 1));
    }
    assert_true(n > 0);
    free(text);
}

/** For main(): each tensor is an allocation, and jansson's memory fails like ours. */
static inline bool alloc_prepare(void)
{
    json_set_alloc_funcs(alloc_for_jansson, free);
    return setenv("EG_POOL", "off", 1) == 0;
}

#endif

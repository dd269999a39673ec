/*
 * tests/support_alloc.h - makes the n-th allocation fail. For executables linked with
 * -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=strdup; include it in one file of each.
 */
#ifndef EG_TESTS_SUPPORT_ALLOC_H
#define EG_TESTS_SUPPORT_ALLOC_H

#include "support.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Allocations until the failing one; negative: none fails. Only that one fails, or also all after it. Atomic because
 * the library's threads allocate as well. */
static atomic_long alloc_countdown = -1;
static atomic_bool alloc_fail_all = false;
static atomic_long alloc_failures = 0;

static inline bool alloc_should_fail(void)
{
    long left = alloc_countdown;
    while (left >= 0 && !atomic_compare_exchange_weak(&alloc_countdown, &left,
                                                      left > 0         ? left - 1
                                                      : alloc_fail_all ? 0
                                                                       : -1))
        ;
    if (left == 0)
        alloc_failures++;
    return left == 0;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t size)
{
    return alloc_should_fail() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return alloc_should_fail() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    return alloc_should_fail() ? NULL : __real_realloc(memory, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return alloc_should_fail() ? NULL : __real_aligned_alloc(alignment, size);
}

char *__wrap_strdup(const char *text)
{
    return alloc_should_fail() ? NULL : __real_strdup(text);
}

/** Work to be tried with each allocation failing in turn: returns what the library said. */
typedef eg_status (*alloc_work)(void *payload);

/** Runs `work` with the first, second, .. allocation failing until it gets by without one. Each failure must be ENOMEM,
 *  recorded as such. Returns how many allocations were made to fail. */
static inline long assert_survives_allocation_failures(alloc_work work, void *payload, bool all_after)
{
    for (long n = 0; n < 100000; n++) {
        eg_error_clear();
        alloc_fail_all = all_after;
        alloc_failures = 0;
        alloc_countdown = n;
        eg_status status = work(payload);
        alloc_countdown = -1;
        if (alloc_failures == 0) {
            assert_ok(status);
            return n;
        }
        if (status != EG_OK) { /* it may also have found another way */
            assert_int_equal(status, EG_ENOMEM);
            assert_int_equal(eg_error_last()->code, EG_ENOMEM);
            assert_int_equal(eg_error_first()->code, EG_ENOMEM);
        }
    }
    fail_msg("still failing after 100000 allocations");
    return -1;
}

#endif

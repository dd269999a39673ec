/*
 * base/context.h - the struct behind eg_context; for context.c and pool.c only.
 */
#ifndef EG_BASE_CONTEXT_H
#define EG_BASE_CONTEXT_H

#include "base/internal.h"

#include <stdatomic.h>

/* Size classes: multiples of 64 bytes up to 4 KiB, then four steps a power of two. */
enum { EG__POOL_SMALL_CLASSES = 64, EG__POOL_CLASSES = EG__POOL_SMALL_CLASSES + 4 * 36 };

typedef struct eg__pool_free {
    struct eg__pool_free *next;
} eg__pool_free;

typedef struct eg__pool {
    bool enabled;
    size_t high_water; /* most bytes in use ever */
    eg__pool_free *free[EG__POOL_CLASSES];
} eg__pool;

struct eg_context {
    uint64_t seed;
    eg_rng rng;
    int threads;
    const char *backend;
    eg_log_fn log;
    void *log_payload;
    atomic_bool canceled;
    uint64_t next_key;
    eg_context_stats stats;
    struct {
        void *state;
        void (*destroy)(eg_context *ctx, void *state);
    } slots[EG__SLOT_COUNT];
    eg__pool pool;
};

void eg__pool_init(eg_context *ctx);
/** Gives all unused buffers back to the system. */
void eg__pool_trim(eg_context *ctx);

#endif

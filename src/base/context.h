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
    bool lasting;      /* what is taken now stays longer than a step */
    size_t high_water; /* most bytes in use ever */
    eg__pool_free *free[EG__POOL_CLASSES];
} eg__pool;

struct eg_context {
    uint64_t seed;
    eg_rng rng;
    int threads;
    const char *backend;
    bool emulates_bf16;
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
    size_t max_memory;   /* of bytes_in_use; 0 = none */
    struct eg__dry *dry; /* NULL: buffers are what they are */
};

void eg__pool_init(eg_context *ctx);
/** Gives all unused buffers back to the system. */
void eg__pool_trim(eg_context *ctx);
/** The size of the buffers that serve a size, and (with the pool enabled) the number of their class. */
size_t eg__pool_class(const eg_context *ctx, size_t size, size_t *index);
/** Whether unused buffers are given back before a new one is made. */
bool eg__pool_is_full(size_t reserved, size_t high_water);

/** Whether a buffer may be one of the unused ones. */
bool eg__pool_reuses(const eg_context *ctx);

/** The pool's functions while memory is predicted. give() says whether the buffer was one of take()'s; else it goes
 * back to the pool as well. */
void *eg__dry_take(eg_context *ctx, size_t size);
bool eg__dry_give(eg_context *ctx, void *buffer, size_t size);

#endif

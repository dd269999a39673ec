/*
 * base/dry.c - what a piece of work would take from the pool, found out by doing it with addresses that have no memory
 * behind them: a range of the address space that is reserved and given out from its beginning on. It is full of zeros.
 * The lists of unused buffers are counters here; the rules are the pool's. Kernels do nothing meanwhile, and what other
 * code writes gets pages of zeros as it is touched.
 */
#include "base/context.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define RANGE ((size_t)1 << 43)
#define SMALL ((size_t)1 << 16)

struct eg__dry {
    char *base;
    size_t used;
    size_t unused[EG__POOL_CLASSES]; /* buffers of each class */
    size_t in_use, reserved, high_water;
    eg__dry_result result;
};

eg_status eg__dry_begin(eg_context *ctx)
{
    EG_CHECK(!ctx->dry, EG_EINVAL, "memory is being predicted already");
    struct eg__dry *dry = eg__calloc(1, sizeof *dry);
    if (!dry)
        return EG_ENOMEM;
    dry->base = mmap(NULL, RANGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (dry->base == MAP_FAILED) {
        free(dry);
        return eg_fail(EG_ENOMEM, "memory cannot be predicted: the system gives no range of addresses for it");
    }
    for (size_t i = 0; i < EG__POOL_CLASSES; i++)
        for (const eg__pool_free *buffer = ctx->pool.free[i]; buffer; buffer = buffer->next)
            dry->unused[i]++;
    dry->in_use = ctx->stats.bytes_in_use;
    dry->reserved = ctx->stats.bytes_reserved;
    dry->high_water = ctx->pool.high_water;
    dry->result = (eg__dry_result){.in_use = dry->in_use, .reserved = dry->reserved};
    ctx->dry = dry;
    return EG_OK;
}

eg__dry_result eg__dry_end(eg_context *ctx)
{
    struct eg__dry *dry = ctx->dry;
    eg__dry_result result = dry->result;
    munmap(dry->base, RANGE);
    free(dry);
    ctx->dry = NULL;
    return result;
}

eg__dry_result eg__dry_end_step(eg_context *ctx)
{
    struct eg__dry *dry = ctx->dry;
    eg__dry_result result = dry->result;
    dry->result.taken = 0;
    madvise(dry->base, dry->used, MADV_DONTNEED); /* where that fails, memory is needed and not wrong */
    return result;
}

bool eg__is_dry(const eg_context *ctx)
{
    return ctx->dry != NULL;
}

void *eg__dry_take(eg_context *ctx, size_t size)
{
    struct eg__dry *dry = ctx->dry;
    size_t index, class_size = eg__pool_class(ctx, size, &index);
    if (class_size > RANGE - dry->used)
        return NULL;
    char *buffer = dry->base + dry->used;
    dry->used += class_size;
    dry->result.taken += class_size;
    if (eg__pool_reuses(ctx) && dry->unused[index] > 0) {
        dry->unused[index]--;
    } else {
        if (eg__pool_is_full(dry->reserved, dry->high_water)) {
            for (size_t i = 0; i < EG__POOL_CLASSES; i++)
                dry->unused[i] = 0;
            dry->reserved = dry->in_use;
        }
        dry->reserved += class_size;
    }
    dry->in_use += class_size;
    dry->high_water = EG_MAX(dry->high_water, dry->in_use);
    dry->result.in_use = EG_MAX(dry->result.in_use, dry->in_use);
    dry->result.reserved = EG_MAX(dry->result.reserved, dry->reserved);
    return buffer;
}

bool eg__dry_give(eg_context *ctx, void *buffer, size_t size)
{
    struct eg__dry *dry = ctx->dry;
    size_t index, class_size = eg__pool_class(ctx, size, &index);
    if (ctx->pool.enabled)
        dry->unused[index]++;
    else
        dry->reserved -= class_size;
    dry->in_use -= class_size;
    if ((uintptr_t)buffer - (uintptr_t)dry->base >= RANGE)
        return false;
    if (class_size <= SMALL && (char *)buffer + class_size == dry->base + dry->used) {
        memset(buffer, 0,
               class_size); /* what is written meanwhile is mostly short-lived workspaces: the same pages again */
        dry->used -= class_size;
    }
    return true;
}

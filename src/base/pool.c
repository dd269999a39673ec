/*
 * base/pool.c - buffers for tensors. A fresh large buffer costs far more in page faults than the work done in it, so
 * returned ones are kept, a list a size class.
 */
#include "base/context.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNMENT = 64, SMALL_MAX = ALIGNMENT * EG__POOL_SMALL_CLASSES };

/* Below this, unused buffers are never given back. */
static const size_t slack = (size_t)64 << 20;

/* Pages of this size spare large tensors most of the work of translating addresses. */
static const size_t huge_page = (size_t)2 << 20;

/* More than any process has; so the arithmetic on sizes cannot overflow. */
static const uint64_t address_space = UINT64_C(1) << 47;

void eg__pool_init(eg_context *ctx)
{
    const char *setting = getenv("EG_POOL");
    ctx->pool.enabled = !setting || strcmp(setting, "off") != 0;
}

bool eg__pool_enabled(const eg_context *ctx)
{
    return ctx->pool.enabled;
}

bool eg__pool_lasting(eg_context *ctx, bool lasting)
{
    bool before = ctx->pool.lasting;
    ctx->pool.lasting = lasting;
    return before;
}

bool eg__pool_reuses(const eg_context *ctx)
{
    return ctx->pool.enabled && !ctx->pool.lasting;
}

/* The class of a size, and the size of its buffers. */
static size_t class_of(size_t size, size_t *class_size)
{
    if (size <= SMALL_MAX) {
        size_t index = size == 0 ? 0 : (size - 1) / ALIGNMENT;
        *class_size = (index + 1) * ALIGNMENT;
        return index;
    }
    unsigned log2 = 12; /* of the power of two below `size`; SMALL_MAX is 2^12 */
    while ((size - 1) >> (log2 + 1) != 0)
        log2++;
    size_t quarter = ((size - 1) >> (log2 - 2)) & 3;
    *class_size = (quarter + 5) << (log2 - 2);
    return EG__POOL_SMALL_CLASSES + (log2 - 12) * 4 + quarter;
}

static size_t round_up(size_t size)
{
    return size == 0 ? ALIGNMENT : (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void eg__pool_trim(eg_context *ctx)
{
    for (size_t i = 0; i < EG__POOL_CLASSES; i++)
        while (ctx->pool.free[i]) {
            eg__pool_free *buffer = ctx->pool.free[i];
            ctx->pool.free[i] = buffer->next;
            free(buffer);
        }
    ctx->stats.bytes_reserved = ctx->stats.bytes_in_use;
}

size_t eg__pool_class(const eg_context *ctx, size_t size, size_t *index)
{
    size_t class_size = round_up(size);
    *index = ctx->pool.enabled ? class_of(size, &class_size) : 0;
    return class_size;
}

/* Work on ever new sizes would pile up unused buffers: keep at most as much again as was ever in use. */
bool eg__pool_is_full(size_t reserved, size_t high_water)
{
    return reserved > 2 * high_water + slack;
}

/* A large one begins where a huge page does, and asks the system for such pages: memory is read a quarter faster then.
 * Only for what the first user fills, so that the rest of the class takes no memory. */
static void *allocate(const eg_context *ctx, size_t size, size_t used)
{
    if (!ctx->pool.enabled || size < huge_page)
        return aligned_alloc(ALIGNMENT, size);
    void *buffer = aligned_alloc(huge_page, (size + huge_page - 1) / huge_page * huge_page);
#ifdef MADV_HUGEPAGE
    if (buffer)
        madvise(buffer, used / huge_page * huge_page, MADV_HUGEPAGE); /* where that fails, pages are small */
#endif
    return buffer;
}

static void *from_system(eg_context *ctx, size_t size, size_t used)
{
    if (eg__pool_is_full(ctx->stats.bytes_reserved, ctx->pool.high_water))
        eg__pool_trim(ctx);
    void *buffer = allocate(ctx, size, used);
    if (!buffer && ctx->stats.bytes_reserved > ctx->stats.bytes_in_use) {
        eg__pool_trim(ctx);
        buffer = allocate(ctx, size, used);
    }
    if (buffer) {
        ctx->stats.system_allocations++;
        ctx->stats.bytes_reserved += size;
    }
    return buffer;
}

void *eg__pool_take(eg_context *ctx, size_t size)
{
    if ((uint64_t)size > address_space) {
        eg_fail(EG_ENOMEM, "out of memory: a buffer of %zu bytes", size);
        return NULL;
    }
    size_t index, class_size = eg__pool_class(ctx, size, &index);
    if (ctx->max_memory && !ctx->dry && class_size + ctx->stats.bytes_in_use > ctx->max_memory) {
        eg_fail(EG_ENOMEM, "out of memory: a buffer of %zu bytes beside %zu in use, of %zu that the context may take",
                size, ctx->stats.bytes_in_use, ctx->max_memory);
        return NULL;
    }
    void *buffer = eg__pool_reuses(ctx) && !ctx->dry ? ctx->pool.free[index] : NULL;
    if (ctx->dry)
        buffer = eg__dry_take(ctx, size);
    else if (buffer)
        ctx->pool.free[index] = ctx->pool.free[index]->next;
    else
        buffer = from_system(ctx, class_size, size);
    if (!buffer) {
        eg_fail(EG_ENOMEM, "out of memory: a buffer of %zu bytes", size);
        return NULL;
    }
    if (ctx->dry)
        return buffer;
    eg_context_stats *stats = &ctx->stats;
    stats->bytes_in_use += class_size;
    stats->bytes_peak = EG_MAX(stats->bytes_peak, stats->bytes_in_use);
    ctx->pool.high_water = EG_MAX(ctx->pool.high_water, stats->bytes_in_use);
    return buffer;
}

void eg__pool_give(eg_context *ctx, void *buffer, size_t size)
{
    if (!buffer || (ctx->dry && eg__dry_give(ctx, buffer, size)))
        return;
    size_t index, class_size = eg__pool_class(ctx, size, &index);
    if (ctx->pool.enabled) {
        eg__pool_free *unused = buffer;
        unused->next = ctx->pool.free[index];
        ctx->pool.free[index] = unused;
    } else {
        free(buffer);
        ctx->stats.bytes_reserved -= class_size;
    }
    ctx->stats.bytes_in_use -= class_size;
}

/*
 * base/context.c - everything that would otherwise be global.
 */
#include "base/context.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* More than any machine that this is meant for; the OpenMP run-time ends the process when it cannot have as many as it
 * is asked for, so a slip of the pen must not get there. */
enum { MAX_THREADS = 1024 };

/* Processors, or what the user set for OpenMP programs in general. */
static int default_threads(void)
{
    const char *setting = getenv("OMP_NUM_THREADS");
    long n = setting ? strtol(setting, NULL, 10) : 0;
    if (n < 1 || n > MAX_THREADS)
        n = omp_get_num_procs();
    return (int)EG_MAX(1, EG_MIN(n, MAX_THREADS));
}

static const char *find_backend(const char *name)
{
    static const char *const backends[] = {"dnnl", "ref"};
    for (size_t i = 0; name && i < EG_COUNT(backends); i++)
        if (strcmp(name, backends[i]) == 0)
            return backends[i];
    if (!name)
        return backends[0];
    eg_fail(EG_EINVAL, "backend '%s' is not known, expected 'dnnl' or 'ref'", name);
    return NULL;
}

eg_context *eg_context_new_with(const eg_context_options *options)
{
    eg_context_options own;
    if (eg__options_copy(&own, sizeof own, options) != EG_OK)
        return NULL;
    if (own.threads < 0 || own.threads > MAX_THREADS) {
        eg_fail(EG_EINVAL, "threads is %d, expected 0 (all processors) to %d", own.threads, MAX_THREADS);
        return NULL;
    }
    const char *backend = find_backend(own.backend);
    eg_context *ctx = backend ? eg__calloc(1, sizeof *ctx) : NULL;
    if (!ctx)
        return NULL;
    ctx->seed = own.seed;
    ctx->rng = eg_rng_make(own.seed, "context", 0);
    ctx->threads = own.threads ? own.threads : default_threads();
    ctx->backend = backend;
    ctx->log = own.log;
    ctx->log_payload = own.log_payload;
    ctx->max_memory = own.max_memory;
    ctx->next_key = 1;
    atomic_init(&ctx->canceled, false);
    const char *bf16 = getenv("EG_BF16");
    ctx->emulates_bf16 = bf16 && strcmp(bf16, "emulate") == 0;
    eg__pool_init(ctx);
    return ctx;
}

void eg_context_free(eg_context *ctx)
{
    if (!ctx)
        return;
    for (size_t i = EG__SLOT_COUNT; i-- > 0;) {
        void *state = ctx->slots[i].state;
        if (state && ctx->slots[i].destroy)
            ctx->slots[i].destroy(ctx, state);
        ctx->slots[i].state = NULL;
        free(state);
    }
    eg__pool_trim(ctx);
    free(ctx);
}

int eg_context_threads(const eg_context *ctx)
{
    return ctx ? ctx->threads : 0;
}

uint64_t eg_context_seed(const eg_context *ctx)
{
    return ctx ? ctx->seed : 0;
}

void eg_context_cancel(eg_context *ctx)
{
    if (ctx)
        atomic_store(&ctx->canceled, true);
}

void eg_context_resume(eg_context *ctx)
{
    if (ctx)
        atomic_store(&ctx->canceled, false);
}

bool eg_context_canceled(const eg_context *ctx)
{
    return ctx && atomic_load(&ctx->canceled);
}

void eg_log(eg_context *ctx, eg_log_level level, const char *format, ...)
{
    if (!ctx || !ctx->log)
        return;
    char text[1024];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length >= 0)
        ctx->log(ctx->log_payload, level, text);
}

eg_context_stats eg_context_get_stats(const eg_context *ctx)
{
    return ctx ? ctx->stats : (eg_context_stats){0};
}

void eg_context_reset_peak(eg_context *ctx)
{
    if (ctx)
        ctx->stats.bytes_peak = ctx->stats.bytes_in_use;
}

int eg_exit_status(eg_context *ctx)
{
    eg_context_free(ctx);
    const eg_error *error = eg_error_first();
    if (error->code == EG_OK || error->code == EG_EDONE)
        return 0;
    fprintf(stderr, "error: %s (%s in %s)\n", error->message, eg_status_name(error->code), error->where);
    return 1;
}

eg_rng *eg_context_rng(eg_context *ctx)
{
    return ctx ? &ctx->rng : eg__null(__func__, "context");
}

void *eg__context_slot(eg_context *ctx, eg__slot slot, size_t size, void (*destroy)(eg_context *ctx, void *state))
{
    if (!ctx->slots[slot].state) {
        ctx->slots[slot].state = eg__calloc(1, size);
        ctx->slots[slot].destroy = destroy;
    }
    return ctx->slots[slot].state;
}

void *eg__context_peek(const eg_context *ctx, eg__slot slot)
{
    return ctx->slots[slot].state;
}

const char *eg__context_backend(const eg_context *ctx)
{
    return ctx->backend;
}

bool eg__context_emulates_bf16(const eg_context *ctx)
{
    return ctx->emulates_bf16;
}

uint64_t eg__context_next_key(eg_context *ctx)
{
    return ctx->next_key++;
}

uint64_t eg__context_set_next_key(eg_context *ctx, uint64_t next)
{
    uint64_t before = ctx->next_key;
    ctx->next_key = next;
    return before;
}

void eg__context_reset_keys(eg_context *ctx)
{
    ctx->next_key = 1;
}

eg_context_stats *eg__context_stats(eg_context *ctx)
{
    return &ctx->stats;
}

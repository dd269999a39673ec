/** @file
 * engraft/base.h - contexts, errors, random numbers: what every other layer stands on.
 *
 * Ownership, in one sentence: what a `_new`, `_load` or `_clone` function or an out-parameter hands over is the
 * caller's to release; getters lend; containers keep what they are given, also when they fail; and every tensor that a
 * function returns belongs to the current tape or scope (see autograd.h) until eg_tensor_keep() takes it out.
 *
 * And NULL, in all headers, where nothing else is said: a NULL object or required argument is a failure that came
 * before or is one now (EINVAL). Functions that return a pointer return NULL, those that return eg_status fail; a
 * failure that is pending is kept. Functions that count or ask give 0, false or an empty shape, and those that free do
 * nothing. Functions that make something may fail with ENOMEM.
 */
#ifndef ENGRAFT_BASE_H
#define ENGRAFT_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The version of the headers; eg_version() is the library's. */
#define EG_VERSION_MAJOR 0
#define EG_VERSION_MINOR 1
#define EG_VERSION_PATCH 0
#define EG_VERSION_STRING "0.1.0"

#if defined(__GNUC__)
#define EG_API __attribute__((visibility("default")))
#define EG_PRINTF(format_index, first_arg) __attribute__((format(printf, format_index, first_arg)))
#else
#define EG_API
#define EG_PRINTF(format_index, first_arg)
#endif

/** The version of the library that runs, "major.minor.patch". Never NULL. */
EG_API const char *eg_version(void);

/* ---------------------------------------------------------------------------------------------- errors */

/** Every status with the word that messages use for it; the enum and eg_status_name() are made from this list. */
#define EG_STATUS_LIST(X)                                                                                              \
    X(OK, "ok")                                                                                                        \
    X(EINVAL, "invalid argument")                                                                                      \
    X(ESHAPE, "shape mismatch")                                                                                        \
    X(EDTYPE, "wrong data type")                                                                                       \
    X(ENOENT, "not found")                                                                                             \
    X(EIO, "input/output error")                                                                                       \
    X(EFORMAT, "malformed data")                                                                                       \
    X(ENOMEM, "out of memory")                                                                                         \
    X(EUNSUPPORTED, "not supported")                                                                                   \
    X(ECANCELED, "canceled")                                                                                           \
    X(EDONE, "done")                                                                                                   \
    X(EINTERNAL, "internal error")

#define EG_STATUS_ENUM(name, text) EG_##name,
/** What a function that can fail returns: EG_OK (0) or why it failed. EG_EDONE is no failure of anything: all that was
 *  asked for is done, and the program is to end (see eg_get_and_apply_next_architecture()). */
typedef enum eg_status { EG_STATUS_LIST(EG_STATUS_ENUM) EG_STATUS_COUNT } eg_status;
#undef EG_STATUS_ENUM

/** A recorded failure. `message` and `where` are never NULL; both live until the next failure in this thread. */
typedef struct eg_error {
    eg_status code;
    const char *message; /**< one sentence: what was wrong with which thing, and what was expected */
    const char *where;   /**< the function inside the library, which may be an internal one: for bug reports */
} eg_error;

/** The word for a status, such as "shape mismatch". Never NULL, also for numbers that are no status. */
EG_API const char *eg_status_name(eg_status status);

/** The most recent failure in this thread; code EG_OK and an empty message when there is none. Never NULL. */
EG_API const eg_error *eg_error_last(void);

/** The first failure in this thread since it started or since eg_error_clear(): the cause, where later failures only
 *  followed from it. Never NULL. */
EG_API const eg_error *eg_error_first(void);

/** Forgets this thread's failures. Call it after handling one. */
EG_API void eg_error_clear(void);

/** Records a failure and returns `status`: the only way to make one. Use it through eg_fail(). Texts are cut at 511
 *  bytes, control characters in them become '?'; `where` may be NULL. */
EG_API eg_status eg_fail_at(const char *where, eg_status status, const char *format, ...) EG_PRINTF(3, 4);
/** return eg_fail(EG_EINVAL, "width is %d, expected 1 or more", width); */
#define eg_fail(status, ...) eg_fail_at(__func__, (status), __VA_ARGS__)

/** Returns from the calling function when `expression` is not EG_OK. */
#define EG_TRY(expression)                                                                                             \
    do {                                                                                                               \
        eg_status eg_try_status_ = (expression);                                                                       \
        if (eg_try_status_ != EG_OK)                                                                                   \
            return eg_try_status_;                                                                                     \
    } while (0)

/** Fails out of the calling function (which returns eg_status) when `condition` does not hold. */
#define EG_CHECK(condition, status, ...)                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            eg_fail((status), __VA_ARGS__);                                                                            \
            return (status); /* a constant, mostly: compilers see that success is on the other path only */            \
        }                                                                                                              \
    } while (0)

/* ---------------------------------------------------------------------------------------------- contexts */

/** Everything that would otherwise be global: threads, random numbers, buffer pool, primitive cache, key counter, log.
 *  A context and all that is made in it are used by one thread at a time; several do not disturb each other. */
typedef struct eg_context eg_context;

/** How much a line of the log matters. */
typedef enum eg_log_level { EG_LOG_DEBUG, EG_LOG_INFO, EG_LOG_WARNING } eg_log_level;

/** Receives a line of text without a newline. Called in the thread that uses the context. */
typedef void (*eg_log_fn)(void *payload, eg_log_level level, const char *text);

/** What eg_context_new() takes by name. */
typedef struct eg_context_options {
    size_t struct_size;
    uint64_t seed;       /**< of the context's random numbers; 0 is a seed like any other */
    int threads;         /**< 1 .. 1024; 0 = all processors, or OMP_NUM_THREADS when set */
    const char *backend; /**< "dnnl" or "ref"; NULL = "dnnl" */
    eg_log_fn log;       /**< NULL = silent */
    void *log_payload;
    size_t max_memory; /**< bytes of tensor buffers at a time: what exceeds them is ENOMEM; 0 = what the system gives */
} eg_context_options;

/** Makes a context, e.g. eg_context_new(.seed = 1, .threads = 2). NULL on failure (EINVAL: threads outside 0 .. 1024,
 *  unknown backend; ENOMEM). Free it with eg_context_free() after all that was made in it.
 *
 *  Threads are OpenMP's and start with the first large operation. The system may allow fewer than are asked for here
 *  (`ulimit -u`, a container's limit of processes), which cannot be found out beforehand; the OpenMP run-time then ends
 *  the process with a message of its own. Ask for no more threads than there are processors.
 *
 *  Between operations OpenMP's threads spin: they wait for work in a loop that keeps a processor busy. That is fast on
 *  an idle machine, and slow on one that has other work, or several such programs, since threads that wait then take
 *  the time of those that work: a training on two busy cores took 34.6 s so, and 8.3 s with threads that sleep. On such
 *  machines set OMP_WAIT_POLICY=passive in the environment of the program. It has to be there before the process
 *  starts, since the run-time reads it while it is loaded; so the library cannot do it, and the program `engraft`
 *  starts itself anew with it. */
#define eg_context_new(...)                                                                                            \
    eg_context_new_with(&(eg_context_options){.struct_size = sizeof(eg_context_options), __VA_ARGS__})
/** The same from a struct, whose struct_size must be set. NULL options: all defaults. */
EG_API eg_context *eg_context_new_with(const eg_context_options *options);

/** Frees a context with the scopes still open in it. NULL is allowed. */
EG_API void eg_context_free(eg_context *ctx);

/** The number of threads that operations use. */
EG_API int eg_context_threads(const eg_context *ctx);
/** The seed that the context was made with. */
EG_API uint64_t eg_context_seed(const eg_context *ctx);

/** Asks what runs in this context to stop at the next step: it returns EG_ECANCELED with all its state saved. May be
 *  called from a signal handler and from other threads. The request stands until eg_context_resume(). */
EG_API void eg_context_cancel(eg_context *ctx);
/** Takes the request back, so that the context can go on: call it once what ran has returned. */
EG_API void eg_context_resume(eg_context *ctx);
/** Whether a request to stop stands. */
EG_API bool eg_context_canceled(const eg_context *ctx);

/** Writes a formatted line, cut at 1023 bytes, to the context's log; does nothing when it has none. */
EG_API void eg_log(eg_context *ctx, eg_log_level level, const char *format, ...) EG_PRINTF(3, 4);

/** Counters for tests and benchmarks. Bytes are of tensor buffers. */
typedef struct eg_context_stats {
    size_t bytes_in_use, bytes_peak, bytes_reserved; /**< reserved: taken from the system, in use or kept for reuse */
    uint64_t system_allocations;                     /**< buffers that the pool could not serve */
    uint64_t primitive_hits, primitive_misses;       /**< of the oneDNN primitive cache */
} eg_context_stats;
/** The counters as they are now. */
EG_API eg_context_stats eg_context_get_stats(const eg_context *ctx);
/** Sets bytes_peak to bytes_in_use. */
EG_API void eg_context_reset_peak(eg_context *ctx);

/** For the end of main(): 0 when nothing failed in this thread, or what came first is EG_EDONE; otherwise prints the
 *  first failure to standard error and returns 1. `ctx` is freed; NULL is allowed. */
EG_API int eg_exit_status(eg_context *ctx);

/** Frees memory that the library handed over (strings). NULL is allowed. */
EG_API void eg_free(void *memory);

/** For "did you mean": the up to three names of `names` (n of them; NULL entries are passed over) nearest to `name` by
 *  edit distance, as "'a', 'b' or 'c'"; an empty text when none is near. Writes into `text` of `size` bytes (cut there)
 *  and returns it; NULL and EINVAL when it is NULL. */
EG_API const char *eg_closest_name(const char *name, const char *const *names, size_t n, char *text, size_t size);

/* ---------------------------------------------------------------------------------------------- random numbers */

/** A stream of counter-based random numbers (Philox 4x32-10; Salmon et al., "Parallel random numbers: as easy as 1, 2,
 *  3", SC 2011): key = seed, counter = (stream, position). A plain value: copying it copies the stream, and the three
 *  numbers are all there is to save. Results depend on nothing else. */
typedef struct eg_rng {
    uint64_t seed, stream, position; /**< position counts 32-bit words */
} eg_rng;

/** A stream for `purpose` (any text, such as "shuffle") and `index` (an epoch, say), from the given seed. */
EG_API eg_rng eg_rng_make(uint64_t seed, const char *purpose, uint64_t index);
/** The context's own stream, used by initializers, dropout and random mutators. Lent. */
EG_API eg_rng *eg_context_rng(eg_context *ctx);
/** The next 32 random bits. `rng` is not NULL in these functions. */
EG_API uint32_t eg_rng_u32(eg_rng *rng);
/** Uniform in [0, 1), 53 random bits. */
EG_API double eg_rng_uniform(eg_rng *rng);
/** Standard normal (Box-Muller). */
EG_API double eg_rng_normal(eg_rng *rng);
/** Uniform in 0 .. n-1 without bias; n at least 1 (0 gives 0). */
EG_API uint64_t eg_rng_below(eg_rng *rng, uint64_t n);
/** Shuffles n numbers in place (Fisher-Yates). NULL for either does nothing but fail with EINVAL. */
EG_API void eg_rng_shuffle(eg_rng *rng, int64_t *items, size_t n);

/* ---------------------------------------------------------------------------------------------- options */

/** A number for which 0 is a legal value but not the default: write EG_F64(0.0). All-zero = the default. */
typedef struct eg_opt_f64 {
    double value;
    bool set;
} eg_opt_f64;
/** The value of an eg_opt_f64 that was given. */
#define EG_F64(v) ((eg_opt_f64){.value = (v), .set = true})

/** A size in two dimensions in one integer, as in PyTorch: a plain number n stands for (n, n), EG_HW(h, w) for two
 *  different ones. Sizes are 0 .. 2^30 - 1; others are EINVAL where they are used. */
typedef int64_t eg_hw;
/** Two sizes in one. Evaluates its arguments more than once. What is no size stays none, so that messages can name it
 *  (beyond -2^29 and 3 * 2^29 - 1 it is cut). */
#define EG_HW(h, w) (EG_HW_PAIR_ + EG_HW_PART_(h) * ((eg_hw)1 << 31) + EG_HW_PART_(w))
/* 2^62 marks a pair; below it are two numbers of 31 bits, which stand for number - 2^29. */
#define EG_HW_PAIR_ ((eg_hw)1 << 62)
#define EG_HW_BIAS_ ((eg_hw)1 << 29)
#define EG_HW_PART_(v)                                                                                                 \
    ((eg_hw)(v) < -EG_HW_BIAS_ ? 0 : (eg_hw)(v) >= 3 * EG_HW_BIAS_ ? 4 * EG_HW_BIAS_ - 1 : (eg_hw)(v) + EG_HW_BIAS_)
/** The height: of a plain number the number itself. */
static inline int64_t eg_hw_h(eg_hw v)
{
    return v >= EG_HW_PAIR_ ? (v >> 31 & 0x7fffffff) - EG_HW_BIAS_ : v;
}
/** The width. */
static inline int64_t eg_hw_w(eg_hw v)
{
    return v >= EG_HW_PAIR_ ? (v & 0x7fffffff) - EG_HW_BIAS_ : v;
}

#ifdef __cplusplus
}
#endif
#endif

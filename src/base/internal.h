/*
 * base/internal.h - what the library's own files share and users do not see: memory, strings, maps, files, contexts.
 */
#ifndef EG_BASE_INTERNAL_H
#define EG_BASE_INTERNAL_H

#include "engraft/base.h"

#include <jansson.h>
#include <stdarg.h>

#define EG_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define EG_MIN(a, b) ((a) < (b) ? (a) : (b))
#define EG_MAX(a, b) ((a) > (b) ? (a) : (b))

/** For our own bugs only: EINTERNAL in release builds, abort in debug builds (so that a debugger stops there). */
#ifdef NDEBUG
#define EG_ASSERT(condition)                                                                                           \
    EG_CHECK(condition, EG_EINTERNAL, "%s:%d: %s does not hold", __FILE__, __LINE__, #condition)
#else
#include <assert.h>
#define EG_ASSERT(condition) assert(condition)
#endif

/* ---- errors ---- */

/** Fails with `status` and prefixes the text that is already recorded: "prefix: cause". Keeps first/last in step. */
eg_status eg__fail_prefix(eg_status status, const char *format, ...) EG_PRINTF(2, 3);
/** What a function of the program's has returned; a failure that it has not recorded becomes "train_step of 'mine'
 * failed without a message". Returns `status`. */
eg_status eg__fail_silent(eg_status status, const char *function, const char *owner);
/** For NULL arguments of functions that return pointers: keeps a failure already pending, else records
 *  "function: what is NULL". Always returns NULL. */
void *eg__null(const char *where, const char *what);
/** Fails by errno: "cannot open 'data.csv': Permission denied" for what = "open". ENOENT, ENOMEM, else EIO. */
eg_status eg__fail_errno(const char *what, const char *path);
/** The system's text for an error number, into `text`; safe in threads. Returns `text`. */
#define EG__ERRNO_TEXT_SIZE 128
const char *eg__errno_text(int error, char text[EG__ERRNO_TEXT_SIZE]);
/** A failure that is about to be handled inside the library must not become the thread's first one. */
typedef struct eg__error_mark {
    eg_status last, first;
    char text[2][512];
    char where[2][64];
    bool same; /* last and first are one failure */
} eg__error_mark;
void eg__error_save(eg__error_mark *mark);
void eg__error_restore(const eg__error_mark *mark);

/* ---- options ---- */

/** Copies a caller's option struct (its first member is struct_size) into our own zeroed one of `size` bytes, so that
 *  callers built against an older version keep working. NULL: all defaults. EINVAL when struct_size is not set. */
eg_status eg__options_copy(void *own, size_t size, const void *given);

/* ---- memory: every size checked for overflow; ENOMEM recorded on failure ---- */

void *eg__calloc(size_t n, size_t size);
/** Grows an array to hold at least `needed` items of `size` bytes (capacity doubles); new items are zeroed.
 *  `array_pointer` is the address of the array's pointer; it and *capacity are updated. */
eg_status eg__grow(void *array_pointer, size_t *capacity, size_t needed, size_t size);
char *eg__strdup(const char *text); /* NULL text: NULL, no failure */
char *eg__format(const char *format, ...) EG_PRINTF(1, 2);

/** Growing text. All-zero is empty; a failed append is remembered and reported by eg__buf_take(). */
typedef struct eg__buf {
    char *data;
    size_t len, capacity;
    bool failed;
} eg__buf;
void eg__buf_append(eg__buf *buf, const char *data, size_t len);
void eg__buf_printf(eg__buf *buf, const char *format, ...) EG_PRINTF(2, 3);
/** Hands over the text (NUL-terminated, for eg_free) and empties the buffer. NULL when an append failed. */
char *eg__buf_take(eg__buf *buf);
void eg__buf_free(eg__buf *buf);

/** Text -> pointer, in insertion order. All-zero is empty. Keys are copied; values are not owned. */
typedef struct eg__map {
    struct eg__map_entry {
        char *key;
        void *value;
        uint64_t hash;
    } * entries;
    size_t n, capacity;
    size_t *index; /* open addressing, entry number + 1 */
    size_t index_size;
} eg__map;
eg_status eg__map_put(eg__map *map, const char *key, void *value); /* replaces the value of an existing key */
/** The address of the value, NULL when the key is absent. */
void **eg__map_find(const eg__map *map, const char *key);
void *eg__map_get(const eg__map *map, const char *key); /* NULL when absent */
void eg__map_free(eg__map *map);

/** A 64-bit hash, the same on every machine. */
uint64_t eg__hash(const void *data, size_t size, uint64_t seed);

/** Whether a text is well-formed UTF-8 (as JSON demands): no overlong forms, no surrogates. */
bool eg__is_utf8(const char *text);

/* ---- files ---- */

/** Opens a regular file for reading; *size receives its length. ENOENT, EIO (also what is no regular file: a pipe would
 *  wait for its writer, a device has no length). */
eg_status eg__open_regular(const char *path, int *descriptor, uint64_t *size);
/** Reads a whole file of at most `max` bytes (0 = any size); *data is NUL-terminated, for eg_free. ENOENT, EIO, EFORMAT
 *  (too large), each naming the path. */
eg_status eg__file_read(const char *path, size_t max, char **data, size_t *size);

/** Writes a file so that at `path` there is always either the old or the new content, whole: temporary name in the
 *  same directory, fsync, rename, fsync of the directory. */
typedef struct eg__writer {
    FILE *file;
    char *path, *temporary;
    eg_status status; /* first failure; later calls do nothing */
} eg__writer;
eg_status eg__writer_open(eg__writer *writer, const char *path);
eg_status eg__writer_put(eg__writer *writer, const void *data, size_t size);
/** Commits when everything succeeded, else removes the temporary file. Call it exactly once after a successful open. */
eg_status eg__writer_close(eg__writer *writer);
/** Gives up: removes the temporary file. */
void eg__writer_abort(eg__writer *writer);
eg_status eg__file_write(const char *path, const void *data, size_t size);
/** mkdir -p. */
eg_status eg__make_directory(const char *path);
bool eg__file_exists(const char *path);
double eg__now(void); /* monotonic seconds */

/* ---- JSON (jansson) ---- */

/** Parses a text; EFORMAT with `what` (a path), line and column. */
json_t *eg__json_parse(const char *text, size_t size, const char *what);
/** The same of a file of at most `max` bytes, 0 = any. */
json_t *eg__json_read(const char *path, size_t max);
/** Adds to a list, which is NULL once an item failed (nothing is recorded). Both are taken over. */
json_t *eg__json_append(json_t *list, json_t *item);
/** Sorted keys, 2-space indent, final newline; real numbers in the fewest digits that read back; for eg_free. */
char *eg__json_text(const json_t *json);
eg_status eg__json_write(const json_t *json, const char *path);
/** The same for people: members in their order, lists and objects that fit a line on one line. */
char *eg__json_layout(const json_t *json);

/* ---- random numbers ---- */

/** One block of Philox 4x32-10. */
void eg__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/** The next n words of a stream: n times eg_rng_u32(), at a quarter of the cost. */
void eg__rng_take(eg_rng *rng, uint32_t *words, size_t n);

/* ---- contexts ---- */

/** State that a layer above keeps in the context. */
typedef enum eg__slot {
    EG__SLOT_TENSOR,
    EG__SLOT_AUTOGRAD,
    EG__SLOT_DNNL,
    EG__SLOT_NN,
    EG__SLOT_CLASSES,
    EG__SLOT_COUNT
} eg__slot;
/** The slot's zeroed memory of `size` bytes, made on first use; `destroy` is called on it by eg_context_free(), in
 *  reverse order of slots. NULL on ENOMEM. */
void *eg__context_slot(eg_context *ctx, eg__slot slot, size_t size, void (*destroy)(eg_context *ctx, void *state));
/** The slot's memory, NULL when it was never made. */
void *eg__context_peek(const eg_context *ctx, eg__slot slot);
const char *eg__context_backend(const eg_context *ctx);
/** Whether EG_BF16=emulate stood in the environment when it was made: bfloat16 on any processor, by float32 kernels. */
bool eg__context_emulates_bf16(const eg_context *ctx);
/** For "LayerChoice1", "InputChoice2": 1, 2, 3, .. per context; reset sets the next to 1. */
uint64_t eg__context_next_key(eg_context *ctx);
/** Makes `next` the next one; returns what would have been. */
uint64_t eg__context_set_next_key(eg_context *ctx, uint64_t next);
void eg__context_reset_keys(eg_context *ctx);
eg_context_stats *eg__context_stats(eg_context *ctx);

/** Buffers of the pool: 64-byte aligned, size classes, returned buffers are kept for reuse. EG_POOL=off in the
 *  environment when the context is made turns every buffer into one of the system's own (for sanitizers, valgrind). */
void *eg__pool_take(eg_context *ctx, size_t size);
/** `size` is the one asked for. NULL buffers are allowed. */
void eg__pool_give(eg_context *ctx, void *buffer, size_t size);
/** Whether buffers taken from now on will be kept from step to step. Such ones come from the system, not from among the
 * unused ones, which are there because the steps need them: taken out, they would be missed in the next step. Returns
 * what was said before. */
bool eg__pool_lasting(eg_context *ctx, bool lasting);
/** Between these two, buffers have addresses but no memory, and kernels of the fast table do nothing: what is done
 * meanwhile shows how much memory it would take. Whoever does it gives back all that was taken meanwhile, and puts back
 * what other code has written. EINVAL when it is so already; ENOMEM. */
typedef struct eg__dry_result {
    size_t in_use, reserved; /* the most there was of each; see eg_context_stats */
    size_t taken;            /* in the last step, each buffer as often as it was taken: equal steps have equal ones */
} eg__dry_result;
eg_status eg__dry_begin(eg_context *ctx);
eg__dry_result eg__dry_end(eg_context *ctx);
/** Ends a step: the pages of zeros that were written in it go back to the system. Returns what there was so far. */
eg__dry_result eg__dry_end_step(eg_context *ctx);
bool eg__is_dry(const eg_context *ctx);
/** False with EG_POOL=off: then other free lists are not to be used either. */
bool eg__pool_enabled(const eg_context *ctx);

#endif

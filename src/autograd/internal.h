/*
 * autograd/internal.h - tapes from the inside, and what modules and traces hook into: the path of calls, the sink.
 *
 * A node is one recorded operation. It holds the tensors that the operation saved and where its inputs came from, but
 * not the inputs and outputs themselves: an intermediate that no backward needs is freed as soon as its scope ends.
 */
#ifndef EG_AUTOGRAD_INTERNAL_H
#define EG_AUTOGRAD_INTERNAL_H

#include "engraft/sys/op.h"
#include "tensor/internal.h"

/* ---- for modules and traces ---- */

/** The dotted path of the module calls under way, such as "stem.0"; "" at top level. Never NULL. */
const char *eg__call_path(const eg_context *ctx);
/** Enters a call. An empty name (the root) adds nothing to the path but is popped like any other. Only a push that
 *  succeeded is popped. */
eg_status eg__call_push(eg_context *ctx, const char *name);
void eg__call_pop(eg_context *ctx);
/** How many calls are under way. */
size_t eg__call_depth(const eg_context *ctx);

/** Sees every operation after it succeeded, also on shape-only tensors; operations that an operation is itself made of
 *  are not shown. A failure is the operation's. */
typedef struct eg__trace_sink {
    void *payload;
    eg_status (*on_op)(void *payload, const eg_op_call *call);
    eg_status (*on_part)(void *payload, eg_tensor *part, eg_tensor *whole); /* of a parameter; may be NULL */
} eg__trace_sink;
/** Sets the sink, NULL for none; *previous (may be NULL) receives the one before. ENOMEM. */
eg_status eg__trace_set(eg_context *ctx, const eg__trace_sink *sink, const eg__trace_sink **previous);

/* ---- tapes ---- */

/** Memory that is given back all at once. */
typedef struct eg__arena {
    struct eg__arena_chunk {
        struct eg__arena_chunk *next;
        size_t size;
    } * first, *current;
    size_t used; /* of the current chunk */
} eg__arena;
/** Zeroed, aligned for anything. NULL on ENOMEM. */
void *eg__arena_take(eg__arena *arena, size_t n, size_t size);
/** Forgets what was taken and keeps the memory. */
void eg__arena_reset(eg__arena *arena);
void eg__arena_free(eg__arena *arena);

/** Where an input came from: a leaf (owned), or an output of an earlier node of the same tape. */
typedef struct eg__edge {
    eg_tensor *leaf;
    uint32_t node, out;
} eg__edge;

typedef struct eg__saved {
    size_t n, capacity;
    eg_tensor **tensors; /* owned */
    uint64_t *versions;  /* of their storages when forward had ended */
} eg__saved;

typedef struct eg__node {
    const eg_op *op;
    const void *attrs;
    const char *path; /* of the module that called it */
    size_t n_in, n_out;
    eg_spec *in_spec;
    bool *needs_grad;
    eg__edge *edges;
    eg__saved saved;
    eg_tensor **grad_out, **grad_in; /* owned, during backward */
    bool reached, done;
    /* Of stateless operations, until backward begins: what equal applications to the same input share. */
    eg_tensor *result; /* owned */
    uint64_t in_version, out_version;
    struct eg__node *next_reader;      /* the next stateless operation on the same node's output */
    struct eg__node *readers;          /* the stateless operations on this node's outputs */
    struct eg__repetition *repetition; /* owned; of eg_recompute() only */
} eg__node;

struct eg_tape {
    eg_context *ctx;
    struct eg_tape *outer; /* also links unused tapes */
    uint64_t id;
    bool recording;
    bool forgetful;              /* it records, but nothing is saved for a backward, which is refused */
    unsigned inside;             /* the state's when it was opened */
    uint64_t leaves;             /* a hash of the versions of the leaves that were read, and of open numbers */
    struct eg__lifting *lifting; /* of the run of eg__recompute() whose tape it is; NULL: nothing is lifted */
    size_t scope;
    eg__arena arena;
    eg__node **nodes;
    size_t n_nodes, capacity;
};

typedef struct eg__autograd {
    eg_tape *tape;   /* innermost open one */
    eg_tape *unused; /* closed tapes: their memory is used again */
    uint64_t last_tape_id;
    unsigned inside;    /* operations and backward passes under way: what they do is not recorded */
    unsigned outermost; /* what `inside` is where calls are the outermost: 0, but while one is run again */
    unsigned repeating; /* forward passes under way that were run before, or are only a trial */
    const eg__trace_sink *sink;
    eg__buf path;
    size_t *path_lengths; /* of the path before each call */
    size_t n_calls, calls_capacity;
} eg__autograd;

/** NULL on ENOMEM. */
eg__autograd *eg__autograd_of(eg_context *ctx);
/** The innermost tape when it records and no operation is under way that began after it was opened, else NULL. */
eg_tape *eg__recording_tape(const eg__autograd *state);
/** Whether a call of a module that no other calls is the outermost: no operation or backward pass is under way, or only
 *  such that run the call again. */
bool eg__is_outermost(const eg_context *ctx);
/** The innermost tape, if it records, takes note of what has been read besides tensors: what is run again must read the
 *  same. */
void eg__note_read(const eg_context *ctx, const void *data, size_t size);
/** The id of the last tape opened, for eg__tapes_close_after(). */
uint64_t eg__tape_last(const eg_context *ctx);
/** Closes the tapes that were opened after that one and are open still. Returns whether there were any. */
bool eg__tapes_close_after(eg_context *ctx, uint64_t last);
/** The open tape of that id, NULL when there is none. */
eg_tape *eg__find_tape(const eg__autograd *state, uint64_t id);

/** Ends what stateless operations share: from now on every result is computed anew. */
void eg__tape_stop_sharing(eg_tape *tape);

eg_status eg__saved_add(eg__arena *arena, eg__saved *saved, eg_tensor *t);
void eg__saved_release(eg__saved *saved);

/** Whether what runs now has run before: it must not count in running statistics a second time. */
bool eg__is_repeating(const eg_context *ctx);
/** From now on until the same with -1. ENOMEM. */
eg_status eg__repeat(eg_context *ctx, int step);

/** The node whose backward this is. */
eg__node *eg__node_of(const eg_op_grad *grad);
/** Adds to a leaf's gradient; takes over the reference to `grad`, also on failure. */
eg_status eg__add_into_leaf(eg_tensor *leaf, eg_tensor *grad);
/** Where the gradients of an operation's input i meet. */
eg_tensor **eg__gradient_slot(const eg_op_grad *grad, size_t i);
/** eg_recompute(); with `lift`, stateless operations on inputs are not run again: they are operations of the tape
 * outside, where equal ones of several functions share, and what they give is one more input. */
eg_tensor *eg__recompute(eg_context *ctx, eg_recompute_fn fn, void *payload, void (*release)(void *payload),
                         eg_tensor *const *in, size_t n_in, bool lift);
/** The result of an operation that is lifted out of the function that runs on the tape; NULL when it is not, or with
 * *status on failure. */
eg_tensor *eg__lift(eg_tape *tape, const eg_op_call *call, eg_status *status);
void eg__repetition_free(struct eg__repetition *repetition);

/** Puts "relu 'stem.0'", or "relu" at top level, before the recorded failure. */
eg_status eg__op_fail(eg_status status, const char *op, const char *path);

#endif

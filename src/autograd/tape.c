/*
 * autograd/tape.c - opening and closing tapes; the path of calls; the trace sink.
 */
#include "autograd/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- saved tensors ---- */

eg_status eg__saved_add(eg__arena *arena, eg__saved *saved, eg_tensor *t)
{
    if (saved->n == saved->capacity) {
        size_t capacity = saved->capacity ? saved->capacity * 2 : 4;
        eg_tensor **tensors = eg__arena_take(arena, capacity, sizeof(eg_tensor *));
        uint64_t *versions = eg__arena_take(arena, capacity, sizeof *versions);
        if (!tensors || !versions)
            return EG_ENOMEM;
        if (saved->n > 0)
            memcpy(tensors, saved->tensors, saved->n * sizeof(eg_tensor *));
        saved->tensors = tensors;
        saved->versions = versions;
        saved->capacity = capacity;
    }
    saved->tensors[saved->n++] = eg_tensor_keep(t);
    return EG_OK;
}

void eg__saved_release(eg__saved *saved)
{
    for (size_t i = 0; i < saved->n; i++)
        eg_tensor_release(saved->tensors[i]);
    saved->n = 0;
}

/* ---- tapes ---- */

void eg__tape_stop_sharing(eg_tape *tape)
{
    for (size_t i = 0; i < tape->n_nodes; i++) {
        eg_tensor_release(tape->nodes[i]->result);
        tape->nodes[i]->result = NULL;
    }
}

static void forget_node(eg__node *node)
{
    eg_tensor_release(node->result);
    eg__saved_release(&node->saved);
    for (size_t i = 0; i < node->n_in; i++)
        eg_tensor_release(node->edges[i].leaf);
    eg__repetition_free(node->repetition);
}

static void forget_record(eg_tape *tape)
{
    for (size_t i = 0; i < tape->n_nodes; i++)
        forget_node(tape->nodes[i]);
    tape->n_nodes = 0;
    eg__arena_reset(&tape->arena);
}

static void free_tape(eg_tape *tape)
{
    eg__arena_free(&tape->arena);
    free(tape->nodes);
    free(tape);
}

static void destroy_state(eg_context *ctx, void *memory)
{
    (void)ctx;
    eg__autograd *state = memory;
    while (state->tape)
        eg_tape_end(state->tape);
    while (state->unused) {
        eg_tape *next = state->unused->outer;
        free_tape(state->unused);
        state->unused = next;
    }
    eg__buf_free(&state->path);
    free(state->path_lengths);
}

eg__autograd *eg__autograd_of(eg_context *ctx)
{
    return eg__context_slot(ctx, EG__SLOT_AUTOGRAD, sizeof(eg__autograd), destroy_state);
}

eg_tape *eg_tape_begin(eg_context *ctx, eg_tape_mode mode)
{
    if (!ctx)
        return eg__null(__func__, "context");
    eg__autograd *state = eg__autograd_of(ctx);
    if (!state)
        return NULL;
    eg_tape *tape = state->unused;
    if (!tape)
        tape = eg__calloc(1, sizeof *tape);
    if (!tape)
        return NULL;
    size_t scope = eg__scope_enter(ctx);
    if (scope == SIZE_MAX) {
        if (tape != state->unused)
            free_tape(tape);
        return NULL;
    }
    if (tape == state->unused)
        state->unused = tape->outer;
    tape->ctx = ctx;
    tape->outer = state->tape;
    tape->id = ++state->last_tape_id;
    tape->recording = mode == EG_RECORD;
    tape->forgetful = false;
    tape->leaves = 0;
    tape->lifting = NULL;
    tape->inside = state->inside;
    tape->scope = scope;
    state->tape = tape;
    return tape;
}

static void close_innermost(eg__autograd *state)
{
    eg_tape *tape = state->tape;
    state->tape = tape->outer;
    forget_record(tape);
    eg__scope_leave(tape->ctx, tape->scope, NULL);
    if (eg__pool_enabled(tape->ctx)) {
        tape->outer = state->unused;
        state->unused = tape;
    } else {
        free_tape(tape);
    }
}

void eg_tape_end(eg_tape *tape)
{
    if (!tape)
        return;
    eg__autograd *state = eg__autograd_of(tape->ctx);
    bool open = false;
    for (const eg_tape *t = state->tape; t && !open; t = t->outer)
        open = t == tape;
    while (open) {
        open = state->tape != tape;
        close_innermost(state);
    }
}

uint64_t eg__tape_last(const eg_context *ctx)
{
    const eg__autograd *state = eg__context_peek(ctx, EG__SLOT_AUTOGRAD);
    return state ? state->last_tape_id : 0;
}

bool eg__tapes_close_after(eg_context *ctx, uint64_t last)
{
    eg__autograd *state = eg__context_peek(ctx, EG__SLOT_AUTOGRAD);
    bool any = false;
    for (; state && state->tape && state->tape->id > last; any = true) /* ids grow inwards */
        close_innermost(state);
    return any;
}

eg_tape *eg__recording_tape(const eg__autograd *state)
{
    eg_tape *tape = state->tape;
    return tape && tape->recording && tape->inside == state->inside ? tape : NULL;
}

bool eg_is_recording(const eg_context *ctx)
{
    const eg__autograd *state = ctx ? eg__context_peek(ctx, EG__SLOT_AUTOGRAD) : NULL;
    return state && eg__recording_tape(state);
}

bool eg__is_outermost(const eg_context *ctx)
{
    const eg__autograd *state = eg__context_peek(ctx, EG__SLOT_AUTOGRAD);
    return !state || state->inside == state->outermost;
}

void eg__note_read(const eg_context *ctx, const void *data, size_t size)
{
    const eg__autograd *state = eg__context_peek(ctx, EG__SLOT_AUTOGRAD);
    eg_tape *tape = state ? eg__recording_tape(state) : NULL;
    if (tape)
        tape->leaves = eg__hash(data, size, tape->leaves);
}

bool eg__is_repeating(const eg_context *ctx)
{
    const eg__autograd *state = eg__context_peek(ctx, EG__SLOT_AUTOGRAD);
    return state && state->repeating > 0;
}

eg_status eg__repeat(eg_context *ctx, int step)
{
    eg__autograd *state = eg__autograd_of(ctx);
    if (!state)
        return EG_ENOMEM;
    state->repeating += (unsigned)step;
    return EG_OK;
}

eg_tape *eg__find_tape(const eg__autograd *state, uint64_t id)
{
    eg_tape *tape = state->tape;
    while (tape && tape->id != id)
        tape = tape->outer;
    return tape;
}

/* ---- calls and traces ---- */

const char *eg__call_path(const eg_context *ctx)
{
    const eg__autograd *state = eg__context_peek(ctx, EG__SLOT_AUTOGRAD);
    return state && state->path.len > 0 ? state->path.data : "";
}

size_t eg__call_depth(const eg_context *ctx)
{
    const eg__autograd *state = eg__context_peek(ctx, EG__SLOT_AUTOGRAD);
    return state ? state->n_calls : 0;
}

eg_status eg__call_push(eg_context *ctx, const char *name)
{
    eg__autograd *state = eg__autograd_of(ctx);
    if (!state)
        return EG_ENOMEM;
    EG_TRY(eg__grow(&state->path_lengths, &state->calls_capacity, state->n_calls + 1, sizeof *state->path_lengths));
    size_t before = state->path.len;
    if (name && name[0]) {
        if (before > 0)
            eg__buf_append(&state->path, ".", 1);
        eg__buf_append(&state->path, name, strlen(name));
    }
    state->path_lengths[state->n_calls++] = before;
    if (!state->path.failed)
        return EG_OK;
    state->path.failed = false; /* what was there before is still whole */
    eg__call_pop(ctx);
    return EG_ENOMEM;
}

void eg__call_pop(eg_context *ctx)
{
    eg__autograd *state = eg__autograd_of(ctx);
    if (!state || state->n_calls == 0)
        return;
    state->path.len = state->path_lengths[--state->n_calls];
    if (state->path.data)
        state->path.data[state->path.len] = '\0';
}

eg_status eg__trace_set(eg_context *ctx, const eg__trace_sink *sink, const eg__trace_sink **previous)
{
    eg__autograd *state = eg__autograd_of(ctx);
    if (!state)
        return EG_ENOMEM;
    if (previous)
        *previous = state->sink;
    state->sink = sink;
    return EG_OK;
}

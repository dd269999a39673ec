/*
 * autograd/apply.c - eg_apply(): one operation, from its checks to its place on the tape.
 */
#include "autograd/internal.h"

#include <stdlib.h>
#include <string.h>

enum { FEW = 8 }; /* inputs for which no memory is taken */

/* One application while it runs; `call` is the part that the operation sees. */
typedef struct application {
    eg_op_call call;
    eg__autograd *state;
    eg_tape *tape; /* where it is recorded; NULL when it is not */
    bool shape_only;
    eg_tensor *out[EG_OP_MAX_OUTPUTS]; /* owned until they go to the scope */
    bool *needs_grad;                  /* [n_in], and as many false */
    bool few_needs_grad[2 * FEW];
    eg__saved saved;
} application;

eg_status eg__op_fail(eg_status status, const char *op, const char *path)
{
    return path[0] ? eg__fail_prefix(status, "%s '%s'", op, path) : eg__fail_prefix(status, "%s", op);
}

static eg_status check_op(const eg_op *op, const void *attrs)
{
    EG_CHECK(op->struct_size == sizeof *op, EG_EINVAL, "operation's struct_size is %zu, this library expects %zu",
             op->struct_size, sizeof *op);
    EG_CHECK(op->name && op->forward && (op->infer || op->makes_outputs), EG_EINVAL,
             "operation lacks its name, infer or forward");
    EG_CHECK(op->n_out <= EG_OP_MAX_OUTPUTS, EG_EINVAL, "operation has %zu outputs, expected at most %d", op->n_out,
             EG_OP_MAX_OUTPUTS);
    EG_CHECK(op->attrs_size == 0 || attrs, EG_EINVAL, "attributes are missing");
    EG_CHECK(!op->stateless || (op->n_out <= 1 && !op->makes_outputs && op->attrs_size > 0), EG_EINVAL,
             "a stateless operation has one output, which is not a view, and attributes");
    return EG_OK;
}

static eg_status check_input(application *app, size_t i)
{
    const eg_op_call *call = &app->call;
    const eg_tensor *t = call->in[i];
    switch (t->kind) {
    case EG__NONE:
        EG_CHECK(i < 32 && (call->op->optional >> i & 1), EG_EINVAL,
                 "input %zu is none (a choice that selected nothing)", i);
        return EG_OK;
    case EG__TUPLE:
        return eg_fail(EG_EINVAL, "input %zu is a tuple of %zu tensors; eg_tuple_get() takes one out", i, t->n_items);
    case EG__DENSE:
        break;
    }
    EG_CHECK(t->ctx == call->ctx, EG_EINVAL, "input %zu belongs to another context", i);
    app->shape_only |= !t->storage;
    return EG_OK;
}

/* A result of an outer tape would be taken for a constant without a word: wrong gradients. */
static eg_status mark_gradients(application *app)
{
    eg_op_call *call = &app->call;
    app->needs_grad = app->few_needs_grad;
    if (call->n_in > FEW && !(app->needs_grad = eg__calloc(call->n_in, 2 * sizeof *app->needs_grad)))
        return EG_ENOMEM;
    call->needs_grad = app->needs_grad;
    eg_tape *tape = app->shape_only || !call->op->backward ? NULL : eg__recording_tape(app->state);
    for (size_t i = 0; tape && i < call->n_in; i++) {
        const eg_tensor *t = call->in[i];
        if (!t->requires_grad)
            continue;
        if (t->tape_id == 0 || t->tape_id == tape->id)
            app->needs_grad[i] = true;
        else
            EG_CHECK(!eg__find_tape(app->state, t->tape_id), EG_EINVAL,
                     "input %zu was recorded on an outer tape; eg_detach() makes a constant of it", i);
        call->recording |= app->needs_grad[i];
    }
    app->tape = call->recording ? tape : NULL;
    if (app->tape && tape->forgetful) { /* recorded, but forward need not prepare a backward */
        call->needs_grad += call->n_in;
        call->recording = false;
    }
    return EG_OK;
}

static eg_status prepare(application *app)
{
    eg_op_call *call = &app->call;
    EG_TRY(check_op(call->op, call->attrs));
    for (size_t i = 0; i < call->n_in && !call->ctx; i++)
        call->ctx = call->in[i]->ctx;
    EG_CHECK(call->ctx, EG_EINVAL, call->n_in ? "input 0 is none (a choice that selected nothing)" : "no inputs");
    for (size_t i = 0; i < call->n_in; i++)
        EG_TRY(check_input(app, i));
    app->state = eg__autograd_of(call->ctx);
    if (!app->state)
        return EG_ENOMEM;
    return mark_gradients(app);
}

static eg_status allocate_outputs(application *app)
{
    eg_op_call *call = &app->call;
    eg_spec spec[EG_OP_MAX_OUTPUTS];
    memset(spec, 0, sizeof spec);
    EG_TRY(call->op->infer(call, spec));
    for (size_t i = 0; i < call->n_out; i++) {
        app->out[i] = app->shape_only
                          ? eg__tensor_new_shape_only(call->ctx, spec[i].dtype, spec[i].shape, spec[i].layout)
                          : eg__tensor_new(call->ctx, spec[i].dtype, spec[i].shape, spec[i].layout);
        if (!app->out[i])
            return eg_error_last()->code;
    }
    return EG_OK;
}

/* An output that is an input, or has a history, is given a handle of its own: the record goes into the handle. */
static eg_status own_handle(application *app, size_t i)
{
    eg_tensor *t = app->out[i];
    EG_CHECK(t && t->kind == EG__DENSE && t->ctx == app->call.ctx, EG_EINTERNAL, "forward did not set output %zu", i);
    if (t->refs == 1 && t->tape_id == 0 && !t->requires_grad)
        return EG_OK;
    app->out[i] = eg__tensor_new_view(t, t->shape, t->strides, t->offset);
    eg_tensor_release(t);
    return app->out[i] ? EG_OK : eg_error_last()->code;
}

/* What forward makes on the way lives in a scope of its own, and none of it is recorded. */
static eg_status run_forward(application *app)
{
    eg_op_call *call = &app->call;
    size_t scope = eg__scope_enter(call->ctx);
    if (scope == SIZE_MAX)
        return EG_ENOMEM;
    app->state->inside++;
    eg_status status = call->op->forward(call);
    app->state->inside--;
    eg__scope_leave(call->ctx, scope, NULL);
    return status;
}

static eg_status compute(application *app)
{
    const eg_op *op = app->call.op;
    if (!op->makes_outputs)
        EG_TRY(allocate_outputs(app));
    if (!app->shape_only || op->makes_outputs)
        EG_TRY(run_forward(app));
    for (size_t i = 0; op->makes_outputs && i < app->call.n_out; i++)
        EG_TRY(own_handle(app, i));
    return EG_OK;
}

/* ---- sharing ---- */

static uint64_t version_of(const eg_tensor *t)
{
    return t->storage->version;
}

/* The result of an equal application before this one, which nobody has changed since; NULL when there is none. */
static eg_tensor *equal_result(const application *app)
{
    const eg_op_call *call = &app->call;
    const eg_tensor *x = call->in[0];
    if (!call->op->stateless || !app->tape || x->tape_id == 0 || app->state->sink)
        return NULL;
    const eg__node *node = app->tape->nodes[x->node]->readers;
    for (; node; node = node->next_reader) {
        if (node->result && node->op == call->op && node->edges[0].out == x->out_index &&
            memcmp(node->attrs, call->attrs, call->op->attrs_size) == 0 && node->in_version == version_of(x) &&
            node->out_version == version_of(node->result))
            return node->result;
    }
    return NULL;
}

static void offer_result(eg_tape *tape, const eg_op_call *call)
{
    const eg_tensor *x = call->in[0];
    if (!call->op->stateless || x->tape_id == 0)
        return;
    eg__node *node = tape->nodes[tape->n_nodes - 1], *source = tape->nodes[x->node];
    node->result = eg_tensor_keep(call->out[0]);
    node->in_version = version_of(x);
    node->out_version = version_of(node->result);
    node->next_reader = source->readers;
    source->readers = node;
}

/* ---- the record ---- */

static eg_spec spec_of(const eg_tensor *t)
{
    return (eg_spec){.dtype = t->dtype, .layout = eg__layout_of(t), .shape = t->shape};
}

/* Successive operations of one module share their path's text. */
static const char *keep_path(eg_tape *tape, const char *path)
{
    if (!path[0])
        return "";
    if (tape->n_nodes > 0 && strcmp(tape->nodes[tape->n_nodes - 1]->path, path) == 0)
        return tape->nodes[tape->n_nodes - 1]->path;
    char *copy = eg__arena_take(&tape->arena, strlen(path) + 1, 1);
    return copy ? strcpy(copy, path) : NULL;
}

static eg__node *new_node(eg_tape *tape, const eg_op_call *call)
{
    eg__arena *arena = &tape->arena;
    eg__node *node = eg__arena_take(arena, 1, sizeof *node);
    if (!node)
        return NULL;
    node->op = call->op;
    node->n_in = call->n_in;
    node->n_out = call->n_out;
    node->path = keep_path(tape, eg__call_path(call->ctx));
    node->in_spec = eg__arena_take(arena, call->n_in, sizeof *node->in_spec);
    node->needs_grad = eg__arena_take(arena, call->n_in, sizeof *node->needs_grad);
    node->edges = eg__arena_take(arena, call->n_in, sizeof *node->edges);
    node->grad_in = eg__arena_take(arena, call->n_in, sizeof(eg_tensor *));
    node->grad_out = eg__arena_take(arena, call->n_out, sizeof(eg_tensor *));
    bool whole = node->path && node->in_spec && node->needs_grad && node->edges && node->grad_in && node->grad_out;
    if (whole && call->op->attrs_size > 0) {
        void *attrs = eg__arena_take(arena, call->op->attrs_size, 1);
        node->attrs = attrs ? memcpy(attrs, call->attrs, call->op->attrs_size) : NULL;
        whole = attrs != NULL;
    }
    return whole ? node : NULL;
}

/* Says whether a function that is run again reads what it read before. */
static void note_leaf(eg_tape *tape, const eg_tensor *leaf)
{
    const uint64_t read[] = {tape->leaves, leaf->storage->version};
    tape->leaves = eg__hash(read, sizeof read, 0);
}

static eg_status record(application *app)
{
    const eg_op_call *call = &app->call;
    eg_tape *tape = app->tape;
    EG_CHECK(tape->n_nodes < UINT32_MAX, EG_EUNSUPPORTED, "too many operations on one tape");
    EG_TRY(eg__grow(&tape->nodes, &tape->capacity, tape->n_nodes + 1, sizeof *tape->nodes));
    eg__node *node = new_node(tape, call);
    if (!node)
        return EG_ENOMEM;
    for (size_t i = 0; i < call->n_in; i++) {
        eg_tensor *t = call->in[i];
        node->in_spec[i] = spec_of(t);
        node->needs_grad[i] = app->needs_grad[i];
        if (!app->needs_grad[i])
            continue;
        if (t->tape_id == 0) {
            node->edges[i].leaf = eg_tensor_keep(t);
            note_leaf(tape, t);
        } else {
            node->edges[i] = (eg__edge){.node = t->node, .out = t->out_index};
        }
    }
    node->saved = app->saved;
    for (size_t i = 0; i < node->saved.n; i++)
        node->saved.versions[i] = node->saved.tensors[i]->storage ? node->saved.tensors[i]->storage->version : 0;
    app->saved = (eg__saved){0};
    for (size_t i = 0; i < call->n_out; i++) {
        eg_tensor *t = call->out[i];
        t->requires_grad = eg__is_float(t->dtype);
        t->tape_id = tape->id;
        t->node = (uint32_t)tape->n_nodes;
        t->out_index = (uint32_t)i;
    }
    tape->nodes[tape->n_nodes++] = node;
    offer_result(tape, call);
    return EG_OK;
}

eg_status eg_op_save(eg_op_call *call, eg_tensor *t)
{
    if (!call || !t) {
        eg__null(__func__, call ? "tensor" : "call");
        return eg_error_last()->code;
    }
    application *app = call->record;
    return app->tape && !app->tape->forgetful ? eg__saved_add(&app->tape->arena, &app->saved, t) : EG_OK;
}

/* ---- all together ---- */

static eg_status show_to_trace(application *app)
{
    const eg__trace_sink *sink = app->state->sink;
    return sink && app->state->inside == 0 ? sink->on_op(sink->payload, &app->call) : EG_OK;
}

/* Hands the outputs to the scope; several become a tuple, which holds them. */
static eg_tensor *deliver(application *app)
{
    size_t n = app->call.n_out;
    if (n == 1) {
        eg_tensor *t = app->out[0];
        app->out[0] = NULL;
        return eg__scope_add(t);
    }
    return eg_tuple(app->call.ctx, app->out, n);
}

static eg_tensor *run(application *app)
{
    eg_status status = prepare(app);
    eg_tensor *shared = status == EG_OK ? equal_result(app) : NULL;
    if (status == EG_OK && !shared && app->tape)
        shared = eg__lift(app->tape, &app->call, &status);
    if (shared)
        return eg__scope_add(eg_tensor_keep(shared));
    if (status == EG_OK)
        status = compute(app);
    if (status == EG_OK)
        status = show_to_trace(app);
    if (status == EG_OK && app->tape)
        status = record(app);
    if (status == EG_OK) {
        eg_tensor *result = deliver(app);
        if (result)
            return result;
        status = eg_error_last()->code;
    }
    const char *name = app->call.op->name ? app->call.op->name : "operation";
    eg__op_fail(status, name, app->call.ctx ? eg__call_path(app->call.ctx) : "");
    return NULL;
}

eg_tensor *eg_apply(const eg_op *op, eg_tensor *const *in, size_t n_in, const void *attrs)
{
    if (!op || (!in && n_in > 0))
        return eg__null(__func__, op ? "the list of inputs" : "operation");
    for (size_t i = 0; i < n_in; i++)
        if (!in[i])
            return eg__null(op->name ? op->name : __func__, "an input");
    application app = {.call = {.op = op, .attrs = attrs, .in = in, .n_in = n_in, .n_out = op->n_out ? op->n_out : 1}};
    app.call.out = app.out;
    app.call.record = &app;
    eg_tensor *result = run(&app);
    eg__saved_release(&app.saved);
    for (size_t i = 0; i < EG_OP_MAX_OUTPUTS; i++)
        eg_tensor_release(app.out[i]);
    if (app.needs_grad != app.few_needs_grad)
        free(app.needs_grad);
    return result;
}

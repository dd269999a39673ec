/*
 * autograd/recompute.c - functions of which nothing is saved, run again in backward.
 *
 * The first run is on a tape of its own that saves nothing, not on none: what is recorded takes other ways (a batch
 * norm is fused into a sum, equal stateless operations share their result), and both runs must take the same ones to
 * give the same bits. Inputs go in as leaves behind an operation that does nothing, for only readers of a recorded
 * result share.
 *
 * Stateless operations on inputs may be lifted: applied on the outer tape, with the result as a further input, of which
 * the function knows nothing. What several functions would each do, and do again, is then done once.
 */
#include "autograd/internal.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_LIFTED = 8 }; /* by one function */

/* What was applied to an input. */
typedef struct lifted {
    size_t input;
    const eg_op *op;
    const void *attrs; /* in the outer tape's arena */
} lifted;

typedef struct eg__repetition {
    eg_recompute_fn fn;
    void *payload;
    void (*release)(void *payload);
    size_t n_in; /* that fn gets; what is lifted comes behind them */
    bool lifts;
    size_t n_lifted;
    lifted lifted[MAX_LIFTED];
    eg_rng rng;      /* before the first run */
    bool outermost;  /* no module was running then */
    uint64_t leaves; /* what the first run read */
} eg__repetition;

void eg__repetition_free(eg__repetition *r)
{
    if (!r)
        return;
    if (r->release)
        r->release(r->payload);
    free(r);
}

/* ---- the inputs of a run ---- */

static eg_status input_forward(eg_op_call *call)
{
    call->out[0] = eg_tensor_keep(call->in[0]);
    return EG_OK;
}

static eg_status input_backward(eg_op_grad *grad)
{
    return eg_op_grad_pass(grad, 0, grad->grad_out[0]);
}

static const eg_op input_op = {.struct_size = sizeof(eg_op),
                               .name = "input",
                               .makes_outputs = true,
                               .forward = input_forward,
                               .backward = input_backward};

/* *leaf: the numbers of `in` without its history; *given: the same on the innermost tape, for fn. Both belong to that
 * tape's scope. */
static eg_status make_input(eg_tape *tape, eg_tensor *in, bool needs_grad, eg_tensor **leaf, eg_tensor **given)
{
    uint64_t leaves = tape->leaves; /* of inputs, the node of the outer tape knows the versions */
    *leaf = *given = in;
    if (eg_is_none(in))
        return EG_OK;
    *leaf = eg__scope_add(eg__tensor_new_view(in, in->shape, in->strides, in->offset));
    if (!*leaf)
        return eg_error_last()->code;
    (*leaf)->requires_grad = needs_grad;
    *given = eg_apply(&input_op, leaf, 1, NULL);
    tape->leaves = leaves;
    return *given ? EG_OK : eg_error_last()->code;
}

static eg_status make_inputs(eg_tape *tape, eg_tensor *const *in, const bool *needs_grad, size_t n, eg_tensor **leaves,
                             eg_tensor **given)
{
    for (size_t i = 0; i < n; i++)
        EG_TRY(make_input(tape, in[i], needs_grad[i], &leaves[i], &given[i]));
    return EG_OK;
}

/* ---- what is lifted ---- */

/* Of a run. */
typedef struct eg__lifting {
    eg__repetition *r;
    eg_tape *outer; /* NULL in the second run, which finds what the first one lifted */
    eg_tensor *const *in;
    eg_tensor **more; /* behind them, for what is lifted */
    eg_tensor **leaves, **given;
} eg__lifting;

/* Which of fn's inputs x is; n_in for none of them. */
static size_t input_of(const eg__lifting *l, const eg_tensor *x)
{
    size_t i = 0;
    while (i < l->r->n_in && !(l->given[i]->tape_id == x->tape_id && l->given[i]->node == x->node))
        i++;
    return i;
}

static bool is_equal(const lifted *known, size_t input, const eg_op_call *call)
{
    return known->input == input && known->op == call->op &&
           memcmp(known->attrs, call->attrs, call->op->attrs_size) == 0;
}

/* Applies the call to the outer input, and makes an input of what comes. NULL where the outer tape does not record it.
 */
static eg_tensor *lift_now(eg__lifting *l, eg_tape *tape, size_t input, const eg_op_call *call, eg_status *status)
{
    eg__repetition *r = l->r;
    size_t at = r->n_in + r->n_lifted;
    void *attrs = eg__arena_take(&l->outer->arena, call->op->attrs_size, 1);
    if (!attrs) {
        *status = EG_ENOMEM;
        return NULL;
    }
    eg__autograd *state = eg__autograd_of(tape->ctx);
    state->tape = l->outer;
    eg_tensor *y = eg_apply(call->op, &l->in[input], 1, call->attrs);
    state->tape = tape;
    *status = y ? EG_OK : eg_error_last()->code;
    if (!y || y->tape_id != l->outer->id)
        return NULL;
    *status = make_input(tape, y, true, &l->leaves[at], &l->given[at]);
    if (*status != EG_OK)
        return NULL;
    l->more[r->n_lifted] = eg_tensor_keep(y);
    eg_tensor_keep(l->given[at]); /* the call under way ends sooner than the run */
    r->lifted[r->n_lifted++] = (lifted){input, call->op, memcpy(attrs, call->attrs, call->op->attrs_size)};
    return l->given[at];
}

eg_tensor *eg__lift(eg_tape *tape, const eg_op_call *call, eg_status *status)
{
    eg__lifting *l = tape->lifting;
    if (!l || !call->op->stateless || call->n_in != 1 || call->in[0]->tape_id != tape->id)
        return NULL;
    size_t input = input_of(l, call->in[0]);
    if (input == l->r->n_in)
        return NULL;
    for (size_t i = 0; i < l->r->n_lifted; i++)
        if (is_equal(&l->r->lifted[i], input, call))
            return l->given[l->r->n_in + i];
    if (!l->outer || l->in[input]->tape_id != l->outer->id || l->r->n_lifted == MAX_LIFTED)
        return NULL;
    return lift_now(l, tape, input, call, status);
}

/* fn on an innermost tape; NULL on failure. */
static eg_tensor *run_fn(eg_tape *tape, eg__lifting *l)
{
    tape->lifting = l->r->lifts ? l : NULL;
    eg_tensor *y = l->r->fn(l->r->payload, l->given, l->r->n_in);
    tape->lifting = NULL;
    for (size_t i = 0; l->outer && i < l->r->n_lifted; i++)
        eg_tensor_release(l->given[l->r->n_in + i]);
    if (!y && eg_error_last()->code == EG_OK)
        eg_fail(EG_EINTERNAL, "the function returned NULL without a failure");
    return y;
}

/* ---- the second run ---- */

/* The outer gradient of an input, as far as it has come, is where the inner pass goes on: what is added to it is added
 * in the order, and mostly in the same kernels, of a plain call. */
static void lend_gradients(const eg_op_grad *grad, size_t n, eg_tape *tape, eg_tensor *const *given)
{
    for (size_t i = 0; i < n; i++) {
        if (!grad->needs_grad[i])
            continue;
        eg_tensor **slot = eg__gradient_slot(grad, i);
        tape->nodes[given[i]->node]->grad_out[0] = *slot;
        *slot = NULL;
    }
}

/* Of an input that the result does not depend on, the gradient is where it was put. */
static void take_gradients(eg_op_grad *grad, size_t n, eg_tape *tape, eg_tensor *const *leaves, eg_tensor *const *given)
{
    for (size_t i = 0; i < n; i++) {
        if (!grad->needs_grad[i])
            continue;
        eg_tensor **left = &tape->nodes[given[i]->node]->grad_out[0];
        grad->grad_in[i] = *left ? *left : leaves[i]->grad;
        *(*left ? left : &leaves[i]->grad) = NULL;
    }
}

/* Whether y has a history on the tape, or is a leaf. */
static bool depends(const eg_tensor *y, const eg_tape *tape)
{
    return y->requires_grad && (y->tape_id == 0 || y->tape_id == tape->id);
}

static eg_status differentiate(eg_op_grad *grad, eg_tape *tape, eg__repetition *r, eg_tensor **leaves)
{
    size_t n = r->n_in + r->n_lifted;
    eg_tensor **given = leaves + n;
    EG_TRY(make_inputs(tape, grad->saved, grad->needs_grad, n, leaves, given));
    eg_tensor *y = run_fn(tape, &(eg__lifting){.r = r, .in = grad->saved, .leaves = leaves, .given = given});
    if (!y)
        return eg_error_last()->code;
    EG_CHECK(tape->leaves == r->leaves && depends(y, tape), EG_EINVAL,
             "a tensor that its gradient needs was changed in place after forward, or the function read others when it "
             "was run again");
    if (y->tape_id == 0) /* a parameter as it is */
        return eg__add_into_leaf(y, eg_tensor_keep(grad->grad_out[0]));
    lend_gradients(grad, n, tape, given);
    eg_status status = eg_backward_from(y, grad->grad_out[0]);
    take_gradients(grad, n, tape, leaves, given);
    return status;
}

static eg_status run_again(eg_op_grad *grad, eg__repetition *r)
{
    eg_tensor **inputs = eg__calloc(2 * (r->n_in + r->n_lifted) + 1, sizeof *inputs);
    if (!inputs)
        return EG_ENOMEM;
    eg_tape *tape = eg_tape_begin(grad->ctx, EG_RECORD);
    eg_status status = tape ? differentiate(grad, tape, r, inputs) : EG_ENOMEM;
    eg_tape_end(tape);
    free(inputs);
    return status;
}

static eg_status recompute_backward(eg_op_grad *grad)
{
    eg__repetition *r = eg__node_of(grad)->repetition;
    eg__autograd *state = eg__autograd_of(grad->ctx);
    eg_rng *rng = eg_context_rng(grad->ctx), after = *rng;
    unsigned outermost = state->outermost;
    EG_TRY(eg__repeat(grad->ctx, 1));
    *rng = r->rng;
    if (r->outermost)
        state->outermost = state->inside;
    eg_status status = run_again(grad, r);
    state->outermost = outermost;
    *rng = after;
    eg__repeat(grad->ctx, -1);
    return status;
}

/* ---- the first run ---- */

/* Its attribute: what fn gave. */
static eg_status recompute_forward(eg_op_call *call)
{
    call->out[0] = eg_tensor_keep(*(eg_tensor *const *)call->attrs);
    for (size_t i = 0; i < call->n_in; i++)
        EG_TRY(eg_op_save(call, call->in[i]));
    return EG_OK;
}

static const eg_op recompute_op = {.struct_size = sizeof(eg_op),
                                   .name = "recompute",
                                   .attrs_size = sizeof(eg_tensor *),
                                   .optional = UINT32_MAX,
                                   .makes_outputs = true,
                                   .forward = recompute_forward,
                                   .backward = recompute_backward};

/* Room for a run's lists: of inputs with one more and what is lifted, as many leaves, as many given, and what needs a
 * gradient. */
typedef struct lists {
    eg_tensor **in, **leaves, **given;
    bool *needs_grad;
} lists;

static eg_status lists_make(lists *l, eg_tensor *const *in, size_t n)
{
    size_t room = n + 1 + MAX_LIFTED;
    l->in = eg__calloc(3 * room, sizeof *l->in);
    l->needs_grad = eg__calloc(n + 1, sizeof *l->needs_grad);
    if (!l->in || !l->needs_grad)
        return EG_ENOMEM;
    l->leaves = l->in + room;
    l->given = l->leaves + room;
    memcpy(l->in, in, n * sizeof *in);
    return EG_OK;
}

/* Runs fn; *y is the caller's. *recorded: a gradient can flow through it. */
static eg_status run_first(eg__repetition *r, eg_tape *outer, lists *l, eg_tensor **y, bool *recorded)
{
    for (size_t i = 0; i < r->n_in; i++)
        l->needs_grad[i] = !eg_is_none(l->in[i]) && depends(l->in[i], outer);
    eg_tape *tape = eg_tape_begin(outer->ctx, EG_RECORD);
    if (!tape)
        return EG_ENOMEM;
    tape->forgetful = true;
    eg_status status = make_inputs(tape, l->in, l->needs_grad, r->n_in, l->leaves, l->given);
    r->rng = *eg_context_rng(outer->ctx);
    r->outermost = eg__call_depth(outer->ctx) == 0 && eg__is_outermost(outer->ctx);
    eg__lifting lifting = {r, outer, l->in, l->in + r->n_in, l->leaves, l->given};
    *y = status == EG_OK ? eg_tensor_keep(run_fn(tape, &lifting)) : NULL;
    if (status == EG_OK && !*y)
        status = eg_error_last()->code;
    if (*y)
        *recorded = (*y)->kind == EG__DENSE && depends(*y, tape);
    r->leaves = tape->leaves;
    eg_tape_end(tape);
    eg__note_read(outer->ctx, &r->leaves, sizeof r->leaves);
    return status;
}

/* The result as a node of the outer tape, which takes r over. Where no input needs a gradient, a leaf that nobody reads
 * is one more: fn has leaves of its own. NULL on failure. */
static eg_tensor *record(eg__repetition *r, eg_context *ctx, lists *l, eg_tensor *y)
{
    bool any = false;
    for (size_t i = 0; i < r->n_in; i++)
        any |= l->needs_grad[i];
    if (!any) {
        l->in[r->n_in] = eg_empty(ctx, EG_F32, EG_SCALAR, EG_LAYOUT_DEFAULT);
        if (!l->in[r->n_in] || eg_tensor_set_requires_grad(l->in[r->n_in], true) != EG_OK)
            return NULL;
    }
    eg_tensor *out = eg_apply(&recompute_op, l->in, r->n_in + r->n_lifted + (any ? 0 : 1), &y);
    if (out)
        eg__find_tape(eg__autograd_of(ctx), out->tape_id)->nodes[out->node]->repetition = r;
    return out;
}

/* Takes r over. */
static eg_tensor *recompute(eg__repetition *r, eg_tape *outer, eg_tensor *const *in)
{
    lists l = {0};
    eg_tensor *y = NULL, *out = NULL;
    bool recorded = false;
    eg_status status = lists_make(&l, in, r->n_in);
    if (status == EG_OK)
        status = run_first(r, outer, &l, &y, &recorded);
    if (status == EG_OK && recorded)
        out = record(r, outer->ctx, &l, y);
    else if (status == EG_OK) /* a constant, eg_none, a tuple */
        out = eg__scope_add(eg_tensor_keep(y));
    eg_tensor_release(y);
    for (size_t i = 0; i < r->n_lifted; i++)
        eg_tensor_release(l.in[r->n_in + i]);
    if (!out || !recorded)
        eg__repetition_free(r);
    free(l.in);
    free(l.needs_grad);
    return out;
}

static bool is_plain(const eg__autograd *state, eg_tensor *const *in, size_t n)
{
    bool plain = !eg__recording_tape(state) || state->sink;
    for (size_t i = 0; i < n; i++)
        plain |= in[i]->kind == EG__TUPLE || (in[i]->kind == EG__DENSE && !in[i]->storage);
    return plain;
}

static eg_tensor *null_argument(eg_context *ctx, eg_recompute_fn fn, eg_tensor *const *in, size_t n)
{
    for (size_t i = 0; ctx && fn && in && i < n; i++)
        if (!in[i])
            return eg__null("eg_recompute", "an input");
    return eg__null("eg_recompute", !ctx ? "context" : !fn ? "function" : "the list of inputs");
}

eg_tensor *eg__recompute(eg_context *ctx, eg_recompute_fn fn, void *payload, void (*release)(void *payload),
                         eg_tensor *const *in, size_t n_in, bool lift)
{
    bool whole = ctx && fn && (in || n_in == 0);
    for (size_t i = 0; whole && i < n_in; i++)
        whole = in[i] != NULL;
    eg__autograd *state = whole ? eg__autograd_of(ctx) : NULL;
    eg__repetition *r = state && !is_plain(state, in, n_in) ? eg__calloc(1, sizeof *r) : NULL;
    if (r) {
        *r = (eg__repetition){.fn = fn, .payload = payload, .release = release, .n_in = n_in, .lifts = lift};
        return recompute(r, eg__recording_tape(state), in);
    }
    eg_tensor *y = NULL;
    if (!whole)
        null_argument(ctx, fn, in, n_in);
    else if (state && is_plain(state, in, n_in))
        y = fn(payload, in, n_in);
    if (release)
        release(payload);
    return y;
}

eg_tensor *eg_recompute(eg_context *ctx, eg_recompute_fn fn, void *payload, void (*release)(void *payload),
                        eg_tensor *const *in, size_t n_in)
{
    return eg__recompute(ctx, fn, payload, release, in, n_in, false);
}

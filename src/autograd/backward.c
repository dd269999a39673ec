/*
 * autograd/backward.c - from a loss back to the leaves.
 *
 * Nodes are walked from the loss's own to the first. Each hands its inputs' gradients on: the first one to arrive at a
 * place is moved there, later ones are added, in place when nobody else holds what lies there. What a node had saved
 * is let go as soon as it has been passed, so that the pool serves the rest of the pass from it.
 */
#include "autograd/internal.h"
#include "tensor/kernels.h"

/* *slot += grad; takes over the reference to grad, also on failure. */
static eg_status add_into(eg_tensor **slot, eg_tensor *grad)
{
    eg_tensor *sum = *slot;
    if (!sum) {
        *slot = grad;
        return EG_OK;
    }
    const eg_kernels *kernels = eg__kernels(grad->ctx, grad->dtype);
    eg_status status = EG_OK;
    if (!eg__is_exclusive(sum) && eg__is_exclusive(grad) && eg__same_strides(sum, grad)) {
        *slot = grad;
        grad = sum;
        sum = *slot;
    } else if (!eg__is_exclusive(sum)) {
        eg_tensor *fresh = eg__tensor_new_like(sum);
        status = fresh ? eg__tensor_copy_into(fresh, sum) : eg_error_last()->code;
        if (fresh) {
            eg_tensor_release(sum);
            *slot = sum = fresh;
        }
    }
    if (status == EG_OK && eg_shape_numel(grad->shape) > 0)
        status = kernels->accumulate(grad, sum);
    eg_tensor_touch(sum);
    eg_tensor_release(grad);
    return status;
}

/* A leaf's gradient lies in memory as the leaf does: optimizers run over both at once. */
eg_status eg__add_into_leaf(eg_tensor *leaf, eg_tensor *grad)
{
    if (leaf->grad || (eg__is_exclusive(grad) && eg__same_strides(leaf, grad)))
        return add_into(&leaf->grad, grad);
    eg_tensor *fresh = eg__tensor_new_like(leaf);
    eg_status status = fresh ? eg__tensor_copy_into(fresh, grad) : eg_error_last()->code;
    eg_tensor_release(grad);
    if (status != EG_OK) {
        eg_tensor_release(fresh);
        return status;
    }
    leaf->grad = fresh;
    return EG_OK;
}

/* ---- for the operations' backward ---- */

/* What op_grad.record points to. */
typedef struct pass_record {
    eg_tape *tape;
    eg__node *node;
} pass_record;

static eg_status check_index(const eg_op_grad *grad, size_t i)
{
    EG_CHECK(grad != NULL, EG_EINVAL, "the gradients' record is NULL");
    EG_CHECK(i < grad->n_in, EG_EINVAL, "there is no input %zu, only %zu", i, grad->n_in);
    EG_CHECK(grad->needs_grad[i], EG_EINVAL, "no gradient is needed for input %zu", i);
    return EG_OK;
}

static void set_grad_in(eg_op_grad *grad, size_t i, eg_tensor *t)
{
    eg_tensor_release(grad->grad_in[i]);
    grad->grad_in[i] = t;
}

eg_tensor *eg_op_grad_new(eg_op_grad *grad, size_t i)
{
    if (check_index(grad, i) != EG_OK)
        return NULL;
    const eg_spec *spec = &grad->in_spec[i];
    eg_tensor *t = eg__tensor_new(grad->ctx, spec->dtype, spec->shape, spec->layout);
    if (t)
        set_grad_in(grad, i, t);
    return t;
}

/* Whether nobody else holds t and it is what eg_op_grad_new() would make. */
static bool serves(const eg_spec *spec, const eg_tensor *t)
{
    if (t->dtype != spec->dtype || !eg_shape_equal(t->shape, spec->shape) || !eg__is_exclusive(t))
        return false;
    int64_t strides[EG_MAX_DIMS];
    eg__layout_strides(spec->shape, spec->layout, strides);
    for (int d = 0; d < spec->shape.ndim; d++)
        if (spec->shape.dims[d] != 1 && t->strides[d] != strides[d])
            return false;
    return true;
}

eg__node *eg__node_of(const eg_op_grad *grad)
{
    return ((const pass_record *)grad->record)->node;
}

eg_tensor **eg__gradient_slot(const eg_op_grad *grad, size_t i)
{
    const pass_record *record = grad->record;
    const eg__edge *edge = &record->node->edges[i];
    return edge->leaf ? &edge->leaf->grad : &record->tape->nodes[edge->node]->grad_out[edge->out];
}

eg_tensor *eg_op_grad_into(eg_op_grad *grad, size_t i, eg_tensor *reuse, bool *add)
{
    if (check_index(grad, i) != EG_OK)
        return NULL;
    const eg_spec *spec = &grad->in_spec[i];
    eg_tensor *sum = add && grad->needs_grad[i] ? *eg__gradient_slot(grad, i) : NULL;
    if (add)
        *add = sum && serves(spec, sum);
    if (sum && *add) {
        eg_tensor_touch(sum);
        return sum;
    }
    if (!reuse || !serves(spec, reuse))
        return eg_op_grad_new(grad, i);
    eg_tensor *view = eg__tensor_new_view(reuse, reuse->shape, reuse->strides, reuse->offset); /* without its history */
    if (view)
        set_grad_in(grad, i, view);
    return view;
}

eg_status eg_op_grad_pass(eg_op_grad *grad, size_t i, eg_tensor *t)
{
    EG_TRY(check_index(grad, i));
    EG_TRY(eg__tensor_check_dense(t, "gradient"));
    const eg_spec *spec = &grad->in_spec[i];
    bool mixed = eg__parameter_type(t->dtype) == eg__parameter_type(spec->dtype);
    if (!mixed || !eg_shape_equal(t->shape, spec->shape)) {
        char a[EG_SHAPE_TEXT_SIZE], b[EG_SHAPE_TEXT_SIZE];
        return eg_fail(EG_ESHAPE, "gradient of input %zu is %s %s, the input %s %s", i, eg_dtype_name(t->dtype),
                       eg_shape_format(t->shape, a, sizeof a), eg_dtype_name(spec->dtype),
                       eg_shape_format(spec->shape, b, sizeof b));
    }
    if (t->dtype != spec->dtype) { /* one of them is bfloat16 */
        eg_tensor *copy = eg_op_grad_new(grad, i);
        return copy ? eg__tensor_copy_into(copy, t) : eg_error_last()->code;
    }
    set_grad_in(grad, i, eg_tensor_keep(t));
    return EG_OK;
}

/* ---- the pass ---- */

static void release_all(eg_tensor **t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        eg_tensor_release(t[i]);
        t[i] = NULL;
    }
}

static eg_status check_saved(const eg__node *node)
{
    for (size_t i = 0; i < node->saved.n; i++) {
        const eg__storage *storage = node->saved.tensors[i]->storage;
        EG_CHECK(!storage || storage->version == node->saved.versions[i], EG_EINVAL,
                 "a tensor that its gradient needs was changed in place after forward");
    }
    return EG_OK;
}

/* What backward makes on the way lives in a scope of its own. */
static eg_status call_backward(eg_tape *tape, eg__node *node)
{
    eg_context *ctx = tape->ctx;
    pass_record record = {tape, node};
    EG_TRY(check_saved(node));
    size_t scope = eg__scope_enter(ctx);
    if (scope == SIZE_MAX)
        return EG_ENOMEM;
    eg_op_grad grad = {.ctx = ctx,
                       .op = node->op,
                       .attrs = node->attrs,
                       .n_in = node->n_in,
                       .n_out = node->n_out,
                       .n_saved = node->saved.n,
                       .in_spec = node->in_spec,
                       .needs_grad = node->needs_grad,
                       .saved = node->saved.tensors,
                       .grad_out = node->grad_out,
                       .grad_in = node->grad_in,
                       .record = &record};
    eg_status status = node->op->backward(&grad);
    eg__scope_leave(ctx, scope, NULL);
    return status;
}

static eg_status hand_on(eg_tape *tape, eg__node *node)
{
    for (size_t i = 0; i < node->n_in; i++) {
        eg_tensor *grad = node->grad_in[i];
        const eg__edge *edge = &node->edges[i];
        node->grad_in[i] = NULL;
        if (!grad)
            continue;
        if (!node->needs_grad[i])
            eg_tensor_release(grad);
        else if (edge->leaf)
            EG_TRY(eg__add_into_leaf(edge->leaf, grad));
        else
            EG_TRY(add_into(&tape->nodes[edge->node]->grad_out[edge->out], grad));
    }
    return EG_OK;
}

static eg_status pass_node(eg_tape *tape, eg__node *node)
{
    bool arrived = false;
    for (size_t i = 0; i < node->n_out; i++)
        arrived |= node->grad_out[i] != NULL;
    eg_status status = arrived ? call_backward(tape, node) : EG_OK;
    eg__saved_release(&node->saved);
    release_all(node->grad_out, node->n_out);
    if (status == EG_OK)
        status = hand_on(tape, node);
    if (status != EG_OK)
        eg__fail_prefix(status, "backward of %s%s%s%s", node->op->name, node->path[0] ? " '" : "", node->path,
                        node->path[0] ? "'" : "");
    return status;
}

/* Marks what the loss depends on, before any gradient is touched. */
static eg_status mark_reached(eg_tape *tape, uint32_t start)
{
    for (size_t k = 0; k <= start; k++)
        tape->nodes[k]->reached = false;
    tape->nodes[start]->reached = true;
    for (size_t k = (size_t)start + 1; k-- > 0;) {
        const eg__node *node = tape->nodes[k];
        if (!node->reached)
            continue;
        EG_CHECK(!node->done, EG_EINVAL, "backward has passed here before: the tape's record is used up");
        for (size_t i = 0; i < node->n_in; i++)
            if (node->needs_grad[i] && !node->edges[i].leaf)
                tape->nodes[node->edges[i].node]->reached = true;
    }
    return EG_OK;
}

static eg_status pass_all(eg_tape *tape, uint32_t start)
{
    eg_status status = EG_OK;
    for (size_t k = (size_t)start + 1; k-- > 0;) {
        eg__node *node = tape->nodes[k];
        if (!node->reached)
            continue;
        node->done = true;
        if (status == EG_OK) {
            status = pass_node(tape, node);
        } else { /* after a failure only let go */
            eg__saved_release(&node->saved);
            release_all(node->grad_out, node->n_out);
        }
        release_all(node->grad_in, node->n_in);
    }
    return status;
}

eg_status eg_backward_from(eg_tensor *t, eg_tensor *grad)
{
    EG_TRY(eg__tensor_check_dense(t, "tensor"));
    EG_TRY(eg__tensor_check_dense(grad, "gradient"));
    if (grad->ctx != t->ctx || grad->dtype != t->dtype || !eg_shape_equal(grad->shape, t->shape)) {
        char a[EG_SHAPE_TEXT_SIZE], b[EG_SHAPE_TEXT_SIZE];
        return eg_fail(EG_ESHAPE, "gradient is %s %s, the tensor %s %s", eg_dtype_name(grad->dtype),
                       eg_shape_format(grad->shape, a, sizeof a), eg_dtype_name(t->dtype),
                       eg_shape_format(t->shape, b, sizeof b));
    }
    eg__autograd *state = eg__autograd_of(t->ctx);
    if (!state)
        return EG_ENOMEM;
    eg_tape *tape = t->requires_grad && t->tape_id ? eg__find_tape(state, t->tape_id) : NULL;
    EG_CHECK(tape, EG_EINVAL,
             "nothing was recorded: the tensor does not depend on one that requires a gradient, or its tape has ended");
    EG_CHECK(!tape->forgetful, EG_EINVAL,
             "this runs for eg_recompute(), which runs it again to differentiate it: backward comes after");
    EG_TRY(mark_reached(tape, t->node));
    eg__tape_stop_sharing(tape);
    state->inside++;
    eg_status status = add_into(&tape->nodes[t->node]->grad_out[t->out_index], eg_tensor_keep(grad));
    if (status == EG_OK)
        status = pass_all(tape, t->node);
    state->inside--;
    return status;
}

eg_status eg_backward(eg_tensor *loss)
{
    EG_TRY(eg__tensor_check_dense(loss, "loss"));
    if (eg_shape_numel(loss->shape) != 1) {
        char text[EG_SHAPE_TEXT_SIZE];
        return eg_fail(EG_ESHAPE, "loss has shape %s, expected one element",
                       eg_shape_format(loss->shape, text, sizeof text));
    }
    EG_CHECK(eg__is_float(loss->dtype), EG_EDTYPE, "loss is %s, expected a floating-point type",
             eg_dtype_name(loss->dtype));
    eg_tensor *one = eg__tensor_new_like(loss);
    if (!one)
        return eg_error_last()->code;
    eg_status status = eg_tensor_write(one, &(float){1.0F}, 1);
    if (status == EG_OK)
        status = eg_backward_from(loss, one);
    eg_tensor_release(one);
    return status;
}

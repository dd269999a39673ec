/*
 * ops/rnn.c - recurrent layers: one layer in one direction over a whole sequence is one operation.
 *
 * The products of all inputs with their weights are one product, as are the gradients of either weight; only the
 * product with the state goes step by step. The states stand in one tensor of T + 1 steps, h0 before the first (after
 * the last, in reverse): the states after each step are y, those before each are what the weights' gradient needs, and
 * both are the same numbers, a step apart. With LSTM the cells stand likewise.
 */
#include "ops/internal.h"

enum { X, WEIGHT_IH, WEIGHT_HH, BIAS_IH, BIAS_HH, H0, C0 };          /* inputs; GRU has no C0 */
enum { SAVED_X, SAVED_IH, SAVED_HH, SAVED_GATES, SAVED_H, SAVED_C }; /* GRU: no cells */

/* Room between rows of gradients. The products for the weights' gradients read columns, which a distance of 4096 bytes
 * (256 units) would put into one set of the cache: twice as slow. */
enum { PADDING = 16 };

typedef struct layer {
    eg__rnn kind;
    const eg_kernels *k;
    int64_t steps, n, in, units;
    int64_t width;         /* of the pre-activations: units for each gate */
    int64_t before, after; /* steps of the states' tensor by which the states before and after a step lie behind it */
    bool reverse;
} layer;

static layer layer_of(eg__rnn kind, const eg_context *ctx, eg_dtype dtype, eg_shape x, int64_t units, bool reverse)
{
    return (layer){.kind = kind,
                   .k = eg__kernels(ctx, dtype),
                   .steps = x.dims[0],
                   .n = x.dims[1],
                   .in = x.dims[2],
                   .units = units,
                   .width = (kind == EG__LSTM ? 4 : 3) * units,
                   .before = reverse ? 1 : 0,
                   .after = reverse ? 0 : 1,
                   .reverse = reverse};
}

/* Step number i in the order of computing. */
static int64_t step_at(const layer *l, int64_t i)
{
    return l->reverse ? l->steps - 1 - i : i;
}

/* The n rows of one step of a tensor (.., n, columns). */
static eg_tensor step_of(const layer *l, const eg_tensor *t, int64_t step)
{
    return eg__operand_some_rows(t, step * l->n, l->n);
}

/* The part of rows that has pre-activations, or their gradients. */
static eg_tensor pre_activations(const layer *l, const eg_tensor *t, int64_t first, int64_t rows)
{
    eg_tensor wide = eg__operand_some_rows(t, first, rows);
    return eg__operand_slice(&wide, 1, 0, l->width, 1);
}

/* ---- checks ---- */

static eg_status check_state(const eg_op_call *call, size_t i, const char *what, int64_t n, int64_t units)
{
    if (i >= call->n_in || eg_is_none(call->in[i]))
        return EG_OK;
    EG_TRY(eg__check_input(call, i, what));
    EG_CHECK(eg_shape_equal(call->in[i]->shape, EG_SHAPE(n, units)), EG_ESHAPE,
             "%s has shape %s, expected (%lld, %lld)", what, EG__TEXT(call->in[i]->shape), (long long)n,
             (long long)units);
    return EG_OK;
}

static eg_status check_layer(const eg_op_call *call, eg__rnn kind)
{
    const eg_tensor *x = call->in[X], *ih = call->in[WEIGHT_IH], *hh = call->in[WEIGHT_HH];
    EG_TRY(eg__check_input(call, X, "input"));
    EG_TRY(eg__check_input(call, WEIGHT_IH, "weight_ih"));
    EG_TRY(eg__check_input(call, WEIGHT_HH, "weight_hh"));
    EG_TRY(eg__check_ndim(x, "input", 3, "(T, N, features)"));
    EG_TRY(eg__check_ndim(ih, "weight_ih", 2, "(gates, features)"));
    EG_TRY(eg__check_ndim(hh, "weight_hh", 2, "(gates, units)"));
    int64_t units = hh->shape.dims[1], gates = kind == EG__LSTM ? 4 : 3;
    EG_CHECK(hh->shape.dims[0] % gates == 0 && hh->shape.dims[0] / gates == units, EG_ESHAPE,
             "weight_hh has shape %s, expected %lld rows for each of its %lld columns", EG__TEXT(hh->shape),
             (long long)gates, (long long)units);
    EG_CHECK(ih->shape.dims[0] == hh->shape.dims[0], EG_ESHAPE, "weight_ih has %lld rows, weight_hh has %lld",
             (long long)ih->shape.dims[0], (long long)hh->shape.dims[0]);
    EG_CHECK(x->shape.dims[2] == ih->shape.dims[1], EG_ESHAPE, "input has %lld features, weight_ih expects %lld",
             (long long)x->shape.dims[2], (long long)ih->shape.dims[1]);
    EG_TRY(eg__check_vector(call, BIAS_IH, "bias_ih", hh->shape.dims[0]));
    EG_TRY(eg__check_vector(call, BIAS_HH, "bias_hh", hh->shape.dims[0]));
    EG_TRY(check_state(call, H0, "h0", x->shape.dims[1], units));
    EG_TRY(check_state(call, C0, "c0", x->shape.dims[1], units));
    eg_spec largest; /* the gates: all else is smaller */
    return eg__spec_set(&largest, x, EG_SHAPE(x->shape.dims[0] + 1, x->shape.dims[1], 4 * units + PADDING));
}

/* ---- forward ---- */

static eg_tensor *new_rows(const eg_tensor *like, eg_shape shape)
{
    return eg__scope_add(eg__tensor_new(like->ctx, like->dtype, shape, EG_LAYOUT_ROW_MAJOR));
}

/* Room for the states around T steps, the first one set. */
static eg_tensor *new_states(const layer *l, const eg_tensor *like, eg_tensor *first)
{
    eg_tensor *states = new_rows(like, EG_SHAPE(l->steps + 1, l->n, l->units));
    if (!states)
        return NULL;
    eg_tensor at = step_of(l, states, step_at(l, 0) + l->before);
    eg_status status = first ? l->k->copy(first, &at) : l->k->fill(&at, 0);
    return status == EG_OK ? states : NULL;
}

static eg_status run_steps(const layer *l, const eg_op_call *call, eg_tensor *gates, eg_tensor *h, eg_tensor *cell)
{
    eg_tensor *recurrent = new_rows(h, EG_SHAPE(l->n, l->width));
    eg_tensor weight = eg__operand_transpose(call->in[WEIGHT_HH]);
    if (!recurrent)
        return eg__pending();
    for (int64_t i = 0; i < l->steps; i++) {
        int64_t t = step_at(l, i);
        eg_tensor h_before = step_of(l, h, t + l->before), h_after = step_of(l, h, t + l->after);
        eg_tensor c_before, c_after, now = step_of(l, gates, t);
        EG_TRY(l->k->matmul(&h_before, &weight, eg__optional(call->in[BIAS_HH]), recurrent));
        if (cell) {
            c_before = step_of(l, cell, t + l->before);
            c_after = step_of(l, cell, t + l->after);
        }
        EG_TRY(
            l->k->rnn_step(l->kind, recurrent, &now, cell ? &c_before : &h_before, cell ? &c_after : NULL, &h_after));
    }
    return EG_OK;
}

/* Views of the states: all that come after a step, and the last of them. */
static eg_status set_outputs(const layer *l, eg_op_call *call, eg_tensor *h, eg_tensor *cell)
{
    int64_t size = l->n * l->units, last = (step_at(l, l->steps - 1) + l->after) * size;
    call->out[0] = eg__tensor_new_view(h, EG_SHAPE(l->steps, l->n, l->units), h->strides, l->after * size);
    call->out[1] = eg__tensor_new_view(h, EG_SHAPE(l->n, l->units), h->strides + 1, last);
    if (cell)
        call->out[2] = eg__tensor_new_view(cell, EG_SHAPE(l->n, l->units), cell->strides + 1, last);
    return call->out[0] && call->out[1] && (!cell || call->out[2]) ? EG_OK : eg__pending();
}

static eg_status shapes_alone(const layer *l, eg_op_call *call)
{
    for (size_t i = 0; i < call->n_out; i++) {
        eg_shape shape = i == 0 ? EG_SHAPE(l->steps, l->n, l->units) : EG_SHAPE(l->n, l->units);
        call->out[i] = eg__tensor_new_shape_only(call->ctx, call->in[X]->dtype, shape, EG_LAYOUT_DEFAULT);
        if (!call->out[i])
            return eg__pending();
    }
    return EG_OK;
}

static bool any_shape_only(const eg_op_call *call)
{
    for (size_t i = 0; i < call->n_in; i++)
        if (!eg_is_none(call->in[i]) && !call->in[i]->storage)
            return true;
    return false;
}

static eg_status forward(eg_op_call *call, eg__rnn kind)
{
    EG_TRY(check_layer(call, kind));
    layer l = layer_of(kind, call->ctx, call->in[X]->dtype, call->in[X]->shape, call->in[WEIGHT_HH]->shape.dims[1],
                       ((const eg__rnn_attrs *)call->attrs)->reverse);
    if (any_shape_only(call))
        return shapes_alone(&l, call);
    eg_tensor *x = eg__scope_add(eg__with_rows(call->in[X]));
    eg_tensor *gates = x ? new_rows(x, EG_SHAPE(l.steps, l.n, 4 * l.units)) : NULL;
    eg_tensor *h = gates ? new_states(&l, x, eg__optional(call->in[H0])) : NULL;
    eg_tensor *cell = h && kind == EG__LSTM ? new_states(&l, x, eg__optional(call->in[C0])) : NULL;
    if (!h || (!cell && kind == EG__LSTM))
        return eg__pending();
    eg_tensor rows = eg__operand_some_rows(x, 0, l.steps * l.n), weight = eg__operand_transpose(call->in[WEIGHT_IH]);
    eg_tensor pre = pre_activations(&l, gates, 0, l.steps * l.n);
    EG_TRY(l.k->matmul(&rows, &weight, eg__optional(call->in[BIAS_IH]), &pre));
    EG_TRY(run_steps(&l, call, gates, h, cell));
    EG_TRY(set_outputs(&l, call, h, cell));
    eg_tensor *saved[] = {x, call->in[WEIGHT_IH], call->in[WEIGHT_HH], gates, h, cell};
    for (size_t i = 0; i < EG_COUNT(saved) && saved[i]; i++)
        EG_TRY(eg_op_save(call, saved[i]));
    return EG_OK;
}

/* ---- backward ---- */

/* A gradient of a state that arrived, or zeros, in a tensor to be written over. */
static eg_tensor *new_gradient(const layer *l, const eg_op_grad *grad, size_t out)
{
    const eg_tensor *arrived = out < grad->n_out ? grad->grad_out[out] : NULL;
    eg_tensor *d = new_rows(grad->saved[SAVED_H], EG_SHAPE(l->n, l->units));
    if (!d)
        return NULL;
    eg_status status = arrived ? l->k->copy(arrived, d) : l->k->fill(d, 0);
    return status == EG_OK ? d : NULL;
}

/* From the last step computed to the first: gradients of all pre-activations, and of the states at the beginning.
 * through: of h, through the products; carry: of the cells, or of GRU's h past the products. */
static eg_status run_steps_back(const layer *l, const eg_op_grad *grad, eg_tensor *dy, eg_tensor *dgates,
                                eg_tensor *drecurrent, eg_tensor *through, eg_tensor *carry)
{
    const eg_tensor *gates = grad->saved[SAVED_GATES], *h = grad->saved[SAVED_H];
    const eg_tensor *cell = l->kind == EG__LSTM ? grad->saved[SAVED_C] : NULL;
    for (int64_t i = l->steps; i-- > 0;) {
        int64_t t = step_at(l, i);
        eg_tensor now = step_of(l, gates, t), before = step_of(l, cell ? cell : h, t + l->before), after, dy_now;
        eg_tensor d = pre_activations(l, dgates, t * l->n, l->n);
        eg_tensor d_recurrent = pre_activations(l, drecurrent, t * l->n, l->n);
        if (cell)
            after = step_of(l, cell, t + l->after);
        if (dy)
            dy_now = step_of(l, dy, t);
        EG_TRY(l->k->rnn_step_backward(l->kind, &now, &before, cell ? &after : NULL, dy ? &dy_now : NULL, through,
                                       carry, &d, cell ? NULL : &d_recurrent));
        if (i > 0 || grad->needs_grad[H0])
            EG_TRY(l->k->matmul(&d_recurrent, grad->saved[SAVED_HH], NULL, through));
    }
    return EG_OK;
}

/* grad_in[i] = a^T b */
static eg_status weight_gradient(const layer *l, eg_op_grad *grad, size_t i, const eg_tensor *a, const eg_tensor *b)
{
    if (!grad->needs_grad[i])
        return EG_OK;
    eg_tensor *d = eg_op_grad_new(grad, i), transposed = eg__operand_transpose(a);
    return d ? l->k->matmul(&transposed, b, NULL, d) : eg__pending();
}

static eg_status bias_gradient(const layer *l, eg_op_grad *grad, size_t i, const eg_tensor *rows)
{
    if (!grad->needs_grad[i])
        return EG_OK;
    eg_tensor *d = eg_op_grad_new(grad, i);
    if (!d)
        return eg__pending();
    eg_tensor sums = eg__operand(d, EG_SHAPE(1, l->width), (const int64_t[]){0, 1}, 0);
    return l->k->reduce(EG__SUM, rows, &sums, NULL);
}

static eg_status input_gradients(const layer *l, eg_op_grad *grad, const eg_tensor *dgates, const eg_tensor *drecurrent)
{
    int64_t rows = l->steps * l->n;
    eg_tensor d = pre_activations(l, dgates, 0, rows), d_recurrent = pre_activations(l, drecurrent, 0, rows);
    eg_tensor x = eg__operand_some_rows(grad->saved[SAVED_X], 0, rows);
    eg_tensor before = eg__operand_some_rows(grad->saved[SAVED_H], l->before * l->n, rows);
    if (grad->needs_grad[X]) {
        eg_tensor *dx = eg_op_grad_new(grad, X);
        if (!dx)
            return eg__pending();
        eg_tensor dx_rows = eg__operand_some_rows(dx, 0, rows);
        EG_TRY(l->k->matmul(&d, grad->saved[SAVED_IH], NULL, &dx_rows));
    }
    EG_TRY(weight_gradient(l, grad, WEIGHT_IH, &d, &x));
    EG_TRY(weight_gradient(l, grad, WEIGHT_HH, &d_recurrent, &before));
    EG_TRY(bias_gradient(l, grad, BIAS_IH, &d));
    return bias_gradient(l, grad, BIAS_HH, &d_recurrent);
}

static eg_status backward(eg_op_grad *grad, eg__rnn kind)
{
    const eg_tensor *h = grad->saved[SAVED_H];
    layer l = layer_of(kind, grad->ctx, h->dtype, grad->in_spec[X].shape, h->shape.dims[2],
                       ((const eg__rnn_attrs *)grad->attrs)->reverse);
    eg_tensor *dy = grad->grad_out[0] ? eg__scope_add(eg__with_rows(grad->grad_out[0])) : NULL;
    eg_shape room = EG_SHAPE(l.steps, l.n, l.width + PADDING);
    eg_tensor *dgates = new_rows(h, room), *drecurrent = kind == EG__GRU ? new_rows(h, room) : dgates;
    eg_tensor *through = new_gradient(&l, grad, 1), *carry = new_gradient(&l, grad, 2);
    if (!dgates || !drecurrent || !through || !carry || (!dy && grad->grad_out[0]))
        return eg__pending();
    EG_TRY(run_steps_back(&l, grad, dy, dgates, drecurrent, through, carry));
    if (grad->needs_grad[H0]) {
        if (kind == EG__GRU)
            EG_TRY(l.k->accumulate(carry, through));
        EG_TRY(eg_op_grad_pass(grad, H0, through));
    }
    if (grad->n_in > C0 && grad->needs_grad[C0])
        EG_TRY(eg_op_grad_pass(grad, C0, carry));
    return input_gradients(&l, grad, dgates, drecurrent);
}

/* ---- the two records ---- */

static uint64_t rnn_macs(const eg_op_call *call)
{
    const eg_shape *x = &call->in[X]->shape;
    uint64_t weights =
        (uint64_t)eg_shape_numel(call->in[WEIGHT_IH]->shape) + (uint64_t)eg_shape_numel(call->in[WEIGHT_HH]->shape);
    return eg__mul_saturated((uint64_t)(x->dims[0] * x->dims[1]), weights);
}

static eg_status lstm_forward(eg_op_call *call)
{
    return forward(call, EG__LSTM);
}
static eg_status lstm_backward(eg_op_grad *grad)
{
    return backward(grad, EG__LSTM);
}
static eg_status gru_forward(eg_op_call *call)
{
    return forward(call, EG__GRU);
}
static eg_status gru_backward(eg_op_grad *grad)
{
    return backward(grad, EG__GRU);
}

const eg_op eg__op_lstm = {
    .struct_size = sizeof(eg_op),
    .name = "lstm",
    .attrs_size = sizeof(eg__rnn_attrs),
    .n_out = 3,
    .optional = 1u << BIAS_IH | 1u << BIAS_HH | 1u << H0 | 1u << C0,
    .makes_outputs = true, /* views of the states */
    .forward = lstm_forward,
    .backward = lstm_backward,
    .macs = rnn_macs,
};

const eg_op eg__op_gru = {
    .struct_size = sizeof(eg_op),
    .name = "gru",
    .attrs_size = sizeof(eg__rnn_attrs),
    .n_out = 2,
    .optional = 1u << BIAS_IH | 1u << BIAS_HH | 1u << H0,
    .makes_outputs = true,
    .forward = gru_forward,
    .backward = gru_backward,
    .macs = rnn_macs,
};

eg_tensor *eg_f_lstm_with(const eg_lstm_args *a)
{
    if (!a)
        return eg__null(__func__, "args");
    return eg_apply(&eg__op_lstm,
                    (eg_tensor *const[]){a->x, a->weight_ih, a->weight_hh, a->bias_ih, a->bias_hh, a->h0, a->c0}, 7,
                    &(eg__rnn_attrs){.reverse = a->reverse});
}

eg_tensor *eg_f_gru_with(const eg_gru_args *a)
{
    if (!a)
        return eg__null(__func__, "args");
    return eg_apply(&eg__op_gru, (eg_tensor *const[]){a->x, a->weight_ih, a->weight_hh, a->bias_ih, a->bias_hh, a->h0},
                    6, &(eg__rnn_attrs){.reverse = a->reverse});
}

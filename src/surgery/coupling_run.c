/*
 * The run that couplings are found in, and the nodes of its tensors.
 */
#include "surgery/coupling.h"

#include <stdlib.h>
#include <string.h>

/* ---- recording ---- */

typedef struct recorder {
    eg__ties *ties;
    eg__modes modes;
} recorder;

static eg_status add_tensor(eg__ties *ties, eg_tensor *t, bool leaf)
{
    EG_TRY(eg__grow(&ties->tensors, &ties->tensors_capacity, ties->n_tensors + 1, sizeof(*ties->tensors)));
    EG_CHECK(ties->n_tensors < UINT32_MAX - 1, EG_EUNSUPPORTED, "the model has too many tensors");
    ties->tensors[ties->n_tensors++] = (eg__tied){.shape = t->shape, .leaf = leaf ? eg_tensor_keep(t) : NULL};
    t->trace_id = ties->n_tensors;
    return EG_OK;
}

static eg_status fill_step(eg__ties *ties, const eg_op_call *call, eg__tied_step *s)
{
    s->op = call->op;
    s->in = eg__calloc(call->n_in + 1, sizeof(*s->in));
    s->attrs = eg__calloc(1, call->op->attrs_size + 1);
    s->path = eg__strdup(eg__call_path(call->ctx));
    if (s->in == NULL || s->attrs == NULL || s->path == NULL)
        return EG_ENOMEM;
    if (call->op->attrs_size > 0)
        memcpy(s->attrs, call->attrs, call->op->attrs_size);
    for (size_t i = 0; i < call->n_in; i++) {
        if (eg_is_none(call->in[i]))
            continue;
        if (call->in[i]->trace_id == 0)
            EG_TRY(add_tensor(ties, call->in[i], true));
        s->in[i] = (uint32_t)call->in[i]->trace_id;
    }
    s->n_in = call->n_in;
    for (size_t i = 0; i < call->n_out; i++) {
        EG_TRY(add_tensor(ties, call->out[i], false));
        s->out[i] = (uint32_t)call->out[i]->trace_id;
    }
    s->n_out = call->n_out;
    return EG_OK;
}

static eg_status on_op(void *payload, const eg_op_call *call)
{
    eg__ties *ties = ((recorder *)payload)->ties;
    EG_TRY(eg__grow(&ties->steps, &ties->steps_capacity, ties->n_steps + 1, sizeof(*ties->steps)));
    return fill_step(ties, call, &ties->steps[ties->n_steps++]);
}

/* ---- around the run ---- */

static eg_status note_outputs(eg__ties *ties, const eg_tensor *out)
{
    size_t n = eg_tuple_size(out);
    ties->outputs = eg__calloc(n + 1, sizeof(*ties->outputs));
    if (ties->outputs == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < n; i++)
        ties->outputs[ties->n_outputs++] = (uint32_t)eg_tuple_get(out, i)->trace_id;
    return EG_OK;
}

static eg_status call_model(recorder *r, eg_module *m, eg_tensor *const *in, size_t n_in)
{
    const eg__trace_sink sink = {.payload = r, .on_op = on_op}, *outer;
    EG_TRY(eg__trace_set(m->ctx, &sink, &outer));
    eg_tensor *out = eg_module_call(m, in, n_in);
    EG_TRY(eg__trace_set(m->ctx, outer, NULL));
    return out == NULL ? eg_error_last()->code : note_outputs(r->ties, out);
}

static eg_status run(recorder *r, eg_module *m, const eg_shape *shapes, size_t n)
{
    EG_TRY(eg__modes_save(&r->modes, m));
    eg_module_train(m, false);
    eg_tensor **in = eg__calloc(n + 1, sizeof(eg_tensor *));
    eg_tape *tape = in == NULL ? NULL : eg_tape_begin(m->ctx, EG_NO_GRAD);
    eg_status status = tape != NULL ? EG_OK : EG_ENOMEM;
    for (size_t i = 0; i < n && status == EG_OK; i++) {
        in[i] = eg_shape_only(m->ctx, shapes[i]);
        status = in[i] != NULL ? add_tensor(r->ties, in[i], false) : eg_error_last()->code;
    }
    r->ties->n_inputs = n;
    if (status == EG_OK)
        status = call_model(r, m, in, n);
    eg_tape_end(tape);
    free(in);
    return status;
}

eg_status eg__ties_run(eg__ties *ties, eg_module *model, const eg_shape *inputs, size_t n_inputs)
{
    *ties = (eg__ties){0};
    const eg__autograd *autograd = eg__autograd_of(model->ctx);
    if (autograd == NULL)
        return EG_ENOMEM;
    EG_CHECK(autograd->sink == NULL, EG_EINVAL, "a trace is running already");
    recorder r = {.ties = ties};
    eg_status status = run(&r, model, inputs, n_inputs);
    eg__modes_restore(&r.modes);
    for (size_t i = 0; i < ties->n_tensors; i++) {
        if (ties->tensors[i].leaf != NULL)
            ties->tensors[i].leaf->trace_id = 0;
    }
    return status;
}

void eg__ties_free(eg__ties *ties)
{
    for (size_t i = 0; i < ties->n_steps; i++) {
        free(ties->steps[i].attrs);
        free(ties->steps[i].in);
        free(ties->steps[i].path);
    }
    for (size_t i = 0; i < ties->n_tensors; i++)
        eg_tensor_release(ties->tensors[i].leaf);
    free(ties->steps);
    free(ties->tensors);
    free(ties->outputs);
    free(ties->parent);
    free(ties->sets);
    free(ties->marks);
    *ties = (eg__ties){0};
}

/* ---- nodes ---- */

eg_status eg__ties_begin(eg__ties *ties)
{
    size_t n = 0;
    for (size_t i = 0; i < ties->n_tensors; i++) {
        eg__tied *t = &ties->tensors[i];
        for (int d = 0; d < t->shape.ndim; d++) {
            t->first[d] = n;
            EG_CHECK((uint64_t)t->shape.dims[d] < UINT32_MAX - n, EG_EUNSUPPORTED,
                     "the tensors of the model are too large to be told apart index by index");
            n += (size_t)t->shape.dims[d];
        }
    }
    ties->n_nodes = n;
    ties->parent = eg__calloc(n + 1, sizeof(*ties->parent));
    ties->sets = eg__calloc(n + 1, sizeof(*ties->sets));
    ties->marks = eg__calloc(n + 1, sizeof(*ties->marks));
    if (ties->parent == NULL || ties->sets == NULL || ties->marks == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < n; i++)
        ties->parent[i] = (uint32_t)i;
    return EG_OK;
}

uint32_t eg__ties_find(eg__ties *ties, size_t node)
{
    uint32_t i = (uint32_t)node;
    while (ties->parent[i] != i) {
        ties->parent[i] = ties->parent[ties->parent[i]];
        i = ties->parent[i];
    }
    return i;
}

/* The smaller number stays, so that results do not depend on the order of ties. */
void eg__ties_join(eg__ties *ties, size_t a, size_t b)
{
    uint32_t x = eg__ties_find(ties, a), y = eg__ties_find(ties, b);
    if (x == y)
        return;
    uint32_t root = EG_MIN(x, y), other = EG_MAX(x, y);
    eg__node_set *to = &ties->sets[root];
    const eg__node_set *from = &ties->sets[other];
    ties->parent[other] = root;
    to->crossing = to->crossing || from->crossing;
    if (to->fixed == NULL || (from->fixed != NULL && to->fixed == eg__why_positions)) {
        to->fixed = from->fixed;
        to->fixed_step = from->fixed_step;
    }
    if (to->mixed == NULL) {
        to->mixed = from->mixed;
        to->mixed_step = from->mixed_step;
    }
}

void eg__ties_fix(eg__ties *ties, size_t node, const char *why, size_t step)
{
    eg__node_set *set = &ties->sets[eg__ties_find(ties, node)];
    if (set->fixed != NULL && set->fixed != eg__why_positions)
        return;
    set->fixed = why;
    set->fixed_step = (uint32_t)step;
}

void eg__ties_fix_dim(eg__ties *ties, uint32_t tensor, int dim, const char *why, size_t step)
{
    for (int64_t i = 0; i < ties->tensors[tensor].shape.dims[dim]; i++)
        eg__ties_fix(ties, eg__node_at(ties, tensor, dim, i), why, step);
}

void eg__ties_fix_all(eg__ties *ties, uint32_t tensor, const char *why, size_t step)
{
    for (int d = 0; d < ties->tensors[tensor].shape.ndim; d++)
        eg__ties_fix_dim(ties, tensor, d, why, step);
}

int64_t eg__copied(eg__ties *ties, uint32_t tensor, int dim, int64_t n, const int32_t *copies)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += copies[eg__ties_find(ties, eg__node_at(ties, tensor, dim, i))];
    return sum;
}

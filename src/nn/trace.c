/*
 * Traces: a model run on shapes alone, and what it did.
 */
#include "nn/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct step {
    eg_trace_op op;
    int64_t params;          /* elements of the parameters that no earlier operation used */
    const eg_module *module; /* that ran it; lent */
} step;

struct eg_trace {
    step *steps;
    size_t n_steps, capacity;
    eg_shape *outputs;
    uint64_t *output_ids;
    size_t n_outputs;
};

/* What is needed while the model runs. */
typedef struct recorder {
    eg_trace *trace;
    uint64_t last_id;
    eg__ptr_map parameters; /* of the model */
    eg__ptr_map parts;      /* of parameters -> the whole */
    eg__ptr_map counted;    /* parameters of which the whole or a part was used */
    eg_tensor **leaves;     /* numbered tensors that nothing in the run computed; kept, as parts are */
    size_t n_leaves, leaves_capacity;
    eg__modes modes;
} recorder;

static uint64_t saturating_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* ---- recording ---- */

static eg_status keep(recorder *r, eg_tensor *t)
{
    EG_TRY(eg__grow(&r->leaves, &r->leaves_capacity, r->n_leaves + 1, sizeof(eg_tensor *)));
    r->leaves[r->n_leaves++] = eg_tensor_keep(t);
    return EG_OK;
}

/* What a module with open fields runs with: each call has its own parts, which count once. */
static eg_status on_part(void *payload, eg_tensor *part, eg_tensor *whole)
{
    recorder *r = payload;
    EG_TRY(keep(r, part));
    return eg__ptr_map_put(&r->parts, part, whole);
}

static eg_status number_leaf(recorder *r, eg_tensor *t, int64_t *params)
{
    void **whole = eg__ptr_map_find(&r->parts, t);
    bool fresh = false;
    if (whole != NULL || eg__ptr_map_find(&r->parameters, t) != NULL)
        EG_TRY(eg__ptr_map_add(&r->counted, whole != NULL ? *whole : t, &fresh));
    EG_TRY(keep(r, t));
    t->trace_id = ++r->last_id;
    if (fresh)
        *params += eg_tensor_numel(t);
    return EG_OK;
}

static eg_status record(recorder *r, const eg_op_call *call, step *s)
{
    uint64_t *inputs = eg__calloc(call->n_in + 1, sizeof(*inputs));
    char *path = eg__strdup(eg__call_path(call->ctx));
    s->op = (eg_trace_op){.op = call->op->name, .path = path, .inputs = inputs, .n_inputs = call->n_in};
    if (inputs == NULL || path == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < call->n_in; i++) {
        eg_tensor *t = call->in[i];
        if (eg_is_none(t))
            continue;
        if (t->trace_id == 0)
            EG_TRY(number_leaf(r, t, &s->params));
        inputs[i] = t->trace_id;
    }
    s->module = eg__nn_state_of(call->ctx)->running;
    s->op.macs = call->op->macs == NULL ? 0 : call->op->macs(call);
    s->op.output = r->last_id + 1;
    s->op.n_outputs = call->n_out;
    s->op.output_shape = eg_tensor_shape(call->out[0]);
    for (size_t i = 0; i < call->n_out; i++)
        call->out[i]->trace_id = ++r->last_id;
    return EG_OK;
}

static eg_status on_op(void *payload, const eg_op_call *call)
{
    recorder *r = payload;
    eg_trace *trace = r->trace;
    EG_TRY(eg__grow(&trace->steps, &trace->capacity, trace->n_steps + 1, sizeof(*trace->steps)));
    step *s = &trace->steps[trace->n_steps++];
    memset(s, 0, sizeof(*s));
    return record(r, call, s);
}

/* ---- around the run ---- */

static eg_status note_parameter(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    recorder *r = payload;
    (void)path;
    return kind == EG_SLOT_PARAMETER ? eg__ptr_map_put(&r->parameters, t, NULL) : EG_OK;
}

static void end_recorder(recorder *r)
{
    eg__modes_restore(&r->modes);
    for (size_t i = 0; i < r->n_leaves; i++) {
        r->leaves[i]->trace_id = 0;
        eg_tensor_release(r->leaves[i]);
    }
    free(r->leaves);
    eg__ptr_map_free(&r->parameters);
    eg__ptr_map_free(&r->parts);
    eg__ptr_map_free(&r->counted);
}

static eg_status make_inputs(recorder *r, eg_context *ctx, const eg_shape *shapes, size_t n, eg_tensor **in)
{
    for (size_t i = 0; i < n; i++) {
        in[i] = eg_shape_only(ctx, shapes[i]);
        if (in[i] == NULL)
            return eg_error_last()->code;
        in[i]->trace_id = ++r->last_id;
    }
    return EG_OK;
}

static eg_status note_outputs(eg_trace *trace, const eg_tensor *out)
{
    size_t n = eg_tuple_size(out);
    trace->outputs = eg__calloc(n + 1, sizeof(*trace->outputs));
    trace->output_ids = eg__calloc(n + 1, sizeof(*trace->output_ids));
    if (trace->outputs == NULL || trace->output_ids == NULL)
        return EG_ENOMEM;
    trace->n_outputs = n;
    for (size_t i = 0; i < n; i++) {
        trace->outputs[i] = eg_tensor_shape(eg_tuple_get(out, i));
        trace->output_ids[i] = eg_tuple_get(out, i)->trace_id;
    }
    return EG_OK;
}

static eg_status run_model(recorder *r, eg_module *m, eg_tensor *const *in, size_t n_in)
{
    const eg__trace_sink sink = {.payload = r, .on_op = on_op, .on_part = on_part};
    const eg__trace_sink *outer;
    EG_TRY(eg__trace_set(m->ctx, &sink, &outer));
    eg_tensor *out = eg_module_call(m, in, n_in);
    EG_TRY(eg__trace_set(m->ctx, outer, NULL));
    return out == NULL ? eg_error_last()->code : note_outputs(r->trace, out);
}

static eg_status run_on_shapes(recorder *r, eg_module *m, const eg_shape *shapes, size_t n)
{
    EG_TRY(eg__modes_save(&r->modes, m));
    EG_TRY(eg__module_walk_tensors_once(m, note_parameter, r));
    eg_module_train(m, false);
    eg_tensor **in = eg__calloc(n + 1, sizeof(eg_tensor *));
    eg_tape *tape = in == NULL ? NULL : eg_tape_begin(m->ctx, EG_NO_GRAD);
    eg_status status = EG_ENOMEM;
    if (tape != NULL) {
        status = make_inputs(r, m->ctx, shapes, n, in);
        if (status == EG_OK)
            status = run_model(r, m, in, n);
    }
    eg_tape_end(tape);
    free(in);
    return status;
}

eg_trace *eg_trace_new(eg_module *m, const eg_shape *inputs, size_t n_inputs)
{
    if (m == NULL || (inputs == NULL && n_inputs > 0))
        return eg__null(__func__, m == NULL ? "module" : "the list of shapes");
    const eg__autograd *autograd = eg__autograd_of(m->ctx);
    if (autograd == NULL)
        return NULL;
    if (autograd->sink != NULL) {
        eg_fail(EG_EINVAL, "a trace is running already");
        return NULL;
    }
    recorder r = {.trace = eg__calloc(1, sizeof(eg_trace))};
    if (r.trace == NULL)
        return NULL;
    eg_status status = run_on_shapes(&r, m, inputs, n_inputs);
    end_recorder(&r);
    if (status == EG_OK)
        return r.trace;
    eg_trace_free(r.trace);
    return NULL;
}

void eg_trace_free(eg_trace *trace)
{
    if (trace == NULL)
        return;
    for (size_t i = 0; i < trace->n_steps; i++) {
        free((char *)(uintptr_t)trace->steps[i].op.path);
        free((uint64_t *)(uintptr_t)trace->steps[i].op.inputs);
    }
    free(trace->steps);
    free(trace->outputs);
    free(trace->output_ids);
    free(trace);
}

/* ---- reading ---- */

size_t eg_trace_size(const eg_trace *trace)
{
    return trace == NULL ? 0 : trace->n_steps;
}

const eg_trace_op *eg_trace_at(const eg_trace *trace, size_t i)
{
    if (trace == NULL)
        return eg__null(__func__, "trace");
    if (i >= trace->n_steps) {
        eg_fail(EG_EINVAL, "no operation number %zu, the trace has %zu", i, trace->n_steps);
        return NULL;
    }
    return &trace->steps[i].op;
}

const eg_module *eg__trace_module(const eg_trace *trace, size_t i)
{
    return trace->steps[i].module;
}

uint64_t eg_trace_macs(const eg_trace *trace)
{
    uint64_t macs = 0;
    for (size_t i = 0; i < eg_trace_size(trace); i++)
        macs = saturating_add(macs, trace->steps[i].op.macs);
    return macs;
}

int64_t eg_trace_params(const eg_trace *trace)
{
    int64_t params = 0;
    for (size_t i = 0; i < eg_trace_size(trace); i++)
        params += trace->steps[i].params;
    return params;
}

eg_shape eg_trace_output(const eg_trace *trace, size_t i)
{
    return trace != NULL && i < trace->n_outputs ? trace->outputs[i] : EG_SCALAR;
}

uint64_t eg_trace_output_id(const eg_trace *trace, size_t i)
{
    return trace != NULL && i < trace->n_outputs ? trace->output_ids[i] : 0;
}

/* ---- as a table ---- */

enum { COLUMNS = 5, CELL = EG_SHAPE_TEXT_SIZE };
typedef struct row {
    const char *cell[COLUMNS];
} row;
typedef void (*row_fn)(void *payload, const row *r);

/* Passes the title, each operation and the total to `function`: once to measure, once to write. */
static void each_row(const eg_trace *trace, row_fn function, void *payload)
{
    char shape[EG_SHAPE_TEXT_SIZE], params[24], macs[24];
    function(payload, &(row){{"module", "operation", "output", "parameters", "MACs"}});
    for (size_t i = 0; i < trace->n_steps; i++) {
        const step *s = &trace->steps[i];
        snprintf(params, sizeof(params), "%" PRId64, s->params);
        snprintf(macs, sizeof(macs), "%" PRIu64, s->op.macs);
        eg_shape_format(s->op.output_shape, shape, sizeof(shape));
        function(payload, &(row){{s->op.path, s->op.op, shape, params, macs}});
    }
    snprintf(params, sizeof(params), "%" PRId64, eg_trace_params(trace));
    snprintf(macs, sizeof(macs), "%" PRIu64, eg_trace_macs(trace));
    function(payload, &(row){{"total", "", "", params, macs}});
}

typedef struct table {
    int width[COLUMNS];
    eg__buf text;
} table;

static void measure_row(void *payload, const row *r)
{
    table *t = payload;
    for (int i = 0; i < COLUMNS; i++)
        t->width[i] = EG_MAX(t->width[i], (int)EG_MIN(strlen(r->cell[i]), (size_t)CELL));
}

static void write_row(void *payload, const row *r)
{
    table *t = payload;
    eg__buf_printf(&t->text, "%-*s  %-*s  %-*s  %*s  %*s\n", t->width[0], r->cell[0], t->width[1], r->cell[1],
                   t->width[2], r->cell[2], t->width[3], r->cell[3], t->width[4], r->cell[4]);
}

char *eg_trace_text(const eg_trace *trace)
{
    if (trace == NULL)
        return eg__null(__func__, "trace");
    table t = {0};
    each_row(trace, measure_row, &t);
    each_row(trace, write_row, &t);
    return eg__buf_take(&t.text);
}

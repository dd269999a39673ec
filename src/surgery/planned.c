/*
 * A model as planned, read once for all who ask while it is in place: its graph, and the shapes at its modules.
 */
#include "surgery/internal.h"

#include <stdlib.h>
#include <string.h>

struct eg__planned {
    eg__model_graph graph;
    uint32_t *ways;      /* see eg__way_find() */
    eg_trace *trace;     /* NULL = nobody has asked for shapes yet */
    eg_shape *by_tensor; /* of each number in the trace; ndim 0 = not known */
    size_t n_tensors;
};

void eg__planned_free(eg__planned *planned)
{
    if (planned == NULL)
        return;
    eg__model_graph_free(&planned->graph);
    eg_trace_free(planned->trace);
    free(planned->ways);
    free(planned->by_tensor);
    free(planned);
}

eg_status eg__planned_graph(eg_surgery *s, eg__model_graph **graph, uint32_t **ways)
{
    if (s->planned == NULL) {
        eg__planned *planned = eg__calloc(1, sizeof(*planned));
        eg_status status = planned != NULL ? eg__model_graph_build(&planned->graph, s->root) : EG_ENOMEM;
        if (status == EG_OK) {
            planned->ways = eg__calloc(planned->graph.n_vertices, sizeof(*planned->ways));
            status = planned->ways != NULL ? EG_OK : EG_ENOMEM;
        }
        if (status != EG_OK) {
            eg__planned_free(planned);
            return status;
        }
        s->planned = planned;
    }
    *graph = &s->planned->graph;
    *ways = s->planned->ways;
    return EG_OK;
}

/* ---- shapes ---- */

static eg_status list_tensors(eg__planned *planned, const eg_surgery *s, const eg_trace *trace)
{
    size_t n = s->n_inputs + 1;
    for (size_t i = 0; i < eg_trace_size(trace); i++)
        n = EG_MAX(n, (size_t)eg_trace_at(trace, i)->output + 1);
    planned->by_tensor = eg__calloc(n, sizeof(*planned->by_tensor));
    if (planned->by_tensor == NULL)
        return EG_ENOMEM;
    planned->n_tensors = n;
    for (size_t i = 0; i < s->n_inputs; i++)
        planned->by_tensor[i + 1] = s->inputs[i];
    for (size_t i = 0; i < eg_trace_size(trace); i++)
        planned->by_tensor[eg_trace_at(trace, i)->output] = eg_trace_at(trace, i)->output_shape;
    return EG_OK;
}

static eg_status find_shapes(eg_surgery *s)
{
    eg__planned *planned = s->planned;
    if (planned->trace != NULL)
        return EG_OK;
    eg_trace *trace = eg_trace_new(s->root, s->inputs, s->n_inputs);
    eg_status status = trace != NULL ? list_tensors(planned, s, trace) : eg_error_last()->code;
    if (status == EG_OK)
        planned->trace = trace;
    else
        eg_trace_free(trace);
    return status;
}

static bool runs_in(const eg_trace_op *op, const char *path)
{
    size_t n = strlen(path);
    return n == 0 || (strncmp(op->path, path, n) == 0 && (op->path[n] == '.' || op->path[n] == '\0'));
}

static eg_shape shape_of(const eg__planned *planned, uint64_t tensor)
{
    return tensor < planned->n_tensors ? planned->by_tensor[tensor] : (eg_shape){0};
}

/* What the first operation in it reads, and the last gives. */
static bool look_up(const eg__planned *planned, const char *path, eg_shape *input, eg_shape *output)
{
    bool runs = false;
    for (size_t i = 0; i < eg_trace_size(planned->trace); i++) {
        const eg_trace_op *op = eg_trace_at(planned->trace, i);
        if (!runs_in(op, path))
            continue;
        if (!runs)
            *input = op->n_inputs > 0 ? shape_of(planned, op->inputs[0]) : (eg_shape){0};
        *output = op->output_shape;
        runs = true;
    }
    return runs;
}

typedef struct question {
    eg_surgery *s;
    const eg_module *module;
    eg_shape input, output;
} question;

static eg_status answer(void *payload, eg_module *root)
{
    question *q = payload;
    eg__model_graph *graph;
    uint32_t *ways, vertex;
    (void)root;
    EG_TRY(eg__planned_graph(q->s, &graph, &ways));
    EG_TRY(find_shapes(q->s));
    EG_TRY(eg__model_graph_find(graph, q->module, &vertex));
    EG_CHECK(vertex != EG__NO_VERTEX, EG_ENOENT, "the %s whose shapes are asked for is not in the model",
             q->module->cls->name);
    eg__buf path = {0};
    eg_status status = eg__model_graph_path(graph, vertex, &path);
    if (status == EG_OK && !look_up(q->s->planned, eg__path_text(&path), &q->input, &q->output))
        status = eg_fail(EG_ENOENT, "%s '%s' does not run", q->module->cls->name, eg__path_text(&path));
    eg__buf_free(&path);
    return status;
}

eg_status eg_surgery_shapes_of(eg_surgery *s, const eg_module *module, eg_shape *input, eg_shape *output)
{
    if (s == NULL || module == NULL) {
        eg__null(__func__, s == NULL ? "surgery" : "module");
        return eg_error_last()->code;
    }
    EG_CHECK(s->n_inputs > 0, EG_EINVAL, "shapes of modules are found by running the model: give the surgery .inputs");
    question q = {.s = s, .module = module};
    EG_TRY(eg_surgery_look(s, answer, &q));
    if (input != NULL)
        *input = q.input;
    if (output != NULL)
        *output = q.output;
    return EG_OK;
}

/* ---- order of execution ---- */

/* What runs, and all that it stands in. Ancestors that have run have set theirs before. */
static void mark_run(const eg__model_graph *graph, uint32_t *runs, uint32_t vertex, uint32_t when)
{
    while (runs[vertex] == 0) {
        runs[vertex] = when;
        if (graph->vertices[vertex].way == EG__NO_VERTEX)
            break;
        vertex = graph->links[graph->vertices[vertex].way].parent;
    }
}

uint32_t *eg__first_runs(eg_surgery *s, eg__model_graph *graph)
{
    uint32_t *runs = eg__calloc(graph->n_vertices, sizeof(*runs));
    eg_trace *trace = runs != NULL ? eg_trace_new(s->root, s->inputs, s->n_inputs) : NULL;
    eg_status status = trace != NULL ? EG_OK : eg_error_last()->code;
    for (size_t i = 0; i < eg_trace_size(trace) && status == EG_OK; i++) {
        uint32_t vertex;
        status = eg__model_graph_find(graph, eg__trace_module(trace, i), &vertex);
        if (status == EG_OK && vertex != EG__NO_VERTEX)
            mark_run(graph, runs, vertex, (uint32_t)EG_MIN(i + 1, UINT32_MAX));
    }
    eg_trace_free(trace);
    if (status == EG_OK)
        return runs;
    free(runs);
    return NULL;
}

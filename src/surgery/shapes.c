/*
 * Shapes of the modules of a model as planned, for policies that need more than the module tells: found in one run on
 * shapes, which is kept as long as the plan in place is the same.
 */
#include "surgery/internal.h"

#include <stdlib.h>
#include <string.h>

struct eg__shapes {
    size_t n_edits; /* of the plan that was in place */
    eg__model_graph graph;
    eg_trace *trace;
    eg_shape *by_tensor; /* of each number in the trace; ndim 0 = not known */
    size_t n_tensors;
};

void eg__shapes_free(eg__shapes *shapes)
{
    if (shapes == NULL)
        return;
    eg__model_graph_free(&shapes->graph);
    eg_trace_free(shapes->trace);
    free(shapes->by_tensor);
    free(shapes);
}

static eg_status list_tensors(eg__shapes *shapes, const eg_surgery *s)
{
    size_t n = s->n_inputs + 1;
    for (size_t i = 0; i < eg_trace_size(shapes->trace); i++) {
        const eg_trace_op *op = eg_trace_at(shapes->trace, i);
        n = EG_MAX(n, (size_t)op->output + 1);
    }
    shapes->by_tensor = eg__calloc(n, sizeof(*shapes->by_tensor));
    if (shapes->by_tensor == NULL)
        return EG_ENOMEM;
    shapes->n_tensors = n;
    for (size_t i = 0; i < s->n_inputs; i++)
        shapes->by_tensor[i + 1] = s->inputs[i];
    for (size_t i = 0; i < eg_trace_size(shapes->trace); i++) {
        const eg_trace_op *op = eg_trace_at(shapes->trace, i);
        shapes->by_tensor[op->output] = op->output_shape;
    }
    return EG_OK;
}

static eg_status find_shapes(void *payload, eg_module *root)
{
    eg_surgery *s = payload;
    if (s->shapes != NULL && s->shapes->n_edits == s->n_entered)
        return EG_OK;
    eg__shapes_free(s->shapes);
    s->shapes = NULL;
    eg__shapes *shapes = eg__calloc(1, sizeof(*shapes));
    if (shapes == NULL)
        return EG_ENOMEM;
    shapes->n_edits = s->n_entered;
    eg_status status = eg__model_graph_build(&shapes->graph, root);
    if (status == EG_OK) {
        shapes->trace = eg_trace_new(root, s->inputs, s->n_inputs);
        status = shapes->trace != NULL ? list_tensors(shapes, s) : eg_error_last()->code;
    }
    if (status != EG_OK) {
        eg__shapes_free(shapes);
        return status;
    }
    s->shapes = shapes;
    return EG_OK;
}

static bool runs_in(const eg_trace_op *op, const char *path)
{
    size_t n = strlen(path);
    return n == 0 || (strncmp(op->path, path, n) == 0 && (op->path[n] == '.' || op->path[n] == '\0'));
}

static eg_shape shape_of(const eg__shapes *shapes, uint64_t tensor)
{
    return tensor < shapes->n_tensors ? shapes->by_tensor[tensor] : (eg_shape){0};
}

/* What the first operation in it reads, and the last gives. */
static bool look_up(const eg__shapes *shapes, const char *path, eg_shape *input, eg_shape *output)
{
    bool runs = false;
    for (size_t i = 0; i < eg_trace_size(shapes->trace); i++) {
        const eg_trace_op *op = eg_trace_at(shapes->trace, i);
        if (!runs_in(op, path))
            continue;
        if (!runs)
            *input = op->n_inputs > 0 ? shape_of(shapes, op->inputs[0]) : (eg_shape){0};
        *output = op->output_shape;
        runs = true;
    }
    return runs;
}

eg_status eg_surgery_shapes_of(eg_surgery *s, const eg_module *module, eg_shape *input, eg_shape *output)
{
    if (s == NULL || module == NULL) {
        eg__null(__func__, s == NULL ? "surgery" : "module");
        return eg_error_last()->code;
    }
    EG_CHECK(s->n_inputs > 0, EG_EINVAL, "shapes of modules are found by running the model: give the surgery .inputs");
    EG_TRY(eg_surgery_look(s, find_shapes, s));
    uint32_t vertex;
    EG_TRY(eg__model_graph_find(&s->shapes->graph, module, &vertex));
    EG_CHECK(vertex != EG__NO_VERTEX, EG_ENOENT, "the %s whose shapes are asked for is not in the model",
             module->cls->name);
    eg__buf path = {0};
    eg_shape in = {0}, out = {0};
    eg_status status = eg__model_graph_path(&s->shapes->graph, vertex, &path);
    if (status == EG_OK && !look_up(s->shapes, eg__path_text(&path), &in, &out))
        status = eg_fail(EG_ENOENT, "%s '%s' does not run", module->cls->name, eg__path_text(&path));
    eg__buf_free(&path);
    if (status == EG_OK && input != NULL)
        *input = in;
    if (status == EG_OK && output != NULL)
        *output = out;
    return status;
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

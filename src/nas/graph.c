/*
 * nas/graph.c - the graph of a supernet: what it does when every candidate runs, from a run on shapes alone.
 */
#include "nas/graph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

typedef struct builder {
    eg_graph *graph;
    eg_module *model;
    eg__map names;   /* taken names -> themselves */
    size_t *made_by; /* tensor -> 1 + its node, 0 = none */
    uint64_t n_tensors;
} builder;

/* Called for each module from the root to the one at a path; `name` is "" for the root. m is NULL from where the path
 * leads nowhere: to a module that its caller does not hold, or that was replaced. */
typedef eg_status (*step_fn)(void *payload, const eg_module *m, const char *name);

static const eg_module *child_named(const eg_module *m, const char *name)
{
    for (size_t i = 0; m != NULL && i < eg_module_n_children(m); i++) {
        const char *child_name;
        const eg_module *child = eg_module_child_at(m, i, &child_name);
        if (strcmp(child_name, name) == 0)
            return child;
    }
    return NULL;
}

/* *end receives what is there. */
static eg_status walk_path(const eg_module *root, const char *path, step_fn step, void *payload, const eg_module **end)
{
    char *copy = eg__strdup(path), *rest = NULL;
    if (copy == NULL)
        return EG_ENOMEM;
    *end = root;
    eg_status status = step(payload, root, "");
    for (char *name = strtok_r(copy, ".", &rest); name != NULL && status == EG_OK; name = strtok_r(NULL, ".", &rest)) {
        *end = child_named(*end, name);
        status = step(payload, *end, name);
    }
    free(copy);
    return status;
}

static eg_status add_scope(void *payload, const eg_module *m, const char *name)
{
    eg__buf *buf = payload;
    if (m == NULL)
        eg__buf_printf(buf, "%s/", name);
    else if (*name == '\0')
        eg__buf_printf(buf, "%s/", m->cls->name);
    else
        eg__buf_printf(buf, "%s[%s]/", m->cls->name, name);
    return EG_OK;
}

/* "Net/Cell[cells]/conv2d", with "_1", "_2", .. where that is taken. NULL on failure. */
static char *unique_name(builder *b, const char *scope, const char *op)
{
    char *name = eg__format("%s%s", scope, op);
    for (size_t i = 1; name != NULL && eg__map_find(&b->names, name) != NULL; i++) {
        free(name);
        name = eg__format("%s%s_%zu", scope, op, i);
    }
    if (name != NULL && !eg__is_utf8(name)) {
        eg_fail(EG_EINVAL, "cannot write '%s' into a graph: it is no valid UTF-8", name);
    } else if (name != NULL && eg__map_put(&b->names, name, NULL) == EG_OK) {
        return name;
    }
    free(name);
    return NULL;
}

/* ---- nodes ---- */

/* A node without inputs. NULL on failure. */
static eg__graph_node *add_node(builder *b, const char *scope, const char *op, const char *type, eg_shape shape)
{
    eg_graph *g = b->graph;
    if (eg__grow(&g->nodes, &g->capacity, g->n_nodes + 1, sizeof(*g->nodes)) != EG_OK)
        return NULL;
    eg__graph_node *node = &g->nodes[g->n_nodes++];
    *node = (eg__graph_node){.name = unique_name(b, scope, op), .op = eg__strdup(type), .shape = shape};
    return node->name != NULL && node->op != NULL ? node : NULL;
}

/* Those inputs that a node made; parameters and constants are of no node. */
static eg_status add_inputs(const builder *b, const eg_trace_op *op, eg__graph_node *node)
{
    node->inputs = eg__calloc(op->n_inputs + 1, sizeof(*node->inputs));
    if (node->inputs == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < op->n_inputs; i++) {
        size_t made_by = op->inputs[i] < b->n_tensors ? b->made_by[op->inputs[i]] : 0;
        if (made_by == 0)
            continue;
        node->inputs[node->n_inputs] = eg__strdup(b->graph->nodes[made_by - 1].name);
        if (node->inputs[node->n_inputs++] == NULL)
            return EG_ENOMEM;
    }
    return EG_OK;
}

static eg_status add_op(builder *b, const eg_trace_op *op)
{
    eg__buf scope = {0};
    const eg_module *m;
    eg_status status = walk_path(b->model, op->path, add_scope, &scope, &m);
    char *text = eg__buf_take(&scope);
    eg__graph_node *node = status == EG_OK && text != NULL ? add_node(b, text, op->op, op->op, op->output_shape) : NULL;
    eg_free(text);
    if (node == NULL)
        return status != EG_OK ? status : eg_error_last()->code;
    node->attributes = op->macs > 0 ? eg__format("{ macs: %" PRIu64 " }", op->macs) : NULL;
    if (op->macs > 0 && node->attributes == NULL)
        return EG_ENOMEM;
    EG_TRY(add_inputs(b, op, node));
    for (size_t i = 0; i < op->n_outputs; i++)
        b->made_by[op->output + i] = b->graph->n_nodes;
    return EG_OK;
}

static eg_status add_nodes(builder *b, const eg_trace *trace, const eg_shape *inputs, size_t n_inputs)
{
    b->n_tensors = n_inputs + 1;
    for (size_t i = 0; i < eg_trace_size(trace); i++)
        b->n_tensors = EG_MAX(b->n_tensors, eg_trace_at(trace, i)->output + eg_trace_at(trace, i)->n_outputs);
    b->made_by = eg__calloc(b->n_tensors, sizeof(*b->made_by));
    if (b->made_by == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < n_inputs; i++) {
        if (add_node(b, "input/", "input", "IO Node", inputs[i]) == NULL)
            return eg_error_last()->code;
        b->made_by[i + 1] = b->graph->n_nodes;
    }
    for (size_t i = 0; i < eg_trace_size(trace); i++)
        EG_TRY(add_op(b, eg_trace_at(trace, i)));
    return EG_OK;
}

/* ---- where the mutables are ---- */

static eg_status add_step(void *payload, const eg_module *m, const char *name)
{
    json_t *path = payload;
    EG_CHECK(eg__is_utf8(name), EG_EINVAL, "cannot write '%s' into a graph: it is no valid UTF-8", name);
    const char *type = m != NULL ? m->cls->name : "";
    EG_CHECK(json_array_append_new(path, json_pack("{s:s, s:s}", "type", type, "name", name)) == 0, EG_ENOMEM,
             "out of memory");
    return EG_OK;
}

/* The paths of a key, which are made where there are none. NULL for want of memory. */
static json_t *paths_of(json_t *mutables, const char *key)
{
    json_t *paths = json_object_get(mutables, key);
    if (paths != NULL || json_object_set_new(mutables, key, json_array()) != 0)
        return paths;
    return json_object_get(mutables, key);
}

/* Those that lay in a candidate which was replaced since are left out. */
static eg_status add_mutable(builder *b, eg_module *m)
{
    const char *key = eg_mutable_key(m);
    EG_CHECK(eg__is_utf8(key), EG_EINVAL, "cannot write '%s' into a graph: it is no valid UTF-8", key);
    const eg_module *end = NULL;
    json_t *path = json_array();
    eg_status status = path != NULL ? walk_path(b->model, eg_mutable_name(m), add_step, path, &end)
                                    : eg_fail(EG_ENOMEM, "out of memory");
    if (status == EG_OK && end == m && json_array_append(paths_of(b->graph->mutables, key), path) != 0)
        status = eg_fail(EG_ENOMEM, "out of memory");
    json_decref(path);
    return status;
}

static eg_status visit_mutable(void *payload, eg_module *m)
{
    return add_mutable(payload, m);
}

/* ---- all candidates ---- */

/* Runs the model with every candidate and the largest values, whatever the mutator would do. */
static eg_trace *trace_all(eg_mutator *mutator, const eg_shape *inputs, size_t n_inputs)
{
    eg_decisions *all = eg_decisions_new(), *current = mutator->current;
    eg_status status = all != NULL ? eg__decide_each(mutator, EG__EVERY, all) : EG_ENOMEM;
    eg_trace *trace = NULL;
    if (status == EG_OK) {
        const eg_mutator_class *cls = mutator->cls;
        mutator->cls = &eg_mutator_base_class;
        mutator->current = all;
        trace = eg_trace_new(mutator->model, inputs, n_inputs);
        mutator->current = current;
        mutator->cls = cls;
    }
    eg_decisions_free(all);
    return trace;
}

static eg_status build(builder *b, eg_mutator *mutator, const eg_shape *inputs, size_t n_inputs)
{
    EG_CHECK(b->graph->mutables != NULL, EG_ENOMEM, "out of memory");
    eg_trace *trace = trace_all(mutator, inputs, n_inputs);
    eg_status status = trace != NULL ? add_nodes(b, trace, inputs, n_inputs) : eg_error_last()->code;
    eg_trace_free(trace);
    EG_TRY(status);
    return eg_mutable_node_traverse(mutator->tree, EG_PRE_ORDER, false, NULL, visit_mutable, b);
}

eg_graph *eg_mutator_graph(eg_mutator *mutator, const eg_shape *inputs, size_t n_inputs)
{
    if (mutator == NULL || (inputs == NULL && n_inputs > 0))
        return eg__null(__func__, mutator == NULL ? "mutator" : "list of shapes");
    builder b = {.graph = eg__calloc(1, sizeof(eg_graph)), .model = mutator->model};
    if (b.graph == NULL)
        return NULL;
    b.graph->mutables = json_object();
    eg_status status = build(&b, mutator, inputs, n_inputs);
    eg__map_free(&b.names);
    free(b.made_by);
    if (status == EG_OK)
        return b.graph;
    eg_graph_free(b.graph);
    return NULL;
}

void eg_graph_free(eg_graph *graph)
{
    if (graph == NULL)
        return;
    for (size_t i = 0; i < graph->n_nodes; i++) {
        eg__graph_node *node = &graph->nodes[i];
        for (size_t k = 0; k < node->n_inputs; k++)
            free(node->inputs[k]);
        free(node->inputs);
        free(node->name);
        free(node->op);
        free(node->attributes);
    }
    free(graph->nodes);
    json_decref(graph->mutables);
    free(graph);
}

size_t eg_graph_size(const eg_graph *graph)
{
    return graph != NULL ? graph->n_nodes : 0;
}

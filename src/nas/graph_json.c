/*
 * nas/graph_json.c - graphs as JSON: the members of a GraphDef, and where the mutables are.
 */
#include "nas/graph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Bytes are base64 in the JSON form of protocol buffers. NULL on failure. */
static char *base64(const char *text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = strlen(text);
    char *out = eg__calloc((n + 2) / 3 * 4 + 1, 1);
    for (size_t i = 0, k = 0; out != NULL && i < n; i += 3, k += 4) {
        uint32_t bits = 0;
        for (size_t j = 0; j < 3; j++)
            bits = bits << 8 | (i + j < n ? (uint8_t)text[i + j] : 0);
        for (size_t j = 0; j < 4; j++)
            out[k + j] = i + j <= n ? digits[bits >> (18 - 6 * j) & 63] : '=';
    }
    return out;
}

static json_t *shape_json(eg_shape shape)
{
    json_t *dims = json_array();
    for (int i = 0; i < shape.ndim; i++) {
        char size[24]; /* 64-bit numbers are text */
        snprintf(size, sizeof(size), "%" PRId64, shape.dims[i]);
        dims = eg__json_append(dims, json_pack("{s:s}", "size", size));
    }
    return dims != NULL ? json_pack("{s:{s:[{s:o}]}}", "list", "shape", "dim", dims) : NULL;
}

static json_t *node_json(const eg__graph_node *node)
{
    json_t *inputs = json_array(), *shape = shape_json(node->shape), *json = NULL;
    for (size_t i = 0; i < node->n_inputs; i++)
        inputs = eg__json_append(inputs, json_string(node->inputs[i]));
    char *text = node->attributes != NULL ? base64(node->attributes) : NULL;
    if (inputs != NULL && shape != NULL && (text != NULL || node->attributes == NULL)) {
        json_t *value = text != NULL ? json_pack("{s:s}", "s", text) : NULL;
        if (text == NULL || value != NULL)
            json = json_pack("{s:s, s:s, s:O, s:{s:O, s:o*}}", "name", node->name, "op", node->op, "input", inputs,
                             "attr", "_output_shapes", shape, "attr", value);
    }
    json_decref(inputs);
    json_decref(shape);
    free(text);
    return json;
}

static json_t *graph_json(const eg_graph *graph)
{
    json_t *nodes = json_array();
    for (size_t i = 0; i < graph->n_nodes; i++)
        nodes = eg__json_append(nodes, node_json(&graph->nodes[i]));
    json_t *json = nodes != NULL ? json_pack("{s:o, s:{s:i}, s:O}", "node", nodes, "versions", "producer",
                                             EG__GRAPH_PRODUCER, "mutable", graph->mutables)
                                 : NULL;
    if (json == NULL)
        eg_fail(EG_ENOMEM, "out of memory: a graph as JSON");
    return json;
}

char *eg_graph_text(const eg_graph *graph)
{
    if (graph == NULL)
        return eg__null(__func__, "graph");
    json_t *json = graph_json(graph);
    char *text = json != NULL ? eg__json_text(json) : NULL;
    json_decref(json);
    return text;
}

eg_status eg_graph_save(const eg_graph *graph, const char *path)
{
    EG_CHECK(graph != NULL && path != NULL, EG_EINVAL, "no graph or path was given");
    json_t *json = graph_json(graph);
    eg_status status = json != NULL ? eg__json_write(json, path) : eg_error_last()->code;
    json_decref(json);
    return status;
}

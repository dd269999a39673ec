/*
 * nas/graph.h - graphs of supernets, as they are made in graph.c and written in graph_file.c.
 */
#ifndef EG_NAS_GRAPH_H
#define EG_NAS_GRAPH_H

#include "nas/internal.h"

typedef struct eg__graph_node {
    char *name, *op;
    char **inputs; /* names of nodes */
    size_t n_inputs;
    char *attributes; /* text for people; NULL = none */
    eg_shape shape;   /* of the first output */
} eg__graph_node;

struct eg_graph {
    eg__graph_node *nodes;
    size_t n_nodes, capacity;
    json_t *mutables; /* key -> paths */
};

/** The version of GraphDef that is written. */
#define EG__GRAPH_PRODUCER 22

#endif

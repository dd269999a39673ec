/*
 * surgery/internal.h - what the files of this layer share: the graph of modules, the journal of edits, the transaction.
 */
#ifndef EG_SURGERY_INTERNAL_H
#define EG_SURGERY_INTERNAL_H

#include "engraft/surgery.h"
#include "nn/internal.h"
#include "optim/internal.h"

/* ---- paths (pattern.c) ---- */

/** Whether `path` is matched by one of the patterns, "layers.*.conv, head.**"; NULL patterns match all. */
bool eg__path_matches(const char *patterns, const char *path);
/** EINVAL for an empty pattern or segment. */
eg_status eg__path_check(const char *patterns);

/* ---- the graph of modules (graph.c) ---- */

enum { EG__NO_VERTEX = UINT32_MAX };

/** A slot that holds a module. */
typedef struct eg__link {
    uint32_t parent, slot, child; /* nodes, and the number of the slot in the parent */
} eg__link;

typedef struct eg__vertex {
    eg_module *module;
    uint32_t first_edge, n_edges;   /* its children, contiguous in `edges` */
    uint32_t first_place, n_places; /* in `places`: the edges that lead here */
    uint32_t way;                   /* the edge of its first path; EG__NO_VERTEX for the root */
} eg__vertex;

/** Every module below a root once, and every slot that holds one. All-zero is empty. */
typedef struct eg__model_graph {
    eg__vertex *nodes; /* nodes[0] is the root */
    size_t n_nodes, nodes_capacity;
    eg__link *edges;
    size_t n_edges, edges_capacity;
    uint32_t *places;   /* numbers of edges */
    uint32_t *order;    /* nodes, parents first, in the order of registration; [n_nodes] */
    eg__ptr_map shared; /* modules that others hold too -> node + 1, since all others are met once */
} eg__model_graph;
/** EINVAL, naming the place, for a module that contains itself. */
eg_status eg__model_graph_build(eg__model_graph *graph, eg_module *root);
void eg__model_graph_free(eg__model_graph *graph);
/** The node of a module; EG__NO_VERTEX when it is not in the graph. */
uint32_t eg__model_graph_find(const eg__model_graph *graph, const eg_module *m);
/** Writes the first path over what is in `path`. */
eg_status eg__model_graph_path(const eg__model_graph *graph, uint32_t node, eg__buf *path);

/* ---- the journal ---- */

typedef enum eg__edit_kind { EG__EDIT_CHILD, EG__EDIT_TENSOR, EG__EDIT_PLACE, EG__EDIT_TRAINED } eg__edit_kind;

/** One pointer (or flag) that is exchanged; exchanging it again takes it back. */
typedef struct eg__edit {
    eg__edit_kind kind;
    uint32_t slot; /* of owner: EDIT_CHILD, EDIT_TENSOR */
    void *owner;   /* kept: a module, or the tensor of EDIT_TRAINED; of EDIT_PLACE lent, an eg_module ** */
    void *here;    /* what is in place now, lent: whoever has changed it since is found out */
    void *other;   /* kept: what it is exchanged for; of EDIT_TRAINED the flag as a pointer */
} eg__edit;

/** How a new parameter comes from old ones. */
typedef struct eg__derivation {
    eg_tensor *fresh; /* kept, as all of `from` */
    eg_tensor **from;
    size_t n;
    eg_derive_fn derive;
    void *payload;
    void (*free_payload)(void *payload);
} eg__derivation;

typedef struct eg__replacement {
    eg_module *old, *fresh; /* kept */
    uint32_t node;          /* of old in the graph of its plan, and which graph: its path is made when asked for */
    uint32_t maker;         /* the replacement that made `old`, + 1; 0 = it was the model's */
    size_t index;
    char *path;         /* NULL until asked for */
    const char *policy; /* lent by the surgery's names */
    unsigned without;
} eg__replacement;

#endif

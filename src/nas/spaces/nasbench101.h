/*
 * nas/spaces/nasbench101.h - cells of NAS-Bench-101 as graphs, for the network and for the benchmark's names.
 */
#ifndef EG_NAS_SPACES_NASBENCH101_H
#define EG_NAS_SPACES_NASBENCH101_H

#include "nas/internal.h"

#include <stdlib.h>

enum { EG__NB101_VERTICES = 7, EG__NB101_OPS = 3 };

/** Vertex 0 is the input, n - 1 the output; edges lead to later ones. */
typedef struct eg__nb101_graph {
    size_t n;
    bool edge[EG__NB101_VERTICES][EG__NB101_VERTICES]; /* [from][to] */
    size_t op[EG__NB101_VERTICES];                     /* of those between input and output */
    bool dead[EG__NB101_VERTICES];                     /* on no path from the input to the output */
} eg__nb101_graph;

/** Names of operations, in the benchmark's order. */
extern const char *const eg__nb101_ops[EG__NB101_OPS];
/** Samples are in the benchmark. */
extern const eg_constraint eg__nb101_constraint;
/** EINVAL for what is no architecture of a cell. */
eg_status eg__nb101_read(const eg_arch *arch, eg__nb101_graph *out);
/** Takes away the edges of what is on no path from the input to the output. False when there is no such path. */
bool eg__nb101_prune(eg__nb101_graph *g);
/** Channels of each vertex of a pruned graph; 0 of those that are dead. */
void eg__nb101_channels(const eg__nb101_graph *g, int64_t in, int64_t out, int64_t channels[EG__NB101_VERTICES]);

#endif

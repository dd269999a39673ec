/*
 * surgery/coupling.h - which indices of which dimensions can only go together.
 *
 * The model runs on shapes once, and what it did is kept: steps and tensors. Each index of each dimension of each
 * tensor is a node. Each operation ties nodes of what goes in, of its parameters and of what comes out
 * (coupling_rules.c); a set of tied nodes that has parameters in it is a unit: a channel, with all that hangs on it.
 */
#ifndef EG_SURGERY_COUPLING_H
#define EG_SURGERY_COUPLING_H

#include "ops/registry.h"
#include "surgery/internal.h"

/** A tensor of the run. */
typedef struct eg__tied {
    eg_shape shape;
    size_t first[EG_MAX_DIMS]; /* node of index 0 of each dimension */
    eg_tensor *leaf;           /* kept: what nothing in the run computed; NULL */
} eg__tied;

/** An operation of the run. Tensors are numbers + 1; 0 = absent. */
typedef struct eg__tied_step {
    const eg_op *op;
    void *attrs;
    uint32_t *in;
    size_t n_in, n_out;
    uint32_t out[EG_OP_MAX_OUTPUTS];
    char *path;       /* of the module that ran it */
    unsigned refused; /* how often it did not become what it was to become */
} eg__tied_step;

/** What holds for all nodes of a set; of other nodes it means nothing. */
typedef struct eg__node_set {
    const char *fixed;               /* why it cannot change; NULL */
    const char *mixed;               /* why what is left depends on it in ways that weights cannot make up for; NULL */
    uint32_t fixed_step, mixed_step; /* number + 1 of the step that says so; 0 = none */
    bool crossing;                   /* nodes of it lie on both sides of a border, see below */
} eg__node_set;

typedef struct eg__ties {
    eg__tied_step *steps;
    size_t n_steps, steps_capacity;
    eg__tied *tensors; /* first the model's inputs */
    size_t n_tensors, tensors_capacity, n_inputs;
    uint32_t *outputs; /* numbers + 1 */
    size_t n_outputs;
    uint32_t *parent; /* [n_nodes] union-find */
    eg__node_set *sets;
    uint32_t *marks; /* room for rules; zero between them */
    size_t n_nodes;
    bool choosing;  /* reshapes that can go by one of several dimensions choose now */
    bool bordering; /* all ties are known: look at borders */
} eg__ties;

/** Runs the model on shapes and keeps what it did. After a failure `steps` are those before it. To be freed in any
 *  case. */
eg_status eg__ties_run(eg__ties *ties, eg_module *model, const eg_shape *inputs, size_t n_inputs);
/** Makes the nodes, each alone. */
eg_status eg__ties_begin(eg__ties *ties);
void eg__ties_free(eg__ties *ties);

/* Nodes; tensors are numbers. */
static inline size_t eg__node_at(const eg__ties *ties, uint32_t tensor, int dim, int64_t index)
{
    return ties->tensors[tensor].first[dim] + (size_t)index;
}
/** Channels in groups (grouped convolution, group norm) can be made fewer in two ways. Whole groups go where there are
 * at least as many as channels in one (depthwise convolution is the extreme); else the same channel of every group. */
static inline bool eg__goes_by_groups(int64_t groups, int64_t channels)
{
    return groups > 1 && groups >= channels / groups;
}
uint32_t eg__ties_find(eg__ties *ties, size_t node);
void eg__ties_join(eg__ties *ties, size_t a, size_t b);
void eg__ties_fix(eg__ties *ties, size_t node, const char *why, size_t step);
/** All nodes of a dimension, and of a tensor. `step`: number + 1. */
void eg__ties_fix_dim(eg__ties *ties, uint32_t tensor, int dim, const char *why, size_t step);
void eg__ties_fix_all(eg__ties *ties, uint32_t tensor, const char *why, size_t step);

/** Applies the rules of all steps (coupling_rules.c). */
void eg__ties_apply_rules(eg__ties *ties);
/** Why positions, and entries of windows, are fixed: nobody expects otherwise. */
extern const char eg__why_positions[];
/** Whether step i of another run, of the model with copies[set] of each node, is what step i was to become
 * (coupling_follow.c). */
bool eg__step_follows(eg__ties *ties, size_t i, const eg__ties *other, const int32_t *copies);
/** The sum of the copies of indices 0 .. n-1 of a dimension. */
int64_t eg__copied(eg__ties *ties, uint32_t tensor, int dim, int64_t n, const int32_t *copies);

/* ---- classes whose numbers follow their tensors (channels_classes.c) ---- */

/** How a module has the shapes of its parameters from its fields. */
typedef struct eg__resizable {
    const eg_class *cls; /* and subclasses */
    /** Sets the fields of a prototype, which has those of `old`, by the new tensors of old's slots. */
    void (*fit)(eg_module *prototype, eg_slot *slots, size_t n_slots);
    const char
        *weight; /* what the names of these begin with: dimension `makes` is what comes out, `takes` what goes in */
    int makes, takes; /* -1: none */
    bool heads;       /* what `makes` is heads of attention */
    bool recurrent;   /* all layers have one number of hidden features */
} eg__resizable;
/** NULL for a class that is not known. */
const eg__resizable *eg__resizable_of(const eg_module *m);
/** The dimension of a module's tensor that is the features it gives, and that of those it gets and sums over; -1: it
 * has none. */
void eg__features_of(const eg_module *m, const char *name, int *makes, int *takes);

/* ---- groups (coupling.c) ---- */

/** Where a tensor stands. */
typedef struct eg__owner {
    eg_module *module; /* kept */
    const eg__resizable *kind;
    char *path; /* of the tensor */
    uint32_t tensor;
    bool trained; /* a parameter, no buffer */
} eg__owner;

struct eg_coupling {
    eg_context *ctx;
    eg__ties ties;
    eg__owner *owners; /* in the order of the model, parents first */
    size_t n_owners, owners_capacity;
    eg_module **modules; /* kept: those that own tensors of the run, parents first */
    size_t n_modules, modules_capacity;
    eg_coupled_group *groups;
    size_t n_groups, groups_capacity;
    uint32_t **sets; /* of each group: the sets of its units */
    int32_t *copies; /* [n_nodes] of each set */
    char **texts;    /* reasons */
    size_t n_texts, texts_capacity;
};

/** The coupling of the model; refused: [n_refused] numbers of steps that are known not to follow, as often as it was
 *  seen. */
eg_coupling *eg__coupling_new(eg_module *model, const eg_shape *inputs, size_t n_inputs, const size_t *refused,
                              size_t n_refused);
/** Whether the module of a part, or one above it, is at these paths. */
eg_status eg__part_is_at(const eg_coupled_part *part, const char *patterns, bool *at);
/** eg_surgery_resize() without looking whether the model follows. */
eg_status eg__surgery_resize(eg_surgery *s, eg_coupling *c);
/** Whether the model as planned does what it was to do; *step receives the first step that does
 *  not. A run that fails does not follow. */
eg_status eg__surgery_verify(eg_surgery *s, eg_coupling *c, size_t *step, bool *follows);

#endif

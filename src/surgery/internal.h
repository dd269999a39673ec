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

#define EG__NO_VERTEX UINT32_MAX

/** A slot that holds a module: vertices, and the number of the slot in the parent. */
typedef struct eg__link {
    uint32_t parent, slot, child;
} eg__link;

typedef struct eg__vertex {
    eg_module *module;
    uint32_t first_link, n_links;   /* its children, in a row in `links` */
    uint32_t first_place, n_places; /* in `places`: the links that lead here */
    uint32_t way;                   /* the link of its first path; EG__NO_VERTEX for the root */
} eg__vertex;

/** Every module below a root once, and every slot that holds one. All-zero is empty. */
typedef struct eg__model_graph {
    eg__vertex *vertices; /* [0] is the root */
    size_t n_vertices, vertices_capacity;
    eg__link *links;
    size_t n_links, links_capacity;
    bool is_tree;       /* each module stands in one place */
    uint32_t *places;   /* numbers of links; not of a tree: see eg__model_graph_place() */
    uint32_t *order;    /* vertices, parents first, in the order of registration; NULL: see eg__model_graph_sort() */
    eg__ptr_map shared; /* modules that something else holds too -> vertex + 1: all others are met only once */
    eg__ptr_map all;    /* every module -> vertex + 1, once indexed */
} eg__model_graph;
/** EINVAL, naming the place, for a module that contains itself. */
eg_status eg__model_graph_build(eg__model_graph *graph, eg_module *root);
void eg__model_graph_free(eg__model_graph *graph);
/** Link i of those that lead to a vertex. */
const eg__link *eg__model_graph_place(const eg__model_graph *graph, uint32_t vertex, uint32_t i);
/** Makes graph->order. */
eg_status eg__model_graph_sort(eg__model_graph *graph);
/** Finds the vertex of a module; EG__NO_VERTEX when it is not in the graph. */
eg_status eg__model_graph_find(eg__model_graph *graph, const eg_module *m, uint32_t *vertex);
/** Writes the first path over what is in `path`. */
eg_status eg__model_graph_path(const eg__model_graph *graph, uint32_t vertex, eg__buf *path);
/** The text of a path, "" for the root. */
const char *eg__path_text(const eg__buf *path);

/* ---- the journal (journal.c) ---- */

typedef enum eg__edit_kind { EG__EDIT_CHILD, EG__EDIT_TENSOR, EG__EDIT_PLACE, EG__EDIT_TRAINED } eg__edit_kind;

/** One pointer (or flag) that is exchanged for another; exchanging again takes it back. */
typedef struct eg__edit {
    eg__edit_kind kind;
    uint32_t slot; /* of owner: EDIT_CHILD, EDIT_TENSOR */
    void *owner;   /* kept: a module, or the tensor of EDIT_TRAINED; of EDIT_PLACE lent, an eg_module ** */
    void *here;    /* what is in place, lent: so whoever has changed it since is found out */
    void *other;   /* kept: what it is exchanged for; of EDIT_TRAINED a flag, as `here` */
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

/** A module that gives way to another. */
typedef struct eg__replacement {
    eg_module *old, *fresh; /* kept */
    size_t index;           /* that the policy was asked with */
    uint32_t policy;        /* its name, + 1; 0 = none */
    uint32_t way;           /* the path of the old one, in `ways` of the surgery */
    uint32_t maker;         /* the replacement that made the old one, + 1; 0 = it was the model's */
    uint16_t depth;         /* of the chain of replacements that it ends */
    uint16_t without;       /* EG_CARRY_* */
} eg__replacement;

/** A method that was applied: what it planned is said by its options. */
typedef struct eg__step {
    eg_module *options;  /* kept */
    const eg_class *cls; /* that it was limited to; NULL = the method's own */
    char *at;            /* NULL = anywhere */
    size_t first_edit, n_edits, end_replacement;
} eg__step;

/** The parameters of an optimizer that are not in place: those it will have after a commit, or had before it. */
typedef struct eg__param_exchange {
    eg_optimizer *optimizer;
    eg__param *params;
    size_t n, capacity;
    size_t n_before;           /* what it had when this was planned */
    size_t n_after;            /* what it has, or will have, after the commit */
    uint64_t updates;          /* of all of them, by then */
    size_t *twins;             /* [n_before]: where each of those is after the commit; SIZE_MAX = gone */
    const eg__param *expected; /* what it has when this is exchanged, unless somebody else has been there */
} eg__param_exchange;

/** Numbers as they were before a commit. */
typedef struct eg__copy {
    eg_tensor *tensor, *numbers; /* kept */
} eg__copy;

/** What one commit did. */
typedef struct eg__batch {
    size_t n_edits, n_replacements, n_derivations; /* of the surgery, at its end */
    eg__param_exchange *exchanges;                 /* one for each optimizer */
    eg__copy *copies;
    size_t n_copies, copies_capacity;
    int64_t **steps; /* of the parameters of each optimizer, with copies */
} eg__batch;

typedef struct eg__savepoint {
    size_t n_batches, n_edits, n_replacements, n_derivations;
} eg__savepoint;

/** What was read of the model as planned, while the plan is in place (planned.c). */
typedef struct eg__planned eg__planned;
void eg__planned_free(eg__planned *planned);
/** Its graph, and what eg__way_find() knows of it; lent while the plan is in place, where it must be. */
eg_status eg__planned_graph(eg_surgery *s, eg__model_graph **graph, uint32_t **ways);
/** Of each vertex of the graph of a model that is as planned, when it, or what is below it, first runs on the inputs, +
 * 1; 0 = never. For free(); NULL on failure. */
uint32_t *eg__first_runs(eg_surgery *s, eg__model_graph *graph);

struct eg_surgery {
    eg_context *ctx;
    eg_module *root;   /* kept: the model as it is now */
    bool root_is_held; /* by the caller, in places[0] */
    eg_module ***places;
    size_t n_places;
    eg_optimizer **optimizers;
    size_t n_optimizers;
    eg_shape *inputs;
    size_t n_inputs;
    unsigned without;
    bool snapshot, any_batch, in_order_of_execution;

    eg__edit *edits; /* those of commits, then those that are planned */
    size_t n_edits, edits_capacity;
    eg__replacement *replacements; /* likewise */
    size_t n_replacements, replacements_capacity;
    eg__derivation *derivations;
    size_t n_derivations, derivations_capacity;
    eg__batch *batches;
    size_t n_batches, batches_capacity;
    eg__step *steps; /* of methods, in the order of edits */
    size_t n_steps, steps_capacity;
    eg__savepoint *savepoints;
    size_t n_savepoints, savepoints_capacity;
    char **notes;
    size_t n_notes, notes_capacity;
    char **names; /* of policies */
    size_t n_names, names_capacity;

    struct eg__way { /* a step of a path: [0] is the root's */
        uint32_t parent;
        size_t name; /* where it is in `way_names` */
    } * ways;
    size_t n_ways, ways_capacity;
    eg__buf way_names;
    eg_replaced shown; /* the replacement that was asked for last, */
    char **paths;      /* and the paths of those that were, [n_paths] */
    size_t n_paths, paths_capacity;

    eg_rng rng;                    /* of what policies make */
    bool is_apart;                 /* it is the context's at the moment */
    bool has_wrapped;              /* a new module holds modules of the model */
    size_t entered;                /* how often the plan was put in place */
    size_t n_entered;              /* edits up to here are; what is planned meanwhile is not */
    eg__ptr_map flagged;           /* parameters of which what is planned meanwhile says: trained (or NULL: not); */
    size_t n_flagged;              /* of edits up to here; SIZE_MAX: none yet */
    bool checked;                  /* `exchanges` are those of the plan */
    eg__param_exchange *exchanges; /* [n_optimizers] */
    eg__planned *planned;          /* NULL: the plan is not in place, or nobody has asked */
};

/** Edits of commits; what follows is planned. */
size_t eg__committed_edits(const eg_surgery *s);
size_t eg__committed_replacements(const eg_surgery *s);
size_t eg__committed_derivations(const eg_surgery *s);
/** Puts what is planned in place, to look at it, and takes it out again. They nest. EINVAL, naming the place, when
 *  somebody has changed the model since it was planned. */
eg_status eg__surgery_enter(eg_surgery *s);
void eg__surgery_leave(eg_surgery *s);
/** Puts the first `to` edits in place, where the first *at are now (those of commits, to begin with). *at says how far
 * it got, also on failure; whoever calls it goes back in the end. */
eg_status eg__surgery_seek(eg_surgery *s, size_t *at, size_t to);
/** Runs `fn` while the model is as it was when the surgery began. Nothing must be changed in it. */
eg_status eg__surgery_look_back(eg_surgery *s, eg_surgery_look_fn fn, void *payload);
/** Plans an exchange: keeps `owner` and `fresh`. */
eg_status eg__surgery_edit(eg_surgery *s, eg__edit_kind kind, void *owner, uint32_t slot, void *here, void *fresh);
/** Around what makes new modules: its tensors go with it, but for those that modules hold, and its random numbers are
 *  the surgery's, not the context's. They nest. */
typedef struct eg__apart {
    size_t mark;
    eg_rng kept;
    bool is_outer;
} eg__apart;
eg_status eg__apart_begin(eg_surgery *s, eg__apart *apart);
void eg__apart_end(eg_surgery *s, const eg__apart *apart);
/** Forgets edits, replacements and derivations past these numbers. */
void eg__surgery_cut(eg_surgery *s, size_t n_edits, size_t n_replacements, size_t n_derivations);
void eg__notes_cut(eg_surgery *s, size_t n);
void eg__batch_free(eg_surgery *s, eg__batch *batch);

/* ---- paths that outlive the model (ways.c) ---- */

/** The number of a vertex's path in the surgery. `known`: of each vertex that number, 0 = not found yet; zeroed at
 * first, of one graph. */
eg_status eg__way_find(eg_surgery *s, const eg__model_graph *graph, uint32_t *known, uint32_t vertex, uint32_t *way);
/** The path as text, for free(). NULL on ENOMEM. */
char *eg__way_text(const eg_surgery *s, uint32_t way);

/* ---- methods ---- */

/** The built-in ones (methods/table.c), NULL-ended. */
extern const eg_method *const eg__methods[];

/* ---- ranks of policies (ranks.c) ---- */

/** A policy that matches a class; the smaller the rank, the more specific. */
typedef struct eg__candidate {
    size_t policy;
    int rank;
} eg__candidate;
/** The policies of one class, most specific first. */
typedef struct eg__class_policies {
    size_t n;
    eg__candidate items[];
} eg__class_policies;
/** Those of all classes that were asked for. */
typedef struct eg__ranks {
    eg_policies policies;
    eg__ptr_map by_class; /* class -> eg__class_policies */
    const eg_class *last_class;
    const eg__class_policies *last;
} eg__ranks;
/** NULL on ENOMEM. Lent. */
const eg__class_policies *eg__ranks_of(eg__ranks *ranks, const eg_class *cls);
void eg__ranks_free(eg__ranks *ranks);

/* ---- planning (policies.c, put.c, carry.c) ---- */

/** Plans that `about->fresh` stands in all places of a vertex. The graph is of the model as planned. */
eg_status eg__surgery_replace_vertex(eg_surgery *s, eg__model_graph *graph, uint32_t vertex,
                                     const eg__replacement *about);
/** EINVAL when the model as planned contains itself: a new module may hold what holds it. */
eg_status eg__surgery_check_acyclic(eg_surgery *s);
/** Lets the new module of a replacement have what the old one has. */
eg_status eg__surgery_carry(eg_surgery *s, eg__model_graph *graph, const eg__replacement *r);
/** The module at a path below m; NULL, without a failure, when there is none. */
eg_module *eg__module_below(eg_module *m, const char *path);
/** Puts the very tensors of `from` into a new module's slots of the same names. Returns `to`; NULL is passed on. */
eg_module *eg__share_tensors(eg_module *to, const eg_module *from);
/** Gathers the modules of a new module that are not in the model yet, itself first, with their paths in it. */
typedef struct eg__new_modules {
    struct eg__new_module {
        eg_module *module;
        size_t path; /* in `paths` */
    } * items;
    size_t n, capacity;
    eg__buf paths;
    bool holds_model; /* it holds modules of the model as well */
} eg__new_modules;
eg_status eg__new_modules_find(eg__model_graph *graph, eg_module *fresh, eg__new_modules *out);
void eg__new_modules_free(eg__new_modules *modules);

/* ---- optimizers (exchange.c; more in exchange.h) ---- */

/** Plans what each optimizer will have, into s->exchanges. The plan is not in place. */
eg_status eg__exchanges_plan(eg_surgery *s);
/** Whether s->exchanges, once planned, still fit: no optimizer has been given parameters or made an update since. */
bool eg__exchanges_are_current(const eg_surgery *s);
/** Exchanges a list of parameters; cannot fail. What is in both lists is as it has become since. `back`: it is an undo.
 */
void eg__exchange(eg__param_exchange *exchange, bool back);
void eg__exchanges_free(eg_surgery *s, eg__param_exchange *exchanges);

#endif

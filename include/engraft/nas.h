/** @file
 * engraft/nas.h - neural architecture search: open choices in a model, and what decides them.
 *
 * Mutables (layer_choice, input_choice, value_choice, mutable_scope) mark what is open. A mutator walks a model, binds
 * itself to its mutables and decides, at each forward pass, which candidates run. An architecture is the record of
 * decisions: key -> name, index, number, list or weights. apply_fixed_architecture turns the supernet into a plain
 * network with its weights.
 */
#ifndef ENGRAFT_NAS_H
#define ENGRAFT_NAS_H

#include "data.h"
#include "layers.h"
#include "optim.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Walks a model and decides its choices. */
typedef struct eg_mutator eg_mutator;
/** What was decided, by key. */
typedef struct eg_decisions eg_decisions;

/* ---------------------------------------------------------------------------------------------- mutables */

/** How the outputs of several chosen candidates become one. NONE: a tuple of them. */
typedef enum eg_choice_reduction {
    EG_CHOICE_SUM,
    EG_CHOICE_MEAN,
    EG_CHOICE_CONCAT,
    EG_CHOICE_NONE
} eg_choice_reduction;

/** Abstract. A mutable is a module whose class descends from eg_mutable_class and has a text field `key`. Mutables with
 *  the same key share their decision. */
EG_API extern const eg_class eg_mutable_class;
/** Lent, as long as the mutable lives. Without one given, "<Class><n>" with n counted by the context, such as
 *  "LayerChoice1". NULL and EINVAL for a module that is no mutable. */
EG_API const char *eg_mutable_key(const eg_module *m);
/** Number of candidates, inputs or values of any choice: the length of its decisions. 0 for a scope, for what is no
 *  mutable, and for NULL. */
EG_API size_t eg_mutable_n_candidates(const eg_module *m);
/** The dotted path while a mutator is attached ("" for the root); else the key. Lent, until the mutator is detached.
 * NULL and EINVAL for a module that is no mutable. */
EG_API const char *eg_mutable_name(eg_module *m);
/** The mutator that m, a mutable or the root of a model, is bound to. Lent. NULL (no failure) when there is none, or
 *  m is NULL. */
EG_API eg_mutator *eg_mutable_mutator(eg_module *m);
/** The next automatic key of this context ends in 1 again. NULL does nothing. */
EG_API void eg_context_reset_keys(eg_context *ctx);

/** One of several layers, its children under their names:
 *  eg_layer_choice(ctx, EG_CHOICES({"conv3x3", a}, {"pool", b}), .key = "op"), or EG_MODULES(a, b) for the names "0",
 *  "1". Takes any number of inputs and hands them to the chosen candidates. The candidates are taken over, also on
 *  failure. NULL: EINVAL (no candidates, an empty key, a value of `fixed` that is none of an architecture's), EFORMAT
 *  (`fixed` is no JSON). Its forward fails with EINVAL while there is neither a mutator nor `fixed`. */
typedef struct eg_layer_choice {
    eg_module base;
    eg_module *const *modules; /**< the lists are read while it is built and NULL after */
    size_t n_modules;
    const eg_named_module *named;
    size_t n_named;
    const char *key;
    int reduction;           /**< eg_choice_reduction */
    bool return_mask;        /**< forward returns the tuple (output, mask) */
    const char *fixed;       /**< followed while no mutator is attached: a value as in an architecture, "[0, 2]" */
    eg_decisions *decisions; /**< internal */
} eg_layer_choice;
EG_API extern const eg_class eg_layer_choice_class;
#define EG_CHOICES(...) EG_NAMED(__VA_ARGS__)
#define eg_layer_choice(...) eg_new(eg_layer_choice, __VA_ARGS__)

/** Some of several tensors: takes n_candidates inputs. eg_input_choice(ctx, .n_candidates = 2, .n_chosen = EG_N(1)), or
 *  .choose_from = EG_KEYS("op", EG_NO_KEY). Nothing chosen: eg_none (an empty tuple for EG_CHOICE_NONE). NULL: EINVAL
 *  (no candidates, numbers that contradict each other, more than 1024), and what eg_layer_choice() has for key and
 *  `fixed`. Its forward fails as that of a layer choice does, and for another number of inputs. */
typedef struct eg_input_choice {
    eg_module base;
    int64_t n_candidates; /**< 0 = the number in choose_from */
    const char *const
        *choose_from;    /**< NULL-ended list of keys that appear before, or EG_NO_KEY; copied. NULL = none */
    eg_opt_f64 n_chosen; /**< recommended number, 0 .. n_candidates: EG_N(1); unset = any */
    const char *key;
    int reduction;
    bool return_mask;
    const char *fixed;       /**< as in a layer choice */
    eg_decisions *decisions; /**< internal */
} eg_input_choice;
EG_API extern const eg_class eg_input_choice_class;
#define EG_NO_KEY ""
#define EG_KEYS(...)                                                                                                   \
    (const char *const[])                                                                                              \
    {                                                                                                                  \
        __VA_ARGS__, NULL                                                                                              \
    }
#define EG_N(n) EG_F64(n)
#define eg_input_choice(...) eg_new(eg_input_choice, __VA_ARGS__)

/** A number that is decided, where a constructor takes a constant:
 *
 *      int64_t width = eg_value_choice(ctx, EG_VALUES(16, 24, 32), .key = "width");
 *      int64_t kernel = eg_value_choice(ctx, EG_VALUES(3, 5, 7), .key = "kernel");
 *      int64_t padding = eg_value_choice(ctx, EG_VALUES(1, 2, 3), .key = "kernel"); // the same decision, other values
 *      eg_conv2d(ctx, 3, width, kernel, .padding = padding), eg_batch_norm2d(ctx, width), eg_conv2d(ctx, width, 64, 3)
 *
 *  What it gives is a handle, which fields of whole numbers, sizes and doubles (cast to it) take (see "open fields" in
 *  nn.h); not EG_HW() nor EG_SHAPE(). It stands in as many fields as is wished, of one model. A
 * sum or multiple of it is none, and refused. A class of one's own whose build does not hand the field on by EG_OPEN(),
 * and whose forward does not read it, runs alike for all values. The module behind it
 * belongs to the context until this is freed, and is a child of each module with such a field, under the field's name.
 *
 *  Modules run with the value that the mutator (or `fixed`) has decided, and with parts of their parameters; without a
 *  decision they fail as other choices do. Where parameters are stacked (the gates of an LSTM, query, key and value of
 *  attention) the first rows are taken of the whole. Groups of convolutions are to be open only together with the
 *  channels (depthwise); a combination of values that no module can be made from fails when it runs. Refused: weight
 * and spectral normalization. Code that reads the parameters of another module sees the whole.
 *
 *  Values: 1 to 1024 numbers below 2^52 in size, each once; whole ones for whole fields. On failure a handle that
 * constructors refuse with the cause: EINVAL (the values; what eg_layer_choice() has for key and `fixed`). */
typedef struct eg_value_choice {
    eg_module base;
    const double *values; /**< EG_VALUES(); copied */
    size_t n_values;
    const char *key;
    const char *fixed;       /**< followed while no mutator is attached: a value, "24" */
    eg_decisions *decisions; /**< internal */
} eg_value_choice;
EG_API extern const eg_class eg_value_choice_class;
#define EG_VALUES(...)                                                                                                 \
    .values = (const double[]){__VA_ARGS__}, .n_values = sizeof((const double[]){__VA_ARGS__}) / sizeof(double)
#define eg_value_choice(...) eg_value_choice_handle(eg_new(eg_value_choice, __VA_ARGS__))
/** The handle of a value choice, which is taken over. Use it through eg_value_choice(). */
EG_API int64_t eg_value_choice_handle(eg_module *choice);
/** Number of values; 0 for what is no value choice. */
EG_API size_t eg_value_choice_size(const eg_module *choice);
/** Value i. NaN and EINVAL for what is no value choice, and for an i out of range. */
EG_API double eg_value_choice_at(const eg_module *choice, size_t i);

/** Abstract: makes a part of the model ("cell") a sub-space of its own, which mutators may use. Derive a class: a
 * struct with `eg_module base` and `const char *key`, EG_CLASS(cell, .super = &eg_mutable_scope_class, .fields =
 * EG_FIELDS(EG_TEXT(cell, key, ..)), ..). The key is required. Scopes nest. They are among a mutator's mutables, never
 * in decisions. */
EG_API extern const eg_class eg_mutable_scope_class;

/** Number of candidates; 0 for what is no layer choice. */
EG_API size_t eg_layer_choice_size(const eg_module *choice);
/** Name of candidate i. Lent. NULL and EINVAL for what is no layer choice, and for an i out of range. */
EG_API const char *eg_layer_choice_name(const eg_module *choice, size_t i);
/** Module of candidate i. Lent. NULL without failure when it was removed; NULL and EINVAL as eg_layer_choice_name(). */
EG_API eg_module *eg_layer_choice_at(const eg_module *choice, size_t i);
/** Index of the candidate of that name. ENOENT (with the closest names); EINVAL for what is no layer choice. */
EG_API eg_status eg_layer_choice_index(const eg_module *choice, const char *name, size_t *index);
/** Candidates begin .. end - 1 into out[end - begin], lent (NULL for those that were emptied). EINVAL for a range that
 * is none of the choice's: there are no negative indices, and ends are not cut. */
EG_API eg_status eg_layer_choice_slice(const eg_module *choice, size_t begin, size_t end, eg_module **out);
/** Puts another module (taken over, also on failure) in the place of candidate i, which keeps its name and decisions;
 *  also while a mutator is attached, to which mutables inside of it are unknown. As eg_module_set_child(); EINVAL for
 * an i out of range. To empty a candidate: eg_module_empty_child(). There is no adding. */
EG_API eg_status eg_layer_choice_set(eg_module *choice, size_t i, eg_module *candidate);
/** Removes candidates begin .. end - 1; the others keep their names ("0", "2"). EINVAL, and nothing is changed, for a
 *  range that is none of the choice's or all of it, and while a mutator or the field `fixed` decides: what they hold
 *  counts candidates, and would mean others. eg_module_remove_child() does not ask: under a mutator it leaves decisions
 *  that no longer fit, which forward refuses. */
EG_API eg_status eg_layer_choice_remove(eg_module *choice, size_t begin, size_t end);
/** Number of candidates; 0 for what is no input choice. */
EG_API size_t eg_input_choice_size(const eg_module *choice);
/** Key that candidate i comes from, or EG_NO_KEY. Lent. NULL and EINVAL for what is no input choice, and for an i out
 * of range. */
EG_API const char *eg_input_choice_source(const eg_module *choice, size_t i);
/** Recommended number of inputs; -1 = any. -1 and EINVAL for what is no input choice. */
EG_API int64_t eg_input_choice_n_chosen(const eg_module *choice);
/** Runs an input choice on n inputs that are given by name, in any order: names[i] says where in[i] comes from,
 * EG_NO_KEY included; inputs of one name are taken in their order. NULL as eg_module_call(); EINVAL, naming it, for a
 * source of the choice that is missing and for an input that is none of its sources. */
EG_API eg_tensor *eg_input_choice_call(eg_module *choice, const char *const *names, eg_tensor *const *in, size_t n);

/* ---------------------------------------------------------------------------------------------- architectures */

/** Decisions by key. What export gives and a file holds: a name, an index, a list of either, or a list of weights. An
 *  input choice names the key that an input comes from, and "" for an input without one: a choice whether to take one
 *  such input (a shortcut) is "" when it is taken. [] is "none of them". */
typedef struct eg_arch eg_arch;
/** An empty one, for eg_arch_free(); so are all that functions return. NULL: ENOMEM. */
EG_API eg_arch *eg_arch_new(void);
/** NULL: EINVAL for NULL. */
EG_API eg_arch *eg_arch_copy(const eg_arch *arch);
/** NULL is allowed. */
EG_API void eg_arch_free(eg_arch *arch);
/** JSON text {"key": value, ..}, keys sorted, 2-space indent; for eg_free(). NULL: EINVAL for NULL. */
EG_API char *eg_arch_text(const eg_arch *arch);
/** Reads such text. NULL: EFORMAT (the message names line and column) for what is no JSON object of names, numbers,
 *  booleans, null, and lists of them; EINVAL for NULL. What the values are for is checked by who applies them. */
EG_API eg_arch *eg_arch_parse(const char *json);
/** Reads a file: as eg_arch_parse(), and ENOENT, EIO. */
EG_API eg_arch *eg_arch_load(const char *path);
/** Writes a file as eg_arch_text(), whole or not at all. EIO; EINVAL for NULL. */
EG_API eg_status eg_arch_save(const eg_arch *arch, const char *path);
/** Number of keys; 0 for NULL. */
EG_API size_t eg_arch_size(const eg_arch *arch);
/** Key i in sorted order. Lent, until the architecture is changed or freed. NULL and EINVAL for an i out of range. */
EG_API const char *eg_arch_key(const eg_arch *arch, size_t i);
/** Whether there is a value for a key. False for NULL. */
EG_API bool eg_arch_has(const eg_arch *arch, const char *key);
/** The value of a key as JSON text, for eg_free(). NULL: ENOENT when absent, EINVAL for NULL. */
EG_API char *eg_arch_value(const eg_arch *arch, const char *key);
/** Sets or replaces the value of a key: JSON text, such as "\"conv3x3\"" or "[0, 2]". EFORMAT as eg_arch_parse();
 * EINVAL for NULL and for a key that is no UTF-8. */
EG_API eg_status eg_arch_set(eg_arch *arch, const char *key, const char *json_value);
/** Whether both have the same keys and values, as written ([0] is not 0). False for NULL. */
EG_API bool eg_arch_equal(const eg_arch *a, const eg_arch *b);

/* ---------------------------------------------------------------------------------------------- decisions */

/** What a mutator has decided for one key: a 0/1 mask, real weights, or a tensor of weights (for gradients). */
typedef struct eg_decision {
    size_t n;
    bool is_bool;      /**< weight entries are 0 or 1 and outputs are taken as they are, not multiplied */
    double *weights;   /**< [n]; owned by the set */
    eg_tensor *tensor; /**< (n) or NULL; kept. Takes the place of weights: every candidate runs */
} eg_decision;

/** An empty set of decisions by key, in the order in which they are set; for eg_decisions_free(). NULL: ENOMEM. */
EG_API eg_decisions *eg_decisions_new(void);
/** NULL is allowed. */
EG_API void eg_decisions_free(eg_decisions *decisions);
/** Sets or replaces the decision of a key, here by a 0/1 mask of n entries, which is copied. EINVAL for NULL. A failure
 *  leaves the set as it was. Whether n fits a choice is checked when it is followed. */
EG_API eg_status eg_decisions_set_mask(eg_decisions *decisions, const char *key, const bool *mask, size_t n);
/** The same with n weights, which are copied. EINVAL also for those that are not finite or exceed float32.
 */
EG_API eg_status eg_decisions_set_weights(eg_decisions *decisions, const char *key, const double *weights, size_t n);
/** The same with a tensor of weights, which is kept. ESHAPE when it has not one dimension. */
EG_API eg_status eg_decisions_set_tensor(eg_decisions *decisions, const char *key, eg_tensor *weights);
/** Decides a choice by its candidate (input, value) i alone. EINVAL for NULL, for what is no choice, for an i out of
 * range. */
EG_API eg_status eg_decisions_choose(eg_decisions *decisions, const eg_module *choice, size_t i);
/** Lent, until it is replaced or the set is freed. NULL (no failure) when absent, or for NULL. */
EG_API const eg_decision *eg_decisions_get(const eg_decisions *decisions, const char *key);

/* ---------------------------------------------------------------------------------------------- mutators */

/** What a kind of mutator is: a const record. */
typedef struct eg_mutator_class eg_mutator_class;

/** One node of the tree of mutables: scopes have children, and choices that others lie in. */
typedef struct eg_mutable_node {
    eg_module *module; /**< the mutable, lent; NULL for the root */
    struct eg_mutable_node **children;
    size_t n_children;
} eg_mutable_node;
/** Whether parents or children come first. */
typedef enum eg_traverse_order { EG_PRE_ORDER, EG_POST_ORDER } eg_traverse_order;
/** Called for each mutable. */
typedef eg_status (*eg_visit_mutable_fn)(void *payload, eg_module *m);
/** Keys that were seen, for several traversals to share. */
typedef struct eg_key_memo eg_key_memo;
/** An empty one, for eg_key_memo_free(). NULL: ENOMEM. */
EG_API eg_key_memo *eg_key_memo_new(void);
/** NULL is allowed. */
EG_API void eg_key_memo_free(eg_key_memo *memo);
/** Whether a key was seen. False for NULL. */
EG_API bool eg_key_memo_has(const eg_key_memo *memo, const char *key);
/** Visits the mutables of a tree; with `deduplicate` only those whose key is not in the memo yet. Each key seen goes
 * into the memo, also without `deduplicate`; NULL = one of its own, so the first of each key is visited. Ends with the
 * first failure of `visit`, which it returns. EINVAL for NULL (not `memo`, `payload`) and for another order. */
EG_API eg_status eg_mutable_node_traverse(const eg_mutable_node *node, eg_traverse_order order, bool deduplicate,
                                          eg_key_memo *memo, eg_visit_mutable_fn visit, void *payload);

/** The head of every mutator struct. */
struct eg_mutator {
    const eg_mutator_class *cls;
    eg_context *ctx;
    eg_module *model; /**< retained while attached */
    eg_mutable_node *tree;
    eg_module **mutables; /**< pre-order, the first of each key */
    size_t n_mutables;
    eg_decisions *current;              /**< what the next forward follows */
    bool recompute;                     /**< see eg_mutator_set_recompute() */
    struct eg_gates *gates;             /**< internal */
    struct eg_constraints *constraints; /**< internal */
};

/** What a kind of mutator is; NULL functions are those of `super`. Value choices follow mutator->current. Mask
 * argument: *mask receives the decision as a tensor when not NULL. */
struct eg_mutator_class {
    size_t struct_size;
    const char *name;
    const eg_mutator_class *super; /**< NULL = eg_mutator_base_class, which follows mutator->current */
    size_t instance_size;
    /** After the model was parsed; makes what the mutator needs (parameters of choices). */
    eg_status (*build)(eg_mutator *self);
    void (*finalize)(eg_mutator *self);
    /** For eg_mutator_reset(): a decision for each choice (those that turn out not to count are dropped) into `out`,
     * which is empty. */
    eg_status (*sample_search)(eg_mutator *self, eg_decisions *out);
    /** For eg_mutator_export(). That it satisfies the constraints is up to the class: see eg_mutator_satisfies(). */
    eg_status (*sample_final)(eg_mutator *self, eg_decisions *out);
    eg_tensor *(*on_forward_layer_choice)(eg_mutator *self, eg_module *choice, eg_tensor *const *in, size_t n_in,
                                          eg_tensor **mask);
    eg_tensor *(*on_forward_input_choice)(eg_mutator *self, eg_module *choice, eg_tensor *const *in, size_t n_in,
                                          eg_tensor **mask);
    eg_status (*enter_mutable_scope)(eg_mutator *self, eg_module *scope);
    eg_status (*exit_mutable_scope)(eg_mutator *self, eg_module *scope);
    /** What the mutator has learned: tensors into / from `state` under names that begin with `prefix` (not NULL) and
     *  not with "<prefix>current.". A load that fails changes nothing. The base class has nothing to keep. */
    eg_status (*save)(eg_mutator *self, const char *prefix, eg_state *state);
    eg_status (*load)(eg_mutator *self, const char *prefix, const eg_state *state);
};
EG_API extern const eg_mutator_class eg_mutator_base_class;

/** Makes a mutator from a prototype struct of `size` bytes (NULL: zeros; its own fields are copied), parses the model,
 *  binds every mutable and builds. For eg_mutator_detach(); the model is retained until then. NULL, with nothing bound:
 *  EINVAL when the model has a mutator already, when one key is given to choices that differ in kind or size, when a
 *  mutable has an open field, when choose_from names a key that does not come before (in a choice that is not fixed),
 * for NULL; EUNSUPPORTED when a module's `extension` is taken. What is fixed follows the mutator while it is attached.
 */
EG_API eg_mutator *eg_mutator_attach(const eg_mutator_class *cls, size_t size, const void *prototype, eg_module *model);
/** Unbinds and frees; lets go of the model. NULL is allowed. */
EG_API void eg_mutator_detach(eg_mutator *mutator);
/** Samples the decisions that the following forward passes follow (sample_search). What it computes belongs to the
 *  recording tape where there is one; else only the decisions are kept. Drawn again while constraints do not hold. A
 *  failure leaves those from before. EINVAL for NULL, for what a class's own sample_search has left out or decided with
 *  a wrong length or none or several values, and what sampling fails with. */
EG_API eg_status eg_mutator_reset(eg_mutator *mutator);
/** Whether layer choices that run every candidate (decided by a tensor of weights) keep nothing for backward, which
 * runs them again: a small part of the memory for about a third more time. See eg_recompute() for what to know of it.
 * Not for those whose outputs are not joined ("none"). NULL does nothing. */
EG_API void eg_mutator_set_recompute(eg_mutator *mutator, bool recompute);
/** A final sample (sample_final) as an architecture, in the canonical form; for eg_arch_free(). NULL: EINVAL for NULL
 * and when a decision is missing, and what sampling fails with. */
EG_API eg_arch *eg_mutator_export(eg_mutator *mutator);
/** Any decisions in that form; for eg_arch_free(). Choices inside a candidate that is not chosen, or a block that does
 *  not run, are left out. NULL: EINVAL for NULL, and when a key of the model is missing or one is there that the model
 *  lacks. */
EG_API eg_arch *eg_mutator_export_decisions(eg_mutator *mutator, const eg_decisions *decisions);
/** Current decisions as JSON: key -> list of booleans or weights; for eg_free(). NULL: EINVAL for NULL, for weights
 * that are not finite, for a key that is no UTF-8. */
EG_API char *eg_mutator_status(eg_mutator *mutator);
/** Makes an architecture (checked against the model as in eg_fixed_architecture()) the current decisions, which a
 * failure leaves as they were. EINVAL. */
EG_API eg_status eg_mutator_set_arch(eg_mutator *mutator, const eg_arch *arch);
/** Makes the whole supernet the current decisions: every candidate of layer choices that was not emptied, every input,
 * the largest of values. EINVAL, and nothing is changed, for a layer choice of which nothing is left, and for NULL. */
EG_API eg_status eg_mutator_choose_all(eg_mutator *mutator);
/* ---- constraints: what samplers may choose ---- */

/** Says in *holds (false before) whether decisions, those of the active choices, are allowed. May ask
 * eg_mutator_cost_of(). What it fails with ends the sampling, which fails with the same. */
typedef eg_status (*eg_constraint_fn)(void *payload, eg_mutator *mutator, const eg_decisions *decisions, bool *holds);
/** A constraint, for options: .constraints = .. by EG_CONSTRAINTS({"small", is_small, &limit}). */
typedef struct eg_constraint {
    const char *name; /**< for messages */
    eg_constraint_fn holds;
    void *payload;
} eg_constraint;
#define EG_CONSTRAINTS(...)                                                                                            \
    .constraints = (const eg_constraint[]){__VA_ARGS__},                                                               \
    .n_constraints = sizeof((const eg_constraint[]){__VA_ARGS__}) / sizeof(eg_constraint)
/** From now on samples satisfy it: those of any class's sample_search, and the uniform ones of an export, are drawn
 * again until they do, at most 10,000 times (then EINVAL, naming the constraint that failed most often); evolution
 * rejects candidates that do not; DARTS draws 1,000 architectures by their probabilities when the strongest does not,
 * and exports the most probable that does. While DARTS trains, all candidates run. Who sets an architecture is not
 * asked: eg_mutator_set_arch() and eg_fixed_architecture() take any. The name is copied. EINVAL for NULL (not
 * `payload`). */
EG_API eg_status eg_mutator_add_constraint(eg_mutator *mutator, const char *name, eg_constraint_fn holds,
                                           void *payload);

/** Whether decisions satisfy all constraints; true where there are none, and for decisions by tensors of weights, which
 *  are not yet an architecture. For classes that search in their own way. EINVAL for NULL. */
EG_API eg_status eg_mutator_satisfies(eg_mutator *mutator, const eg_decisions *decisions, bool *holds);

/* ---- cost: of the network that decisions stand for ---- */

/** What a network takes. */
typedef struct eg_network_cost {
    int64_t parameters; /**< that run, of open fields the parts that do */
    uint64_t macs;
    char *path; /**< the modules whose operations run, in this order, each once, a line each; for eg_free() */
} eg_network_cost;
/** Of the current decisions, for inputs of these shapes: eg_trace_new() of the model, which computes shapes only: some
 *  ten microseconds an operation. EINVAL for NULL, and what running the model fails with; `out` is all-zero then. */
EG_API eg_status eg_mutator_cost(eg_mutator *mutator, const eg_shape *inputs, size_t n_inputs, eg_network_cost *out);
/** The same of other decisions; the current ones stay. */
EG_API eg_status eg_mutator_cost_of(eg_mutator *mutator, const eg_decisions *decisions, const eg_shape *inputs,
                                    size_t n_inputs, eg_network_cost *out);
/** The same of an architecture, which is checked as in eg_mutator_set_arch(). */
EG_API eg_status eg_mutator_cost_of_arch(eg_mutator *mutator, const eg_arch *arch, const eg_shape *inputs,
                                         size_t n_inputs, eg_network_cost *out);

/** What a checkpoint needs: the state of the mutator's class, and its current decisions under "<prefix>current.<key>".
 *  Decisions that are tensors of a tape (DARTS) are not kept: they are sampled again. Buffers are not copied; `prefix`
 *  may be NULL. EINVAL for NULL otherwise. */
EG_API eg_status eg_mutator_state(eg_mutator *mutator, const char *prefix, eg_state *state);
/** Takes copies. Nothing is changed on failure: ENOENT for what is missing or of a choice that the model lacks; ESHAPE,
 *  EDTYPE; EINVAL for NULL (not `prefix`). */
EG_API eg_status eg_mutator_load_state(eg_mutator *mutator, const char *prefix, const eg_state *state);

/** The graph of a supernet: each operation of a run with every candidate of every choice, and where the mutables are.
 */
typedef struct eg_graph eg_graph;
/** Runs the mutator's model on inputs of these shapes, in evaluation mode and on shapes alone, with all candidates that
 *  are there and the largest values (eg_mutator_choose_all()); decisions are left as they were, and the class's own
 *  on_forward functions are not asked. For eg_graph_free(). NULL: what eg_trace_new() fails with (candidates whose
 *  outputs cannot be joined, say), EINVAL for a name that is no UTF-8, and for a layer choice of which nothing is left.
 */
EG_API eg_graph *eg_mutator_graph(eg_mutator *mutator, const eg_shape *inputs, size_t n_inputs);
/** NULL is allowed. */
EG_API void eg_graph_free(eg_graph *graph);
/** Number of nodes: inputs ("input/input"), and operations, each named by its module and itself,
 *  "Net/Cell[cells]/Conv2d[0]/conv2d", with "_1", "_2", .. after what comes more than once. A module that its caller
 *  does not hold is there by name alone, "Net/ReLU/relu". */
EG_API size_t eg_graph_size(const eg_graph *graph);
/** {"node": [{"name", "op", "input": [names], "attr"}, ..], "versions": {"producer"}, "mutable": {key: [path, ..]}},
 * for eg_free(). The first two are TensorBoard's GraphDef in the JSON form of protocol buffers. A path, one for each
 * module of the key that the model still has, is [{"type": class, "name": name}, ..] from the model, whose name is "".
 * Parameters are no nodes.
 */
EG_API char *eg_graph_text(const eg_graph *graph);
/** Writes that to a file. EIO. */
EG_API eg_status eg_graph_save(const eg_graph *graph, const char *path);
/** Writes the GraphDef in the binary form of protocol buffers. EIO. */
EG_API eg_status eg_graph_save_binary(const eg_graph *graph, const char *path);
/** Writes DIRECTORY/events.out.tfevents.<time>.engraft.<process>, with the GraphDef in it, which `tensorboard --logdir
 *  DIRECTORY` shows. The directory is made. EIO, ENOENT. */
EG_API eg_status eg_graph_save_event(const eg_graph *graph, const char *directory);

/** Uniform: one candidate of each layer choice; n_chosen inputs, or a fair coin for each when unset. Draws from
 *  eg_context_rng(). */
typedef struct eg_random_mutator {
    eg_mutator base;
} eg_random_mutator;
EG_API extern const eg_mutator_class eg_random_mutator_class;
/** As eg_mutator_attach(). */
EG_API eg_mutator *eg_random_mutator_new(eg_module *model);

/** Continuous relaxation (Liu et al., DARTS, ICLR 2019): one vector of weights a key, with one entry more, for "none of
 *  them". A reset decides by the softmax of it; an export by the strongest candidates. */
typedef struct eg_darts_mutator {
    eg_mutator base;
    struct eg_darts_choice *choices;
    size_t n_choices;
} eg_darts_mutator;
EG_API extern const eg_mutator_class eg_darts_mutator_class;
/** As eg_mutator_attach(); also EINVAL for a model with a value choice. */
EG_API eg_mutator *eg_darts_mutator_new(eg_module *model);
/** The weights (alphas) of a layer choice, by key. Lent. NULL: ENOENT when there is no such layer choice; EINVAL for
 * NULL and for a mutator of another kind. */
EG_API eg_tensor *eg_darts_mutator_alpha(eg_mutator *mutator, const char *key);
/** All alphas under "<prefix><key>", not copied; `prefix` may be NULL. EINVAL for NULL otherwise, and for a mutator of
 *  another kind. */
EG_API eg_status eg_darts_mutator_state(eg_mutator *mutator, const char *prefix, eg_state *state);

/* ---------------------------------------------------------------------------------------------- fixed architectures */

/** What eg_fixed_architecture() takes. */
typedef struct eg_fixed_options {
    size_t struct_size;
    bool not_strict; /**< keys in the architecture that the model lacks are allowed */
    bool quiet;      /**< no log lines */
    /** Where the caller holds the model: receives the chosen candidate (and its reference in place of the model's) when
     *  the model itself is a layer choice. NULL: such a choice stays, with that candidate only. Not used
     *  with a `part` below the model. */
    eg_module **root;
    /** Dotted path of the part of the model to be changed, "cells.0"; NULL = all of it. Of a module in several places
     *  the first path counts. The architecture is that of the whole model and is checked as such. */
    const char *part;
} eg_fixed_options;
/** Turns a model with choices into one that needs no mutator: every layer choice with one candidate chosen with weight
 * 1 (and no return_mask) is replaced by it, its weights kept. What stays follows its own field `fixed` from now on:
 * layer choices of several candidates, which keep those only, and input choices. So the model can be cloned, and taken
 * apart. Another architecture, for what stays, or a mutator may come later.
 *
 *  Choices inside candidates that are not chosen, or in blocks of an eg_repeat() that do not run, have no value, and
 * are dropped as they are. Open fields (eg_value_choice()) become constants and parameters smaller: fresh tensors,
 * which an optimizer made before does not know.
 *
 *  Values of an architecture, of a value choice the number, else for a choice of n: a name; an index 0 .. n-1; a list
 * of either, each candidate once (null or an empty list: none); n booleans (a mask); n weights, written as reals.
 *
 *  `options` may be NULL. All is checked before anything changes, so a failure leaves the model as it was. EINVAL: a
 *  mutator is attached to the model or a part of it; keys are missing or unexpected (the message lists the first, with
 * the closest names); a value has none of the forms above (it names key and value); model or architecture is NULL.
 *  ENOENT: there is no such part. */
EG_API eg_status eg_fixed_architecture(eg_module *model, const eg_arch *arch, const eg_fixed_options *options);
/** The same, of a file, without options: also ENOENT, EIO, and EFORMAT for what is no JSON object. */
EG_API eg_status eg_apply_fixed_architecture(eg_module *model, const char *path);
/** The same without options. */
EG_API eg_status eg_apply_arch(eg_module *model, const eg_arch *arch);

/* ---------------------------------------------------------------------------------------------- classic mode */

/** One architecture a process: an experiment outside of it chooses, the program trains and reports. Samples are the
 *  decisions in force. Members are internal. */
typedef struct eg_classic_mutator {
    eg_mutator base;
    void *trial;   /**< id of the parameters, JSON; NULL = none came */
    char *results; /**< where they go; NULL = the log */
    uint64_t reported;
    bool finished;
} eg_classic_mutator;
EG_API extern const eg_mutator_class eg_classic_mutator_class;
/** As eg_mutator_attach(), with the first candidates chosen: layer 0; the first n_chosen inputs, or all where it is
 *  unset. */
EG_API eg_mutator *eg_classic_mutator_new(eg_module *model);
/** Makes parameters of a trial the current decisions, which a failure leaves as they were:
 *  {"parameter_id": 7, "parameters": {"op": {"_value": "conv3x3", "_idx": 1}, "in": {"_value": ["a"], "_idx": [0]}}}.
 *  `_value` repeats the names that `_idx` counts. EFORMAT for what is no JSON of this form; EINVAL, naming the key, for
 *  keys that are missing or none of the model's, for an index out of range or of another name, for an input that comes
 *  twice, for lists of different lengths or of another length than n_chosen. */
EG_API eg_status eg_classic_mutator_set(eg_mutator *mutator, const char *parameters);
/** What a program of classic mode calls after it has made its model; for eg_mutator_detach(). The environment (which no
 *  other function here reads) says what for. A place is a path, or "fd:N", a descriptor that the process was given.
 *
 *  - EG_GEN_SEARCH_SPACE=PATH: the search space is wanted. It is written there, whole or not at all, and NULL is
 *    returned with EG_EDONE, for which eg_exit_status() gives 0: the program ends here.
 *  - EG_TRIAL_PARAMETERS=PLACE: a trial, whose parameters are read there as by eg_classic_mutator_set(). Results are
 *    appended to EG_TRIAL_RESULTS=PLACE.
 *  - neither: stand-alone, with the first candidates and a warning in the log.
 *
 *  NULL: as eg_mutator_attach() and eg_classic_mutator_set(); ENOENT, EIO. */
EG_API eg_mutator *eg_get_and_apply_next_architecture(eg_module *model);
/** Reports how well the trial does so far: appends the line {"parameter_id": 7, "type": "PERIODICAL", "sequence": 0,
 *  "value": 0.91} to its results; stand-alone to the log. EINVAL for a number that is not finite, for another kind of
 *  mutator, and after the final result; EIO. */
EG_API eg_status eg_report_intermediate_result(eg_mutator *mutator, double value);
/** The same once, at the end, with "FINAL". */
EG_API eg_status eg_report_final_result(eg_mutator *mutator, double value);

/* ---------------------------------------------------------------------------------------------- spaces */

/** What a space needs to know to build a network for a data set. */
typedef struct eg_space_options {
    size_t struct_size;
    eg_shape input; /**< of a sample: (C, H, W); any shape where the space has any_input or is a file */
    int64_t classes;
    int64_t channels, layers; /**< 0 = the space's own */
    double drop_path;         /**< stochastic depth, while training */
    /** textnas: inputs (L) are words 0 .. vocabulary-1 (0: padding), float32 or int64; 0 = inputs are numbers */
    int64_t vocabulary;
    const char *file; /**< of eg_space_from_json(): what messages call it; NULL = by the name in it. Lent */
} eg_space_options;
/** A search space: one file in src/nas/spaces and one line in its table. */
typedef struct eg_space {
    const char *name, *help, *source; /**< source: the paper */
    bool any_input;                   /**< takes inputs of any shape, not only images */
    const eg_class *const *classes;   /**< module classes of its own, NULL-ended; NULL = none */
    eg_module *(*build)(eg_context *ctx, const eg_space_options *options);
    /** What its architectures are to satisfy, NULL = anything: for strategies, .constraints = space->constraint,
     * .n_constraints = 1, or eg_mutator_add_constraint(). The program does so by itself. */
    const eg_constraint *constraint;
} eg_space;
/** By name. Static. NULL: ENOENT (with the closest names); EINVAL for NULL. */
EG_API const eg_space *eg_space_find(const char *name);
/** All of them, static: a NULL-ended list. */
EG_API const eg_space *const *eg_spaces(void);
/** A supernet, for eg_module_release(). NULL: ENOENT as eg_space_find(); ESHAPE for an input that is no image (1 or 3,
 * at least 8, at least 8), where the space has no `any_input`; EINVAL for other options out of range, and for NULL.
 *  A name that ends in ".json" or has a '/' is that of a file: see eg_space_from_json(); also ENOENT, EIO. */
EG_API eg_module *eg_space_build(eg_context *ctx, const char *name, const eg_space_options *options);
/** Whether a space of that name is a file. */
EG_API bool eg_space_is_file(const char *name);
/** A supernet from the text of a file:
 *
 *      {"format": "engraft-space/1", "name": "mine", "help": "..", "source": "..",
 *       "input": [3, 32, 32], "classes": 10, "model": {"class": "Sequential", ..}}
 *
 *  The model is as in eg_module_from_json(). It is tried on shapes alone, with all candidates of its layer choices, and
 *  must give a number for each class. `options` say what data it is to serve; NULL = that of the file. For
 *  eg_module_release(). NULL: EFORMAT and what eg_module_from_json() fails with; ESHAPE for other data than the file is
 *  for, and for a model that does not run on it; EINVAL for choices that a mutator refuses, for other options than
 *  input and classes (they are what the file says), and for NULL. */
EG_API eg_module *eg_space_from_json(eg_context *ctx, const char *json, const eg_space_options *options);
/** The text of such a file, of a space by name (or of another file, with options = NULL or its own), for eg_free().
 *  `expand`: with all children of all modules, to be edited. NULL: as eg_space_build() and eg_module_json(). */
EG_API char *eg_space_json(eg_context *ctx, const char *name, const eg_space_options *options, bool expand);
/** A JSON Schema (draft 2020-12) of such files, with all classes that the context knows, for eg_free(). ENOMEM; EINVAL
 *  for NULL, and for fields whose help is no UTF-8. */
EG_API char *eg_space_schema(eg_context *ctx);
/** Makes the classes of choices, and those that the spaces are made of, known to the context, as
 *  eg_context_register_class() does; where a class of the program's own has the name of a space's, that one stays.
 *  Choices that are made, and functions on spaces, see to it themselves: this is for eg_module_from_json() in a fresh
 *  context. EINVAL when another class has the name of a choice's. */
EG_API eg_status eg_nas_register(eg_context *ctx);
/** {"key": {"_type": "layer_choice", "_value": [..]}, ..} of a model, for eg_free(). A choice that lies in candidates
 *  "a" of "outer" has in addition "_when": {"key": "outer", "is": ["a"]}; for one in a block of an eg_repeat() "is" has
 *  the depths; a list of such where one of several has to hold. NULL: EINVAL for a model that eg_mutator_attach() would
 *  refuse, for names that are no UTF-8, for NULL. */
EG_API char *eg_search_space_text(eg_module *model);

/* ---------------------------------------------------------------------------------------------- strategies */

/** A way to search: trains a supernet step by step, then chooses. */
typedef struct eg_strategy eg_strategy;
/** What a kind of strategy is: a const record. */
typedef struct eg_strategy_class eg_strategy_class;

/** What a strategy may ask of the search that runs it. */
typedef struct eg_strategy_host {
    void *payload;
    /** Validation accuracy (0 .. 1) of the shared weights under the mutator's current decisions, batch-norm statistics
     *  computed anew for them. */
    eg_status (*evaluate)(void *payload, double *accuracy);
    /** Progress of a phase, after each piece: `done` of `total` pieces of `what` (NULL = "candidates"); the last call
     * has done == total. EG_ECANCELED stops. */
    eg_status (*progress)(void *payload, const char *what, size_t done, size_t total);
} eg_strategy_host;

/** What eg_strategy_new() takes; each strategy reads what concerns it. */
typedef struct eg_strategy_options {
    size_t struct_size;
    int64_t evaluations;               /**< candidates evaluated in the choice after training; 0 = the strategy's own */
    int64_t population;                /**< of evolutionary choice; 0 = 20 */
    const char *choice;                /**< spos: "evolution" (NULL) or "random" */
    double arch_lr, arch_weight_decay; /**< darts: 0 = 3e-4, 1e-3 */
    double warmup;                     /**< darts: share of the training, 0 .. 1, before the architecture moves */
    double grad_clip;                  /**< of weights; 0 = 5, negative = none */
    uint64_t seed;
    const eg_constraint *constraints; /**< EG_CONSTRAINTS(); what is sampled and chosen satisfies them; copied */
    size_t n_constraints;
    int64_t max_parameters, max_macs; /**< the same of networks, MACs of one sample; as eg_network_cost. 0 = no limit */
    eg_shape input;                   /**< shape of a sample, for these limits; a search knows it */
} eg_strategy_options;

/** The head of every strategy struct. */
struct eg_strategy {
    const eg_strategy_class *cls;
    eg_context *ctx;
    eg_module *model;
    eg_mutator *mutator;     /**< made by start, freed by the base */
    eg_optimizer *optimizer; /**< of the shared weights, lent by the search */
    const eg_strategy_host *host;
    eg_strategy_options options;
    double trained; /**< share of the training that is done, 0 .. 1: set by the search before each step */
};

/** Losses and such of a step, for the log. */
typedef struct eg_step_result {
    double loss, accuracy;
} eg_step_result;

/** What a kind of strategy is: one file in src/nas/strategies and one line in its table. */
struct eg_strategy_class {
    size_t struct_size;
    const char *name, *help, *source;
    size_t instance_size;
    bool needs_validation_batches; /**< train_step gets a batch of the held-out half as well */
    bool no_training;              /**< `random`: nothing is trained before the choice */
    eg_status (*start)(eg_strategy *self);
    eg_status (*train_step)(eg_strategy *self, const eg_batch *train, const eg_batch *valid, eg_step_result *result);
    /** Picks the architecture after training. */
    eg_arch *(*choose)(eg_strategy *self);
    /** State beyond that of the model, the optimizer of its weights and the context's random numbers: tensors into /
     *  from `state` under `prefix` (not NULL). May be NULL. When a load fails, the search loads the state from before.
     */
    eg_status (*save)(eg_strategy *self, const char *prefix, eg_state *state);
    eg_status (*load)(eg_strategy *self, const char *prefix, const eg_state *state);
    void (*finalize)(eg_strategy *self);
};
/** By name. Static. NULL: ENOENT (with the closest names); EINVAL for NULL. */
EG_API const eg_strategy_class *eg_strategy_find(const char *name);
/** All of them, static: a NULL-ended list. */
EG_API const eg_strategy_class *const *eg_strategies(void);
/** Starts a strategy, which attaches its mutator to the model; for eg_strategy_free(). The model is retained; optimizer
 *  (NULL where nothing is trained) and host (NULL where nothing is evaluated) are lent and must outlive it; options are
 *  copied, NULL = defaults. NULL: EINVAL for options out of range, for NULL, for a model that has a mutator or no
 *  open choice (darts: no layer choice), and what eg_mutator_attach() fails with. */
EG_API eg_strategy *eg_strategy_new(const eg_strategy_class *cls, eg_module *model, eg_optimizer *optimizer,
                                    const eg_strategy_host *host, const eg_strategy_options *options);
/** Detaches its mutator; the model keeps its weights. NULL is allowed. */
EG_API void eg_strategy_free(eg_strategy *strategy);

#ifdef __cplusplus
}
#endif
#endif

/** @file
 * engraft/surgery.h - changing a model that exists: modules replaced, wrapped and cut, with all that hangs on them.
 *
 * A surgery is a transaction. Planning lists changes and touches nothing; checking does everything that can fail, on
 * the model as it will be; committing exchanges pointers and cannot fail; undoing exchanges them back, and model and
 * optimizers are bit for bit what they were.
 *
 *     static eg_module *to_gelu(void *payload, eg_module *m, size_t index)
 *     {
 *         return eg_gelu(m->ctx);
 *     }
 *
 *     eg_surgery *s = eg_surgery_new(net, .optimizers = EG_OPTIMIZERS(adam),
 *                                    .inputs = EG_SHAPES(EG_SHAPE(1, 3, 32, 32)));
 *     eg_surgery_replace(s, EG_POLICIES({.cls = &eg_relu_class, .replace = to_gelu}), false);
 *     eg_surgery_print(s, stdout);
 *     eg_surgery_commit(s);
 *     eg_surgery_undo(s);
 *     eg_surgery_free(s);
 *
 * What is changed is the graph of modules: a module that stands in several slots is one, and is replaced in all of
 * them, also where one parent holds it under two names. Names and rules are those of MosaicML Composer's surgery.
 */
#ifndef ENGRAFT_SURGERY_H
#define ENGRAFT_SURGERY_H

#include "optim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------- policies */

/** Answers for a module that a policy matches: a new module to stand in its place (the caller takes it over), or NULL
 * to leave it as it is. `index` counts the modules that this policy was asked for, from 0. NULL with a failure recorded
 *  (a constructor's, say) makes the plan fail, with nothing changed. Returning `module` itself (retained) is a
 *  replacement by itself. A module may wrap the one that it replaces: put eg_module_retain(module) into one of its
 *  slots. The model must not be changed here. Random numbers come from a stream of the surgery's own, so that what the
 *  context draws later (dropout) does not depend on it. */
typedef eg_module *(*eg_replacement_fn)(void *payload, eg_module *module, size_t index);
/** Whether a policy is to be asked for a module; `path` is its first. */
typedef bool (*eg_match_fn)(void *payload, eg_module *module, const char *path);

/** What a new module takes over from the one it replaces, unless told otherwise. */
typedef enum eg_carry {
    EG_CARRY_WEIGHTS = 1,  /**< parameters of the same name and shape: the very tensors, so that their gradients, ties
                                and the optimizers' states stay with them */
    EG_CARRY_BUFFERS = 2,  /**< buffers likewise */
    EG_CARRY_TRAINING = 4, /**< training or evaluation mode, of all that is new */
    EG_CARRY_REQUIRES_GRAD = 8, /**< new parameters of a module that was frozen are frozen */
    EG_CARRY_HOOKS = 16 /**< hooks and pre-hooks, under the same ids; where the new module wraps the old one, they
                             stay with the old one */
} eg_carry;

/** Which modules are replaced, and by what: {.cls = &eg_relu_class, .replace = to_gelu}. */
typedef struct eg_policy {
    const eg_class *cls;       /**< and its subclasses; NULL = any */
    eg_replacement_fn replace; /**< required */
    void *payload;             /**< of `replace` and `when` */
    const char *at;            /**< only at these paths: segments with * and ? in them, ** for any number of segments,
                                    several patterns with commas: "layers.*.conv, head". "body.**" is body and all
                                    below it, "body.*.**" only what is below. NULL = anywhere */
    eg_match_fn when;          /**< only these; NULL = all */
    bool exact;                /**< not its subclasses */
    const eg_class *const
        *spare;        /**< NULL-ended: neither modules of these classes nor what is below them. NULL = none */
    unsigned without;  /**< EG_CARRY_* that are not taken over */
    const char *name;  /**< in reports; NULL = the name of the class and `at` */
    size_t index;      /**< of the next match: where counting begins; receives where it ended */
    size_t n_replaced; /**< receives how many it has replaced, on top of what is there */
} eg_policy;
/** A list of policies; it is written to (see index). */
typedef struct eg_policies {
    eg_policy *items;
    size_t n;
} eg_policies;
#define EG_POLICIES(...)                                                                                               \
    ((eg_policies){(eg_policy[]){__VA_ARGS__}, sizeof((eg_policy[]){__VA_ARGS__}) / sizeof(eg_policy)})
/** A list of classes. */
typedef struct eg_class_list {
    const eg_class *const *items;
    size_t n;
} eg_class_list;
#define EG_CLASSES(...)                                                                                                \
    ((eg_class_list){(const eg_class *const[]){__VA_ARGS__},                                                           \
                     sizeof((const eg_class *const[]){__VA_ARGS__}) / sizeof(const eg_class *)})

/** eg_count_module_instances(net, EG_CLASSES(&eg_linear_class, &eg_relu_class)): modules of any of these classes or
 *  their subclasses below `model`, each once. The model itself does not count, as in
 *  the reference. -1 on failure: EINVAL for NULL and for a model that contains itself. */
EG_API int64_t eg_count_module_instances(eg_module *model, eg_class_list classes);

/* ---------------------------------------------------------------------------------------------- a surgery */

/** A transaction on one model. */
typedef struct eg_surgery eg_surgery;

/** A list of optimizers. */
typedef struct eg_optimizers {
    eg_optimizer *const *items;
    size_t n;
} eg_optimizers;
#define EG_OPTIMIZERS(...)                                                                                             \
    ((eg_optimizers){(eg_optimizer *const[]){__VA_ARGS__},                                                             \
                     sizeof((eg_optimizer *const[]){__VA_ARGS__}) / sizeof(eg_optimizer *)})
/** A list of shapes. */
typedef struct eg_shapes {
    const eg_shape *items;
    size_t n;
} eg_shapes;
#define EG_SHAPES(...)                                                                                                 \
    ((eg_shapes){(const eg_shape[]){__VA_ARGS__}, sizeof((const eg_shape[]){__VA_ARGS__}) / sizeof(eg_shape)})
/** A list of places where a caller holds modules. */
typedef struct eg_references {
    eg_module **const *items;
    size_t n;
} eg_references;
#define EG_REFERENCES(...)                                                                                             \
    ((eg_references){(eg_module * *const[]){__VA_ARGS__},                                                              \
                     sizeof((eg_module **const[]){__VA_ARGS__}) / sizeof(eg_module **)})

/** What eg_surgery_new() takes. */
typedef struct eg_surgery_options {
    size_t struct_size;
    eg_module *model;
    /** Where the caller holds the model: it can be replaced itself, and its reference with it. NULL: the model itself
     * is not offered to policies. */
    eg_module **root;
    eg_references references; /**< other places where the caller has a reference to a module of the model */
    eg_optimizers optimizers; /**< that train its parameters; each has to be there until the surgery is freed */
    eg_shapes inputs; /**< of the model, one for each that it takes: checks run it on these. None: shapes are not
                         checked */
    bool any_batch;   /**< checks also run it on one sample more, which finds what fits this size of a batch alone */
    /** Modules are offered to policies in the order in which they first run on .inputs, those that do not run last,
     * instead of that of registration: so `index` counts along the computation. Parents still come before what is below
     * them. */
    bool in_order_of_execution;
    unsigned without; /**< EG_CARRY_* that no policy takes over */
    /** A commit also keeps copies of all numbers of the model and of its optimizers' states: undo restores them after
     *  trainings too. Without it, tensors that both networks have are as the training left them. */
    bool snapshot;
} eg_surgery_options;
/** eg_surgery_new(net, .optimizers = EG_OPTIMIZERS(adam)). Keeps the model. NULL on failure: EINVAL for NULL, for
 *  an optimizer or a reference that is NULL, when *root is not the model, and for any_batch or in_order_of_execution
 *  without .inputs. */
#define eg_surgery_new(...)                                                                                            \
    eg_surgery_new_with(&(eg_surgery_options){.struct_size = sizeof(eg_surgery_options), .model = __VA_ARGS__})
/** The same from a struct, whose struct_size must be set. */
EG_API eg_surgery *eg_surgery_new_with(const eg_surgery_options *options);
/** Frees it: what was committed stays, what was only planned is gone. NULL is allowed. */
EG_API void eg_surgery_free(eg_surgery *s);

/** Plans what the policies answer, on the model as it will be after what is planned already. Modules are offered
 *  parents first in the order of registration (or of execution), each once, and to the policy whose class is nearest to
 * theirs first; of equally near ones, those with a pattern or a predicate first. Where two policies of equal rank
 * answer for one module that is EINVAL, naming both. What is below a replaced module is not offered. With
 * `recurse_on_replacements` the new modules and what is below them are offered too, after all others; a module that was
 * answered for is not offered again, so wrapping ends by itself. A policy that goes on replacing what it has made ends
 * in EINVAL with the chain of replacements. On failure nothing more is planned than before. A policy that matched
 * nothing is told by eg_surgery_note_at(). */
EG_API eg_status eg_surgery_replace(eg_surgery *s, eg_policies policies, bool recurse_on_replacements);
/** Plans `fresh` (taken over, also on failure) in the place of one module of the model, in all its slots. ENOENT when
 * it is not in the model as planned. `why` is for reports; NULL = none. */
EG_API eg_status eg_surgery_put(eg_surgery *s, eg_module *module, eg_module *fresh, const char *why);

/** Does all that can fail: new states of optimizers, and a run of the model on `inputs` in shapes alone, before and
 *  after. Nothing is changed. ESHAPE and others name the first module that no longer fits, with its shapes. */
EG_API eg_status eg_surgery_check(eg_surgery *s);
/** Makes what is planned real. It checks first, unless eg_surgery_check() has done so since the last change of the
 *  plan and the last update by an optimizer; after that nothing can fail. EG_OK where nothing is planned. What a method
 *  has computed from weights (a folded norm, a factor) it has from those at the time of planning: train after the
 *  commit. */
EG_API eg_status eg_surgery_commit(eg_surgery *s);
/** Takes the last commit back; its changes are planned again, so that another commit redoes them. Savepoints that stand
 *  on that commit end. EINVAL when nothing is committed, and, naming the place, when somebody has changed it since (or
 *  another surgery an optimizer): then nothing is undone. */
EG_API eg_status eg_surgery_undo(eg_surgery *s);
/** Forgets what is planned and not committed. */
EG_API void eg_surgery_drop(eg_surgery *s);
/** A number for eg_surgery_rollback(): the plan and the commits as they are now. They nest. */
EG_API size_t eg_surgery_savepoint(eg_surgery *s);
/** Back to a savepoint: undoes the commits since, and forgets what was planned since. Later savepoints end. EINVAL for
 *  one that has ended, and as eg_surgery_undo(). */
EG_API eg_status eg_surgery_rollback(eg_surgery *s, size_t savepoint);

/* ---- what is planned and done ---- */

/** A module and what stands in its place. */
typedef struct eg_replaced {
    const char *path; /**< the first of the old one, in the model at that time; "" is the model itself */
    eg_module *old, *fresh;
    const char *policy;  /**< its name, or `why` of eg_surgery_put(); NULL = none */
    size_t index;        /**< that the policy was asked with */
    bool of_replacement; /**< the old one was made by this surgery */
    bool committed;
} eg_replaced;
/** Number of replacements in this surgery, committed and planned. */
EG_API size_t eg_surgery_size(const eg_surgery *s);
/** Replacement i in order. NULL and EINVAL when out of range. Lent, until the next call; its path and modules until the
 *  replacement is dropped or rolled back, or the surgery freed. */
EG_API const eg_replaced *eg_surgery_at(eg_surgery *s, size_t i);
/** Things worth knowing, one line each: policies that matched nothing or answered for nothing, ties that broke, hooks
 *  that have no place. NULL past the last. Lent. */
EG_API const char *eg_surgery_note_at(const eg_surgery *s, size_t i);

/** What eg_replace_module_classes() takes: options as in eg_surgery_options. */
typedef struct eg_replace_options {
    size_t struct_size;
    eg_module *model;
    eg_policies policies;
    bool recurse_on_replacements;
    eg_module **root;
    eg_optimizers optimizers;
    eg_shapes inputs;
    unsigned without;
} eg_replace_options;
/** All in one call: eg_replace_module_classes(net, EG_POLICIES({.cls = &eg_relu_class, .replace = to_gelu}),
 *  .recurse_on_replacements = true). The result is the committed surgery: its replacements are the pairs of the
 *  reference, in order; free it when you have no more use for them or for undoing. NULL on failure, with nothing
 *  changed. */
#define eg_replace_module_classes(...)                                                                                 \
    eg_replace_module_classes_with(                                                                                    \
        &(eg_replace_options){.struct_size = sizeof(eg_replace_options), .model = __VA_ARGS__})
/** The same from a struct, whose struct_size must be set. */
EG_API eg_surgery *eg_replace_module_classes_with(const eg_replace_options *options);

/* ---------------------------------------------------------------------------------------------- what methods need */

/** What belongs to a tensor that is made from others, made from what belongs to those: `what` is "grad" or a state of
 * an optimizer ("momentum_buffer", "exp_avg", "exp_avg_sq"), from[i] that of tensor i or NULL where it has none yet.
 * The result has the shape of the new tensor; NULL without a failure recorded: it begins anew. */
typedef eg_tensor *(*eg_derive_fn)(void *payload, const char *what, eg_tensor *const *from, size_t n);
/** Tells how `fresh`, a parameter of a planned module, comes from n parameters of the model: it takes their place in
 * the optimizers, with states by `derive` (NULL: begun anew) and the number of steps of the first. `payload` is freed
 * by `free_payload` (may be NULL), also on failure. */
EG_API eg_status eg_surgery_derive(eg_surgery *s, eg_tensor *fresh, eg_tensor *const *from, size_t n,
                                   eg_derive_fn derive, void *payload, void (*free_payload)(void *));
/** A copy of the entries `indices` of dimension `dim` of a parameter or buffer, with its flag of requiring a gradient,
 *  for a planned module; gradients and states are cut likewise. */
EG_API eg_tensor *eg_surgery_slice(eg_surgery *s, eg_tensor *from, int dim, const int64_t *indices, size_t n);
/** Plans another tensor (kept) in a slot of a module of the model, of any shape; eg_none empties it. ENOENT. */
EG_API eg_status eg_surgery_put_tensor(eg_surgery *s, eg_module *module, const char *name, eg_tensor *t);
/** Plans that a parameter is trained or is not. What is not trained is in no optimizer. */
EG_API eg_status eg_surgery_set_trained(eg_surgery *s, eg_tensor *parameter, bool trained);
/** A line for eg_surgery_note_at(), of at most 511 bytes. */
EG_API eg_status eg_surgery_note(eg_surgery *s, const char *format, ...) EG_PRINTF(2, 3);
/** The shapes that a module of the model as planned gets and gives on .inputs: what its first operation reads, and its
 * last gives. For policies that need more than the module tells, as the channels at a pool; the payload has the surgery
 * then. What policies of the same eg_surgery_replace() have answered is not in the plan yet. Both may be NULL; ndim 0
 * is a shape that is not known. The model runs on shapes alone, once for all questions of one eg_surgery_replace() or
 * eg_surgery_look(). EINVAL without .inputs; ENOENT for what is not in the model, or does not run. */
EG_API eg_status eg_surgery_shapes_of(eg_surgery *s, const eg_module *module, eg_shape *input, eg_shape *output);
/** What looks at a model as it is planned. */
typedef eg_status (*eg_surgery_look_fn)(void *payload, eg_module *root);
/** Runs `fn` while the model is as planned; `root` is the model then. Nothing must be changed in it. Returns what `fn`
 *  returns; EINVAL when somebody has changed the model since it was planned. */
EG_API eg_status eg_surgery_look(eg_surgery *s, eg_surgery_look_fn fn, void *payload);

/* ---- chains: modules that run one after the other, whatever containers lie between ---- */

/** What eg_chains_find() found. */
typedef struct eg_chains eg_chains;
/** One of them. */
typedef struct eg_chain {
    eg_module *const *modules; /**< one of each class, in the order in which they run */
    const char *const *paths;  /**< their first paths */
    size_t n;
    const char *refused; /**< why the surgery must not join them; NULL = it may */
} eg_chain;
/** Finds modules of `classes` (or subclasses) of which each takes what the one before it has computed:
 * eg_chains_find(net, EG_SHAPES(EG_SHAPE(1, 3, 32, 32)), EG_CLASSES(&eg_conv2d_class, &eg_batch_norm2d_class)). The
 * model runs once on these shapes. A chain is refused where somebody else uses a result inside of it, where a module of
 * it runs more than once, and where one has hooks. A module is in one chain at most. NULL on failure: EINVAL for NULL
 * and fewer than two classes, and what the run fails with. The modules are the model's, which has to stay as it is. */
EG_API eg_chains *eg_chains_find(eg_module *model, eg_shapes inputs, eg_class_list classes);
/** Frees it. */
EG_API void eg_chains_free(eg_chains *chains);
/** Number of chains, refused ones too. */
EG_API size_t eg_chains_size(const eg_chains *chains);
/** Chain i in the order in which they run. NULL and EINVAL when out of range. Lent. */
EG_API const eg_chain *eg_chains_at(const eg_chains *chains, size_t i);

/* ---------------------------------------------------------------------------------------------- channels */

/** What of a model can only go together: a channel of a convolution is an entry of its weight and bias, of the norm
 *  after it, of all that is added to it, and of what reads it. Found by running the model on shapes (as DepGraph does,
 *  Fang et al. 2023, here index by index), so through additions, concatenations, slices, reshapes, grouped and
 * depthwise convolutions, norms, linear layers after a flatten, recurrent layers and heads of attention. */
typedef struct eg_coupling eg_coupling;
/** A dimension of a parameter or buffer in a group. */
typedef struct eg_coupled_part {
    const char *path;       /**< of the tensor; where several modules share it, the first */
    eg_tensor *tensor;      /**< lent */
    int dim;                /**< of the tensor */
    bool makes, takes;      /**< these are features that its module gives, or gets and sums over */
    size_t per_unit;        /**< indices of each unit */
    const int64_t *indices; /**< [n_units * per_unit], of unit 0 first */
} eg_coupled_part;
/** Units that are alike: the channels of one layer, or of all layers that are added up. */
typedef struct eg_coupled_group {
    size_t n_units;
    const char *fixed; /**< why their number cannot change (the model's output, say); NULL: it can */
    const char *mixed; /**< why the others see that one of them goes even where it is all zeros (a norm over all of
                            them); NULL: they do not */
    bool heads;        /**< heads of attention */
    bool single;       /**< they cannot be there more than once: what hangs together crosses the borders of groups */
    const eg_coupled_part *parts;
    size_t n_parts;
} eg_coupled_group;
/** The groups of a model that runs on inputs of these shapes: first those that can change. Modules and tensors are
 * kept; it holds while the model is not changed. NULL on failure: the model's, or EINVAL for NULL. What forward
 * functions do with sizes that stand in their code is not seen here; pruning finds it out by running the changed model.
 */
EG_API eg_coupling *eg_coupling_new(eg_module *model, eg_shapes inputs);
/** Frees it. */
EG_API void eg_coupling_free(eg_coupling *c);
/** Number of groups. */
EG_API size_t eg_coupling_size(const eg_coupling *c);
/** Group i. NULL and EINVAL when out of range. Lent. */
EG_API const eg_coupled_group *eg_coupling_at(const eg_coupling *c, size_t i);
/** A line for each group: its size, and its parts with their dimensions; for eg_free(). */
EG_API char *eg_coupling_text(const eg_coupling *c);
/** How often unit `unit` of a group is to be there: 0 = it goes, 1 as now, 2 = it is doubled, and so on to 65536
 *  (Net2Wider, Chen et al. 2016: what reads it gets shares that add up to what it was, so that the model computes the
 *  same). EINVAL for fixed groups, where the last unit would go, and for more than one of a group that is mixed or
 *  single. */
EG_API eg_status eg_coupling_set(eg_coupling *c, size_t group, size_t unit, int copies);
/** Plans what eg_coupling_set() said: modules whose tensors change are replaced by ones of the same class with other
 *  numbers in their fields, tensors are cut (or copied), with their gradients and the states of optimizers. The
 * coupling must be of the model as planned. EUNSUPPORTED for modules that have slots which their class does not make.
 */
EG_API eg_status eg_surgery_resize(eg_surgery *s, const eg_coupling *c);

/** What tells units that matter from those that do not. */
typedef enum eg_importance {
    EG_IMPORTANCE_L2 = 0, /**< the length of all parameters of the unit */
    EG_IMPORTANCE_L1,     /**< the sum of their magnitudes (Li et al. 2017) */
    EG_IMPORTANCE_TAYLOR, /**< |sum of parameter times gradient|, which are there after a backward pass (Molchanov et
                             al. 2019) */
    EG_IMPORTANCE_RANDOM, /**< chance, for comparison */
} eg_importance;
/** What eg_surgery_prune() takes. */
typedef struct eg_prune_options {
    size_t struct_size;
    double ratio;        /**< of the units that can go: 0 to 1 */
    eg_importance score; /**< default: L2 */
    bool global;        /**< all groups together; L1 and L2 are then divided by the mean of their group. Else `ratio` of
                             each group */
    int64_t round_to;   /**< what is left of a group is a multiple of this where the group has as many; 0 = 1 */
    int64_t min_units;  /**< left in each group; 0 = 1 */
    bool heads;         /**< heads of attention instead of channels */
    const char *at;     /**< groups of which a module at these paths makes the features; NULL = all */
    const char *ignore; /**< groups with parameters at, or below, none of these paths; NULL = none */
} eg_prune_options;
/** Plans that the least important units go: eg_surgery_prune(s, .ratio = 0.3). The surgery must have .inputs. Notes
 * tell what could not be pruned and why. EINVAL also for a taylor score without gradients. */
#define eg_surgery_prune(s, ...)                                                                                       \
    eg_surgery_prune_with((s), &(eg_prune_options){.struct_size = sizeof(eg_prune_options), __VA_ARGS__})
/** The same from a struct, whose struct_size must be set. */
EG_API eg_status eg_surgery_prune_with(eg_surgery *s, const eg_prune_options *options);

/* ---------------------------------------------------------------------------------------------- methods */

/** What a method promises of the outputs in evaluation: the same but for rounding; near (`tolerance` says how near, of
 *  the largest output); another function, to be trained. */
typedef enum eg_promise { EG_PROMISE_EXACT, EG_PROMISE_CLOSE, EG_PROMISE_TRAINED } eg_promise;

/** A surgery with a name: a const record. It begins with the class of its options, a struct like a module's with
 *  eg_module first and one table of fields, whose name is the method's and whose super is eg_method_class. So options
 *  are checked, printed, and read from texts as modules are. A method has `replace` or `plan`. */
typedef struct eg_method {
    eg_class options;
    const char *help;   /**< one line: what it does */
    const char *source; /**< the paper, and what the defaults cost and gain */
    eg_promise promise;
    double tolerance;               /**< of EG_PROMISE_CLOSE */
    const eg_class *const *targets; /**< NULL-ended: what `replace` is offered, with subclasses */
    const eg_class *const *makes;   /**< NULL-ended: what it puts in, which it does not change again. NULL = none */
    /** A module for the place of one of the targets, as eg_replacement_fn. */
    eg_module *(*replace)(eg_module *options, eg_surgery *s, eg_module *module, size_t index);
    bool recurses; /**< `replace` is offered what it has put in, too, and what is below that: for nested targets */
    bool runs;     /**< it runs the model, so it needs a surgery with .inputs */
    /** What a method that is no replacement of single modules does. `at`: the paths it is limited to, or NULL. */
    eg_status (*plan)(eg_module *options, eg_surgery *s, const char *at);
    const char *inverse; /**< the method that takes it back in a model that was trained since; NULL = none */
} eg_method;
/** The super class of options. */
EG_API extern const eg_class eg_method_class;
/** Defines the record `type_method` of a method whose options are a struct `type`: EG_METHOD(eg_factorize, "factorize",
 *  EG_FIELDS(EG_FLOAT(..)), .help = "..", .replace = replace, .targets = ..); */
#define EG_METHOD(type, printed, fields_, ...)                                                                         \
    const eg_method type##_method = {.options = {.struct_size = sizeof(eg_class),                                      \
                                                 .name = printed,                                                      \
                                                 .super = &eg_method_class,                                            \
                                                 .instance_size = sizeof(type),                                        \
                                                 .fields = fields_},                                                   \
                                     __VA_ARGS__}
/** Options of a method `type_method`: eg_new_method(eg_factorize, ctx, .rank = 0.25). NULL on failure. */
#define eg_new_method(type, ...) eg_module_new(&type##_method.options, sizeof(type), &(type){.base.ctx = __VA_ARGS__})

/** Plans a method; `options` (of eg_new_method(), taken over also on failure) say which. `at` limits it to the modules
 *  at these paths, as in eg_policy. What a method `makes` it does not change again, so applying one that does applies
 * it once; others (pruning, widening, layers dropped or added, new heads) do again what they say. On failure nothing
 * more is planned than before. */
EG_API eg_status eg_surgery_apply(eg_surgery *s, eg_module *options, const char *at);
/** Options of a built-in method from a call as people type it: "factorize(rank=0.25)". NULL: ENOENT for a name that is
 *  none (with the closest), EINVAL for what is no call, EFORMAT for fields and values that it does not take. */
EG_API eg_module *eg_method_from_text(eg_context *ctx, const char *text);
/** Plans what a method does to single modules, for those of `cls` (and its subclasses) instead of the classes that it
 * is for. As eg_surgery_apply(); EUNSUPPORTED for a method that does something else. */
EG_API eg_status eg_surgery_apply_to(eg_surgery *s, eg_module *options, const eg_class *cls, const char *at);
/** Whether something is planned that is not committed. */
EG_API bool eg_surgery_has_plan(const eg_surgery *s);
/** Method i of the built-in ones; NULL (no failure) past the last. */
EG_API const eg_method *eg_method_at(size_t i);
/** By name. NULL: ENOENT with the closest names. */
EG_API const eg_method *eg_method_find(const char *name);

#ifdef __cplusplus
}
#endif
#endif

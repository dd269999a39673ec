/*
 * nas/internal.h - what the files of this layer share: bindings, the parsed model, decisions, sampling.
 */
#ifndef EG_NAS_INTERNAL_H
#define EG_NAS_INTERNAL_H

#include "engraft/nas.h"
#include "nn/internal.h"

/* ---- mutables ---- */

/** What kind of choice a module is. */
typedef enum eg__kind { EG__NO_CHOICE, EG__LAYERS, EG__INPUTS, EG__VALUES } eg__kind;
eg__kind eg__kind_of(const eg_module *m);
/** "layer", "input" or "value". */
const char *eg__kind_word(const eg_module *choice);
/** Whether a decision belongs to this mutable: any choice, no scope. */
bool eg__is_choice(const eg_module *m);
/** Number of candidates of a choice. */
size_t eg__choice_size(const eg_module *choice);
/** Name of candidate i of a layer choice; where candidate i of an input choice comes from. NULL for a value choice. */
const char *eg__choice_name(const eg_module *choice, size_t i);
/** Name or value of candidate i. NULL for want of memory, which is not recorded. */
json_t *eg__candidate_json(const eg_module *choice, size_t i);
/** Makes the classes of choices known to the context. */
eg_status eg__register_choices(eg_context *ctx);
/** EINVAL for a scope without a key: the build of each class of scopes asks. */
eg_status eg__scope_check_key(eg_module *scope);
/** Gives a mutable under construction its automatic key where none was set. */
eg_status eg__mutable_take_key(eg_module *m);
/** What the constructors of all kinds of choices have in common, after all of their own: the value of `fixed`. */
eg_status eg__choice_take_fixed(eg_module *choice);
/** Decides a choice for as long as no mutator does: `value` is JSON text, was checked, and is taken over. */
void eg__choice_fix(eg_module *choice, char *value);
/** Frees what a choice keeps beside its fields. */
void eg__choice_forget(eg_module *choice);
/** The decision in force: the mutator's, or what is fixed. Lent. NULL on failure. */
const eg_decision *eg__choice_decision(eg_module *choice);
/** The forward of layer and input choices: asks the mutator, or follows what is fixed. */
eg_tensor *eg__choice_forward(eg_module *choice, eg_tensor *const *in, size_t n_in);

/** What ties a module to a mutator, kept in its `extension`: of every mutable of the model, and of the root. */
typedef struct eg__binding {
    eg_mutator *mutator;
    char *path;
} eg__binding;
/** NULL when the module is not bound. */
eg__binding *eg__binding_of(const eg_module *m);
/** A binding that no module holds yet; `path` is copied. */
eg__binding *eg__binding_new(eg_mutator *mutator, const char *path);
/** Puts it into a module that has none. */
void eg__binding_set(eg_module *m, eg__binding *binding);
/** Takes a module's binding away and frees it, not the mutator. */
void eg__binding_clear(eg_module *m);

/** The most values that a value choice may have. */
enum { EG__MAX_VALUES = 1024 };
/** Which value a decision chooses. EINVAL unless it is one. */
eg_status eg__value_chosen(const eg_module *choice, const eg_decision *decision, size_t *i);
/** "24" or "0.5". Returns `text`. */
const char *eg__value_text(double value, char text[EG__NUMBER_TEXT_SIZE]);
/** Whether it is a whole number, and so small that each is exact in a double. */
bool eg__is_whole(double value);

/* ---- choices inside others (gates.c) ---- */

typedef struct eg_gates eg_gates;
/** `unique`, the first mutable of each key, is lent. */
eg_gates *eg__gates_new(eg_module *model, eg_module *const *unique, size_t n_unique);
void eg__gates_free(eg_gates *gates);
/** Which keys are active (active[n_unique]; never scopes): those of a choice that lies where something runs. `decide`
 * is asked for the decision of a key that others depend on, or that is active; NULL opens nothing. */
typedef eg_status (*eg__decide_fn)(void *payload, size_t key, const eg_decision **decision);
eg_status eg__gates_walk(const eg_gates *gates, eg__decide_fn decide, void *payload, bool *active);
/** The same with these decisions. */
eg_status eg__gates_active(const eg_gates *gates, const eg_decisions *decisions, bool *active);
/** Whether no choice lies inside another: all are active. */
bool eg__gates_flat(const eg_gates *gates);
/** Whether others lie inside this one. */
bool eg__gates_holds(const eg_gates *gates, const eg_module *choice);
/** EINVAL: says where the choice of this key, which is not active, lies. */
eg_status eg__gates_fail_inactive(const eg_gates *gates, size_t key);
/** The condition for a key: {"key": .., "is": [..]}, a list of such of which one has to hold, or NULL for none. */
eg_status eg__gates_when(const eg_gates *gates, size_t key, json_t **when);
/** False for the blocks of a repeat of closed depth that never run. */
bool eg__may_run(const eg_module *m, const eg_module *child);

/* ---- the mutables of a model ---- */

typedef struct eg__found {
    eg_module *module;
    char *path;
} eg__found;

/** A model, parsed: nothing is bound or changed by it. All-zero is empty. */
typedef struct eg__mutables {
    eg_mutable_node *tree; /* holds a reference to each module except the model itself */
    eg_module **unique;    /* pre-order, the first of each key */
    size_t n_unique;
    eg__found *found; /* every mutable, pre-order */
    size_t n_found, capacity;
    eg_gates *gates;
} eg__mutables;
/** EINVAL: one key for choices of different kinds or sizes, sources that do not come before, mutables with open fields.
 */
eg_status eg__mutables_find(eg_module *model, eg__mutables *out);
void eg__mutables_free(eg__mutables *mutables, const eg_module *model);
void eg__tree_free(eg_mutable_node *node, const eg_module *model);
/** Fills `unique` (large enough) with the first mutable of each key; returns how many. */
size_t eg__tree_unique(const eg_mutable_node *node, eg_module **unique, size_t n);
/** The unique mutable with that key; NULL when there is none. */
eg_module *eg__mutator_find(const eg_mutator *mutator, const char *key);

/* ---- decisions ---- */

eg_status eg__decisions_copy(eg_decisions *dst, const eg_decisions *src);
eg_status eg__decisions_copy_one(eg_decisions *dst, const char *key, const eg_decision *decision);
/** Exchanges what both hold. */
void eg__decisions_swap(eg_decisions *a, eg_decisions *b);
size_t eg__decisions_size(const eg_decisions *decisions);
const char *eg__decisions_key(const eg_decisions *decisions, size_t i);
/** The numbers of a decision, also of a tensor: out[n]. */
eg_status eg__decision_read(const eg_decision *decision, double *out);
/** Runs what a decision says and joins the outputs. *mask receives the decision as a tensor where it is not NULL. */
eg_tensor *eg__decision_follow(const eg_decision *decision, const eg_module *choice, eg_tensor *const *in, size_t n_in,
                               eg_tensor **mask);
/** Follows these decisions from now on (taken over). */
void eg__mutator_follow(eg_mutator *mutator, eg_decisions *decisions);
/** Turns off the layer choices that are named as a source of input choices and chosen by none of them: nobody would
 *  look at their outputs. Masks only. Drops what is inactive then. */
eg_status eg__decisions_drop_unused(const eg_mutator *mutator, eg_decisions *decisions);
/** EINVAL unless each active choice has a decision of its size, each value choice one value: the message blames the
 *  class that has sampled them. */
eg_status eg__decisions_check(const eg_mutator *mutator, const eg_decisions *decisions);
/** Drops the decisions of choices that are not active. */
eg_status eg__decisions_drop_inactive(const eg_mutator *mutator, eg_decisions *decisions);

/** The canonical JSON form of a decision for a choice; NULL on failure. */
json_t *eg__decision_json(const eg_module *choice, const eg_decision *decision);
/** Adds the decision that a JSON value of an architecture file means for a choice. */
eg_status eg__decision_parse(const eg_module *choice, const json_t *value, eg_decisions *out);
/** The decisions of an architecture for the active ones of these mutables; `strict`: none may be left over. */
eg_status eg__decisions_from_arch(eg_module *const *mutables, size_t n, const eg_gates *gates, const eg_arch *arch,
                                  bool strict, eg_decisions *out);
const json_t *eg__arch_json(const eg_arch *arch);
/** Takes over `value`. */
eg_status eg__arch_put(eg_arch *arch, const char *key, json_t *value);

/* ---- mutators ---- */

/** The function of a mutator's class or of the nearest super class that has it. */
#define EG__MUTATOR_FN(mutator, fn) (eg__mutator_class_with((mutator)->cls, offsetof(eg_mutator_class, fn))->fn)
const eg_mutator_class *eg__mutator_class_with(const eg_mutator_class *cls, size_t offset);
/** Runs a sampling function. What it computes is on the recording tape where there is one, and else gone afterwards:
 * decisions keep what they need. */
eg_status eg__mutator_sample(eg_mutator *mutator, eg_status (*sample)(eg_mutator *self, eg_decisions *out),
                             eg_decisions *out);

/* ---- decisions that nobody draws (decide.c) ---- */

/** Whether candidate i is there: those of layer choices can be emptied. */
bool eg__candidate_there(const eg_module *choice, size_t i);
/** How many are. EINVAL for a layer choice of which nothing is left. */
eg_status eg__candidates_left(const eg_module *choice, size_t *n);

/** How many of the candidates that are there. EVERY: all, and the largest value. JOINED: the same, as far as they can
 * run together: n_chosen inputs, and one layer where outputs of any shape cannot be joined; JOINED_SMALLEST: so with
 * the smallest value. FIRST: one, and n_chosen inputs. */
typedef enum eg__extent { EG__EVERY, EG__JOINED, EG__JOINED_SMALLEST, EG__FIRST } eg__extent;
/** Decides one choice so, the first candidates first. EINVAL as eg__candidates_left(). */
eg_status eg__decide(const eg_module *choice, eg__extent extent, eg_decisions *out);
/** Decides every choice of the model, also those that are not active. */
eg_status eg__decide_each(const eg_mutator *mutator, eg__extent extent, eg_decisions *out);

/* ---- sampling ---- */

/** A uniform decision for one choice, among the candidates that are there. EINVAL as eg__candidates_left(). */
eg_status eg__sample_choice(const eg_module *choice, eg_rng *rng, eg_decisions *out);
/** One for each choice of the model, also for those that are not active. */
eg_status eg__sample_genes(const eg_mutator *mutator, eg_rng *rng, eg_decisions *out);
/** Of such draws the first whose meaning satisfies the constraints. `express` leaves of a draw what it means. EINVAL
 *  after 10,000 draws. */
typedef eg_status (*eg__express_fn)(const eg_mutator *mutator, eg_decisions *decisions);
eg_status eg__sample_uniform(eg_mutator *mutator, eg_rng *rng, eg__express_fn express, eg_decisions *out);

/* ---- constraints ---- */

typedef struct eg_constraints eg_constraints;
void eg__constraints_free(eg_constraints *constraints);
/** Whether the decisions satisfy all; what does not is counted for eg__constraints_fail(). The failure of a constraint
 * is returned. */
eg_status eg__constraints_hold(eg_mutator *mutator, const eg_decisions *decisions, bool *hold);
void eg__constraints_count_anew(eg_mutator *mutator);
/** As many draws until it is assumed that there is nothing that satisfies them. */
enum { EG__MAX_DRAWS = 10000 };
/** EINVAL after so many draws: names the constraint that failed most often. */
eg_status eg__constraints_fail(const eg_mutator *mutator, size_t draws);

/* ---- limits of parameters and MACs (budget.c) ---- */

eg_status eg__budget_check(const eg_strategy_options *options);
/** Makes those of the strategy's options constraints of its mutator. */
eg_status eg__budget_add(eg_strategy *self);

/* ---- strategies ---- */

/** Forward, loss and backward of one batch on a tape of its own, under decisions sampled on it. EINVAL for a loss that
 * is not finite, with the advice to lower `rates`, the options that may have led there. */
eg_status eg__strategy_backward(eg_strategy *self, const eg_batch *batch, const char *rates, eg_step_result *result);
/** Clips and applies the gradients of the shared weights, which are none afterwards, also after a failure. */
eg_status eg__strategy_update(eg_strategy *self);

typedef struct eg__evolution_options {
    size_t evaluations;         /* in all; 1: a uniform sample that nobody evaluates */
    size_t population, parents; /* 0 parents: uniform samples only */
    double mutation;            /* probability of each key */
    uint64_t seed;
} eg__evolution_options;
/** The best of the candidates evaluated by the host, as an architecture (Guo et al., SPOS, ECCV 2020, section 3.4). No
 * candidate twice. */
eg_arch *eg__evolve(eg_strategy *self, const eg__evolution_options *options);

extern const eg_strategy_class eg__random_strategy_class, eg__darts_strategy_class, eg__spos_strategy_class;

/* ---- spaces ---- */

/** What a space file calls its format. */
#define EG__SPACE_FORMAT "engraft-space/1"
/** Limits of the data that a space is for: numbers of a sample, classes. */
enum { EG__SPACE_MAX_FEATURES = 1 << 24, EG__SPACE_MAX_CLASSES = 1 << 20 };
/** Limits of the options of a space, and so of what a file may ask of its network's class. */
enum { EG__SPACE_MAX_CHANNELS = 1 << 12, EG__SPACE_MAX_LAYERS = 1 << 8 };

/** eg_space_build() of a file. */
eg_module *eg__space_load(eg_context *ctx, const char *path, const eg_space_options *options);

extern const eg_space eg__cells_space, eg__darts_space, eg__mlp_space;
extern const eg_space eg__enas_micro_space, eg__enas_macro_space, eg__nasbench201_space, eg__textnas_space;
extern const eg_space eg__nasbench101_space, eg__nasbench_macro_space, eg__proxylessnas_space, eg__spos_space;

/** The candidates of DARTS, from `channels` to as many, stride 1 or 2: each has the image halved (rounded up) for 2. */
eg_module *eg__darts_pool_max(eg_context *ctx, int64_t channels, int64_t stride);
eg_module *eg__darts_pool_avg(eg_context *ctx, int64_t channels, int64_t stride);
eg_module *eg__darts_skip(eg_context *ctx, int64_t channels, int64_t stride);
eg_module *eg__darts_sep_conv(eg_context *ctx, int64_t channels, int64_t kernel, int64_t stride);
eg_module *eg__darts_dil_conv(eg_context *ctx, int64_t channels, int64_t kernel, int64_t stride);
/** ReLU, 1x1 convolution, batch norm without weights. */
eg_module *eg__darts_relu_conv_bn(eg_context *ctx, int64_t in_channels, int64_t out_channels);
/** ReLU, two 1x1 convolutions of stride 2, one of them a pixel further, side by side, batch norm. Halves the image
 *  (rounded up). */
typedef struct eg__factorized_reduce {
    eg_module base;
    int64_t in_channels, out_channels;
    bool no_relu, affine;
    eg_opt_f64 momentum;
    bool no_track_running_stats;
    eg_module *conv0, *conv1, *norm;
} eg__factorized_reduce;
extern const eg_class eg__factorized_reduce_class;
#define eg__factorized_reduce(...) eg_new(eg__factorized_reduce, __VA_ARGS__)

/** Runs an edge of a cell. In training its output is dropped, unless it is the input itself. */
eg_tensor *eg__run_edge(const eg_module *cell, eg_module *edge, eg_tensor *x, double drop_path);
/** Zeros of as many channels, the image smaller by `stride`, rounded up. ESHAPE for what are no images. */
eg_tensor *eg__zero_image(eg_tensor *x, int64_t channels, int64_t stride);

/** Blocks of ENAS. Convolution after a 1x1 convolution, batch norm and ReLU; its own are behind it. */
eg_module *eg__enas_conv_branch(eg_context *ctx, int64_t channels, int64_t kernel, bool separable);
/** The same with a pool of 3x3, and no ReLU behind it. */
eg_module *eg__enas_pool_branch(eg_context *ctx, int64_t channels, eg_module *pool);
/** 1x1 convolution, batch norm without weights, ReLU. */
eg_module *eg__enas_std_conv(eg_context *ctx, int64_t in_channels, int64_t out_channels);
/** ReLU, depthwise and 1x1 convolution, batch norm. */
eg_module *eg__enas_sep_conv_bn(eg_context *ctx, int64_t channels, int64_t kernel);
/** 3x3, the image stays as large. */
eg_module *eg__enas_avg_pool(eg_context *ctx);
eg_module *eg__enas_max_pool(eg_context *ctx);

/** Convolution, batch norm, ReLU6. */
eg_module *eg__mobile_conv(eg_context *ctx, int64_t in_channels, int64_t out_channels, int64_t kernel, int64_t stride);
/** An inverted bottleneck: 1x1 convolution to `expansion` (1: none) times the channels, depthwise convolution, both
 *  with batch norm and ReLU6, 1x1 convolution and batch norm: eg__mbconv(ctx, 16, 24, 3, 2, 6). */
typedef struct eg__mbconv_args {
    int64_t in_channels, out_channels, kernel, stride, expansion;
} eg__mbconv_args;
eg_module *eg__mbconv_with(eg_context *ctx, const eg__mbconv_args *args);
#define eg__mbconv(ctx, ...) eg__mbconv_with(ctx, &(const eg__mbconv_args){__VA_ARGS__})
/** x + the one child on x, which may give eg_none: eg__residual(ctx, EG_NAMED({"conv", branch})). */
typedef struct eg__residual {
    eg_module base;
    const eg_named_module *named;
    size_t n_named;
    double drop_path;
} eg__residual;
extern const eg_class eg__residual_class;
#define eg__residual(...) eg_new(eg__residual, __VA_ARGS__)
/** Which of stages of these sizes layer 0 .. layers-1 is in, where `layers` are spread over them in proportion. */
size_t eg__stage_of(const int64_t *sizes, size_t n_stages, int64_t layer, int64_t layers);

#endif

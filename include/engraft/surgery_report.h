/** @file
 * engraft/surgery_report.h - what a surgery changes, what it saves, whether it keeps its promise, and how it is done
 * again: differences of models, costs, a guard of the numbers, recipes.
 */
#ifndef ENGRAFT_SURGERY_REPORT_H
#define ENGRAFT_SURGERY_REPORT_H

#include "surgery.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------- differences */

/** What is different between two models, or between a model before and after a surgery. */
typedef struct eg_model_diff eg_model_diff;

/** What happened at a path. */
typedef enum eg_change_kind { EG_CHANGE_ADDED, EG_CHANGE_REMOVED, EG_CHANGE_MODIFIED, EG_CHANGE_MOVED } eg_change_kind;
/** A field that has another value. */
typedef struct eg_attribute_change {
    const char *name, *before, *after; /**< values as they are printed */
} eg_attribute_change;
/** A path where something else is now. */
typedef struct eg_model_change {
    eg_change_kind kind;
    const char *path;           /**< in the model after; of what was removed, in the model before */
    const char *was;            /**< where the module that is here now was before; NULL = here, or nowhere */
    const char *before, *after; /**< as printed: "ReLU()"; NULL = nothing. "= path": the module that is at that path */
    const eg_attribute_change *attributes; /**< of modules of one class */
    size_t n_attributes;
    int64_t parameters_before, parameters_after; /**< elements of the module's own, without its children's */
} eg_model_change;

/** What became of something. */
typedef enum eg_fate { EG_FATE_KEPT, EG_FATE_CONVERTED, EG_FATE_DROPPED, EG_FATE_NEW } eg_fate;
/** "kept", "converted", "dropped", "new". Never NULL. */
EG_API const char *eg_fate_name(eg_fate fate);
/** A parameter or buffer under its name in state dicts. */
typedef struct eg_key_change {
    eg_fate fate; /**< kept: the very tensor; converted: made from the one before; new: `before` is what had its name */
    const char *before, *after; /**< names; NULL = none */
    eg_slot_kind kind;
    eg_shape shape_before, shape_after;
    bool trained_before, trained_after;
} eg_key_change;

/** Compares two models. Where they have no tensor in common, such as a model and its clone, or two that were read from
 *  files, tensors with the same name, shape and type are taken for the same. NULL on failure: EINVAL for NULL and for
 *  a model that contains itself, EUNSUPPORTED for one deeper than 1024. The models are kept while the result lives. */
EG_API eg_model_diff *eg_model_diff_new(eg_module *before, eg_module *after);
/** The model as it was when the surgery began against the model as it is planned, with all that was committed. NULL on
 *  failure. */
EG_API eg_model_diff *eg_surgery_diff(eg_surgery *s);
/** Frees it. NULL is allowed. */
EG_API void eg_model_diff_free(eg_model_diff *diff);
/** Number of changes; 0: the models are of the same structure. Numbers in tensors are not compared. */
EG_API size_t eg_model_diff_size(const eg_model_diff *diff);
/** Change i, in the order of the model after. NULL and EINVAL when out of range. Lent. */
EG_API const eg_model_change *eg_model_diff_at(const eg_model_diff *diff, size_t i);
/** Number of tensors in both models, those that are the same counted once. */
EG_API size_t eg_model_diff_n_keys(const eg_model_diff *diff);
/** Tensor i, in the order of the state dict after; what was dropped comes last. NULL and EINVAL when out of range.
 *  Lent. */
EG_API const eg_key_change *eg_model_diff_key_at(const eg_model_diff *diff, size_t i);
/** Gives the tensors of a state dict of the one model their names in the other: `back` = from after to before. `prefix`
 *  (may be NULL) is before all names. Those that are not the very same in both models are left out; names that neither
 *  model has stay as they are. So a checkpoint from before loads into the model after, as far as the two agree:
 *  eg_module_load_state(net, prefix, out, false). */
EG_API eg_status eg_model_diff_rename(const eg_model_diff *diff, const eg_state *in, const char *prefix, bool back,
                                      eg_state *out);
/** A table for people, for eg_free(); the same text for the same models. "no difference" where there is none. */
EG_API char *eg_model_diff_text(const eg_model_diff *diff);
/** The same as JSON, for eg_free(). */
EG_API char *eg_model_diff_json(const eg_model_diff *diff);

/* ---- what a surgery does, module by module ---- */

/** What became of something that a replaced module had, or that its replacement has. */
typedef struct eg_carried {
    eg_fate fate;
    const char *what;   /**< "parameter", "buffer", "gradient", "mode", "requires_grad", "hook", "pre-hook" */
    const char *name;   /**< of the tensor in the old module, of what is new in the new one; of a hook its number; the
                             mode: "training" or "evaluation" */
    const char *detail; /**< the reason, or the new name: "the new module has no such name", "as 'conv.weight'"; NULL =
                           nothing to say */
} eg_carried;
/** Number of such things of replacement i (see eg_surgery_at()) in the result of eg_surgery_diff(). */
EG_API size_t eg_model_diff_n_carried(const eg_model_diff *diff, size_t i);
/** Number k of them. NULL and EINVAL when out of range. Lent. */
EG_API const eg_carried *eg_model_diff_carried_at(const eg_model_diff *diff, size_t i, size_t k);

/** What is planned and done: each replacement with what became of what hung on it, the notes, and the difference; for
 *  eg_free(). */
EG_API char *eg_surgery_text(eg_surgery *s);
/** The same as JSON. */
EG_API char *eg_surgery_json(eg_surgery *s);
/** Writes the text to a file. EIO. */
EG_API eg_status eg_surgery_print(eg_surgery *s, FILE *out);

/* ---------------------------------------------------------------------------------------------- costs */

/** What eg_model_cost() and eg_surgery_cost() measure beside counting. */
typedef struct eg_cost_options {
    size_t struct_size;
    int repeats;    /**< runs that are timed: 0 = 20; negative: none, and no latency */
    int warmup;     /**< runs before them: 0 = 3 */
    double seconds; /**< timing ends after so long, with 3 runs at least: 0 = 2 */
} eg_cost_options;

/** What one layer costs: the operations that ran in one module. */
typedef struct eg_layer_cost {
    const char *path, *cls;
    uint64_t macs;
    int64_t parameters;
    eg_shape output; /**< of its last operation */
} eg_layer_cost;
/** What a model costs on inputs of certain shapes, in evaluation mode. */
typedef struct eg_cost {
    int64_t parameters, buffers; /**< elements, shared ones once */
    uint64_t parameter_bytes, buffer_bytes;
    uint64_t macs;       /**< of one run */
    uint64_t peak_bytes; /**< predicted: parameters, buffers, and the most that a run has at once beside them */
    double latency, latency_low, latency_high; /**< seconds: median, first and ninth decile; NaN when not measured */
    int runs, warmup, threads;
    eg_layer_cost *layers; /**< in the order of running */
    size_t n_layers;
} eg_cost;
/** eg_model_cost(net, EG_SHAPES(EG_SHAPE(1, 3, 32, 32)), &cost, .repeats = 50). The model's modes and statistics are
 *  left as they were. EINVAL; what the model fails with on these shapes. */
#define eg_model_cost(model, inputs, out, ...)                                                                         \
    eg_model_cost_with((model), (inputs), (out),                                                                       \
                       &(eg_cost_options){.struct_size = sizeof(eg_cost_options), __VA_ARGS__})
/** The same from a struct; NULL: all defaults. */
EG_API eg_status eg_model_cost_with(eg_module *model, eg_shapes inputs, eg_cost *out, const eg_cost_options *options);
/** Frees what is in it, and empties it. */
EG_API void eg_cost_free(eg_cost *cost);

/** Costs before and after. */
typedef struct eg_cost_change {
    eg_cost before, after;
    const char *verdict; /**< one line in words; a warning where multiply-accumulates fall and time does not. Owned */
    bool warning;
} eg_cost_change;
/** Costs of the model as it was when the surgery began, and as it is planned, on the inputs that the surgery was given
 *  (EINVAL: none); runs of the two are timed in turns. */
#define eg_surgery_cost(s, out, ...)                                                                                   \
    eg_surgery_cost_with((s), (out), &(eg_cost_options){.struct_size = sizeof(eg_cost_options), __VA_ARGS__})
/** The same from a struct; NULL: all defaults. */
EG_API eg_status eg_surgery_cost_with(eg_surgery *s, eg_cost_change *out, const eg_cost_options *options);
/** The same for two models. */
EG_API eg_status eg_compare_cost(eg_module *before, eg_module *after, eg_shapes inputs, eg_cost_change *out,
                                 const eg_cost_options *options);
/** Frees what is in it, and empties it. */
EG_API void eg_cost_change_free(eg_cost_change *change);
/** A table of layers, and totals, for eg_free(). */
EG_API char *eg_cost_text(const eg_cost *cost);
/** The same as JSON; what was not measured is null. */
EG_API char *eg_cost_json(const eg_cost *cost);
/** Totals before and after, and the verdict, for eg_free(). */
EG_API char *eg_cost_change_text(const eg_cost_change *change);
/** {"before": .., "after": .., "verdict": .., "warning": ..}. */
EG_API char *eg_cost_change_json(const eg_cost_change *change);

/* ---------------------------------------------------------------------------------------------- numbers */

/** What eg_surgery_guard() takes. */
typedef struct eg_guard_options {
    size_t struct_size;
    eg_promise promise;       /**< of the outputs */
    double tolerance;         /**< of EG_PROMISE_CLOSE: the largest difference, of the largest number before. Of
                                 EG_PROMISE_EXACT: how much is rounding, 0 = 1e-5 (float32), 1e-12 (float64); negative: not a
                                 bit */
    eg_tensor *const *inputs; /**< NULL: normal numbers of the shapes that the surgery was given */
    size_t n_inputs;
    uint64_t seed; /**< of those */
} eg_guard_options;
/** How far outputs in evaluation mode before and after a surgery are from one another. */
typedef struct eg_guard_report {
    eg_promise promise;
    double tolerance; /**< that was applied; infinity for EG_PROMISE_TRAINED */
    bool kept;
    double max_absolute, max_relative; /**< relative to the largest number before of the same output */
    uint64_t max_ulps;                 /**< how many numbers of the type lie between two */
    double largest;                    /**< the largest number before */
    size_t n_outputs, n_numbers, n_different;
    size_t worst_output, worst_index; /**< where max_absolute is: in row-major order */
    int64_t decisions_changed;        /**< rows of the first output whose largest number is in another column; -1 where
                                         it has not 2 dimensions */
} eg_guard_report;
/** Runs the model as it was when the surgery began and as it is planned or committed, in evaluation mode, on the same
 *  inputs; modes and statistics are put back. EG_PROMISE_TRAINED demands only that the outputs have the same shapes and
 *  are finite. Where the promise is broken: EINVAL with the numbers, what was committed last is undone, and what was
 *  planned stays planned. `report` may be NULL. eg_surgery_guard(s, &report, .promise = EG_PROMISE_EXACT). */
#define eg_surgery_guard(s, report, ...)                                                                               \
    eg_surgery_guard_with((s), (report), &(eg_guard_options){.struct_size = sizeof(eg_guard_options), __VA_ARGS__})
/** The same from a struct; NULL: all defaults. */
EG_API eg_status eg_surgery_guard_with(eg_surgery *s, eg_guard_report *report, const eg_guard_options *options);
/** The same of two models; nothing is undone. */
EG_API eg_status eg_compare_outputs(eg_module *before, eg_module *after, eg_shapes inputs, eg_guard_report *report,
                                    const eg_guard_options *options);
/** One line, for eg_free(). */
EG_API char *eg_guard_text(const eg_guard_report *report);
/** The same as JSON; numbers that are not finite are null. */
EG_API char *eg_guard_json(const eg_guard_report *report);

/* ---------------------------------------------------------------------------------------------- recipes */

/** What the surgery does, planned and committed, as JSON for eg_free(), to be done again on a fresh model of the same
 *  structure:
 *
 *      {"format": "engraft surgery", "version": 1, "inputs": [[1, 3, 32, 32]], "before": "5f0c..",
 *       "after": "a2e1..", "steps": [
 *        {"method": "factorize", "rank": 0.25, "at": "layers.**"},
 *        {"replace": "conv1", "module": {"class": ..}, "modules": {"conv": "conv1"},
 *         "tensors": {"gain": "norm.weight"}},
 *        {"train": "conv1.weight", "trained": false}, {"tensor": "head.bias", "is": null}]}
 *
 *  A method is its options (the fields of its class that have not their defaults; those that are called "method", "at",
 *  "class" or "options" are in an object "options"), `at`, and the `class` that eg_surgery_apply_to() was given. What a
 *  policy in C has put in is written as eg_module_json() does, with those of its "modules" and "tensors" that the model
 *  had before, by
 *  their paths in the model at that step; where it did not get all places of the old module, "places" lists those. The
 *  texts "before" and "after" stand for the structures: classes, fields, names, shapes, and what is shared. A recipe
 *  written by hand may leave both out: it is for any model then, and does its steps as often as it is replayed. Numbers
 *  are not in it: what is new begins as its class makes it, so a recipe goes with a checkpoint. NULL on failure:
 * EUNSUPPORTED for modules that JSON cannot say (see eg_module_json()), and for tensors that were put in by themselves.
 */
EG_API char *eg_surgery_recipe(eg_surgery *s);
/** Writes it to a file, whole or not at all. EIO. */
EG_API eg_status eg_surgery_save_recipe(eg_surgery *s, const char *path);
/** Plans what a recipe says, on the model as it is planned. Where the model is already as the recipe makes it, nothing
 *  is planned, and a note says so. EINVAL when the model is not what the recipe is for, or does not become what it
 *  says: with `any_model` it is tried, and a note says what is different. EFORMAT for what is no recipe; ENOENT for a
 *  class, method or path that is not there. On failure nothing more is planned than before. Recipes may come from
 *  anybody: they are bounded as in eg_module_from_json(). */
EG_API eg_status eg_surgery_replay(eg_surgery *s, const char *json, bool any_model);
/** The same from a file of at most 64 MiB: also ENOENT, EIO. */
EG_API eg_status eg_surgery_load_recipe(eg_surgery *s, const char *path, bool any_model);
/** A recipe in one call: on a fresh model, before a checkpoint is loaded into it. `root` as in eg_surgery_options, may
 *  be NULL. */
EG_API eg_status eg_module_apply_recipe(eg_module *model, eg_module **root, const char *json);

#ifdef __cplusplus
}
#endif
#endif

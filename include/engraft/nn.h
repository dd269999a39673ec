/** @file
 * engraft/nn.h - modules: the object model, and what can be asked of a whole model. The built-in layers are in
 * engraft/layers.h.
 *
 * A module is a C struct whose first member is eg_module, made from a const class record. Its children, parameters and
 * buffers sit in named slots that hold the address of the C field, so that replacing a child changes the very pointer
 * that the module's forward function reads. A layer of one's own is made like the built-in ones:
 *
 *     typedef struct scale { eg_module base; int64_t channels; eg_tensor *gain; } scale;
 *
 *     static eg_status scale_build(eg_module *self)
 *     {
 *         scale *s = (scale *)self;
 *         return EG_PARAM(s, gain, eg_ones(self->ctx, EG_SHAPE(1, s->channels, 1, 1)));
 *     }
 *     static eg_tensor *scale_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
 *     {
 *         return eg_mul(in[0], ((scale *)self)->gain);
 *     }
 *     EG_CLASS(scale, .build = scale_build, .forward = scale_forward,
 *              .fields = EG_FIELDS(EG_INT(scale, channels, EG_AT_LEAST(1), .help = "channels in and out")));
 *
 *     eg_module *m = eg_new(scale, ctx, .channels = 16);
 *
 * Constructors hand over one reference; containers and slots keep what they are given (also when they fail), so a tree
 * is freed by one eg_module_release() of its root. Free a model before its context.
 */
#ifndef ENGRAFT_NN_H
#define ENGRAFT_NN_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A part of a model, or all of it. Reference-counted. */
typedef struct eg_module eg_module;
/** What a kind of module is: a const record. */
typedef struct eg_class eg_class;

/* ---------------------------------------------------------------------------------------------- classes */

/** Types of fields; each has a macro below. */
typedef enum eg_field_type {
    EG_FIELD_INT,
    EG_FIELD_HW,
    EG_FIELD_SHAPE,
    EG_FIELD_FLOAT,
    EG_FIELD_OPT_FLOAT,
    EG_FIELD_BOOL,
    EG_FIELD_TEXT,
    EG_FIELD_TEXTS,
    EG_FIELD_ENUM,
    EG_FIELD_MODULES,
    EG_FIELD_NAMED
} eg_field_type;

/** One settable field of a class: the one description from which range checks, printing, cloning and comparison are
 *  made. */
typedef struct eg_field {
    const char *name; /**< NULL ends a table */
    const char *help;
    eg_field_type type;
    size_t offset;
    double min, max; /**< of numbers; both 0 = any, max below min = no upper bound: see EG_AT_LEAST(). EG_HW: of each
                        of the two */
    double def;      /**< stands for a field left 0; 0 = none */
    const char *const *values; /**< EG_ENUM: names of 0, 1, .., then NULL */
    size_t count_offset;       /**< of lists: where their length is */
} eg_field;

#define EG_FIELD_(type_, kind_, field_, ...)                                                                           \
    {                                                                                                                  \
        .name = #field_, .type = kind_, .offset = offsetof(type_, field_), __VA_ARGS__                                 \
    }
/** The range of a number without upper bound, in a field's row: EG_INT(cell, index, EG_AT_LEAST(0), .help = "..").
 *  `.min = 0` alone cannot say so: it is no different from no range, which allows negative numbers. For both bounds
 *  write .min = 1, .max = 8. */
#define EG_AT_LEAST(n) .min = (n), .max = (double)(n)-1
/* The members of these types: int64_t, eg_hw, eg_shape (one size or more, each at least 1; required), double,
 * eg_opt_f64, bool, const char * (copied), const char *const * (a NULL-ended list, copied), int (an enum). Each takes
 * at least .help = "..", e.g. EG_INT(conv, groups, EG_AT_LEAST(1), .def = 1, .help = "blocked connections"). Without
 * .def a number left 0 is 0, and has to be in the range: so EG_AT_LEAST(1) without .def makes an EG_INT that must be
 * given. */
#define EG_INT(type, ...) EG_FIELD_(type, EG_FIELD_INT, __VA_ARGS__)
#define EG_HW_FIELD(type, ...) EG_FIELD_(type, EG_FIELD_HW, __VA_ARGS__)
#define EG_SHAPE_FIELD(type, ...) EG_FIELD_(type, EG_FIELD_SHAPE, __VA_ARGS__)
#define EG_FLOAT(type, ...) EG_FIELD_(type, EG_FIELD_FLOAT, __VA_ARGS__)
#define EG_OPT_FLOAT(type, ...) EG_FIELD_(type, EG_FIELD_OPT_FLOAT, __VA_ARGS__)
#define EG_BOOL(type, ...) EG_FIELD_(type, EG_FIELD_BOOL, __VA_ARGS__)
#define EG_TEXT(type, ...) EG_FIELD_(type, EG_FIELD_TEXT, __VA_ARGS__)
#define EG_TEXTS(type, ...) EG_FIELD_(type, EG_FIELD_TEXTS, __VA_ARGS__)
#define EG_ENUM(type, ...) EG_FIELD_(type, EG_FIELD_ENUM, __VA_ARGS__)
/* Lists of children, set by EG_MODULES(..) and EG_NAMED(..): they become child slots before build is called, and
 * NULL. */
#define EG_MODULES_FIELD(type) EG_LIST_(type, EG_FIELD_MODULES, modules, n_modules, "modules, named \"0\", \"1\", ..")
#define EG_NAMED_FIELD(type) EG_LIST_(type, EG_FIELD_NAMED, named, n_named, "modules and their names")
#define EG_LIST_(type_, kind_, field_, count_, help_)                                                                  \
    {                                                                                                                  \
        .name = #field_, .type = kind_, .offset = offsetof(type_, field_), .count_offset = offsetof(type_, count_),    \
        .help = help_                                                                                                  \
    }
/* clang-format off */
#define EG_FIELDS(...) (const eg_field[]){__VA_ARGS__, {.name = NULL}}
/* clang-format on */

/** What a kind of module is. Functions left NULL are those of `super`, and in the end of the base class. */
struct eg_class {
    size_t struct_size;
    const char *name; /**< printed: "Conv2d" */
    const eg_class *super;
    size_t instance_size;
    const eg_field *fields; /**< of this class; those of super come first. NULL = none */
    /** Checks the fields, makes parameters and children. Runs once, after the fields were copied and checked. */
    eg_status (*build)(eg_module *self);
    /** Computes the output (eg_tuple for several) from n_in tensors; NULL on failure. Base: EUNSUPPORTED. */
    eg_tensor *(*forward)(eg_module *self, eg_tensor *const *in, size_t n_in);
    size_t n_inputs; /**< how many tensors forward takes; 0 = 1, EG_ANY_INPUTS = any number */
    /** Called before and after forward; leave also when enter or forward failed. May be NULL. */
    eg_status (*enter)(eg_module *self);
    eg_status (*leave)(eg_module *self);
    /** Copies what fields and slots do not hold into a clone, where it is zero. May be NULL. */
    eg_status (*copy)(eg_module *dst, const eg_module *src);
    /** Frees what fields and slots do not hold. May be NULL. Slots are empty by then. Also called when build or copy
     *  failed: members they did not come to are as in the prototype (build) or zero (copy). */
    void (*finalize)(eg_module *self);
    /** Writes what stands in the parentheses when printed, as PyTorch prints it, with at most `size` bytes. NULL = the
     *  fields that differ from their defaults, and each EG_INT without one (.def). */
    void (*describe)(const eg_module *self, char *text, size_t size);
    const struct eg_open_class *open; /**< internal: of modules that stand for a number that is not decided yet */
};
#define EG_ANY_INPUTS SIZE_MAX

/** Defines the class record `type_class` of a module struct `type`, printed under the struct's name:
 *  EG_CLASS(block, .build = .., .forward = .., .fields = EG_FIELDS(..)); */
#define EG_CLASS(type, ...) EG_NAMED_CLASS(type, #type, __VA_ARGS__)
/** The same with a printed name of its own. */
#define EG_NAMED_CLASS(type, printed, ...)                                                                             \
    const eg_class type##_class = {                                                                                    \
        .struct_size = sizeof(eg_class), .name = printed, .instance_size = sizeof(type), __VA_ARGS__}

/* ---------------------------------------------------------------------------------------------- modules */

/** What a slot holds. */
typedef enum eg_slot_kind { EG_SLOT_CHILD, EG_SLOT_PARAMETER, EG_SLOT_BUFFER } eg_slot_kind;

typedef struct eg_slot eg_slot;       /* opaque */
typedef struct eg_hook eg_hook;       /* opaque */
typedef struct eg_reparam eg_reparam; /* opaque */
typedef struct eg_open eg_open;       /* opaque */

/** The head of every module. Members are read freely; they are changed through functions. */
struct eg_module {
    /* What walks over whole models read comes first, in a line of the cache. */
    const eg_class *cls;
    size_t refs;
    eg_slot *slots;
    size_t n_slots;
    char *name; /**< of the slot it was first put in; NULL for a root */
    size_t n_hooks;
    void *extension;  /**< what a family of classes keeps beside the struct (mutables do); not cloned */
    eg_status status; /**< first failure of a slot, for eg_module_status() */
    bool training;
    size_t slots_capacity;
    eg_hook *hooks;
    size_t hooks_capacity;
    eg_reparam *reparams; /**< parameters that are computed: see eg_weight_norm() */
    size_t n_reparams, reparams_capacity;
    eg_open *open; /**< NULL when no field is open: see EG_OPEN() */
    void (*free_extension)(void *extension);
    eg_module *link; /**< internal: the next in a list under way, else NULL */
    eg_context *ctx; /**< last, so that { .base.ctx = ctx, 16, 32 } goes on with the fields of the class */
};

EG_API extern const eg_class eg_module_class; /* the base class, "Module" */

/** Makes a module: copies the fields of `prototype` (a struct of the class, `size` bytes of it), fills defaults,
 *  checks ranges and builds. NULL on failure; child modules in the prototype (lists) are released then. Use it through
 *  eg_new(). */
EG_API eg_module *eg_module_new(const eg_class *cls, size_t size, const void *prototype);
#define eg_new(type, ...) eg_module_new(&type##_class, sizeof(type), &(type){.base.ctx = __VA_ARGS__})

/** One more reference; returns m. */
EG_API eg_module *eg_module_retain(eg_module *m);
/** Ends a reference; the last one frees m and lets go of what its slots hold. */
EG_API void eg_module_release(eg_module *m);

/** Whether m is of that class or a subclass. */
EG_API bool eg_is_a(const eg_module *m, const eg_class *cls);
/** The module as its own struct: NULL (and EINVAL) when it is not of that class. */
#define EG_CAST(m, type) ((type *)eg_module_cast((m), &type##_class))
/** Use it through EG_CAST(). */
EG_API void *eg_module_cast(eg_module *m, const eg_class *cls);

/* ---- slots: each macro takes a pointer to the struct, the name of the field, and the value to put into it. The slot
 * takes over a child's reference and keeps a tensor. A NULL value is a failure, remembered in the module. ---- */
#define EG_SLOT(self, field, child) eg_module_add_child(&(self)->base, #field, &(self)->field, (child))
#define EG_PARAM(self, field, tensor) eg_module_add_parameter(&(self)->base, #field, &(self)->field, (tensor))
#define EG_BUFFER(self, field, tensor) eg_module_add_buffer(&(self)->base, #field, &(self)->field, (tensor))
/** Adds a slot for a child and takes the child over, also on failure. `field` may be NULL: the module keeps the pointer
 *  itself (lists of children); in a clone it does so too for fields outside of the module's struct. Names: not empty,
 *  without '.'; EINVAL when taken. */
EG_API eg_status eg_module_add_child(eg_module *m, const char *name, eg_module **field, eg_module *child);
/** Adds a slot for a parameter, which is made to require a gradient; eg_none = absent (no bias). */
EG_API eg_status eg_module_add_parameter(eg_module *m, const char *name, eg_tensor **field, eg_tensor *t);
/** Adds a slot for a tensor that is saved but not trained; eg_none = absent. */
EG_API eg_status eg_module_add_buffer(eg_module *m, const char *name, eg_tensor **field, eg_tensor *t);
/** First failure of a slot of this module: what a build function returns at its end. */
EG_API eg_status eg_module_status(const eg_module *m);

/* ---- open fields: numbers that are not decided yet ----
 * A field of a number (EG_INT, EG_HW_FIELD, EG_FLOAT, EG_OPT_FLOAT) takes a constant or a handle, such as that of
 * eg_value_choice() in nas.h. An open field holds the largest of the values, from which parameters are made, and the
 * module that decides it is a child under the field's name. While forward runs, the field holds the value in force, and
 * parameters and buffers are the parts that a module with such fields would have: the first entries of dimensions 0 and
 * 1, those in the middle of others (a smaller window). Gradients and running statistics go to the whole.
 *
 * A module that is made of others hands its own open fields on while it is built:
 *
 *     static eg_status block_build(eg_module *self)
 *     {
 *         block *b = (block *)self;
 *         int64_t width = EG_OPEN(b, width);
 *         EG_SLOT(b, conv, eg_conv2d(self->ctx, 3, width, 3));
 *         EG_SLOT(b, norm, eg_batch_norm2d(self->ctx, width));
 *         return eg_module_status(self);
 *     }
 */
/** The field's handle where it is open, else its value: an int64_t or eg_hw for the constructors of children. */
#define EG_OPEN(self, field) eg_open_field(&(self)->base, #field, (self)->field)
/** The same of a double. */
#define EG_OPEN_F64(self, field) eg_open_field_f64(&(self)->base, #field, (self)->field)
/** Use it through EG_OPEN(). */
EG_API int64_t eg_open_field(const eg_module *m, const char *field, int64_t value);
/** Use it through EG_OPEN_F64(). */
EG_API double eg_open_field_f64(const eg_module *m, const char *field, double value);

/** Number of child slots. */
EG_API size_t eg_module_n_children(const eg_module *m);
/** Child i in order of registration and its name (may be NULL). A slot can be empty: NULL without failure. Lent. */
EG_API eg_module *eg_module_child_at(const eg_module *m, size_t i, const char **name);
/** By dotted path ("layers.0.conv"); "" is m itself. NULL and ENOENT (naming the closest) when there is none. Lent. */
EG_API eg_module *eg_module_find(eg_module *m, const char *path);
/** Puts `child` (taken over, also on failure) in the place of the child of that name, in every slot of m that holds the
 *  same module. NULL: the failure that made it, or EINVAL, and nothing changes. ENOENT, EINVAL for a child that
 *  contains m. */
EG_API eg_status eg_module_set_child(eg_module *m, const char *name, eg_module *child);
/** Empties the slot, and every slot of m that holds the same module: it stays, holding NULL. ENOENT. */
EG_API eg_status eg_module_empty_child(eg_module *m, const char *name);
/** Removes the slot of that name with what it holds. ENOENT. */
EG_API eg_status eg_module_remove_child(eg_module *m, const char *name);
/** Tensor of a parameter or buffer by dotted path; eg_none for an absent one. NULL and ENOENT when there is none.
 *  Lent. */
EG_API eg_tensor *eg_module_tensor(eg_module *m, const char *path);

/* ---- running ---- */

/** Runs the module: eg_call(m, x) or eg_call(m, x, y). A scope: see autograd.h. Hooks run around forward. NULL on
 *  failure: that of forward, or EINVAL for another number of inputs than the class takes, and naming the module when
 *  its forward left a tape open (which is closed). C does not say which argument of a function is computed first:
 *  where the order of calls matters (random numbers, traces), give each a statement of its own. */
#define eg_call(m, ...)                                                                                                \
    eg_module_call((m), (eg_tensor *const[]){__VA_ARGS__},                                                             \
                   sizeof((eg_tensor *const[]){__VA_ARGS__}) / sizeof(eg_tensor *))
/** The same from an array. */
EG_API eg_tensor *eg_module_call(eg_module *m, eg_tensor *const *in, size_t n_in);

/** Training or evaluation mode, for m and all below it. */
EG_API void eg_module_train(eg_module *m, bool training);
/** Whether the parameters of m and all below it take part in differentiation (freezing a model: false). */
EG_API void eg_module_set_requires_grad(eg_module *m, bool requires_grad);
/** Drops the gradients of all parameters. */
EG_API void eg_module_zero_grad(eg_module *m);

/** A pre-hook sees the inputs (and may return a replacement of in[0], else NULL = unchanged); a hook sees the output
 *  and may return a replacement. A hook that fails sets *failed. */
typedef eg_tensor *(*eg_hook_fn)(void *payload, eg_module *m, eg_tensor *t, bool *failed);
/** Adds a pre-hook; *id (may be NULL) is for eg_module_remove_hook(). Hooks run in the order of adding. */
EG_API eg_status eg_module_add_pre_hook(eg_module *m, eg_hook_fn fn, void *payload, uint64_t *id);
/** Adds a hook, likewise. */
EG_API eg_status eg_module_add_hook(eg_module *m, eg_hook_fn fn, void *payload, uint64_t *id);
/** Removes either kind. ENOENT. */
EG_API eg_status eg_module_remove_hook(eg_module *m, uint64_t id);

/* ---- walking ---- */

/** Called for each module, parents first, each once (under its first path); path "" is the root. Stops at the first
 *  failure. */
typedef eg_status (*eg_visit_fn)(void *payload, const char *path, eg_module *m);
/** Visits m and all below it. Returns the failure of `visit` that ended the walk. */
EG_API eg_status eg_module_walk(eg_module *m, eg_visit_fn visit, void *payload);
/** Called for each parameter and buffer in the order of the state dict. A tensor shared by several slots comes once for
 *  each, and one of a module that stands in several slots under each of its paths: of those there can be very many. */
typedef eg_status (*eg_visit_tensor_fn)(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t);
/** Visits the tensors of m and all below it. */
EG_API eg_status eg_module_walk_tensors(eg_module *m, eg_visit_tensor_fn visit, void *payload);
/** Number of parameters (elements), shared ones once. -1 on failure (NULL, ENOMEM). */
EG_API int64_t eg_module_n_parameters(eg_module *m);

/* ---- copies, state, text ---- */

/** A deep copy that shares nothing with m (modules and tensors shared inside m are shared likewise inside the copy),
 *  without gradients and hooks. */
EG_API eg_module *eg_module_clone(eg_module *m);

/** Named tensors in order: a state dict. Tensors are kept. */
typedef struct eg_state eg_state;
/** An empty one. */
EG_API eg_state *eg_state_new(void);
/** Frees it and lets go of its tensors. */
EG_API void eg_state_free(eg_state *state);
/** Adds a tensor, or replaces the one of that name. EINVAL for eg_none and tuples. */
EG_API eg_status eg_state_put(eg_state *state, const char *name, eg_tensor *t);
/** NULL without failure when absent. Lent. */
EG_API eg_tensor *eg_state_get(const eg_state *state, const char *name);
/** Number of tensors. */
EG_API size_t eg_state_size(const eg_state *state);
/** Tensor i in the order of putting, and its name (may be NULL). NULL and EINVAL when out of range. Both lent. */
EG_API eg_tensor *eg_state_at(const eg_state *state, size_t i, const char **name);
/** Parameters and buffers under PyTorch's names, not copied; `prefix` (may be NULL) is put before each. */
EG_API eg_status eg_module_state(eg_module *m, const char *prefix, eg_state *state);
/** Copies numbers into the model's tensors. Strict: every tensor of the model must be there and none be left over.
 *  Nothing is changed on failure (ENOENT lists names, ESHAPE names the tensor and both shapes). */
EG_API eg_status eg_module_load_state(eg_module *m, const char *prefix, const eg_state *state, bool strict);

/** The module tree as PyTorch prints it, for eg_free(). */
EG_API char *eg_module_text(eg_module *m);
/** Writes it to a file, with a newline. EIO. */
EG_API eg_status eg_module_print(eg_module *m, FILE *out);

/* ---- models as JSON ---- */

/** Makes a class of one's own known to this context by its printed name, as built-in ones are, so that models of it can
 *  be read from JSON. The record must outlive the context. EINVAL when another class has that name (those of the
 *  built-in spaces are taken once the context has used one: register before). */
EG_API eg_status eg_context_register_class(eg_context *ctx, const eg_class *cls);
/** The class of that name: a built-in layer or a registered one (choices are once one was made, spaces' cells once a
 *  space was, and both after eg_nas_register()). NULL: ENOENT (with the closest names); EINVAL for NULL. */
EG_API const eg_class *eg_context_find_class(const eg_context *ctx, const char *name);
/** Class i of them all; NULL (no failure) past the last. */
EG_API const eg_class *eg_context_class_at(const eg_context *ctx, size_t i);

/** What a model is made of, without the numbers in its tensors, for eg_free():
 *
 *      {"class": "Sequential", "modules": [
 *        {"class": "Conv2d", "in_channels": 1, "out_channels": 16, "kernel_size": 3, "padding": [1, 0]},
 *        {"class": "ReLU"}]}
 *
 *  A module is its class and those of its fields that have not their defaults. Lists of children are "modules", or
 *  "named" where they have names of their own; null stands for an empty place. The children of other classes are made
 *  by the class; "children" has those that are not as it makes them, by path: {"op1.conv3x3.0": {"class": ..}}. A
 *  module that stands in several places has an "id" in the first, and is {"ref": id} in the others. A number that is
 *  decided later is {"value_choice": [16, 24, 32], "key": "width"}, with "fixed" where that is set.
 *  Not part of it: modes, hooks, whether parameters are trained, and tensors that modules share. NULL: EUNSUPPORTED for
 *  normalized parameters (eg_weight_norm()), for modules deeper than 64, and for children beyond those that a class
 *  makes; EINVAL for NULL, and for texts that are no UTF-8 and numbers that are not finite. */
EG_API char *eg_module_json(eg_module *m);
/** The same with all children of all modules, also those that their class would make: to be edited. */
EG_API char *eg_module_json_expanded(eg_module *m);
/** Makes the model that such a text describes, with new numbers in its tensors; all its classes must be known to the
 *  context. NULL: EFORMAT for what is no such text, ENOENT for a class that is not known and a child that is not there,
 *  and what the constructors fail with; messages have the place ("model.modules[3].padding"). Texts may come from
 *  anybody: lists of more than 4096 modules, more than 2^20 in all (those that classes make count), and more than 64 in
 *  depth are refused. A small text can be a model of any size, though: for strangers' give the context a max_memory. */
EG_API eg_module *eg_module_from_json(eg_context *ctx, const char *json);
/** The same of a call as people type it: "SiLU", "Conv2d(in_channels=3, out_channels=8, kernel_size=(3, 1))". Also
 *  EINVAL for what is no such call. */
EG_API eg_module *eg_module_from_text(eg_context *ctx, const char *text);
/** Writes the text to a file, whole or not at all. EIO, and as eg_module_json(). */
EG_API eg_status eg_module_save_json(eg_module *m, const char *path);
/** Reads a file of at most 64 MiB: also ENOENT, EIO. */
EG_API eg_module *eg_module_load_json(eg_context *ctx, const char *path);

/* ---- the trace: shapes, costs and graph of a model, from its shapes alone ---- */

/** The operations of one run, in order. */
typedef struct eg_trace eg_trace;
/** One of them. */
typedef struct eg_trace_op {
    const char *op;   /**< "conv2d" */
    const char *path; /**< of the module that ran it */
    uint64_t macs;
    const uint64_t *inputs; /**< numbers of the tensors: 1, 2, .. for the model's inputs, then others; 0 = absent */
    size_t n_inputs;
    uint64_t output; /**< of the first output; others follow it */
    size_t n_outputs;
    eg_shape output_shape;
} eg_trace_op;
/** Runs the model in evaluation mode on shape-only tensors. The model's mode and statistics are left as they were. NULL
 *  on failure: the model's, or EINVAL while another trace runs. Independent of the model once made. */
EG_API eg_trace *eg_trace_new(eg_module *m, const eg_shape *inputs, size_t n_inputs);
/** Frees it. */
EG_API void eg_trace_free(eg_trace *trace);
/** Number of operations. */
EG_API size_t eg_trace_size(const eg_trace *trace);
/** Operation i. NULL and EINVAL when out of range. Lent. */
EG_API const eg_trace_op *eg_trace_at(const eg_trace *trace, size_t i);
/** Multiply-accumulates of all operations together. */
EG_API uint64_t eg_trace_macs(const eg_trace *trace);
/** Parameters (elements) that the run used: of a supernet with a decision, those of the chosen path. */
EG_API int64_t eg_trace_params(const eg_trace *trace);
/** Number of the tensor that is output i of the model, as in eg_trace_op; 0 when out of range. */
EG_API uint64_t eg_trace_output_id(const eg_trace *trace, size_t i);
/** Shape of output i of the model. */
EG_API eg_shape eg_trace_output(const eg_trace *trace, size_t i);
/** A table: path, operation, output shape, parameters, MACs; for eg_free(). */
EG_API char *eg_trace_text(const eg_trace *trace);

/* ---------------------------------------------------------------------------------------------- initializers */

/* In place, from the context's stream; the equals of torch.nn.init. fan_in of a weight (out, in, ..) = in * kernel.
 * EINVAL for what has no numbers and for parameters that are no numbers; EDTYPE for integers; EINVAL for the fan of
 * what has fewer than two dimensions. */
/** Uniform in [low, high). */
EG_API eg_status eg_init_uniform(eg_tensor *t, double low, double high);
/** Normal. */
EG_API eg_status eg_init_normal(eg_tensor *t, double mean, double std);
/** All `value`. */
EG_API eg_status eg_init_constant(eg_tensor *t, double value);
/** He et al. 2015; a: negative slope. PyTorch's default for conv and linear weights is a = sqrt(5). */
EG_API eg_status eg_init_kaiming_uniform(eg_tensor *t, double a);
/** The same with normal numbers. */
EG_API eg_status eg_init_kaiming_normal(eg_tensor *t, double a);

#ifdef __cplusplus
}
#endif
#endif

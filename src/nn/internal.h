/*
 * nn/internal.h - what the files of this layer, and the layers above it, share about modules.
 */
#ifndef EG_NN_INTERNAL_H
#define EG_NN_INTERNAL_H

#include "autograd/internal.h"
#include "engraft/layers.h"

/** A named place in a module. It holds the address of a C field, or the pointer itself where there is no field. */
struct eg_slot {
    char *name;
    eg_slot_kind kind;
    uint32_t hash; /* of the name */
    union {
        eg_module **child;
        eg_tensor **tensor;
    } field; /* NULL: see own */
    union {
        eg_module *child;
        eg_tensor *tensor;
    } own;
};

struct eg_hook {
    uint64_t id;
    eg_hook_fn fn;
    void *payload;
    bool before; /* a pre-hook */
};

/* ---- in the context ---- */

/** What this layer keeps in a context. */
typedef struct eg__nn_state {
    eg_module *running; /* whose forward is under way, innermost; lent */
    uint64_t last_hook;
    eg_module **open_values; /* owned, what handles mean */
    size_t n_open_values, open_capacity;
    size_t n_made;                          /* modules, so far */
    const struct eg_open_class *open_class; /* what open values in files are read as; NULL = none */
} eg__nn_state;
/** NULL on ENOMEM. */
eg__nn_state *eg__nn_state_of(eg_context *ctx);

/* ---- classes ---- */

/** What runs when a module of this class is called: the nearest function up the chain of super classes. Never NULL. */
typedef eg_tensor *(*eg__forward_fn)(eg_module *self, eg_tensor *const *in, size_t n_in);
eg__forward_fn eg__class_forward(const eg_class *cls);
/** Whether the class has no forward of its own (a module list): its parent calls its children directly. */
bool eg__class_is_container(const eg_class *cls);
/** How many tensors it takes, inherited; EG_ANY_INPUTS = any number. */
size_t eg__class_n_inputs(const eg_class *cls);

/* ---- fields (fields.c) ---- */

/** Field i of a class and its super classes, theirs first; NULL past the end. */
const eg_field *eg__field_at(const eg_class *cls, size_t i);
/** Fills defaults, checks ranges, copies texts. On failure the texts are freed or NULL. */
eg_status eg__fields_init(eg_module *m);
void eg__fields_free(eg_module *m);
/** Copies all fields of src into the zeroed fields of dst, a module of the same class. */
eg_status eg__fields_copy(eg_module *dst, const eg_module *src);
/** Lets a zeroed prototype have the fields of m, whose texts it lends; its lists stay empty. Of open fields it has the
 *  largest value. */
void eg__fields_lend(void *prototype, const eg_module *m);
/** Whether two modules of one class have equal fields. */
bool eg__fields_equal(const eg_module *a, const eg_module *b);
/** Whether a field has its default value. Lists always do. */
bool eg__field_is_default(const eg_module *m, const eg_field *field);
/** The number in a field of a number, and another in its place. */
double eg__field_number(const eg_module *m, const eg_field *field);
void eg__field_set_number(eg_module *m, const eg_field *field, double value);
bool eg__field_is_number(const eg_field *field);
/** Whether its value is in the field's range. */
eg_status eg__field_check(eg_module *m, const eg_field *field);
/** Copies a field as it stands, texts by their address. */
void eg__field_lend(void *dst, const eg_module *src, const eg_field *field);
/** Appends the value as Python would write it: 3, (3, 1), 1e-05, True, 'text'. */
void eg__field_print(const eg_module *m, const eg_field *field, eg__buf *buf);
/** The shortest text that reads back as `value`, as Python's repr: "0.1", "1e-05", "2.0". Returns `text`. */
#define EG__NUMBER_TEXT_SIZE 48
const char *eg__number_text(double value, char text[EG__NUMBER_TEXT_SIZE]);
/** "(3, 1)" and, for `plain` and equal numbers, "3". Returns `text`. */
const char *eg__hw_text(eg_hw value, bool plain, char text[EG__NUMBER_TEXT_SIZE]);

/** Limits in field tables: sizes that fit an eg_hw, channels whose products cannot overflow. */
#define EG__MAX_HW 1073741823
#define EG__MAX_CHANNELS 1073741823

/** Text for describe(), cut at the end of its room. */
typedef struct eg__text {
    char *data; /* the rest of the room */
    size_t size;
} eg__text;
void eg__text_add(eg__text *text, const char *format, ...) EG_PRINTF(2, 3);

/** What convolutions in two dimensions print of themselves (conv2d.c). */
typedef struct eg__conv2d_text {
    int64_t in_channels, out_channels;
    eg_hw kernel_size, stride, padding, dilation, output_padding;
    int64_t groups;
    bool no_bias;
} eg__conv2d_text;
void eg__describe_conv2d(const eg__conv2d_text *c, char *text, size_t size);
/** EINVAL unless both numbers of channels are multiples of `groups`; `name` is the class's. */
eg_status eg__check_groups(const char *name, int64_t in_channels, int64_t out_channels, int64_t groups);

/* ---- open fields (open.c) ---- */

/** What a module that stands for a number can be asked. */
typedef struct eg_open_class {
    size_t (*size)(const eg_module *self);
    double (*value)(const eg_module *self, size_t i); /* less than EG__OPEN_LIMIT in size */
    eg_status (*current)(eg_module *self, size_t *i); /* the one in force */
    bool (*equal)(const eg_module *a, const eg_module *b);
    json_t *(*to_json)(const eg_module *self); /* an object */
    eg_module *(*from_json)(eg_context *ctx, const json_t *json);
} eg__open_class;
/** What objects in the place of numbers are read as in this context. */
eg_status eg__open_register(eg_context *ctx, const eg__open_class *open);
/** NULL for a module that stands for no number. */
const eg__open_class *eg__open_class_of(const eg_module *m);
/** The largest of its values. */
double eg__open_largest(const eg_module *value);

/** 2^52: from here on numbers are handles, not values; a double holds all whole ones below it. */
#define EG__OPEN_LIMIT 4503599627370496.0
/** Whether a field's number would be taken for a handle. */
bool eg__open_is_handle(double number);
/** A number that means this module, which the context takes over (also on failure) until it ends: exact in an int64_t
 *  and in a double, and too large for any size. For NULL, or when memory is short, one that constructors refuse. */
int64_t eg__open_handle(eg_context *ctx, eg_module *value);
/** Makes a field open whose value is a handle; false when it is none. */
bool eg__open_take(eg_module *m, const eg_field *field, eg_status *status);
/** Gives back the handles that were made since there were n, and are used up. */
void eg__open_forget(eg_context *ctx, size_t n);
/** Opens a field of a prototype as an object of a file says, by a handle. */
eg_status eg__open_read(eg_module *prototype, const eg_field *field, const json_t *json);
/** Opens the fields of a prototype, of another context, that are open in m: the same values, by handles. */
eg_status eg__open_lend(eg_module *prototype, const eg_module *m);
/** Whether two modules of one class have the same open fields. */
bool eg__open_equal(const eg_module *a, const eg_module *b);
/** eg__field_check(), which says what to do instead where a number out of range looks like one made from a handle. */
eg_status eg__open_check(eg_module *m, const eg_field *field);
/** The module that decides the field; NULL when it is not open. */
eg_module *eg__open_field(const eg_module *m, const char *field);
/** The field that child slot i opens; NULL when it opens none. */
const eg_field *eg__open_slot(const eg_module *m, size_t i);
/** The slot of child i of those that open no field, m->n_slots when there is none; the child, or NULL. */
size_t eg__child_slot(const eg_module *m, size_t i);
eg_module *eg__child_at(const eg_module *m, size_t i);
/** Makes and frees the record that a module with open fields has. */
eg_status eg__open_make(eg_module *m);
void eg__open_free(eg_module *m);
/** The shapes that the tensors of m's slots have with these values (by slot; 0 for those that open no field); ndim -1
 *  where nothing changes. Lent, until the next call. NULL on failure. */
const eg_shape *eg__open_shapes(const eg_module *m, const double *values);

/** What a module is with certain values in its open fields: of each of its slots the value (of an open field's) and the
 *  tensor (of one that becomes smaller, else NULL). All-zero is empty. */
typedef struct eg__narrowed {
    size_t n; /* slots */
    double *values;
    eg_tensor **tensors;
    bool active; /* they are in place, what `tensors` holds is the whole */
} eg__narrowed;
/** Which value (its number) stands for an open field; NULL function: that in force. */
typedef eg_status (*eg__open_choose_fn)(void *payload, eg_module *value, size_t *i);
/** Finds the values. Tensors: parts that are recorded, or shapes only; with `copies` numbers of their own, kept. */
typedef enum eg__narrow_mode { EG__NARROW_PARTS, EG__NARROW_SHAPES, EG__NARROW_COPIES } eg__narrow_mode;
eg_status eg__open_narrow(eg_module *m, eg__open_choose_fn choose, void *payload, eg__narrow_mode mode,
                          eg__narrowed *out);
/** Puts parts in the place of the whole while forward runs, and back. */
void eg__open_enter(eg_module *m, eg__narrowed *narrowed);
void eg__open_leave(eg_module *m, eg__narrowed *narrowed);
/** The values become constants, the copies the module's own tensors; nothing is open any more. */
void eg__open_close(eg_module *m, eg__narrowed *narrowed);
/** Frees copies that were not used. */
void eg__narrowed_free(eg__narrowed *narrowed);

/** The number of blocks of an eg_repeat. */
size_t eg__repeat_size(const eg_module *m);
/** Block i. */
eg_module *eg__repeat_block(const eg_module *m, size_t i);
/** Drops the blocks that do not run. */
void eg__repeat_cut(eg_module *m);

/* ---- slots (slots.c) ---- */

static inline eg_module **eg__slot_child(eg_slot *slot)
{
    return slot->field.child != NULL ? slot->field.child : &slot->own.child;
}
static inline eg_tensor **eg__slot_tensor(eg_slot *slot)
{
    return slot->field.tensor != NULL ? slot->field.tensor : &slot->own.tensor;
}
/** The slot of that name (len bytes of it); NULL when there is none. */
eg_slot *eg__slot_find(const eg_module *m, const char *name, size_t len);
/** Adds a slot without a value. NULL on failure. `field` may be NULL. */
eg_slot *eg__slot_add_child(eg_module *m, const char *name, eg_module **field);
eg_slot *eg__slot_add_tensor(eg_module *m, const char *name, eg_slot_kind kind, eg_tensor **field);
/** ENOENT, with the closest names, when m has no child slot of that name. */
eg_status eg__module_has_child(const eg_module *m, const char *name);
/** eg_module_set_child() of this slot alone, for a child that is known not to contain m; NULL empties it. */
eg_status eg__module_place(eg_module *m, const char *name, eg_module *child);
/** Ends a slot and releases what it holds. */
void eg__slot_remove(eg_module *m, eg_slot *slot);
/** Frees all slots and releases what they hold. Children that nothing else holds are put in front of the list `dead`.
 */
void eg__slots_free(eg_module *m, eg_module **dead);

/** Adds "weight" of this shape (out, in, ..), row-major, and "bias" (out), with PyTorch's default numbers. */
eg_status eg__add_weight_and_bias(eg_module *m, eg_tensor **weight, eg_tensor **bias, eg_shape shape, bool no_bias);
/** The same with another number of biases than shape begins with; 0 = none. */
eg_status eg__add_weight_and_biases(eg_module *m, eg_tensor **weight, eg_tensor **bias, eg_shape shape, int64_t biases);

/* ---- computed parameters (reparam.c) ---- */

/** Sets their fields, for the forward pass that follows. `learn`: the estimates of spectral normalization go on. */
eg_status eg__reparams_compute(eg_module *m, bool learn);
void eg__reparams_clear(eg_module *m);
/** Copies the records into a clone. */
eg_status eg__reparams_copy(eg_module *dst, const eg_module *src);
void eg__reparams_free(eg_module *m);

/* ---- walks (walk.c) ---- */

/** eg_module_walk_tensors(), but each module's tensors once, under its first path: in time linear in the slots. A
 * tensor of several slots still comes once for each. */
eg_status eg__module_walk_tensors_once(eg_module *m, eg_visit_tensor_fn visit, void *payload);
/** Calls `function` for m and all below it, each once, those nearer to m first. It must not change slots or references.
 *  Nothing can fail, and no memory is needed. */
void eg__module_each(eg_module *m, void (*function)(void *payload, eg_module *m), void *payload);
/** Whether `other` is m or below it. */
bool eg__module_contains(eg_module *m, const eg_module *other);

/* ---- running (call.c) ---- */

/** eg_module_call() with another function in the place of the class's forward. */
eg_tensor *eg__module_call_with(eg_module *m, eg__forward_fn forward, eg_tensor *const *in, size_t n_in);
eg_tensor *eg__batch_norm2d_forward_relu(eg_module *self, eg_tensor *const *in, size_t n_in);
eg_tensor *eg__batch_norm2d_forward_relu6(eg_module *self, eg_tensor *const *in, size_t n_in);

/** What eg_f_batch_norm() is given by this module for an input x, and what is to be counted after it has run. */
eg_batch_norm_args eg__batch_norm2d_args(const eg_batch_norm2d *b, eg_tensor *x);
void eg__batch_norm2d_count(eg_batch_norm2d *b);

/** The batch norm at the end of m, if m is a plain sequential module that a tape records in training and nobody looks
 *  at what goes into the norm or comes out of it; NULL otherwise. eg__call_before_norm() then calls m without it. */
eg_batch_norm2d *eg__last_norm(eg_module *m);
eg_tensor *eg__call_before_norm(eg_module *m, eg_tensor *const *in, size_t n_in);

/* ---- traces (trace.c) ---- */

/** The module that ran operation i: lent, as long as the model has it. NULL: none did. */
const eg_module *eg__trace_module(const eg_trace *trace, size_t i);

/* ---- modes (modes.c) ---- */

/** The training flag of each module of a model. All-zero is empty. */
typedef struct eg__modes {
    struct eg__mode {
        eg_module *module;
        bool training;
    } * items;
    size_t n, capacity;
} eg__modes;
/** Overwrites `modes`, which is to be restored also after a failure. */
eg_status eg__modes_save(eg__modes *modes, eg_module *m);
/** Puts the flags back and empties `modes`. */
void eg__modes_restore(eg__modes *modes);

/* ---- printing ---- */

/** Writes what the class's describe (or its fields) says of m. */
eg_status eg__module_describe(const eg_module *m, eg__buf *buf);

/* ---- pointer -> pointer, for walks that must know what they have seen ---- */

/** All-zero is empty. A key must not be NULL. */
typedef struct eg__ptr_map {
    struct eg__ptr_entry {
        const void *key;
        void *value;
    } * entries; /* open addressing, size a power of two */
    size_t n, size;
} eg__ptr_map;
eg_status eg__ptr_map_put(eg__ptr_map *map, const void *key, void *value);
/** The address of the value, NULL when the key is absent. Valid until the next put. */
void **eg__ptr_map_find(const eg__ptr_map *map, const void *key);
/** Puts a key: *added says whether it was absent before. */
eg_status eg__ptr_map_add(eg__ptr_map *map, const void *key, bool *added);
void eg__ptr_map_free(eg__ptr_map *map);

#endif

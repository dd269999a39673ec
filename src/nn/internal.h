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
/** Lets a zeroed prototype have the fields of m, whose texts it lends; its lists stay empty. */
void eg__fields_lend(void *prototype, const eg_module *m);
/** Whether two modules of one class have equal fields. */
bool eg__fields_equal(const eg_module *a, const eg_module *b);
/** Whether a field has its default value. Lists always do. */
bool eg__field_is_default(const eg_module *m, const eg_field *field);
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
/** Frees all slots and releases what they hold. */
void eg__slots_free(eg_module *m);

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

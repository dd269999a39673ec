/*
 * Open fields: numbers of a module that are decided later, and anew at each call.
 *
 * A handle stands for such a number where a constant could stand. The field then holds the largest value, and the
 * module that decides is a child under the field's name; so walks, clones and text need to know nothing. That is also
 * all there is to tell an open field by.
 *
 * While forward runs, fields hold the values in force, and slots the parts of parameters and buffers that a module with
 * these values would have (open_shapes.c).
 */
#include "nn/internal.h"
#include "ops/registry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- handles ---- */

/* 2^52 + 2^20 * number + its check bits; number 0 for what could not be made. So no sum, multiple or fraction of
 * handles is another one. */
#define HANDLE ((int64_t)EG__OPEN_LIMIT)
enum { CHECK_BITS = 20 };

bool eg__open_is_handle(double number)
{
    return number >= EG__OPEN_LIMIT && number < 2 * EG__OPEN_LIMIT;
}

static int64_t handle_of(size_t number)
{
    uint64_t hash = (uint64_t)number * 0x9e3779b97f4a7c15U;
    return HANDLE + ((int64_t)number << CHECK_BITS) + (int64_t)(hash >> (64 - CHECK_BITS));
}

int64_t eg__open_handle(eg_context *ctx, eg_module *value)
{
    eg__nn_state *state = value != NULL ? eg__nn_state_of(ctx) : NULL;
    if (state == NULL || eg__grow(&state->open_values, &state->open_capacity, state->n_open_values + 1,
                                  sizeof(*state->open_values)) != EG_OK) {
        eg_module_release(value);
        return HANDLE;
    }
    state->open_values[state->n_open_values++] = value;
    return handle_of(state->n_open_values);
}

static eg_module *value_of_handle(eg_context *ctx, int64_t handle)
{
    const eg__nn_state *state = eg__nn_state_of(ctx);
    size_t number = (size_t)((handle - HANDLE) >> CHECK_BITS);
    bool live = state != NULL && number >= 1 && number <= state->n_open_values && handle == handle_of(number);
    return live ? state->open_values[number - 1] : NULL;
}

/* 0 when the field is not open, or by a copy, which no handle means. */
static int64_t handle_of_field(const eg_module *m, const char *field)
{
    const eg_module *value = m != NULL && field != NULL ? eg__open_field(m, field) : NULL;
    const eg__nn_state *state = value != NULL ? eg__nn_state_of(value->ctx) : NULL;
    for (size_t i = 0; state != NULL && i < state->n_open_values; i++) {
        if (state->open_values[i] == value)
            return handle_of(i + 1);
    }
    return 0;
}

int64_t eg_open_field(const eg_module *m, const char *field, int64_t value)
{
    int64_t handle = handle_of_field(m, field);
    return handle != 0 ? handle : value;
}

double eg_open_field_f64(const eg_module *m, const char *field, double value)
{
    int64_t handle = handle_of_field(m, field);
    return handle != 0 ? (double)handle : value;
}

void eg__open_forget(eg_context *ctx, size_t n)
{
    eg__nn_state *state = eg__nn_state_of(ctx);
    while (state != NULL && state->n_open_values > n)
        eg_module_release(state->open_values[--state->n_open_values]);
}

/* ---- fields ---- */

const eg__open_class *eg__open_class_of(const eg_module *m)
{
    for (const eg_class *c = m != NULL ? m->cls : NULL; c != NULL; c = c->super) {
        if (c->struct_size >= sizeof(eg_class) && c->open != NULL)
            return c->open;
    }
    return NULL;
}

double eg__open_largest(const eg_module *value)
{
    const eg__open_class *open = eg__open_class_of(value);
    double largest = -INFINITY;
    for (size_t i = 0; i < open->size(value); i++)
        largest = fmax(largest, open->value(value, i));
    return largest;
}

static const eg_field *field_named(const eg_module *m, const char *name)
{
    const eg_field *field;
    for (size_t i = 0; (field = eg__field_at(m->cls, i)) != NULL; i++) {
        if (eg__field_is_number(field) && strcmp(field->name, name) == 0)
            return field;
    }
    return NULL;
}

const eg_field *eg__open_slot(const eg_module *m, size_t i)
{
    eg_slot *slot = &m->slots[i];
    bool open = m->open != NULL && slot->kind == EG_SLOT_CHILD && eg__open_class_of(*eg__slot_child(slot)) != NULL;
    return open ? field_named(m, slot->name) : NULL;
}

eg_module *eg__open_field(const eg_module *m, const char *field)
{
    for (size_t i = 0; m->open != NULL && i < m->n_slots; i++) {
        if (strcmp(m->slots[i].name, field) == 0 && eg__open_slot(m, i) != NULL)
            return *eg__slot_child(&m->slots[i]);
    }
    return NULL;
}

size_t eg__child_slot(const eg_module *m, size_t i)
{
    for (size_t k = 0; k < m->n_slots; k++) {
        if (m->slots[k].kind == EG_SLOT_CHILD && eg__open_slot(m, k) == NULL && i-- == 0)
            return k;
    }
    return m->n_slots;
}

eg_module *eg__child_at(const eg_module *m, size_t i)
{
    size_t slot = eg__child_slot(m, i);
    return slot < m->n_slots ? *eg__slot_child(&m->slots[slot]) : NULL;
}

static eg_status check_values(eg_module *m, const eg_field *field, const eg_module *value)
{
    const eg__open_class *open = eg__open_class_of(value);
    bool whole = field->type == EG_FIELD_INT || field->type == EG_FIELD_HW;
    double limit = field->type == EG_FIELD_HW ? EG__MAX_HW : (double)HANDLE; /* larger ones mean something else */
    char text[EG__NUMBER_TEXT_SIZE];
    for (size_t i = 0; i < open->size(value); i++) {
        double number = open->value(value, i);
        EG_CHECK(!whole || number == floor(number), EG_EINVAL, "%s: '%s' is %s, expected a whole number", m->cls->name,
                 field->name, eg__number_text(number, text));
        EG_CHECK(!whole || fabs(number) <= limit, EG_EINVAL, "%s: '%s' is %s, expected at most %.0f", m->cls->name,
                 field->name, eg__number_text(number, text), limit);
        EG_CHECK(number != 0 || field->def <= 0 || field->type == EG_FIELD_OPT_FLOAT, EG_EINVAL,
                 "%s: '%s' cannot be 0, which stands for its default", m->cls->name, field->name);
        eg__field_set_number(m, field, number);
        EG_TRY(eg__field_check(m, field));
    }
    eg__field_set_number(m, field, eg__open_largest(value));
    return EG_OK;
}

static eg_status open_field(eg_module *m, const eg_field *field, eg_module *value)
{
    EG_TRY(check_values(m, field, value));
    EG_TRY(eg__open_make(m));
    eg_slot *slot = eg__slot_add_child(m, field->name, NULL);
    if (slot == NULL)
        return eg_error_last()->code;
    if (value->name == NULL)
        value->name = eg__strdup(field->name);
    *eg__slot_child(slot) = eg_module_retain(value);
    return value->name != NULL ? EG_OK : EG_ENOMEM;
}

static eg_status fail_no_handle(const eg_module *m, const eg_field *field)
{
    return eg_fail(EG_EINVAL,
                   "%s: '%s' is no live value choice: numbers made from one by arithmetic are none; give a second "
                   "eg_value_choice() with the same key",
                   m->cls->name, field->name);
}

bool eg__open_take(eg_module *m, const eg_field *field, eg_status *status)
{
    double number = eg__field_is_number(field) ? eg__field_number(m, field) : 0;
    if (!eg__open_is_handle(number))
        return false;
    eg_module *value = value_of_handle(m->ctx, (int64_t)number);
    if (value != NULL) {
        *status = open_field(m, field, value);
    } else if ((int64_t)number == HANDLE) {
        eg__null(m->cls->name, field->name);
        *status = eg_error_last()->code;
    } else {
        *status = fail_no_handle(m, field);
    }
    return true;
}

/* Far from all sizes that there are; what is made from a handle by small numbers is among them. */
static bool is_near_handle(double number)
{
    return fabs(number) >= (double)HANDLE / 256 && fabs(number) <= (double)HANDLE * 64;
}

/* EG_HW() makes the largest size of what is beyond it. */
static bool is_cut(eg_hw value)
{
    int64_t largest = 3 * EG_HW_BIAS_ - 1;
    return value >= EG_HW_PAIR_ && (eg_hw_h(value) == largest || eg_hw_w(value) == largest);
}

static bool holds_handle(const eg_module *m, const eg_field *field)
{
    const void *place = (const char *)m + field->offset;
    bool inside = field->type == EG_FIELD_HW && is_cut(*(const eg_hw *)place);
    for (int d = 0; field->type == EG_FIELD_SHAPE && d < EG_MAX_DIMS; d++)
        inside = inside || is_near_handle((double)((const eg_shape *)place)->dims[d]);
    return inside;
}

eg_status eg__open_check(eg_module *m, const eg_field *field)
{
    EG_CHECK(!holds_handle(m, field), EG_EINVAL,
             "%s: '%s' has a size out of range: a value choice stands for a whole field, not for a part of %s",
             m->cls->name, field->name, field->type == EG_FIELD_HW ? "EG_HW()" : "EG_SHAPE()");
    if (!eg__field_is_number(field) || !is_near_handle(eg__field_number(m, field)))
        return eg__field_check(m, field);
    eg__error_mark mark;
    eg__error_save(&mark);
    if (eg__field_check(m, field) == EG_OK)
        return EG_OK;
    eg__error_restore(&mark);
    return fail_no_handle(m, field);
}

/* ---- of files, and of other contexts ---- */

eg_status eg__open_register(eg_context *ctx, const eg__open_class *open)
{
    eg__nn_state *state = eg__nn_state_of(ctx);
    if (state == NULL)
        return EG_ENOMEM;
    state->open_class = open;
    return EG_OK;
}

static eg_status set_from_json(eg_module *prototype, const eg_field *field, const eg__open_class *open,
                               const json_t *json)
{
    eg_module *value = open->from_json(prototype->ctx, json);
    if (value == NULL)
        return eg_error_last()->code;
    eg__field_set_number(prototype, field, (double)eg__open_handle(prototype->ctx, value));
    return EG_OK;
}

eg_status eg__open_read(eg_module *prototype, const eg_field *field, const json_t *json)
{
    const eg__nn_state *state = eg__nn_state_of(prototype->ctx);
    if (state == NULL)
        return EG_ENOMEM;
    EG_CHECK(state->open_class != NULL, EG_EFORMAT, "is open, which this context cannot read: see eg_nas_register()");
    return set_from_json(prototype, field, state->open_class, json);
}

eg_status eg__open_lend(eg_module *prototype, const eg_module *m)
{
    for (size_t i = 0; i < m->n_slots; i++) {
        const eg_field *field = eg__open_slot(m, i);
        if (field == NULL)
            continue;
        const eg_module *value = *eg__slot_child(&m->slots[i]);
        json_t *json = eg__open_class_of(value)->to_json(value);
        eg_status status =
            json != NULL ? set_from_json(prototype, field, eg__open_class_of(value), json) : eg_error_last()->code;
        json_decref(json);
        EG_TRY(status);
    }
    return EG_OK;
}

bool eg__open_equal(const eg_module *a, const eg_module *b)
{
    const eg_field *field;
    for (size_t i = 0; (a->open != NULL || b->open != NULL) && (field = eg__field_at(a->cls, i)) != NULL; i++) {
        const eg_module *x = eg__open_field(a, field->name), *y = eg__open_field(b, field->name);
        if (x != y && (x == NULL || y == NULL || x->cls != y->cls || !eg__open_class_of(x)->equal(x, y)))
            return false;
    }
    return true;
}

/* ---- narrowing ---- */

/* A buffer's part is the buffer's own memory, so that what forward writes stays. */
static eg_tensor *new_view(eg_tensor *whole, eg_shape shape)
{
    int64_t offset = whole->offset;
    for (int d = 2; d < shape.ndim; d++)
        offset += (whole->shape.dims[d] - shape.dims[d]) / 2 * whole->strides[d];
    return eg__tensor_new_view(whole, shape, whole->strides, offset);
}

static eg_tensor *copy_part(eg_tensor *whole, eg_shape shape)
{
    eg_tensor *view = new_view(whole, shape);
    eg_tensor *copy = view != NULL ? eg__tensor_new(whole->ctx, whole->dtype, shape, EG_LAYOUT_ROW_MAJOR) : NULL;
    eg_status status = copy != NULL ? eg__tensor_copy_into(copy, view) : EG_ENOMEM;
    eg_tensor_release(view);
    if (status == EG_OK)
        status = eg_tensor_set_requires_grad(copy, eg_tensor_requires_grad(whole));
    if (status == EG_OK)
        return copy;
    eg_tensor_release(copy);
    return NULL;
}

/* While a trace listens, it learns what is a part of which parameter, and sees no operation. */
static eg_tensor *make_part(eg_slot *slot, eg_shape shape, eg__narrow_mode mode)
{
    eg_tensor *whole = *eg__slot_tensor(slot), *part;
    if (mode == EG__NARROW_COPIES)
        return copy_part(whole, shape);
    const eg__trace_sink *sink;
    if (eg__trace_set(whole->ctx, NULL, &sink) != EG_OK)
        return NULL;
    if (mode == EG__NARROW_SHAPES)
        part = eg__scope_add(eg__tensor_new_shape_only(whole->ctx, whole->dtype, shape, EG_LAYOUT_ROW_MAJOR));
    else
        part = slot->kind == EG_SLOT_PARAMETER ? eg__narrow(whole, shape) : eg__scope_add(new_view(whole, shape));
    eg__trace_set(whole->ctx, sink, NULL);
    if (part != NULL && sink != NULL && sink->on_part != NULL && slot->kind == EG_SLOT_PARAMETER &&
        sink->on_part(sink->payload, part, whole) != EG_OK)
        return NULL;
    return part;
}

static eg_status make_parts(eg_module *m, const eg_shape *shapes, eg__narrow_mode mode, eg__narrowed *out)
{
    for (size_t i = 0; i < m->n_slots; i++) {
        if (shapes[i].ndim < 0)
            continue;
        out->tensors[i] = make_part(&m->slots[i], shapes[i], mode);
        if (out->tensors[i] == NULL)
            return eg_error_last()->code;
    }
    return EG_OK;
}

static eg_status choose_current(void *payload, eg_module *value, size_t *i)
{
    (void)payload;
    return eg__open_class_of(value)->current(value, i);
}

static eg_status narrow(eg_module *m, eg__open_choose_fn choose, void *payload, eg__narrow_mode mode, eg__narrowed *out)
{
    bool smaller = false, tensors = false;
    for (size_t i = 0; i < m->n_slots; i++) {
        const eg_field *field = eg__open_slot(m, i);
        tensors = tensors || m->slots[i].kind != EG_SLOT_CHILD;
        if (field == NULL)
            continue;
        eg_module *value = *eg__slot_child(&m->slots[i]);
        size_t number = 0;
        EG_TRY(choose(payload, value, &number));
        out->values[i] = eg__open_class_of(value)->value(value, number);
        smaller = smaller || out->values[i] != eg__field_number(m, field);
    }
    if (mode == EG__NARROW_PARTS)
        eg__note_read(m->ctx, out->values, m->n_slots * sizeof(*out->values));
    if (!smaller || !tensors)
        return EG_OK;
    const eg_shape *shapes = eg__open_shapes(m, out->values);
    return shapes != NULL ? make_parts(m, shapes, mode, out) : eg_error_last()->code;
}

eg_status eg__open_narrow(eg_module *m, eg__open_choose_fn choose, void *payload, eg__narrow_mode mode,
                          eg__narrowed *out)
{
    *out = (eg__narrowed){.n = m->n_slots,
                          .values = eg__calloc(m->n_slots + 1, sizeof(*out->values)),
                          .tensors = eg__calloc(m->n_slots + 1, sizeof(eg_tensor *))};
    eg_status status = out->values != NULL && out->tensors != NULL ? EG_OK : EG_ENOMEM;
    if (status == EG_OK)
        status = narrow(m, choose != NULL ? choose : choose_current, payload, mode, out);
    if (status == EG_OK)
        return EG_OK;
    if (mode != EG__NARROW_COPIES && out->tensors != NULL) /* else they belong to the scope */
        memset(out->tensors, 0, m->n_slots * sizeof(eg_tensor *));
    eg__narrowed_free(out);
    return status;
}

void eg__narrowed_free(eg__narrowed *narrowed)
{
    for (size_t i = 0; narrowed->tensors != NULL && i < narrowed->n; i++)
        eg_tensor_release(narrowed->tensors[i]);
    free(narrowed->values);
    free(narrowed->tensors);
    *narrowed = (eg__narrowed){0};
}

/* ---- in place ---- */

static void exchange(eg_module *m, eg__narrowed *n)
{
    for (size_t i = 0; i < EG_MIN(n->n, m->n_slots); i++) {
        if (n->tensors[i] == NULL)
            continue;
        eg_tensor **place = eg__slot_tensor(&m->slots[i]), *other = *place;
        *place = n->tensors[i];
        n->tensors[i] = other;
    }
}

void eg__open_enter(eg_module *m, eg__narrowed *narrowed)
{
    exchange(m, narrowed);
    narrowed->active = true;
    for (size_t i = 0; i < m->n_slots; i++) {
        const eg_field *field = eg__open_slot(m, i);
        if (field != NULL)
            eg__field_set_number(m, field, narrowed->values[i]);
    }
}

void eg__open_leave(eg_module *m, eg__narrowed *narrowed)
{
    if (narrowed->active) {
        exchange(m, narrowed);
        for (size_t i = 0; i < m->n_slots; i++) {
            const eg_field *field = eg__open_slot(m, i);
            if (field != NULL)
                eg__field_set_number(m, field, eg__open_largest(*eg__slot_child(&m->slots[i])));
        }
    }
    free(narrowed->values);
    free(narrowed->tensors);
    *narrowed = (eg__narrowed){0};
}

void eg__open_close(eg_module *m, eg__narrowed *narrowed)
{
    exchange(m, narrowed);
    for (size_t i = m->n_slots; i-- > 0;) {
        const eg_field *field = eg__open_slot(m, i);
        if (field == NULL)
            continue;
        eg__field_set_number(m, field, narrowed->values[i]);
        eg__slot_remove(m, &m->slots[i]);
    }
    eg__narrowed_free(narrowed);
    eg__open_free(m);
}

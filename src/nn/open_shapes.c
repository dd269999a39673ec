/*
 * The shapes that a module's parameters have with certain values in its open fields, found out by making a module of
 * the same class with these values and looking at it: classes need to know nothing. It is made while the context gives
 * out no memory (see base/dry.c), and once for each combination of values.
 */
#include "nn/internal.h"

#include <stdlib.h>
#include <string.h>

/* The shapes that the tensors of a module's slots have with certain values in its open fields. */
typedef struct combination {
    double *values;   /* by slot; 0 for those that open no field */
    eg_shape *shapes; /* by slot; ndim -1 where nothing changes */
} combination;

struct eg_open {
    combination *combinations;
    size_t n, capacity;
    size_t n_slots; /* of the module when they were made */
};

enum { MAX_COMBINATIONS = 256 };

/* ---- life ---- */

static void forget(eg_open *open)
{
    for (size_t i = 0; i < open->n; i++) {
        free(open->combinations[i].values);
        free(open->combinations[i].shapes);
    }
    open->n = 0;
}

eg_status eg__open_make(eg_module *m)
{
    if (m->open == NULL)
        m->open = eg__calloc(1, sizeof(*m->open));
    return m->open != NULL ? EG_OK : EG_ENOMEM;
}

void eg__open_free(eg_module *m)
{
    if (m->open == NULL)
        return;
    forget(m->open);
    free(m->open->combinations);
    free(m->open);
    m->open = NULL;
}

/* ---- looking for one ---- */

/* What making a module would change in the context. */
typedef struct aside {
    eg_rng rng;
    uint64_t next_key;
    size_t n_open_values;
    const eg__trace_sink *sink;
    eg_tape *tape;
    bool dry;
} aside;

static eg_status step_aside(eg_context *ctx, aside *a)
{
    eg__error_mark mark;
    const eg__nn_state *state = eg__nn_state_of(ctx);
    if (state == NULL)
        return EG_ENOMEM;
    *a = (aside){.rng = *eg_context_rng(ctx), .n_open_values = state->n_open_values};
    EG_TRY(eg__trace_set(ctx, NULL, &a->sink));
    a->tape = eg_tape_begin(ctx, EG_NO_GRAD);
    if (a->tape == NULL) {
        eg__trace_set(ctx, a->sink, NULL);
        return EG_ENOMEM;
    }
    a->next_key = eg__context_set_next_key(ctx, 1);
    eg__error_save(&mark);
    a->dry = !eg__is_dry(ctx) && eg__dry_begin(ctx) == EG_OK;
    if (!a->dry)
        eg__error_restore(&mark); /* then it is made with memory */
    return EG_OK;
}

static void step_back(eg_context *ctx, aside *a)
{
    eg__open_forget(ctx, a->n_open_values);
    eg_tape_end(a->tape);
    if (a->dry)
        eg__dry_end(ctx);
    *eg_context_rng(ctx) = a->rng;
    eg__context_set_next_key(ctx, a->next_key);
    eg__trace_set(ctx, a->sink, NULL);
}

/* A module like m with these values. */
static eg_module *make_example(const eg_module *m, const double *values)
{
    eg_module *prototype = eg__calloc(1, m->cls->instance_size);
    if (prototype == NULL)
        return NULL;
    const eg_field *field;
    for (size_t i = 0; (field = eg__field_at(m->cls, i)) != NULL; i++)
        eg__field_lend(prototype, m, field);
    prototype->cls = m->cls;
    prototype->ctx = m->ctx;
    for (size_t i = 0; i < m->n_slots; i++) {
        field = eg__open_slot(m, i);
        if (field != NULL)
            eg__field_set_number(prototype, field, values[i]);
    }
    eg_module *example = eg_module_new(m->cls, m->cls->instance_size, prototype);
    free(prototype);
    return example;
}

static eg_status fill_shape(const eg_module *example, eg_slot *slot, eg_shape *shape)
{
    *shape = (eg_shape){.ndim = -1};
    if (slot->kind == EG_SLOT_CHILD || eg_is_none(*eg__slot_tensor(slot)))
        return EG_OK;
    eg_slot *equal = eg__slot_find(example, slot->name, strlen(slot->name));
    if (equal == NULL || equal->kind != slot->kind || eg_is_none(*eg__slot_tensor(equal)))
        return EG_OK;
    eg_shape whole = (*eg__slot_tensor(slot))->shape, part = (*eg__slot_tensor(equal))->shape;
    bool fits = whole.ndim == part.ndim;
    for (int d = 0; d < part.ndim && fits; d++)
        fits = part.dims[d] <= whole.dims[d];
    char text[2][EG_SHAPE_TEXT_SIZE];
    EG_CHECK(fits, EG_EINVAL, "'%s' would have to be %s, the largest values made it %s", slot->name,
             eg_shape_format(part, text[0], sizeof(text[0])), eg_shape_format(whole, text[1], sizeof(text[1])));
    if (!eg_shape_equal(whole, part))
        *shape = part;
    return EG_OK;
}

static eg_status find_shapes(const eg_module *m, const double *values, eg_shape *shapes)
{
    aside a;
    EG_TRY(step_aside(m->ctx, &a));
    eg_module *example = make_example(m, values);
    eg_status status = example != NULL ? EG_OK : eg_error_last()->code;
    for (size_t i = 0; status == EG_OK && i < m->n_slots; i++)
        status = fill_shape(example, &m->slots[i], &shapes[i]);
    eg_module_release(example);
    step_back(m->ctx, &a);
    return status;
}

/* The shapes for these values, which are taken over, also on failure. NULL on failure. */
static const eg_shape *add_combination(const eg_module *m, double *values)
{
    eg_open *open = m->open;
    eg_shape *shapes = eg__calloc(m->n_slots + 1, sizeof(*shapes));
    eg_status status = shapes != NULL ? find_shapes(m, values, shapes) : EG_ENOMEM;
    if (open->n == MAX_COMBINATIONS)
        forget(open);
    if (status == EG_OK)
        status = eg__grow(&open->combinations, &open->capacity, open->n + 1, sizeof(*open->combinations));
    if (status != EG_OK) {
        free(values);
        free(shapes);
        return NULL;
    }
    open->combinations[open->n++] = (combination){values, shapes};
    return shapes;
}

const eg_shape *eg__open_shapes(const eg_module *m, const double *values)
{
    eg_open *open = m->open;
    if (open->n_slots != m->n_slots)
        forget(open);
    open->n_slots = m->n_slots;
    for (size_t i = 0; i < open->n; i++) {
        bool equal = true;
        for (size_t k = 0; k < m->n_slots && equal; k++)
            equal = open->combinations[i].values[k] == values[k];
        if (equal)
            return open->combinations[i].shapes;
    }
    double *copy = eg__calloc(m->n_slots + 1, sizeof(*copy));
    if (copy == NULL)
        return NULL;
    memcpy(copy, values, m->n_slots * sizeof(*copy));
    return add_combination(m, copy);
}

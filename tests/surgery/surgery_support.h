/*
 * tests/surgery/surgery_support.h - what the tests of surgery share: a context for each test, fingerprints of models
 * and optimizers, policies of one line.
 */
#ifndef EG_TESTS_SURGERY_SUPPORT_H
#define EG_TESTS_SURGERY_SUPPORT_H

#include "support.h"

#include "engraft/layers.h"
#include "surgery/internal.h"

static eg_context *ctx;
static eg_tape *scope;

static inline int surgery_setup(void **state)
{
    (void)state;
    eg_error_clear();
    ctx = eg_context_new(.seed = 1, .threads = 1, .backend = "ref");
    scope = ctx != NULL ? eg_tape_begin(ctx, EG_NO_GRAD) : NULL;
    return scope == NULL;
}

static inline int surgery_teardown(void **state)
{
    (void)state;
    eg_tape_end(scope);
    size_t left = eg_context_get_stats(ctx).bytes_in_use;
    eg_context_free(ctx);
    return left != 0;
}

#define SURGERY_TEST(function) cmocka_unit_test_setup_teardown(function, surgery_setup, surgery_teardown)

/* ---- fingerprints: equal when nothing that surgery could change has changed ---- */

static inline uint64_t print_bytes(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ at[i]) * UINT64_C(1099511628211);
    return hash;
}

static inline uint64_t print_pointer(uint64_t hash, const void *pointer)
{
    return print_bytes(hash, &pointer, sizeof(pointer));
}

static inline uint64_t print_tensor(uint64_t hash, const eg_tensor *t)
{
    hash = print_pointer(hash, t);
    if (t == NULL || eg_is_none(t))
        return hash;
    size_t n = (size_t)eg_tensor_numel(t);
    float *numbers = calloc(n + 1, sizeof(*numbers));
    assert_non_null(numbers);
    if (t->dtype == EG_F32)
        assert_ok(eg_tensor_read(t, numbers, n));
    hash = print_bytes(hash, numbers, n * sizeof(*numbers));
    free(numbers);
    hash = print_bytes(hash, &t->requires_grad, sizeof(t->requires_grad));
    return print_bytes(hash, &t->shape.ndim, sizeof(t->shape.ndim));
}

/* Of m alone: its slots, and what they hold. */
static inline eg_status print_module(void *payload, const char *path, eg_module *m)
{
    uint64_t hash = print_bytes(*(uint64_t *)payload, path, strlen(path));
    hash = print_pointer(print_pointer(hash, m), m->cls);
    hash = print_bytes(hash, &m->training, sizeof(m->training));
    for (size_t i = 0; i < m->n_slots; i++) {
        eg_slot *slot = &m->slots[i];
        hash = print_bytes(hash, slot->name, strlen(slot->name));
        hash = slot->kind == EG_SLOT_CHILD ? print_pointer(hash, *eg__slot_child(slot))
                                           : print_tensor(hash, *eg__slot_tensor(slot));
    }
    for (size_t i = 0; i < m->n_hooks; i++)
        hash = print_bytes(hash, &m->hooks[i].id, sizeof(m->hooks[i].id));
    *(uint64_t *)payload = hash;
    return EG_OK;
}

/* Of a model and an optimizer (or NULL): structure, pointers, numbers, hooks, lists. */
static inline uint64_t fingerprint(eg_module *m, const eg_optimizer *o)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    assert_ok(eg_module_walk(m, print_module, &hash));
    for (size_t i = 0; o != NULL && i < o->n_params; i++) {
        const eg__param *p = &o->params[i];
        hash = print_tensor(print_bytes(hash, p->name, strlen(p->name)), p->tensor);
        for (size_t k = 0; k < EG__MAX_STATES; k++)
            hash = print_tensor(hash, p->states[k]);
        hash = print_bytes(hash, &p->step, sizeof(p->step));
        hash = print_bytes(hash, &p->group, sizeof(p->group));
    }
    return hash;
}

/* ---- optimizers ---- */

/* How often an optimizer has a tensor. */
static inline size_t times_in(const eg_optimizer *o, const eg_tensor *t)
{
    size_t n = 0;
    for (size_t i = 0; i < o->n_params; i++)
        n += o->params[i].tensor == t;
    return n;
}

/* ---- replacements ---- */

static inline eg_module *to_gelu(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_gelu(m->ctx);
}

static inline eg_module *to_sigmoid(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_sigmoid(m->ctx);
}

static inline eg_module *to_nothing(void *payload, eg_module *m, size_t index)
{
    (void)m;
    (void)index;
    if (payload != NULL)
        ++*(size_t *)payload;
    return NULL;
}

static inline eg_module *wrap(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_sequential(m->ctx, EG_MODULES(eg_module_retain(m)));
}

/* A linear layer of the same sizes. */
static inline eg_module *same_linear(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    const eg_linear *l = EG_CAST(m, eg_linear);
    return eg_linear(m->ctx, l->in_features, l->out_features, .no_bias = l->no_bias);
}

/* ---- numbers and notes ---- */

static inline double largest_difference(eg_tensor *a, eg_tensor *b)
{
    assert_made(a);
    assert_made(b);
    assert_true(eg_shape_equal(eg_tensor_shape(a), eg_tensor_shape(b)));
    size_t n = (size_t)eg_tensor_numel(a);
    float *v = calloc(2 * n, sizeof(*v));
    assert_ok(eg_tensor_read(a, v, n));
    assert_ok(eg_tensor_read(b, v + n, n));
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)v[i] - v[n + i]));
    free(v);
    return most;
}

static inline bool is_noted(const eg_surgery *s, const char *text)
{
    for (size_t i = 0; eg_surgery_note_at(s, i) != NULL; i++) {
        if (strstr(eg_surgery_note_at(s, i), text) != NULL)
            return true;
    }
    return false;
}

#endif

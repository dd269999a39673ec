/*
 * Linear layers that read the same tensor become parts of one.
 */
#include "engraft/methods.h"
#include "surgery/internal.h"

#include <stdlib.h>

/* A layer that may be part of one, with what it reads. */
typedef struct reader {
    eg_module *module;
    uint64_t input;
    bool allowed; /* it runs once and is at one of the paths */
    bool tied;    /* another module has its parameters, or asks for them (an adapter) */
    bool taken;   /* it is in a group already */
} reader;

typedef struct readers {
    eg_surgery *s;
    const char *at;
    reader *items;
    size_t n, capacity, n_fused;
} readers;

/* ---- finding them ---- */

static bool is_meant(const eg_module *m)
{
    return m != NULL && m->cls == &eg_linear_class && m->open == NULL && m->n_reparams == 0;
}

static eg_status add_reader(readers *r, eg_module *m, const char *path, uint64_t input)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->items[i].module == m) {
            r->items[i].allowed = false;
            return EG_OK;
        }
    }
    EG_TRY(eg__grow(&r->items, &r->capacity, r->n + 1, sizeof(*r->items)));
    r->items[r->n++] = (reader){.module = m, .input = input, .allowed = eg__path_matches(r->at, path)};
    return EG_OK;
}

static eg_status list_readers(readers *r, eg_module *root)
{
    eg_trace *trace = eg_trace_new(root, r->s->inputs, r->s->n_inputs);
    eg_status status = trace != NULL ? EG_OK : eg_error_last()->code;
    for (size_t i = 0; i < eg_trace_size(trace) && status == EG_OK; i++) {
        const eg_trace_op *op = eg_trace_at(trace, i);
        eg_module *m = eg__module_below(root, op->path);
        if (is_meant(m))
            status = add_reader(r, m, op->path, op->inputs[0]);
    }
    eg_trace_free(trace);
    return status;
}

static bool ties(const eg_module *m, eg_slot *slot, const eg_linear *l)
{
    if (slot->kind == EG_SLOT_CHILD)
        return m->cls == &eg_low_rank_adapter_class && *eg__slot_child(slot) == &l->base;
    const eg_tensor *t = *eg__slot_tensor(slot);
    return &l->base != m && t != NULL && !eg_is_none(t) && (t == l->weight || t == l->bias);
}

static eg_status note_ties(void *payload, const char *path, eg_module *m)
{
    readers *r = payload;
    (void)path;
    for (size_t k = 0; k < m->n_slots; k++) {
        for (size_t i = 0; i < r->n; i++)
            r->items[i].tied = r->items[i].tied || ties(m, &m->slots[k], (const eg_linear *)r->items[i].module);
    }
    return EG_OK;
}

/* ---- joining them ---- */

static bool go_together(const reader *a, const reader *b)
{
    const eg_linear *l = (const eg_linear *)a->module, *m = (const eg_linear *)b->module;
    return b->allowed && !b->tied && !b->taken && a->input == b->input && l->no_bias == m->no_bias &&
           l->weight->requires_grad == m->weight->requires_grad && l->bias->requires_grad == m->bias->requires_grad;
}

/* Of what belongs to the parts, side by side. Where one has none yet, the whole begins anew. */
static eg_tensor *join(void *payload, const char *what, eg_tensor *const *from, size_t n)
{
    (void)payload;
    (void)what;
    for (size_t i = 0; i < n; i++) {
        if (from[i] == NULL)
            return NULL;
    }
    return eg_concat(from, n, 0);
}

static eg_status fill(eg_surgery *s, eg_tensor *whole, eg_tensor **parts, size_t n)
{
    whole->requires_grad = parts[0]->requires_grad;
    eg_tape *scope = eg_tape_begin(s->ctx, EG_NO_GRAD);
    if (scope == NULL)
        return EG_ENOMEM;
    eg_tensor *numbers = eg_concat(parts, n, 0);
    eg_status status = numbers != NULL ? eg_tensor_assign(whole, numbers) : eg_error_last()->code;
    eg_tape_end(scope);
    return status == EG_OK ? eg_surgery_derive(s, whole, parts, n, join, NULL, NULL) : status;
}

static eg_status fill_all(eg_surgery *s, eg_parallel_linear *whole, eg_module *const *modules, size_t n)
{
    eg_tensor **parts = eg__calloc(n, sizeof(*parts));
    if (parts == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < n; i++)
        parts[i] = ((const eg_linear *)modules[i])->weight;
    eg_status status = fill(s, whole->weight, parts, n);
    for (size_t i = 0; i < n; i++)
        parts[i] = ((const eg_linear *)modules[i])->bias;
    if (status == EG_OK && !whole->no_bias)
        status = fill(s, whole->bias, parts, n);
    free(parts);
    return status;
}

static eg_status put_parts(eg_surgery *s, eg_module *whole, eg_module *const *modules, size_t n)
{
    int64_t first = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t size = ((const eg_linear *)modules[i])->out_features;
        eg_module *part =
            eg_linear_part(s->ctx, EG_NAMED({"linear", eg_module_retain(whole)}), .first = first, .out_features = size);
        EG_TRY(part != NULL ? eg_surgery_put(s, modules[i], part, "fuse_parallel_linear") : eg_error_last()->code);
        first += size;
    }
    return EG_OK;
}

static eg_status fuse(eg_surgery *s, eg_module *const *modules, size_t n)
{
    const eg_linear *l = (const eg_linear *)modules[0];
    int64_t out = 0;
    for (size_t i = 0; i < n; i++)
        out += ((const eg_linear *)modules[i])->out_features;
    eg_module *whole = eg_parallel_linear(s->ctx, l->in_features, out, .no_bias = l->no_bias, .n_parts = (int64_t)n);
    eg_status status = whole != NULL ? EG_OK : eg_error_last()->code;
    if (status == EG_OK)
        status = fill_all(s, EG_CAST(whole, eg_parallel_linear), modules, n);
    if (status == EG_OK)
        status = put_parts(s, whole, modules, n);
    eg_module_release(whole);
    return status;
}

/* Fuses the first of n readers with those that go with it. */
static eg_status fuse_with_others(eg_surgery *s, reader *first, size_t n, eg_module **modules, size_t *n_fused)
{
    size_t n_modules = 0;
    for (size_t i = 0; i < n && first->allowed && !first->tied && !first->taken; i++) {
        if (i > 0 && !go_together(first, &first[i]))
            continue;
        modules[n_modules++] = first[i].module;
        first[i].taken = i > 0;
    }
    *n_fused += n_modules > 1;
    return n_modules > 1 ? fuse(s, modules, n_modules) : EG_OK;
}

/* While the plan is in place. */
static eg_status fuse_all(void *payload, eg_module *root)
{
    readers *r = payload;
    EG_TRY(list_readers(r, root));
    EG_TRY(eg_module_walk(root, note_ties, r));
    eg_module **modules = eg__calloc(r->n + 1, sizeof(*modules));
    eg_status status = modules != NULL ? EG_OK : EG_ENOMEM;
    for (size_t i = 0; i < r->n && status == EG_OK; i++)
        status = fuse_with_others(r->s, &r->items[i], r->n - i, modules, &r->n_fused);
    free(modules);
    return status;
}

static eg_status plan(eg_module *options, eg_surgery *s, const char *at)
{
    (void)options;
    readers r = {.s = s, .at = at};
    eg_status status = eg_surgery_look(s, fuse_all, &r);
    free(r.items);
    if (status == EG_OK && r.n_fused == 0)
        status = eg_surgery_note(s, "fuse_parallel_linear found no layers to join");
    return status;
}

EG_METHOD(eg_fuse_parallel_linear, "fuse_parallel_linear", NULL,
          .help = "linear layers that read the same tensor are computed as one",
          .source = "Composer's fx_utils, with the weights; one product of many columns in place of several of few",
          .promise = EG_PROMISE_EXACT, .runs = true, .plan = plan);

/*
 * Changes planned one by one: what policies end in, and what methods do.
 */
#include "surgery/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- modules ---- */

typedef struct bound {
    eg_module **items;
    size_t n, capacity;
} bound;

static eg_status note_bound(void *payload, const char *path, eg_module *m)
{
    bound *b = payload;
    (void)path;
    if (m->extension == NULL)
        return EG_OK;
    EG_TRY(eg__grow(&b->items, &b->capacity, b->n + 1, sizeof(eg_module *)));
    b->items[b->n++] = m;
    return EG_OK;
}

/* A mutator goes on deciding for the modules it is bound to, whether they are in the model or not. */
static eg_status check_unbound(const eg__replacement *r)
{
    bound b = {0};
    if (r->old == r->fresh || (r->old->extension == NULL && r->old->n_slots == 0))
        return EG_OK;
    eg_status status = eg_module_walk(r->old, note_bound, &b);
    for (size_t i = 0; i < b.n && status == EG_OK; i++) {
        if (!eg__module_contains(r->fresh, b.items[i]))
            status = eg_fail(EG_EINVAL, "a %s is bound to a mutator: detach that before the module is replaced",
                             b.items[i]->cls->name);
    }
    free(b.items);
    return status;
}

static eg_status edit_places(eg_surgery *s, const eg__model_graph *graph, uint32_t vertex, eg_module *fresh)
{
    const eg__vertex *v = &graph->vertices[vertex];
    for (uint32_t i = 0; i < v->n_places; i++) {
        const eg__link *link = eg__model_graph_place(graph, vertex, i);
        EG_TRY(eg__surgery_edit(s, EG__EDIT_CHILD, graph->vertices[link->parent].module, link->slot, v->module, fresh));
    }
    if (vertex == 0)
        EG_TRY(eg__surgery_edit(s, EG__EDIT_PLACE, &s->root, 0, v->module, fresh));
    for (size_t i = 0; i < s->n_places; i++) {
        if (*s->places[i] == v->module)
            EG_TRY(eg__surgery_edit(s, EG__EDIT_PLACE, s->places[i], 0, v->module, fresh));
    }
    return EG_OK;
}

static eg_status name_fresh(eg_module *fresh, const eg_module *old)
{
    if (fresh->name != NULL || old->name == NULL)
        return EG_OK;
    fresh->name = eg__strdup(old->name);
    return fresh->name != NULL ? EG_OK : EG_ENOMEM;
}

eg_status eg__surgery_replace_vertex(eg_surgery *s, eg__model_graph *graph, uint32_t vertex,
                                     const eg__replacement *about)
{
    eg_module *old = about->old, *fresh = about->fresh;
    EG_TRY(check_unbound(about));
    EG_TRY(eg__surgery_carry(s, graph, about));
    EG_TRY(name_fresh(fresh, old));
    EG_TRY(eg__grow(&s->replacements, &s->replacements_capacity, s->n_replacements + 1, sizeof(*s->replacements)));
    if (old != fresh)
        EG_TRY(edit_places(s, graph, vertex, fresh));
    s->replacements[s->n_replacements++] = *about;
    eg_module_retain(old);
    eg_module_retain(fresh);
    return EG_OK;
}

static eg_status add_name(eg_surgery *s, const char *why, uint32_t *name)
{
    *name = 0;
    if (why == NULL)
        return EG_OK;
    EG_TRY(eg__grow(&s->names, &s->names_capacity, s->n_names + 1, sizeof(*s->names)));
    char *copy = eg__strdup(why);
    if (copy == NULL)
        return EG_ENOMEM;
    s->names[s->n_names++] = copy;
    *name = (uint32_t)s->n_names;
    return EG_OK;
}

static eg_status put(eg_surgery *s, eg_module *module, eg_module *fresh, const char *why)
{
    eg__model_graph *graph;
    uint32_t vertex, *ways;
    EG_TRY(eg__planned_graph(s, &graph, &ways)); /* one for all that is put while somebody looks */
    EG_TRY(eg__model_graph_find(graph, module, &vertex));
    EG_CHECK(vertex != EG__NO_VERTEX, EG_ENOENT, "the %s that was to be replaced is not in the model",
             module->cls->name);
    EG_CHECK(vertex != 0 || s->root_is_held, EG_EINVAL,
             "the model itself can be replaced only where .root says who holds it");
    eg__replacement r = {
        .old = module, .fresh = fresh, .without = (uint16_t)(s->without | EG_CARRY_WEIGHTS | EG_CARRY_BUFFERS)};
    EG_TRY(add_name(s, why, &r.policy));
    EG_TRY(eg__way_find(s, graph, ways, vertex, &r.way));
    return eg__surgery_replace_vertex(s, graph, vertex, &r);
}

eg_status eg_surgery_put(eg_surgery *s, eg_module *module, eg_module *fresh, const char *why)
{
    if (s == NULL || module == NULL || fresh == NULL) {
        eg__null(__func__, s == NULL ? "surgery" : module == NULL ? "module" : "new module");
        eg_module_release(fresh);
        return eg_error_last()->code;
    }
    size_t n_edits = s->n_edits, n_replacements = s->n_replacements;
    eg_status status =
        fresh->ctx == s->ctx
            ? eg__surgery_enter(s)
            : eg_fail(EG_EINVAL, "the new %s was made in another context than the model", fresh->cls->name);
    if (status == EG_OK) {
        status = put(s, module, fresh, why);
        eg__surgery_leave(s);
    }
    if (status == EG_OK && s->entered == 0) /* what is looked at shows the plan as it was */
        status = eg__surgery_check_acyclic(s);
    if (status != EG_OK)
        eg__surgery_cut(s, n_edits, n_replacements, s->n_derivations);
    eg_module_release(fresh);
    return status;
}

/* ---- tensors ---- */

eg_status eg_surgery_put_tensor(eg_surgery *s, eg_module *module, const char *name, eg_tensor *t)
{
    if (s == NULL || module == NULL || name == NULL || t == NULL) {
        eg__null(__func__, s == NULL ? "surgery" : module == NULL ? "module" : name == NULL ? "name" : "tensor");
        return eg_error_last()->code;
    }
    const eg_slot *slot = eg__slot_find(module, name, strlen(name));
    EG_CHECK(slot != NULL && slot->kind != EG_SLOT_CHILD, EG_ENOENT, "%s has no parameter or buffer '%s'",
             module->cls->name, name);
    EG_CHECK(eg_is_none(t) || t->ctx == s->ctx, EG_EINVAL, "the new '%s' was made in another context than the model",
             name);
    EG_TRY(eg__surgery_enter(s));
    eg_tensor *here = *eg__slot_tensor((eg_slot *)slot);
    eg__surgery_leave(s);
    return eg__surgery_edit(s, EG__EDIT_TENSOR, module, (uint32_t)(slot - module->slots), here, t);
}

static bool is_trainable(const eg_tensor *t)
{
    return t->storage != NULL && t->tape_id == 0 && (t->dtype == EG_F32 || t->dtype == EG_F64);
}

/* Whether a parameter is trained by all that is planned, also by what is not in place while the rest is. */
static eg_status find_trained(eg_surgery *s, const eg_tensor *parameter, bool *trained)
{
    if (s->n_flagged == SIZE_MAX) { /* of another look, or what was planned was forgotten */
        eg__ptr_map_free(&s->flagged);
        s->n_flagged = s->n_entered;
    }
    for (; s->n_flagged < s->n_edits; s->n_flagged++) {
        const eg__edit *edit = &s->edits[s->n_flagged];
        if (edit->kind == EG__EDIT_TRAINED)
            EG_TRY(eg__ptr_map_put(&s->flagged, edit->owner, edit->other));
    }
    void **flag = eg__ptr_map_find(&s->flagged, parameter);
    *trained = flag != NULL ? *flag != NULL : parameter->requires_grad;
    return EG_OK;
}

eg_status eg_surgery_set_trained(eg_surgery *s, eg_tensor *parameter, bool trained)
{
    if (s == NULL || parameter == NULL) {
        eg__null(__func__, s == NULL ? "surgery" : "parameter");
        return eg_error_last()->code;
    }
    EG_CHECK(is_trainable(parameter), EG_EINVAL, "only parameters of floating-point numbers can be trained");
    bool now;
    EG_TRY(eg__surgery_enter(s));
    eg_status status = find_trained(s, parameter, &now);
    eg__surgery_leave(s);
    if (status != EG_OK)
        return status;
    if (now == trained)
        return EG_OK;
    return eg__surgery_edit(s, EG__EDIT_TRAINED, parameter, 0, (void *)(uintptr_t)now, (void *)(uintptr_t)trained);
}

/* ---- where tensors come from ---- */

static eg_status add_derivation(eg_surgery *s, const eg__derivation *d, eg_tensor *const *from)
{
    EG_TRY(eg__grow(&s->derivations, &s->derivations_capacity, s->n_derivations + 1, sizeof(*s->derivations)));
    eg__derivation *added = &s->derivations[s->n_derivations];
    *added = *d;
    added->from = eg__calloc(d->n + 1, sizeof(eg_tensor *));
    if (added->from == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < d->n; i++)
        added->from[i] = eg_tensor_keep(from[i]);
    eg_tensor_keep(added->fresh);
    s->n_derivations++;
    s->checked = false;
    return EG_OK;
}

eg_status eg_surgery_derive(eg_surgery *s, eg_tensor *fresh, eg_tensor *const *from, size_t n, eg_derive_fn derive,
                            void *payload, void (*free_payload)(void *))
{
    eg_status status = EG_OK;
    if (s == NULL || fresh == NULL || (from == NULL && n > 0)) {
        eg__null(__func__, s == NULL ? "surgery" : fresh == NULL ? "new tensor" : "list of tensors");
        status = eg_error_last()->code;
    }
    for (size_t i = 0; i < n && status == EG_OK; i++) {
        if (from[i] == NULL)
            status = eg_fail(EG_EINVAL, "tensor %zu of %zu that another comes from is NULL", i, n);
    }
    eg__derivation d = {.fresh = fresh, .n = n, .derive = derive, .payload = payload, .free_payload = free_payload};
    if (status == EG_OK)
        status = add_derivation(s, &d, from);
    if (status != EG_OK && free_payload != NULL)
        free_payload(payload);
    return status;
}

typedef struct cut {
    int dim;
    size_t n;
    int64_t indices[];
} cut;

/* The entries of t that a cut says. */
static eg_tensor *cut_tensor(const cut *c, eg_tensor *t)
{
    size_t mark = eg__scope_enter(t->ctx);
    if (mark == SIZE_MAX)
        return NULL;
    eg_tensor *index = eg_from_labels(t->ctx, c->n, c->indices);
    eg_tensor *part = eg_index_select(eg_detach(t), c->dim, index);
    eg__scope_leave(t->ctx, mark, part);
    return part;
}

static eg_tensor *derive_cut(void *payload, const char *what, eg_tensor *const *from, size_t n)
{
    (void)what;
    (void)n;
    return from[0] != NULL ? cut_tensor(payload, from[0]) : NULL;
}

static cut *make_cut(const eg_tensor *t, int dim, const int64_t *indices, size_t n)
{
    if (dim < 0 || dim >= t->shape.ndim || n == 0) {
        eg_fail(EG_EINVAL, "cannot take %zu entries of dimension %d of %d", n, dim, t->shape.ndim);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        if (indices[i] < 0 || indices[i] >= t->shape.dims[dim]) {
            eg_fail(EG_EINVAL, "entry %lld of dimension %d, which has %lld", (long long)indices[i], dim,
                    (long long)t->shape.dims[dim]);
            return NULL;
        }
    }
    cut *c = eg__calloc(1, sizeof(*c) + n * sizeof(c->indices[0]));
    if (c == NULL)
        return NULL;
    *c = (cut){.dim = dim, .n = n};
    memcpy(c->indices, indices, n * sizeof(*indices));
    return c;
}

eg_tensor *eg_surgery_slice(eg_surgery *s, eg_tensor *from, int dim, const int64_t *indices, size_t n)
{
    if (s == NULL || from == NULL || indices == NULL)
        return eg__null(__func__, s == NULL ? "surgery" : from == NULL ? "tensor" : "list of indices");
    cut *c = make_cut(from, dim, indices, n);
    if (c == NULL)
        return NULL;
    eg_tensor *part = cut_tensor(c, from);
    if (part == NULL) {
        free(c);
        return NULL;
    }
    part->requires_grad = from->requires_grad;
    return eg_surgery_derive(s, part, &from, 1, derive_cut, c, free) == EG_OK ? part : NULL;
}

/* ---- looking ---- */

eg_status eg_surgery_look(eg_surgery *s, eg_surgery_look_fn fn, void *payload)
{
    if (s == NULL || fn == NULL) {
        eg__null(__func__, s == NULL ? "surgery" : "function");
        return eg_error_last()->code;
    }
    EG_TRY(eg__surgery_enter(s));
    eg_status status = fn(payload, s->root);
    eg__surgery_leave(s);
    return status;
}

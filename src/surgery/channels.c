/*
 * Models in other sizes: what a coupling says of its units, made real in new modules and tensors.
 */
#include "surgery/coupling.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is to be there ---- */

static int32_t *copies_of(const eg_coupling *c, size_t group, size_t unit)
{
    return &c->copies[c->sets[group][unit]];
}

eg_status eg_coupling_set(eg_coupling *c, size_t group, size_t unit, int copies)
{
    if (c == NULL) {
        eg__null(__func__, "coupling");
        return eg_error_last()->code;
    }
    EG_CHECK(group < c->n_groups && unit < c->groups[group].n_units, EG_EINVAL, "there is no unit %zu of group %zu",
             unit, group);
    const eg_coupled_group *g = &c->groups[group];
    EG_CHECK(g->fixed == NULL, EG_EINVAL, "group %zu (%s) is fixed: %s", group, g->parts[0].path, g->fixed);
    EG_CHECK(copies >= 0 && copies <= 65536, EG_EINVAL, "%d copies of a unit, expected 0 to 65536", copies);
    EG_CHECK(copies < 2 || g->mixed == NULL, EG_EINVAL, "group %zu (%s) cannot have more units: %s", group,
             g->parts[0].path, g->mixed);
    EG_CHECK(copies < 2 || !g->single, EG_EINVAL,
             "group %zu (%s) cannot have more units: what hangs together crosses the borders of groups", group,
             g->parts[0].path);
    bool others = copies > 0;
    for (size_t i = 0; i < g->n_units && !others; i++)
        others = i != unit && *copies_of(c, group, i) > 0;
    EG_CHECK(others, EG_EINVAL, "the last unit of group %zu (%s) cannot go", group, g->parts[0].path);
    *copies_of(c, group, unit) = copies;
    return EG_OK;
}

/* ---- tensors ---- */

/* How a tensor comes from one of another size: of each dimension the old index of each new one (NULL: all as they are),
 * and how often that is there. */
typedef struct resizing {
    int ndim, takes; /* takes: the dimension that is summed over; -1 = none */
    int64_t *indices[EG_MAX_DIMS];
    float *copies[EG_MAX_DIMS]; /* NULL where each is there once */
    size_t n[EG_MAX_DIMS];
} resizing;

static void free_resizing(void *payload)
{
    resizing *r = payload;
    for (int d = 0; d < r->ndim; d++) {
        free(r->indices[d]);
        free(r->copies[d]);
    }
    free(r);
}

/* Indices in a row that are of one set are copied together: channels that became a block of features each. */
static eg_status fill_dim(eg_coupling *c, uint32_t tensor, int d, resizing *r)
{
    eg__ties *ties = &c->ties;
    int64_t size = ties->tensors[tensor].shape.dims[d], now = eg__copied(ties, tensor, d, size, c->copies);
    bool same = true, more = false;
    for (int64_t i = 0; i < size; i++) {
        int32_t copies = c->copies[eg__ties_find(ties, eg__node_at(ties, tensor, d, i))];
        same = same && copies == 1;
        more = more || copies > 1;
    }
    if (same)
        return EG_OK;
    EG_CHECK(now > 0, EG_EINVAL, "nothing would be left of a dimension");
    r->indices[d] = eg__calloc((size_t)now, sizeof(int64_t));
    r->copies[d] = more ? eg__calloc((size_t)now, sizeof(float)) : NULL;
    if (r->indices[d] == NULL || (more && r->copies[d] == NULL))
        return EG_ENOMEM;
    for (int64_t i = 0, n; i < size; i += n) {
        uint32_t set = eg__ties_find(ties, eg__node_at(ties, tensor, d, i));
        for (n = 1; i + n < size && eg__ties_find(ties, eg__node_at(ties, tensor, d, i + n)) == set;)
            n++;
        for (int64_t k = 0; k < n * c->copies[set]; k++, r->n[d]++) {
            r->indices[d][r->n[d]] = i + k % n;
            if (more)
                r->copies[d][r->n[d]] = (float)c->copies[set];
        }
    }
    return EG_OK;
}

/* Times 1 / copies (or its square) along a dimension. */
static eg_tensor *share_out(eg_tensor *t, int d, const resizing *r, bool squared)
{
    eg_shape shape = {.ndim = t->shape.ndim};
    for (int k = 0; k < shape.ndim; k++)
        shape.dims[k] = k == d ? (int64_t)r->n[d] : 1;
    eg_tensor *copies = eg_cast(eg_from_data(t->ctx, shape, r->copies[d]), t->dtype);
    eg_tensor *shared = eg_div(t, copies);
    return squared ? eg_div(shared, copies) : shared;
}

/* What a parameter takes is divided among the copies, so the gradient of what makes them is, and not its own. */
static eg_tensor *resized(const resizing *r, eg_tensor *t, const char *what)
{
    t = eg_detach(t);
    for (int d = 0; d < r->ndim; d++) {
        if (r->indices[d] == NULL)
            continue;
        t = eg_index_select(t, d, eg_from_labels(t != NULL ? t->ctx : NULL, r->n[d], r->indices[d]));
        bool is_taken = d == r->takes;
        if (t != NULL && r->copies[d] != NULL && is_taken == (what == NULL))
            t = share_out(t, d, r, what != NULL && strstr(what, "_sq") != NULL);
        if (t == NULL)
            return NULL;
    }
    return t;
}

static eg_tensor *derive_resized(void *payload, const char *what, eg_tensor *const *from, size_t n)
{
    (void)n;
    return from[0] != NULL ? resized(payload, from[0], what) : NULL;
}

static bool changes(const resizing *r)
{
    bool any = false;
    for (int d = 0; d < r->ndim; d++)
        any = any || r->indices[d] != NULL;
    return any;
}

/* The new tensor of an owner, kept; *fresh stays NULL where nothing changes. */
static eg_status resize_tensor(eg_surgery *s, eg_coupling *c, const eg__owner *o, eg_tensor **fresh)
{
    eg_tensor *old = c->ties.tensors[o->tensor].leaf;
    resizing *r = eg__calloc(1, sizeof(*r));
    if (r == NULL)
        return EG_ENOMEM;
    const char *dot = strrchr(o->path, '.');
    int makes;
    r->ndim = old->shape.ndim;
    eg__features_of(o->module, dot != NULL ? dot + 1 : o->path, &makes, &r->takes);
    eg_status status = EG_OK;
    for (int d = 0; d < r->ndim && status == EG_OK; d++)
        status = fill_dim(c, o->tensor, d, r);
    if (status != EG_OK || !changes(r)) {
        free_resizing(r);
        return status;
    }
    eg_tensor *made = eg_tensor_keep(resized(r, old, NULL));
    if (made == NULL) {
        free_resizing(r);
        return eg_error_last()->code;
    }
    made->requires_grad = old->requires_grad;
    status = eg_surgery_derive(s, made, &old, 1, derive_resized, r, free_resizing);
    if (status == EG_OK)
        *fresh = made;
    else
        eg_tensor_release(made);
    return status;
}

/* ---- modules ---- */

/* The new tensors by the old ones, which both are kept elsewhere. */
static eg_tensor *now_for(const eg__ptr_map *fresh, eg_tensor *old)
{
    void **found = eg__ptr_map_find(fresh, old);
    return found != NULL ? *found : old;
}

/* Puts what the old module has into a new one of its class: new tensors, other tensors and children themselves. */
static eg_status fill_module(eg_module *m, const eg_module *old, const eg__ptr_map *fresh)
{
    EG_CHECK(m->n_slots == old->n_slots, EG_EUNSUPPORTED, "a %s with slots that its class does not make",
             old->cls->name);
    for (size_t i = 0; i < old->n_slots; i++) {
        eg_slot *from = &old->slots[i], *to = eg__slot_find(m, from->name, strlen(from->name));
        EG_CHECK(to != NULL && to->kind == from->kind, EG_EUNSUPPORTED, "%s: its class makes no '%s'", old->cls->name,
                 from->name);
        if (from->kind == EG_SLOT_CHILD) {
            eg_module **place = eg__slot_child(to);
            eg_module_release(*place);
            *place = eg_module_retain(*eg__slot_child(from));
            continue;
        }
        eg_tensor **place = eg__slot_tensor(to), *t = now_for(fresh, *eg__slot_tensor(from));
        EG_CHECK(eg_is_none(t) == eg_is_none(*place) && (eg_is_none(t) || eg_shape_equal(t->shape, (*place)->shape)),
                 EG_EUNSUPPORTED, "no %s has its '%s' in the size that is left", old->cls->name, from->name);
        eg_tensor *was = *place;
        *place = eg_tensor_keep(t);
        eg_tensor_release(was);
    }
    return EG_OK;
}

/* The slots as they will be: copies that lend their tensors. */
static eg_slot *future_slots(const eg_module *m, const eg__ptr_map *fresh)
{
    eg_slot *slots = eg__calloc(m->n_slots + 1, sizeof(*slots));
    for (size_t i = 0; i < m->n_slots && slots != NULL; i++) {
        slots[i] = (eg_slot){.name = m->slots[i].name, .kind = m->slots[i].kind};
        if (slots[i].kind != EG_SLOT_CHILD)
            slots[i].own.tensor = now_for(fresh, *eg__slot_tensor(&m->slots[i]));
    }
    return slots;
}

static eg_module *remake(const eg_module *old, const eg__ptr_map *fresh)
{
    eg_module *prototype = eg__calloc(1, old->cls->instance_size), *m = NULL;
    eg_slot *slots = prototype != NULL ? future_slots(old, fresh) : NULL;
    if (slots != NULL) {
        eg__fields_lend(prototype, old);
        prototype->cls = old->cls;
        prototype->ctx = old->ctx;
        eg__resizable_of(old)->fit(prototype, slots, old->n_slots);
        eg_rng *stream = eg_context_rng(old->ctx), kept = *stream; /* its numbers are not used */
        m = eg_module_new(old->cls, old->cls->instance_size, prototype);
        *stream = kept;
    }
    if (m != NULL && fill_module(m, old, fresh) != EG_OK) {
        eg_module_release(m);
        m = NULL;
    }
    free(slots);
    free(prototype);
    return m;
}

static bool has_fresh(const eg_module *m, const eg__ptr_map *fresh)
{
    bool any = false;
    for (size_t i = 0; i < m->n_slots && !any; i++)
        any = m->slots[i].kind != EG_SLOT_CHILD && eg__ptr_map_find(fresh, *eg__slot_tensor(&m->slots[i])) != NULL;
    return any;
}

/* Parents come first: a new one holds its old children, which are then found there. */
static eg_status put_modules(eg_surgery *s, const eg_coupling *c, const eg__ptr_map *fresh)
{
    for (size_t i = 0; i < c->n_modules; i++) {
        eg_module *old = c->modules[i], *m = NULL;
        EG_TRY(eg__surgery_enter(s)); /* what it holds may be planned too */
        bool meant = has_fresh(old, fresh);
        if (meant)
            m = remake(old, fresh);
        eg__surgery_leave(s);
        if (meant)
            EG_TRY(m != NULL ? eg_surgery_put(s, old, m, "resized") : eg_error_last()->code);
    }
    return EG_OK;
}

static eg_status resize(eg_surgery *s, eg_coupling *c, eg_tensor **made, eg__ptr_map *fresh)
{
    for (size_t i = 0; i < c->n_owners; i++) {
        eg_tensor *old = c->ties.tensors[c->owners[i].tensor].leaf;
        if (eg__ptr_map_find(fresh, old) != NULL)
            continue;
        EG_TRY(resize_tensor(s, c, &c->owners[i], &made[i]));
        if (made[i] != NULL)
            EG_TRY(eg__ptr_map_put(fresh, old, made[i]));
    }
    return put_modules(s, c, fresh);
}

eg_status eg__surgery_resize(eg_surgery *s, eg_coupling *c)
{
    size_t n_edits = s->n_edits, n_replacements = s->n_replacements, n_derivations = s->n_derivations;
    eg__ptr_map fresh = {0};
    eg_tensor **made = eg__calloc(c->n_owners + 1, sizeof(eg_tensor *));
    size_t mark = made != NULL ? eg__scope_enter(s->ctx) : SIZE_MAX;
    eg_status status = mark != SIZE_MAX ? resize(s, c, made, &fresh) : EG_ENOMEM;
    eg__scope_leave(s->ctx, mark, NULL);
    if (status != EG_OK)
        eg__surgery_cut(s, n_edits, n_replacements, n_derivations);
    for (size_t i = 0; i < c->n_owners && made != NULL; i++)
        eg_tensor_release(made[i]);
    free(made);
    eg__ptr_map_free(&fresh);
    return status;
}

eg_status eg_surgery_resize(eg_surgery *s, const eg_coupling *coupling)
{
    if (s == NULL || coupling == NULL) {
        eg__null(__func__, s == NULL ? "surgery" : "coupling");
        return eg_error_last()->code;
    }
    eg_coupling *c = (eg_coupling *)(uintptr_t)coupling; /* finding a set shortens ways to it */
    EG_CHECK(s->n_inputs > 0, EG_EINVAL, "resizing has to run the model: give the surgery .inputs");
    size_t n_edits = s->n_edits, n_replacements = s->n_replacements, n_derivations = s->n_derivations, step;
    bool follows;
    EG_TRY(eg__surgery_resize(s, c));
    eg_status status = eg__surgery_verify(s, c, &step, &follows);
    if (status == EG_OK && !follows)
        status = eg_fail(EG_EUNSUPPORTED, "%s '%s' does not follow: the code of the model has a number in it",
                         c->ties.steps[step].op->name, c->ties.steps[step].path);
    if (status != EG_OK)
        eg__surgery_cut(s, n_edits, n_replacements, n_derivations);
    return status;
}

/*
 * What optimizers have after a surgery: a new list of parameters for each, made before anything is changed, and
 * exchanged with the old one by the commit.
 *
 * A parameter that is still in the model stays, with its states. One that is made from others takes their place, with
 * states made likewise. One that is quite new goes where those of the module went whose place its own has taken, or
 * else where its neighbours in the model are. What is not trained goes nowhere.
 */
#include "surgery/internal.h"

#include <stdlib.h>
#include <string.h>

/* A parameter of the model, after it or before it, once. */
typedef struct entry {
    eg_tensor *tensor;
    const eg_module *owner;
    const char *name; /* its slot's */
    char *path;
} entry;

typedef struct params {
    entry *items;
    size_t n, capacity;
    eg__ptr_map index; /* tensor -> number + 1 */
} params;

typedef struct planning {
    eg_surgery *s;
    params before, after;
    eg__ptr_map origins; /* new module -> replacement + 1 */
    size_t *earlier;     /* of each replacement, the one that its old module came with; SIZE_MAX = the model had it */
    eg__ptr_map derived; /* new parameter -> derivation + 1 */
    eg__ptr_map flagged; /* parameters of which the plan says whether they are trained */
    eg__ptr_map holders; /* parameter -> optimizer + 1 */
} planning;

static size_t find_number(const eg__ptr_map *map, const void *key)
{
    void **known = eg__ptr_map_find(map, key);
    return known != NULL ? (size_t)(uintptr_t)*known - 1 : SIZE_MAX;
}

static eg_status put_number(eg__ptr_map *map, const void *key, size_t number)
{
    return eg__ptr_map_put(map, key, (void *)(uintptr_t)(number + 1));
}

/* ---- parameters of a model ---- */

static eg_status add_param(params *list, const eg__model_graph *graph, uint32_t vertex, const eg_slot *slot)
{
    const eg_module *m = graph->vertices[vertex].module;
    eg_tensor *t = slot->kind == EG_SLOT_PARAMETER ? *eg__slot_tensor((eg_slot *)slot) : NULL;
    if (t == NULL || eg_is_none(t) || eg__ptr_map_find(&list->index, t) != NULL)
        return EG_OK;
    EG_TRY(eg__grow(&list->items, &list->capacity, list->n + 1, sizeof(*list->items)));
    eg__buf path = {0};
    EG_TRY(eg__model_graph_path(graph, vertex, &path));
    eg__buf_printf(&path, "%s%s", path.len > 0 ? "." : "", slot->name);
    char *text = eg__buf_take(&path);
    if (text == NULL)
        return EG_ENOMEM;
    list->items[list->n] = (entry){t, m, slot->name, text};
    return put_number(&list->index, t, list->n++);
}

/* In the order of the state dict. */
static eg_status list_params(params *list, eg_module *root)
{
    eg__model_graph graph = {0};
    eg_status status = eg__model_graph_build(&graph, root);
    if (status == EG_OK)
        status = eg__model_graph_sort(&graph);
    for (size_t i = 0; i < graph.n_vertices && status == EG_OK; i++) {
        const eg_module *m = graph.vertices[graph.order[i]].module;
        for (size_t k = 0; k < m->n_slots && status == EG_OK; k++)
            status = add_param(list, &graph, graph.order[i], &m->slots[k]);
    }
    eg__model_graph_free(&graph);
    return status;
}

static void free_params(params *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->items[i].path);
    free(list->items);
    eg__ptr_map_free(&list->index);
}

/* Which replacement a module came with: of modules in modules the last. */
static eg_status note_origin(planning *p, size_t i)
{
    const eg__replacement *r = &p->s->replacements[i];
    p->earlier[i] = find_number(&p->origins, r->old);
    eg__model_graph below = {0};
    eg_status status = eg__model_graph_build(&below, r->fresh);
    for (size_t k = 0; k < below.n_vertices && status == EG_OK; k++)
        status = put_number(&p->origins, below.vertices[k].module, i);
    eg__model_graph_free(&below);
    return status;
}

static eg_status note_plan(planning *p)
{
    const eg_surgery *s = p->s;
    p->earlier = eg__calloc(s->n_replacements + 1, sizeof(*p->earlier));
    if (p->earlier == NULL)
        return EG_ENOMEM;
    for (size_t i = eg__committed_replacements(s); i < s->n_replacements; i++)
        EG_TRY(note_origin(p, i));
    for (size_t i = 0; i < s->n_derivations; i++)
        EG_TRY(put_number(&p->derived, s->derivations[i].fresh, i));
    for (size_t i = eg__committed_edits(s); i < s->n_edits; i++) {
        if (s->edits[i].kind == EG__EDIT_TRAINED)
            EG_TRY(eg__ptr_map_put(&p->flagged, s->edits[i].owner, NULL));
    }
    for (size_t i = 0; i < s->n_optimizers; i++) {
        for (size_t k = 0; k < s->optimizers[i]->n_params; k++)
            EG_TRY(put_number(&p->holders, s->optimizers[i]->params[k].tensor, i));
    }
    return EG_OK;
}

/* ---- where a new parameter belongs ---- */

/* The new list of one optimizer, with a key for its order. */
typedef struct placed {
    eg__param param;
    size_t anchor, after; /* the old parameter it comes after, and how long after */
} placed;

typedef struct list {
    planning *p;
    eg_optimizer *o;
    size_t number;     /* of the optimizer */
    eg__ptr_map index; /* tensor -> old parameter + 1 */
    placed *items;
    size_t n, capacity;
    size_t *last_anchor; /* of each group; SIZE_MAX = none yet */
} list;

static size_t find_old(const list *l, const eg_tensor *t)
{
    return find_number(&l->index, t);
}

/* What the donor of a group is worth for a parameter. */
static int likeness(const entry *a, const entry *b)
{
    return 1 + 2 * (a->tensor->shape.ndim == b->tensor->shape.ndim) + 4 * (strcmp(a->name, b->name) == 0);
}

/* The likest of the parameters of the module that gave way, and whether it had any that the model had. */
static eg_status ask_old_module(const list *l, const entry *wanted, eg_module *old, size_t *donor, bool *had)
{
    params olds = {0};
    int best = 0;
    *had = false;
    eg_status status = list_params(&olds, old);
    for (size_t i = 0; i < olds.n; i++) {
        const entry *e = &olds.items[i];
        size_t at = find_old(l, e->tensor);
        *had = *had || find_number(&l->p->before.index, e->tensor) != SIZE_MAX;
        if (at != SIZE_MAX && likeness(e, wanted) > best) {
            best = likeness(e, wanted);
            *donor = at;
        }
    }
    free_params(&olds);
    return status;
}

/* The nearest parameter of the model before this one, or else after it, that any optimizer has: if it is this one. */
static size_t ask_neighbours(const list *l, size_t i)
{
    const params *after = &l->p->after;
    size_t holder = SIZE_MAX, k = i;
    while (k > 0 && holder == SIZE_MAX)
        holder = find_number(&l->p->holders, after->items[--k].tensor);
    if (holder == SIZE_MAX) {
        for (k = i + 1; k < after->n && holder == SIZE_MAX; k++)
            holder = find_number(&l->p->holders, after->items[k].tensor);
        k--;
    }
    return holder == l->number ? find_old(l, after->items[k].tensor) : SIZE_MAX;
}

/* The old parameter whose group the new one joins; SIZE_MAX: this optimizer has nothing to do with it. */
static eg_status find_donor(const list *l, size_t i, size_t *donor)
{
    const planning *p = l->p;
    const entry *e = &p->after.items[i];
    *donor = SIZE_MAX;
    for (size_t at = find_number(&p->origins, e->owner); at != SIZE_MAX; at = p->earlier[at]) {
        bool had;
        EG_TRY(ask_old_module(l, e, p->s->replacements[at].old, donor, &had));
        if (had)
            return EG_OK;
    }
    *donor = ask_neighbours(l, i);
    return EG_OK;
}

/* ---- states of what is derived ---- */

/* In the parameter's memory order; it lasts as long as the optimizer. */
static eg_status copy_state(const eg_tensor *made, const eg_tensor *param, const char *what, eg_tensor **out)
{
    EG_CHECK(eg_shape_equal(made->shape, param->shape), EG_ESHAPE,
             "'%s' of a new parameter was made in another shape than it has", what);
    bool before = eg__pool_lasting(param->ctx, true);
    *out = eg__tensor_new_like(param);
    eg__pool_lasting(param->ctx, before);
    return *out != NULL ? eg_tensor_assign(*out, made) : eg_error_last()->code;
}

static eg_status derive_one(const eg__derivation *d, const char *what, eg_tensor *const *from, eg_tensor **out)
{
    bool any = false;
    for (size_t i = 0; i < d->n; i++)
        any = any || from[i] != NULL;
    if (!any || d->derive == NULL)
        return EG_OK;
    size_t mark = eg__scope_enter(d->fresh->ctx);
    if (mark == SIZE_MAX)
        return EG_ENOMEM;
    eg__error_mark before;
    eg__error_save(&before);
    eg_error_clear();
    eg_tensor *made = d->derive(d->payload, what, from, d->n);
    eg_status status = made == NULL ? eg_error_last()->code : copy_state(made, d->fresh, what, out);
    if (status == EG_OK)
        eg__error_restore(&before);
    eg__scope_leave(d->fresh->ctx, mark, NULL);
    return status;
}

static eg_status derive_states(const list *l, const eg__derivation *d, eg__param *param)
{
    eg_tensor **from = eg__calloc(d->n + 1, sizeof(eg_tensor *));
    if (from == NULL)
        return EG_ENOMEM;
    eg_status status = EG_OK;
    for (size_t k = 0; k < l->o->n_states && status == EG_OK; k++) {
        for (size_t i = 0; i < d->n; i++) {
            size_t at = find_old(l, d->from[i]);
            from[i] = at != SIZE_MAX ? l->o->params[at].states[k] : NULL;
        }
        status = derive_one(d, l->o->kind->states[k], from, &param->states[k]);
    }
    free(from);
    return status;
}

/* ---- the new list ---- */

/* Its prefix stays, the path follows the model. NULL on failure. */
static char *name_kept(const list *l, const eg__param *old, const entry *now)
{
    size_t before = find_number(&l->p->before.index, old->tensor);
    const char *path = before != SIZE_MAX ? l->p->before.items[before].path : "";
    size_t len = strlen(old->name), tail = strlen(path);
    if (tail == 0 || tail > len || strcmp(old->name + len - tail, path) != 0)
        return eg__strdup(old->name);
    return eg__format("%.*s%s", (int)(len - tail), old->name, now->path);
}

/* A new parameter is called as its donor is, with its own path. */
static char *name_new(const list *l, const eg__param *donor, const entry *now)
{
    size_t before = find_number(&l->p->before.index, donor->tensor);
    const char *path = before != SIZE_MAX ? l->p->before.items[before].path : "";
    size_t len = strlen(donor->name), tail = strlen(path);
    bool follows = tail > 0 && tail <= len && strcmp(donor->name + len - tail, path) == 0;
    return eg__format("%.*s%s", follows ? (int)(len - tail) : 0, donor->name, now->path);
}

static void free_param(eg__param *param)
{
    for (size_t k = 0; k < EG__MAX_STATES; k++)
        eg_tensor_release(param->states[k]);
    eg_tensor_release(param->tensor);
    free(param->name);
}

/* Takes the parameter over, also on failure. */
static eg_status place(list *l, eg__param param, size_t anchor)
{
    bool kept = anchor != SIZE_MAX && l->o->params[anchor].tensor == param.tensor;
    size_t *last = &l->last_anchor[param.group];
    eg_tensor_keep(param.tensor);
    eg_status status = eg__grow(&l->items, &l->capacity, l->n + 1, sizeof(*l->items));
    if (status != EG_OK) {
        free_param(&param);
        return status;
    }
    if (kept || *last == SIZE_MAX)
        *last = anchor;
    l->items[l->n] = (placed){.param = param, .anchor = *last, .after = kept ? 0 : l->n + 1};
    l->n++;
    return param.name != NULL ? EG_OK : EG_ENOMEM;
}

static eg_status place_kept(list *l, size_t at, const entry *now)
{
    const eg__param *old = &l->o->params[at];
    eg__param param = *old;
    param.name = now != NULL ? name_kept(l, old, now) : eg__strdup(old->name);
    for (size_t k = 0; k < EG__MAX_STATES; k++) {
        if (param.states[k] != NULL)
            eg_tensor_keep(param.states[k]);
    }
    return place(l, param, at);
}

static eg_status place_new(list *l, size_t i)
{
    const entry *e = &l->p->after.items[i];
    size_t derived = find_number(&l->p->derived, e->tensor);
    const eg__derivation *d = derived != SIZE_MAX ? &l->p->s->derivations[derived] : NULL;
    size_t donor = SIZE_MAX;
    for (size_t k = 0; d != NULL && k < d->n && donor == SIZE_MAX; k++)
        donor = find_old(l, d->from[k]);
    if (d == NULL || d->n == 0)
        EG_TRY(find_donor(l, i, &donor));
    if (donor == SIZE_MAX)
        return EG_OK;
    const eg__param *from = &l->o->params[donor];
    eg__param param = {.name = name_new(l, from, e), .tensor = e->tensor, .group = from->group};
    eg_status status = EG_OK;
    if (d != NULL && d->n > 0 && d->derive != NULL) {
        param.step = from->step;
        status = derive_states(l, d, &param);
    }
    eg_status placed_status = place(l, param, donor);
    return status != EG_OK ? status : placed_status;
}

static int compare_places(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    if (x->anchor != y->anchor)
        return x->anchor < y->anchor ? -1 : 1;
    return x->after < y->after ? -1 : x->after > y->after;
}

/* What the plan itself took out of training leaves the optimizers; what was frozen before stays where it is. */
static eg_status place_entry(list *l, size_t i)
{
    const planning *p = l->p;
    const entry *e = &p->after.items[i];
    size_t at = find_old(l, e->tensor);
    bool was = find_number(&p->before.index, e->tensor) != SIZE_MAX;
    bool flagged = eg__ptr_map_find(&p->flagged, e->tensor) != NULL;
    if (at != SIZE_MAX)
        return flagged && !e->tensor->requires_grad ? EG_OK : place_kept(l, at, e);
    return e->tensor->requires_grad && (!was || flagged) ? place_new(l, i) : EG_OK;
}

static eg_status fill_list(list *l)
{
    const planning *p = l->p;
    for (size_t i = 0; i < l->o->n_params; i++)
        EG_TRY(put_number(&l->index, l->o->params[i].tensor, i));
    for (size_t i = 0; i < p->after.n; i++)
        EG_TRY(place_entry(l, i));
    for (size_t i = 0; i < l->o->n_params; i++) { /* of other models */
        const eg_tensor *t = l->o->params[i].tensor;
        if (find_number(&p->before.index, t) == SIZE_MAX && find_number(&p->after.index, t) == SIZE_MAX)
            EG_TRY(place_kept(l, i, NULL));
    }
    if (l->n > 0)
        qsort(l->items, l->n, sizeof(*l->items), compare_places);
    return EG_OK;
}

/* Names are what checkpoints know parameters by. */
static eg_status check_names(const list *l)
{
    eg__map names = {0};
    eg_status status = EG_OK;
    for (size_t i = 0; i < l->n && status == EG_OK; i++) {
        const char *name = l->items[i].param.name;
        if (eg__map_find(&names, name) != NULL)
            status = eg_fail(EG_EINVAL, "the optimizer would have two parameters '%s'", name);
        else
            status = eg__map_put(&names, name, NULL);
    }
    eg__map_free(&names);
    return status;
}

/* Moves the list into an exchange, with room to spare as the optimizer has it. */
static eg_status finish(list *l, eg__param_exchange *out)
{
    EG_TRY(check_names(l));
    size_t n_before = l->o->n_params;
    eg__ptr_map now = {0};
    eg_status status = EG_OK;
    out->twins = eg__calloc(n_before + 1, sizeof(*out->twins));
    out->params = eg__calloc(l->n + 1, sizeof(*out->params));
    if (out->twins == NULL || out->params == NULL)
        status = EG_ENOMEM;
    for (size_t i = 0; i < l->n && status == EG_OK; i++)
        status = put_number(&now, l->items[i].param.tensor, i);
    if (status == EG_OK) {
        for (size_t i = 0; i < n_before; i++)
            out->twins[i] = find_number(&now, l->o->params[i].tensor);
        for (size_t i = 0; i < l->n; i++)
            out->params[i] = l->items[i].param;
        out->n = out->n_after = l->n;
        out->capacity = l->n + 1;
        l->n = 0;
    }
    eg__ptr_map_free(&now);
    return status;
}

static eg_status plan_list(planning *p, size_t number)
{
    eg_optimizer *o = p->s->optimizers[number];
    list l = {.p = p, .o = o, .number = number};
    l.last_anchor = eg__calloc(o->n_groups + 1, sizeof(*l.last_anchor));
    eg_status status = l.last_anchor != NULL ? EG_OK : EG_ENOMEM;
    for (size_t i = 0; i < o->n_groups && status == EG_OK; i++)
        l.last_anchor[i] = SIZE_MAX;
    if (status == EG_OK)
        status = fill_list(&l);
    p->s->exchanges[number].optimizer = o;
    if (status == EG_OK)
        status = finish(&l, &p->s->exchanges[number]);
    while (l.n > 0)
        free_param(&l.items[--l.n].param);
    free(l.items);
    free(l.last_anchor);
    eg__ptr_map_free(&l.index);
    return status;
}

static eg_status plan(planning *p)
{
    EG_TRY(list_params(&p->before, p->s->root));
    EG_TRY(note_plan(p)); /* while new modules still hold what was replaced in them */
    EG_TRY(eg__surgery_enter(p->s));
    eg_status status = list_params(&p->after, p->s->root);
    for (size_t i = 0; i < p->s->n_optimizers && status == EG_OK; i++)
        status = plan_list(p, i);
    eg__surgery_leave(p->s);
    return status;
}

/* Gradients that are there go along too. */
static eg_status derive_gradient(const eg__derivation *d)
{
    eg_tensor **from = eg__calloc(d->n + 1, sizeof(eg_tensor *));
    if (from == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < d->n; i++)
        from[i] = d->from[i]->grad;
    eg_tensor *grad = NULL;
    eg_status status = derive_one(d, "grad", from, &grad);
    free(from);
    eg_tensor_release(d->fresh->grad);
    d->fresh->grad = grad;
    return status;
}

eg_status eg__exchanges_plan(eg_surgery *s)
{
    for (size_t i = eg__committed_derivations(s); i < s->n_derivations; i++)
        EG_TRY(derive_gradient(&s->derivations[i]));
    s->exchanges = eg__calloc(s->n_optimizers + 1, sizeof(*s->exchanges));
    if (s->exchanges == NULL)
        return EG_ENOMEM;
    if (s->n_optimizers == 0)
        return EG_OK;
    planning p = {.s = s};
    eg_status status = plan(&p);
    free_params(&p.before);
    free_params(&p.after);
    eg__ptr_map *maps[] = {&p.origins, &p.derived, &p.flagged, &p.holders};
    for (size_t i = 0; i < EG_COUNT(maps); i++)
        eg__ptr_map_free(maps[i]);
    free(p.earlier);
    return status;
}

void eg__exchanges_free(eg_surgery *s, eg__param_exchange *exchanges)
{
    for (size_t i = 0; exchanges != NULL && i < s->n_optimizers; i++) {
        for (size_t k = 0; k < exchanges[i].n; k++)
            free_param(&exchanges[i].params[k]);
        free(exchanges[i].params);
        free(exchanges[i].twins);
    }
    free(exchanges);
}

/* ---- exchanging ---- */

/* States may have been made, and steps counted, since the lists were exchanged. */
static void take_progress(eg__param *to, const eg__param *from)
{
    to->step = from->step;
    for (size_t k = 0; k < EG__MAX_STATES; k++) {
        eg_tensor *state = from->states[k] != NULL ? eg_tensor_keep(from->states[k]) : NULL;
        eg_tensor_release(to->states[k]);
        to->states[k] = state;
    }
}

void eg__exchange(eg__param_exchange *e, bool back)
{
    eg_optimizer *o = e->optimizer;
    eg__param_exchange was = {.params = o->params, .n = o->n_params, .capacity = o->params_capacity};
    o->params = e->params;
    o->n_params = e->n;
    o->params_capacity = e->capacity;
    for (size_t i = 0; i < e->n && back; i++) {
        if (e->twins[i] != SIZE_MAX)
            take_progress(&o->params[i], &was.params[e->twins[i]]);
    }
    e->params = was.params;
    e->n = was.n;
    e->capacity = was.capacity;
}

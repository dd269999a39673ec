/*
 * What optimizers have after a surgery: a new list of parameters for each, made before anything is changed, and
 * exchanged with the old one by the commit.
 *
 * A parameter that is still in the model stays, with its states. One that is made from others takes their place, with
 * states made likewise. One that is quite new goes where those of the module went whose place its own has taken, or
 * else where its neighbours in the model are. What is not trained goes nowhere.
 */
#include "surgery/exchange.h"

#include <stdlib.h>
#include <string.h>

/* The new list of one optimizer, with a key for its order. */
typedef struct placed {
    eg__param param;
    size_t anchor, after; /* the old parameter it comes after, and how long after */
} placed;

typedef struct list {
    eg__exchange_plan *p;
    const eg_optimizer *o;
    size_t number;     /* of the optimizer */
    eg__ptr_map index; /* tensor -> old parameter + 1 */
    eg__heir *heirs;   /* of each derivation */
    placed *items;
    size_t n, capacity;
    size_t *last_anchor; /* of each group; SIZE_MAX = none yet */
} list;

static size_t find_old(const list *l, const eg_tensor *t)
{
    return eg__number_find(&l->index, t);
}

/* ---- the new list ---- */

/* How much of a parameter's name stands before its path; SIZE_MAX where it is no path. */
static size_t prefix_of(const list *l, const eg__param *old)
{
    size_t before = eg__number_find(&l->p->before.index, old->tensor);
    const char *path = before != SIZE_MAX ? l->p->before.items[before].path : "";
    size_t len = strlen(old->name), tail = strlen(path);
    bool follows = tail > 0 && tail <= len && strcmp(old->name + len - tail, path) == 0;
    return follows ? len - tail : SIZE_MAX;
}

/* The prefix stays, the path follows the model. NULL on failure. */
static char *name_kept(const list *l, const eg__param *old, const eg__entry *now)
{
    size_t prefix = prefix_of(l, old);
    return prefix == SIZE_MAX ? eg__strdup(old->name) : eg__format("%.*s%s", (int)prefix, old->name, now->path);
}

/* A new parameter is called as its donor is, with its own path. */
static char *name_new(const list *l, const eg__param *donor, const eg__entry *now)
{
    size_t prefix = prefix_of(l, donor);
    return eg__format("%.*s%s", prefix == SIZE_MAX ? 0 : (int)prefix, donor->name, now->path);
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

static eg_status place_kept(list *l, size_t at, const eg__entry *now)
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

/* Where nothing says which group: the first one of the first optimizer. */
static eg_status place_first(list *l, const eg__entry *e)
{
    return place(l, (eg__param){.name = eg__strdup(e->path), .tensor = e->tensor}, SIZE_MAX);
}

/* What comes from parameters that stay out of training stays out too, unless it, or one of them, is trained by the
 * plan. */
static eg_status place_new(list *l, size_t i, bool flagged)
{
    const eg__entry *e = &l->p->after.items[i];
    size_t derived = eg__number_find(&l->p->derived, e->tensor);
    eg__lineage line = derived != SIZE_MAX ? l->p->lineages[derived] : (eg__lineage){0};
    eg__heir none = {.donor = SIZE_MAX}, *heir = derived != SIZE_MAX ? &l->heirs[derived] : &none;
    size_t donor = heir->donor;
    flagged = flagged || line.thawed;
    if (donor == SIZE_MAX && (flagged || !line.of_model))
        EG_TRY(eg__donor_find(l->p, &l->index, i, flagged, &donor));
    if (donor == SIZE_MAX)
        return flagged && l->p->all_frozen && l->number == 0 && l->o->n_groups > 0 ? place_first(l, e) : EG_OK;
    const eg__param *from = &l->o->params[donor];
    eg__param param = {.name = name_new(l, from, e), .tensor = e->tensor, .step = heir->step, .group = from->group};
    memcpy(param.states, heir->states, sizeof(param.states));
    memset(heir->states, 0, sizeof(heir->states)); /* the list has them now */
    return place(l, param, donor);
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
    const eg__exchange_plan *p = l->p;
    const eg__entry *e = &p->after.items[i];
    size_t at = find_old(l, e->tensor);
    bool was = eg__number_find(&p->before.index, e->tensor) != SIZE_MAX;
    bool flagged = eg__ptr_map_find(&p->flagged, e->tensor) != NULL;
    if (at != SIZE_MAX)
        return flagged && !e->tensor->requires_grad ? EG_OK : place_kept(l, at, e);
    return e->tensor->requires_grad && (!was || flagged) ? place_new(l, i, flagged) : EG_OK;
}

static eg_status fill_list(list *l)
{
    const eg__exchange_plan *p = l->p;
    for (size_t i = 0; i < l->o->n_params; i++)
        EG_TRY(eg__number_put(&l->index, l->o->params[i].tensor, i));
    EG_TRY(eg__heirs_make(p, l->o, &l->index, &l->heirs));
    for (size_t i = 0; i < p->after.n; i++)
        EG_TRY(place_entry(l, i));
    for (size_t i = 0; i < l->o->n_params; i++) { /* of other models */
        const eg_tensor *t = l->o->params[i].tensor;
        if (eg__number_find(&p->before.index, t) == SIZE_MAX && eg__number_find(&p->after.index, t) == SIZE_MAX)
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

static uint64_t count_updates(const eg_optimizer *o)
{
    uint64_t n = 0;
    for (size_t i = 0; i < o->n_params; i++)
        n += (uint64_t)o->params[i].step; /* of a checkpoint they may be anything */
    return n;
}

bool eg__exchanges_are_current(const eg_surgery *s)
{
    bool current = true;
    for (size_t i = 0; i < s->n_optimizers && current; i++) {
        const eg__param_exchange *e = &s->exchanges[i];
        current = e->expected == e->optimizer->params && e->n_before == e->optimizer->n_params &&
                  e->updates == count_updates(e->optimizer);
    }
    return current;
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
        status = eg__number_put(&now, l->items[i].param.tensor, i);
    if (status == EG_OK) {
        for (size_t i = 0; i < n_before; i++)
            out->twins[i] = eg__number_find(&now, l->o->params[i].tensor);
        for (size_t i = 0; i < l->n; i++)
            out->params[i] = l->items[i].param;
        out->n_before = n_before;
        out->updates = count_updates(l->o);
        out->expected = l->o->params;
        out->n = out->n_after = l->n;
        out->capacity = l->n + 1;
        l->n = 0;
    }
    eg__ptr_map_free(&now);
    return status;
}

static eg_status plan_list(eg__exchange_plan *p, size_t number)
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
    eg__heirs_free(p, l.heirs);
    eg__ptr_map_free(&l.index);
    return status;
}

static eg_status plan_lists(eg__exchange_plan *p)
{
    EG_TRY(eg__exchange_plan_before(p));
    EG_TRY(eg__surgery_enter(p->s));
    eg_status status = eg__exchange_plan_after(p);
    for (size_t i = 0; i < p->s->n_optimizers && status == EG_OK; i++)
        status = plan_list(p, i);
    eg__surgery_leave(p->s);
    return status;
}

eg_status eg__exchanges_plan(eg_surgery *s)
{
    EG_TRY(eg__derive_gradients(s));
    s->exchanges = eg__calloc(s->n_optimizers + 1, sizeof(*s->exchanges));
    if (s->exchanges == NULL)
        return EG_ENOMEM;
    if (s->n_optimizers == 0)
        return EG_OK;
    eg__exchange_plan p = {.s = s};
    eg_status status = plan_lists(&p);
    eg__exchange_plan_free(&p);
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

/* What is in both lists is as it has become since: after a check the model may be trained, and after a commit. */
void eg__exchange(eg__param_exchange *e, bool back)
{
    eg_optimizer *o = e->optimizer;
    eg__param *before = back ? e->params : o->params, *after = back ? o->params : e->params;
    for (size_t i = 0; i < e->n_before; i++) {
        if (e->twins[i] == SIZE_MAX)
            continue;
        eg__param *old = &before[i], *twin = &after[e->twins[i]];
        take_progress(back ? old : twin, back ? twin : old);
    }
    eg__param_exchange was = {.params = o->params, .n = o->n_params, .capacity = o->params_capacity};
    o->params = e->params;
    o->n_params = e->n;
    o->params_capacity = e->capacity;
    e->expected = o->params;
    e->params = was.params;
    e->n = was.n;
    e->capacity = was.capacity;
}

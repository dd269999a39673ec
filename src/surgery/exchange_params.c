/*
 * The parameters of a model before a plan and after it, and whose group in an optimizer a new one joins: that of the
 * likest parameter of the module that gave way, or else that of its neighbour in the model.
 */
#include "surgery/exchange.h"

#include <stdlib.h>
#include <string.h>

size_t eg__number_find(const eg__ptr_map *map, const void *key)
{
    void **known = eg__ptr_map_find(map, key);
    return known != NULL ? (size_t)(uintptr_t)*known - 1 : SIZE_MAX;
}

eg_status eg__number_put(eg__ptr_map *map, const void *key, size_t number)
{
    return eg__ptr_map_put(map, key, (void *)(uintptr_t)(number + 1));
}

/* ---- parameters of a model ---- */

static eg_status add_entry(eg__entries *list, const eg__model_graph *graph, uint32_t vertex, const eg_slot *slot)
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
    list->items[list->n] = (eg__entry){t, m, slot->name, text};
    return eg__number_put(&list->index, t, list->n++);
}

static eg_status list_entries(eg__entries *list, eg_module *root)
{
    eg__model_graph graph = {0};
    eg_status status = eg__model_graph_build(&graph, root);
    if (status == EG_OK)
        status = eg__model_graph_sort(&graph);
    for (size_t i = 0; i < graph.n_vertices && status == EG_OK; i++) {
        const eg_module *m = graph.vertices[graph.order[i]].module;
        for (size_t k = 0; k < m->n_slots && status == EG_OK; k++)
            status = add_entry(list, &graph, graph.order[i], &m->slots[k]);
    }
    eg__model_graph_free(&graph);
    return status;
}

static void free_entries(eg__entries *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->items[i].path);
    free(list->items);
    eg__ptr_map_free(&list->index);
    *list = (eg__entries){0};
}

/* ---- what the plan says ---- */

/* Which replacement a module came with: of modules in modules the last. */
static eg_status note_origin(eg__exchange_plan *p, size_t i)
{
    const eg__replacement *r = &p->s->replacements[i];
    p->earlier[i] = eg__number_find(&p->origins, r->old);
    eg__model_graph below = {0};
    eg_status status = eg__model_graph_build(&below, r->fresh);
    for (size_t k = 0; k < below.n_vertices && status == EG_OK; k++)
        status = eg__number_put(&p->origins, below.vertices[k].module, i);
    eg__model_graph_free(&below);
    return status;
}

eg_status eg__exchange_plan_before(eg__exchange_plan *p)
{
    const eg_surgery *s = p->s;
    EG_TRY(list_entries(&p->before, s->root));
    p->earlier = eg__calloc(s->n_replacements + 1, sizeof(*p->earlier));
    if (p->earlier == NULL)
        return EG_ENOMEM;
    for (size_t i = eg__committed_replacements(s); i < s->n_replacements; i++)
        EG_TRY(note_origin(p, i)); /* now, while new modules still hold what was replaced in them */
    for (size_t i = 0; i < s->n_derivations; i++)
        EG_TRY(eg__number_put(&p->derived, s->derivations[i].fresh, i));
    for (size_t i = eg__committed_edits(s); i < s->n_edits; i++) {
        if (s->edits[i].kind == EG__EDIT_TRAINED)
            EG_TRY(eg__ptr_map_put(&p->flagged, s->edits[i].owner, NULL));
    }
    for (size_t i = 0; i < s->n_optimizers; i++) {
        for (size_t k = 0; k < s->optimizers[i]->n_params; k++)
            EG_TRY(eg__number_put(&p->holders, s->optimizers[i]->params[k].tensor, i));
    }
    return EG_OK;
}

static bool is_thawed(const eg__exchange_plan *p, const eg_tensor *t)
{
    return t->requires_grad && eg__ptr_map_find(&p->flagged, t) != NULL;
}

/* Derivations come after those that make what they are made from. */
static void trace_back(eg__exchange_plan *p, size_t i)
{
    const eg__derivation *d = &p->s->derivations[i];
    eg__lineage *line = &p->lineages[i];
    for (size_t k = 0; k < d->n && line->held == NULL; k++) {
        const eg_tensor *from = d->from[k];
        size_t maker = eg__number_find(&p->derived, from);
        const eg__lineage *earlier = maker < i ? &p->lineages[maker] : NULL;
        line->of_model = line->of_model || eg__number_find(&p->before.index, from) != SIZE_MAX ||
                         (earlier != NULL && earlier->of_model);
        line->thawed = line->thawed || is_thawed(p, from) || (earlier != NULL && earlier->thawed);
        if (eg__number_find(&p->holders, from) != SIZE_MAX)
            line->held = from;
        else if (earlier != NULL)
            line->held = earlier->held;
    }
}

eg_status eg__exchange_plan_after(eg__exchange_plan *p)
{
    EG_TRY(list_entries(&p->after, p->s->root));
    p->lineages = eg__calloc(p->s->n_derivations + 1, sizeof(*p->lineages));
    if (p->lineages == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < p->s->n_derivations; i++)
        trace_back(p, i);
    p->all_frozen = true;
    for (size_t i = 0; i < p->before.n && p->all_frozen; i++)
        p->all_frozen = eg__number_find(&p->holders, p->before.items[i].tensor) == SIZE_MAX;
    return EG_OK;
}

void eg__exchange_plan_free(eg__exchange_plan *p)
{
    free_entries(&p->before);
    free_entries(&p->after);
    free_entries(&p->asked);
    eg__ptr_map *maps[] = {&p->origins, &p->derived, &p->flagged, &p->holders};
    for (size_t i = 0; i < EG_COUNT(maps); i++)
        eg__ptr_map_free(maps[i]);
    free(p->earlier);
    free(p->lineages);
}

/* ---- where a new parameter belongs ---- */

/* What the donor of a group is worth for a parameter. */
static int likeness(const eg__entry *a, const eg__entry *b)
{
    return 1 + 2 * (a->tensor->shape.ndim == b->tensor->shape.ndim) + 4 * (strcmp(a->name, b->name) == 0);
}
enum { MOST_LIKE = 7 };

static eg_status ask(eg__exchange_plan *p, eg_module *old)
{
    if (p->asked_of == old)
        return EG_OK;
    free_entries(&p->asked);
    p->asked_of = NULL;
    EG_TRY(list_entries(&p->asked, old));
    p->asked_of = old;
    return EG_OK;
}

/* What a module that gave way says of a parameter of the new one. */
typedef struct advice {
    size_t donor; /* the likest of its parameters that this optimizer has; SIZE_MAX = none */
    bool had;     /* it had parameters of the model */
    bool held;    /* some optimizer has one of them */
    bool went_on; /* it had trained ones that were only planned: see what it has replaced itself */
    bool thawed;  /* the plan says that one of them is trained */
} advice;

static eg_status ask_old_module(eg__exchange_plan *p, const eg__ptr_map *index, const eg__entry *wanted, eg_module *old,
                                advice *a)
{
    int best = 0;
    *a = (advice){.donor = SIZE_MAX};
    EG_TRY(ask(p, old));
    for (size_t i = 0; i < p->asked.n && (best < MOST_LIKE || !a->had); i++) {
        const eg__entry *e = &p->asked.items[i];
        size_t at = eg__number_find(index, e->tensor);
        bool of_model = eg__number_find(&p->before.index, e->tensor) != SIZE_MAX;
        a->had = a->had || of_model;
        a->held = a->held || eg__number_find(&p->holders, e->tensor) != SIZE_MAX;
        a->went_on = a->went_on || (!of_model && e->tensor->requires_grad);
        a->thawed = a->thawed || is_thawed(p, e->tensor);
        if (at != SIZE_MAX && likeness(e, wanted) > best) {
            best = likeness(e, wanted);
            a->donor = at;
        }
    }
    return EG_OK;
}

/* The parameter of any optimizer that this one is, or goes back to; NULL: none. */
static const eg_tensor *find_held(const eg__exchange_plan *p, const eg_tensor *t)
{
    if (eg__number_find(&p->holders, t) != SIZE_MAX)
        return t;
    size_t derived = eg__number_find(&p->derived, t);
    return derived != SIZE_MAX ? p->lineages[derived].held : NULL;
}

/* The nearest parameter of the model before this one, or else after it, that any optimizer has: if it is this one. */
static size_t ask_neighbours(const eg__exchange_plan *p, const eg__ptr_map *index, size_t i)
{
    const eg__entries *after = &p->after;
    const eg_tensor *held = NULL;
    for (size_t k = i; k > 0 && held == NULL; k--)
        held = find_held(p, after->items[k - 1].tensor);
    for (size_t k = i + 1; k < after->n && held == NULL; k++)
        held = find_held(p, after->items[k].tensor);
    return held != NULL ? eg__number_find(index, held) : SIZE_MAX;
}

eg_status eg__donor_find(eg__exchange_plan *p, const eg__ptr_map *index, size_t i, bool flagged, size_t *donor)
{
    const eg__entry *e = &p->after.items[i];
    *donor = SIZE_MAX;
    for (size_t at = eg__number_find(&p->origins, e->owner); at != SIZE_MAX; at = p->earlier[at]) {
        advice a;
        EG_TRY(ask_old_module(p, index, e, p->s->replacements[at].old, &a));
        *donor = a.donor;
        if (a.held || (a.had && !a.went_on && !a.thawed && !flagged))
            return EG_OK;
    }
    *donor = ask_neighbours(p, index, i);
    return EG_OK;
}

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

eg_status eg__exchange_plan_after(eg__exchange_plan *p)
{
    return list_entries(&p->after, p->s->root);
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

/* The likest of the parameters of the module that gave way, and whether it had any that the model had. */
static eg_status ask_old_module(eg__exchange_plan *p, const eg__ptr_map *index, const eg__entry *wanted, eg_module *old,
                                size_t *donor, bool *had)
{
    int best = 0;
    *had = false;
    EG_TRY(ask(p, old));
    for (size_t i = 0; i < p->asked.n && (best < MOST_LIKE || !*had); i++) {
        const eg__entry *e = &p->asked.items[i];
        size_t at = eg__number_find(index, e->tensor);
        *had = *had || eg__number_find(&p->before.index, e->tensor) != SIZE_MAX;
        if (at != SIZE_MAX && likeness(e, wanted) > best) {
            best = likeness(e, wanted);
            *donor = at;
        }
    }
    return EG_OK;
}

/* The nearest parameter of the model before this one, or else after it, that any optimizer has: if it is this one. */
static size_t ask_neighbours(const eg__exchange_plan *p, size_t number, const eg__ptr_map *index, size_t i)
{
    const eg__entries *after = &p->after;
    size_t holder = SIZE_MAX, k = i;
    while (k > 0 && holder == SIZE_MAX)
        holder = eg__number_find(&p->holders, after->items[--k].tensor);
    if (holder == SIZE_MAX) {
        for (k = i + 1; k < after->n && holder == SIZE_MAX; k++)
            holder = eg__number_find(&p->holders, after->items[k].tensor);
        k--;
    }
    return holder == number ? eg__number_find(index, after->items[k].tensor) : SIZE_MAX;
}

eg_status eg__donor_find(eg__exchange_plan *p, size_t number, const eg__ptr_map *index, size_t i, size_t *donor)
{
    const eg__entry *e = &p->after.items[i];
    *donor = SIZE_MAX;
    for (size_t at = eg__number_find(&p->origins, e->owner); at != SIZE_MAX; at = p->earlier[at]) {
        bool had;
        EG_TRY(ask_old_module(p, index, e, p->s->replacements[at].old, donor, &had));
        if (had)
            return EG_OK;
    }
    *donor = ask_neighbours(p, number, index, i);
    return EG_OK;
}

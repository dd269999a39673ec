/*
 * Groups of units: what eg__ties knows, told by parameters.
 */
#include "surgery/coupling.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- who owns the tensors of the run ---- */

static eg_status add_owner(eg_coupling *c, const eg__model_graph *graph, uint32_t vertex, eg_slot *slot,
                           uint32_t tensor)
{
    eg_module *m = graph->vertices[vertex].module;
    EG_TRY(eg__grow(&c->owners, &c->owners_capacity, c->n_owners + 1, sizeof(*c->owners)));
    eg__buf path = {0};
    EG_TRY(eg__model_graph_path(graph, vertex, &path));
    eg__buf_printf(&path, "%s%s", path.len > 0 ? "." : "", slot->name);
    c->owners[c->n_owners++] = (eg__owner){.module = eg_module_retain(m),
                                           .kind = eg__resizable_of(m),
                                           .path = eg__buf_take(&path),
                                           .tensor = tensor,
                                           .trained = slot->kind == EG_SLOT_PARAMETER};
    return c->owners[c->n_owners - 1].path != NULL ? EG_OK : EG_ENOMEM;
}

static eg_status add_module(eg_coupling *c, eg_module *m)
{
    EG_TRY(eg__grow(&c->modules, &c->modules_capacity, c->n_modules + 1, sizeof(*c->modules)));
    c->modules[c->n_modules++] = eg_module_retain(m);
    return EG_OK;
}

static eg_status list_owners(eg_coupling *c, const eg__model_graph *graph, const eg__ptr_map *numbers)
{
    for (size_t i = 0; i < graph->n_vertices; i++) {
        uint32_t vertex = graph->order[i];
        eg_module *m = graph->vertices[vertex].module;
        size_t before = c->n_owners;
        for (size_t k = 0; k < m->n_slots; k++) {
            eg_slot *slot = &m->slots[k];
            if (slot->kind == EG_SLOT_CHILD || eg_is_none(*eg__slot_tensor(slot)))
                continue;
            void **number = eg__ptr_map_find(numbers, *eg__slot_tensor(slot));
            if (number != NULL)
                EG_TRY(add_owner(c, graph, vertex, slot, (uint32_t)(uintptr_t)*number - 1));
        }
        if (c->n_owners > before)
            EG_TRY(add_module(c, m));
    }
    return EG_OK;
}

static eg_status find_owners(eg_coupling *c, eg_module *model)
{
    eg__model_graph graph = {0};
    eg__ptr_map numbers = {0};
    eg_status status = eg__model_graph_build(&graph, model);
    if (status == EG_OK)
        status = eg__model_graph_sort(&graph);
    for (size_t i = 0; i < c->ties.n_tensors && status == EG_OK; i++) {
        if (c->ties.tensors[i].leaf != NULL)
            status = eg__ptr_map_put(&numbers, c->ties.tensors[i].leaf, (void *)(uintptr_t)(i + 1));
    }
    if (status == EG_OK)
        status = list_owners(c, &graph, &numbers);
    eg__ptr_map_free(&numbers);
    eg__model_graph_free(&graph);
    return status;
}

/* ---- what is fixed, and what modules tie ---- */

static const char made_here[] = "a tensor that is made while the model runs";

/* Hidden features of all layers of a recurrent module: `tensor` is a weight_hh, `first` that of its first layer. */
static void tie_layers(eg__ties *ties, uint32_t first, uint32_t tensor)
{
    for (int64_t i = 0; i < ties->tensors[tensor].shape.dims[1]; i++)
        eg__ties_join(ties, eg__node_at(ties, first, 1, i), eg__node_at(ties, tensor, 1, i));
}

static void tie_modules(eg_coupling *c)
{
    const eg__owner *first = NULL;
    for (size_t i = 0; i < c->n_owners; i++) {
        const eg__owner *o = &c->owners[i];
        if (o->kind == NULL || !o->kind->recurrent || strstr(o->path, "weight_hh_l") == NULL)
            continue;
        if (first != NULL && first->module == o->module)
            tie_layers(&c->ties, first->tensor, o->tensor);
        else
            first = o;
    }
}

static eg_status fix_ends(eg_coupling *c)
{
    eg__ties *ties = &c->ties;
    bool *owned = eg__calloc(ties->n_tensors + 1, sizeof(*owned));
    if (owned == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < c->n_owners; i++) {
        owned[c->owners[i].tensor] = true;
        if (c->owners[i].kind == NULL)
            eg__ties_fix_all(ties, c->owners[i].tensor, "its module is not known to come in other sizes", 0);
    }
    for (uint32_t i = 0; i < ties->n_tensors; i++) {
        if (i < ties->n_inputs)
            eg__ties_fix_all(ties, i, "an input of the model", 0);
        else if (ties->tensors[i].leaf != NULL && !owned[i])
            eg__ties_fix_all(ties, i, made_here, 0);
    }
    for (size_t i = 0; i < ties->n_outputs; i++) {
        if (ties->outputs[i] != 0)
            eg__ties_fix_all(ties, ties->outputs[i] - 1, "an output of the model", 0);
    }
    free(owned);
    return EG_OK;
}

/* ---- units ---- */

/* An index of a dimension of an owned tensor, and the set it is in. */
typedef struct entry {
    uint32_t set, owner;
    int32_t dim;
    int64_t index;
} entry;

typedef struct entries {
    entry *items;
    size_t n, capacity;
} entries;

static eg_status add_entries(eg_coupling *c, uint32_t owner, entries *list)
{
    uint32_t tensor = c->owners[owner].tensor;
    eg_shape shape = c->ties.tensors[tensor].shape;
    for (int d = 0; d < shape.ndim; d++) {
        EG_TRY(eg__grow(&list->items, &list->capacity, list->n + (size_t)shape.dims[d], sizeof(*list->items)));
        for (int64_t k = 0; k < shape.dims[d]; k++) {
            uint32_t set = eg__ties_find(&c->ties, eg__node_at(&c->ties, tensor, d, k));
            if (c->ties.sets[set].fixed != eg__why_positions)
                list->items[list->n++] = (entry){set, owner, d, k};
        }
    }
    return EG_OK;
}

/* Each tensor once, under its first owner. */
static eg_status list_entries(eg_coupling *c, entries *list)
{
    bool *listed = eg__calloc(c->ties.n_tensors + 1, sizeof(*listed));
    eg_status status = listed != NULL ? EG_OK : EG_ENOMEM;
    for (uint32_t i = 0; i < c->n_owners && status == EG_OK; i++) {
        bool *known = &listed[c->owners[i].tensor];
        status = *known ? EG_OK : add_entries(c, i, list);
        *known = true;
    }
    free(listed);
    return status;
}

static int compare_entries(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->set != y->set)
        return x->set < y->set ? -1 : 1;
    if (x->owner != y->owner)
        return x->owner < y->owner ? -1 : 1;
    if (x->dim != y->dim)
        return x->dim < y->dim ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static bool same_place(const entry *a, const entry *b)
{
    return a->owner == b->owner && a->dim == b->dim;
}

/* The units of one set: entries first .. first + n - 1. */
typedef struct unit {
    size_t first, n;
    uint64_t likeness; /* equal for units of one group */
    size_t place;      /* where it stands in the model: by the first entry */
} unit;

typedef struct units {
    unit *items;
    size_t n, capacity;
} units;

static uint64_t likeness_of(const eg_coupling *c, const entry *e, size_t n)
{
    const eg__node_set *set = &c->ties.sets[e[0].set];
    uint64_t hash = eg__hash(&set->fixed, sizeof(set->fixed), set->fixed_step);
    hash = eg__hash(&set->mixed, sizeof(set->mixed), hash);
    for (size_t i = 0; i < n; i++) {
        uint64_t place[2] = {e[i].owner, (uint64_t)e[i].dim};
        hash = eg__hash(place, sizeof(place), hash);
    }
    return hash;
}

static eg_status list_units(const eg_coupling *c, const entries *list, units *out)
{
    for (size_t i = 0; i < list->n;) {
        size_t n = 1;
        while (i + n < list->n && list->items[i + n].set == list->items[i].set)
            n++;
        EG_TRY(eg__grow(&out->items, &out->capacity, out->n + 1, sizeof(*out->items)));
        out->items[out->n++] = (unit){i, n, likeness_of(c, &list->items[i], n), 0};
        i += n;
    }
    return EG_OK;
}

/* ---- groups ---- */

static int compare_units(const void *a, const void *b)
{
    const unit *x = a, *y = b;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static eg_status add_text(eg_coupling *c, const char *why, uint32_t step, const char **text)
{
    *text = NULL;
    if (why == NULL)
        return EG_OK;
    const char *path = step > 0 ? c->ties.steps[step - 1].path : "",
               *op = step > 0 ? c->ties.steps[step - 1].op->name : "";
    EG_TRY(eg__grow(&c->texts, &c->texts_capacity, c->n_texts + 1, sizeof(*c->texts)));
    char *made = step > 0 ? eg__format("%s (%s '%s')", why, op, path) : eg__strdup(why);
    if (made == NULL)
        return EG_ENOMEM;
    *text = c->texts[c->n_texts++] = made;
    return EG_OK;
}

/* Part of the units [n], alike, whose entries from + 0 .. per - 1 lie in one dimension. */
static eg_status fill_part(const eg_coupling *c, const entry *items, const unit *u, size_t n, size_t from, size_t per,
                           eg_coupled_part *part)
{
    const entry *e = &items[u[0].first + from];
    const eg__owner *o = &c->owners[e->owner];
    int64_t *indices = eg__calloc(n * per, sizeof(*indices));
    if (indices == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < per; k++)
            indices[i * per + k] = items[u[i].first + from + k].index;
    }
    const char *dot = strrchr(o->path, '.');
    int makes, takes;
    eg__features_of(o->module, dot != NULL ? dot + 1 : o->path, &makes, &takes);
    *part = (eg_coupled_part){.path = o->path,
                              .tensor = c->ties.tensors[o->tensor].leaf,
                              .dim = e->dim,
                              .makes = makes == e->dim,
                              .takes = takes == e->dim,
                              .per_unit = per,
                              .indices = indices};
    return EG_OK;
}

static eg_status fill_group(eg_coupling *c, const entry *items, const unit *u, size_t n, eg_coupled_group *g,
                            uint32_t *sets)
{
    const entry *e = &items[u[0].first];
    const eg__node_set *set = &c->ties.sets[e->set];
    EG_TRY(add_text(c, set->fixed, set->fixed_step, &g->fixed));
    EG_TRY(add_text(c, set->mixed, set->mixed_step, &g->mixed));
    eg_coupled_part *parts = eg__calloc(u[0].n + 1, sizeof(*parts));
    if (parts == NULL)
        return EG_ENOMEM;
    g->parts = parts;
    g->n_units = n;
    for (size_t i = 0; i < n; i++) {
        sets[i] = items[u[i].first].set;
        g->single = g->single || c->ties.sets[sets[i]].crossing;
    }
    for (size_t from = 0, per; from < u[0].n; from += per) {
        for (per = 1; from + per < u[0].n && same_place(&e[from], &e[from + per]);)
            per++;
        EG_TRY(fill_part(c, items, u, n, from, per, &parts[g->n_parts]));
        const eg__resizable *kind = c->owners[e[from].owner].kind;
        g->heads = g->heads || (kind != NULL && kind->heads && parts[g->n_parts].makes);
        g->n_parts++;
    }
    return EG_OK;
}

static eg_status add_group(eg_coupling *c, const entry *items, const unit *u, size_t n)
{
    size_t capacity = c->groups_capacity;
    EG_TRY(eg__grow(&c->groups, &c->groups_capacity, c->n_groups + 1, sizeof(*c->groups)));
    EG_TRY(eg__grow(&c->sets, &capacity, c->n_groups + 1, sizeof(*c->sets)));
    c->sets[c->n_groups] = eg__calloc(n, sizeof(uint32_t));
    if (c->sets[c->n_groups] == NULL)
        return EG_ENOMEM;
    c->n_groups++;
    return fill_group(c, items, u, n, &c->groups[c->n_groups - 1], c->sets[c->n_groups - 1]);
}

/* Units that are alike come together: groups in the order of the run, those that can change first. */
static eg_status sort_units(const eg_coupling *c, const entry *items, units *list)
{
    eg__ptr_map firsts = {0};
    eg_status status = EG_OK;
    for (size_t i = 0; i < list->n && status == EG_OK; i++) {
        unit *u = &list->items[i];
        const void *key = (const void *)(uintptr_t)(u->likeness | 1);
        void **first = eg__ptr_map_find(&firsts, key);
        size_t own = c->ties.sets[items[u->first].set].fixed == NULL ? i : list->n + i;
        u->place = first != NULL ? (size_t)(uintptr_t)*first : own;
        if (first == NULL)
            status = eg__ptr_map_put(&firsts, key, (void *)(uintptr_t)own);
    }
    eg__ptr_map_free(&firsts);
    if (status == EG_OK && list->n > 0)
        qsort(list->items, list->n, sizeof(*list->items), compare_units);
    return status;
}

static eg_status make_groups(eg_coupling *c)
{
    entries all = {0};
    units list = {0};
    eg_status status = list_entries(c, &all);
    if (status == EG_OK && all.n > 0)
        qsort(all.items, all.n, sizeof(*all.items), compare_entries);
    if (status == EG_OK)
        status = list_units(c, &all, &list);
    if (status == EG_OK)
        status = sort_units(c, all.items, &list);
    for (size_t i = 0, n; i < list.n && status == EG_OK; i += n) {
        for (n = 1; i + n < list.n && list.items[i + n].place == list.items[i].place;)
            n++;
        status = add_group(c, all.items, &list.items[i], n);
    }
    free(all.items);
    free(list.items);
    return status;
}

/* ---- making one ---- */

static eg_status build(eg_coupling *c, eg_module *model, const eg_shape *inputs, size_t n_inputs, const size_t *refused,
                       size_t n_refused)
{
    EG_TRY(eg__ties_run(&c->ties, model, inputs, n_inputs));
    EG_TRY(eg__ties_begin(&c->ties));
    EG_TRY(find_owners(c, model));
    EG_TRY(fix_ends(c));
    tie_modules(c);
    for (size_t i = 0; i < n_refused; i++)
        c->ties.steps[refused[i]].refused++;
    eg__ties_apply_rules(&c->ties);
    c->copies = eg__calloc(c->ties.n_nodes + 1, sizeof(*c->copies));
    if (c->copies == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < c->ties.n_nodes; i++)
        c->copies[i] = 1;
    return make_groups(c);
}

eg_coupling *eg__coupling_new(eg_module *model, const eg_shape *inputs, size_t n_inputs, const size_t *refused,
                              size_t n_refused)
{
    eg_coupling *c = eg__calloc(1, sizeof(*c));
    if (c == NULL)
        return NULL;
    c->ctx = model->ctx;
    if (build(c, model, inputs, n_inputs, refused, n_refused) == EG_OK)
        return c;
    eg_coupling_free(c);
    return NULL;
}

eg_coupling *eg_coupling_new(eg_module *model, eg_shapes inputs)
{
    if (model == NULL || (inputs.items == NULL && inputs.n > 0))
        return eg__null(__func__, model == NULL ? "model" : "the list of shapes");
    return eg__coupling_new(model, inputs.items, inputs.n, NULL, 0);
}

void eg_coupling_free(eg_coupling *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->n_groups; i++) {
        for (size_t k = 0; k < c->groups[i].n_parts; k++)
            free((int64_t *)(uintptr_t)c->groups[i].parts[k].indices);
        free((eg_coupled_part *)(uintptr_t)c->groups[i].parts);
        free(c->sets[i]);
    }
    for (size_t i = 0; i < c->n_owners; i++) {
        eg_module_release(c->owners[i].module);
        free(c->owners[i].path);
    }
    for (size_t i = 0; i < c->n_modules; i++)
        eg_module_release(c->modules[i]);
    for (size_t i = 0; i < c->n_texts; i++)
        free(c->texts[i]);
    eg__ties_free(&c->ties);
    void *lists[] = {c->groups, c->sets, c->owners, c->modules, c->texts, c->copies};
    for (size_t i = 0; i < EG_COUNT(lists); i++)
        free(lists[i]);
    free(c);
}

/* ---- reading ---- */

size_t eg_coupling_size(const eg_coupling *c)
{
    return c != NULL ? c->n_groups : 0;
}

const eg_coupled_group *eg_coupling_at(const eg_coupling *c, size_t i)
{
    if (c == NULL)
        return eg__null(__func__, "coupling");
    if (i >= c->n_groups) {
        eg_fail(EG_EINVAL, "there is no group %zu, there are %zu", i, c->n_groups);
        return NULL;
    }
    return &c->groups[i];
}

static void write_group(eg__buf *buf, size_t i, const eg_coupled_group *g)
{
    eg__buf_printf(buf, "group %zu: %zu %s", i, g->n_units, g->heads ? "heads" : "units");
    if (g->fixed != NULL)
        eg__buf_printf(buf, ", fixed: %s", g->fixed);
    else if (g->mixed != NULL)
        eg__buf_printf(buf, ", mixed: %s", g->mixed);
    eg__buf_printf(buf, "\n");
    for (size_t k = 0; k < g->n_parts; k++) {
        const eg_coupled_part *p = &g->parts[k];
        char shape[EG_SHAPE_TEXT_SIZE];
        eg__buf_printf(buf, "    %s, dimension %d of %s", p->path, p->dim,
                       eg_shape_format(p->tensor->shape, shape, sizeof(shape)));
        if (p->per_unit > 1)
            eg__buf_printf(buf, ", %zu each", p->per_unit);
        eg__buf_printf(buf, "\n");
    }
}

char *eg_coupling_text(const eg_coupling *c)
{
    if (c == NULL)
        return eg__null(__func__, "coupling");
    eg__buf buf = {0};
    eg__buf_append(&buf, "", 0);
    for (size_t i = 0; i < c->n_groups; i++)
        write_group(&buf, i, &c->groups[i]);
    return eg__buf_take(&buf);
}

/* ---- whether a changed model is what it was to become ---- */

typedef struct look {
    eg_coupling *c;
    const eg_surgery *s;
    size_t step;
    bool follows;
} look;

/* A run that fails does not follow, and is no failure. */
static eg_status look_follows(void *payload, eg_module *root)
{
    look *l = payload;
    eg__ties *was = &l->c->ties, now;
    eg__error_mark before;
    eg__error_save(&before);
    eg_status status = eg__ties_run(&now, root, l->s->inputs, l->s->n_inputs);
    size_t i = 0;
    while (i < now.n_steps && eg__step_follows(was, i, &now, l->c->copies))
        i++;
    l->step = EG_MIN(i, was->n_steps - 1);
    l->follows = status == EG_OK && i == was->n_steps && now.n_steps == was->n_steps;
    eg__ties_free(&now);
    if (status == EG_ENOMEM)
        return status;
    eg__error_restore(&before);
    return EG_OK;
}

eg_status eg__surgery_verify(eg_surgery *s, eg_coupling *c, size_t *step, bool *follows)
{
    look l = {.c = c, .s = s, .follows = true};
    if (c->ties.n_steps > 0)
        EG_TRY(eg_surgery_look(s, look_follows, &l));
    *step = l.step;
    *follows = l.follows;
    return EG_OK;
}

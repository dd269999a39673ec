/*
 * The first layers of a model are trained no longer.
 */
#include "engraft/methods.h"
#include "surgery/internal.h"

#include <stdlib.h>

/* Modules with parameters of their own, in the order of the model. */
typedef struct layers {
    eg_module **items;
    size_t n, capacity;
} layers;

static eg_tensor *parameter_at(const eg_module *m, size_t slot)
{
    eg_tensor *t = m->slots[slot].kind == EG_SLOT_PARAMETER ? *eg__slot_tensor(&m->slots[slot]) : NULL;
    return t != NULL && !eg_is_none(t) ? t : NULL;
}

static eg_status add_layer(void *payload, const char *path, eg_module *m)
{
    layers *list = payload;
    (void)path;
    bool has = false;
    for (size_t i = 0; i < m->n_slots; i++)
        has = has || parameter_at(m, i) != NULL;
    if (!has)
        return EG_OK;
    EG_TRY(eg__grow(&list->items, &list->capacity, list->n + 1, sizeof(eg_module *)));
    list->items[list->n++] = m;
    return EG_OK;
}

static eg_status list_layers(void *payload, eg_module *root)
{
    return eg_module_walk(root, add_layer, payload);
}

/* All parameters of a layer but those that others need. */
static eg_status set_trained(eg_surgery *s, const eg_module *m, bool trained, const eg__ptr_map *needed)
{
    for (size_t i = 0; i < m->n_slots; i++) {
        eg_tensor *t = parameter_at(m, i);
        if (t != NULL && eg__ptr_map_find(needed, t) == NULL)
            EG_TRY(eg_surgery_set_trained(s, t, trained));
    }
    return EG_OK;
}

/* The parameters of the layers from number `first` on: a tied one is trained as long as one of them has it. */
static eg_status gather_needed(const layers *list, size_t first, eg__ptr_map *needed)
{
    bool added;
    for (size_t i = first; i < list->n; i++) {
        const eg_module *m = list->items[i];
        for (size_t k = 0; k < m->n_slots; k++) {
            if (parameter_at(m, k) != NULL)
                EG_TRY(eg__ptr_map_add(needed, parameter_at(m, k), &added));
        }
    }
    return EG_OK;
}

typedef struct limited {
    const char *at;
    layers *list;
} limited;

static eg_status add_matching(void *payload, const char *path, eg_module *m)
{
    const limited *l = payload;
    return eg__path_matches(l->at, path) ? add_layer(l->list, path, m) : EG_OK;
}

static eg_status list_matching(void *payload, eg_module *root)
{
    return eg_module_walk(root, add_matching, payload);
}

/* With paths: all layers there. Without: the first `depth` of all, but never the last. */
static eg_status plan(eg_module *options, eg_surgery *s, const char *at)
{
    const eg_layer_freezing *o = (const eg_layer_freezing *)options;
    layers list = {0};
    limited some = {at, &list};
    eg_status status = at == NULL ? eg_surgery_look(s, list_layers, &list) : eg_surgery_look(s, list_matching, &some);
    size_t n = list.n;
    if (at == NULL && n > 0) {
        size_t share = (size_t)(o->depth * (double)n);
        n = o->unfreeze ? n : EG_MIN(share, n - 1);
    }
    eg__ptr_map needed = {0};
    if (status == EG_OK)
        status = gather_needed(&list, n, &needed);
    for (size_t i = 0; i < n && status == EG_OK; i++)
        status = set_trained(s, list.items[i], o->unfreeze, &needed);
    eg__ptr_map_free(&needed);
    free(list.items);
    if (status == EG_OK && n == 0)
        status = eg_surgery_note(s, "layer_freezing found no layer to freeze");
    return status;
}

EG_METHOD(
    eg_layer_freezing, "layer_freezing",
    EG_FIELDS(EG_FLOAT(eg_layer_freezing, depth, .max = 1, .def = 0.5, .help = "share of the layers, from the first"),
              EG_BOOL(eg_layer_freezing, unfreeze, .help = "the other way: train them (all, or those at the paths)")),
    .help = "the first layers are trained no longer, and leave the optimizers",
    .source = "Raghu et al. 2017; 5 % faster training for 0.5 to 1 % of accuracy (Composer)",
    .promise = EG_PROMISE_EXACT, .plan = plan, .inverse = "layer_freezing");

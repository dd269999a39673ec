/*
 * Inventories: all modules and tensors of a model with their names, as they are at one moment.
 */
#include "surgery/diff.h"

#include <stdlib.h>

enum { MAX_DEPTH = 1024 }; /* paths as texts are as long as a model is deep */

/* ---- texts ---- */

const char *eg__texts_add(eg__texts *texts, char *text)
{
    if (text == NULL)
        return NULL;
    if (eg__grow(&texts->items, &texts->capacity, texts->n + 1, sizeof(*texts->items)) != EG_OK) {
        eg_free(text);
        return NULL;
    }
    return texts->items[texts->n++] = text;
}

void eg__texts_free(eg__texts *texts)
{
    for (size_t i = 0; i < texts->n; i++)
        eg_free(texts->items[i]);
    free(texts->items);
    *texts = (eg__texts){0};
}

/* ---- numbers in maps ---- */

static void *to_value(size_t i)
{
    return (void *)(uintptr_t)(i + 1);
}

static size_t number_in(void *const *value)
{
    return value == NULL ? SIZE_MAX : (size_t)(uintptr_t)*value - 1;
}

/* ---- modules ---- */

/* "Conv2d(3, 16, kernel_size=(3, 3))", without what is below it. */
static char *text_of(const eg_module *m)
{
    eg__buf text = {0};
    eg__buf_printf(&text, "%s(", m->cls->name);
    eg__module_describe(m, &text);
    eg__buf_printf(&text, ")");
    return eg__buf_take(&text);
}

static int64_t own_parameters(const eg_module *m)
{
    int64_t n = 0;
    for (size_t i = 0; i < m->n_slots; i++) {
        const eg_tensor *t = m->slots[i].kind == EG_SLOT_PARAMETER ? *eg__slot_tensor(&m->slots[i]) : NULL;
        if (t != NULL && !eg_is_none(t))
            n += eg_tensor_numel(t);
    }
    return n;
}

/* Adds an item without a text; takes `path` over. */
static eg__item *add_item(eg__inventory *v, char *path, eg_module *m, size_t parent)
{
    const char *kept = eg__texts_add(&v->texts, path);
    if (kept == NULL || eg__grow(&v->items, &v->capacity, v->n + 1, sizeof(*v->items)) != EG_OK ||
        eg__map_put(&v->by_path, kept, to_value(v->n)) != EG_OK)
        return NULL;
    eg__item *item = &v->items[v->n++];
    *item = (eg__item){.path = kept, .module = eg_module_retain(m), .parent = parent};
    return item;
}

typedef struct taking {
    eg__inventory *v;
    eg__model_graph graph;
    size_t *items;   /* of each vertex, its item */
    uint32_t *depth; /* of each vertex */
} taking;

static eg_status take_module(taking *t, uint32_t vertex)
{
    const eg__vertex *at = &t->graph.vertices[vertex];
    const eg__link *way = at->way != EG__NO_VERTEX ? &t->graph.links[at->way] : NULL;
    t->depth[vertex] = way != NULL ? t->depth[way->parent] + 1 : 0;
    EG_CHECK(t->depth[vertex] <= MAX_DEPTH, EG_EUNSUPPORTED, "modules nest deeper than %d", MAX_DEPTH);
    eg__buf path = {0};
    EG_TRY(eg__model_graph_path(&t->graph, vertex, &path));
    eg__item *item = add_item(t->v, path.data, at->module, way != NULL ? t->items[way->parent] : SIZE_MAX);
    if (item == NULL)
        return EG_ENOMEM;
    t->items[vertex] = t->v->n - 1;
    item->parameters = own_parameters(at->module);
    item->text = eg__texts_add(&t->v->texts, text_of(at->module));
    return item->text != NULL ? eg__ptr_map_put(&t->v->by_module, at->module, to_value(t->items[vertex])) : EG_ENOMEM;
}

/* The slots of a module that hold what stands first elsewhere. */
static eg_status take_other_places(taking *t, uint32_t vertex)
{
    const eg__vertex *at = &t->graph.vertices[vertex];
    for (uint32_t i = 0; i < at->n_links; i++) {
        const eg__link *link = &t->graph.links[at->first_link + i];
        const eg__vertex *child = &t->graph.vertices[link->child];
        if (child->way == at->first_link + i)
            continue;
        const char *parent = t->v->items[t->items[vertex]].path, *first = t->v->items[t->items[link->child]].path;
        char *path = eg__format("%s%s%s", parent, *parent == '\0' ? "" : ".", at->module->slots[link->slot].name);
        eg__item *item = path != NULL ? add_item(t->v, path, child->module, t->items[vertex]) : NULL;
        if (item == NULL)
            return EG_ENOMEM;
        item->same_as = first;
        item->text = eg__texts_add(&t->v->texts, eg__format("= %s", first));
        if (item->text == NULL)
            return EG_ENOMEM;
    }
    return EG_OK;
}

static eg_status take_modules(taking *t, eg_module *root)
{
    EG_TRY(eg__model_graph_build(&t->graph, root));
    EG_TRY(eg__model_graph_sort(&t->graph));
    t->items = eg__calloc(t->graph.n_vertices, sizeof(*t->items));
    t->depth = eg__calloc(t->graph.n_vertices, sizeof(*t->depth));
    if (t->items == NULL || t->depth == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < t->graph.n_vertices; i++)
        EG_TRY(take_module(t, t->graph.order[i]));
    for (size_t i = 0; i < t->graph.n_vertices; i++)
        EG_TRY(take_other_places(t, t->graph.order[i]));
    return EG_OK;
}

/* ---- tensors ---- */

static eg_status take_tensor(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    eg__inventory *v = payload;
    bool first;
    const char *key = eg__texts_add(&v->texts, eg__strdup(path));
    if (key == NULL)
        return EG_ENOMEM;
    EG_TRY(eg__grow(&v->tensors, &v->tensors_capacity, v->n_tensors + 1, sizeof(*v->tensors)));
    EG_TRY(eg__map_put(&v->by_key, key, to_value(v->n_tensors)));
    first = eg__ptr_map_find(&v->by_tensor, t) == NULL;
    if (first)
        EG_TRY(eg__ptr_map_put(&v->by_tensor, t, to_value(v->n_tensors)));
    v->tensors[v->n_tensors++] =
        (eg__tensor_item){.key = key, .kind = kind, .tensor = eg_tensor_keep(t), .trained = t->requires_grad};
    if (first) {
        bool parameter = kind == EG_SLOT_PARAMETER;
        *(parameter ? &v->parameters : &v->buffers) += eg_tensor_numel(t);
        *(parameter ? &v->parameter_bytes : &v->buffer_bytes) += (uint64_t)eg_tensor_numel(t) * eg_dtype_size(t->dtype);
    }
    return EG_OK;
}

eg_status eg__inventory_take(eg__inventory *inventory, eg_module *root)
{
    *inventory = (eg__inventory){0};
    taking t = {.v = inventory};
    eg_status status = take_modules(&t, root);
    free(t.items);
    free(t.depth);
    eg__model_graph_free(&t.graph);
    return status == EG_OK ? eg_module_walk_tensors(root, take_tensor, inventory) : status;
}

void eg__inventory_free(eg__inventory *inventory)
{
    for (size_t i = 0; i < inventory->n; i++)
        eg_module_release(inventory->items[i].module);
    for (size_t i = 0; i < inventory->n_tensors; i++)
        eg_tensor_release(inventory->tensors[i].tensor);
    free(inventory->items);
    free(inventory->tensors);
    eg__map_free(&inventory->by_path);
    eg__map_free(&inventory->by_key);
    eg__ptr_map_free(&inventory->by_module);
    eg__ptr_map_free(&inventory->by_tensor);
    eg__texts_free(&inventory->texts);
    *inventory = (eg__inventory){0};
}

/* ---- looking things up ---- */

eg__item *eg__inventory_at(const eg__inventory *inventory, const char *path)
{
    size_t i = number_in(eg__map_find(&inventory->by_path, path));
    return i != SIZE_MAX ? &inventory->items[i] : NULL;
}

eg__item *eg__inventory_of(const eg__inventory *inventory, const eg_module *m)
{
    size_t i = number_in(eg__ptr_map_find(&inventory->by_module, m));
    return i != SIZE_MAX ? &inventory->items[i] : NULL;
}

eg__tensor_item *eg__inventory_key(const eg__inventory *inventory, const char *key)
{
    size_t i = number_in(eg__map_find(&inventory->by_key, key));
    return i != SIZE_MAX ? &inventory->tensors[i] : NULL;
}

eg__tensor_item *eg__inventory_tensor(const eg__inventory *inventory, const eg_tensor *t)
{
    size_t i = number_in(eg__ptr_map_find(&inventory->by_tensor, t));
    return i != SIZE_MAX ? &inventory->tensors[i] : NULL;
}

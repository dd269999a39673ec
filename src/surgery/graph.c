/*
 * The graph of modules: each once, with every slot that holds it. No recursion: models may be a million deep.
 */
#include "surgery/internal.h"

#include <stdlib.h>
#include <string.h>

/* A vertex that a link leads to, for the first time as far as is known. */
static eg_status add_vertex(eg__model_graph *graph, eg_module *m, uint32_t link, uint32_t *vertex)
{
    EG_CHECK(graph->n_vertices < EG__NO_VERTEX, EG_EUNSUPPORTED, "more than %u modules", EG__NO_VERTEX);
    EG_TRY(eg__grow(&graph->vertices, &graph->vertices_capacity, graph->n_vertices + 1, sizeof(*graph->vertices)));
    *vertex = (uint32_t)graph->n_vertices;
    graph->vertices[graph->n_vertices++] = (eg__vertex){.module = m,
                                                        .n_links = (uint32_t)EG_MIN(m->n_slots, EG__NO_VERTEX),
                                                        .first_place = link,
                                                        .n_places = 1,
                                                        .way = link};
    return EG_OK;
}

/* A module that only this slot holds cannot be met again, so it need not be looked for. */
static eg_status vertex_of(eg__model_graph *graph, eg_module *m, uint32_t link, uint32_t *vertex)
{
    if (m->refs > 1) {
        void **known = eg__ptr_map_find(&graph->shared, m);
        if (known != NULL) {
            *vertex = (uint32_t)(uintptr_t)*known - 1;
            graph->is_tree = false;
            return EG_OK;
        }
        EG_TRY(eg__ptr_map_put(&graph->shared, m, (void *)(uintptr_t)(graph->n_vertices + 1)));
    }
    return add_vertex(graph, m, link, vertex);
}

/* What is about to be read comes from all over the memory: the processor is told of it a few slots before. */
static void prefetch_child(const eg_module *m, size_t slot)
{
    if (slot < m->n_slots && m->slots[slot].kind == EG_SLOT_CHILD)
        __builtin_prefetch(*eg__slot_child(&m->slots[slot]));
}

static eg_status add_links(eg__model_graph *graph, uint32_t parent)
{
    if (graph->vertices[parent].n_links == 0) /* slots that it had when it was met: leaves are not read again */
        return EG_OK;
    const eg_module *m = graph->vertices[parent].module;
    size_t first = graph->n_links;
    EG_CHECK(first + m->n_slots < EG__NO_VERTEX, EG_EUNSUPPORTED, "more than %u slots", EG__NO_VERTEX);
    EG_TRY(eg__grow(&graph->links, &graph->links_capacity, first + m->n_slots + 1, sizeof(*graph->links)));
    for (size_t i = 0; i < m->n_slots; i++) {
        prefetch_child(m, i + 8);
        eg_module *child = m->slots[i].kind == EG_SLOT_CHILD ? *eg__slot_child(&m->slots[i]) : NULL;
        if (child == NULL)
            continue;
        eg__link *link = &graph->links[graph->n_links];
        *link = (eg__link){.parent = parent, .slot = (uint32_t)i};
        EG_TRY(vertex_of(graph, child, (uint32_t)graph->n_links, &link->child));
        graph->n_links++;
    }
    graph->vertices[parent].first_link = (uint32_t)first;
    graph->vertices[parent].n_links = (uint32_t)(graph->n_links - first);
    return EG_OK;
}

/* Lists the links by the child they lead to. */
static eg_status list_places(eg__model_graph *graph)
{
    graph->places = eg__calloc(graph->n_links + 1, sizeof(*graph->places));
    if (graph->places == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < graph->n_vertices; i++)
        graph->vertices[i].n_places = 0;
    for (size_t i = 0; i < graph->n_links; i++)
        graph->vertices[graph->links[i].child].n_places++;
    uint32_t next = 0;
    for (size_t i = 0; i < graph->n_vertices; i++) {
        eg__vertex *v = &graph->vertices[i];
        v->first_place = next;
        next += v->n_places;
        v->n_places = 0;
    }
    for (size_t i = 0; i < graph->n_links; i++) {
        eg__vertex *v = &graph->vertices[graph->links[i].child];
        graph->places[v->first_place + v->n_places++] = (uint32_t)i;
    }
    return EG_OK;
}

/* Of a tree each link leads to the vertex after the one that the link before it leads to. */
const eg__link *eg__model_graph_place(const eg__model_graph *graph, uint32_t vertex, uint32_t i)
{
    uint32_t place = graph->vertices[vertex].first_place + i;
    return &graph->links[graph->is_tree ? place : graph->places[place]];
}

/* Where a depth-first walk is: the vertices from the root to it, and which of their links are still to be followed. */
typedef struct descent {
    uint32_t *path, *next;
    bool *on_path;
    size_t depth;
} descent;

static eg_status fail_cycle(const eg__model_graph *graph, const eg__link *link)
{
    eg__buf path = {0};
    const eg_module *parent = graph->vertices[link->parent].module;
    eg_status status = eg__model_graph_path(graph, link->parent, &path);
    if (status == EG_OK)
        status = eg_fail(EG_EINVAL, "%s '%s' contains itself, by its child '%s'", parent->cls->name,
                         eg__path_text(&path), parent->slots[link->slot].name);
    eg__buf_free(&path);
    return status;
}

static void descend(eg__model_graph *graph, descent *d, uint32_t vertex, size_t *n)
{
    graph->order[(*n)++] = vertex;
    d->path[d->depth++] = vertex;
    d->next[vertex] = 0;
    d->on_path[vertex] = true;
}

static eg_status walk(eg__model_graph *graph, descent *d)
{
    size_t n = 0;
    for (size_t i = 0; i < graph->n_vertices; i++)
        graph->vertices[i].way = EG__NO_VERTEX;
    descend(graph, d, 0, &n);
    while (d->depth > 0) {
        uint32_t at = d->path[d->depth - 1];
        const eg__vertex *v = &graph->vertices[at];
        if (d->next[at] == v->n_links) {
            d->on_path[at] = false;
            d->depth--;
            continue;
        }
        uint32_t number = v->first_link + d->next[at]++;
        const eg__link *link = &graph->links[number];
        if (d->on_path[link->child])
            return fail_cycle(graph, link);
        if (graph->vertices[link->child].way != EG__NO_VERTEX)
            continue;
        graph->vertices[link->child].way = number;
        descend(graph, d, link->child, &n);
    }
    return EG_OK;
}

eg_status eg__model_graph_sort(eg__model_graph *graph)
{
    size_t n = graph->n_vertices;
    if (graph->order != NULL)
        return EG_OK;
    descent d = {.path = eg__calloc(n, sizeof(*d.path)),
                 .next = eg__calloc(n, sizeof(*d.next)),
                 .on_path = eg__calloc(n, sizeof(*d.on_path))};
    graph->order = eg__calloc(n, sizeof(*graph->order));
    bool has = d.path != NULL && d.next != NULL && d.on_path != NULL && graph->order != NULL;
    eg_status status = has ? walk(graph, &d) : EG_ENOMEM;
    free(d.path);
    free(d.next);
    free(d.on_path);
    return status;
}

/* In a tree, which most models are, there is one way to each module, and no circle. */
eg_status eg__model_graph_build(eg__model_graph *graph, eg_module *root)
{
    *graph = (eg__model_graph){.is_tree = true};
    uint32_t first;
    EG_TRY(eg__ptr_map_put(&graph->shared, root, (void *)(uintptr_t)1));
    EG_TRY(add_vertex(graph, root, EG__NO_VERTEX, &first));
    graph->vertices[0].n_places = 0;
    for (size_t i = 0; i < graph->n_vertices; i++)
        EG_TRY(add_links(graph, (uint32_t)i));
    if (graph->is_tree)
        return EG_OK;
    EG_TRY(list_places(graph));
    return eg__model_graph_sort(graph);
}

void eg__model_graph_free(eg__model_graph *graph)
{
    free(graph->vertices);
    free(graph->links);
    free(graph->places);
    free(graph->order);
    eg__ptr_map_free(&graph->shared);
    eg__ptr_map_free(&graph->all);
    *graph = (eg__model_graph){0};
}

eg_status eg__model_graph_find(eg__model_graph *graph, const eg_module *m, uint32_t *vertex)
{
    if (graph->all.n == 0) {
        for (size_t i = 0; i < graph->n_vertices; i++)
            EG_TRY(eg__ptr_map_put(&graph->all, graph->vertices[i].module, (void *)(uintptr_t)(i + 1)));
    }
    void **known = eg__ptr_map_find(&graph->all, m);
    *vertex = known != NULL ? (uint32_t)(uintptr_t)*known - 1 : EG__NO_VERTEX;
    return EG_OK;
}

/* ---- paths ---- */

const char *eg__path_text(const eg__buf *path)
{
    return path->len == 0 ? "" : path->data;
}

static const char *name_of(const eg__model_graph *graph, const eg__link *link)
{
    return graph->vertices[link->parent].module->slots[link->slot].name;
}

/* Written from its end, which is where the vertex knows its way from. */
eg_status eg__model_graph_path(const eg__model_graph *graph, uint32_t vertex, eg__buf *path)
{
    size_t len = 0;
    for (uint32_t v = vertex; graph->vertices[v].way != EG__NO_VERTEX;) {
        const eg__link *link = &graph->links[graph->vertices[v].way];
        len += strlen(name_of(graph, link)) + 1;
        v = link->parent;
    }
    EG_TRY(eg__grow(&path->data, &path->capacity, len + 1, 1));
    path->len = len == 0 ? 0 : len - 1; /* the first name has no '.' before it */
    path->data[path->len] = '\0';
    size_t at = path->len;
    for (uint32_t v = vertex; graph->vertices[v].way != EG__NO_VERTEX;) {
        const eg__link *link = &graph->links[graph->vertices[v].way];
        size_t part = strlen(name_of(graph, link));
        at -= part;
        memcpy(path->data + at, name_of(graph, link), part);
        if (at > 0)
            path->data[--at] = '.';
        v = link->parent;
    }
    return EG_OK;
}

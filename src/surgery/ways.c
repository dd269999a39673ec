/*
 * Paths that outlive the model: steps from the root with names of their own, since what they lead through may be gone
 * when somebody asks. A step is shared by all paths that go over it, so a path costs its last step alone.
 */
#include "surgery/internal.h"

#include <stdlib.h>
#include <string.h>

static eg_status add_step(eg_surgery *s, const eg__model_graph *graph, uint32_t *known, uint32_t vertex)
{
    const eg__link *link = &graph->links[graph->vertices[vertex].way];
    const char *name = graph->vertices[link->parent].module->slots[link->slot].name;
    EG_CHECK(s->n_ways < UINT32_MAX, EG_EUNSUPPORTED, "more than %u paths", UINT32_MAX);
    EG_TRY(eg__grow(&s->ways, &s->ways_capacity, s->n_ways + 1, sizeof(*s->ways)));
    s->ways[s->n_ways] = (struct eg__way){.parent = known[link->parent], .name = s->way_names.len};
    eg__buf_append(&s->way_names, name, strlen(name) + 1);
    known[vertex] = (uint32_t)s->n_ways++;
    return s->way_names.failed ? EG_ENOMEM : EG_OK;
}

static uint32_t parent_of(const eg__model_graph *graph, uint32_t vertex)
{
    return graph->links[graph->vertices[vertex].way].parent;
}

/* What leads there gets its own first, from the top. */
eg_status eg__way_find(eg_surgery *s, const eg__model_graph *graph, uint32_t *known, uint32_t vertex, uint32_t *way)
{
    uint32_t *steps = NULL;
    size_t n = 0, capacity = 0;
    eg_status status = EG_OK;
    for (uint32_t v = vertex; v != 0 && known[v] == 0 && status == EG_OK; v = parent_of(graph, v)) {
        if (parent_of(graph, v) == 0 || known[parent_of(graph, v)] != 0) {
            status = add_step(s, graph, known, v);
            break;
        }
        status = eg__grow(&steps, &capacity, n + 1, sizeof(*steps));
        if (status == EG_OK)
            steps[n++] = v;
    }
    while (n > 0 && status == EG_OK)
        status = add_step(s, graph, known, steps[--n]);
    free(steps);
    *way = known[vertex];
    return status;
}

/* Written from its end. */
char *eg__way_text(const eg_surgery *s, uint32_t way)
{
    size_t len = 0;
    for (uint32_t w = way; w != 0; w = s->ways[w].parent)
        len += strlen(s->way_names.data + s->ways[w].name) + 1;
    char *path = eg__calloc(len + 1, 1);
    size_t at = len == 0 ? 0 : len - 1;
    for (uint32_t w = way; w != 0 && path != NULL; w = s->ways[w].parent) {
        const char *name = s->way_names.data + s->ways[w].name;
        at -= strlen(name);
        memcpy(path + at, name, strlen(name));
        if (at > 0)
            path[--at] = '.';
    }
    return path;
}

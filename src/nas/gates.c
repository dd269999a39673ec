/*
 * nas/gates.c - which choices count: those that lie where something runs.
 *
 * A candidate of a layer choice runs when it is chosen, a block of a repeat when the depth is large enough; so choices
 * inside of either exist only under some decisions. Here this is kept as a graph: its nodes are the choices and the
 * repeats of open depth, its edges lead from a node to those that lie in its candidate (block) number `at` with none of
 * their kind in between. A module in several places has as many edges to it. Node 0 is the model.
 */
#include "nas/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct node {
    const eg_module *module;  /* NULL: the model */
    const eg_module *decider; /* the choice whose decision opens its edges; NULL: they are open */
    size_t key;               /* the decider's, a number in `unique`; also of choices without edges */
    size_t first, n;          /* edges */
} node;

typedef struct edge {
    size_t at, to;
} edge;

struct eg_gates {
    node *nodes;
    size_t n_nodes, nodes_capacity;
    edge *edges;
    size_t n_edges, edges_capacity;
    eg_module *const *unique; /* lent */
    size_t n_unique;
};

/* ---- building ---- */

typedef struct builder {
    eg_gates *gates;
    eg__ptr_map numbers; /* modules -> the address of nothing: their node's number */
    eg__ptr_map seen;    /* modules -> the number of the walk that saw them last */
    size_t walk;
} builder;

static const eg_module *decider_of(const eg_module *m)
{
    if (eg_is_a(m, &eg_repeat_class))
        return eg__open_field(m, "depth");
    return eg__is_choice(m) ? m : NULL;
}

static size_t number_of_key(const eg_gates *g, const char *key)
{
    size_t i = 0;
    while (i < g->n_unique && strcmp(eg_mutable_key(g->unique[i]), key) != 0)
        i++;
    return i;
}

static eg_status add_node(builder *b, const eg_module *m, const eg_module *decider, size_t *number)
{
    eg_gates *g = b->gates;
    void **known = m != NULL ? eg__ptr_map_find(&b->numbers, m) : NULL;
    if (known != NULL) {
        *number = (size_t)(uintptr_t)*known;
        return EG_OK;
    }
    EG_TRY(eg__grow(&g->nodes, &g->nodes_capacity, g->n_nodes + 1, sizeof(*g->nodes)));
    *number = g->n_nodes;
    g->nodes[g->n_nodes++] = (node){
        .module = m, .decider = decider, .key = decider != NULL ? number_of_key(g, eg_mutable_key(decider)) : SIZE_MAX};
    return m != NULL ? eg__ptr_map_put(&b->numbers, m, (void *)(uintptr_t)*number) : EG_OK;
}

static eg_status add_edge(builder *b, const eg_module *m, size_t at)
{
    eg_gates *g = b->gates;
    size_t to = 0;
    EG_TRY(add_node(b, m, decider_of(m), &to));
    EG_TRY(eg__grow(&g->edges, &g->edges_capacity, g->n_edges + 1, sizeof(*g->edges)));
    g->edges[g->n_edges++] = (edge){at, to};
    return EG_OK;
}

static eg_status see(builder *b, const eg_module *m, bool *fresh)
{
    void *stamp = (void *)(uintptr_t)b->walk, **last = eg__ptr_map_find(&b->seen, m);
    *fresh = last == NULL || *last != stamp;
    return *fresh ? eg__ptr_map_put(&b->seen, m, stamp) : EG_OK;
}

/* What lies in m, down to the next choices. */
static eg_status enter(builder *b, eg_module *m, size_t at)
{
    bool fresh;
    EG_TRY(see(b, m, &fresh));
    if (!fresh)
        return EG_OK;
    bool is_node = decider_of(m) != NULL;
    if (is_node)
        EG_TRY(add_edge(b, m, at));
    if (eg__is_choice(m))
        return EG_OK;
    for (size_t i = 0; i < eg_module_n_children(m); i++) {
        eg_module *child = eg_module_child_at(m, i, NULL);
        if (child != NULL && (!is_node || eg__open_class_of(child) != NULL) && eg__may_run(m, child))
            EG_TRY(enter(b, child, at));
    }
    return EG_OK;
}

static eg_status add_inside(builder *b, size_t number)
{
    eg_module *m = (eg_module *)(uintptr_t)b->gates->nodes[number].module;
    bool layers = eg_is_a(m, &eg_layer_choice_class);
    size_t n = layers ? eg_layer_choice_size(m) : eg_is_a(m, &eg_repeat_class) ? eg__repeat_size(m) : 0;
    b->gates->nodes[number].first = b->gates->n_edges;
    for (size_t i = 0; i < n; i++) {
        eg_module *part = layers ? eg_layer_choice_at(m, i) : eg__repeat_block(m, i);
        b->walk++;
        if (part != NULL)
            EG_TRY(enter(b, part, i));
    }
    b->gates->nodes[number].n = b->gates->n_edges - b->gates->nodes[number].first;
    return EG_OK;
}

static eg_status build(builder *b, eg_module *model)
{
    size_t root;
    EG_TRY(add_node(b, NULL, NULL, &root));
    b->walk = 1;
    EG_TRY(enter(b, model, 0));
    b->gates->nodes[root].n = b->gates->n_edges;
    for (size_t i = 1; i < b->gates->n_nodes; i++)
        EG_TRY(add_inside(b, i));
    return EG_OK;
}

eg_gates *eg__gates_new(eg_module *model, eg_module *const *unique, size_t n_unique)
{
    builder b = {.gates = eg__calloc(1, sizeof(eg_gates))};
    if (b.gates == NULL)
        return NULL;
    b.gates->unique = unique;
    b.gates->n_unique = n_unique;
    eg_status status = build(&b, model);
    eg__ptr_map_free(&b.numbers);
    eg__ptr_map_free(&b.seen);
    if (status == EG_OK)
        return b.gates;
    eg__gates_free(b.gates);
    return NULL;
}

void eg__gates_free(eg_gates *gates)
{
    if (gates == NULL)
        return;
    free(gates->nodes);
    free(gates->edges);
    free(gates);
}

/* ---- asking ---- */

/* Whether a closed repeat runs this block; anything else may run all that it holds. */
bool eg__may_run(const eg_module *m, const eg_module *child)
{
    int64_t depth = eg_is_a(m, &eg_repeat_class) ? ((const eg_repeat *)m)->depth : -1;
    if (depth < 0 || eg__open_field(m, "depth") != NULL)
        return true;
    for (int64_t i = 0; i < depth; i++) {
        if (eg__repeat_block(m, (size_t)i) == child)
            return true;
    }
    return false;
}

static bool chosen(const eg_decision *decision, size_t i)
{
    return i < decision->n && (decision->tensor != NULL || decision->weights[i] != 0);
}

/* Whether candidate or block `at` runs. */
static bool is_open(const node *n, const eg_decision *decision, size_t at)
{
    if (n->decider == NULL)
        return true;
    if (decision == NULL)
        return false;
    if (n->decider == n->module)
        return chosen(decision, at);
    for (size_t i = 0; i < decision->n; i++) {
        if (chosen(decision, i) && eg_value_choice_at(n->decider, i) > (double)at)
            return true;
    }
    return false;
}

typedef struct walk {
    const eg_gates *gates;
    eg__decide_fn decide;
    void *payload;
    bool *reached; /* nodes */
} walk;

static eg_status reach(walk *w, size_t number)
{
    const node *n = &w->gates->nodes[number];
    if (w->reached[number])
        return EG_OK;
    w->reached[number] = true;
    const eg_decision *decision = NULL;
    if (n->decider != NULL)
        EG_TRY(w->decide(w->payload, n->key, &decision));
    for (size_t i = n->first; i < n->first + n->n; i++) {
        if (is_open(n, decision, w->gates->edges[i].at))
            EG_TRY(reach(w, w->gates->edges[i].to));
    }
    return EG_OK;
}

eg_status eg__gates_walk(const eg_gates *gates, eg__decide_fn decide, void *payload, bool *active)
{
    walk w = {gates, decide, payload, eg__calloc(gates->n_nodes, sizeof(bool))};
    if (w.reached == NULL)
        return EG_ENOMEM;
    eg_status status = reach(&w, 0);
    memset(active, 0, gates->n_unique * sizeof(*active));
    for (size_t i = 1; i < gates->n_nodes; i++) {
        if (w.reached[i])
            active[gates->nodes[i].key] = true;
    }
    free(w.reached);
    return status;
}

typedef struct lookup {
    const eg_gates *gates;
    const eg_decisions *decisions;
} lookup;

static eg_status look_up(void *payload, size_t key, const eg_decision **decision)
{
    const lookup *l = payload;
    *decision = eg_decisions_get(l->decisions, eg_mutable_key(l->gates->unique[key]));
    return EG_OK;
}

eg_status eg__gates_active(const eg_gates *gates, const eg_decisions *decisions, bool *active)
{
    return eg__gates_walk(gates, look_up, &(lookup){gates, decisions}, active);
}

bool eg__gates_flat(const eg_gates *gates)
{
    return gates->nodes[0].n == gates->n_edges;
}

bool eg__gates_holds(const eg_gates *gates, const eg_module *choice)
{
    for (size_t i = 1; i < gates->n_nodes; i++) {
        if (gates->nodes[i].module == choice)
            return gates->nodes[i].n > 0;
    }
    return false;
}

/* ---- telling ---- */

/* The next edge from *i on that leads to a node of this key; its start in *from. False at the end. */
static bool next_edge(const eg_gates *g, size_t key, size_t *from, size_t *i)
{
    for (; *i < g->n_edges; ++*i) {
        while (*i >= g->nodes[*from].first + g->nodes[*from].n)
            ++*from;
        const node *to = &g->nodes[g->edges[*i].to];
        if (to->key == key && to->module == to->decider)
            return true;
    }
    return false;
}

eg_status eg__gates_fail_inactive(const eg_gates *gates, size_t key)
{
    const char *name = eg_mutable_key(gates->unique[key]);
    size_t from = 0, i = 0;
    EG_CHECK(next_edge(gates, key, &from, &i), EG_EINVAL, "architecture: '%s' lies where nothing runs", name);
    const node *n = &gates->nodes[from];
    const char *outer = eg_mutable_key(n->decider);
    if (n->decider == n->module)
        return eg_fail(EG_EINVAL, "architecture: '%s' lies in candidate '%s' of '%s', which is not chosen", name,
                       eg_layer_choice_name(n->module, gates->edges[i].at), outer);
    return eg_fail(EG_EINVAL, "architecture: '%s' lies in block %zu, which runs when '%s' is more than %zu", name,
                   gates->edges[i].at, outer, gates->edges[i].at);
}

/* The names or values under which candidate or block `at` runs go into `list`, each once. */
static eg_status add_values(const node *n, size_t at, json_t *list)
{
    for (size_t i = 0; i < eg__choice_size(n->decider); i++) {
        bool layer = n->decider == n->module;
        if (layer ? i != at : !(eg_value_choice_at(n->decider, i) > (double)at))
            continue;
        json_t *value = eg__candidate_json(n->decider, i);
        bool known = false;
        for (size_t k = 0; k < json_array_size(list); k++)
            known = known || json_equal(json_array_get(list, k), value) != 0;
        if (known)
            json_decref(value);
        else if (json_array_append_new(list, value) != 0)
            return eg_fail(EG_ENOMEM, "out of memory");
    }
    return EG_OK;
}

/* The condition on this key in a list of them; made where there is none. */
static json_t *condition_on(json_t *conditions, const char *key)
{
    for (size_t i = 0; i < json_array_size(conditions); i++) {
        json_t *condition = json_array_get(conditions, i);
        if (strcmp(json_string_value(json_object_get(condition, "key")), key) == 0)
            return condition;
    }
    json_t *condition = json_pack("{s:s, s:[]}", "key", key, "is");
    return condition != NULL && json_array_append_new(conditions, condition) == 0 ? condition : NULL;
}

static eg_status fill_when(const eg_gates *g, size_t key, json_t *conditions)
{
    for (size_t from = 0, i = 0; next_edge(g, key, &from, &i); i++) {
        const node *n = &g->nodes[from];
        json_t *condition = condition_on(conditions, eg_mutable_key(n->decider));
        EG_CHECK(condition != NULL, EG_ENOMEM, "out of memory");
        EG_TRY(add_values(n, g->edges[i].at, json_object_get(condition, "is")));
    }
    return EG_OK;
}

eg_status eg__gates_when(const eg_gates *gates, size_t key, json_t **when)
{
    *when = NULL;
    size_t from = 0, i = 0;
    if (next_edge(gates, key, &from, &i) && from == 0)
        return EG_OK;
    json_t *conditions = json_array();
    EG_CHECK(conditions != NULL, EG_ENOMEM, "out of memory");
    eg_status status = fill_when(gates, key, conditions);
    if (status == EG_OK) {
        bool single = json_array_size(conditions) == 1;
        *when = json_incref(single ? json_array_get(conditions, 0) : conditions);
    }
    json_decref(conditions);
    return status;
}

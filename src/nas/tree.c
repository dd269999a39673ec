/*
 * nas/tree.c - the mutables of a model as a tree, and walks over it.
 */
#include "nas/internal.h"

#include <stdlib.h>
#include <string.h>

void eg__tree_free(eg_mutable_node *node, const eg_module *model)
{
    if (node == NULL)
        return;
    for (size_t i = 0; i < node->n_children; i++)
        eg__tree_free(node->children[i], model);
    free(node->children);
    if (node->module != model)
        eg_module_release(node->module);
    free(node);
}

void eg__mutables_free(eg__mutables *mutables, const eg_module *model)
{
    eg__gates_free(mutables->gates);
    eg__tree_free(mutables->tree, model);
    for (size_t i = 0; i < mutables->n_found; i++)
        free(mutables->found[i].path);
    free(mutables->found);
    free(mutables->unique);
    *mutables = (eg__mutables){0};
}

/* ---- parsing ---- */

typedef struct parser {
    eg__mutables *out;
    const eg_module *model;
    eg__ptr_map seen; /* modules: each object once, under its first path */
    eg__map keys;     /* key -> its first mutable */
} parser;

/* Mutables that share a key share its decision, so they must be alike. */
static eg_status check_same_key(const parser *p, const eg_module *m, const char *path)
{
    const char *key = eg_mutable_key(m);
    const eg_module *first = eg__map_get(&p->keys, key);
    if (first == NULL)
        return EG_OK;
    const char *first_path = "";
    for (size_t i = 0; i < p->out->n_found; i++) {
        if (p->out->found[i].module == first)
            first_path = p->out->found[i].path;
    }
    EG_CHECK(eg__kind_of(first) == eg__kind_of(m), EG_EINVAL, "key '%s' is that of a %s at '%s' and of a %s at '%s'",
             key, first->cls->name, first_path, m->cls->name, path);
    if (!eg__is_choice(m))
        return EG_OK;
    size_t size[2] = {eg__choice_size(first), eg__choice_size(m)};
    EG_CHECK(size[0] == size[1], EG_EINVAL, "key '%s' has %zu candidates at '%s' and %zu at '%s'", key, size[0],
             first_path, size[1], path);
    return EG_OK;
}

/* The sources of a choice that is fixed may have given way to one candidate each, which has no key. */
static eg_status check_sources(const parser *p, const eg_module *m)
{
    if (((const eg_input_choice *)m)->fixed != NULL)
        return EG_OK;
    for (size_t i = 0; i < eg_input_choice_size(m); i++) {
        const char *source = eg_input_choice_source(m, i);
        EG_CHECK(*source == '\0' || eg__map_find(&p->keys, source) != NULL, EG_EINVAL,
                 "input choice '%s' chooses from '%s', which is no key that appeared before it, nor EG_NO_KEY",
                 eg_mutable_key(m), source);
    }
    return EG_OK;
}

/* A node for m under `parent`; `path` is taken over. */
static eg_mutable_node *add_node(parser *p, eg_mutable_node *parent, eg_module *m, char *path)
{
    eg__mutables *out = p->out;
    if (eg__grow(&out->found, &out->capacity, out->n_found + 1, sizeof(*out->found)) != EG_OK) {
        free(path);
        return NULL;
    }
    out->found[out->n_found++] = (eg__found){m, path};
    size_t room = parent->n_children;
    if (eg__grow(&parent->children, &room, parent->n_children + 1, sizeof(*parent->children)) != EG_OK)
        return NULL;
    eg_mutable_node *node = eg__calloc(1, sizeof(*node));
    if (node == NULL)
        return NULL;
    node->module = m == p->model ? m : eg_module_retain(m);
    parent->children[parent->n_children++] = node;
    return node;
}

static eg_status parse_mutable(parser *p, eg_mutable_node **under, eg_module *m, const char *path)
{
    const char *key = eg_mutable_key(m);
    if (key == NULL || *key == '\0')
        return eg_fail(EG_EINVAL, "the %s at '%s' has no key", m->cls->name, path);
    EG_CHECK(m->open == NULL, EG_EINVAL, "the %s '%s' has an open field, expected constants in what decides",
             m->cls->name, key);
    EG_TRY(check_same_key(p, m, path));
    char *own_path = eg__strdup(path);
    if (own_path == NULL)
        return EG_ENOMEM;
    *under = add_node(p, *under, m, own_path);
    if (*under == NULL)
        return eg_error_last()->code;
    if (eg__map_find(&p->keys, key) == NULL)
        EG_TRY(eg__map_put(&p->keys, key, m));
    return eg_is_a(m, &eg_input_choice_class) ? check_sources(p, m) : EG_OK;
}

/* What is found inside a mutable belongs under its node, other mutables under `under`. */
static eg_status parse(parser *p, eg_mutable_node *under, eg_module *m, const char *path)
{
    bool fresh;
    EG_TRY(eg__ptr_map_add(&p->seen, m, &fresh));
    if (!fresh)
        return EG_OK;
    if (eg_is_a(m, &eg_mutable_class))
        EG_TRY(parse_mutable(p, &under, m, path));
    for (size_t i = 0; i < eg_module_n_children(m); i++) {
        const char *name;
        eg_module *child = eg_module_child_at(m, i, &name);
        if (child == NULL)
            continue;
        char *child_path = eg__format("%s%s%s", path, *path != '\0' ? "." : "", name);
        eg_status status = child_path != NULL ? parse(p, under, child, child_path) : EG_ENOMEM;
        free(child_path);
        EG_TRY(status);
    }
    return EG_OK;
}

eg_status eg__mutables_find(eg_module *model, eg__mutables *out)
{
    parser p = {.out = out, .model = model};
    *out = (eg__mutables){.tree = eg__calloc(1, sizeof(*out->tree))};
    eg_status status = out->tree != NULL ? parse(&p, out->tree, model, "") : EG_ENOMEM;
    if (status == EG_OK) {
        out->unique = eg__calloc(p.keys.n + 1, sizeof(*out->unique));
        status = out->unique != NULL ? EG_OK : EG_ENOMEM;
    }
    if (status == EG_OK) {
        out->n_unique = eg__tree_unique(out->tree, out->unique, 0);
        out->gates = eg__gates_new(model, out->unique, out->n_unique);
        status = out->gates != NULL ? EG_OK : EG_ENOMEM;
    }
    if (status != EG_OK)
        eg__mutables_free(out, model);
    eg__ptr_map_free(&p.seen);
    eg__map_free(&p.keys);
    return status;
}

/* ---- walking ---- */

size_t eg__tree_unique(const eg_mutable_node *node, eg_module **unique, size_t n)
{
    bool known = node->module == NULL;
    for (size_t i = 0; i < n && !known; i++)
        known = strcmp(eg_mutable_key(unique[i]), eg_mutable_key(node->module)) == 0;
    if (!known)
        unique[n++] = node->module;
    for (size_t i = 0; i < node->n_children; i++)
        n = eg__tree_unique(node->children[i], unique, n);
    return n;
}

struct eg_key_memo {
    eg__map seen;
};

eg_key_memo *eg_key_memo_new(void)
{
    return eg__calloc(1, sizeof(eg_key_memo));
}

void eg_key_memo_free(eg_key_memo *memo)
{
    if (memo == NULL)
        return;
    eg__map_free(&memo->seen);
    free(memo);
}

bool eg_key_memo_has(const eg_key_memo *memo, const char *key)
{
    return memo != NULL && key != NULL && eg__map_find(&memo->seen, key) != NULL;
}

typedef struct visitor {
    eg_traverse_order order;
    eg_visit_mutable_fn visit;
    void *payload;
    bool deduplicate;
    eg_key_memo *memo;
} visitor;

/* A repeated node is passed over, its children are not: they may have keys of their own. */
static eg_status traverse(visitor *v, const eg_mutable_node *node)
{
    bool fresh = node->module != NULL;
    if (fresh) {
        const char *key = eg_mutable_key(node->module);
        fresh = !v->deduplicate || !eg_key_memo_has(v->memo, key);
        EG_TRY(eg__map_put(&v->memo->seen, key, NULL));
    }
    if (fresh && v->order == EG_PRE_ORDER)
        EG_TRY(v->visit(v->payload, node->module));
    for (size_t i = 0; i < node->n_children; i++)
        EG_TRY(traverse(v, node->children[i]));
    return fresh && v->order == EG_POST_ORDER ? v->visit(v->payload, node->module) : EG_OK;
}

eg_status eg_mutable_node_traverse(const eg_mutable_node *node, eg_traverse_order order, bool deduplicate,
                                   eg_key_memo *memo, eg_visit_mutable_fn visit, void *payload)
{
    EG_CHECK(node != NULL && visit != NULL, EG_EINVAL, "no node or no function was given");
    EG_CHECK(order == EG_PRE_ORDER || order == EG_POST_ORDER, EG_EINVAL,
             "order is %d, expected pre-order or post-order", (int)order);
    eg_key_memo own = {0};
    visitor v = {order, visit, payload, deduplicate, memo != NULL ? memo : &own};
    eg_status status = traverse(&v, node);
    eg__map_free(&own.seen);
    return status;
}

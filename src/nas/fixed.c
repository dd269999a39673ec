/*
 * nas/fixed.c - an architecture applied: choices give way to what was chosen.
 *
 * Everything that can fail comes first: the architecture is read and checked, the places to change are listed. What
 * follows only moves pointers.
 */
#include "nas/internal.h"

#include <stdlib.h>
#include <string.h>

const eg_mutator_class eg__fixed_mutator_class = {
    .struct_size = sizeof(eg_mutator_class), .name = "FixedMutator", .instance_size = sizeof(eg_mutator)};

/* One slot to change: `parent` holds a choice there that gives way to `child`, or a candidate that is dropped (NULL). */
typedef struct change {
    eg_module *parent, *old, *child;
    const char *name;
} change;

typedef struct plan {
    eg_mutator *mutator;
    eg_decisions *decisions;
    change *changes;
    size_t n, capacity;
} plan;

/* The only candidate, chosen with weight 1: what the choice can give way to. NULL when it has to stay. */
static eg_module *replacement(const plan *p, const eg_module *choice)
{
    if (!eg_is_a(choice, &eg_layer_choice_class) || ((const eg_layer_choice *)choice)->return_mask)
        return NULL;
    const eg_decision *decision = eg_decisions_get(p->decisions, eg_mutable_key(choice));
    size_t chosen = 0, index = 0;
    for (size_t i = 0; i < decision->n; i++) {
        if (decision->weights[i] != 0) {
            chosen++;
            index = i;
        }
    }
    return chosen == 1 && decision->weights[index] == 1 ? eg_layer_choice_at(choice, index) : NULL;
}

static eg_status add(plan *p, change what)
{
    EG_TRY(eg__grow(&p->changes, &p->capacity, p->n + 1, sizeof(*p->changes)));
    p->changes[p->n++] = what;
    return EG_OK;
}

/* The candidates that a choice which stays has no more use for. */
static eg_status drop_candidates(plan *p, eg_module *choice)
{
    const eg_decision *decision = eg_decisions_get(p->decisions, eg_mutable_key(choice));
    for (size_t i = 0; i < decision->n; i++) {
        eg_module *candidate = eg_layer_choice_at(choice, i);
        EG_CHECK(candidate != NULL || decision->weights[i] == 0, EG_EINVAL,
                 "layer choice '%s': candidate '%s' is chosen, but was removed", eg_mutable_key(choice), eg_layer_choice_name(choice, i));
        if (candidate != NULL && decision->weights[i] == 0)
            EG_TRY(add(p, (change){choice, candidate, NULL, eg_layer_choice_name(choice, i)}));
    }
    return EG_OK;
}

static eg_status plan_module(void *payload, const char *path, eg_module *m)
{
    (void)path;
    plan *p = payload;
    for (size_t i = 0; i < eg_module_n_children(m); i++) {
        const char *name;
        eg_module *child = eg_module_child_at(m, i, &name);
        eg_module *chosen = child != NULL ? replacement(p, child) : NULL;
        if (chosen != NULL)
            EG_TRY(add(p, (change){m, child, chosen, name}));
    }
    if (eg_is_a(m, &eg_layer_choice_class) && replacement(p, m) == NULL)
        EG_TRY(drop_candidates(p, m));
    return EG_OK;
}

/* A root that is a choice and cannot be replaced, because nobody takes the new one, keeps its one candidate. */
static eg_status plan_root(plan *p, bool replaced)
{
    return !replaced && replacement(p, p->mutator->model) != NULL ? drop_candidates(p, p->mutator->model) : EG_OK;
}

/* ---- changing ---- */

static void log_changes(const plan *p)
{
    for (size_t i = 0; i < p->n; i++) {
        const change *c = &p->changes[i];
        if (c->child != NULL)
            eg_log(p->mutator->ctx, EG_LOG_INFO, "replacing '%s' (key '%s') with its candidate '%s'", eg_mutable_name(c->old),
                   eg_mutable_key(c->old), c->child->name != NULL ? c->child->name : c->child->cls->name);
    }
}

static eg_status commit(const plan *p)
{
    for (size_t i = 0; i < p->n; i++) {
        const change *c = &p->changes[i];
        EG_TRY(eg_module_set_child(c->parent, c->name, eg_module_retain(c->child)));
    }
    return EG_OK;
}

/* Takes the replaced choices out of the tree; the decisions go with them. */
static void prune(const plan *p, const eg_module *root, eg_mutable_node *node)
{
    size_t kept = 0;
    for (size_t i = 0; i < node->n_children; i++) {
        eg_mutable_node *child = node->children[i];
        bool gone = replacement(p, child->module) != NULL && (child->module != p->mutator->model || root != child->module);
        if (gone) {
            eg__binding_clear(child->module);
            eg__tree_free(child, p->mutator->model);
        } else {
            prune(p, root, child);
            node->children[kept++] = child;
        }
    }
    node->n_children = kept;
}

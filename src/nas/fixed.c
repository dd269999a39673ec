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

/* In every slot of `parent` that holds `old`, a choice or a candidate of one, `fresh` (or nothing) takes its place. */
typedef struct change {
    eg_module *parent, *old, *fresh;
} change;

typedef struct plan {
    eg_mutator *mutator;      /* of the model as it was */
    bool replaces_root;       /* the caller takes another root */
    eg_decisions *all, *open; /* open: of the choices that stay */
    change *changes;
    size_t n, capacity;
    eg__binding *binding; /* for a new root */
} plan;

/* ---- planning ---- */

/* The only candidate, chosen with weight 1, that a choice gives way to. NULL when it has to stay. */
static eg_module *replacement(const plan *p, const eg_module *m)
{
    if (!eg_is_a(m, &eg_layer_choice_class) || ((const eg_layer_choice *)m)->return_mask)
        return NULL;
    if (m == p->mutator->model && !p->replaces_root)
        return NULL;
    const eg_decision *decision = eg_decisions_get(p->all, eg_mutable_key(m));
    size_t chosen = 0, index = 0;
    for (size_t i = 0; i < decision->n; i++) {
        if (decision->weights[i] != 0) {
            chosen++;
            index = i;
        }
    }
    return chosen == 1 && decision->weights[index] == 1 ? eg_layer_choice_at(m, index) : NULL;
}

static eg_status add(plan *p, eg_module *parent, eg_module *old, eg_module *fresh)
{
    EG_TRY(eg__grow(&p->changes, &p->capacity, p->n + 1, sizeof(*p->changes)));
    p->changes[p->n++] = (change){parent, old, fresh};
    return EG_OK;
}

/* A module can be a candidate under two names. */
static bool is_chosen(const eg_module *choice, const eg_decision *decision, const eg_module *candidate)
{
    for (size_t i = 0; i < decision->n; i++) {
        if (decision->weights[i] != 0 && eg_layer_choice_at(choice, i) == candidate)
            return true;
    }
    return false;
}

/* The candidates that a choice which stays has no more use for. */
static eg_status drop_candidates(plan *p, eg_module *choice)
{
    const char *key = eg_mutable_key(choice);
    const eg_decision *decision = eg_decisions_get(p->all, key);
    for (size_t i = 0; i < decision->n; i++) {
        eg_module *candidate = eg_layer_choice_at(choice, i);
        EG_CHECK(candidate != NULL || decision->weights[i] == 0, EG_EINVAL,
                 "layer choice '%s': candidate '%s' is chosen, but was removed", key, eg_layer_choice_name(choice, i));
        if (candidate != NULL && !is_chosen(choice, decision, candidate))
            EG_TRY(add(p, choice, candidate, NULL));
    }
    return EG_OK;
}

static eg_status plan_module(void *payload, const char *path, eg_module *m)
{
    (void)path;
    plan *p = payload;
    for (size_t i = 0; i < eg_module_n_children(m); i++) {
        eg_module *child = eg_module_child_at(m, i, NULL);
        eg_module *chosen = child != NULL ? replacement(p, child) : NULL;
        if (chosen != NULL)
            EG_TRY(add(p, m, child, chosen));
    }
    return eg_is_a(m, &eg_layer_choice_class) && replacement(p, m) == NULL ? drop_candidates(p, m) : EG_OK;
}

static eg_status keep_decision(void *payload, eg_module *m)
{
    plan *p = payload;
    if (!eg__is_choice(m) || replacement(p, m) != NULL)
        return EG_OK;
    const char *key = eg_mutable_key(m);
    return eg__decisions_copy_one(p->open, key, eg_decisions_get(p->all, key));
}

static eg_status make_plan(plan *p, const eg_arch *arch, const eg_fixed_options *options)
{
    eg_mutator *mutator = p->mutator;
    p->all = eg_decisions_new();
    p->open = eg_decisions_new();
    if (p->all == NULL || p->open == NULL)
        return EG_ENOMEM;
    EG_TRY(eg__decisions_from_arch(mutator->mutables, mutator->n_mutables, arch, !options->not_strict, p->all));
    p->replaces_root = options->root != NULL;
    eg_module *root = replacement(p, mutator->model);
    if (root != NULL) {
        EG_CHECK(root->extension == NULL, EG_EUNSUPPORTED,
                 "the candidate that becomes the model carries something that its "
                 "mutator would replace");
        p->binding = eg__binding_new(mutator, "");
        if (p->binding == NULL)
            return EG_ENOMEM;
    }
    EG_TRY(eg_module_walk(mutator->model, plan_module, p));
    return eg_mutable_node_traverse(mutator->tree, EG_PRE_ORDER, false, keep_decision, p);
}

/* ---- changing: nothing here can fail ---- */

static void log_change(const change *c)
{
    if (c->fresh != NULL)
        eg_log(c->old->ctx, EG_LOG_INFO, "replacing '%s' (key '%s') with its candidate '%s'", eg_mutable_name(c->old),
               eg_mutable_key(c->old), c->fresh->name != NULL ? c->fresh->name : c->fresh->cls->name);
}

static void make_change(const change *c)
{
    for (size_t i = 0; i < c->parent->n_slots; i++) {
        eg_slot *slot = &c->parent->slots[i];
        if (slot->kind != EG_SLOT_CHILD || *eg__slot_child(slot) != c->old)
            continue;
        *eg__slot_child(slot) = eg_module_retain(c->fresh);
        eg_module_release(c->old);
    }
}

/* Takes the replaced choices out of the tree, which has held them until now. */
static void prune(const plan *p, eg_mutable_node *node)
{
    size_t kept = 0;
    for (size_t i = 0; i < node->n_children; i++) {
        eg_mutable_node *child = node->children[i];
        if (replacement(p, child->module) != NULL) {
            eg__binding_clear(child->module);
            eg__tree_free(child, p->mutator->model);
        } else {
            prune(p, child);
            node->children[kept++] = child;
        }
    }
    node->n_children = kept;
}

/* The candidate becomes the model, for the caller and for the mutator. */
static void replace_root(plan *p, eg_module **root, eg_module *fresh)
{
    eg_module *old = p->mutator->model;
    eg__binding_set(fresh, p->binding);
    p->binding = NULL;
    p->mutator->model = eg_module_retain(fresh);
    *root = eg_module_retain(fresh);
    eg_module_release(old); /* the mutator's reference */
    eg_module_release(old); /* the caller's */
}

static void commit(plan *p, const eg_fixed_options *options)
{
    eg_mutator *mutator = p->mutator;
    eg_module *root = replacement(p, mutator->model);
    for (size_t i = 0; i < p->n; i++) {
        if (!options->quiet)
            log_change(&p->changes[i]);
        make_change(&p->changes[i]);
    }
    if (root != NULL && !options->quiet)
        log_change(&(change){.old = mutator->model, .fresh = root});
    prune(p, mutator->tree);
    mutator->n_mutables = eg__tree_unique(mutator->tree, mutator->mutables, 0);
    eg__mutator_follow(mutator, p->open);
    p->open = NULL;
    if (root != NULL)
        replace_root(p, options->root, root);
    eg__mutator_give_to_model(mutator);
}

eg_mutator *eg_fixed_architecture(eg_module *model, const eg_arch *arch, const eg_fixed_options *options)
{
    if (model == NULL || arch == NULL)
        return eg__null(__func__, model == NULL ? "model" : "architecture");
    eg_fixed_options own = {0};
    if (eg__options_copy(&own, sizeof(own), options) != EG_OK)
        return NULL;
    plan p = {.mutator = eg_mutator_attach(&eg__fixed_mutator_class, 0, NULL, model)};
    if (p.mutator == NULL)
        return NULL;
    eg_status status = make_plan(&p, arch, &own);
    if (status == EG_OK) {
        commit(&p, &own);
    } else {
        eg_mutator_detach(p.mutator);
        p.mutator = NULL;
    }
    if (p.binding != NULL) {
        free(p.binding->path);
        free(p.binding);
    }
    eg_decisions_free(p.all);
    eg_decisions_free(p.open);
    free(p.changes);
    return p.mutator;
}

eg_status eg_apply_arch(eg_module *model, const eg_arch *arch)
{
    return eg_fixed_architecture(model, arch, NULL) != NULL ? EG_OK : eg_error_last()->code;
}

eg_status eg_apply_fixed_architecture(eg_module *model, const char *path)
{
    eg_arch *arch = eg_arch_load(path);
    eg_status status = arch != NULL ? eg_apply_arch(model, arch) : eg_error_last()->code;
    eg_arch_free(arch);
    return status;
}

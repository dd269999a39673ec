/*
 * nas/fixed.c - an architecture applied: choices give way to what was chosen.
 *
 * Everything that can fail comes first: the architecture is read and checked, the places to change are listed. What
 * follows only moves pointers.
 */
#include "nas/internal.h"

#include <stdlib.h>
#include <string.h>

/* In every slot of `parent` that holds `old`, a choice or a candidate of one, `fresh` (or nothing) takes its place. */
typedef struct change {
    eg_module *parent, *old, *fresh;
} change;

typedef struct plan {
    const eg_module *model;
    eg__mutables mutables;
    bool replaces_root;   /* the caller takes another root */
    const char *part;     /* where changes are made, "" = everywhere */
    const eg_module *top; /* the module there, which the caller or what is around it holds */
    eg_decisions *all;
    change *changes;
    size_t n, capacity;
    char **fixed; /* for each found mutable: what it follows from now on, when it stays; JSON */
} plan;

/* ---- planning ---- */

/* The only candidate, chosen with weight 1, that a choice gives way to. NULL when it has to stay. */
static eg_module *replacement(const plan *p, const eg_module *m)
{
    if (!eg_is_a(m, &eg_layer_choice_class) || ((const eg_layer_choice *)m)->return_mask)
        return NULL;
    if (m == p->top && !p->replaces_root)
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

/* Whether a path is that of the part or of something in it. */
static bool in_part(const plan *p, const char *path)
{
    size_t len = strlen(p->part);
    return len == 0 || (strncmp(path, p->part, len) == 0 && (path[len] == '\0' || path[len] == '.'));
}

static eg_status plan_module(void *payload, const char *path, eg_module *m)
{
    plan *p = payload;
    if (!in_part(p, path))
        return EG_OK;
    for (size_t i = 0; i < eg_module_n_children(m); i++) {
        eg_module *child = eg_module_child_at(m, i, NULL);
        eg_module *chosen = child != NULL ? replacement(p, child) : NULL;
        if (chosen != NULL)
            EG_TRY(add(p, m, child, chosen));
    }
    return eg_is_a(m, &eg_layer_choice_class) && replacement(p, m) == NULL ? drop_candidates(p, m) : EG_OK;
}

/* A mutator would go on deciding for what it is bound to. */
static eg_status check_unbound(const plan *p)
{
    const eg__binding *binding = eg__binding_of(p->model);
    for (size_t i = 0; i < p->mutables.n_found && binding == NULL; i++)
        binding = eg__binding_of(p->mutables.found[i].module);
    EG_CHECK(binding == NULL, EG_EINVAL,
             "the model has a %s: let go of it with eg_search_free() or eg_mutator_detach() before an architecture is "
             "applied",
             binding->mutator->cls->name);
    return EG_OK;
}

/* The values that the choices which stay will follow. */
static eg_status plan_fixed(plan *p, const eg_arch *arch)
{
    p->fixed = eg__calloc(p->mutables.n_found + 1, sizeof(*p->fixed));
    if (p->fixed == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < p->mutables.n_found; i++) {
        const eg_module *m = p->mutables.found[i].module;
        if (!eg__is_choice(m) || !in_part(p, p->mutables.found[i].path) || replacement(p, m) != NULL)
            continue;
        p->fixed[i] = eg_arch_value(arch, eg_mutable_key(m));
        if (p->fixed[i] == NULL)
            return eg_error_last()->code;
    }
    return EG_OK;
}

static eg_status make_plan(plan *p, eg_module *model, const eg_arch *arch, bool strict)
{
    EG_TRY(eg__mutables_find(model, &p->mutables));
    EG_TRY(check_unbound(p));
    p->all = eg_decisions_new();
    if (p->all == NULL)
        return EG_ENOMEM;
    EG_TRY(eg__decisions_from_arch(p->mutables.unique, p->mutables.n_unique, arch, strict, p->all));
    EG_TRY(eg_module_walk(model, plan_module, p));
    return plan_fixed(p, arch);
}

static void free_plan(plan *p)
{
    for (size_t i = 0; i < p->mutables.n_found && p->fixed != NULL; i++)
        free(p->fixed[i]);
    free(p->fixed);
    free(p->changes);
    eg_decisions_free(p->all);
    eg__mutables_free(&p->mutables, p->model);
}

/* ---- changing: nothing here can fail ---- */

static void log_change(const plan *p, const change *c)
{
    const char *path = "";
    for (size_t i = 0; i < p->mutables.n_found; i++) {
        if (p->mutables.found[i].module == c->old)
            path = p->mutables.found[i].path;
    }
    if (c->fresh != NULL)
        eg_log(c->old->ctx, EG_LOG_INFO, "replacing '%s' (key '%s') with its candidate '%s'", path,
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

static void commit(plan *p, eg_module *model, const eg_fixed_options *options)
{
    eg_module *root = p->replaces_root ? replacement(p, model) : NULL;
    for (size_t i = 0; i < p->n; i++) {
        if (!options->quiet)
            log_change(p, &p->changes[i]);
        make_change(&p->changes[i]);
    }
    for (size_t i = 0; i < p->mutables.n_found; i++) {
        if (p->fixed[i] != NULL)
            eg__choice_fix(p->mutables.found[i].module, p->fixed[i]);
        p->fixed[i] = NULL;
    }
    if (root == NULL)
        return;
    if (!options->quiet)
        log_change(p, &(change){.old = model, .fresh = root});
    *options->root = eg_module_retain(root);
    eg_module_release(model);
}

eg_status eg_fixed_architecture(eg_module *model, const eg_arch *arch, const eg_fixed_options *options)
{
    if (model == NULL || arch == NULL) {
        eg__null(__func__, model == NULL ? "model" : "architecture");
        return eg_error_last()->code;
    }
    eg_fixed_options own = {0};
    EG_TRY(eg__options_copy(&own, sizeof(own), options));
    plan p = {.model = model, .part = own.part != NULL ? own.part : ""};
    p.top = eg_module_find(model, p.part);
    if (p.top == NULL)
        return eg_error_last()->code;
    p.replaces_root = own.root != NULL && p.top == model;
    eg_module_retain(model); /* which gives way itself where it is a choice */
    eg_status status = make_plan(&p, model, arch, !own.not_strict);
    if (status == EG_OK)
        commit(&p, model, &own);
    free_plan(&p);
    eg_module_release(model);
    return status;
}

eg_status eg_apply_arch(eg_module *model, const eg_arch *arch)
{
    return eg_fixed_architecture(model, arch, NULL);
}

eg_status eg_apply_fixed_architecture(eg_module *model, const char *path)
{
    eg_arch *arch = eg_arch_load(path);
    eg_status status = arch != NULL ? eg_apply_arch(model, arch) : eg_error_last()->code;
    eg_arch_free(arch);
    return status;
}

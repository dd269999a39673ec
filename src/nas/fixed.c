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

/* A module whose open fields become constants. */
typedef struct closing {
    eg_module *module;
    eg__narrowed narrowed;
} closing;

typedef struct plan {
    const eg_module *model;
    eg__mutables mutables;
    bool replaces_root; /* the caller takes another root */
    eg_module *top;     /* where changes begin; the caller, or what is around it, holds it */
    eg_decisions *all;  /* of the choices that count */
    eg__ptr_map seen;   /* modules that run in it */
    change *changes;
    size_t n, capacity;
    closing *closings;
    size_t n_closings, closings_capacity;
    eg__ptr_map copies; /* tensors -> their smaller copies, so that what is shared stays so */
    char **fixed;       /* for each found mutable: what it follows from now on, when it stays; JSON */
} plan;

/* ---- planning ---- */

/* The only candidate, chosen with weight 1, that a choice gives way to. NULL when it has to stay. */
static eg_module *only_candidate(const plan *p, const eg_module *m)
{
    if (!eg_is_a(m, &eg_layer_choice_class) || ((const eg_layer_choice *)m)->return_mask)
        return NULL;
    if (m == p->top && !p->replaces_root)
        return NULL;
    const eg_decision *decision = eg_decisions_get(p->all, eg_mutable_key(m));
    size_t chosen = 0, index = 0;
    for (size_t i = 0; decision != NULL && i < decision->n; i++) {
        if (decision->weights[i] != 0) {
            chosen++;
            index = i;
        }
    }
    return chosen == 1 && decision->weights[index] == 1 ? eg_layer_choice_at(m, index) : NULL;
}

/* The same where that candidate may be such a choice itself. */
static eg_module *replacement(const plan *p, const eg_module *m)
{
    eg_module *chosen = NULL, *inner = only_candidate(p, m);
    for (; inner != NULL; inner = only_candidate(p, inner))
        chosen = inner;
    return chosen;
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
    EG_CHECK(decision != NULL, EG_EINVAL, "'%s' is in a part of the model that does not run: nothing decides it", key);
    for (size_t i = 0; i < decision->n; i++) {
        eg_module *candidate = eg_layer_choice_at(choice, i);
        EG_CHECK(candidate != NULL || decision->weights[i] == 0, EG_EINVAL,
                 "layer choice '%s': candidate '%s' is chosen, but was removed", key, eg_layer_choice_name(choice, i));
        if (candidate != NULL && !is_chosen(choice, decision, candidate))
            EG_TRY(add(p, choice, candidate, NULL));
    }
    return EG_OK;
}

static eg_status choose_value(void *payload, eg_module *value, size_t *i)
{
    const plan *p = payload;
    const eg_decision *decision = eg_decisions_get(p->all, eg_mutable_key(value));
    EG_CHECK(decision != NULL, EG_EINVAL, "there is no decision for '%s'", eg_mutable_key(value));
    return eg__value_chosen(value, decision, i);
}

/* Modules that shared a tensor share its copy. */
static eg_status share_copies(plan *p, closing *c)
{
    for (size_t i = 0; i < c->narrowed.n; i++) {
        eg_tensor *copy = c->narrowed.tensors[i];
        if (copy == NULL)
            continue;
        eg_tensor *whole = *eg__slot_tensor(&c->module->slots[i]);
        void **known = eg__ptr_map_find(&p->copies, whole);
        if (known == NULL) {
            EG_TRY(eg__ptr_map_put(&p->copies, whole, copy));
        } else if (eg_shape_equal(((eg_tensor *)*known)->shape, copy->shape)) {
            c->narrowed.tensors[i] = eg_tensor_keep(*known);
            eg_tensor_release(copy);
        }
    }
    return EG_OK;
}

static eg_status close_fields(plan *p, eg_module *m)
{
    EG_TRY(eg__grow(&p->closings, &p->closings_capacity, p->n_closings + 1, sizeof(*p->closings)));
    closing *c = &p->closings[p->n_closings];
    c->module = m;
    EG_TRY(eg__open_narrow(m, choose_value, p, EG__NARROW_COPIES, &c->narrowed));
    p->n_closings++;
    return share_copies(p, c);
}

/* The number of blocks of a repeat of open depth that run. */
static eg_status find_depth(plan *p, const eg_module *repeat, size_t *depth)
{
    eg_module *value = eg__open_field(repeat, "depth");
    size_t i = 0;
    EG_TRY(choose_value(p, value, &i));
    *depth = (size_t)eg_value_choice_at(value, i);
    return EG_OK;
}

/* Whether child runs in m; what does not is left as it is. */
static eg_status check_runs(plan *p, const eg_module *m, const eg_module *child, bool *runs)
{
    *runs = eg__may_run(m, child) && eg__open_class_of(child) == NULL;
    if (eg_is_a(m, &eg_layer_choice_class)) {
        const eg_decision *decision = eg_decisions_get(p->all, eg_mutable_key(m));
        *runs = decision != NULL && is_chosen(m, decision, child);
    } else if (*runs && eg_is_a(m, &eg_repeat_class) && eg__open_field(m, "depth") != NULL) {
        size_t depth = 0;
        EG_TRY(find_depth(p, m, &depth));
        *runs = false;
        for (size_t i = 0; i < depth && !*runs; i++)
            *runs = eg__repeat_block(m, i) == child;
    }
    return EG_OK;
}

static eg_status plan_module(plan *p, eg_module *m)
{
    bool runs;
    EG_TRY(eg__ptr_map_add(&p->seen, m, &runs));
    if (!runs)
        return EG_OK;
    for (size_t i = 0; i < eg_module_n_children(m); i++) {
        eg_module *child = eg_module_child_at(m, i, NULL);
        if (child == NULL)
            continue;
        EG_TRY(check_runs(p, m, child, &runs));
        if (!runs)
            continue;
        eg_module *chosen = replacement(p, child);
        if (chosen != NULL)
            EG_TRY(add(p, m, child, chosen));
        EG_TRY(plan_module(p, child));
    }
    if (m->open != NULL)
        EG_TRY(close_fields(p, m));
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
        if (!eg__is_choice(m) || eg__ptr_map_find(&p->seen, m) == NULL || replacement(p, m) != NULL)
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
    EG_TRY(eg__decisions_from_arch(p->mutables.unique, p->mutables.n_unique, p->mutables.gates, arch, strict, p->all));
    EG_TRY(plan_module(p, p->top));
    return plan_fixed(p, arch);
}

static void free_plan(plan *p)
{
    for (size_t i = 0; i < p->mutables.n_found && p->fixed != NULL; i++)
        free(p->fixed[i]);
    free(p->fixed);
    free(p->changes);
    for (size_t i = 0; i < p->n_closings; i++)
        eg__narrowed_free(&p->closings[i].narrowed);
    free(p->closings);
    eg__ptr_map_free(&p->copies);
    eg__ptr_map_free(&p->seen);
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

/* The fields of modules that run which this key opens. */
static size_t count_fields(const plan *p, const char *key)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_closings; i++) {
        const eg_module *m = p->closings[i].module;
        for (size_t k = 0; k < m->n_slots; k++)
            n += eg__open_slot(m, k) != NULL && strcmp(eg_mutable_key(*eg__slot_child(&m->slots[k])), key) == 0;
    }
    return n;
}

/* One line a key. */
static void log_values(const plan *p)
{
    for (size_t i = 0; i < p->mutables.n_unique; i++) {
        const eg_module *choice = p->mutables.unique[i];
        const char *key = eg_mutable_key(choice);
        size_t chosen = 0, n = eg_value_choice_size(choice) > 0 ? count_fields(p, key) : 0;
        char text[EG__NUMBER_TEXT_SIZE];
        if (n == 0)
            continue;
        const eg_decision *decision = eg_decisions_get(p->all, key);
        while (decision->weights[chosen] == 0)
            chosen++;
        eg_log(choice->ctx, EG_LOG_INFO, "'%s' is %s (in %zu field%s)", key,
               eg__value_text(eg_value_choice_at(choice, chosen), text), n, n == 1 ? "" : "s");
    }
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
    if (!options->quiet)
        log_values(p);
    for (size_t i = 0; i < p->n_closings; i++) {
        closing *c = &p->closings[i];
        eg__open_close(c->module, &c->narrowed);
        if (eg_is_a(c->module, &eg_repeat_class))
            eg__repeat_cut(c->module);
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
    plan p = {.model = model, .top = eg_module_find(model, own.part != NULL ? own.part : "")};
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

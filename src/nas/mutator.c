/*
 * nas/mutator.c - mutators: bound to a model, from then on they decide at every forward pass.
 */
#include "nas/internal.h"

#include <stdlib.h>
#include <string.h>

const eg_mutator_class *eg__mutator_class_with(const eg_mutator_class *cls, size_t offset)
{
    /* the base class has every function */
    while (cls != &eg_mutator_base_class) {
        void (*function)(void);
        memcpy(&function, (const char *)cls + offset, sizeof(function));
        if (function != NULL)
            return cls;
        cls = cls->super != NULL ? cls->super : &eg_mutator_base_class;
    }
    return cls;
}

/* ---- attaching ---- */

/* A model serves one mutator: its mutables ask that one. */
static eg_status check_unbound(const eg_mutator_class *cls, const eg_module *m, const char *path)
{
    const eg__binding *binding = eg__binding_of(m);
    EG_CHECK(binding == NULL, EG_EINVAL, "the model has a %s already%s%s: detach it before attaching a %s",
             binding->mutator->cls->name, *path != '\0' ? " at " : "", path, cls->name);
    EG_CHECK(m->extension == NULL, EG_EUNSUPPORTED, "the %s at '%s' carries something that a %s would replace",
             m->cls->name, path, cls->name);
    return EG_OK;
}

/* Makes all bindings, then sets them all: the root's is bindings[n_found] when it is no mutable. */
static eg_status bind(eg_mutator *mutator, const eg__mutables *mutables)
{
    bool root_is_mutable = mutables->n_found > 0 && mutables->found[0].module == mutator->model;
    size_t n = mutables->n_found + (root_is_mutable ? 0 : 1);
    for (size_t i = 0; i < mutables->n_found; i++)
        EG_TRY(check_unbound(mutator->cls, mutables->found[i].module, mutables->found[i].path));
    eg__binding **bindings = eg__calloc(n, sizeof(*bindings));
    eg_status status = bindings != NULL ? EG_OK : EG_ENOMEM;
    for (size_t i = 0; i < n && status == EG_OK; i++) {
        bindings[i] = eg__binding_new(mutator, i < mutables->n_found ? mutables->found[i].path : "");
        status = bindings[i] != NULL ? EG_OK : EG_ENOMEM;
    }
    for (size_t i = 0; i < n && bindings != NULL; i++) {
        if (status == EG_OK)
            eg__binding_set(i < mutables->n_found ? mutables->found[i].module : mutator->model, bindings[i]);
        else if (bindings[i] != NULL)
            free(bindings[i]->path), free(bindings[i]);
    }
    free(bindings);
    return status;
}

static eg_mutator *new_mutator(const eg_mutator_class *cls, size_t size, const void *prototype, eg_module *model)
{
    eg_mutator *mutator = eg__calloc(1, cls->instance_size);
    if (mutator == NULL)
        return NULL;
    if (prototype != NULL)
        memcpy(mutator, prototype, size);
    *mutator = (eg_mutator){.cls = cls, .ctx = model->ctx, .model = model, .current = eg_decisions_new()};
    if (mutator->current != NULL)
        return mutator;
    free(mutator);
    return NULL;
}

eg_mutator *eg_mutator_attach(const eg_mutator_class *cls, size_t size, const void *prototype, eg_module *model)
{
    if (cls == NULL || model == NULL)
        return eg__null(__func__, cls == NULL ? "class" : "model");
    if (cls->struct_size < sizeof(eg_mutator_class) || cls->instance_size < sizeof(eg_mutator) ||
        size > cls->instance_size) {
        eg_fail(EG_EINVAL, "mutator class '%s': struct_size, instance_size or the size of the prototype is wrong",
                cls->name);
        return NULL;
    }
    eg__mutables mutables;
    if (check_unbound(cls, model, "") != EG_OK || eg__mutables_find(model, &mutables) != EG_OK)
        return NULL;
    eg_mutator *mutator = new_mutator(cls, size, prototype, model);
    if (mutator == NULL || bind(mutator, &mutables) != EG_OK) {
        if (mutator != NULL)
            eg_decisions_free(mutator->current);
        free(mutator);
        eg__mutables_free(&mutables, model);
        return NULL;
    }
    eg_module_retain(model);
    mutator->tree = mutables.tree;
    mutator->mutables = mutables.unique;
    mutator->n_mutables = mutables.n_unique;
    mutator->gates = mutables.gates;
    mutables.tree = NULL;
    mutables.unique = NULL;
    mutables.gates = NULL;
    eg__mutables_free(&mutables, model);
    if (EG__MUTATOR_FN(mutator, build)(mutator) == EG_OK)
        return mutator;
    eg_mutator_detach(mutator);
    return NULL;
}

/* ---- detaching ---- */

static void unbind(const eg_mutable_node *node)
{
    if (node->module != NULL)
        eg__binding_clear(node->module);
    for (size_t i = 0; i < node->n_children; i++)
        unbind(node->children[i]);
}

void eg_mutator_detach(eg_mutator *mutator)
{
    if (mutator == NULL)
        return;
    EG__MUTATOR_FN(mutator, finalize)(mutator);
    eg_module *model = mutator->model;
    unbind(mutator->tree);
    eg__binding_clear(model);
    eg__tree_free(mutator->tree, model);
    free(mutator->mutables);
    eg__gates_free(mutator->gates);
    eg__constraints_free(mutator->constraints);
    eg_decisions_free(mutator->current);
    free(mutator);
    eg_module_release(model);
}

/* ---- deciding ---- */

void eg__mutator_follow(eg_mutator *mutator, eg_decisions *decisions)
{
    eg_decisions_free(mutator->current);
    mutator->current = decisions;
}

eg_status eg__mutator_sample(eg_mutator *mutator, eg_status (*sample)(eg_mutator *self, eg_decisions *out),
                             eg_decisions *out)
{
    if (eg_is_recording(mutator->ctx))
        return sample(mutator, out);
    eg_tape *scope = eg_tape_begin(mutator->ctx, EG_NO_GRAD);
    eg_status status = scope != NULL ? sample(mutator, out) : EG_ENOMEM;
    eg_tape_end(scope);
    return status;
}

/* One sample of a class's own, as constraints see it. */
static eg_status draw(eg_mutator *self, eg_decisions *out, bool *allowed)
{
    eg_decisions *drawn = eg_decisions_new();
    eg_status status = drawn != NULL ? EG__MUTATOR_FN(self, sample_search)(self, drawn) : EG_ENOMEM;
    eg__fail_silent(status, "sample_search", self->cls->name);
    if (status == EG_OK)
        status = eg__decisions_drop_inactive(self, drawn);
    if (status == EG_OK)
        status = eg__decisions_check(self, drawn);
    if (status == EG_OK)
        status = eg_mutator_satisfies(self, drawn, allowed);
    if (status == EG_OK)
        eg__decisions_swap(out, drawn);
    eg_decisions_free(drawn);
    return status;
}

/* What the base class gives was decided by somebody else, who is not asked. */
static eg_status draw_allowed(eg_mutator *self, eg_decisions *out)
{
    if (EG__MUTATOR_FN(self, sample_search) == eg_mutator_base_class.sample_search)
        return eg_mutator_base_class.sample_search(self, out);
    bool allowed = false;
    eg__constraints_count_anew(self);
    for (size_t i = 0; i < EG__MAX_DRAWS && !allowed; i++)
        EG_TRY(draw(self, out, &allowed));
    return allowed ? EG_OK : eg__constraints_fail(self, EG__MAX_DRAWS);
}

eg_status eg_mutator_reset(eg_mutator *mutator)
{
    EG_CHECK(mutator != NULL, EG_EINVAL, "no mutator was given");
    eg_decisions *decisions = eg_decisions_new();
    if (decisions == NULL)
        return EG_ENOMEM;
    eg_status status = eg__mutator_sample(mutator, draw_allowed, decisions);
    if (status == EG_OK)
        eg__mutator_follow(mutator, decisions);
    else
        eg_decisions_free(decisions);
    return status;
}

void eg_mutator_set_recompute(eg_mutator *mutator, bool recompute)
{
    if (mutator != NULL)
        mutator->recompute = recompute;
}

eg_module *eg__mutator_find(const eg_mutator *mutator, const char *key)
{
    for (size_t i = 0; i < mutator->n_mutables; i++) {
        if (strcmp(eg_mutable_key(mutator->mutables[i]), key) == 0)
            return mutator->mutables[i];
    }
    return NULL;
}

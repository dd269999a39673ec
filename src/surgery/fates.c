/*
 * What became of all that hung on a module that was replaced: found by comparing it with the new one, not by keeping
 * books, so that it is true also of what a policy did by itself.
 */
#include "surgery/diff.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One replacement that is looked at. */
typedef struct view {
    eg_model_diff *d;
    eg__fates *out;
    eg__inventory old, fresh;
    unsigned without;
} view;

/* Takes `name` and `detail` over; a NULL detail is none unless `detailed`. */
static eg_status add(view *v, eg_fate fate, const char *what, char *name, bool detailed, char *detail)
{
    eg__texts *texts = &v->d->texts;
    const char *kept_name = eg__texts_add(texts, name), *kept_detail = eg__texts_add(texts, detail);
    if (kept_name == NULL || (detailed && kept_detail == NULL))
        return EG_ENOMEM;
    EG_TRY(eg__grow(&v->out->items, &v->out->capacity, v->out->n + 1, sizeof(*v->out->items)));
    v->out->items[v->out->n++] = (eg_carried){.fate = fate, .what = what, .name = kept_name, .detail = kept_detail};
    return EG_OK;
}

static const char *kind_text(const eg__tensor_item *item)
{
    return item->kind == EG_SLOT_PARAMETER ? "parameter" : "buffer";
}

/* ---- tensors ---- */

/* Where the tensor is that one of the old module was made into: in the new module, or elsewhere in the model. */
static const eg__tensor_item *target_of(const view *v, const eg_tensor *t, bool *inside)
{
    void **target = eg__ptr_map_find(&v->d->targets, t);
    const eg__tensor_item *here = target != NULL ? eg__inventory_tensor(&v->fresh, *target) : NULL;
    *inside = here != NULL;
    return here != NULL || target == NULL ? here : eg__inventory_tensor(&v->d->after, *target);
}

static char *reason(const view *v, const eg__tensor_item *was)
{
    char a[EG_SHAPE_TEXT_SIZE], b[EG_SHAPE_TEXT_SIZE];
    const eg__tensor_item *now = eg__inventory_key(&v->fresh, was->key);
    const eg__tensor_item *elsewhere = eg__inventory_tensor(&v->d->after, was->tensor);
    if (elsewhere != NULL)
        return eg__format("'%s' still has it: they are no longer one", elsewhere->key);
    if (now == NULL)
        return eg__format("no such name in the new module");
    if (!eg_shape_equal(now->tensor->shape, was->tensor->shape))
        return eg__format("shape %s became %s", eg_shape_format(was->tensor->shape, a, sizeof(a)),
                          eg_shape_format(now->tensor->shape, b, sizeof(b)));
    bool asked = v->without & (was->kind == EG_SLOT_PARAMETER ? EG_CARRY_WEIGHTS : EG_CARRY_BUFFERS);
    return eg__format(asked ? "as asked for" : "the new module has its own");
}

static eg_status add_gradient(view *v, eg_fate fate, const eg__tensor_item *was, const eg__tensor_item *target)
{
    if (was->tensor->grad == NULL)
        return EG_OK;
    bool lost = fate == EG_FATE_CONVERTED && target->tensor->grad == NULL;
    return add(v, lost ? EG_FATE_DROPPED : fate, "gradient", eg__strdup(was->key), lost,
               lost ? eg__format("the new parameter has none") : NULL);
}

/* Whether a parameter that is not the same is trained as the old one was. */
static eg_status add_trained(view *v, const eg__tensor_item *was, const eg__tensor_item *now)
{
    if (now == NULL || was->kind != EG_SLOT_PARAMETER)
        return EG_OK;
    bool same = was->trained == now->trained;
    return add(v, same ? EG_FATE_KEPT : EG_FATE_DROPPED, "requires_grad", eg__strdup(was->key), !same,
               same ? NULL : eg__format(now->trained ? "it is trained now" : "it is no longer trained"));
}

static eg_status add_tensor(view *v, const eg__tensor_item *was)
{
    const eg__tensor_item *now = eg__inventory_tensor(&v->fresh, was->tensor);
    bool inside = true, renamed = now != NULL && strcmp(now->key, was->key) != 0;
    eg_fate fate = EG_FATE_KEPT;
    char *detail = renamed ? eg__format("as '%s'", now->key) : NULL;
    const eg__tensor_item *target = now;
    if (now == NULL && (target = target_of(v, was->tensor, &inside)) != NULL) {
        char shape[EG_SHAPE_TEXT_SIZE];
        fate = EG_FATE_CONVERTED;
        detail = eg__format("into %s'%s' %s", inside ? "" : "the model's ", target->key,
                            eg_shape_format(target->tensor->shape, shape, sizeof(shape)));
    } else if (now == NULL) {
        fate = EG_FATE_DROPPED;
        detail = reason(v, was);
        target = eg__inventory_key(&v->fresh, was->key);
    }
    EG_TRY(add(v, fate, kind_text(was), eg__strdup(was->key), renamed || now == NULL, detail));
    EG_TRY(add_gradient(v, fate, was, target));
    return now == NULL ? add_trained(v, was, target) : EG_OK;
}

static eg_status add_new_tensor(view *v, const eg__tensor_item *now)
{
    char shape[EG_SHAPE_TEXT_SIZE];
    bool known = eg__inventory_tensor(&v->old, now->tensor) != NULL ||
                 eg__inventory_tensor(&v->d->before, now->tensor) != NULL ||
                 eg__ptr_map_find(&v->d->origins, now->tensor) != NULL;
    eg_shape_format(now->tensor->shape, shape, sizeof(shape));
    return known ? EG_OK : add(v, EG_FATE_NEW, kind_text(now), eg__strdup(now->key), true, eg__strdup(shape));
}

/* ---- flags and hooks ---- */

static const char *mode_text(const eg_module *m)
{
    return m->training ? "training" : "evaluation";
}

static eg_status add_mode(view *v)
{
    const eg_module *old = v->out->replaced.old, *fresh = v->out->replaced.fresh;
    bool same = old->training == fresh->training;
    return add(v, same ? EG_FATE_KEPT : EG_FATE_DROPPED, "mode", eg__strdup(mode_text(old)), !same,
               same ? NULL : eg__format("it is in %s mode now", mode_text(fresh)));
}

static bool has_hook(const eg_module *m, uint64_t id)
{
    bool found = false;
    for (size_t i = 0; i < m->n_hooks && !found; i++)
        found = m->hooks[i].id == id;
    return found;
}

static eg_status add_hook(view *v, const eg_hook *hook)
{
    const eg_module *fresh = v->out->replaced.fresh;
    const eg__item *stays = eg__inventory_of(&v->d->after, v->out->replaced.old);
    bool carried = has_hook(fresh, hook->id), asked = v->without & EG_CARRY_HOOKS;
    eg_fate fate = carried || stays != NULL ? EG_FATE_KEPT : EG_FATE_DROPPED;
    char *detail = carried         ? NULL
                   : stays != NULL ? eg__format("at '%s'", stays->path)
                                   : eg__format(asked ? "as asked for" : "the new module has no such hook");
    return add(v, fate, hook->before ? "pre-hook" : "hook", eg__format("%" PRIu64, hook->id), !carried, detail);
}

/* ---- all of it ---- */

static eg_status fill(view *v)
{
    const eg_replaced *r = &v->out->replaced;
    EG_TRY(eg__inventory_take(&v->old, r->old));
    EG_TRY(eg__inventory_take(&v->fresh, r->fresh));
    v->out->old_text = eg__texts_add(&v->d->texts, eg__strdup(v->old.items[0].text));
    v->out->fresh_text = eg__texts_add(&v->d->texts, eg__strdup(v->fresh.items[0].text));
    if (v->out->old_text == NULL || v->out->fresh_text == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < v->old.n_tensors; i++) {
        const eg__tensor_item *item = &v->old.tensors[i];
        EG_TRY(eg__inventory_tensor(&v->old, item->tensor) == item ? add_tensor(v, item) : EG_OK); /* each once */
    }
    for (size_t i = 0; i < v->fresh.n_tensors; i++)
        EG_TRY(add_new_tensor(v, &v->fresh.tensors[i]));
    EG_TRY(add_mode(v));
    for (size_t i = 0; i < r->old->n_hooks; i++)
        EG_TRY(add_hook(v, &r->old->hooks[i]));
    return EG_OK;
}

/* A copy that outlives the surgery. */
static eg_status copy_replaced(eg_model_diff *d, const eg_replaced *from, eg_replaced *to)
{
    *to = *from;
    to->path = eg__texts_add(&d->texts, eg__strdup(from->path));
    to->policy = eg__texts_add(&d->texts, eg__strdup(from->policy));
    return to->path != NULL && (to->policy != NULL) == (from->policy != NULL) ? EG_OK : EG_ENOMEM;
}

eg_status eg__diff_find_fates(eg_model_diff *diff, eg_surgery *s)
{
    for (size_t i = 0; i < eg_surgery_size(s); i++) {
        const eg_replaced *r = eg_surgery_at(s, i);
        EG_TRY(eg__grow(&diff->fates, &diff->fates_capacity, diff->n_fates + 1, sizeof(*diff->fates)));
        view v = {.d = diff, .out = &diff->fates[diff->n_fates++], .without = s->replacements[i].without};
        eg_status status = r != NULL ? copy_replaced(diff, r, &v.out->replaced) : EG_ENOMEM;
        if (status == EG_OK)
            status = fill(&v);
        eg__inventory_free(&v.old);
        eg__inventory_free(&v.fresh);
        EG_TRY(status);
    }
    return EG_OK;
}

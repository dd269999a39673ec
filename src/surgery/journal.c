/*
 * The journal: every change is an exchange of two pointers, which is its own inverse. Putting a plan in place,
 * committing and undoing are the same exchanges, in order or in reverse.
 */
#include "surgery/internal.h"

#include <stdlib.h>

/* ---- one edit ---- */

static void *in_place(const eg__edit *edit)
{
    const eg_module *owner = edit->owner;
    switch (edit->kind) {
    case EG__EDIT_CHILD:
        return edit->slot < owner->n_slots && owner->slots[edit->slot].kind == EG_SLOT_CHILD
                   ? *eg__slot_child(&owner->slots[edit->slot])
                   : NULL;
    case EG__EDIT_TENSOR:
        return edit->slot < owner->n_slots && owner->slots[edit->slot].kind != EG_SLOT_CHILD
                   ? *eg__slot_tensor(&owner->slots[edit->slot])
                   : NULL;
    case EG__EDIT_PLACE:
        return *(eg_module **)edit->owner;
    case EG__EDIT_TRAINED:
        break;
    }
    return (void *)(uintptr_t)((eg_tensor *)edit->owner)->requires_grad;
}

static void exchange(eg__edit *edit)
{
    eg_module *owner = edit->owner;
    void *was = edit->here;
    switch (edit->kind) {
    case EG__EDIT_CHILD:
        *eg__slot_child(&owner->slots[edit->slot]) = edit->other;
        break;
    case EG__EDIT_TENSOR:
        *eg__slot_tensor(&owner->slots[edit->slot]) = edit->other;
        break;
    case EG__EDIT_PLACE:
        *(eg_module **)edit->owner = edit->other;
        break;
    case EG__EDIT_TRAINED:
        ((eg_tensor *)edit->owner)->requires_grad = edit->other != NULL;
        break;
    }
    edit->here = edit->other;
    edit->other = was;
}

/* Puts edits [from, to) in place, or none. */
static size_t exchange_forward(eg_surgery *s, size_t from, size_t to)
{
    size_t i = from;
    while (i < to && in_place(&s->edits[i]) == s->edits[i].here)
        exchange(&s->edits[i++]);
    return i;
}

static size_t exchange_back(eg_surgery *s, size_t from, size_t to)
{
    size_t i = to;
    while (i > from && in_place(&s->edits[i - 1]) == s->edits[i - 1].here)
        exchange(&s->edits[--i]);
    return i;
}

static eg_status fail_changed(const eg__edit *edit)
{
    const eg_module *owner = edit->owner;
    switch (edit->kind) {
    case EG__EDIT_PLACE:
        return eg_fail(EG_EINVAL, "the model, or a reference to a part of it, is another since this surgery was there");
    case EG__EDIT_TRAINED:
        return eg_fail(EG_EINVAL, "whether a parameter is trained was changed since this surgery was there");
    default:
        return eg_fail(EG_EINVAL, "'%s' of %s '%s' was changed since this surgery was there",
                       edit->slot < owner->n_slots ? owner->slots[edit->slot].name : "", owner->cls->name,
                       owner->name != NULL ? owner->name : "");
    }
}

static void keep(eg__edit *edit)
{
    if (edit->kind == EG__EDIT_TRAINED) {
        eg_tensor_keep(edit->owner);
        return;
    }
    if (edit->kind != EG__EDIT_PLACE)
        eg_module_retain(edit->owner);
    if (edit->kind == EG__EDIT_TENSOR)
        eg_tensor_keep(edit->other);
    else
        eg_module_retain(edit->other);
}

static void let_go(eg__edit *edit)
{
    if (edit->kind == EG__EDIT_TRAINED) {
        eg_tensor_release(edit->owner);
        return;
    }
    if (edit->kind == EG__EDIT_TENSOR)
        eg_tensor_release(edit->other);
    else
        eg_module_release(edit->other);
    if (edit->kind != EG__EDIT_PLACE)
        eg_module_release(edit->owner);
}

/* ---- planning ---- */

size_t eg__committed_edits(const eg_surgery *s)
{
    return s->n_batches > 0 ? s->batches[s->n_batches - 1].n_edits : 0;
}

size_t eg__committed_replacements(const eg_surgery *s)
{
    return s->n_batches > 0 ? s->batches[s->n_batches - 1].n_replacements : 0;
}

size_t eg__committed_derivations(const eg_surgery *s)
{
    return s->n_batches > 0 ? s->batches[s->n_batches - 1].n_derivations : 0;
}

eg_status eg__surgery_edit(eg_surgery *s, eg__edit_kind kind, void *owner, uint32_t slot, void *here, void *fresh)
{
    EG_TRY(eg__grow(&s->edits, &s->edits_capacity, s->n_edits + 1, sizeof(*s->edits)));
    eg__edit *edit = &s->edits[s->n_edits++];
    *edit = (eg__edit){.kind = kind, .slot = slot, .owner = owner, .here = here, .other = fresh};
    keep(edit);
    s->checked = false;
    return EG_OK;
}

static void free_derivation(eg__derivation *d)
{
    eg_tensor_release(d->fresh);
    for (size_t i = 0; i < d->n; i++)
        eg_tensor_release(d->from[i]);
    free(d->from);
    if (d->free_payload != NULL)
        d->free_payload(d->payload);
}

static size_t step_end(const eg__step *step)
{
    return step->first_edit + step->n_edits;
}

static void free_step(eg__step *step)
{
    eg_module_release(step->options);
    free(step->at);
}

void eg__surgery_cut(eg_surgery *s, size_t n_edits, size_t n_replacements, size_t n_derivations)
{
    s->checked = s->checked && n_edits == s->n_edits;
    s->n_flagged = SIZE_MAX;
    while (s->n_savepoints > 0 && s->savepoints[s->n_savepoints - 1].n_edits > n_edits)
        s->n_savepoints--;
    while (s->n_edits > n_edits)
        let_go(&s->edits[--s->n_edits]);
    while (s->n_replacements > n_replacements) {
        const eg__replacement *r = &s->replacements[--s->n_replacements];
        eg_module_release(r->old);
        eg_module_release(r->fresh);
    }
    for (; s->n_paths > n_replacements; s->n_paths--) {
        free(s->paths[s->n_paths - 1]);
        s->paths[s->n_paths - 1] = NULL;
    }
    while (s->n_steps > 0 && step_end(&s->steps[s->n_steps - 1]) > n_edits)
        free_step(&s->steps[--s->n_steps]);
    while (s->n_derivations > n_derivations)
        free_derivation(&s->derivations[--s->n_derivations]);
}

eg_status eg__surgery_enter(eg_surgery *s)
{
    if (s->entered == 0) {
        size_t from = eg__committed_edits(s), reached = exchange_forward(s, from, s->n_edits);
        if (reached < s->n_edits) {
            exchange_back(s, from, reached);
            return fail_changed(&s->edits[reached]);
        }
        s->n_entered = s->n_edits;
        s->n_flagged = SIZE_MAX;
    }
    s->entered++;
    return EG_OK;
}

void eg__surgery_leave(eg_surgery *s)
{
    if (--s->entered > 0)
        return;
    exchange_back(s, eg__committed_edits(s), s->n_entered);
    eg__planned_free(s->planned);
    s->planned = NULL;
    eg__ptr_map_free(&s->flagged);
}

eg_status eg__surgery_seek(eg_surgery *s, size_t *at, size_t to)
{
    EG_CHECK(s->entered == 0, EG_EINVAL, "a surgery cannot be looked back at while it is being looked at");
    *at = to > *at ? exchange_forward(s, *at, to) : exchange_back(s, to, *at);
    return *at == to ? EG_OK : fail_changed(&s->edits[*at < to ? *at : *at - 1]);
}

eg_status eg__surgery_look_back(eg_surgery *s, eg_surgery_look_fn fn, void *payload)
{
    size_t at = eg__committed_edits(s), committed = at;
    eg_status status = eg__surgery_seek(s, &at, 0);
    if (status == EG_OK)
        status = fn(payload, s->root);
    exchange_forward(s, at, committed);
    return status;
}

eg_status eg__apart_begin(eg_surgery *s, eg__apart *apart)
{
    apart->mark = eg__scope_enter(s->ctx);
    if (apart->mark == SIZE_MAX)
        return EG_ENOMEM;
    eg_rng *stream = eg_context_rng(s->ctx);
    apart->is_outer = !s->is_apart;
    apart->kept = *stream;
    if (apart->is_outer)
        *stream = s->rng;
    s->is_apart = true;
    return EG_OK;
}

void eg__apart_end(eg_surgery *s, const eg__apart *apart)
{
    eg_rng *stream = eg_context_rng(s->ctx);
    if (apart->is_outer) {
        s->rng = *stream;
        *stream = apart->kept;
        s->is_apart = false;
    }
    eg__scope_leave(s->ctx, apart->mark, NULL);
}

/* ---- committing ---- */

void eg__batch_free(eg_surgery *s, eg__batch *batch)
{
    eg__exchanges_free(s, batch->exchanges);
    for (size_t i = 0; i < batch->n_copies; i++) {
        eg_tensor_release(batch->copies[i].tensor);
        eg_tensor_release(batch->copies[i].numbers);
    }
    free(batch->copies);
    for (size_t i = 0; batch->steps != NULL && i < s->n_optimizers; i++)
        free(batch->steps[i]);
    free(batch->steps);
}

static eg_status copy_tensor(eg__batch *batch, eg_tensor *t)
{
    EG_TRY(eg__grow(&batch->copies, &batch->copies_capacity, batch->n_copies + 1, sizeof(*batch->copies)));
    eg_tensor *copy = eg_tensor_keep(eg_tensor_copy(t));
    if (copy == NULL)
        return eg_error_last()->code;
    batch->copies[batch->n_copies++] = (eg__copy){eg_tensor_keep(t), copy};
    return EG_OK;
}

static eg_status copy_visited(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    (void)path;
    (void)kind;
    return copy_tensor(payload, t);
}

static eg_status copy_optimizer(eg__batch *batch, const eg_optimizer *o, int64_t **steps)
{
    *steps = eg__calloc(o->n_params + 1, sizeof(**steps));
    if (*steps == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < o->n_params; i++) {
        (*steps)[i] = o->params[i].step;
        for (size_t k = 0; k < EG__MAX_STATES; k++) {
            if (o->params[i].states[k] != NULL)
                EG_TRY(copy_tensor(batch, o->params[i].states[k]));
        }
    }
    return EG_OK;
}

static eg_status copy_numbers(eg_surgery *s, eg__batch *batch)
{
    size_t mark = eg__scope_enter(s->ctx);
    if (mark == SIZE_MAX)
        return EG_ENOMEM;
    batch->steps = eg__calloc(s->n_optimizers + 1, sizeof(*batch->steps));
    eg_status status = batch->steps == NULL ? EG_ENOMEM : eg_module_walk_tensors(s->root, copy_visited, batch);
    for (size_t i = 0; i < s->n_optimizers && status == EG_OK; i++)
        status = copy_optimizer(batch, s->optimizers[i], &batch->steps[i]);
    eg__scope_leave(s->ctx, mark, NULL);
    return status;
}

eg_status eg_surgery_commit(eg_surgery *s)
{
    if (s == NULL) {
        eg__null(__func__, "surgery");
        return EG_EINVAL;
    }
    EG_CHECK(s->entered == 0, EG_EINVAL, "a surgery cannot be committed while it is being looked at");
    if (s->n_edits == eg__committed_edits(s) && s->n_replacements == eg__committed_replacements(s))
        return EG_OK;
    if (!s->checked || !eg__exchanges_are_current(s))
        EG_TRY(eg_surgery_check(s));
    EG_TRY(eg__grow(&s->batches, &s->batches_capacity, s->n_batches + 1, sizeof(*s->batches)));
    eg__batch batch = {.n_edits = s->n_edits, .n_replacements = s->n_replacements, .n_derivations = s->n_derivations};
    eg_status status = s->snapshot ? copy_numbers(s, &batch) : EG_OK;
    if (status == EG_OK)
        status = eg__surgery_enter(s);
    if (status != EG_OK) {
        eg__batch_free(s, &batch);
        return status;
    }
    s->entered = 0; /* for good */
    for (size_t i = 0; i < s->n_optimizers; i++)
        eg__exchange(&s->exchanges[i], false);
    batch.exchanges = s->exchanges;
    s->exchanges = NULL;
    s->checked = false;
    s->batches[s->n_batches++] = batch;
    return EG_OK;
}

/* ---- undoing ---- */

static eg_status check_optimizers(const eg_surgery *s, const eg__batch *batch)
{
    for (size_t i = 0; i < s->n_optimizers; i++) {
        const eg__param_exchange *e = &batch->exchanges[i];
        EG_CHECK(e->n_after == e->optimizer->n_params, EG_EINVAL,
                 "parameters were added to an optimizer since the surgery: it cannot be undone");
        EG_CHECK(e->expected == e->optimizer->params, EG_EINVAL,
                 "another surgery has changed an optimizer since: undo that one first");
    }
    return EG_OK;
}

/* A parameter that had never been updated had no states either. */
static void restore_steps(eg__param *param, int64_t step)
{
    param->step = step;
    for (size_t k = 0; k < EG__MAX_STATES && step == 0; k++) {
        eg_tensor_release(param->states[k]);
        param->states[k] = NULL;
    }
}

static eg_status restore_numbers(eg_surgery *s, const eg__batch *batch)
{
    for (size_t i = 0; i < batch->n_copies; i++)
        EG_TRY(eg_tensor_assign(batch->copies[i].tensor, batch->copies[i].numbers));
    for (size_t i = 0; batch->steps != NULL && i < s->n_optimizers; i++) {
        for (size_t k = 0; k < s->optimizers[i]->n_params; k++)
            restore_steps(&s->optimizers[i]->params[k], batch->steps[i][k]);
    }
    return EG_OK;
}

eg_status eg_surgery_undo(eg_surgery *s)
{
    if (s == NULL) {
        eg__null(__func__, "surgery");
        return EG_EINVAL;
    }
    EG_CHECK(s->entered == 0, EG_EINVAL, "a surgery cannot be undone while it is being looked at");
    EG_CHECK(s->n_batches > 0, EG_EINVAL, "nothing is committed, so there is nothing to undo");
    eg__batch *batch = &s->batches[s->n_batches - 1];
    EG_TRY(check_optimizers(s, batch));
    size_t from = s->n_batches > 1 ? s->batches[s->n_batches - 2].n_edits : 0;
    size_t reached = exchange_back(s, from, batch->n_edits);
    if (reached > from) {
        exchange_forward(s, reached, batch->n_edits);
        return fail_changed(&s->edits[reached - 1]);
    }
    for (size_t i = 0; i < s->n_optimizers; i++)
        eg__exchange(&batch->exchanges[i], true);
    eg_status status = restore_numbers(s, batch);
    eg__batch_free(s, batch);
    s->n_batches--;
    while (s->n_savepoints > 0 && s->savepoints[s->n_savepoints - 1].n_batches > s->n_batches)
        s->n_savepoints--; /* what they stood on may come back with more to it */
    s->checked = false;
    return status;
}

void eg_surgery_drop(eg_surgery *s)
{
    if (s != NULL && s->entered == 0)
        eg__surgery_cut(s, eg__committed_edits(s), eg__committed_replacements(s), eg__committed_derivations(s));
}

size_t eg_surgery_savepoint(eg_surgery *s)
{
    if (s == NULL ||
        eg__grow(&s->savepoints, &s->savepoints_capacity, s->n_savepoints + 1, sizeof(*s->savepoints)) != EG_OK)
        return SIZE_MAX;
    s->savepoints[s->n_savepoints] = (eg__savepoint){.n_batches = s->n_batches,
                                                     .n_edits = s->n_edits,
                                                     .n_replacements = s->n_replacements,
                                                     .n_derivations = s->n_derivations};
    return s->n_savepoints++;
}

/* Tries all exchanges before the first commit is undone: all or none of them are. */
static eg_status check_undoable(eg_surgery *s, size_t n_batches)
{
    if (s->n_batches <= n_batches)
        return EG_OK;
    EG_TRY(check_optimizers(s, &s->batches[s->n_batches - 1]));
    size_t from = n_batches > 0 ? s->batches[n_batches - 1].n_edits : 0, to = eg__committed_edits(s);
    size_t reached = exchange_back(s, from, to);
    exchange_forward(s, reached, to);
    return reached > from ? fail_changed(&s->edits[reached - 1]) : EG_OK;
}

eg_status eg_surgery_rollback(eg_surgery *s, size_t savepoint)
{
    if (s == NULL) {
        eg__null(__func__, "surgery");
        return EG_EINVAL;
    }
    EG_CHECK(s->entered == 0, EG_EINVAL, "a surgery cannot be rolled back while it is being looked at");
    EG_CHECK(savepoint < s->n_savepoints, EG_EINVAL, "savepoint %zu has ended, or never was: there are %zu", savepoint,
             s->n_savepoints);
    const eg__savepoint *to = &s->savepoints[savepoint];
    EG_TRY(check_undoable(s, to->n_batches));
    while (s->n_batches > to->n_batches)
        EG_TRY(eg_surgery_undo(s));
    eg__surgery_cut(s, to->n_edits, to->n_replacements, to->n_derivations);
    s->n_savepoints = savepoint + 1;
    return EG_OK;
}

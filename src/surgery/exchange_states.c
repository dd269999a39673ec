/*
 * States of optimizers, and gradients, of parameters that are made from others: by the same function as they.
 */
#include "surgery/exchange.h"

#include <stdlib.h>

/* In the parameter's memory order; it lasts as long as the optimizer. */
static eg_status copy_state(const eg_tensor *made, const eg_tensor *param, const char *what, eg_tensor **out)
{
    EG_CHECK(eg_shape_equal(made->shape, param->shape), EG_ESHAPE,
             "'%s' of a new parameter was made in another shape than it has", what);
    bool before = eg__pool_lasting(param->ctx, true);
    *out = eg__tensor_new_like(param);
    eg__pool_lasting(param->ctx, before);
    return *out != NULL ? eg_tensor_assign(*out, made) : eg_error_last()->code;
}

static eg_status derive_one(const eg__derivation *d, const char *what, eg_tensor *const *from, eg_tensor **out)
{
    bool any = false;
    for (size_t i = 0; i < d->n; i++)
        any = any || from[i] != NULL;
    if (!any || d->derive == NULL)
        return EG_OK;
    size_t mark = eg__scope_enter(d->fresh->ctx);
    if (mark == SIZE_MAX)
        return EG_ENOMEM;
    eg__error_mark before;
    eg__error_save(&before);
    eg_error_clear();
    eg_tensor *made = d->derive(d->payload, what, from, d->n);
    eg_status status = made == NULL ? eg_error_last()->code : copy_state(made, d->fresh, what, out);
    if (status == EG_OK)
        eg__error_restore(&before);
    eg__scope_leave(d->fresh->ctx, mark, NULL);
    return status;
}

/* ---- what derived parameters inherit from an optimizer ---- */

typedef struct inheritance {
    const eg__exchange_plan *p;
    const eg_optimizer *o;
    const eg__ptr_map *index; /* of the optimizer: tensor -> number + 1 */
    eg__heir *heirs;
} inheritance;

/* The derivation before number i that has made this tensor, which others come from in turn; SIZE_MAX = none. */
static size_t maker_of(const inheritance *h, const eg_tensor *from, size_t i)
{
    size_t maker = eg__number_find(&h->p->derived, from);
    bool had = eg__number_find(h->index, from) != SIZE_MAX; /* the optimizer has it from an earlier commit */
    return maker < i && !had ? maker : SIZE_MAX;
}

/* Those that will be in the model and are not in the optimizer, and what they come from. */
static void mark_wanted(const inheritance *h, bool *wanted)
{
    const eg_surgery *s = h->p->s;
    for (size_t i = s->n_derivations; i-- > 0;) {
        const eg__derivation *d = &s->derivations[i];
        wanted[i] = wanted[i] || (eg__number_find(&h->p->after.index, d->fresh) != SIZE_MAX &&
                                  eg__number_find(h->index, d->fresh) == SIZE_MAX);
        for (size_t k = 0; k < d->n && wanted[i]; k++) {
            size_t maker = maker_of(h, d->from[k], i);
            if (maker != SIZE_MAX)
                wanted[maker] = true;
        }
    }
}

/* The first of what derivation i makes its parameter from that the optimizer has, or will have. */
static void find_donor(const inheritance *h, size_t i)
{
    const eg__derivation *d = &h->p->s->derivations[i];
    eg__heir *heir = &h->heirs[i];
    heir->donor = SIZE_MAX;
    for (size_t k = 0; k < d->n && heir->donor == SIZE_MAX; k++) {
        size_t maker = maker_of(h, d->from[k], i), at = eg__number_find(h->index, d->from[k]);
        heir->donor = maker != SIZE_MAX ? h->heirs[maker].donor : at;
        if (d->derive != NULL && heir->donor != SIZE_MAX)
            heir->step = maker != SIZE_MAX ? h->heirs[maker].step : h->o->params[at].step;
    }
}

static eg_tensor *state_of(const inheritance *h, const eg_tensor *from, size_t i, size_t state)
{
    size_t maker = maker_of(h, from, i), at = eg__number_find(h->index, from);
    if (maker != SIZE_MAX)
        return h->heirs[maker].states[state];
    return at != SIZE_MAX ? h->o->params[at].states[state] : NULL;
}

static eg_status make_states(const inheritance *h, size_t i)
{
    const eg__derivation *d = &h->p->s->derivations[i];
    eg_tensor **from = eg__calloc(d->n + 1, sizeof(eg_tensor *));
    eg_status status = from != NULL ? EG_OK : EG_ENOMEM;
    for (size_t state = 0; state < h->o->n_states && status == EG_OK; state++) {
        for (size_t k = 0; k < d->n; k++)
            from[k] = state_of(h, d->from[k], i, state);
        status = derive_one(d, h->o->kind->states[state], from, &h->heirs[i].states[state]);
    }
    free(from);
    return status;
}

eg_status eg__heirs_make(const eg__exchange_plan *p, const eg_optimizer *o, const eg__ptr_map *index, eg__heir **heirs)
{
    size_t n = p->s->n_derivations;
    *heirs = eg__calloc(n + 1, sizeof(**heirs));
    bool *wanted = *heirs != NULL ? eg__calloc(n + 1, sizeof(*wanted)) : NULL;
    if (wanted == NULL)
        return EG_ENOMEM;
    inheritance h = {p, o, index, *heirs};
    mark_wanted(&h, wanted);
    eg_status status = EG_OK;
    for (size_t i = 0; i < n && status == EG_OK; i++) {
        (*heirs)[i].donor = SIZE_MAX;
        if (wanted[i])
            find_donor(&h, i);
        if ((*heirs)[i].donor != SIZE_MAX)
            status = make_states(&h, i);
    }
    free(wanted);
    return status;
}

void eg__heirs_free(const eg__exchange_plan *p, eg__heir *heirs)
{
    for (size_t i = 0; i < p->s->n_derivations && heirs != NULL; i++) {
        for (size_t k = 0; k < EG__MAX_STATES; k++)
            eg_tensor_release(heirs[i].states[k]);
    }
    free(heirs);
}

/* ---- gradients ---- */

static eg_status derive_gradient(const eg__derivation *d)
{
    eg_tensor **from = eg__calloc(d->n + 1, sizeof(eg_tensor *));
    if (from == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < d->n; i++)
        from[i] = d->from[i]->grad;
    eg_tensor *grad = NULL;
    eg_status status = derive_one(d, "grad", from, &grad);
    free(from);
    eg_tensor_release(d->fresh->grad);
    d->fresh->grad = grad;
    return status;
}

eg_status eg__derive_gradients(eg_surgery *s)
{
    for (size_t i = eg__committed_derivations(s); i < s->n_derivations; i++)
        EG_TRY(derive_gradient(&s->derivations[i]));
    return EG_OK;
}

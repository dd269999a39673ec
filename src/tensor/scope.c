/*
 * tensor/scope.c - which tensors live until when: one stack of owned tensors a context, scopes are marks on it.
 */
#include "tensor/state.h"

#include <string.h>

static eg_status push(eg__tensor_state *state, eg_tensor *t)
{
    EG_TRY(eg__grow(&state->owned, &state->owned_capacity, state->n_owned + 1, sizeof *state->owned));
    state->owned[state->n_owned++] = t;
    return EG_OK;
}

eg_tensor *eg__scope_add(eg_tensor *t)
{
    if (!t || !t->ctx || push(eg__tensor_state_of(t->ctx), t) == EG_OK)
        return t;
    eg_tensor_release(t);
    return NULL;
}

size_t eg__scope_enter(eg_context *ctx)
{
    eg__tensor_state *state = eg__tensor_state_of(ctx);
    if (!state || push(state, NULL) != EG_OK)
        return SIZE_MAX;
    return state->n_owned - 1;
}

void eg__scope_leave(eg_context *ctx, size_t mark, eg_tensor *result)
{
    eg__tensor_state *state = eg__tensor_state_of(ctx);
    if (!state || mark >= state->n_owned)
        return;
    bool moved = false;
    while (state->n_owned > mark) {
        eg_tensor *t = state->owned[--state->n_owned];
        if (t && t == result && !moved)
            moved = true;
        else
            eg_tensor_release(t);
    }
    if (moved) /* the place of the scope's own mark is free now */
        state->owned[state->n_owned++] = result;
}

void eg__scope_drop(eg_tensor *t)
{
    if (!t || !t->ctx)
        return;
    eg__tensor_state *state = eg__tensor_state_of(t->ctx);
    for (size_t i = state->n_owned; i-- > 0 && state->owned[i];) {
        if (state->owned[i] != t)
            continue;
        memmove(&state->owned[i], &state->owned[i + 1], (state->n_owned - i - 1) * sizeof *state->owned);
        state->n_owned--;
        eg_tensor_release(t);
        return;
    }
}

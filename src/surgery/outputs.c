/*
 * A model before and after a surgery, run in evaluation mode on the same inputs.
 */
#include "surgery/outputs.h"

#include <stdlib.h>
#include <string.h>

eg_status eg__side_run(const eg__sides *sides, bool after, eg_surgery_look_fn fn, void *payload)
{
    if (sides->s == NULL)
        return fn(payload, sides->models[after]);
    return after ? eg_surgery_look(sides->s, fn, payload) : eg__surgery_look_back(sides->s, fn, payload);
}

static eg_tensor *make_up(const eg__sample *sample, eg_context *ctx, size_t i)
{
    eg_shape shape = sample->shapes.items[i];
    if (!sample->whole) {
        *eg_context_rng(ctx) = eg_rng_make(sample->seed, "surgery inputs", i);
        return eg_randn(ctx, shape);
    }
    eg_tensor *t = eg_empty(ctx, EG_I64, shape, EG_LAYOUT_DEFAULT);
    if (t != NULL)
        memset(eg_tensor_data(t), 0, (size_t)eg_tensor_numel(t) * sizeof(int64_t));
    return t;
}

static eg_status run_once(const eg__sample *sample, eg_module *m, eg_tensor **in, eg_tensor **out, double *seconds)
{
    size_t n = sample->given != NULL ? sample->n_given : sample->shapes.n;
    for (size_t i = 0; i < n; i++) {
        in[i] = sample->given != NULL ? sample->given[i] : make_up(sample, m->ctx, i);
        if (in[i] == NULL)
            return eg_error_last()->code != EG_OK ? eg_error_last()->code
                                                  : eg_fail(EG_EINVAL, "input %zu of the model is NULL", i);
    }
    double begin = eg__now();
    eg_tensor *y = eg_module_call(m, in, n);
    if (y == NULL)
        return eg_error_last()->code;
    if (seconds != NULL)
        *seconds = eg__now() - begin;
    if (out != NULL)
        *out = eg_tensor_keep(y);
    return EG_OK;
}

static eg_status run_in_scope(const eg__sample *sample, eg_module *m, eg_tensor **out, double *seconds)
{
    size_t n = sample->given != NULL ? sample->n_given : sample->shapes.n;
    eg_tensor **in = eg__calloc(n + 1, sizeof(*in));
    eg_tape *tape = in != NULL ? eg_tape_begin(m->ctx, EG_NO_GRAD) : NULL;
    eg_status status = tape != NULL ? run_once(sample, m, in, out, seconds) : EG_ENOMEM;
    eg_tape_end(tape);
    free(in);
    return status;
}

eg_status eg__sample_run(eg__sample *sample, eg_module *m, eg_tensor **out, double *seconds)
{
    eg__modes modes;
    eg__error_mark mark;
    eg__error_save(&mark);
    eg_rng rng = *eg_context_rng(m->ctx);
    eg_status status = eg__modes_save(&modes, m);
    if (status == EG_OK) {
        eg_module_train(m, false);
        status = run_in_scope(sample, m, out, seconds);
        if (status == EG_EDTYPE && sample->given == NULL && !sample->whole) {
            eg__error_restore(&mark);
            sample->whole = true;
            status = run_in_scope(sample, m, out, seconds);
        }
    }
    *eg_context_rng(m->ctx) = rng;
    eg__modes_restore(&modes);
    return status;
}

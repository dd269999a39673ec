/*
 * bench/optimizer.c - an update of two million parameters in 600 tensors, of three sizes as networks have them.
 */
#include "bench.h"

#include <string.h>

enum { TENSORS = 600 };
static const int64_t sizes[] = {16, 576, 9408};

static eg_status step(bench *b, void *payload)
{
    (void)b;
    return eg_optimizer_step(payload);
}

static eg_status give_gradients(bench *b, eg_tensor **params)
{
    eg_tape *tape = eg_tape_begin(b->ctx, EG_RECORD);
    eg_status status = EG_OK;
    for (int i = 0; i < TENSORS && status == EG_OK; i++)
        status = eg_backward_from(eg_mul(params[i], params[i]), eg_randn(b->ctx, eg_tensor_shape(params[i])));
    eg_tape_end(tape);
    return status;
}

eg_status bench_optimizer(bench *b)
{
    bool adam = strcmp(bench_text(b, "kind", "sgd"), "adam") == 0;
    eg_tensor *params[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        params[i] = eg_randn(b->ctx, EG_SHAPE(sizes[i % 3]));
        EG_TRY(eg_tensor_set_requires_grad(params[i], true));
        b->params += eg_tensor_numel(params[i]);
    }
    EG_TRY(give_gradients(b, params));
    /* read: parameter, gradient, moments; written: parameter, moments */
    b->bytes = sizeof(float) * (double)b->params * (adam ? 7 : 5);
    b->touched = sizeof(float) * (double)b->params * (adam ? 4 : 3);
    eg_optimizer *o =
        adam ? eg_adam(NULL, .ctx = b->ctx, .lr = 1e-4) : eg_sgd(NULL, .ctx = b->ctx, .lr = 1e-4, .momentum = 0.9);
    eg_status status = eg_optimizer_add(o, "p", params, TENSORS, NULL);
    if (status == EG_OK)
        status = bench_measure(b, step, NULL, o);
    eg_optimizer_free(o);
    return status;
}

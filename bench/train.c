/*
 * bench/train.c - a training step (forward, backward, SGD with momentum) and an inference of the networks of nets.c.
 */
#include "bench.h"

#include <math.h>
#include <stdlib.h>

typedef struct state {
    eg_module *net;
    eg_optimizer *optimizer;
    eg_tensor *x, *y;
} state;

static eg_status train_step(bench *b, void *payload)
{
    state *s = payload;
    eg_tape *tape = eg_tape_begin(b->ctx, EG_RECORD);
    eg_status status = eg_backward(eg_f_cross_entropy(eg_call(s->net, s->x), s->y));
    eg_tape_end(tape);
    EG_TRY(status);
    EG_TRY(eg_optimizer_step(s->optimizer));
    eg_optimizer_zero_grad(s->optimizer);
    return EG_OK;
}

eg_status bench_train(bench *b)
{
    eg_shape input;
    state s = {.net = bench_net(b, &input)};
    s.optimizer = eg_sgd(s.net, .lr = 1e-3, .momentum = 0.9);
    s.x = eg_randn(b->ctx, input);
    s.y = bench_labels(b->ctx, input.dims[0], bench_int(b, "classes", 10));
    b->params = eg_module_n_parameters(s.net);
    eg_status status =
        s.optimizer != NULL && s.y != NULL ? bench_add_cost(b, s.net, input, BENCH_SGD) : eg_error_last()->code;
    if (status == EG_OK)
        status = bench_measure(b, train_step, NULL, &s);
    eg_optimizer_free(s.optimizer);
    eg_module_release(s.net);
    return status;
}

static eg_status infer_step(bench *b, void *payload)
{
    state *s = payload;
    eg_tape *tape = eg_tape_begin(b->ctx, EG_NO_GRAD);
    eg_tensor *y = eg_call(s->net, s->x);
    eg_tape_end(tape);
    return y != NULL ? EG_OK : eg_error_last()->code;
}

/* Folds, and looks whether the network still computes the same. */
static eg_status fold(bench *b, state *s)
{
    eg_tape *tape = eg_tape_begin(b->ctx, EG_NO_GRAD);
    eg_tensor *before = eg_call(s->net, s->x);
    eg_status status = bench_fold(s->net);
    eg_tensor *difference = eg_sub(eg_call(s->net, s->x), before);
    double error = eg_tensor_item(eg_mean(eg_mul(difference, difference)));
    double square = eg_tensor_item(eg_mean(eg_mul(before, before)));
    eg_tape_end(tape);
    EG_TRY(status);
    EG_CHECK(error <= 1e-6 * square, EG_EINTERNAL, "folding changed the output by %g of %g", sqrt(error), sqrt(square));
    return EG_OK;
}

eg_status bench_infer(bench *b)
{
    eg_shape input;
    state s = {.net = bench_net(b, &input)};
    s.x = eg_randn(b->ctx, input);
    b->params = eg_module_n_parameters(s.net);
    eg_module_train(s.net, false);
    eg_status status = s.net != NULL ? EG_OK : eg_error_last()->code;
    if (status == EG_OK && bench_int(b, "fold", 1) != 0)
        status = fold(b, &s);
    if (status == EG_OK)
        status = bench_add_cost(b, s.net, input, BENCH_INFERENCE);
    if (status == EG_OK)
        status = bench_measure(b, infer_step, NULL, &s);
    eg_module_release(s.net);
    return status;
}

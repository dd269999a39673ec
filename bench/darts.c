/*
 * bench/darts.c - a step of the DARTS supernet: forward and backward of every candidate of every edge, gradients of all
 * weights and of the architecture.
 */
#include "bench.h"

#include <string.h>

typedef struct state {
    eg_module *net;
    eg_mutator *mutator;
    eg_state *alphas;
    eg_tensor *x, *y;
} state;

static eg_status step(bench *b, void *payload)
{
    state *s = payload;
    eg_tape *tape = eg_tape_begin(b->ctx, EG_RECORD);
    eg_status status = eg_mutator_reset(s->mutator);
    if (status == EG_OK)
        status = eg_backward(eg_f_cross_entropy(eg_call(s->net, s->x), s->y));
    eg_tape_end(tape);
    eg_module_zero_grad(s->net);
    for (size_t i = 0; i < eg_state_size(s->alphas); i++)
        eg_tensor_zero_grad(eg_state_at(s->alphas, i, NULL));
    return status;
}

eg_status bench_count_alphas(bench *b, eg_mutator *mutator)
{
    eg_state *alphas = eg_state_new();
    eg_status status = eg_darts_mutator_state(mutator, NULL, alphas);
    for (size_t i = 0; i < eg_state_size(alphas); i++)
        b->params += eg_tensor_numel(eg_state_at(alphas, i, NULL));
    eg_state_free(alphas);
    return status;
}

static eg_status measure(bench *b, state *s, eg_shape input)
{
    eg_mutator_set_recompute(s->mutator, strcmp(bench_text(b, "memory", "full"), "low") == 0);
    b->params = eg_module_n_parameters(s->net);
    EG_TRY(bench_count_alphas(b, s->mutator));
    EG_TRY(eg_darts_mutator_state(s->mutator, NULL, s->alphas));
    EG_TRY(eg_mutator_reset(s->mutator));
    EG_TRY(bench_add_cost(b, s->net, input, BENCH_GRADIENTS));
    return bench_measure(b, step, NULL, s);
}

eg_module *bench_darts_space(bench *b)
{
    int64_t size = bench_int(b, "size", 32);
    return eg_space_build(b->ctx, "darts",
                          &(eg_space_options){.struct_size = sizeof(eg_space_options),
                                              .input = EG_SHAPE(3, size, size),
                                              .classes = 10,
                                              .channels = bench_int(b, "channels", 16),
                                              .layers = bench_int(b, "layers", 8)});
}

eg_status bench_darts(bench *b)
{
    int64_t size = bench_int(b, "size", 32), batch = bench_int(b, "batch", 64);
    eg_shape input = EG_SHAPE(batch, 3, size, size);
    state s = {.net = bench_darts_space(b)};
    s.mutator = eg_darts_mutator_new(s.net);
    s.alphas = eg_state_new();
    s.x = eg_randn(b->ctx, input);
    s.y = bench_labels(b->ctx, batch, 10);
    eg_status status =
        s.mutator != NULL && s.alphas != NULL && s.y != NULL ? measure(b, &s, input) : eg_error_last()->code;
    eg_state_free(s.alphas);
    eg_mutator_detach(s.mutator);
    eg_module_release(s.net);
    return status;
}

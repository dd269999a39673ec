/*
 * bench/spos.c - a step of single-path one-shot training: draws a uniform path, forward, backward, SGD with momentum.
 * The paths are printed with the result, and the peer follows the same ones. Those that are timed begin with those of
 * warming up, in the same order: what a path needs the first time (kernels made for its shapes, memory) is spread over
 * thousands of steps in a search, and should not weigh more here.
 */
#include "bench.h"

#include <string.h>

typedef struct state {
    eg_module *net;
    eg_optimizer *optimizer;
    eg_strategy *strategy;
    eg_batch batch;
    eg_shape input;
    FILE *paths;
    size_t n_paths, warmup;
    eg_rng first; /* what paths were drawn from before the first one */
} state;

static eg_status step(bench *b, void *payload)
{
    (void)b;
    state *s = payload;
    eg_step_result result;
    return s->strategy->cls->train_step(s->strategy, &s->batch, NULL, &result);
}

static eg_status note_path(bench *b, void *payload)
{
    state *s = payload;
    char *path = eg_mutator_status(s->strategy->mutator);
    if (path == NULL)
        return eg_error_last()->code;
    for (char *c = path; *c != '\0'; c++)
        *c = *c == '\n' ? ' ' : *c;
    fprintf(s->paths, "%s%s", s->n_paths++ > 0 ? ", " : "", path);
    eg_free(path);
    if (s->n_paths == s->warmup)
        *eg_context_rng(b->ctx) = s->first;
    return b->steps > 0 ? bench_add_cost(b, s->net, s->input, BENCH_SGD) : EG_OK;
}

static eg_status measure(bench *b, state *s)
{
    size_t length;
    b->params = eg_module_n_parameters(s->net);
    s->paths = open_memstream(&b->extra, &length);
    EG_CHECK(s->paths != NULL, EG_ENOMEM, "no memory for the paths");
    fputs("\"paths\": [", s->paths);
    eg_status status = bench_measure(b, step, note_path, s);
    fputs("]", s->paths);
    fclose(s->paths);
    return status;
}

eg_status bench_spos(bench *b)
{
    bool mobile = strcmp(bench_text(b, "space", "darts"), "mobile") == 0;
    int64_t n = bench_int(b, "batch", 64);
    state s = {.net = mobile ? bench_mobile_space(b->ctx) : bench_darts_space(b), .input = EG_SHAPE(n, 3, 32, 32)};
    s.optimizer = eg_sgd(s.net, .lr = 1e-3, .momentum = 0.9);
    s.warmup = (size_t)bench_int(b, "warmup", 2);
    s.strategy =
        eg_strategy_new(eg_strategy_find("spos"), s.net, s.optimizer, NULL,
                        &(eg_strategy_options){.struct_size = sizeof(eg_strategy_options), .grad_clip = -1, .seed = 1});
    s.batch = (eg_batch){.x = eg_randn(b->ctx, s.input), .y = bench_labels(b->ctx, n, 10), .size = (size_t)n};
    s.first = *eg_context_rng(b->ctx);
    eg_status status = s.strategy != NULL && s.batch.y != NULL ? measure(b, &s) : eg_error_last()->code;
    eg_strategy_free(s.strategy);
    eg_optimizer_free(s.optimizer);
    eg_module_release(s.net);
    return status;
}

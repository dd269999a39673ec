/*
 * bench/spos.c - a step of single-path one-shot training: draws a uniform path, forward, backward, SGD with momentum.
 * The paths are printed with the result, and the peer follows the same ones.
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
    size_t n_paths;
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
    s.strategy =
        eg_strategy_new(eg_strategy_find("spos"), s.net, s.optimizer, NULL,
                        &(eg_strategy_options){.struct_size = sizeof(eg_strategy_options), .grad_clip = -1, .seed = 1});
    s.batch = (eg_batch){.x = eg_randn(b->ctx, s.input), .y = bench_labels(b->ctx, n, 10), .size = (size_t)n};
    eg_status status = s.strategy != NULL && s.batch.y != NULL ? measure(b, &s) : eg_error_last()->code;
    eg_strategy_free(s.strategy);
    eg_optimizer_free(s.optimizer);
    eg_module_release(s.net);
    return status;
}

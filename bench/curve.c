/*
 * bench/curve.c - losses of a training from given weights on given batches, to be compared with the peer's (curves.py).
 * With save=FILE the numbers inside of the step as well, for accuracy.py.
 *
 * data=FILE, a safetensors file of the peer's making: the weights as "net.<name>" (and "alphas.<key>"), the batches as
 * "x.<step>" and "y.<step>".
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

typedef struct state {
    eg_state *data;
    eg_module *net;
    eg_mutator *mutator; /* of a supernet */
    eg_optimizer *optimizer;
    bench_watch *watch; /* with save=FILE, else NULL */
    FILE *losses;
    size_t n; /* steps done */
} state;

static eg_tensor *batch(const state *s, const char *what)
{
    char name[32];
    snprintf(name, sizeof(name), "%s.%zu", what, s->n);
    eg_tensor *t = eg_state_get(s->data, name);
    if (t == NULL)
        (void)eg_fail(EG_ENOENT, "the data have no '%s'", name);
    return t;
}

/* The images as the loader would give them: channels-last. */
static eg_tensor *images(bench *b, const state *s)
{
    eg_tensor *from = batch(s, "x"), *x = eg_zeros(b->ctx, eg_tensor_shape(from));
    return eg_tensor_assign(x, from) == EG_OK ? x : NULL;
}

static eg_status step(bench *b, void *payload)
{
    state *s = payload;
    eg_tape *tape = eg_tape_begin(b->ctx, EG_RECORD);
    eg_status status = s->mutator != NULL ? eg_mutator_reset(s->mutator) : EG_OK;
    eg_tensor *x = images(b, s), *loss = eg_f_cross_entropy(eg_call(s->net, x), batch(s, "y"));
    fprintf(s->losses, "%s%.9g", s->n++ > 0 ? ", " : "", loss != NULL ? eg_tensor_item(loss) : 0);
    if (status == EG_OK)
        status = eg_backward(loss);
    eg_tape_end(tape);
    if (status == EG_OK && s->watch != NULL)
        status = bench_watch_save(s->watch, s->net, bench_text(b, "save", ""));
    EG_TRY(status);
    EG_TRY(eg_optimizer_step(s->optimizer));
    eg_optimizer_zero_grad(s->optimizer);
    return EG_OK;
}

/* The weights of the architecture: filled from the data, and trained. */
static eg_status add_alphas(bench *b, state *s)
{
    eg_state *alphas = eg_state_new();
    eg_status status = eg_darts_mutator_state(s->mutator, "alphas.", alphas);
    for (size_t i = 0; i < eg_state_size(alphas) && status == EG_OK; i++) {
        const char *name;
        eg_tensor *alpha = eg_state_at(alphas, i, &name);
        status = eg_tensor_assign(alpha, eg_state_get(s->data, name));
        if (status == EG_OK)
            status = eg_optimizer_add(s->optimizer, name, &alpha, 1, NULL);
        b->params += eg_tensor_numel(alpha);
    }
    eg_state_free(alphas);
    return status;
}

static eg_status train(bench *b, state *s)
{
    EG_CHECK(s->optimizer != NULL && s->data != NULL, eg_error_last()->code, "no network or no data");
    EG_TRY(eg_module_load_state(s->net, "net.", s->data, true));
    b->params = eg_module_n_parameters(s->net);
    if (s->mutator != NULL)
        EG_TRY(add_alphas(b, s));
    if (bench_text(b, "save", NULL) != NULL)
        EG_CHECK((s->watch = bench_watch_begin(s->net)) != NULL, EG_ENOMEM, "no memory to watch the network");
    size_t length;
    s->losses = open_memstream(&b->extra, &length);
    EG_CHECK(s->losses != NULL, EG_ENOMEM, "no memory for the losses");
    fputs("\"losses\": [", s->losses);
    eg_status status = bench_measure(b, step, NULL, s);
    fputs("]", s->losses);
    fclose(s->losses);
    return status;
}

eg_status bench_curve(bench *b)
{
    eg_shape input;
    bool darts = strcmp(bench_text(b, "net", ""), "darts") == 0;
    state s = {.data = eg_safetensors_load(b->ctx, bench_text(b, "data", ""), NULL),
               .net = darts ? bench_darts_space(b) : bench_net(b, &input)};
    s.mutator = darts ? eg_darts_mutator_new(s.net) : NULL;
    s.optimizer = eg_sgd(s.net, .lr = strtod(bench_text(b, "lr", "0.01"), NULL), .momentum = 0.9, .weight_decay = 3e-4);
    eg_status status = train(b, &s);
    eg_optimizer_free(s.optimizer);
    eg_mutator_detach(s.mutator);
    eg_module_release(s.net);
    bench_watch_end(s.watch);
    eg_state_free(s.data);
    return status;
}

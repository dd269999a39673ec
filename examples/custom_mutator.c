/*
 * A mutator of one's own: it bets on candidates, more on those that did well, and never forgets to try others. The
 * "network" is one number, and what is searched is the way from 3 to 42 in four moves.
 *
 *     cc custom_mutator.c $(pkg-config --cflags --libs engraft) -o custom_mutator && ./custom_mutator
 */
#include <engraft/nas.h>

#include <math.h>
#include <stdio.h>

enum { MOVES = 4, OPS = 4, ROUNDS = 400, BEST = 42 };

/* ---- modules: y = factor * x + offset ---- */

typedef struct step {
    eg_module base;
    double factor, offset;
} step;

static eg_tensor *step_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_affine(in[0], ((step *)self)->factor, ((step *)self)->offset);
}

static EG_CLASS(step, .forward = step_forward,
                .fields = EG_FIELDS(EG_FLOAT(step, factor, .help = "of x"), EG_FLOAT(step, offset, .help = "added")));

static eg_module *make_move(eg_context *ctx, const char *key)
{
    return eg_layer_choice(ctx,
                           EG_CHOICES({"double", eg_new(step, ctx, 2, 0)}, {"triple", eg_new(step, ctx, 3, 0)},
                                      {"add_one", eg_new(step, ctx, 1, 1)}, {"halve", eg_new(step, ctx, 0.5, 0)}),
                           .key = key);
}

/* ---- the mutator: a struct whose head is eg_mutator, and a class that says how to sample ---- */

typedef struct bettor {
    eg_mutator base;
    double bets[MOVES][OPS];
} bettor;

static eg_status bettor_build(eg_mutator *self)
{
    for (int i = 0; i < MOVES * OPS; i++)
        ((bettor *)self)->bets[i / OPS][i % OPS] = 1;
    return EG_OK;
}

static eg_status bettor_sample(eg_mutator *self, eg_decisions *out)
{
    for (size_t i = 0; i < self->n_mutables; i++) {
        const double *bets = ((bettor *)self)->bets[i];
        double left = eg_rng_uniform(eg_context_rng(self->ctx)) * (bets[0] + bets[1] + bets[2] + bets[3]);
        int op = 0;
        while (op < OPS - 1 && left >= bets[op])
            left -= bets[op++];
        EG_TRY(eg_decisions_choose(out, self->mutables[i], (size_t)op));
    }
    return EG_OK;
}

/* For export: the highest bets, and no luck. */
static eg_status bettor_final(eg_mutator *self, eg_decisions *out)
{
    for (size_t i = 0; i < self->n_mutables; i++) {
        const double *bets = ((bettor *)self)->bets[i];
        int op = 0;
        for (int k = 1; k < OPS; k++)
            op = bets[k] > bets[op] ? k : op;
        EG_TRY(eg_decisions_choose(out, self->mutables[i], (size_t)op));
    }
    return EG_OK;
}

static const eg_mutator_class bettor_class = {.struct_size = sizeof(eg_mutator_class),
                                              .name = "Bettor",
                                              .instance_size = sizeof(bettor),
                                              .build = bettor_build,
                                              .sample_search = bettor_sample,
                                              .sample_final = bettor_final};

/* Bets move towards what was done, the more the better it was. */
static void learn(bettor *b, double reward)
{
    for (size_t i = 0; i < b->base.n_mutables; i++) {
        const eg_decision *did = eg_decisions_get(b->base.current, eg_mutable_key(b->base.mutables[i]));
        for (size_t k = 0; did != NULL && k < did->n; k++)
            b->bets[i][k] += did->weights[k] * reward;
    }
}

static double run(eg_module *net)
{
    eg_tape *scope = eg_tape_begin(net->ctx, EG_NO_GRAD);
    double y = eg_tensor_item(eg_call(net, eg_full(net->ctx, EG_SHAPE(1), 3)));
    eg_tape_end(scope);
    return y;
}

int main(void)
{
    eg_context *ctx = eg_context_new(.seed = 2, .threads = 1);
    eg_module *net = eg_sequential(ctx, EG_MODULES(make_move(ctx, "first"), make_move(ctx, "second"),
                                                   make_move(ctx, "third"), make_move(ctx, "fourth")));
    eg_mutator *mutator = eg_mutator_attach(&bettor_class, 0, NULL, net);
    double closest = INFINITY;
    for (int round = 0; mutator != NULL && round < ROUNDS && eg_mutator_reset(mutator) == EG_OK; round++) {
        double y = run(net), distance = fabs(y - BEST);
        if (distance < closest)
            printf("round %d: %g\n", round, y);
        closest = fmin(closest, distance);
        learn((bettor *)mutator, 1 / (1 + distance * distance));
    }
    eg_arch *arch = eg_mutator_export(mutator);
    char *text = eg_arch_text(arch);
    if (text != NULL && eg_mutator_set_arch(mutator, arch) == EG_OK)
        printf("from 3 to %g: %s", run(net), text);
    eg_free(text);
    eg_arch_free(arch);
    eg_mutator_detach(mutator);
    eg_module_release(net);
    int status = eg_exit_status(ctx);
    return status != 0 ? status : closest == 0 ? 0 : 1;
}

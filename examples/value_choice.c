/*
 * A width and a depth as choices: a network is searched for that tells the arms of a spiral apart
 * and has at most 400 parameters. One supernet is trained, each step by another of its 16 sub-networks (SPOS); then
 * they compete with its weights, and the winner is taken out of it.
 *
 *     cc value_choice.c $(pkg-config --cflags --libs engraft) -o value_choice && ./value_choice
 */
#include <engraft/nas.h>
#include <math.h>

enum { SAMPLES = 256, STEPS = 300 };

/* Points of two arms, turned by half a circle: which arm? */
static eg_batch make_points(eg_context *ctx, const char *purpose)
{
    float points[SAMPLES][2];
    int64_t arms[SAMPLES];
    eg_rng rng = eg_rng_make(1, purpose, 0);
    for (int i = 0; i < SAMPLES; i++) {
        arms[i] = (int64_t)eg_rng_below(&rng, 2);
        double t = eg_rng_uniform(&rng), angle = 4 * t + 3.1416 * (double)arms[i];
        points[i][0] = (float)(t * cos(angle) + 0.02 * eg_rng_normal(&rng));
        points[i][1] = (float)(t * sin(angle) + 0.02 * eg_rng_normal(&rng));
    }
    return (eg_batch){.x = eg_from_data(ctx, EG_SHAPE(SAMPLES, 2), &points[0][0]),
                      .y = eg_from_labels(ctx, SAMPLES, arms),
                      .size = SAMPLES};
}

static eg_module *layer(eg_context *ctx, int64_t width)
{
    return eg_sequential(ctx, EG_MODULES(eg_linear(ctx, width, width), eg_relu(ctx)));
}

/* Handles stand where numbers would stand. The same handle twice is the same decision. */
static eg_module *make_supernet(eg_context *ctx)
{
    int64_t width = eg_value_choice(ctx, EG_VALUES(8, 12, 16, 24), .key = "width");
    int64_t depth = eg_value_choice(ctx, EG_VALUES(0, 1, 2, 3), .key = "depth");
    return eg_sequential(
        ctx,
        EG_MODULES(eg_linear(ctx, 2, width), eg_relu(ctx),
                   eg_repeat(ctx, EG_MODULES(layer(ctx, width), layer(ctx, width), layer(ctx, width)), .depth = depth),
                   eg_linear(ctx, width, 2)));
}

/* ---- what the search asks of us ---- */

typedef struct judge {
    eg_module *net;
    eg_batch valid;
} judge;

static eg_status evaluate(void *payload, double *accuracy)
{
    const judge *j = payload;
    eg_tape *tape = eg_tape_begin(j->net->ctx, EG_NO_GRAD);
    eg_tensor *logits = eg_call(j->net, j->valid.x);
    *accuracy = logits != NULL ? eg_accuracy(logits, j->valid.y) : 0;
    eg_tape_end(tape);
    return logits != NULL ? EG_OK : eg_error_last()->code;
}

static eg_status is_small(void *payload, eg_mutator *mutator, const eg_decisions *decisions, bool *holds)
{
    eg_network_cost cost;
    EG_TRY(eg_mutator_cost_of(mutator, decisions, &EG_SHAPE(1, 2), 1, &cost));
    eg_free(cost.path);
    *holds = cost.parameters <= *(const int64_t *)payload;
    return EG_OK;
}

static eg_arch *search(eg_module *net, const eg_batch *train, const eg_batch *valid)
{
    int64_t budget = 400;
    judge j = {net, *valid};
    eg_strategy_host host = {.payload = &j, .evaluate = evaluate};
    eg_optimizer *optimizer = eg_adam(net, .lr = 0.01);
    eg_strategy *spos =
        eg_strategy_new(eg_strategy_find("spos"), net, optimizer, &host,
                        &(eg_strategy_options){.struct_size = sizeof(eg_strategy_options),
                                               .evaluations = 16,
                                               .population = 8,
                                               .seed = 1,
                                               EG_CONSTRAINTS({"at most 400 parameters", is_small, &budget})});
    eg_step_result result = {0};
    for (int i = 0; spos != NULL && i < STEPS; i++)
        if (spos->cls->train_step(spos, train, NULL, &result) != EG_OK)
            break;
    eg_arch *arch = spos != NULL && eg_error_last()->code == EG_OK ? spos->cls->choose(spos) : NULL;
    eg_strategy_free(spos);
    eg_optimizer_free(optimizer);
    return arch;
}

int main(void)
{
    eg_context *ctx = eg_context_new(.seed = 1, .threads = 1);
    eg_batch train = make_points(ctx, "train"), valid = make_points(ctx, "valid");
    eg_module *net = make_supernet(ctx);
    eg_arch *arch = search(net, &train, &valid);
    char *text = arch != NULL ? eg_arch_text(arch) : NULL;
    if (text != NULL && eg_apply_arch(net, arch) == EG_OK) { /* no mutator, no choices: a plain network */
        double accuracy = 0;
        evaluate(&(judge){net, valid}, &accuracy);
        printf("%s", text);
        eg_module_print(net, stdout);
        printf("%lld parameters, %.1f %% right\n", (long long)eg_module_n_parameters(net), 100 * accuracy);
    }
    eg_free(text);
    eg_arch_free(arch);
    eg_module_release(net);
    return eg_exit_status(ctx);
}

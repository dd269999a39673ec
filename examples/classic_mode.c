/*
 * Classic mode: one architecture a process. This program describes its search space when it is asked to, tries what an
 * experiment around it has chosen, and tells how good that was.
 *
 *     cc classic_mode.c $(pkg-config --cflags --libs engraft) -o classic_mode
 *     EG_GEN_SEARCH_SPACE=space.json ./classic_mode                       # writes the search space, and ends
 *     ./classic_mode                                                      # alone: the first candidates
 *     EG_TRIAL_PARAMETERS=p.json EG_TRIAL_RESULTS=results ./classic_mode  # a trial
 *
 * with p.json such as {"parameter_id": 1, "parameters": {"size": {"_value": "wide", "_idx": 1}, "shortcut": {"_value":
 * [],
 * "_idx": []}}}. An experiment may pass descriptors too: EG_TRIAL_PARAMETERS=fd:3.
 */
#include <engraft/train.h>

#include <stdio.h>

enum { SAMPLES = 512, EPOCHS = 10 };

/* ---- the network: an open layer, with an open shortcut around it ---- */

typedef struct network {
    eg_module base;
    eg_module *stem, *size, *shortcut, *head;
} network;

static eg_module *hidden(eg_context *ctx, int64_t width)
{
    return eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 16, width), eg_relu(ctx), eg_linear(ctx, width, 16)));
}

static eg_status network_build(eg_module *self)
{
    network *n = (network *)self;
    eg_context *ctx = self->ctx;
    EG_SLOT(n, stem, eg_linear(ctx, 2, 16));
    EG_SLOT(n, size,
            eg_layer_choice(ctx, EG_CHOICES({"narrow", hidden(ctx, 4)}, {"wide", hidden(ctx, 32)}), .key = "size"));
    EG_SLOT(n, shortcut, eg_input_choice(ctx, .n_candidates = 1, .key = "shortcut"));
    EG_SLOT(n, head, eg_linear(ctx, 16, 2));
    return eg_module_status(self);
}

static eg_tensor *network_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    network *n = (network *)self;
    eg_tensor *x = eg_call(n->stem, in[0]);
    x = eg_add(eg_call(n->size, x), eg_call(n->shortcut, x)); /* a shortcut that is not taken is none, and adds none */
    return eg_call(n->head, x);
}

static EG_CLASS(network, .build = network_build, .forward = network_forward);

/* Points in the plane, inside (0) or outside (1) of a circle. */
static eg_dataset *make_points(eg_context *ctx)
{
    float points[SAMPLES][2];
    int64_t labels[SAMPLES];
    eg_rng rng = eg_rng_make(1, "points", 0);
    for (size_t i = 0; i < SAMPLES; i++) {
        double x = 2 * eg_rng_uniform(&rng) - 1, y = 2 * eg_rng_uniform(&rng) - 1;
        points[i][0] = (float)x;
        points[i][1] = (float)y;
        labels[i] = x * x + y * y > 0.64;
    }
    return eg_dataset_from_arrays(ctx, &points[0][0], EG_SHAPE(2), labels, SAMPLES, 2);
}

static eg_status report(eg_callback *self, int64_t epoch)
{
    (void)epoch;
    const eg_meter *accuracy = eg_meter_group_get(eg_trainer_meters(self->trainer), "acc1");
    return accuracy == NULL ? eg_error_last()->code : eg_report_intermediate_result(self->payload, accuracy->avg);
}

static const eg_callback_class reporter = {
    .struct_size = sizeof(eg_callback_class), .name = "reporter", .on_epoch_end = report};

static void print_line(void *payload, eg_log_level level, const char *text)
{
    (void)payload;
    printf("%s%s\n", level == EG_LOG_WARNING ? "warning: " : "", text);
}

int main(void)
{
    eg_context *ctx = eg_context_new(.seed = 1, .threads = 1, .log = print_line);
    eg_module *net = eg_new(network, ctx);
    eg_mutator *mutator = eg_get_and_apply_next_architecture(net);
    if (mutator != NULL) { /* else the search space was asked for, which is no failure, or something failed */
        eg_dataset *data = make_points(ctx);
        eg_trainer *trainer =
            eg_trainer_new(ctx, net, data, .validation = data, .epochs = EPOCHS, .batch_size = 32,
                           .callbacks = (eg_callback *[]){eg_callback_new(&reporter, mutator)}, .n_callbacks = 1);
        if (eg_trainer_train(trainer) == EG_OK)
            eg_report_final_result(mutator, eg_evaluate(net, data, 64));
        eg_trainer_free(trainer);
        eg_dataset_release(data);
    }
    eg_mutator_detach(mutator);
    eg_module_release(net);
    return eg_exit_status(ctx);
}

/*
 * A trainer of one's own: each step trains another path through a supernet. All around the step (epochs, validation,
 * checkpoints, files) is the library's. Points in the plane are to be told apart by whether they lie inside of a
 * circle.
 *
 *     cc custom_trainer.c $(pkg-config --cflags --libs engraft) -o custom_trainer && ./custom_trainer [LOG DIRECTORY]
 *
 * With a directory it leaves graph.json, an event file for `tensorboard --logdir`, and `log`: the decisions of each
 * step.
 */
#include <engraft/train.h>

#include <stdio.h>

enum { TRAIN = 600, VALIDATION = 300, EPOCHS = 30 };

static eg_dataset *make_points(eg_context *ctx, const char *purpose, size_t n)
{
    float points[TRAIN][2];
    int64_t labels[TRAIN];
    eg_rng rng = eg_rng_make(1, purpose, 0);
    for (size_t i = 0; i < n; i++) {
        double x = 2 * eg_rng_uniform(&rng) - 1, y = 2 * eg_rng_uniform(&rng) - 1, r = x * x + y * y;
        points[i][0] = (float)x;
        points[i][1] = (float)y;
        labels[i] = r > 0.64;
    }
    return eg_dataset_from_arrays(ctx, &points[0][0], EG_SHAPE(2), labels, n, 2);
}

static eg_module *open_layer(eg_context *ctx, const char *key)
{
    return eg_layer_choice(ctx,
                           EG_CHOICES({"relu", eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 24, 24), eg_relu(ctx)))},
                                      {"tanh", eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 24, 24), eg_tanh(ctx)))},
                                      {"skip", eg_identity(ctx)}),
                           .key = key);
}

/* ---- the trainer ---- */

typedef struct progress {
    int steps;
} progress;

/* Another path, then the step that the library takes by itself. */
static eg_status train_step(eg_trainer *self, const eg_batch *batch)
{
    ((progress *)eg_trainer_payload(self))->steps++;
    EG_TRY(eg_mutator_reset(eg_mutable_mutator(eg_trainer_model(self))));
    return eg_trainer_step(self, batch);
}

/* Judged is the mean over a few paths. */
static eg_status validate_one_epoch(eg_trainer *self, int64_t epoch)
{
    (void)epoch;
    eg_module *net = eg_trainer_model(self);
    eg_loader *loader = eg_trainer_loader(self, true);
    eg_status status = EG_OK;
    eg_module_train(net, false);
    for (int path = 0; path < 5 && status == EG_OK; path++) {
        eg_tape *scope = eg_tape_begin(net->ctx, EG_NO_GRAD);
        eg_batch batch;
        status = eg_mutator_reset(eg_mutable_mutator(net));
        if (status == EG_OK)
            status = eg_loader_start(loader, 0, 0);
        if (status == EG_OK)
            status = eg_loader_next(loader, &batch);
        if (status == EG_OK)
            status = eg_meter_group_update(eg_trainer_epoch_meters(self, true), "acc1",
                                           eg_accuracy(eg_call(net, batch.x), batch.y), batch.size);
        eg_tape_end(scope);
    }
    return status;
}

static const eg_trainer_class single_path = {.struct_size = sizeof(eg_trainer_class),
                                             .name = "single path",
                                             .train_step = train_step,
                                             .validate_one_epoch = validate_one_epoch};

static void print_line(void *payload, eg_log_level level, const char *text)
{
    (void)payload;
    if (level >= EG_LOG_INFO)
        printf("%s\n", text);
}

int main(int argc, char **argv)
{
    eg_context *ctx = eg_context_new(.seed = 1, .threads = 1, .log = print_line);
    eg_dataset *train = make_points(ctx, "train", TRAIN), *validation = make_points(ctx, "validation", VALIDATION);
    eg_module *net = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 2, 24), eg_relu(ctx), open_layer(ctx, "first"),
                                                   open_layer(ctx, "second"), eg_linear(ctx, 24, 2)));
    eg_mutator *mutator = eg_random_mutator_new(net);
    progress p = {0};
    eg_trainer *trainer = eg_trainer_new(ctx, net, train, .validation = validation, .epochs = EPOCHS, .batch_size = 50,
                                         .cls = &single_path, .payload = &p, .seed = 1);
    if (argc > 1 && eg_trainer_enable_visualization(trainer, argv[1]) == EG_OK)
        printf("see %s\n", eg_trainer_log_directory(trainer));
    double accuracy = 0;
    if (eg_trainer_train(trainer) == EG_OK) {
        const eg_meter *meter = eg_meter_group_get(eg_trainer_meters(trainer), "acc1");
        accuracy = meter != NULL ? meter->avg : 0;
        printf("%d paths were trained; one of them gets %.0f %% right on the average\n", p.steps, 100 * accuracy);
    }
    eg_trainer_free(trainer);
    eg_mutator_detach(mutator);
    eg_module_release(net);
    eg_dataset_release(train);
    eg_dataset_release(validation);
    int status = eg_exit_status(ctx);
    return status != 0 ? status : accuracy > 0.85 ? 0 : 1;
}

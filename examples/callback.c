/*
 * A training with a callback of one's own, which ends it once the validation is good enough, and a log. The data are
 * made here: points in the plane, inside (0) or outside (1) of a circle.
 *
 *     cc callback.c $(pkg-config --cflags --libs engraft) -o callback && ./callback
 */
#include <engraft/train.h>

enum { TRAIN = 512, VALIDATION = 256, EPOCHS = 50 };

static eg_dataset *make_points(eg_context *ctx, const char *purpose, size_t n)
{
    float points[TRAIN][2];
    int64_t labels[TRAIN];
    eg_rng rng = eg_rng_make(1, purpose, 0);
    for (size_t i = 0; i < n; i++) {
        double x = 2 * eg_rng_uniform(&rng) - 1, y = 2 * eg_rng_uniform(&rng) - 1;
        points[i][0] = (float)x;
        points[i][1] = (float)y;
        labels[i] = x * x + y * y > 0.64;
    }
    return eg_dataset_from_arrays(ctx, &points[0][0], EG_SHAPE(2), labels, n, 2);
}

/* ---- the callback: `payload` is ours, `trainer` is set by the trainer that took it over ---- */

typedef struct goal {
    double accuracy; /* enough */
    int64_t epochs;  /* that it took; 0 = not reached */
} goal;

static eg_status stop_when_good(eg_callback *self, int64_t epoch)
{
    goal *g = self->payload;
    const eg_meter *accuracy = eg_meter_group_get(eg_trainer_meters(self->trainer), "acc1");
    if (accuracy == NULL)
        return eg_error_last()->code; /* a failure here ends the training with it */
    if (accuracy->avg < g->accuracy)
        return EG_OK;
    g->epochs = epoch + 1;
    eg_context_cancel(eg_trainer_model(self->trainer)->ctx);
    return EG_OK;
}

static const eg_callback_class stopper = {
    .struct_size = sizeof(eg_callback_class), .name = "stopper", .on_epoch_end = stop_when_good};

static void print_line(void *payload, eg_log_level level, const char *text)
{
    (void)payload;
    if (level >= EG_LOG_INFO)
        printf("%s\n", text);
}

int main(void)
{
    eg_context *ctx = eg_context_new(.seed = 1, .threads = 1, .log = print_line);
    eg_dataset *train = make_points(ctx, "train", TRAIN), *validation = make_points(ctx, "validation", VALIDATION);
    eg_module *net = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 2, 32), eg_relu(ctx), eg_linear(ctx, 32, 2)));
    goal g = {.accuracy = 0.95};
    eg_trainer *trainer =
        eg_trainer_new(ctx, net, train, .validation = validation, .epochs = EPOCHS, .batch_size = 32, .seed = 1,
                       .callbacks = (eg_callback *[]){eg_callback_new(&stopper, &g)}, .n_callbacks = 1);

    eg_status status = eg_trainer_train(trainer);
    if (status == EG_ECANCELED && g.epochs > 0) { /* our own wish, no failure */
        eg_error_clear();
        eg_context_resume(ctx);
        printf("good enough after %lld epochs\n", (long long)g.epochs);
    }
    eg_trainer_free(trainer);
    eg_module_release(net);
    eg_dataset_release(train);
    eg_dataset_release(validation);
    int exit_status = eg_exit_status(ctx);
    return exit_status != 0 ? exit_status : g.epochs > 0 ? 0 : 1;
}

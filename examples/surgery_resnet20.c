/*
 * Surgery on a trained network: the ResNet-20 for CIFAR-10. Batch norms are folded, convolutions factorized at three
 * ranks, and 30 % of the channels pruned, after which the network is trained on for some minutes.
 *
 *     surgery_resnet20 WEIGHTS DATA [MINUTES]
 *
 * WEIGHTS is a checkpoint under PyTorch's names (model.safetensors), DATA a data set ("cifar10:FOLDER"); without them
 * the environment's EG_RESNET20 and EG_CIFAR10 name them, and without those there is nothing to show.
 */
#include "resnet20.h"

#include <stdlib.h>
#include <time.h>

static const eg_shape image = {.ndim = 4, .dims = {1, 3, 32, 32}};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void print_costs(eg_surgery *s, const char *name, double accuracy)
{
    eg_cost_change cost;
    if (eg_surgery_cost(s, &cost, .repeats = 200) != EG_OK)
        return;
    printf("%-24s %6.2f %%  %8lld parameters  %6.2f M MACs  %7.3f ms (%.3f before)\n", name, 100 * accuracy,
           (long long)cost.after.parameters, (double)cost.after.macs / 1e6, 1e3 * cost.after.latency,
           1e3 * cost.before.latency);
    eg_cost_change_free(&cost);
}

/* The class that the network sees in each image; for free(). */
static int64_t *predictions(eg_module *net, eg_dataset *test)
{
    size_t n = eg_dataset_size(test), done = 0;
    int64_t *out = calloc(n, sizeof(*out));
    eg_loader *loader = eg_loader_new(test, 100);
    for (eg_batch batch = {.size = 1}; out && loader && batch.size > 0; done += batch.size) {
        eg_tape *scope = eg_tape_begin(net->ctx, EG_NO_GRAD);
        if (eg_loader_next(loader, &batch) == EG_OK && batch.size > 0) {
            eg_tensor *best = eg_argmax(eg_call(net, batch.x), 1, false);
            eg_tensor_read_i64(best, out + done, batch.size);
        }
        eg_tape_end(scope);
        if (eg_error_last()->code != EG_OK)
            break;
    }
    eg_loader_free(loader);
    return out;
}

static void fold(eg_module *net, eg_dataset *test)
{
    int64_t *before = predictions(net, test);
    eg_surgery *s = eg_surgery_new(net, .inputs = EG_SHAPES(image));
    eg_surgery_apply(s, eg_fold_batch_norm(net->ctx), NULL);
    eg_surgery_commit(s);
    int64_t *after = predictions(net, test);
    size_t changed = 0, n = eg_dataset_size(test);
    for (size_t i = 0; before && after && i < n; i++)
        changed += before[i] != after[i];
    print_costs(s, "batch norms folded", eg_evaluate(net, test, 100));
    printf("%zu of %zu predictions changed\n", changed, n);
    eg_surgery_undo(s);
    eg_surgery_free(s);
    free(before);
    free(after);
}

static void factorize(eg_module *net, eg_dataset *test, double rank)
{
    char name[40];
    snprintf(name, sizeof(name), "factorized, rank %.3g", rank);
    eg_surgery *s = eg_surgery_new(net, .inputs = EG_SHAPES(image));
    eg_surgery_apply(s, eg_factorize(net->ctx, .rank = rank, .min_channels = 16), NULL);
    eg_surgery_commit(s);
    print_costs(s, name, eg_evaluate(net, test, 100));
    eg_surgery_undo(s);
    eg_surgery_free(s);
}

/* ---- pruning, and training on ---- */

/* One pass over the images; false after a failure. */
static bool train_epoch(eg_module *net, eg_optimizer *sgd, eg_loader *loader, uint64_t epoch, double *loss)
{
    size_t n = 0;
    *loss = 0;
    eg_module_train(net, true);
    if (eg_loader_start(loader, epoch, 0) != EG_OK)
        return false;
    for (eg_batch batch = {.size = 1}; batch.size > 0;) {
        eg_tape *tape = eg_tape_begin(net->ctx, EG_RECORD);
        if (eg_loader_next(loader, &batch) == EG_OK && batch.size > 0) {
            eg_tensor *l = eg_f_cross_entropy(eg_call(net, batch.x), batch.y);
            eg_backward(l);
            *loss += eg_tensor_item(l);
            n++;
        }
        eg_tape_end(tape);
        if (batch.size > 0)
            eg_optimizer_step(sgd);
        eg_optimizer_zero_grad(sgd);
        if (eg_error_last()->code != EG_OK)
            return false;
    }
    *loss /= (double)(n > 0 ? n : 1);
    return true;
}

static void prune(eg_module *net, eg_dataset *train, eg_dataset *test, double minutes)
{
    eg_optimizer *sgd = eg_sgd(net, .lr = 0.01, .momentum = 0.9, .weight_decay = 1e-4, .nesterov = true);
    eg_surgery *s = eg_surgery_new(net, .inputs = EG_SHAPES(image), .optimizers = EG_OPTIMIZERS(sgd));
    eg_surgery_apply(s, eg_prune_channels(net->ctx, .ratio = 0.3), NULL);
    eg_surgery_commit(s);
    print_costs(s, "30 % of channels pruned", eg_evaluate(net, test, 100));
    eg_transform transforms[] = {eg_random_crop(4), eg_random_flip(0.5)};
    eg_loader *loader = eg_loader_new(train, 64, .shuffle = true, .drop_last = true, .seed = 1,
                                      .transforms = transforms, .n_transforms = 2);
    double start = seconds(), loss;
    for (uint64_t epoch = 0; minutes > 0 && seconds() - start < 60 * minutes; epoch++) {
        double passed = (seconds() - start) / (60 * minutes); /* the rate falls to a tenth and a hundredth */
        eg_optimizer_set_lr(sgd, 0, passed < 0.5 ? 0.01 : passed < 0.8 ? 0.001 : 0.0001);
        if (loader == NULL || !train_epoch(net, sgd, loader, epoch, &loss))
            break;
        eg_module_train(net, false);
        if (epoch < 4 || epoch % 10 == 9)
            printf("  epoch %3d  %4.0f s  loss %.4f  accuracy %.2f %%\n", (int)epoch + 1, seconds() - start, loss,
                   100 * eg_evaluate(net, test, 100));
        fflush(stdout);
    }
    eg_module_train(net, false);
    if (minutes > 0)
        print_costs(s, "the same, trained on", eg_evaluate(net, test, 100));
    eg_loader_free(loader);
    eg_surgery_free(s);
    eg_optimizer_free(sgd);
}

int main(int argc, char **argv)
{
    const char *weights = argc > 1 ? argv[1] : getenv("EG_RESNET20"), *data = argc > 2 ? argv[2] : getenv("EG_CIFAR10");
    double minutes = argc > 3 ? strtod(argv[3], NULL) : 0;
    if (weights == NULL || data == NULL) {
        printf("skipped: EG_RESNET20 and EG_CIFAR10 name no weights and no data\n");
        return 77;
    }
    eg_context *ctx = eg_context_new(.seed = 1, .threads = 2);
    eg_module *net = resnet20_load(ctx, weights);
    eg_dataset *train = eg_dataset_open(ctx, data, .split = EG_TRAIN, .normalize_off = true);
    eg_dataset *test = eg_dataset_open(ctx, data, .split = EG_TEST, .normalize_off = true);
    if (net != NULL && train != NULL && test != NULL) {
        eg_surgery *none = eg_surgery_new(net, .inputs = EG_SHAPES(image));
        print_costs(none, "as it was trained", eg_evaluate(net, test, 100));
        eg_surgery_free(none);
        fold(net, test);
        static const double ranks[] = {0.75, 0.5, 0.25};
        for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++)
            factorize(net, test, ranks[i]);
        prune(net, train, test, minutes);
    }
    eg_dataset_release(train);
    eg_dataset_release(test);
    eg_module_release(net);
    return eg_exit_status(ctx);
}

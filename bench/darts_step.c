/*
 * One step of the DARTS supernet: forward and backward of every candidate of every edge, gradients of all weights and
 * of the architecture. The peer is peers/darts_step.py.
 *
 * usage: bench_darts_step THREADS BATCH LAYERS CHANNELS SIZE STEPS
 */
#include "engraft/engraft.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static eg_status step(eg_context *ctx, eg_module *net, eg_mutator *mutator, eg_tensor *x, eg_tensor *y)
{
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_status status = eg_mutator_reset(mutator);
    if (status == EG_OK)
        status = eg_backward(eg_f_cross_entropy(eg_call(net, x), y));
    eg_tape_end(tape);
    return status;
}

static eg_status count(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    (void)path, (void)kind;
    *(int64_t *)payload += eg_tensor_numel(t);
    return EG_OK;
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: %s THREADS BATCH LAYERS CHANNELS SIZE STEPS\n", argv[0]);
        return 2;
    }
    long batch = atol(argv[2]), layers = atol(argv[3]), channels = atol(argv[4]), size = atol(argv[5]);
    int steps = atoi(argv[6]);
    eg_context *ctx = eg_context_new(.seed = 1, .threads = atoi(argv[1]));
    eg_module *net = eg_space_build(ctx, "darts",
                                    &(eg_space_options){.struct_size = sizeof(eg_space_options),
                                                        .input = EG_SHAPE(3, size, size),
                                                        .classes = 10,
                                                        .channels = channels,
                                                        .layers = layers});
    eg_mutator *mutator = eg_darts_mutator_new(net);
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(batch, 3, size, size));
    int64_t *labels = calloc((size_t)batch, sizeof(*labels));
    if (!labels)
        return 1;
    for (long i = 0; i < batch; i++)
        labels[i] = i % 10;
    eg_tensor *y = eg_from_labels(ctx, (size_t)batch, labels);
    free(labels);

    eg_state *alphas = eg_state_new();
    int64_t params = eg_module_n_parameters(net);
    if (eg_darts_mutator_state(mutator, "", alphas) == EG_OK)
        for (size_t i = 0; i < eg_state_size(alphas); i++)
            count(&params, NULL, EG_SLOT_PARAMETER, eg_state_at(alphas, i, NULL));
    eg_state_free(alphas);

    printf("{\"seconds\": [");
    eg_status status = EG_OK;
    for (int i = 0; i < steps + 2 && status == EG_OK; i++) {
        double start = now();
        status = step(ctx, net, mutator, x, y);
        if (i >= 2)
            printf("%s%.6f", i > 2 ? ", " : "", now() - start);
        eg_module_zero_grad(net);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    eg_context_stats stats = eg_context_get_stats(ctx);
    printf("], \"peak_mb\": %ld, \"params\": %lld, \"tensor_peak_mb\": %zu, \"primitive_misses\": %llu}\n",
           usage.ru_maxrss / 1024, (long long)params, stats.bytes_peak >> 20,
           (unsigned long long)stats.primitive_misses);
    eg_mutator_detach(mutator);
    eg_module_release(net);
    return eg_exit_status(ctx);
}

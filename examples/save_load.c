/*
 * What a model costs, saved to a file, and loaded into another of the same form, which then computes the same.
 *
 *     cc save_load.c $(pkg-config --cflags --libs engraft) -o save_load && ./save_load
 */
#include <engraft/io.h>
#include <engraft/layers.h>

#include <string.h>

static eg_module *make_net(eg_context *ctx)
{
    return eg_sequential(ctx, EG_NAMED({"conv", eg_conv2d(ctx, 3, 8, 3, .padding = 1, .no_bias = true)},
                                       {"norm", eg_batch_norm2d(ctx, 8)}, {"relu", eg_relu(ctx)},
                                       {"pool", eg_global_avg_pool2d(ctx)}, {"fc", eg_linear(ctx, 8, 10)}));
}

/* The 2 x 10 numbers that the net makes of x, as in use: with the running statistics of its batch norm. */
static eg_status predict(eg_module *net, eg_tensor *x, float out[20])
{
    eg_module_train(net, false);
    return eg_tensor_read(eg_call(net, x), out, 20);
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "save_load.safetensors";
    eg_context *ctx = eg_context_new(.seed = 1);
    eg_module *saved = make_net(ctx), *loaded = make_net(ctx); /* each with random weights of its own */
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(2, 3, 16, 16));
    float before[20] = {0}, other[20] = {0}, after[20] = {0};

    /* From shapes alone: nothing is computed. */
    eg_trace *trace = eg_trace_new(saved, &EG_SHAPE(1, 3, 16, 16), 1);
    printf("%lld parameters, %llu multiply-accumulates\n", (long long)eg_trace_params(trace),
           (unsigned long long)eg_trace_macs(trace));
    eg_trace_free(trace);

    bool done = predict(saved, x, before) == EG_OK && predict(loaded, x, other) == EG_OK &&
                eg_module_save(saved, path) == EG_OK && eg_module_load(loaded, path) == EG_OK &&
                predict(loaded, x, after) == EG_OK;
    bool same = memcmp(before, after, sizeof before) == 0, differed = memcmp(before, other, sizeof before) != 0;
    if (done)
        printf("outputs %s before loading, %s after\n", differed ? "differ" : "agree", same ? "agree" : "differ");

    remove(path);
    eg_module_release(saved);
    eg_module_release(loaded);
    int status = eg_exit_status(ctx); /* 0, or prints the first failure and gives 1 */
    return status != 0 ? status : done && same && differed ? 0 : 1;
}

/*
 * The three things that people do most to a model that exists: replace a class of modules by a policy of their own,
 * apply a method and see what it costs and gains, and take it all back.
 */
#include <engraft/engraft.h>

/* A policy: asked for each module of the class that it is for, it answers with what is to stand in its place, or NULL
 * to leave it. `index` counts how often it was asked. */
static eg_module *to_gelu(void *payload, eg_module *module, size_t index)
{
    const size_t *first_kept = payload;
    return index < *first_kept ? eg_gelu(module->ctx) : NULL;
}

/* Another: every convolution of 3x3 becomes one of 3x1 and one of 1x3, which begin with new weights. */
static eg_module *to_two_strips(void *payload, eg_module *module, size_t index)
{
    const eg_conv2d *c = EG_CAST(module, eg_conv2d);
    (void)payload;
    (void)index;
    if (eg_hw_h(c->kernel_size) != 3 || eg_hw_w(c->kernel_size) != 3 || c->groups != 1 || eg_hw_h(c->dilation) != 1)
        return NULL;
    return eg_sequential(
        module->ctx,
        EG_MODULES(eg_conv2d(module->ctx, c->in_channels, c->out_channels, EG_HW(3, 1),
                             .stride = EG_HW(eg_hw_h(c->stride), 1), .padding = EG_HW(eg_hw_h(c->padding), 0)),
                   eg_conv2d(module->ctx, c->out_channels, c->out_channels, EG_HW(1, 3),
                             .stride = EG_HW(1, eg_hw_w(c->stride)), .padding = EG_HW(0, eg_hw_w(c->padding)))));
}

/* And one that needs more than the module tells: a strided convolution in the place of a pool, of as many channels. */
static eg_module *to_strided(void *payload, eg_module *module, size_t index)
{
    const eg_pool2d *pool = EG_CAST(module, eg_max_pool2d);
    eg_shape in; /* N, C, H, W */
    (void)index;
    if (eg_surgery_shapes_of(payload, module, &in, NULL) != EG_OK)
        return NULL;
    return eg_conv2d(module->ctx, in.dims[1], in.dims[1], pool->kernel_size, .stride = pool->stride);
}

static eg_module *make_network(eg_context *ctx)
{
    return eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 3, 16, 3, .padding = 1), eg_batch_norm2d(ctx, 16), eg_relu(ctx),
                                         eg_conv2d(ctx, 16, 32, 3, .stride = 2, .padding = 1), eg_batch_norm2d(ctx, 32),
                                         eg_relu(ctx), eg_max_pool2d(ctx, 2), eg_global_avg_pool2d(ctx),
                                         eg_linear(ctx, 32, 64), eg_relu(ctx), eg_linear(ctx, 64, 10)));
}

int main(void)
{
    eg_context *ctx = eg_context_new(.seed = 1, .threads = 1);
    eg_module *net = make_network(ctx);
    eg_optimizer *adam = eg_adam(net);
    eg_surgery *s = eg_surgery_new(net, .optimizers = EG_OPTIMIZERS(adam),       /* they go with the weights */
                                   .inputs = EG_SHAPES(EG_SHAPE(1, 3, 32, 32))); /* shapes are checked on these */

    /* 1. Policies. Nothing is touched until the commit, which either does everything or nothing. */
    size_t first_kept = 2;
    eg_surgery_replace(s,
                       EG_POLICIES({.cls = &eg_relu_class, .replace = to_gelu, .payload = &first_kept},
                                   {.cls = &eg_conv2d_class, .replace = to_two_strips, .at = "3"},
                                   {.cls = &eg_max_pool2d_class, .replace = to_strided, .payload = s}),
                       false);
    eg_surgery_print(s, stdout);       /* what became of each module, its weights and its names */
    if (eg_surgery_commit(s) != EG_OK) /* it checks first: the error names what would no longer fit */
        return eg_exit_status(ctx);

    /* 2. A method: norms go into the convolutions before them. What does it save, and are the outputs the same? */
    eg_surgery *fold = eg_surgery_new(net, .inputs = EG_SHAPES(EG_SHAPE(1, 3, 32, 32)));
    eg_surgery_apply(fold, eg_fold_batch_norm(ctx), NULL);
    eg_cost_change cost;
    if (eg_surgery_cost(fold, &cost, .repeats = 50) == EG_OK) {
        char *text = eg_cost_change_text(&cost);
        printf("\n%s", text != NULL ? text : "");
        eg_free(text);
        eg_cost_change_free(&cost);
    }
    if (eg_surgery_guard(fold, NULL, .promise = EG_PROMISE_EXACT) == EG_OK)
        eg_surgery_commit(fold);
    eg_class_list norms = EG_CLASSES(&eg_batch_norm2d_class);
    printf("\nnorms: %lld\n", (long long)eg_count_module_instances(net, norms));

    /* 3. Undo, the last surgery first: the network and the optimizer are bit for bit what they were. After a training
     * in between they are so with .snapshot = true in eg_surgery_new(). */
    eg_surgery_undo(fold);
    eg_surgery_undo(s);
    printf("norms: %lld\n", (long long)eg_count_module_instances(net, norms));

    eg_surgery_free(fold);
    eg_surgery_free(s);
    eg_optimizer_free(adam);
    eg_module_release(net);
    return eg_exit_status(ctx); /* 0, or prints the first failure and gives 1 */
}

/*
 * Every allocation of methods made to fail: they say so, and the model and its optimizer are as they were.
 */
#include "support_alloc.h"

#include "surgery_support.h"

#include "engraft/methods.h"

typedef struct row {
    eg_module *(*net)(void);
    eg_shape input;
    eg_module *(*options)(void);
} row;

/* Convolution, norm and ReLU, then two linear layers that read the same, and norms. */
static eg_module *images(void)
{
    eg_module *both =
        eg_residual_block(ctx, EG_NAMED({"body", eg_linear(ctx, 8, 3)}, {"shortcut", eg_linear(ctx, 8, 3)}));
    return eg_sequential(ctx,
                         EG_MODULES(eg_conv2d(ctx, 1, 2, 3, .padding = 1), eg_batch_norm2d(ctx, 2), eg_relu(ctx),
                                    eg_group_norm(ctx, 1, 2), eg_flatten(ctx), eg_layer_norm(ctx, EG_SHAPE(8)), both));
}

static eg_module *sequences(void)
{
    return eg_sequential(ctx,
                         EG_NAMED({"wpe", eg_embedding(ctx, 3, 4)}, {"attention", eg_multihead_attention(ctx, 4, 2)}));
}

#define OPTIONS(name, ...)                                                                                             \
    static eg_module *name(void)                                                                                       \
    {                                                                                                                  \
        return __VA_ARGS__;                                                                                            \
    }
OPTIONS(fold, eg_fold_batch_norm(ctx))
OPTIONS(fuse, eg_fuse_conv_bn_relu(ctx))
OPTIONS(parallel, eg_fuse_parallel_linear(ctx))
OPTIONS(low_precision, eg_low_precision_norm(ctx))
OPTIONS(standardize, eg_weight_standardization(ctx))
OPTIONS(factorize, eg_factorize(ctx, .rank = 1, .min_channels = 1))
OPTIONS(low_rank, eg_low_rank(ctx, .rank = 1))
OPTIONS(alibi, eg_alibi(ctx, .position_embedding = "wpe", .max_sequence_length = 5))

static eg_status operate(const row *r, eg_module *net, eg_optimizer *o)
{
    eg_surgery *s = eg_surgery_new(net, .optimizers = EG_OPTIMIZERS(o), .inputs = {.items = &r->input, .n = 1});
    eg_module *options = s != NULL ? r->options() : NULL;
    eg_status status = options != NULL ? eg_surgery_apply(s, options, NULL) : eg_error_last()->code;
    if (status == EG_OK)
        status = eg_surgery_commit(s);
    if (status == EG_OK)
        status = eg_surgery_undo(s);
    eg_surgery_free(s);
    return status;
}

/* One trial; false when nothing was left to fail. */
static bool try_once(const row *r, long n, bool all_after)
{
    eg_module *net = r->net();
    assert_made(net);
    eg_optimizer *o = eg_adam(net);
    assert_made(o);
    uint64_t before = fingerprint(net, o);
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_error_clear();
    alloc_fail_all = all_after;
    alloc_failures = 0;
    alloc_countdown = n;
    eg_status status = operate(r, net, o);
    alloc_countdown = -1;
    eg_tape_end(tape);
    if (status != EG_OK && (alloc_failures == 0 || status != EG_ENOMEM || eg_error_last()->code != EG_ENOMEM))
        fail_msg("allocation %ld: %s: %s", n, eg_status_name(status), eg_error_last()->message);
    assert_true(fingerprint(net, o) == before);
    eg_optimizer_free(o);
    eg_module_release(net);
    return alloc_failures > 0;
}

static void methods_survive(void **state)
{
    (void)state;
    const row rows[] = {
        {images, EG_SHAPE(2, 1, 2, 2), fold},        {images, EG_SHAPE(2, 1, 2, 2), fuse},
        {images, EG_SHAPE(2, 1, 2, 2), parallel},    {images, EG_SHAPE(2, 1, 2, 2), low_precision},
        {images, EG_SHAPE(2, 1, 2, 2), standardize}, {images, EG_SHAPE(2, 1, 2, 2), factorize},
        {images, EG_SHAPE(2, 1, 2, 2), low_rank},    {sequences, EG_SHAPE(2, 3), alibi},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (int all_after = 0; all_after < 2; all_after++) {
            long n = 0;
            while (try_once(&rows[i], n, all_after != 0))
                n++;
            assert_true(n > 10);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {SURGERY_TEST(methods_survive)};
    return setenv("EG_POOL", "off", 1) == 0 ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}

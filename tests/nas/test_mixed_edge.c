/*
 * A weighted choice whose branches end in batch norms computes what it would if somebody looked at every branch (a hook
 * keeps the norms out of the sum): output, all gradients, running statistics and counters.
 */
#include "nas/toy.h"

#include "tensor/internal.h"

#include <math.h>

static int setup(void **state)
{
    *state = eg_context_new(.seed = 3, .threads = 2);
    return *state == NULL;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    return 0;
}

static eg_module *branch(eg_context *ctx, int64_t kernel, bool affine)
{
    return eg_sequential(ctx, EG_MODULES(eg_relu(ctx), eg_conv2d(ctx, 6, 6, kernel, .padding = kernel / 2),
                                         eg_batch_norm2d(ctx, 6, .no_affine = !affine)));
}

static eg_module *make_choice(eg_context *ctx)
{
    return eg_layer_choice(
        ctx,
        EG_CHOICES({"pool", eg_sequential(ctx, EG_MODULES(eg_max_pool2d(ctx, 3, .stride = 1, .padding = 1),
                                                          eg_batch_norm2d(ctx, 6, .no_affine = true)))},
                   {"skip", eg_identity(ctx)}, {"one", branch(ctx, 1, true)}, {"three", branch(ctx, 3, false)},
                   {"bare", eg_conv2d(ctx, 6, 6, 3, .padding = 1)}),
        .key = "edge");
}

static eg_tensor *look(void *payload, eg_module *m, eg_tensor *t, bool *failed)
{
    (void)payload, (void)m, (void)t, (void)failed;
    return NULL;
}

/* Output, then all gradients, then the state, one after the other. */
enum { MOST = 4096 };
typedef struct numbers {
    float values[MOST];
    size_t n;
} numbers;

static void take(numbers *all, const eg_tensor *t)
{
    if (t == NULL || eg_is_none(t) || eg_tensor_dtype(t) != EG_F32)
        return;
    size_t n = (size_t)eg_tensor_numel(t);
    assert_true(all->n + n <= MOST);
    assert_ok(eg_tensor_read(t, all->values + all->n, n));
    all->n += n;
}

static eg_status take_slot(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    (void)path;
    take(payload, t);
    if (kind == EG_SLOT_PARAMETER)
        take(payload, eg_tensor_grad(t));
    else if (eg_tensor_dtype(t) == EG_I64)
        ((numbers *)payload)->values[((numbers *)payload)->n++] = (float)*eg__i64(t);
    return EG_OK;
}

static void run(eg_module *choice, eg_tensor *x, bool watched, numbers *all)
{
    eg_context *ctx = choice->ctx;
    for (size_t i = 0; watched && i < eg_layer_choice_size(choice); i++)
        assert_ok(eg_module_add_hook(eg_layer_choice_at(choice, i), look, NULL, NULL));
    eg_mutator *mutator = eg_darts_mutator_new(choice);
    assert_made(mutator);
    eg_tensor *alpha = eg_darts_mutator_alpha(mutator, "edge");
    assert_ok(eg_tensor_write(alpha, (const float[]){0.5F, -0.25F, 1, 0.125F, -1, 0.25F}, 6));
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    assert_ok(eg_mutator_reset(mutator));
    eg_tensor *h = eg_affine(x, 1.5, 0.25), *y = eg_call(choice, h);
    assert_made(y);
    take(all, y);
    assert_ok(eg_backward(eg_sum(eg_mul(y, eg_f_sigmoid(y)))));
    eg_tape_end(tape);
    take(all, eg_tensor_grad(x));
    take(all, eg_tensor_grad(alpha));
    assert_ok(eg_module_walk_tensors(choice, take_slot, all));
    eg_mutator_detach(mutator);
}

static void fused_and_watched_agree(void **state)
{
    static numbers all[2];
    for (int watched = 0; watched < 2; watched++) {
        all[watched].n = 0;
        eg_context *ctx = eg_context_new(.seed = 5, .threads = 2);
        eg_module *choice = make_choice(ctx);
        assert_made(choice);
        eg_tensor *x = eg_randn(ctx, EG_SHAPE(3, 6, 5, 4));
        assert_ok(eg_tensor_set_requires_grad(x, true));
        run(choice, x, watched == 1, &all[watched]);
        eg_module_release(choice);
        eg_context_free(ctx);
    }
    (void)state;
    assert_int_equal(all[0].n, all[1].n);
    assert_true(all[0].n > 800);
    for (size_t i = 0; i < all[0].n; i++)
        if (fabsf(all[0].values[i] - all[1].values[i]) > 2e-5F * (1 + fabsf(all[1].values[i])))
            fail_msg("number %zu is %.8g, with a hook %.8g", i, (double)all[0].values[i], (double)all[1].values[i]);
}

/* In evaluation the norms use their running statistics: nothing is taken into the sum. */
static void evaluation_is_left_alone(void **state)
{
    eg_context *ctx = *state;
    eg_module *choice = make_choice(ctx);
    eg_mutator *mutator = eg_darts_mutator_new(choice);
    eg_module_train(choice, false);
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(1, 6, 1, 1)); /* too few numbers for statistics of a batch */
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    assert_ok(eg_mutator_reset(mutator));
    assert_made(eg_call(choice, x));
    eg_tape_end(tape);
    eg_mutator_detach(mutator);
    eg_module_release(choice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(fused_and_watched_agree, setup, teardown),
        cmocka_unit_test_setup_teardown(evaluation_is_left_alone, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * What Composer's own tests hold its algorithms to, for the methods of the same names; rows named by the section of the
 * reference's cases.
 */
#include "surgery_support.h"

#include "engraft/methods.h"

static eg_tensor *image(int64_t n, int64_t channels, int64_t size)
{
    return eg_randn(ctx, EG_SHAPE(n, channels, size, size));
}

static eg_surgery *apply(eg_module *m, eg_module *options)
{
    eg_surgery *s = eg_surgery_new(m);
    assert_made(s);
    assert_ok(eg_surgery_apply(s, options, NULL));
    return s;
}

/* 4.11: only the first convolution (the second has too few channels, the third no stride) and the pool. */
static void blur_pool_takes_what_it_should(void **state)
{
    (void)state;
    eg_module *m =
        eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 32, 8, 3, .stride = 2), eg_conv2d(ctx, 8, 32, 3, .stride = 2),
                                      eg_conv2d(ctx, 32, 64, 3), eg_max_pool2d(ctx, 2)));
    eg_optimizer *sgd = eg_sgd(m, .lr = 0.1);
    eg_tensor *weight = eg_module_tensor(m, "0.weight");
    eg_surgery *s = eg_surgery_new(m, .optimizers = EG_OPTIMIZERS(sgd));
    assert_ok(eg_surgery_apply(s, eg_blur_pool(ctx), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_blur_conv2d_class)), 1);
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_blur_max_pool2d_class)), 1);
    assert_ptr_equal(eg_module_tensor(m, "0.conv.weight"), weight);
    assert_int_equal(sgd->n_params, 6); /* the very weights: nothing left, nothing came */
    eg_surgery_free(s);
    s = apply(eg_module_find(m, "2"), eg_blur_pool(ctx)); /* a convolution alone, which has no stride */
    assert_int_equal(eg_surgery_size(s), 0);
    assert_string_equal(eg_surgery_note_at(s, 0), "blur_pool found no module to change");
    eg_surgery_free(s);
    eg_optimizer_free(sgd);
    eg_module_release(m);
}

/* 4.11: a constant stays one within the borders, whatever is blurred. */
static void blurring_keeps_constants(void **state)
{
    (void)state;
    eg_module *pool = eg_blur_max_pool2d(ctx, 2, .stride = 1);
    eg_tensor *y = eg_call(pool, eg_full(ctx, EG_SHAPE(1, 2, 8, 8), 3));
    eg_tensor *inner = eg_slice(eg_slice(y, 2, 1, 6, 1), 3, 1, 6, 1);
    assert_true(largest_difference(inner, eg_full(ctx, eg_tensor_shape(inner), 3)) < 1e-6);
    eg_module_release(pool);
}

/* 4.12: as many as there are convolutions; shapes stay. */
static void squeeze_excite_keeps_shapes(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 3, 8, 3), eg_conv2d(ctx, 8, 6, 3)));
    eg_shape before = eg_tensor_shape(eg_call(m, image(2, 3, 9)));
    eg_surgery *s = apply(m, eg_squeeze_excite(ctx, .min_channels = 3));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_squeeze_excite_conv2d_class)), 2);
    assert_true(eg_shape_equal(before, eg_tensor_shape(eg_call(m, image(2, 3, 9)))));
    eg_surgery_free(s);
    eg_module_release(m);
}

/* 4.13: each part has mean 0 and variance 1. */
static void ghost_batches_are_normalized(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 5};
    for (size_t i = 0; i < 4; i++) {
        eg_module *m = eg_sequential(ctx, EG_MODULES(eg_batch_norm2d(ctx, 2, .eps = 1e-12)));
        eg_surgery *s = apply(m, eg_ghost_norm(ctx, .ghost_batch_size = sizes[i]));
        assert_int_equal(eg_surgery_size(s), 1);
        assert_ok(eg_surgery_commit(s));
        eg_tensor *parts = eg_split(eg_call(m, image(12, 2, 4)), 12 / ((12 + sizes[i] - 1) / sizes[i]), 0);
        for (size_t k = 0; k < eg_tuple_size(parts); k++) {
            eg_tensor *mean = eg_mean(eg_tuple_get(parts, k));
            eg_tensor *square = eg_mean(eg_mul(eg_tuple_get(parts, k), eg_tuple_get(parts, k)));
            assert_true(fabs(eg_tensor_item(mean)) < 1e-5);
            assert_true(12 % ((12 + sizes[i] - 1) / sizes[i]) != 0 || fabs(eg_tensor_item(square) - 1) < 1e-4);
        }
        eg_surgery_free(s);
        eg_module_release(m);
    }
    eg_module *m = eg_ghost_batch_norm2d(ctx, EG_NAMED({"norm", eg_batch_norm2d(ctx, 2)}), .ghost_batch_size = 5);
    assert_null(eg_call(m, image(4, 2, 3)));
    assert_recorded(EG_EINVAL, "a batch of 4 is smaller than ghost_batch_size, 5");
    eg_module_release(m);
}

/* 4.14 and section 2: how many become pairs, shapes, and the rank at which a pair has as many parameters. */
static void factorize_counts(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 4, 8, 3), eg_flatten(ctx), eg_linear(ctx, 8 * 4, 6)));
    eg_shape before = eg_tensor_shape(eg_call(m, image(2, 4, 4)));
    eg_surgery *s = apply(m, eg_factorize(ctx, .rank = 2, .min_channels = 1));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_factorized_class)), 2);
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_conv2d_class)), 2);
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_linear_class)), 2);
    assert_true(eg_shape_equal(before, eg_tensor_shape(eg_call(m, image(2, 4, 4)))));
    eg_surgery_free(s);
    eg_module_release(m);
    m = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 16, 16)));
    s = apply(m, eg_factorize(ctx, .rank = 7, .min_channels = 1)); /* 7 * 32 < 256 */
    assert_int_equal(eg_surgery_size(s), 1);
    eg_surgery_drop(s);
    assert_ok(eg_surgery_apply(s, eg_factorize(ctx, .rank = 8, .min_channels = 1), NULL)); /* 8 * 32 = 256 */
    assert_int_equal(eg_surgery_size(s), 0);
    eg_surgery_free(s);
    eg_module_release(m);
}

/* 4.15: rates by depth; rate 1 gives back the very input, rate 0 does not; wrong numbers are refused. */
static void stochastic_depth_has_rates(void **state)
{
    (void)state;
    eg_module *blocks[4];
    for (int i = 0; i < 4; i++)
        blocks[i] = eg_residual_block(ctx, EG_NAMED({"body", eg_conv2d(ctx, 2, 2, 1)}));
    eg_module *m = eg_sequential(ctx, blocks, 4);
    eg_surgery *s = apply(m, eg_stochastic_depth(ctx, .drop_rate = 0.8));
    assert_int_equal(eg_surgery_size(s), 4);
    for (size_t i = 0; i < 4; i++) {
        const eg_stochastic_residual *r = (const eg_stochastic_residual *)eg_surgery_at(s, i)->fresh;
        assert_true(fabs(r->drop_rate - 0.2 * (double)(i + 1)) < 1e-12);
    }
    eg_surgery_free(s);
    eg_module_release(m);
    eg_tensor *x = image(2, 2, 3);
    m = eg_stochastic_residual(ctx, EG_NAMED({"body", eg_conv2d(ctx, 2, 2, 1)}), .drop_rate = 1);
    assert_ptr_equal(eg_call(m, x), x);
    eg_module_release(m);
    m = eg_stochastic_residual(ctx, EG_NAMED({"body", eg_conv2d(ctx, 2, 2, 1)}));
    assert_ptr_not_equal(eg_call(m, x), x);
    eg_module_release(m);
    m = eg_stochastic_residual(ctx, EG_NAMED({"body", eg_conv2d(ctx, 2, 2, 1)}), .drop_rate = 1, .by_sample = true);
    assert_true(largest_difference(eg_call(m, x), x) == 0);
    eg_module_release(m);
    assert_null(eg_stochastic_depth(ctx, .drop_rate = -0.5));
    assert_recorded(EG_EINVAL, "drop_rate");
    assert_null(eg_stochastic_depth(ctx, .drop_rate = 1.7));
    assert_recorded(EG_EINVAL, "drop_rate");
    assert_null(eg_method_from_text(ctx, "stochastic_depth(method=layer)"));
    assert_recorded(EG_EFORMAT, "method");
    assert_null(eg_method_from_text(ctx, "stochastic_depth(distribution=normal)"));
    assert_recorded(EG_EFORMAT, "distribution");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SURGERY_TEST(blur_pool_takes_what_it_should),
        SURGERY_TEST(blurring_keeps_constants),
        SURGERY_TEST(squeeze_excite_keeps_shapes),
        SURGERY_TEST(ghost_batches_are_normalized),
        SURGERY_TEST(factorize_counts),
        SURGERY_TEST(stochastic_depth_has_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

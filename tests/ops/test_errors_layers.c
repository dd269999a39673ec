/*
 * What the operations of further layers refuse and how they say it, and what they cost.
 */
#include "ops/ops_support.h"

#include "engraft/layers.h"

#include <math.h>

static void test_conv1d(void **state)
{
    (void)state;
    eg_tensor *x = t(EG_SHAPE(2, 3, 8)), *w = t(EG_SHAPE(4, 3, 3));
    expect_error(eg_f_conv1d(t(EG_SHAPE(2, 3)), w, eg_none), EG_ESHAPE,
                 "conv1d: input (2, 3) has 2 dimensions, expected (N, C, L)");
    expect_error(eg_f_conv1d(x, t(EG_SHAPE(4, 3)), eg_none), EG_ESHAPE,
                 "conv1d: weight (4, 3) has 2 dimensions, expected (out, in / groups, length)");
    expect_error(eg_f_conv1d(x, eg_none, eg_none), EG_EINVAL,
                 "conv1d: input or weight is none or a tuple, expected tensors");
    expect_error(eg_f_conv1d(t(EG_SHAPE(2, 0, 8)), w, eg_none), EG_ESHAPE,
                 "conv1d: input (2, 0, 8) or weight (4, 3, 3) has a dimension of size 0");
    expect_error(eg_f_conv1d(x, w, eg_none, .stride = -1), EG_EINVAL, "conv2d: stride is (1, -1), expected 1 or more");
    expect_error(eg_f_conv1d_with(NULL), EG_EINVAL, "conv1d: args is NULL");
}

static void test_conv_transpose2d(void **state)
{
    (void)state;
    eg_tensor *x = t(EG_SHAPE(2, 4, 3, 3)), *w = t(EG_SHAPE(4, 3, 3, 3));
    expect_error(eg_f_conv_transpose2d(t(EG_SHAPE(2, 3, 3, 3)), w, eg_none), EG_ESHAPE,
                 "conv_transpose2d: input has 3 channels, weight expects 4");
    expect_error(eg_f_conv_transpose2d(x, w, eg_none, .groups = 3), EG_ESHAPE,
                 "conv_transpose2d: 3 groups do not divide 4 input channels");
    expect_error(eg_f_conv_transpose2d(x, w, t(EG_SHAPE(4))), EG_ESHAPE,
                 "conv_transpose2d: bias has shape (4), expected (3)");
    expect_error(eg_f_conv_transpose2d(x, w, eg_none, .stride = 2, .output_padding = 2), EG_EINVAL,
                 "conv_transpose2d: output padding is 2, expected less than the stride 2 or the dilation 1");
    expect_error(eg_f_conv_transpose2d(x, w, eg_none, .padding = 3), EG_ESHAPE,
                 "conv_transpose2d: the output would have the size (-1, -1)");
    expect_error(eg_f_conv_transpose2d(x, w, eg_none, .padding = -1), EG_EINVAL,
                 "conv_transpose2d: padding is (-1, -1), expected 0 or more");
}

static void test_norms(void **state)
{
    (void)state;
    eg_tensor *x = t(EG_SHAPE(2, 6, 3, 3));
    expect_error(eg_f_group_norm(x, 4, eg_none, eg_none), EG_EINVAL, "group_norm: 4 groups do not divide 6 channels");
    expect_error(eg_f_group_norm(x, 0, eg_none, eg_none), EG_EINVAL, "group_norm: 0 groups do not divide 6 channels");
    expect_error(eg_f_group_norm(t(EG_SHAPE(6)), 2, eg_none, eg_none), EG_ESHAPE,
                 "group_norm: input (6) has 1 dimensions, expected (N, C, ..)");
    expect_error(eg_f_group_norm(x, 2, t(EG_SHAPE(5)), eg_none), EG_ESHAPE,
                 "group_norm: weight has shape (5), expected (6)");
    expect_error(eg_f_group_norm(x, 2, eg_none, eg_none, .eps = -1), EG_EINVAL,
                 "group_norm: eps is -1, expected more than 0");
    expect_error(eg_f_instance_norm(t(EG_SHAPE(2, 6, 1, 1)), eg_none, eg_none), EG_EINVAL,
                 "instance_norm: input (2, 6, 1, 1) has one value per channel, more are needed to take a variance");
    expect_error(eg_f_layer_norm(x, EG_SHAPE(2, 3), eg_none, eg_none), EG_ESHAPE,
                 "layer_norm: input (2, 6, 3, 3) does not end with the normalized shape (2, 3)");
    expect_error(eg_f_layer_norm(x, EG_SCALAR, eg_none, eg_none), EG_EINVAL,
                 "layer_norm: normalized shape has 0 dimensions, expected 1 or more");
    expect_error(eg_f_layer_norm(x, EG_SHAPE(3), eg_none, t(EG_SHAPE(1, 3))), EG_ESHAPE,
                 "layer_norm: bias has shape (1, 3), expected (3)");
    expect_error(eg_f_weight_norm(t(EG_SHAPE(4, 3)), t(EG_SHAPE(4)), 0), EG_ESHAPE,
                 "weight_norm: length has shape (4), expected (4, 1)");
    expect_error(eg_f_weight_norm(t(EG_SHAPE(4, 3)), t(EG_SHAPE(4, 1)), 2), EG_EINVAL,
                 "weight_norm: dimension 2 is out of range for a direction (4, 3)");
}

static void test_sizes(void **state)
{
    (void)state;
    eg_tensor *x = t(EG_SHAPE(2, 6, 3, 3));
    expect_error(eg_f_interpolate(x), EG_EINVAL,
                 "interpolate: neither size nor scale_factor is given, expected one of them");
    expect_error(eg_f_interpolate(x, .size = 4, .scale_factor = 2), EG_EINVAL,
                 "interpolate: both size and scale_factor are given, expected one of them");
    expect_error(eg_f_interpolate(x, .size = 4, .align_corners = true), EG_EINVAL,
                 "interpolate: align_corners is set, expected it with EG_BILINEAR only");
    expect_error(eg_f_interpolate(x, .size = 4, .mode = (eg_interpolation)7), EG_EINVAL,
                 "interpolate: mode is 7, expected EG_NEAREST or EG_BILINEAR");
    expect_error(
        eg_f_interpolate(x, .scale_factor = 0.2), EG_ESHAPE,
        "interpolate: input (2, 6, 3, 3) times the scale factor 0.2 has a size of 0, expected 1 to 1073741823");
    expect_error(eg_f_interpolate(x, .scale_factor = NAN), EG_EINVAL,
                 "interpolate: scale factor is nan, expected more than 0");
    expect_error(eg_f_interpolate(x, .size = EG_HW(0, 3)), EG_EINVAL,
                 "interpolate: size is (0, 3), expected 1 or more");
    expect_error(eg_f_pixel_shuffle(x, 2), EG_ESHAPE,
                 "pixel_shuffle: input has 6 channels, expected a multiple of the factor's square, 4");
    expect_error(eg_f_pixel_shuffle(x, 0), EG_EINVAL, "pixel_shuffle: factor is 0, expected 1 to 32767");
    expect_error(eg_f_pixel_unshuffle(x, 2), EG_ESHAPE,
                 "pixel_unshuffle: input (2, 6, 3, 3) has a height or width that is no multiple of the factor 2");
    expect_error(eg_f_pixel_unshuffle(eg_none, 2), EG_EINVAL,
                 "pixel_unshuffle: input 0 is none (a choice that selected nothing)");
}

/* Nearest neighbours are copied, not multiplied: what is infinite stays so. */
static void test_nearest_copies(void **state)
{
    (void)state;
    eg_tensor *y = eg_f_interpolate(eg_full(ctx, EG_SHAPE(1, 3, 2, 2), INFINITY), .scale_factor = 2);
    float values[48];
    assert_int_equal(eg_tensor_read(y, values, 48), EG_OK);
    for (size_t i = 0; i < 48; i++)
        assert_true(isinf(values[i]));
}

static void test_macs(void **state)
{
    (void)state;
    eg_module *m = eg_conv_transpose2d(ctx, 4, 6, 3, .stride = 2, .groups = 2);
    eg_trace *trace = eg_trace_new(m, &EG_SHAPE(2, 4, 5, 7), 1);
    assert_non_null(trace);
    assert_int_equal(eg_trace_macs(trace), 4 * 3 * 9 * 2 * 5 * 7);
    assert_true(eg_shape_equal(eg_trace_output(trace, 0), EG_SHAPE(2, 6, 11, 15)));
    eg_trace_free(trace);
    eg_module_release(m);
    m = eg_conv1d(ctx, 4, 6, 3);
    trace = eg_trace_new(m, &EG_SHAPE(2, 4, 9), 1);
    assert_non_null(trace);
    assert_int_equal(eg_trace_macs(trace), 4 * 6 * 3 * 2 * 7);
    assert_int_equal(eg_trace_params(trace), 4 * 6 * 3 + 6);
    eg_trace_free(trace);
    eg_module_release(m);
}

/* One convolution after the other: what the first made is not copied, and keeps its order through a single-element
 * operation. */
static void test_sequences_stay_channels_last(void **state)
{
    (void)state;
    eg_tensor *y = eg_f_relu(eg_f_conv1d(t(EG_SHAPE(2, 3, 8)), t(EG_SHAPE(4, 3, 3)), eg_none));
    const int64_t *strides = eg_tensor_strides(y);
    assert_true(strides[0] == 24 && strides[1] == 1 && strides[2] == 4);
    eg_tensor *made = eg_empty(ctx, EG_F32, EG_SHAPE(2, 4, 6), EG_LAYOUT_CHANNELS_LAST);
    for (int d = 0; d < 3; d++)
        assert_int_equal(eg_tensor_strides(made)[d], strides[d]);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_conv1d),
        TEST(test_conv_transpose2d),
        TEST(test_norms),
        TEST(test_sizes),
        TEST(test_nearest_copies),
        TEST(test_macs),
        TEST(test_sequences_stay_channels_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * What operations refuse and how they say it; NULL, which passes through; eg_none, which is left out or refused.
 */
#include "ops/ops_support.h"

#include "autograd/internal.h"
#include "ops/registry.h"

#include <math.h>

/* ---- messages ---- */

static void test_conv2d(void **state)
{
    (void)state;
    eg_tensor *x = t(EG_SHAPE(2, 3, 8, 8)), *w = t(EG_SHAPE(4, 3, 3, 3));
    assert_int_equal(eg__call_push(ctx, "stem"), EG_OK);
    assert_int_equal(eg__call_push(ctx, "0"), EG_OK);
    expect_error(eg_f_conv2d(x, t(EG_SHAPE(4, 16, 3, 3)), eg_none), EG_ESHAPE,
                 "conv2d 'stem.0': input has 3 channels, weight expects 16");
    eg__call_pop(ctx);
    eg__call_pop(ctx);
    expect_error(eg_f_conv2d(t(EG_SHAPE(2, 3)), w, eg_none), EG_ESHAPE,
                 "conv2d: input (2, 3) has 2 dimensions, expected (N, C, H, W)");
    expect_error(eg_f_conv2d(x, t(EG_SHAPE(4, 3)), eg_none), EG_ESHAPE,
                 "conv2d: weight (4, 3) has 2 dimensions, expected (out, in / groups, height, width)");
    expect_error(eg_f_conv2d(x, t(EG_SHAPE(4, 1, 3, 3)), eg_none, .groups = 2), EG_ESHAPE,
                 "conv2d: 2 groups do not divide 3 input and 4 output channels");
    expect_error(eg_f_conv2d(x, w, eg_none, .groups = -1), EG_ESHAPE,
                 "conv2d: -1 groups do not divide 3 input and 4 output channels");
    expect_error(eg_f_conv2d(x, w, t(EG_SHAPE(3))), EG_ESHAPE, "conv2d: bias has shape (3), expected (4)");
    expect_error(eg_f_conv2d(x, w, eg_none, .stride = -1), EG_EINVAL, "conv2d: stride is (-1, -1), expected 1 or more");
    expect_error(eg_f_conv2d(x, w, eg_none, .padding = EG_HW(-1, 2)), EG_EINVAL,
                 "conv2d: padding is (-1, 2), expected 0 or more");
    expect_error(eg_f_conv2d(x, w, eg_none, .padding = (eg_hw)1 << 60), EG_EINVAL,
                 "conv2d: padding is (1152921504606846976, 1152921504606846976), expected at most 1073741823");
    expect_error(eg_f_conv2d(x, w, eg_none, .padding = (eg_hw)1 << 62), EG_EINVAL,
                 "conv2d: padding is (-536870912, -536870912), expected 0 or more");
    expect_error(eg_f_conv2d(x, w, eg_none, .dilation = -2), EG_EINVAL,
                 "conv2d: dilation is (-2, -2), expected 1 or more");
    expect_error(eg_f_conv2d(x, w, eg_none, .dilation = 4), EG_ESHAPE,
                 "conv2d: kernel (3, 3) with dilation (4, 4) is larger than the padded input (8, 8)");
    expect_error(eg_f_conv2d(t(EG_SHAPE(0, 3, 8, 8)), w, eg_none), EG_ESHAPE,
                 "conv2d: input (0, 3, 8, 8) has a dimension of size 0");
    expect_error(eg_f_conv2d(x, eg_empty(ctx, EG_F64, EG_SHAPE(4, 3, 3, 3), EG_LAYOUT_ROW_MAJOR), eg_none), EG_EDTYPE,
                 "conv2d: weight has type float64, expected float32 as the first input");
    int64_t label = 1;
    expect_error(eg_f_relu(eg_from_labels(ctx, 1, &label)), EG_EDTYPE,
                 "relu: input has type int64, expected float32 or float64");
    eg_tensor *huge = eg_shape_only(ctx, EG_SHAPE(1, 1, 1 << 30, 1 << 29));
    expect_error(eg_f_conv2d(huge, t(EG_SHAPE(64, 1, 1, 1)), eg_none), EG_ESHAPE,
                 "conv2d: an output (1, 64, 1073741824, 536870912) has more elements than can be counted");
}

static void test_products(void **state)
{
    (void)state;
    expect_error(eg_f_linear(t(EG_SHAPE(2, 3)), t(EG_SHAPE(4, 5)), eg_none), EG_ESHAPE,
                 "linear: input has 3 features, weight expects 5");
    expect_error(eg_f_linear(t(EG_SCALAR), t(EG_SHAPE(4, 5)), eg_none), EG_ESHAPE,
                 "linear: input is a single number, expected (.., 5)");
    expect_error(eg_f_linear(t(EG_SHAPE(2, 5)), t(EG_SHAPE(5)), eg_none), EG_ESHAPE,
                 "linear: weight (5) has 1 dimensions, expected (out, in)");
    expect_error(eg_f_linear(t(EG_SHAPE(2, 5)), t(EG_SHAPE(4, 5)), t(EG_SHAPE(1, 4))), EG_ESHAPE,
                 "linear: bias has shape (1, 4), expected (4)");
    expect_error(eg_matmul(t(EG_SHAPE(2, 3)), t(EG_SHAPE(2, 3))), EG_ESHAPE,
                 "matmul: first matrix has 3 columns, second has 2 rows");
    expect_error(eg_matmul(t(EG_SHAPE(2, 3)), t(EG_SCALAR)), EG_ESHAPE,
                 "matmul: second matrix is a single number, expected (.., k, n) or (k)");
}

static void test_batch_norm(void **state)
{
    (void)state;
    eg_tensor *x = t(EG_SHAPE(2, 3, 2, 2)), *c = t(EG_SHAPE(3));
    expect_error(eg_f_batch_norm(t(EG_SHAPE(2, 3, 2)), c, c, c, c, .training = true), EG_ESHAPE,
                 "batch_norm: input (2, 3, 2) has 3 dimensions, expected (N, C, H, W) or (N, C)");
    expect_error(eg_f_batch_norm(x, t(EG_SHAPE(4)), c, c, c, .training = true), EG_ESHAPE,
                 "batch_norm: running mean has shape (4), expected (3)");
    expect_error(eg_f_batch_norm(x, c, t(EG_SHAPE(3, 1)), c, c, .training = true), EG_ESHAPE,
                 "batch_norm: running variance has shape (3, 1), expected (3)");
    int64_t labels[3] = {0, 1, 2};
    expect_error(eg_f_batch_norm(x, c, eg_from_labels(ctx, 3, labels), c, c, .training = true), EG_EDTYPE,
                 "batch_norm: running variance has type int64, expected float32 as the first input");
    expect_error(eg_f_batch_norm(x, c, c, c, c, .training = true, .eps = -1), EG_EINVAL,
                 "batch_norm: eps is -1, expected 0 or more");
    expect_error(eg_f_batch_norm(x, c, c, c, c, .training = true, .momentum = 2), EG_EINVAL,
                 "batch_norm: momentum is 2, expected 0 to 1");
    expect_error(eg_f_batch_norm(t(EG_SHAPE(1, 3, 1, 1)), c, c, c, c, .training = true), EG_EINVAL,
                 "batch_norm: input (1, 3, 1, 1) has one value per channel, training needs more to take a variance");
    expect_error(eg_f_batch_norm(x, eg_none, c, c, c), EG_EINVAL,
                 "batch_norm: running mean and variance are absent, outside of training both are needed");
    expect_error(eg_f_batch_norm_with(NULL), EG_EINVAL, "eg_f_batch_norm_with: args is NULL");
}

static void test_pools(void **state)
{
    (void)state;
    eg_tensor *x = t(EG_SHAPE(2, 3, 4, 5));
    expect_error(eg_f_max_pool2d(t(EG_SHAPE(3, 4)), .kernel_size = 2), EG_ESHAPE,
                 "max_pool2d: input (3, 4) has 2 dimensions, expected (N, C, H, W)");
    expect_error(eg_f_max_pool2d(x), EG_EINVAL, "max_pool2d: kernel size is (0, 0), expected 1 or more");
    expect_error(eg_f_max_pool2d(x, .kernel_size = 2, .stride = EG_HW(1, 0)), EG_EINVAL,
                 "max_pool2d: stride is (1, 0), expected 1 or more");
    expect_error(eg_f_max_pool2d(x, .kernel_size = 3, .padding = 2), EG_EINVAL,
                 "max_pool2d: padding is (2, 2), expected at most half of the kernel size (3, 3)");
    expect_error(eg_f_avg_pool2d(x, .kernel_size = 3, .padding = -1), EG_EINVAL,
                 "avg_pool2d: padding is (-1, -1), expected 0 or more");
    expect_error(eg_f_avg_pool2d(x, .kernel_size = 2, .dilation = 2), EG_EINVAL,
                 "avg_pool2d: dilation is (2, 2), average pooling has none");
    expect_error(eg_f_avg_pool2d(x, .kernel_size = 5), EG_ESHAPE,
                 "avg_pool2d: kernel (5, 5) with dilation (1, 1) is larger than the padded input (4, 5)");
    expect_error(eg_f_max_pool2d(t(EG_SHAPE(1, 1, 1, 9)), .kernel_size = 2, .padding = 1, .dilation = EG_HW(2, 1)),
                 EG_ESHAPE, "max_pool2d: dilation 2 is larger than the input's 1");
    expect_error(eg_f_adaptive_avg_pool2d(x, 0), EG_EINVAL,
                 "adaptive_avg_pool2d: output size is (0, 0), expected 1 or more");
    expect_error(eg_f_max_pool2d_with(NULL), EG_EINVAL, "eg_f_max_pool2d_with: args is NULL");
}

static void test_elementwise(void **state)
{
    (void)state;
    eg_tensor *x = t(EG_SHAPE(2, 3)), *y = t(EG_SHAPE(3, 2));
    expect_error(eg_add(x, y), EG_ESHAPE, "add: shapes (2, 3) and (3, 2) do not broadcast");
    expect_error(eg_div(x, t(EG_SHAPE(2, 0))), EG_ESHAPE, "div: second operand (2, 0) has a dimension of size 0");
    expect_error(eg_add_n((eg_tensor *[]){x, x, y}, 3), EG_ESHAPE,
                 "add_n: term 2 has shape (3, 2), expected (2, 3) as the first");
    expect_error(eg_add_n(NULL, 3), EG_EINVAL, "add_n: list of tensors is NULL");
    expect_error(eg_add_n(&x, 0), EG_EINVAL, "add_n: no tensors are given, expected at least one");
    expect_error(eg_weighted_sum((eg_tensor *[]){x, y}, 2, t(EG_SHAPE(2))), EG_ESHAPE,
                 "weighted_sum: term 1 has shape (3, 2), expected (2, 3) as the first");
    expect_error(eg_weighted_sum((eg_tensor *[]){x, x}, 2, t(EG_SHAPE(3))), EG_ESHAPE,
                 "weighted_sum: weights has shape (3), expected (2)");
    expect_error(eg_weighted_sum((eg_tensor *[]){x, eg_none}, 2, t(EG_SHAPE(3))), EG_ESHAPE,
                 "weighted_sum: weights has shape (3), expected (2)");
    expect_error(eg_weighted_sum(&x, 1, eg_none), EG_EINVAL,
                 "weighted_sum: input 1 is none (a choice that selected nothing)");
    expect_error(eg_f_dropout(x, 1.5, true), EG_EINVAL, "dropout: probability is 1.5, expected 0 to 1");
    expect_error(eg_f_dropout(x, NAN, false), EG_EINVAL, "dropout: probability is nan, expected 0 to 1");
    expect_error(eg_f_drop_path(t(EG_SCALAR), 0.5, true), EG_ESHAPE,
                 "drop_path: input is a single number, expected samples along dimension 0");
    expect_error(eg_f_softmax(x, 2), EG_EINVAL, "softmax: dimension 2 is out of range for an input (2, 3)");
    expect_error(eg_f_log_softmax(x, -3), EG_EINVAL, "log_softmax: dimension -3 is out of range for an input (2, 3)");
}

static void test_reductions(void **state)
{
    (void)state;
    eg_tensor *x = t(EG_SHAPE(2, 3));
    expect_error(eg_sum(x, .dims = EG_SHAPE(2)), EG_EINVAL, "sum: dimension 2 is out of range for an input (2, 3)");
    expect_error(eg_mean(x, .dims = EG_SHAPE(1, -1)), EG_EINVAL, "mean: dimension 1 is named twice");
    expect_error(eg_max(x, .dims = {.ndim = 9}), EG_EINVAL, "max: 9 dimensions are named, expected at most 6");
    expect_error(eg_max(t(EG_SHAPE(2, 0))), EG_ESHAPE, "max: input (2, 0) has a dimension of size 0");
}

static void test_shapes(void **state)
{
    (void)state;
    eg_tensor *x = t(EG_SHAPE(2, 6));
    expect_error(eg_reshape(x, EG_SHAPE(5, -1)), EG_ESHAPE,
                 "reshape: input (2, 6) of 12 elements cannot take the shape (5, -1)");
    expect_error(eg_reshape(x, EG_SHAPE(2, 5)), EG_ESHAPE,
                 "reshape: input (2, 6) of 12 elements cannot take the shape (2, 5)");
    expect_error(eg_reshape(x, EG_SHAPE(-1, -1)), EG_EINVAL,
                 "reshape: new shape (-1, -1) has more than one size of -1");
    expect_error(eg_reshape(x, EG_SHAPE(12, 0)), EG_EINVAL, "reshape: new shape (12, 0) has a size of 0");
    expect_error(eg_reshape(x, EG_SHAPE(INT64_MAX, 16)), EG_ESHAPE,
                 "reshape: input (2, 6) of 12 elements cannot take the shape (9223372036854775807, 16)");
    expect_error(eg_reshape(x, (eg_shape){.ndim = 7}), EG_EINVAL,
                 "reshape: new shape has 7 dimensions, at most 6 exist");
    expect_error(eg_f_flatten(x, 1, 0), EG_EINVAL, "flatten: first dimension 1 lies after the last, 0");
    expect_error(eg_f_flatten(x, 0, 2), EG_EINVAL, "flatten: dimension 2 is out of range for an input (2, 6)");
    expect_error(eg_permute(x, EG_SHAPE(0)), EG_EINVAL, "permute: order names 1 dimensions, input (2, 6) has 2");
    expect_error(eg_permute(x, EG_SHAPE(0, -2)), EG_EINVAL, "permute: dimension 0 is named twice");
    expect_error(eg_permute(x, EG_SHAPE(0, 2)), EG_EINVAL, "permute: dimension 2 is out of range for an input (2, 6)");
    expect_error(eg_slice(x, 2, 0, 1, 1), EG_EINVAL, "slice: dimension 2 is out of range for an input (2, 6)");
    expect_error(eg_slice(x, 1, 6, INT64_MAX, 1), EG_EINVAL,
                 "slice: start 6 is outside dimension 1 of an input (2, 6)");
    expect_error(eg_slice(x, 1, -7, 3, 1), EG_EINVAL, "slice: start -7 is outside dimension 1 of an input (2, 6)");
    expect_error(eg_slice(x, 1, 0, 7, 1), EG_EINVAL, "slice: stop 7 is outside dimension 1 of an input (2, 6)");
    expect_error(eg_slice(x, -1, 3, 3, 1), EG_EINVAL,
                 "slice: nothing lies between start 3 and stop 3 in dimension -1 of an input (2, 6)");
    expect_error(eg_slice(x, 0, 0, 1, 0), EG_EINVAL, "slice: step is 0, expected 1 or more");
    expect_error(eg_split(x, 0, 0), EG_EINVAL, "split: size is 0, expected 1 or more");
    expect_error(eg_split(x, 1, 2), EG_EINVAL, "split: dimension 2 is out of range for an input (2, 6)");
    expect_error(eg_split(eg_shape_only(ctx, EG_SHAPE(2, (int64_t)1 << 50)), 1, 1), EG_EINVAL,
                 "split: 1125899906842624 pieces of 1, expected at most 1024");
    assert_int_equal(eg_tuple_size(eg_split(eg_zeros(ctx, EG_SHAPE(1024)), 1, 0)), 1024);
    expect_error(eg_split(eg_none, 1, 0), EG_EINVAL, "split: input 0 is none, expected a tensor");
    expect_error(eg_concat((eg_tensor *[]){x, t(EG_SHAPE(2, 6, 1))}, 2, 1), EG_ESHAPE,
                 "concat: piece 1 has shape (2, 6, 1), first (2, 6): only dimension 1 may differ");
    expect_error(eg_concat((eg_tensor *[]){x, t(EG_SHAPE(3, 5))}, 2, 0), EG_ESHAPE,
                 "concat: piece 1 has shape (3, 5), first (2, 6): only dimension 0 may differ");
    expect_error(eg_concat((eg_tensor *[]){x, x}, 2, 2), EG_EINVAL,
                 "concat: dimension 2 is out of range for an input (2, 6)");
    expect_error(
        eg_f_pad(x, EG_SHAPE(1), 0), EG_EINVAL,
        "pad: 1 pads are given for an input (2, 6), expected a {before, after} pair for each of its last dimensions");
    expect_error(
        eg_f_pad(x, EG_SHAPE(1, 1, 1, 1, 1, 1), 0), EG_EINVAL,
        "pad: 6 pads are given for an input (2, 6), expected a {before, after} pair for each of its last dimensions");
    expect_error(eg_f_pad(x, EG_SHAPE(-3, -3), 0), EG_ESHAPE,
                 "pad: pads (-3, -3) crop all of dimension 1 of an input (2, 6)");
    expect_error(eg_f_pad(x, EG_SHAPE(INT64_MAX, INT64_MAX), 0), EG_EINVAL,
                 "pad: pads (9223372036854775807, 9223372036854775807) of dimension 1 are too large");
}

static void test_losses(void **state)
{
    (void)state;
    int64_t numbers[] = {0, 10, 2}, negative[] = {0, -1, 2};
    eg_tensor *logits = t(EG_SHAPE(3, 10)), *labels = eg_from_labels(ctx, 3, numbers);
    expect_error(eg_f_cross_entropy(logits, labels), EG_EINVAL,
                 "cross_entropy: label 10 of sample 1 is out of range for 10 classes");
    expect_error(eg_f_cross_entropy(logits, eg_from_labels(ctx, 3, negative)), EG_EINVAL,
                 "cross_entropy: label -1 of sample 1 is out of range for 10 classes");
    expect_error(eg_f_cross_entropy(t(EG_SHAPE(4, 10)), labels), EG_ESHAPE,
                 "cross_entropy: labels have shape (3), expected (4)");
    expect_error(eg_f_cross_entropy(t(EG_SHAPE(3)), labels), EG_ESHAPE,
                 "cross_entropy: logits (3) has 1 dimensions, expected (N, C)");
    expect_error(eg_f_cross_entropy(logits, t(EG_SHAPE(3))), EG_ESHAPE,
                 "cross_entropy: target has shape (3), expected probabilities (3, 10) as the logits or int64 labels");
    expect_error(eg_f_cross_entropy(logits, logits, .label_smoothing = 1.5), EG_EINVAL,
                 "cross_entropy: label smoothing is 1.5, expected 0 to 1");
    expect_error(eg_f_cross_entropy(logits, logits, .reduction = (eg_reduction)7), EG_EINVAL,
                 "cross_entropy: reduction is 7, expected EG_REDUCTION_MEAN, _SUM or _NONE");
    expect_error(eg_f_mse_loss(logits, t(EG_SHAPE(10))), EG_ESHAPE, "mse_loss: input has shape (3, 10), target (10)");
}

static void expect_nan(double value, eg_status code, const char *message)
{
    assert_true(isnan(value));
    expect_error(NULL, code, message);
}

static void test_accuracy(void **state)
{
    (void)state;
    float rows[] = {0, 2, 2, 1, 0, 0, 5, 6, 7, 3, 2, 1};
    int64_t numbers[] = {1, 0, 1, 2};
    eg_tensor *logits = eg_from_data(ctx, EG_SHAPE(4, 3), rows), *labels = eg_from_labels(ctx, 4, numbers);
    assert_true(eg_accuracy(logits, labels) == 0.5); /* of the equal ones in row 0 the first counts */
    assert_true(eg_accuracy(eg_slice(logits, 0, 0, 2, 1), eg_slice(labels, 0, 0, 2, 1)) == 1.0);
    expect_nan(eg_accuracy(NULL, labels), EG_EINVAL, "eg_accuracy: logits is NULL");
    expect_nan(eg_accuracy(logits, logits), EG_EDTYPE, "accuracy: labels are not of type int64");
    expect_nan(eg_accuracy(labels, labels), EG_EDTYPE, "accuracy: logits are not numbers of type float32 or float64");
    expect_nan(eg_accuracy(eg_none, labels), EG_EDTYPE, "accuracy: logits are not numbers of type float32 or float64");
    expect_nan(eg_accuracy(eg_slice(logits, 0, 1, 4, 1), labels), EG_ESHAPE,
               "accuracy: labels have shape (4), expected (3)");
    expect_nan(eg_accuracy(eg_shape_only(ctx, EG_SHAPE(4, 3)), labels), EG_EINVAL,
               "accuracy: the tensors have a shape but no numbers");
}

/* ---- NULL and none ---- */

static void test_null_passes_through(void **state)
{
    (void)state;
    static const char attrs[256] = {0}; /* never read */
    for (size_t i = 0; i < eg__op_count; i++) {
        const eg_op *op = eg__op_list[i];
        eg_tensor *in[] = {t(EG_SHAPE(1)), NULL, NULL, NULL, NULL};
        eg_error_clear();
        assert_null(eg_apply(op, in, 2, attrs));
        assert_int_equal(eg_error_first()->code, EG_EINVAL);
        eg_error_clear();
        eg_fail(EG_EIO, "the cause");
        assert_null(eg_apply(op, in, 2, attrs));
        assert_string_equal(eg_error_first()->message, "the cause");
        assert_string_equal(eg_error_last()->message, "the cause");
    }
    eg_tensor *x = t(EG_SHAPE(2, 2)), *list[] = {x, NULL};
    assert_null(eg_add(NULL, eg_none));
    assert_null(eg_add(eg_none, NULL));
    assert_null(eg_add_n(list, 2));
    assert_null(eg_concat(list, 2, 0));
    assert_null(eg_weighted_sum(list, 2, x));
    assert_null(eg_weighted_sum(&x, 1, NULL));
    assert_null(eg_split(NULL, 1, 0));
    assert_null(eg_f_dropout(NULL, 0, false));
    assert_null(eg_f_drop_path(NULL, 0.5, true));
    assert_null(eg_f_conv2d(NULL, x, x));
    assert_null(eg_f_cross_entropy(NULL, NULL));
    assert_null(eg_sum(NULL));
    assert_string_equal(eg_error_last()->message, "the cause");
}

static void test_none_is_refused_by_name(void **state)
{
    (void)state;
    static const char attrs[256] = {0};
    for (size_t i = 0; i < eg__op_count; i++) {
        const eg_op *op = eg__op_list[i];
        eg_tensor *in[] = {eg_none, t(EG_SHAPE(1))};
        char message[128];
        snprintf(message, sizeof message, "%s: input 0 is none (a choice that selected nothing)", op->name);
        expect_error(eg_apply(op, in, 2, attrs), EG_EINVAL, message);
    }
    expect_error(eg_f_dropout(eg_none, 0.5, false), EG_EINVAL,
                 "dropout: input 0 is none (a choice that selected nothing)");
    eg_tensor *x = t(EG_SHAPE(2, 3)), *pair = eg_tuple(ctx, (eg_tensor *[]){x, x}, 2);
    expect_error(eg_f_relu(pair), EG_EINVAL, "relu: input 0 is a tuple of 2 tensors; eg_tuple_get() takes one out");
    expect_error(eg_split(pair, 1, 0), EG_EINVAL, "split: input 0 is a tuple, expected a tensor");
}

static void test_none_is_left_out(void **state)
{
    (void)state;
    eg_tensor *x = t(EG_SHAPE(2, 3)), *w = t(EG_SHAPE(3));
    eg_tensor *nothing[] = {eg_none, eg_none}, *one[] = {eg_none, x, eg_none};
    assert_ptr_equal(eg_add(x, eg_none), x);
    assert_ptr_equal(eg_add(eg_none, x), x);
    assert_ptr_equal(eg_add(eg_none, eg_none), eg_none);
    assert_ptr_equal(eg_add_n(nothing, 2), eg_none);
    assert_ptr_equal(eg_add_n(one, 3), x);
    assert_ptr_equal(eg_concat(nothing, 2, 0), eg_none);
    assert_ptr_equal(eg_concat(one, 3, 0), x);
    assert_ptr_equal(eg_weighted_sum(nothing, 2, w), eg_none);
    float weights[3], values[6], sum[6];
    eg_tensor *y = eg_weighted_sum(one, 3, w);
    assert_int_equal(eg_tensor_read(w, weights, 3), EG_OK);
    assert_int_equal(eg_tensor_read(x, values, 6), EG_OK);
    assert_int_equal(eg_tensor_read(y, sum, 6), EG_OK);
    for (int i = 0; i < 6; i++)
        assert_true(sum[i] == weights[1] * values[i]);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_conv2d),
        TEST(test_products),
        TEST(test_batch_norm),
        TEST(test_pools),
        TEST(test_elementwise),
        TEST(test_reductions),
        TEST(test_shapes),
        TEST(test_losses),
        TEST(test_accuracy),
        TEST(test_null_passes_through),
        TEST(test_none_is_refused_by_name),
        TEST(test_none_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Methods that join layers or put one class of layers in the place of another: what they take, what they leave and why,
 * that numbers and the states of optimizers go along. Rows of the reference's cases are named by their section.
 */
#include "surgery_support.h"

#include "engraft/methods.h"

static eg_tensor *evaluate(eg_module *m, eg_tensor *x)
{
    eg_module_train(m, false);
    eg_tensor *y = eg_call(m, x);
    eg_module_train(m, true);
    assert_made(y);
    return y;
}

static void train_step(eg_module *m, eg_optimizer *o, eg_tensor *x)
{
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *y = eg_call(m, x);
    assert_made(y);
    assert_ok(eg_backward(eg_mean(eg_mul(y, y))));
    eg_tape_end(tape);
    assert_ok(eg_optimizer_step(o));
    eg_optimizer_zero_grad(o);
}

/* ---- fuse_conv_bn_relu ---- */

#define IMAGES EG_SHAPES(EG_SHAPE(2, 3, 6, 6))

static void conv_norm_relu_become_one(void **state)
{
    (void)state;
    eg_module *inner = eg_sequential(ctx, EG_MODULES(eg_batch_norm2d(ctx, 8), eg_relu(ctx)));
    eg_module *m = eg_sequential(
        ctx, EG_MODULES(eg_conv2d(ctx, 3, 8, 3, .no_bias = true), inner, eg_conv2d(ctx, 8, 4, 3, .groups = 2),
                        eg_batch_norm2d(ctx, 4, .relu = true), eg_conv2d(ctx, 4, 4, 1), eg_batch_norm2d(ctx, 4)));
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(2, 3, 6, 6));
    for (int i = 0; i < 3; i++)
        eg_call(m, x); /* statistics */
    eg_tensor *before = evaluate(m, x);
    uint64_t print = fingerprint(m, NULL);
    eg_surgery *s = eg_surgery_new(m, .inputs = IMAGES);
    assert_ok(eg_surgery_apply(s, eg_fuse_conv_bn_relu(ctx), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_conv_relu2d_class)), 2);
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_batch_norm2d_class)), 1); /* without a ReLU */
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_relu_class)), 0);
    assert_true(largest_difference(before, evaluate(m, x)) < 1e-5);
    size_t n = eg_surgery_size(s);
    assert_ok(eg_surgery_apply(s, eg_fuse_conv_bn_relu(ctx), NULL));
    assert_int_equal(eg_surgery_size(s), n);
    assert_true(is_noted(s, "found no convolution with both behind it"));
    eg_surgery_drop(s);
    assert_ok(eg_surgery_undo(s));
    assert_true(print == fingerprint(m, NULL));
    eg_surgery_free(s);
    eg_module_release(m);
}

static void shared_relus_are_left(void **state)
{
    (void)state;
    eg_module *relu = eg_relu(ctx);
    eg_module *m =
        eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 3, 4, 3), eg_batch_norm2d(ctx, 4), eg_module_retain(relu),
                                      eg_conv2d(ctx, 4, 4, 3), eg_batch_norm2d(ctx, 4), relu));
    eg_surgery *s = eg_surgery_new(m, .inputs = IMAGES);
    assert_ok(eg_surgery_apply(s, eg_fuse_conv_bn_relu(ctx), NULL));
    assert_int_equal(eg_surgery_size(s), 0);
    assert_true(is_noted(s, "fuse_conv_bn_relu leaves '1': '2' runs more than once"));
    eg_surgery_free(s);
    s = eg_surgery_new(m);
    assert_int_equal(eg_surgery_apply(s, eg_fuse_conv_bn_relu(ctx), NULL), EG_EINVAL);
    assert_recorded(EG_EINVAL, "fuse_conv_bn_relu: needs to run the model: give the surgery .inputs");
    eg_surgery_free(s);
    eg_module_release(m);
}

/* ---- fuse_parallel_linear ---- */

/* q(x) + k(x) + v(x). */
static eg_module *parallel(bool differ)
{
    eg_module *inner = eg_residual_block(
        ctx, EG_NAMED({"body", eg_linear(ctx, 5, 4)}, {"shortcut", eg_linear(ctx, 5, 4, .no_bias = differ)}));
    eg_module *m = eg_residual_block(ctx, EG_NAMED({"body", inner}, {"shortcut", eg_linear(ctx, 5, 4)}));
    assert_made(m);
    return m;
}

#define ROWS EG_SHAPES(EG_SHAPE(3, 5))

/* 4.23: parallel layers become one, with their weights. */
static void parallel_layers_become_one(void **state)
{
    (void)state;
    eg_module *m = parallel(false);
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(3, 5));
    eg_optimizer *adam = eg_adam(m, .lr = 0.01);
    for (int i = 0; i < 3; i++)
        train_step(m, adam, x);
    eg_module *untouched = eg_module_clone(m);
    eg_optimizer *other = eg_adam(untouched, .lr = 0.01);
    for (size_t i = 0; i < adam->n_params; i++) {
        assert_string_equal(adam->params[i].name, other->params[i].name);
        other->params[i].step = adam->params[i].step;
        for (size_t k = 0; k < EG__MAX_STATES; k++) {
            if (adam->params[i].states[k] != NULL)
                other->params[i].states[k] = eg_tensor_keep(eg_tensor_copy(adam->params[i].states[k]));
        }
    }
    eg_tensor *before = evaluate(m, x);
    uint64_t print = fingerprint(m, adam);
    eg_surgery *s = eg_surgery_new(m, .optimizers = EG_OPTIMIZERS(adam), .inputs = ROWS);
    assert_ok(eg_surgery_apply(s, eg_fuse_parallel_linear(ctx), NULL));
    assert_int_equal(eg_surgery_size(s), 3);
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_linear_class)), 1);
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_linear_part_class)), 3);
    assert_true(largest_difference(before, evaluate(m, x)) < 1e-6);
    size_t n = eg_surgery_size(s);
    assert_ok(eg_surgery_apply(s, eg_fuse_parallel_linear(ctx), NULL));
    assert_int_equal(eg_surgery_size(s), n);
    eg_surgery_drop(s);
    assert_ok(eg_surgery_undo(s));
    assert_true(print == fingerprint(m, adam));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(adam->n_params, 2);
    for (int i = 0; i < 5; i++) { /* the steps are those of the untouched model */
        train_step(m, adam, x);
        train_step(untouched, other, x);
    }
    assert_true(largest_difference(evaluate(untouched, x), evaluate(m, x)) < 1e-5);
    eg_surgery_free(s);
    eg_optimizer_free(other);
    eg_optimizer_free(adam);
    eg_module_release(untouched);
    eg_module_release(m);
}

/* 4.23: not where biases differ, and not chains. Neither what is frozen beside what is not, tied, or run twice. */
static void what_is_not_parallel_is_left(void **state)
{
    (void)state;
    eg_module *m = parallel(true);
    eg_surgery *s = eg_surgery_new(m, .inputs = ROWS);
    assert_ok(eg_surgery_apply(s, eg_fuse_parallel_linear(ctx), NULL));
    assert_int_equal(eg_surgery_size(s), 2); /* the two with a bias */
    eg_surgery_drop(s);
    eg_module_set_requires_grad(eg_module_find(m, "shortcut"), false);
    assert_ok(eg_surgery_apply(s, eg_fuse_parallel_linear(ctx), NULL));
    assert_int_equal(eg_surgery_size(s), 0);
    assert_true(is_noted(s, "found no layers to join"));
    eg_surgery_free(s);
    eg_module_release(m);

    m = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 5, 5), eg_linear(ctx, 5, 5)));
    s = eg_surgery_new(m, .inputs = ROWS);
    assert_ok(eg_surgery_apply(s, eg_fuse_parallel_linear(ctx), NULL));
    assert_int_equal(eg_surgery_size(s), 0);
    eg_surgery_free(s);
    eg_module_release(m);

    eg_module *l = eg_linear(ctx, 5, 5);
    eg_module *twice = eg_residual_block(ctx, EG_NAMED({"body", eg_module_retain(l)}, {"shortcut", l}));
    m = eg_residual_block(ctx, EG_NAMED({"body", twice}, {"shortcut", eg_linear(ctx, 5, 5)}));
    s = eg_surgery_new(m, .inputs = ROWS);
    assert_ok(eg_surgery_apply(s, eg_fuse_parallel_linear(ctx), NULL));
    assert_int_equal(eg_surgery_size(s), 0);
    eg_surgery_free(s);
    eg_module_release(m);

    m = parallel(false);
    eg_linear *tied = (eg_linear *)eg_module_find(m, "body.shortcut");
    eg_tensor_release(tied->weight);
    tied->weight = eg_tensor_keep(eg_module_tensor(m, "shortcut.weight"));
    s = eg_surgery_new(m, .inputs = ROWS);
    assert_ok(eg_surgery_apply(s, eg_fuse_parallel_linear(ctx), NULL));
    assert_int_equal(eg_surgery_size(s), 0);
    assert_ok(eg_surgery_apply(s, eg_low_rank(ctx, .rank = 1), "body.body")); /* both sides read x; all frozen beside */
    assert_ok(eg_surgery_apply(s, eg_fuse_parallel_linear(ctx), NULL));
    assert_int_equal(eg_surgery_size(s), 1);
    eg_surgery_free(s);
    eg_module_release(m);
}

/* What the whole remembers is dropped when anything that it comes from has changed. */
static void parts_are_never_stale(void **state)
{
    (void)state;
    eg_module *whole = eg_parallel_linear(ctx, 2, 2, .n_parts = 2, .no_bias = true);
    eg_module *a = eg_linear_part(ctx, EG_NAMED({"linear", eg_module_retain(whole)}), .out_features = 1);
    eg_module *b = eg_linear_part(ctx, EG_NAMED({"linear", eg_module_retain(whole)}), .first = 1, .out_features = 1);
    eg_tensor *weight = ((eg_parallel_linear *)whole)->weight;
    eg_tensor *x = eg_full(ctx, EG_SHAPE(1, 2), 1);
    assert_ok(eg_tensor_write(weight, (const float[]){1, 1, 2, 2}, 4));
    assert_true(eg_tensor_item(eg_call(a, x)) == 2);
    assert_non_null(((eg_parallel_linear *)whole)->reading);
    assert_ok(eg_tensor_write(weight, (const float[]){1, 1, 3, 3}, 4)); /* as a step of an optimizer does */
    assert_true(eg_tensor_item(eg_call(b, x)) == 6);
    assert_true(eg_tensor_item(eg_call(a, x)) == 2);
    assert_null(((eg_parallel_linear *)whole)->reading); /* all taken */
    eg_call(a, x);
    assert_ok(eg_tensor_write(x, (const float[]){2, 2}, 2));
    assert_true(eg_tensor_item(eg_call(b, x)) == 12);
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD); /* what another tape knows nothing of */
    eg_tensor *y = eg_call(a, x);
    assert_ok(eg_backward(eg_sum(y)));
    eg_tape_end(tape);
    float grad[4];
    assert_ok(eg_tensor_read(weight->grad, grad, 4));
    assert_true(grad[0] == 2 && grad[1] == 2 && grad[2] == 0 && grad[3] == 0);
    eg_call(a, x); /* what nobody takes ends with the module */
    eg_module_release(a);
    eg_module_release(b);
    eg_module_release(whole);
    eg_module *lonely = eg_linear_part(ctx, EG_NAMED({"linear", eg_linear(ctx, 2, 2)}), .out_features = 1);
    assert_null(eg_call(lonely, x));
    assert_recorded(EG_EINVAL, "expected a ParallelLinear");
    eg_module_release(lonely);
}

/* ---- low_precision_norm ---- */

/* 4.18: every norm, also without a bias or weight. */
static void every_norm_is_of_low_precision(void **state)
{
    (void)state;
    eg_module *m =
        eg_sequential(ctx, EG_MODULES(eg_group_norm(ctx, 2, 4, .eps = 0.5), eg_group_norm(ctx, 1, 4, .no_affine = true),
                                      eg_flatten(ctx), eg_layer_norm(ctx, EG_SHAPE(16)),
                                      eg_layer_norm(ctx, EG_SHAPE(16), .no_affine = true)));
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(2, 4, 2, 2)), *before = evaluate(m, x);
    eg_tensor *weight = eg_module_tensor(m, "0.weight");
    eg_optimizer *adam = eg_adam(m);
    train_step(m, adam, x);
    before = evaluate(m, x);
    uint64_t print = fingerprint(m, adam);
    eg_surgery *s = eg_surgery_new(m, .optimizers = EG_OPTIMIZERS(adam));
    assert_ok(eg_surgery_apply(s, eg_low_precision_norm(ctx), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_low_precision_layer_norm_class)), 2);
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_low_precision_group_norm_class)), 2);
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_layer_norm_class, &eg_group_norm_class)), 4);
    assert_ptr_equal(eg_module_tensor(m, "0.weight"), weight);
    assert_true(eg_is_none(((const eg_group_norm *)eg_module_find(m, "1"))->weight));
    assert_true(eg_is_none(((const eg_layer_norm *)eg_module_find(m, "4"))->bias));
    assert_int_equal(times_in(adam, weight), 1);
    assert_true(largest_difference(before, evaluate(m, x)) == 0);     /* the context's precision is float32 */
    assert_ok(eg_surgery_apply(s, eg_low_precision_norm(ctx), NULL)); /* section 2: not again */
    assert_int_equal(eg_surgery_size(s), 4);
    eg_surgery_drop(s);
    assert_ok(eg_surgery_undo(s));
    assert_true(print == fingerprint(m, adam));
    eg_surgery_free(s);
    eg_optimizer_free(adam);
    eg_module_release(m);
}

static eg_tensor *give_float(void *payload, eg_module *m, eg_tensor *t, bool *failed)
{
    (void)payload;
    (void)m;
    eg_tensor *y = eg_cast(t, EG_F32);
    *failed = y == NULL;
    return y;
}

static eg_tensor *note_type(void *payload, eg_module *m, eg_tensor *t, bool *failed)
{
    (void)m;
    (void)failed;
    *(eg_dtype *)payload = eg_tensor_dtype(t);
    return NULL;
}

/* What comes as float32 goes on as bfloat16, which a plain norm does not do. */
static void norms_lower_what_they_are_given(void **state)
{
    (void)state;
    assert_int_equal(setenv("EG_BF16", "emulate", 1), 0);
    eg_context *low = eg_context_new(.threads = 1, .backend = "ref");
    assert_int_equal(unsetenv("EG_BF16"), 0);
    assert_ok(eg_context_set_precision(low, EG_BF16));
    eg_tape *inside = eg_tape_begin(low, EG_NO_GRAD);
    for (int lowered = 0; lowered < 2; lowered++) {
        eg_module *norm = lowered ? eg_low_precision_layer_norm(low, EG_SHAPE(4)) : eg_layer_norm(low, EG_SHAPE(4));
        eg_dtype type = EG_F64;
        assert_ok(eg_module_add_pre_hook(norm, give_float, NULL, NULL));
        assert_ok(eg_module_add_hook(norm, note_type, &type, NULL));
        eg_module *m = eg_sequential(low, EG_MODULES(eg_identity(low), norm));
        eg_tensor *y = eg_call(m, eg_from_data(low, EG_SHAPE(1, 4), (const float[]){1, 2, 3, 4}));
        assert_made(y);
        assert_int_equal(type, lowered ? EG_BF16 : EG_F32);
        float v[4];
        assert_ok(eg_tensor_read(y, v, 4));
        assert_true(fabsf(v[0] + 1.3416f) < 0.02f && fabsf(v[3] - 1.3416f) < 0.02f);
        eg_module_release(m);
    }
    eg_tape_end(inside);
    eg_context_free(low);
}

/* ---- weight_standardization and gated_linear_unit ---- */

/* 4.19: two convolutions, of which 0, 1 or 3 are ignored; mean 0, variance 1; and not again. */
static void weights_are_standardized(void **state)
{
    (void)state;
    static const int64_t ignored[] = {0, 1, 3}, changed[] = {2, 1, 0};
    for (size_t i = 0; i < 3; i++) {
        eg_module *m = eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 3, 4, 3), eg_relu(ctx), eg_conv2d(ctx, 4, 2, 1)));
        eg_surgery *s = eg_surgery_new(m, .inputs = IMAGES);
        for (int k = 0; k < 2; k++)
            assert_ok(eg_surgery_apply(s, eg_weight_standardization(ctx, .n_last_layers_ignore = ignored[i]), NULL));
        assert_ok(eg_surgery_commit(s));
        assert_int_equal(eg_surgery_size(s), changed[i]);
        assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_weight_standardized_conv2d_class)), changed[i]);
        assert_true(changed[i] == 0 || eg_is_a(eg_module_find(m, "0"), &eg_weight_standardized_conv2d_class));
        eg_surgery_free(s);
        eg_module_release(m);
    }
    eg_module *conv = eg_weight_standardized_conv2d(ctx, 8, 1, 1, .no_bias = true);
    double sum = 0, squares = 0;
    for (int i = 0; i < 8; i++) { /* its weights, by what it makes of unit vectors */
        float unit[8] = {0};
        unit[i] = 1;
        double w = eg_tensor_item(eg_call(conv, eg_from_data(ctx, EG_SHAPE(1, 8, 1, 1), unit)));
        sum += w;
        squares += w * w;
    }
    assert_true(fabs(sum / 8) < 1e-6 && fabs(squares / 8 - 1) < 1e-3);
    eg_module_release(conv);
}

/* 4.17: no plain feed-forward block is left. */
static void feed_forward_gets_gates(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 5, 8), eg_gelu(ctx), eg_linear(ctx, 8, 5)));
    eg_surgery *s = eg_surgery_new(m, .inputs = ROWS);
    for (int k = 0; k < 2; k++)
        assert_ok(eg_surgery_apply(s, eg_gated_linear(ctx), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_gated_linear_unit_class)), 1);
    assert_true(eg_is_a(eg_module_find(m, "1"), &eg_identity_class));
    assert_made(eg_call(m, eg_randn(ctx, EG_SHAPE(3, 5))));
    eg_surgery_free(s);
    eg_module_release(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SURGERY_TEST(conv_norm_relu_become_one),       SURGERY_TEST(shared_relus_are_left),
        SURGERY_TEST(parallel_layers_become_one),      SURGERY_TEST(what_is_not_parallel_is_left),
        SURGERY_TEST(parts_are_never_stale),           SURGERY_TEST(every_norm_is_of_low_precision),
        SURGERY_TEST(norms_lower_what_they_are_given), SURGERY_TEST(weights_are_standardized),
        SURGERY_TEST(feed_forward_gets_gates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

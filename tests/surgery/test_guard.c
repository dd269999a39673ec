/*
 * The guard of the numbers: promises kept and broken, and what a breach does.
 */
#include "support.h"

#include "engraft/layers.h"
#include "engraft/surgery_report.h"

#include <jansson.h>

static eg_context *ctx;

static int setup(void **state)
{
    (void)state;
    eg_error_clear();
    ctx = eg_context_new(.seed = 1, .threads = 1, .backend = "ref");
    return ctx == NULL;
}

static int teardown(void **state)
{
    (void)state;
    size_t left = eg_context_get_stats(ctx).bytes_in_use;
    eg_context_free(ctx);
    return left != 0;
}

static eg_module *small_net(void)
{
    return eg_sequential(ctx, EG_NAMED({"conv", eg_conv2d(ctx, 6, 8, 1)}, {"norm", eg_batch_norm2d(ctx, 8)},
                                       {"pool", eg_global_avg_pool2d(ctx)}, {"relu", eg_relu(ctx)},
                                       {"drop", eg_dropout(ctx, 0.5)}, {"head", eg_linear(ctx, 8, 3)}));
}

/* What takes the place of a module: itself in a wrapper, another function, other numbers. */
static eg_module *wrapped(eg_module *m)
{
    return eg_sequential(m->ctx, EG_MODULES(eg_module_retain(m)));
}

static eg_module *gelu(eg_module *m)
{
    return eg_gelu(m->ctx);
}

/* Its numbers are those of the old one but for one in a thousand. */
static eg_module *near(eg_module *m)
{
    eg_module *copy = eg_module_clone(m);
    eg_tensor *w = eg_module_tensor(copy, "weight");
    float *numbers = eg_tensor_data(w);
    for (int64_t i = 0; i < eg_tensor_numel(w); i++)
        numbers[i] *= 1.001f;
    eg_tensor_touch(w);
    return copy;
}

static eg_module *infinite(eg_module *m)
{
    eg_module *copy = eg_module_clone(m);
    *(float *)eg_tensor_data(eg_module_tensor(copy, "bias")) = INFINITY;
    return copy;
}

static eg_surgery *planned(eg_module *net, const char *path, eg_module *(*make)(eg_module *m))
{
    eg_surgery *s = eg_surgery_new(net, .inputs = EG_SHAPES(EG_SHAPE(5, 6, 2, 2)));
    assert_made(s);
    eg_module *m = eg_module_find(net, path);
    assert_ok(eg_surgery_put(s, m, make(m), NULL));
    return s;
}

static void exact_is_kept_by_a_wrapper(void **state)
{
    (void)state;
    eg_module *net = small_net();
    eg_module_find(net, "drop")->training = false;
    eg_surgery *s = planned(net, "conv", wrapped);
    eg_guard_report report;
    assert_ok(eg_surgery_guard(s, &report, .promise = EG_PROMISE_EXACT, .tolerance = -1));
    assert_true(report.kept);
    assert_int_equal(report.n_outputs, 1);
    assert_int_equal(report.n_numbers, 15);
    assert_int_equal(report.n_different, 0);
    assert_int_equal(report.max_ulps, 0);
    assert_int_equal(report.decisions_changed, 0);
    assert_true(net->training && !eg_module_find(net, "drop")->training);
    assert_close(eg_tensor_item(eg_module_tensor(net, "norm.num_batches_tracked")), 0, 0);
    char *text = eg_guard_text(&report);
    assert_string_equal(text, "promise 'exact' kept: 0 of 15 numbers differ, 0 is allowed; 0 decisions changed\n");
    eg_free(text);
    assert_ok(eg_surgery_commit(s));
    assert_ok(eg_surgery_guard(s, NULL, .promise = EG_PROMISE_EXACT)); /* still against the beginning */
    eg_surgery_free(s);
    eg_module_release(net);
}

static void close_has_a_tolerance(void **state)
{
    (void)state;
    eg_module *net = small_net();
    eg_surgery *s = planned(net, "head", near);
    eg_guard_report report;
    assert_ok(eg_surgery_guard(s, &report, .promise = EG_PROMISE_CLOSE, .tolerance = 0.01));
    assert_true(report.kept && report.n_different > 0 && report.max_ulps > 100);
    assert_true(report.max_relative > 1e-5 && report.max_relative < 2e-3);
    assert_close(report.max_absolute, report.max_relative * report.largest, 1e-9);
    assert_fails(eg_surgery_guard(s, &report, .promise = EG_PROMISE_EXACT), EG_EINVAL, "outputs differ by up to");
    assert_false(report.kept);
    assert_fails(eg_surgery_guard(s, &report, .promise = EG_PROMISE_CLOSE, .tolerance = 1e-6), EG_EINVAL,
                 "1e-06 was promised: output 0, number");
    assert_int_equal(eg_surgery_size(s), 1); /* what was planned stays planned */
    char *json = eg_guard_json(&report);
    json_t *read = json_loads(json, 0, NULL);
    assert_true(json_is_false(json_object_get(read, "kept")));
    assert_int_equal(json_integer_value(json_object_get(read, "numbers")), 15);
    json_decref(read);
    eg_free(json);
    eg_surgery_free(s);
    eg_module_release(net);
}

static void a_breach_undoes_what_is_committed(void **state)
{
    (void)state;
    eg_module *net = small_net(), *relu = eg_module_find(net, "relu");
    eg_surgery *s = planned(net, "relu", gelu);
    assert_ok(eg_surgery_commit(s));
    assert_ptr_not_equal(eg_module_find(net, "relu"), relu);
    assert_ok(eg_surgery_guard(s, NULL, .promise = EG_PROMISE_TRAINED)); /* another function is all right */
    assert_ptr_not_equal(eg_module_find(net, "relu"), relu);
    assert_fails(eg_surgery_guard(s, NULL, .promise = EG_PROMISE_EXACT), EG_EINVAL, "outputs differ");
    assert_ptr_equal(eg_module_find(net, "relu"), relu);
    assert_false(eg_surgery_at(s, 0)->committed);
    eg_surgery_free(s);
    eg_module_release(net);
}

static void trained_outputs_are_finite(void **state)
{
    (void)state;
    eg_module *net = small_net();
    eg_surgery *s = planned(net, "head", infinite);
    eg_guard_report report;
    assert_fails(eg_surgery_guard(s, &report, .promise = EG_PROMISE_TRAINED), EG_EINVAL, "not finite");
    assert_true(isinf(report.max_absolute));
    eg_surgery_free(s);
    eg_module_release(net);
}

static eg_module *narrower(eg_module *m)
{
    return eg_linear(m->ctx, 8, 2);
}

static void other_shapes_are_refused(void **state)
{
    (void)state;
    eg_module *net = small_net();
    eg_surgery *s = planned(net, "head", narrower);
    assert_fails(eg_surgery_guard(s, NULL, .promise = EG_PROMISE_TRAINED), EG_ESHAPE,
                 "output 0 had shape (5, 3), and now (5, 2)");
    eg_surgery_free(s);
    eg_module_release(net);
}

static void given_inputs_and_reports_by_hand(void **state)
{
    (void)state;
    eg_module *a = eg_identity(ctx), *b = eg_leaky_relu(ctx, EG_F64(0.5));
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *x = eg_from_data(ctx, EG_SHAPE(2, 2), (const float[]){1, -2, -4, -3});
    eg_guard_report report;
    eg_guard_options options = {.struct_size = sizeof options, .inputs = &x, .n_inputs = 1};
    assert_fails(eg_compare_outputs(a, b, (eg_shapes){NULL, 0}, &report, &options), EG_EINVAL,
                 "outputs differ by up to 2, 0.5 of the largest number, 1e-05 was promised: output 0, number 2");
    assert_int_equal(report.n_different, 3);
    assert_int_equal(report.max_ulps, 1 << 23); /* half is one exponent less */
    assert_close(report.largest, 4, 0);
    assert_int_equal(report.decisions_changed, 0);
    options = (eg_guard_options){
        .struct_size = sizeof options, .promise = EG_PROMISE_CLOSE, .tolerance = 0.5, .inputs = &x, .n_inputs = 1};
    assert_ok(eg_compare_outputs(a, b, (eg_shapes){NULL, 0}, &report, &options));
    assert_ok(eg_compare_outputs(a, a, (eg_shapes){NULL, 0}, &report, &options));
    assert_int_equal(report.max_ulps, 0);
    eg_tape_end(tape);
    eg_module_release(a);
    eg_module_release(b);
}

static void refusals(void **state)
{
    (void)state;
    eg_module *net = small_net();
    eg_surgery *s = eg_surgery_new(net), *t = eg_surgery_new(net, .inputs = EG_SHAPES(EG_SHAPE(5, 7, 2, 2)));
    assert_fails(eg_surgery_guard(NULL, NULL, .seed = 1), EG_EINVAL, "surgery is NULL");
    assert_fails(eg_surgery_guard(s, NULL, .seed = 1), EG_EINVAL, "neither inputs nor their shapes");
    assert_fails(eg_surgery_guard(s, NULL, .promise = EG_PROMISE_CLOSE), EG_EINVAL, "how close");
    assert_fails(eg_surgery_guard(t, NULL, .seed = 1), EG_ESHAPE, "conv");
    assert_refused(eg_guard_text(NULL), EG_EINVAL, "NULL");
    assert_refused(eg_guard_json(NULL), EG_EINVAL, "NULL");
    eg_surgery_free(s);
    eg_surgery_free(t);
    eg_module_release(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(exact_is_kept_by_a_wrapper, setup, teardown),
        cmocka_unit_test_setup_teardown(close_has_a_tolerance, setup, teardown),
        cmocka_unit_test_setup_teardown(a_breach_undoes_what_is_committed, setup, teardown),
        cmocka_unit_test_setup_teardown(trained_outputs_are_finite, setup, teardown),
        cmocka_unit_test_setup_teardown(other_shapes_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(given_inputs_and_reports_by_hand, setup, teardown),
        cmocka_unit_test_setup_teardown(refusals, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

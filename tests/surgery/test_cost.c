/*
 * Costs against counts made by hand, memory against what a run takes, verdicts.
 */
#include "support.h"

#include "engraft/layers.h"
#include "engraft/surgery_report.h"
#include "surgery/diff.h"

#include <jansson.h>

static eg_context *ctx;

static int setup(void **state)
{
    (void)state;
    eg_error_clear();
    ctx = eg_context_new(.seed = 1, .threads = 1);
    return ctx == NULL;
}

static int teardown(void **state)
{
    (void)state;
    eg_context_free(ctx);
    return 0;
}

static eg_module *small_net(void)
{
    return eg_sequential(ctx,
                         EG_NAMED({"conv", eg_conv2d(ctx, 3, 8, 3, .padding = 1)}, {"norm", eg_batch_norm2d(ctx, 8)},
                                  {"pool", eg_global_avg_pool2d(ctx)}, {"head", eg_linear(ctx, 8, 10)}));
}

static void counts_by_hand(void **state)
{
    (void)state;
    eg_module *net = small_net();
    eg_cost cost;
    assert_ok(eg_model_cost(net, EG_SHAPES(EG_SHAPE(2, 3, 6, 6)), &cost, .repeats = -1));
    assert_int_equal(cost.parameters, 8 * 27 + 8 + 16 + 90);
    assert_int_equal(cost.buffers, 17);
    assert_int_equal(cost.parameter_bytes, 4 * cost.parameters);
    assert_int_equal(cost.buffer_bytes, 4 * 16 + 8);
    assert_int_equal(cost.macs, 2 * (36 * 8 * 27 + 80));
    assert_true(cost.peak_bytes > cost.parameter_bytes + cost.buffer_bytes + 4 * 2 * 3 * 36);
    assert_true(isnan(cost.latency) && cost.runs == 0);
    assert_int_equal(cost.n_layers, 4);
    assert_string_equal(cost.layers[0].path, "conv");
    assert_string_equal(cost.layers[0].cls, "Conv2d");
    assert_int_equal(cost.layers[0].macs, 2 * 36 * 8 * 27);
    assert_int_equal(cost.layers[0].parameters, 8 * 27 + 8);
    assert_true(eg_shape_equal(cost.layers[3].output, EG_SHAPE(2, 10)));
    char *text = eg_cost_text(&cost), *json = eg_cost_json(&cost);
    assert_made(text);
    assert_non_null(strstr(text, "module  class            output      "));
    assert_non_null(strstr(text, "conv    Conv2d           (2, 8, 6, 6)         224  15552  99.0 %\n"));
    assert_non_null(strstr(text, "MACs        15712\n"));
    json_t *read = json_loads(json, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(read, "macs")), 15712);
    assert_true(json_is_null(json_object_get(read, "latency")));
    assert_int_equal(json_array_size(json_object_get(read, "layers")), 4);
    json_decref(read);
    eg_free(text);
    eg_free(json);
    eg_cost_free(&cost);
    eg_module_release(net);
}

static void memory_is_what_a_run_takes(void **state)
{
    (void)state;
    eg_module *net =
        eg_sequential(ctx, EG_MODULES(eg_relu(ctx), eg_gelu(ctx), eg_relu(ctx))); /* an input and an output at a time */
    eg_cost small, large;
    assert_ok(eg_model_cost(net, EG_SHAPES(EG_SHAPE(64, 1024)), &small, .repeats = -1));
    assert_ok(eg_model_cost(net, EG_SHAPES(EG_SHAPE(256, 1024)), &large, .repeats = -1));
    assert_true(small.peak_bytes >= 2 * 4 * 64 * 1024 && small.peak_bytes <= 4 * 4 * 64 * 1024);
    assert_int_equal(large.peak_bytes, 4 * small.peak_bytes);
    eg_cost_free(&small);
    eg_cost_free(&large);
    eg_module_release(net);
}

static void measuring_changes_nothing(void **state)
{
    (void)state;
    eg_module *net = small_net(), *dropout = eg_dropout(ctx, 0.5);
    eg_cost cost;
    eg_rng before = *eg_context_rng(ctx);
    size_t bytes = eg_context_get_stats(ctx).bytes_in_use;
    eg_module_find(net, "pool")->training = false;
    assert_ok(eg_model_cost(net, EG_SHAPES(EG_SHAPE(2, 3, 6, 6)), &cost, .repeats = 5, .warmup = 1));
    assert_true(cost.latency > 0 && cost.latency_low <= cost.latency && cost.latency <= cost.latency_high);
    assert_int_equal(cost.runs, 5);
    assert_int_equal(cost.warmup, 1);
    assert_int_equal(cost.threads, 1);
    assert_true(net->training && !eg_module_find(net, "pool")->training);
    assert_memory_equal(&before, eg_context_rng(ctx), sizeof before);
    assert_close(eg_tensor_item(eg_module_tensor(net, "norm.num_batches_tracked")), 0, 0);
    assert_true(eg_context_get_stats(ctx).bytes_in_use <= bytes + (1 << 20)); /* packed weights may stay */
    eg_cost_free(&cost);
    eg_module_release(dropout);
    eg_module_release(net);
}

static void whole_numbers_where_a_model_wants_them(void **state)
{
    (void)state;
    eg_module *net = eg_sequential(ctx, EG_MODULES(eg_embedding(ctx, 20, 4), eg_linear(ctx, 4, 2)));
    eg_cost cost;
    assert_ok(eg_model_cost(net, EG_SHAPES(EG_SHAPE(2, 5)), &cost, .repeats = 3));
    assert_int_equal(cost.macs, 2 * 5 * 4 * 2);
    assert_int_equal(eg_error_first()->code, EG_OK);
    eg_cost_free(&cost);
    eg_module_release(net);
}

static eg_module *smaller(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_linear(m->ctx, 8, 5);
}

static void a_surgery_before_and_after(void **state)
{
    (void)state;
    eg_module *net = small_net();
    eg_surgery *s = eg_surgery_new(net, .inputs = EG_SHAPES(EG_SHAPE(2, 3, 6, 6)));
    eg_cost_change change;
    assert_ok(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_linear_class, .replace = smaller}), false));
    assert_ok(eg_surgery_cost(s, &change, .repeats = -1));
    assert_int_equal(change.before.parameters - change.after.parameters, 45);
    assert_int_equal(change.before.macs - change.after.macs, 80);
    assert_false(change.warning);
    assert_string_equal(change.verdict, "multiply-accumulates -0.5 %, time not measured");
    char *text = eg_cost_change_text(&change), *json = eg_cost_change_json(&change);
    assert_non_null(strstr(text, "15632"));
    json_t *read = json_loads(json, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(read, "after"), "macs")), 15632);
    json_decref(read);
    eg_free(text);
    eg_free(json);
    eg_cost_change_free(&change);
    assert_ok(eg_surgery_commit(s));
    assert_ok(eg_surgery_cost(s, &change, .repeats = 3, .warmup = 1)); /* also of what is committed */
    assert_int_equal(change.before.parameters - change.after.parameters, 45);
    assert_true(change.before.runs == 3 && change.after.runs == 3);
    eg_cost_change_free(&change);
    assert_int_equal(((eg_linear *)eg_module_find(net, "head"))->out_features, 5);
    eg_surgery_free(s);
    eg_module_release(net);
}

/* Times are given here, not measured: machines are noisy. */
static void assert_judged(double macs, double time, bool warning, const char *verdict)
{
    eg_cost_change change = {
        .before = {.macs = 1000, .latency = 0.010, .latency_low = 0.009, .latency_high = 0.012},
        .after = {.macs = (uint64_t)macs, .latency = time, .latency_low = time, .latency_high = time}};
    assert_ok(eg__cost_judge(&change));
    assert_int_equal(change.warning, warning);
    assert_string_equal(change.verdict, verdict);
    if (warning) {
        char *text = eg_cost_change_text(&change);
        assert_non_null(strstr(text, "warning: multiply-accumulates fall"));
        eg_free(text);
    }
    eg_cost_change_free(&change);
}

static void a_warning_where_time_does_not_fall(void **state)
{
    (void)state;
    assert_judged(500, 0.013, true,
                  "multiply-accumulates fall (-50.0 %) but time does not: 10.000 ms before, 13.000 ms after, slower");
    assert_judged(500, 0.0095, true,
                  "multiply-accumulates fall (-50.0 %) but time does not: 10.000 ms before, 9.500 ms after, within the "
                  "spread");
    assert_judged(500, 0.005, false, "multiply-accumulates -50.0 %, time -50.0 %");
    assert_judged(990, 0.013, false, "multiply-accumulates -1.0 %, time +30.0 %");
    assert_judged(1000, 0.010, false, "multiply-accumulates the same, time the same");
}

static void refusals(void **state)
{
    (void)state;
    eg_module *net = small_net();
    eg_surgery *s = eg_surgery_new(net);
    eg_cost cost;
    eg_cost_change change;
    assert_fails(eg_model_cost(NULL, EG_SHAPES(EG_SHAPE(1)), &cost, .repeats = 1), EG_EINVAL, "model is NULL");
    assert_fails(eg_model_cost(net, ((eg_shapes){NULL, 0}), &cost, .repeats = 1), EG_EINVAL, "shapes");
    assert_fails(eg_model_cost(net, EG_SHAPES(EG_SHAPE(2, 4, 6, 6)), &cost, .repeats = 1), EG_ESHAPE, "conv");
    assert_int_equal(cost.n_layers, 0);
    assert_fails(eg_model_cost(net, EG_SHAPES(EG_SHAPE(2, 3, 6, 6)), &cost, .seconds = -1), EG_EINVAL, "-1 seconds");
    assert_fails(eg_surgery_cost(s, &change, .repeats = 1), EG_EINVAL, "no shapes");
    assert_fails(eg_surgery_cost(s, (eg_cost_change *)NULL, .repeats = 1), EG_EINVAL, "no place");
    assert_refused(eg_cost_text(NULL), EG_EINVAL, "NULL");
    assert_refused(eg_cost_change_json(NULL), EG_EINVAL, "NULL");
    eg_cost_free(NULL);
    eg_cost_change_free(NULL);
    eg_surgery_free(s);
    eg_module_release(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(counts_by_hand, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_is_what_a_run_takes, setup, teardown),
        cmocka_unit_test_setup_teardown(measuring_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(whole_numbers_where_a_model_wants_them, setup, teardown),
        cmocka_unit_test_setup_teardown(a_surgery_before_and_after, setup, teardown),
        cmocka_unit_test_setup_teardown(a_warning_where_time_does_not_fall, setup, teardown),
        cmocka_unit_test_setup_teardown(refusals, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Differences used: names in state dicts, JSON; and what is refused.
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
    return eg_sequential(ctx, EG_NAMED({"conv", eg_conv2d(ctx, 3, 8, 3, .padding = 1)}, {"relu", eg_relu(ctx)},
                                       {"pool", eg_global_avg_pool2d(ctx)}, {"head", eg_linear(ctx, 8, 10)}));
}

static eg_module *wrap(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_sequential(m->ctx, EG_NAMED({"conv", eg_module_retain(m)}, {"norm", eg_batch_norm2d(m->ctx, 8)}));
}

static eg_module *new_head(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_linear(m->ctx, 8, 5, .no_bias = true);
}

/* ---- checkpoints from before ---- */

static void names_in_state_dicts_both_ways(void **state)
{
    (void)state;
    eg_module *net = small_net(), *other = small_net();
    eg_surgery *s = eg_surgery_new(net);
    assert_ok(eg_surgery_replace(
        s, EG_POLICIES({.cls = &eg_conv2d_class, .replace = wrap}, {.cls = &eg_linear_class, .replace = new_head}),
        false));
    eg_model_diff *d = eg_surgery_diff(s);
    assert_ok(eg_surgery_commit(s));
    eg_state *old = eg_state_new(), *renamed = eg_state_new(), *back = eg_state_new();
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    assert_ok(eg_module_state(other, "model.", old)); /* a checkpoint of the model before */
    assert_ok(eg_state_put(old, "optimizer.step", eg_ones(ctx, EG_SCALAR)));
    assert_ok(eg_model_diff_rename(d, old, "model.", false, renamed));
    assert_int_equal(eg_state_size(renamed), 3); /* the head is another */
    assert_ptr_equal(eg_state_get(renamed, "model.conv.conv.weight"), eg_module_tensor(other, "conv.weight"));
    assert_non_null(eg_state_get(renamed, "optimizer.step"));
    assert_ok(eg_module_load_state(net, "model.", renamed, false));
    assert_close(*(float *)eg_tensor_data(eg_module_tensor(net, "conv.conv.weight")),
                 *(float *)eg_tensor_data(eg_module_tensor(other, "conv.weight")), 0);
    assert_ok(eg_model_diff_rename(d, renamed, "model.", true, back));
    assert_int_equal(eg_state_size(back), 3);
    assert_ptr_equal(eg_state_get(back, "model.conv.bias"), eg_module_tensor(other, "conv.bias"));
    assert_fails(eg_model_diff_rename(d, old, NULL, true, old), EG_EINVAL, "are one");
    eg_tape_end(tape);
    eg_state_free(old);
    eg_state_free(renamed);
    eg_state_free(back);
    eg_model_diff_free(d);
    eg_surgery_free(s);
    eg_module_release(other);
    eg_module_release(net);
}

/* ---- JSON, refusals ---- */

static void as_json(void **state)
{
    (void)state;
    eg_module *net = small_net();
    eg_surgery *s = eg_surgery_new(net);
    assert_ok(eg_surgery_replace(
        s, EG_POLICIES({.cls = &eg_conv2d_class, .replace = wrap}, {.cls = &eg_linear_class, .replace = new_head}),
        false));
    char *text = eg_surgery_json(s);
    assert_made(text);
    json_t *json = json_loads(text, 0, NULL), *d = json_object_get(json, "difference");
    const json_t *first = json_array_get(json_object_get(json, "replacements"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "path")), "conv");
    assert_true(json_is_false(json_object_get(first, "committed")));
    assert_int_equal(json_array_size(json_object_get(first, "carried")), 8);
    assert_string_equal(json_string_value(json_object_get(json_object_get(d, "new_names"), "conv.weight")),
                        "conv.conv.weight");
    assert_string_equal(json_string_value(json_object_get(json_object_get(d, "old_names"), "conv.conv.weight")),
                        "conv.weight");
    assert_int_equal(json_array_size(json_object_get(d, "changes")), 4);
    const json_t *head = json_array_get(json_object_get(d, "changes"), 3);
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(json_object_get(head, "attributes"), "out_features"), 1)),
        "5");
    json_decref(json);
    eg_free(text);
    eg_surgery_free(s);
    eg_module_release(net);
}

static void refusals(void **state)
{
    (void)state;
    eg_module *net = small_net(), *deep = eg_relu(ctx);
    eg_model_diff *d = eg_model_diff_new(net, net);
    assert_refused(eg_model_diff_new(net, NULL), EG_EINVAL, "model after is NULL");
    assert_refused(eg_surgery_diff(NULL), EG_EINVAL, "surgery is NULL");
    assert_refused(eg_model_diff_at(d, 0), EG_EINVAL, "no change number 0, the difference has 0");
    assert_refused(eg_model_diff_key_at(d, 4), EG_EINVAL, "no tensor number 4, the difference has 4");
    assert_refused(eg_model_diff_carried_at(d, 0, 0), EG_EINVAL, "no replacement number 0");
    assert_refused(eg_model_diff_text(NULL), EG_EINVAL, "NULL");
    assert_refused(eg_model_diff_json(NULL), EG_EINVAL, "NULL");
    assert_refused(eg_surgery_text(NULL), EG_EINVAL, "NULL");
    assert_fails(eg_surgery_print(NULL, stdout), EG_EINVAL, "NULL");
    for (int i = 0; i < 1100; i++)
        deep = eg_sequential(ctx, EG_MODULES(deep));
    assert_refused(eg_model_diff_new(net, deep), EG_EUNSUPPORTED, "deeper than 1024");
    eg_model_diff_free(d);
    eg_model_diff_free(NULL);
    eg_module_release(deep);
    eg_module_release(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(names_in_state_dicts_both_ways, setup, teardown),
        cmocka_unit_test_setup_teardown(as_json, setup, teardown),
        cmocka_unit_test_setup_teardown(refusals, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

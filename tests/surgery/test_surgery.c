/*
 * The transaction: policies, commit, undo, optimizers.
 */
#include "support.h"

#include "engraft/layers.h"
#include "engraft/surgery.h"

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

static eg_module *net(void)
{
    return eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 1, 4, 3, .padding = 1), eg_batch_norm2d(ctx, 4), eg_relu(ctx),
                                         eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 4, 4, 3), eg_relu(ctx))),
                                         eg_global_avg_pool2d(ctx), eg_linear(ctx, 4, 2)));
}

static eg_module *to_gelu(void *payload, eg_module *m, size_t index)
{
    if (payload != NULL)
        *(size_t *)payload = index;
    return eg_gelu(m->ctx);
}

static void replaces_and_undoes(void **state)
{
    (void)state;
    eg_module *m = net();
    assert_made(m);
    char *before = eg_module_text(m);
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_relu_class)), 2);
    size_t last = 9;
    eg_surgery *s = eg_surgery_new(m, .inputs = EG_SHAPES(EG_SHAPE(1, 1, 8, 8)));
    assert_made(s);
    assert_ok(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_relu_class, .replace = to_gelu, .payload = &last}), false));
    char *planned = eg_module_text(m);
    assert_string_equal(before, planned);
    assert_int_equal(last, 1);
    assert_int_equal(eg_surgery_size(s), 2);
    assert_string_equal(eg_surgery_at(s, 1)->path, "3.1");
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_relu_class)), 0);
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_gelu_class)), 2);
    assert_ok(eg_surgery_undo(s));
    char *after = eg_module_text(m);
    assert_string_equal(before, after);
    eg_surgery_free(s);
    eg_free(before);
    eg_free(planned);
    eg_free(after);
    eg_module_release(m);
}

static eg_module *same_linear(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    const eg_linear *l = EG_CAST(m, eg_linear);
    return eg_linear(m->ctx, l->in_features, l->out_features);
}

static void keeps_weights_and_optimizer(void **state)
{
    (void)state;
    eg_module *m = net();
    eg_optimizer *adam = eg_adam(m);
    assert_made(adam);
    eg_tensor *weight = eg_module_tensor(m, "5.weight");
    eg_surgery *s = eg_replace_module_classes(m, EG_POLICIES({.cls = &eg_linear_class, .replace = same_linear}),
                                              .optimizers = EG_OPTIMIZERS(adam));
    assert_made(s);
    assert_ptr_equal(eg_module_tensor(m, "5.weight"), weight);
    assert_ptr_not_equal(eg_surgery_at(s, 0)->old, eg_surgery_at(s, 0)->fresh);
    eg_surgery_free(s);
    assert_ptr_equal(eg_module_tensor(m, "5.weight"), weight);
    eg_optimizer_free(adam);
    eg_module_release(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(replaces_and_undoes, setup, teardown),
        cmocka_unit_test_setup_teardown(keeps_weights_and_optimizer, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The trained ResNet-20 of the examples, where EG_RESNET20 and EG_CIFAR10 name its weights and its data: accuracy,
 * folding that changes no prediction, pruning that is undone bit for bit.
 */
#include "support.h"

#include "../../examples/resnet20.h"

static const eg_shape image = {.ndim = 4, .dims = {1, 3, 32, 32}};

static const char *weights, *data;

static bool has_files(void)
{
    weights = getenv("EG_RESNET20");
    data = getenv("EG_CIFAR10");
    if (weights != NULL && data != NULL)
        return true;
    print_message("skipped: EG_RESNET20 and EG_CIFAR10 name no weights and no data\n");
    return false;
}

static void is_as_good_as_it_was(void **state)
{
    (void)state;
    if (!has_files())
        skip();
    eg_context *ctx = eg_context_new(.threads = 2);
    eg_module *net = resnet20_load(ctx, weights);
    assert_made(net);
    eg_dataset *test = eg_dataset_open(ctx, data, .split = EG_TEST, .normalize_off = true);
    assert_made(test);
    assert_true(fabs(eg_evaluate(net, test, 100) - 0.915) < 0.0005);
    eg_surgery *s = eg_surgery_new(net, .inputs = EG_SHAPES(image));
    assert_ok(eg_surgery_apply(s, eg_fold_batch_norm(ctx), NULL));
    assert_int_equal(eg_surgery_size(s), 2 * 19);
    assert_ok(eg_surgery_guard(s, NULL, .promise = EG_PROMISE_EXACT));
    assert_ok(eg_surgery_commit(s));
    assert_true(fabs(eg_evaluate(net, test, 100) - 0.915) < 0.0005);
    assert_ok(eg_surgery_undo(s));
    eg_surgery_drop(s);
    assert_ok(eg_surgery_apply(s, eg_prune_channels(ctx, .ratio = 0.3), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_true(eg_module_n_parameters(net) < 190000);
    assert_ok(eg_surgery_undo(s));
    assert_true(fabs(eg_evaluate(net, test, 100) - 0.915) < 0.0005);
    eg_surgery_free(s);
    eg_dataset_release(test);
    eg_module_release(net);
    eg_context_free(ctx);
}

/* Without weights of anybody: the class is read from JSON, and its channels can go. */
static void is_a_model_like_others(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 1, .threads = 1, .backend = "ref");
    assert_ok(eg_context_register_class(ctx, &resnet_block_class));
    assert_ok(eg_context_register_class(ctx, &resnet20_class));
    eg_module *net = eg_module_from_text(ctx, "ResNet20(classes=10)");
    assert_made(net);
    assert_int_equal(eg_module_n_parameters(net), 269722);
    eg_surgery *s = eg_surgery_new(net, .inputs = EG_SHAPES(image));
    assert_ok(eg_surgery_apply(s, eg_prune_channels(ctx, .ratio = 0.25), "**.conv1"));
    assert_ok(eg_surgery_check(s));
    assert_ok(eg_surgery_commit(s));
    assert_true(eg_module_n_parameters(net) < 269722);
    eg_surgery_free(s);
    eg_module_release(net);
    eg_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_as_good_as_it_was),
        cmocka_unit_test(is_a_model_like_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

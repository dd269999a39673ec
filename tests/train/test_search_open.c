/* Whole searches of a space with nested choices, values, a depth and a constraint: what is found, resumed, predicted.
 */
#include "train_support.h"

static eg_module *make_space(eg_context *ctx)
{
    int64_t width = eg_value_choice(ctx, EG_VALUES(4, 8), .key = "width");
    int64_t kernel = eg_value_choice(ctx, EG_VALUES(1, 3), .key = "kernel");
    int64_t padding = eg_value_choice(ctx, EG_VALUES(0, 1), .key = "kernel");
    eg_module *inner = eg_layer_choice(ctx,
                                       EG_CHOICES({"conv", eg_conv2d(ctx, width, width, kernel, .padding = padding)},
                                                  {"pool", eg_avg_pool2d(ctx, 3, .stride = 1, .padding = 1)}),
                                       .key = "inner");
    eg_module *outer = eg_layer_choice(
        ctx,
        EG_CHOICES({"layer", eg_sequential(ctx, EG_MODULES(inner, eg_batch_norm2d(ctx, width), eg_relu(ctx)))},
                   {"skip", eg_identity(ctx)}),
        .key = "outer");
    eg_module *repeat = eg_repeat(ctx, EG_MODULES(outer, eg_conv2d(ctx, width, width, 1)),
                                  .depth = eg_value_choice(ctx, EG_VALUES(1, 2), .key = "depth"));
    eg_module *model =
        eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 1, width, 3, .padding = 1), eg_batch_norm2d(ctx, width),
                                      eg_relu(ctx), repeat, eg_adaptive_avg_pool2d(ctx, 2), eg_flatten(ctx)));
    /* 4 numbers of each channel are flattened: another value of the same key */
    assert_ok(eg_append(model, eg_linear(ctx, eg_value_choice(ctx, EG_VALUES(16, 32), .key = "width"), TOY_CLASSES)));
    assert_made(model);
    return model;
}

typedef struct plan {
    const char *strategy, *run;
    bool resume;
    size_t cancel_after, calls;
    eg_context *ctx;
} plan;

static void cancel_on_progress(void *payload, const eg_progress *progress)
{
    plan *p = payload;
    (void)progress;
    if (++p->calls == p->cancel_after)
        eg_context_cancel(p->ctx);
}

static eg_status is_small(void *payload, eg_mutator *mutator, const eg_decisions *decisions, bool *holds)
{
    eg_network_cost cost;
    EG_TRY(eg_mutator_cost_of(mutator, decisions, &EG_SHAPE(1, 1, TOY_SIDE, TOY_SIDE), 1, &cost));
    eg_free(cost.path);
    *holds = cost.parameters <= *(const int64_t *)payload;
    return EG_OK;
}

static eg_status search(plan *p, const char *arch)
{
    eg_context *ctx = p->ctx = eg_context_new(.seed = 7, .threads = 1);
    eg_dataset *data = toy_data(ctx, 96, 1);
    eg_module *net = make_space(ctx);
    int64_t budget = 300;
    p->calls = 0;
    eg_search *s = eg_search_new(
        ctx, net, data, .strategy = p->strategy, .epochs = 2, .batch_size = 8, .seed = 5, .run = p->run,
        .resume = p->resume,
        .strategy_options = {.evaluations = 6, .population = 3, EG_CONSTRAINTS({"small", is_small, &budget})},
        .progress = cancel_on_progress, .progress_payload = p);
    eg_status status = s ? eg_search_run(s) : eg_error_last()->code;
    if (status == EG_OK)
        status = eg_search_export(s, arch);
    eg_search_free(s);
    eg_module_release(net);
    eg_dataset_release(data);
    eg_context_free(ctx);
    return status;
}

static void check_found(const char *path)
{
    eg_context *ctx = eg_context_new(.seed = 7);
    eg_arch *arch = eg_arch_load(path);
    assert_made(arch);
    eg_module *net = make_space(ctx);
    assert_ok(eg_apply_arch(net, arch));
    assert_true(eg_module_n_parameters(net) <= 300);
    assert_made(eg_call(net, eg_ones(ctx, EG_SHAPE(2, 1, TOY_SIDE, TOY_SIDE))));
    eg_arch_free(arch);
    eg_module_release(net);
    eg_context_free(ctx);
}

static void searches_find_and_resume(void **state)
{
    (void)state;
    char *directory = temporary_make(), expected[TEMPORARY_PATH_SIZE], got[TEMPORARY_PATH_SIZE],
         run[TEMPORARY_PATH_SIZE];
    plan p = {.strategy = "random"};
    assert_ok(search(&p, temporary_path(directory, "random", expected)));
    check_found(expected);
    p.strategy = "spos";
    assert_ok(search(&p, temporary_path(directory, "expected", expected)));
    check_found(expected);
    static const size_t stops[] = {3, 14};
    for (int i = 0; i < 2; i++) {
        char name[16];
        snprintf(name, sizeof name, "run%d", i);
        p = (plan){.strategy = "spos", .run = temporary_path(directory, name, run), .cancel_after = stops[i]};
        assert_fails(search(&p, temporary_path(directory, "got", got)), EG_ECANCELED, "canceled");
        p.cancel_after = 0;
        p.resume = true;
        assert_ok(search(&p, got));
        assert_same_file(expected, got);
    }
    p = (plan){.strategy = "darts"};
    assert_fails(search(&p, got), EG_EINVAL, "'width' is a value choice");
    temporary_remove(directory);
}

/* Parts of parameters are found out while memory is predicted, too. */
static void memory_is_predicted(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 7, .threads = 1);
    eg_dataset *data = toy_data(ctx, 96, 1);
    eg_module *net = make_space(ctx);
    eg_search *s = eg_search_new(ctx, net, data, .strategy = "spos", .epochs = 1, .batch_size = 8);
    assert_made(s);
    eg_memory_estimate estimate;
    assert_ok(eg_search_memory(s, EG_MEMORY_NORMAL, &estimate));
    assert_true(estimate.total > 0);
    assert_ok(eg_search_run(s));
    eg_search_free(s);
    eg_module_release(net);
    eg_dataset_release(data);
    eg_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(searches_find_and_resume),
        cmocka_unit_test(memory_is_predicted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Steps of training and of supernets with bfloat16 activations (emulated): each allocation fails once.
 */
#include "alloc_table.h"

#include "train/train_support.h"

enum { BATCH = 3 };

typedef struct world {
    alloc_world base;
    eg_module *model, *net;
    eg_dataset *data;
} world;

static void setup(void *payload)
{
    world *w = payload;
    assert_ok(eg_context_set_precision(w->base.ctx, EG_BF16));
    w->model = toy_model(w->base.ctx);
    w->net = toy_supernet(w->base.ctx);
    w->data = toy_data(w->base.ctx, 3 * BATCH, 1);
}

static void teardown(void *payload)
{
    world *w = payload;
    eg_module_release(w->model);
    eg_module_release(w->net);
    eg_dataset_release(w->data);
}

static void check(void *payload)
{
    world *w = payload;
    assert_int_equal(w->model->refs, 1);
    assert_null(eg_mutable_mutator(w->net));
    assert_false(eg_is_recording(w->base.ctx));
    assert_int_equal(eg_context_precision(w->base.ctx), EG_BF16);
}

static eg_status step_with(eg_module *m, eg_optimizer *optimizer, eg_loader *loader)
{
    eg_batch batch;
    EG_TRY(alloc_made(loader));
    EG_TRY(eg_loader_next(loader, &batch));
    eg_tape *tape = eg_tape_begin(m->ctx, EG_RECORD);
    EG_TRY(alloc_made(tape));
    eg_status status = eg_backward(eg_f_cross_entropy(eg_call(m, batch.x), batch.y));
    eg_tape_end(tape);
    status = status == EG_OK ? eg_optimizer_step(optimizer) : status;
    eg_optimizer_zero_grad(optimizer);
    return status;
}

static eg_status step(void *payload)
{
    world *w = payload;
    eg_optimizer *optimizer = eg_sgd(w->model, .lr = 0.01, .momentum = 0.9);
    eg_loader *loader = optimizer ? eg_loader_new(w->data, BATCH) : NULL;
    eg_status status = step_with(w->model, optimizer, loader);
    eg_loader_free(loader);
    eg_optimizer_free(optimizer);
    return status;
}

static eg_status supernet_step(eg_strategy *strategy, eg_loader *loader)
{
    EG_TRY(alloc_made(loader));
    eg_batch train, valid;
    EG_TRY(eg_loader_next(loader, &train));
    EG_TRY(eg_loader_next(loader, &valid));
    eg_step_result result;
    return strategy->cls->train_step(strategy, &train, &valid, &result);
}

static eg_status darts_step(void *payload)
{
    world *w = payload;
    eg_strategy_options options = {.struct_size = sizeof options};
    eg_optimizer *optimizer = eg_sgd(w->net, .lr = 0.01, .momentum = 0.9);
    eg_strategy *strategy =
        optimizer ? eg_strategy_new(eg_strategy_find("darts"), w->net, optimizer, NULL, &options) : NULL;
    eg_loader *loader = strategy ? eg_loader_new(w->data, BATCH) : NULL;
    eg_status status = supernet_step(strategy, loader);
    eg_loader_free(loader);
    eg_strategy_free(strategy);
    eg_optimizer_free(optimizer);
    return status;
}

static eg_status evaluate(void *payload)
{
    world *w = payload;
    return isnan(eg_evaluate(w->model, w->data, BATCH)) ? eg_error_last()->code : EG_OK;
}

static const alloc_row rows[] = {
    {"a training step", step, false},
    {"a supernet step (darts)", darts_step, false},
    {"eg_evaluate", evaluate, false},
};

enum { N_ROWS = sizeof rows / sizeof rows[0] };

static const alloc_table table = {.backend = "dnnl",
                                  .world_size = sizeof(world),
                                  .setup = setup,
                                  .teardown = teardown,
                                  .check = check,
                                  .rows = rows,
                                  .n_rows = N_ROWS,
                                  .dense = 100};

int main(void)
{
    setenv("EG_BF16", "emulate", 1);
    if (!alloc_prepare())
        return 1;
    static alloc_target targets[N_ROWS];
    struct CMUnitTest tests[N_ROWS];
    alloc_make_tests(&table, tests, targets);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

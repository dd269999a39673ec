/*
 * Every allocation of a surgery made to fail: it says so, and the model and its optimizer are as they were.
 */
#include "support_alloc.h"

#include "surgery_support.h"

#include "engraft/methods.h"

typedef struct world {
    eg_module *net;
    eg_optimizer *optimizer;
} world;

static world make_world(void)
{
    world w = {.net = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 4, 4), eg_relu(ctx),
                                                    eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 4, 4)))))};
    assert_made(w.net);
    w.optimizer = eg_adam(w.net);
    assert_made(w.optimizer);
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    assert_ok(eg_backward(eg_mean(eg_call(w.net, eg_ones(ctx, EG_SHAPE(2, 4))))));
    assert_ok(eg_optimizer_step(w.optimizer));
    eg_optimizer_zero_grad(w.optimizer);
    eg_tape_end(tape);
    return w;
}

static eg_status work_policies(world *w, eg_surgery *s)
{
    (void)w;
    return eg_surgery_replace(s,
                              EG_POLICIES({.cls = &eg_linear_class, .at = "**", .replace = wrap},
                                          {.cls = &eg_relu_class, .replace = to_gelu}),
                              true);
}

static eg_status work_put(world *w, eg_surgery *s)
{
    return eg_surgery_put(s, *eg__slot_child(&w->net->slots[0]), eg_linear(ctx, 4, 4), "why");
}

/* A layer with the rows of the old one in another order. */
static eg_status work_slice(world *w, eg_surgery *s)
{
    eg_module *old = *eg__slot_child(&w->net->slots[0]), *fresh = eg_linear(ctx, 4, 4);
    if (fresh == NULL)
        return EG_ENOMEM;
    eg_tensor *part = eg_surgery_slice(s, EG_CAST(old, eg_linear)->weight, 0, (const int64_t[]){3, 2, 1, 0}, 4);
    if (part == NULL) {
        eg_module_release(fresh);
        return eg_error_last()->code;
    }
    eg_linear *l = EG_CAST(fresh, eg_linear);
    eg_tensor_release(l->weight);
    l->weight = eg_tensor_keep(part);
    return eg_surgery_put(s, old, fresh, NULL);
}

static eg_status work_tensors(world *w, eg_surgery *s)
{
    eg_module *old = *eg__slot_child(&w->net->slots[0]);
    eg_tensor *fresh = eg_ones(ctx, EG_SHAPE(4, 4));
    if (fresh == NULL)
        return EG_ENOMEM;
    eg_tensor *weight = EG_CAST(old, eg_linear)->weight;
    EG_TRY(eg_surgery_derive(s, fresh, &weight, 1, NULL, NULL, NULL));
    EG_TRY(eg_surgery_put_tensor(s, old, "weight", fresh));
    EG_TRY(eg_surgery_set_trained(s, EG_CAST(old, eg_linear)->bias, false));
    return eg_surgery_savepoint(s) != SIZE_MAX ? EG_OK : EG_ENOMEM;
}

static eg_status work_prune(world *w, eg_surgery *s)
{
    (void)w;
    return eg_surgery_prune(s, .ratio = 0.5, .at = "0");
}

typedef eg_status (*plan_fn)(world *w, eg_surgery *s);

static eg_status operate(world *w, plan_fn plan, bool snapshot)
{
    eg_surgery *s = eg_surgery_new(w->net, .root = &w->net, .optimizers = EG_OPTIMIZERS(w->optimizer),
                                   .inputs = EG_SHAPES(EG_SHAPE(2, 4)), .snapshot = snapshot);
    if (s == NULL)
        return eg_error_last()->code;
    eg_status status = plan(w, s);
    if (status == EG_OK)
        status = eg_surgery_commit(s);
    if (status == EG_OK)
        status = eg_surgery_undo(s);
    eg_surgery_free(s);
    return status;
}

/* One trial; false when nothing was left to fail. */
static bool try_once(plan_fn plan, bool snapshot, long n, bool all_after)
{
    world w = make_world();
    uint64_t before = fingerprint(w.net, w.optimizer);
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_error_clear();
    alloc_fail_all = all_after;
    alloc_failures = 0;
    alloc_countdown = n;
    eg_status status = operate(&w, plan, snapshot);
    alloc_countdown = -1;
    eg_tape_end(tape);
    if (status != EG_OK && (alloc_failures == 0 || status != EG_ENOMEM || eg_error_last()->code != EG_ENOMEM))
        fail_msg("allocation %ld: %s: %s", n, eg_status_name(status), eg_error_last()->message);
    assert_true(fingerprint(w.net, w.optimizer) == before);
    eg_optimizer_free(w.optimizer);
    eg_module_release(w.net);
    return alloc_failures > 0;
}

static void survives(plan_fn plan)
{
    for (int variant = 0; variant < 4; variant++) {
        long n = 0;
        while (try_once(plan, variant % 2 == 1, n, variant / 2 == 1))
            n++;
        assert_true(n > 10);
    }
}

static void policies(void **state)
{
    (void)state;
    survives(work_policies);
}

static void put(void **state)
{
    (void)state;
    survives(work_put);
}

static void slice(void **state)
{
    (void)state;
    survives(work_slice);
}

static void tensors(void **state)
{
    (void)state;
    survives(work_tensors);
}

static eg_status work_widen(world *w, eg_surgery *s)
{
    (void)w;
    eg_module *options = eg_widen(ctx);
    return options != NULL ? eg_surgery_apply(s, options, "0") : EG_ENOMEM;
}

static void widen(void **state)
{
    (void)state;
    survives(work_widen);
}

static void prune(void **state)
{
    (void)state;
    survives(work_prune);
}

int main(void)
{
    const struct CMUnitTest tests[] = {SURGERY_TEST(policies), SURGERY_TEST(put),   SURGERY_TEST(slice),
                                       SURGERY_TEST(tensors),  SURGERY_TEST(prune), SURGERY_TEST(widen)};
    return setenv("EG_POOL", "off", 1) == 0 ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}

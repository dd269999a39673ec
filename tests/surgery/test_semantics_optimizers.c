/*
 * What optimizers have after a surgery, row by row of what the reference does or fails at (1.5, 1.6), and its tests of
 * them (4.6-4.10).
 */
#include "surgery_support.h"

static eg_module *two_linears(void)
{
    return eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 4, 4), eg_relu(ctx), eg_linear(ctx, 4, 4)));
}

/* One update, so that there are states. */
static void step(eg_module *m, eg_optimizer *o)
{
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *loss = eg_mean(eg_call(m, eg_ones(ctx, EG_SHAPE(2, 4))));
    assert_ok(eg_backward(loss));
    assert_ok(eg_optimizer_step(o));
    eg_optimizer_zero_grad(o);
    eg_tape_end(tape);
}

static void assert_order(const eg_optimizer *o, const char *const *names, size_t n)
{
    assert_int_equal(o->n_params, n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(o->params[i].name, names[i]);
}
#define assert_names(o, ...)                                                                                           \
    assert_order((o), (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static eg_status is_in_once(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    if (kind == EG_SLOT_PARAMETER && times_in(payload, t) != 1)
        fail_msg("'%s' is in the optimizer %zu times", path, times_in(payload, t));
    return EG_OK;
}

/* Every parameter of the model once, and nothing else. */
static void assert_exact(eg_module *m, eg_optimizer *o, size_t n)
{
    assert_ok(eg_module_walk_tensors(m, is_in_once, o));
    assert_int_equal(o->n_params, n);
}

/* A new weight, the same bias. */
static eg_module *new_weight(void *payload, eg_module *m, size_t index)
{
    eg_module *fresh = same_linear(payload, m, index);
    if (fresh != NULL) {
        eg_linear *l = EG_CAST(fresh, eg_linear);
        eg_tensor_release(l->bias);
        l->bias = eg_tensor_keep(EG_CAST(m, eg_linear)->bias);
    }
    return fresh;
}

#define NEW_WEIGHTS EG_POLICIES({.cls = &eg_linear_class, .replace = new_weight, .without = EG_CARRY_WEIGHTS})

/* 4.6-4.9: no duplicates; old weights gone; new weights and biases there; kept biases still there. 1.5: in the order of
 * the model, and not the new ones at the end. */
static void new_weights_same_biases(void **state)
{
    (void)state;
    eg_module *shared = eg_linear(ctx, 4, 4);
    eg_module *m = eg_sequential(
        ctx, EG_MODULES(shared, eg_sequential(ctx, EG_MODULES(eg_module_retain(shared))), eg_linear(ctx, 4, 4)));
    eg_optimizer *o = eg_sgd(m, .lr = 0.1, .momentum = 0.9);
    step(m, o);
    eg_tensor *old_weight = eg_tensor_keep(eg_module_tensor(m, "0.weight")), *bias = eg_module_tensor(m, "0.bias");
    eg_tensor *momentum = o->params[1].states[0];
    assert_non_null(momentum);
    eg_surgery *s = eg_replace_module_classes(m, NEW_WEIGHTS, .optimizers = EG_OPTIMIZERS(o));
    assert_made(s);
    assert_int_equal(eg_surgery_size(s), 2);
    assert_int_equal(times_in(o, old_weight), 0);
    assert_int_equal(times_in(o, bias), 1);
    assert_exact(m, o, 4);
    assert_names(o, "0.weight", "0.bias", "2.weight", "2.bias");
    assert_null(o->params[0].states[0]);
    assert_int_equal(o->params[0].step, 0);
    assert_ptr_equal(o->params[1].states[0], momentum);
    eg_surgery_free(s);
    eg_tensor_release(old_weight);
    eg_optimizer_free(o);
    eg_module_release(m);
}

/* 4.10: Adam, four square layers of m1 by those of m2: the order is that of m2. */
static void order_is_that_of_the_model(void **state)
{
    (void)state;
    eg_module *m1 = eg_sequential(
        ctx, EG_MODULES(eg_linear(ctx, 4, 4), eg_linear(ctx, 4, 4), eg_linear(ctx, 4, 4), eg_linear(ctx, 4, 4)));
    eg_module *m2 = eg_module_clone(m1), *fresh = eg_module_retain(m2);
    eg_optimizer *o = eg_adam(m1);
    eg_surgery *s = eg_surgery_new(m1, .root = &m1, .optimizers = EG_OPTIMIZERS(o));
    assert_ok(eg_surgery_put(s, m1, fresh, "m2"));
    assert_ok(eg_surgery_commit(s));
    assert_ptr_equal(m1, m2);
    assert_exact(m2, o, 8);
    for (size_t i = 0; i < 8; i++) {
        char path[32];
        snprintf(path, sizeof(path), "%zu.%s", i / 2, i % 2 == 0 ? "weight" : "bias");
        assert_ptr_equal(o->params[i].tensor, eg_module_tensor(m2, path));
    }
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m1);
    eg_module_release(m2);
}

/* 1.5: more than one optimizer is no error, and each parameter goes where its module's went. */
static void several_optimizers(void **state)
{
    (void)state;
    eg_module *m = two_linears();
    eg_module *first = *eg__slot_child(&m->slots[0]), *last = *eg__slot_child(&m->slots[2]);
    eg_optimizer *a = eg_sgd(NULL, .ctx = ctx, .lr = 0.1), *b = eg_adam(NULL, .ctx = ctx);
    assert_ok(eg_optimizer_add_module(a, "0.", first, NULL));
    assert_ok(eg_optimizer_add_module(b, "2.", last, NULL));
    eg_surgery *s = eg_replace_module_classes(m, NEW_WEIGHTS, .optimizers = EG_OPTIMIZERS(a, b));
    assert_made(s);
    assert_int_equal(a->n_params, 2);
    assert_int_equal(b->n_params, 2);
    assert_int_equal(times_in(a, eg_module_tensor(m, "0.weight")), 1);
    assert_int_equal(times_in(b, eg_module_tensor(m, "2.weight")), 1);
    eg_surgery_free(s);
    eg_optimizer_free(a);
    eg_optimizer_free(b);
    eg_module_release(m);
}

/* 1.5: weight and bias in different groups: each finds its own again. */
static void several_groups(void **state)
{
    (void)state;
    eg_module *m = two_linears();
    eg_tensor *weights[] = {eg_module_tensor(m, "0.weight"), eg_module_tensor(m, "2.weight")};
    eg_tensor *biases[] = {eg_module_tensor(m, "0.bias"), eg_module_tensor(m, "2.bias")};
    eg_optimizer *o = eg_sgd(NULL, .ctx = ctx, .lr = 0.1);
    assert_ok(eg_optimizer_add(o, "decay", weights, 2, NULL));
    assert_ok(eg_optimizer_add(o, "no_decay", biases, 2, NULL));
    eg_surgery *s = eg_replace_module_classes(
        m, EG_POLICIES({.cls = &eg_linear_class, .replace = same_linear, .without = EG_CARRY_WEIGHTS}),
        .optimizers = EG_OPTIMIZERS(o));
    assert_made(s);
    assert_exact(m, o, 4);
    for (size_t i = 0; i < o->n_params; i++)
        assert_int_equal(o->params[i].group, o->params[i].tensor->shape.ndim == 1);
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m);
}

static eg_module *linear_after(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_sequential(m->ctx, EG_MODULES(eg_module_retain(m), eg_linear(m->ctx, 4, 4)));
}

/* 1.5: a wrapper removes nothing; what it adds joins the group of what it wraps. */
static void wrappers_join_the_group(void **state)
{
    (void)state;
    eg_module *m = two_linears();
    eg_optimizer *o = eg_sgd(NULL, .ctx = ctx, .lr = 0.1);
    assert_ok(eg_optimizer_add_module(o, "a.", *eg__slot_child(&m->slots[0]), NULL));
    assert_ok(eg_optimizer_add_module(o, "b.", *eg__slot_child(&m->slots[2]), NULL));
    eg_surgery *s = eg_replace_module_classes(
        m, EG_POLICIES({.cls = &eg_linear_class, .at = "2", .replace = linear_after}), .optimizers = EG_OPTIMIZERS(o));
    assert_made(s);
    assert_exact(m, o, 6);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(o->params[i].group, i >= 2);
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m);
}

/* 1.5: both sides empty is nothing to do (a batch norm that is only wrapped). */
static void nothing_to_do_is_nothing(void **state)
{
    (void)state;
    eg_module *m = two_linears();
    eg_optimizer *o = eg_adam(m);
    step(m, o);
    eg_tensor *moment = o->params[3].states[1];
    eg_surgery *s = eg_replace_module_classes(m, EG_POLICIES({.cls = &eg_linear_class, .replace = wrap}),
                                              .optimizers = EG_OPTIMIZERS(o));
    assert_made(s);
    assert_names(o, "0.0.weight", "0.0.bias", "2.0.weight", "2.0.bias");
    assert_ptr_equal(o->params[3].states[1], moment);
    assert_int_equal(o->params[3].step, 1);
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m);
}

/* 1.5: what was frozen, and so in no optimizer, is not unfrozen by getting a successor. */
static void frozen_stays_out(void **state)
{
    (void)state;
    eg_module *m = two_linears();
    eg_module_set_requires_grad(*eg__slot_child(&m->slots[0]), false);
    eg_optimizer *o = eg_sgd(NULL, .ctx = ctx, .lr = 0.1);
    assert_ok(eg_optimizer_add_module(o, "2.", *eg__slot_child(&m->slots[2]), NULL));
    eg_surgery *s = eg_replace_module_classes(
        m, EG_POLICIES({.cls = &eg_linear_class, .replace = same_linear, .without = EG_CARRY_WEIGHTS}),
        .optimizers = EG_OPTIMIZERS(o));
    assert_made(s);
    assert_false(eg_module_tensor(m, "0.weight")->requires_grad);
    assert_true(eg_module_tensor(m, "2.weight")->requires_grad);
    assert_int_equal(o->n_params, 2);
    assert_int_equal(times_in(o, eg_module_tensor(m, "2.bias")), 1);
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m);
}

/* 1.5 bug 2: a weight that another layer shares stays. */
static void tied_weights_stay(void **state)
{
    (void)state;
    eg_module *m = two_linears();
    eg_linear *a = EG_CAST(*eg__slot_child(&m->slots[0]), eg_linear),
              *b = EG_CAST(*eg__slot_child(&m->slots[2]), eg_linear);
    eg_tensor_release(b->weight);
    b->weight = eg_tensor_keep(a->weight);
    eg_optimizer *o = eg_adam(m);
    assert_int_equal(o->n_params, 3);
    eg_surgery *s = eg_replace_module_classes(
        m, EG_POLICIES({.cls = &eg_linear_class, .at = "0", .replace = same_linear, .without = EG_CARRY_WEIGHTS}),
        .optimizers = EG_OPTIMIZERS(o));
    assert_made(s);
    assert_int_equal(times_in(o, b->weight), 1);
    assert_exact(m, o, 4);
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m);
}

static eg_module *block_of_linear(void *payload, eg_module *m, size_t index)
{
    (void)index;
    size_t *left = payload;
    if (*left == 0)
        return NULL;
    --*left;
    return eg_sequential(m->ctx, EG_MODULES(eg_linear(m->ctx, 4, 4), eg_linear(m->ctx, 4, 4)));
}

/* 1.5 bugs 1 and 3: under recursion no parameter is there twice, none is of a detached module, none is missing. */
static void recursion_leaves_exactly_the_model(void **state)
{
    (void)state;
    eg_module *m = two_linears();
    eg_optimizer *o = eg_sgd(m, .lr = 0.1);
    size_t left = 4;
    eg_surgery *s = eg_replace_module_classes(
        m, EG_POLICIES({.cls = &eg_linear_class, .replace = block_of_linear, .payload = &left}),
        .recurse_on_replacements = true, .optimizers = EG_OPTIMIZERS(o));
    assert_made(s);
    assert_int_equal(eg_surgery_size(s), 4);
    assert_exact(m, o, 12);
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m);
}

static eg_module *without_bias(void *payload, eg_module *m, size_t index)
{
    (void)index;
    return eg_linear(m->ctx, 4, 4, .no_bias = *(const bool *)payload);
}

/* 1.6: where lists of old and new parameters are not of one length, none gets an empty place or another's, and no state
 * of the others is lost: what has no successor leaves, what is new comes in with its module's. */
static void lists_of_other_lengths(void **state)
{
    (void)state;
    for (int shorter = 0; shorter < 2; shorter++) {
        bool no_bias = shorter != 0;
        eg_module *m = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 4, 4, .no_bias = !no_bias), eg_linear(ctx, 4, 4)));
        eg_optimizer *o = eg_adam(m);
        step(m, o);
        eg_tensor *moment = o->params[0].states[1], *last = o->params[o->n_params - 1].states[1];
        assert_non_null(moment);
        eg_surgery *s = eg_replace_module_classes(
            m, EG_POLICIES({.cls = &eg_linear_class, .at = "0", .replace = without_bias, .payload = &no_bias}),
            .optimizers = EG_OPTIMIZERS(o));
        assert_made(s);
        if (no_bias)
            assert_names(o, "0.weight", "1.weight", "1.bias");
        else
            assert_names(o, "0.weight", "0.bias", "1.weight", "1.bias");
        assert_exact(m, o, no_bias ? 3 : 4);
        assert_ptr_equal(o->params[0].states[1], moment);
        assert_ptr_equal(o->params[o->n_params - 1].states[1], last);
        assert_int_equal(o->params[0].step, 1);
        if (!no_bias)
            assert_int_equal(o->params[1].step, 0);
        step(m, o);
        eg_surgery_free(s);
        eg_optimizer_free(o);
        eg_module_release(m);
    }
}

/* 1.5: on failure nothing is lost, neither of the model nor of the states. */
static void failures_lose_no_state(void **state)
{
    (void)state;
    eg_module *m = two_linears();
    eg_optimizer *o = eg_adam(m);
    step(m, o);
    uint64_t before = fingerprint(m, o);
    assert_refused(eg_replace_module_classes(m,
                                             EG_POLICIES({.cls = &eg_linear_class, .at = "0", .replace = same_linear},
                                                         {.cls = &eg_linear_class, .at = "*", .replace = wrap}),
                                             .optimizers = EG_OPTIMIZERS(o)),
                   EG_EINVAL, "both replace '0'");
    assert_true(fingerprint(m, o) == before);
    eg_optimizer_free(o);
    eg_module_release(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SURGERY_TEST(new_weights_same_biases), SURGERY_TEST(order_is_that_of_the_model),
        SURGERY_TEST(several_optimizers),      SURGERY_TEST(several_groups),
        SURGERY_TEST(wrappers_join_the_group), SURGERY_TEST(nothing_to_do_is_nothing),
        SURGERY_TEST(frozen_stays_out),        SURGERY_TEST(tied_weights_stay),
        SURGERY_TEST(failures_lose_no_state),  SURGERY_TEST(recursion_leaves_exactly_the_model),
        SURGERY_TEST(lists_of_other_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

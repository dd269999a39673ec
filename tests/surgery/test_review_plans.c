/*
 * What a review has found of plans, commits and savepoints: each test failed before.
 */
#include "surgery_support.h"

#include "engraft/methods.h"

static eg_module *three_linears(void)
{
    return eg_sequential(
        ctx, EG_MODULES(eg_linear(ctx, 4, 6), eg_relu(ctx), eg_linear(ctx, 6, 6), eg_relu(ctx), eg_linear(ctx, 6, 2)));
}

/* A savepoint that stood on a commit is none after that was undone and done again with more. */
static void savepoints_end_with_their_commit(void **state)
{
    (void)state;
    eg_module *m = three_linears();
    eg_surgery *s = eg_surgery_new(m);
    assert_ok(eg_surgery_put(s, *eg__slot_child(&m->slots[1]), eg_gelu(ctx), "a"));
    assert_ok(eg_surgery_commit(s));
    size_t point = eg_surgery_savepoint(s);
    assert_ok(eg_surgery_undo(s));
    assert_ok(eg_surgery_put(s, *eg__slot_child(&m->slots[3]), eg_gelu(ctx), "b"));
    assert_ok(eg_surgery_commit(s));
    uint64_t now = fingerprint(m, NULL);
    assert_fails(eg_surgery_rollback(s, point), EG_EINVAL, "savepoint");
    assert_true(fingerprint(m, NULL) == now);
    assert_ok(eg_surgery_undo(s));
    eg_surgery_free(s);
    eg_module_release(m);
}

/* Parameters that are added after a check stay, and the way back is whole. */
static void parameters_added_after_a_check_stay(void **state)
{
    (void)state;
    eg_module *m = three_linears(), *other = eg_linear(ctx, 2, 2);
    eg_optimizer *o = eg_adam(m);
    eg_surgery *s = eg_surgery_new(m, .optimizers = EG_OPTIMIZERS(o));
    assert_ok(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_relu_class, .replace = to_gelu}), false));
    assert_ok(eg_surgery_check(s));
    assert_ok(eg_optimizer_add_module(o, "other.", other, NULL));
    uint64_t before = fingerprint(m, o);
    size_t n = o->n_params;
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(o->n_params, n);
    assert_int_equal(times_in(o, EG_CAST(other, eg_linear)->weight), 1);
    assert_ok(eg_surgery_undo(s));
    assert_true(fingerprint(m, o) == before);
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(other);
    eg_module_release(m);
}

static void tensors_are_checked(void **state)
{
    (void)state;
    eg_module *m = three_linears(), *l = *eg__slot_child(&m->slots[0]);
    eg_surgery *s = eg_surgery_new(m);
    eg_tensor *w = EG_CAST(l, eg_linear)->weight;
    assert_fails(eg_surgery_derive(s, w, (eg_tensor *const[]){w, NULL}, 2, NULL, NULL, NULL), EG_EINVAL,
                 "tensor 1 of 2");
    eg_context *theirs = eg_context_new(.threads = 1, .backend = "ref");
    eg_tensor *t = eg_tensor_keep(eg_zeros(theirs, EG_SHAPE(6, 4)));
    assert_fails(eg_surgery_put_tensor(s, l, "weight", t), EG_EINVAL, "another context");
    eg_tensor_release(t);
    eg_context_free(theirs);
    eg_surgery_free(s);
    eg_module_release(m);
}

/* Two layers of one weight: `to` has that of `from`. */
static void tie(eg_module *to, eg_module *from)
{
    eg_tensor_release(EG_CAST(to, eg_linear)->weight);
    EG_CAST(to, eg_linear)->weight = eg_tensor_keep(EG_CAST(from, eg_linear)->weight);
}

static void adapters_of_tied_weights(void **state)
{
    (void)state;
    eg_module *a = eg_linear(ctx, 4, 4), *b = eg_linear(ctx, 4, 4);
    tie(b, a);
    eg_module *m = eg_sequential(ctx, EG_MODULES(a, eg_relu(ctx), b));
    uint64_t before = fingerprint(m, NULL);
    eg_surgery *s = eg_surgery_new(m, .inputs = EG_SHAPES(EG_SHAPE(1, 4)));
    assert_ok(eg_surgery_apply(s, eg_low_rank(ctx), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_false(EG_CAST(a, eg_linear)->weight->requires_grad);
    assert_ok(eg_surgery_undo(s));
    assert_true(fingerprint(m, NULL) == before);
    eg_surgery_free(s);
    eg_module_release(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SURGERY_TEST(savepoints_end_with_their_commit),
        SURGERY_TEST(parameters_added_after_a_check_stay),
        SURGERY_TEST(tensors_are_checked),
        SURGERY_TEST(adapters_of_tied_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

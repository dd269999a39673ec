/*
 * Modules offered as they run, and checks that hold for any size of a batch.
 */
#include "surgery_support.h"

typedef struct backwards {
    eg_module base;
    eg_module *idle, *head, *stem;
} backwards;

/* Registered first, but run last; and one that never runs. */
static eg_tensor *backwards_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    const backwards *b = (const backwards *)self;
    (void)n_in;
    return eg_call(b->head, eg_call(b->stem, in[0]));
}

static eg_status backwards_build(eg_module *self)
{
    backwards *b = (backwards *)self;
    EG_SLOT(b, idle, eg_linear(self->ctx, 1, 1));
    EG_SLOT(b, head, eg_sequential(self->ctx, EG_MODULES(eg_linear(self->ctx, 6, 4), eg_linear(self->ctx, 4, 2))));
    EG_SLOT(b, stem, eg_linear(self->ctx, 4, 6));
    return eg_module_status(self);
}

static EG_CLASS(backwards, .build = backwards_build, .forward = backwards_forward);

static void assert_order(bool in_order_of_execution, const char *const *paths)
{
    eg_module *m = eg_new(backwards, ctx);
    assert_made(m);
    eg_surgery *s =
        eg_surgery_new(m, .inputs = EG_SHAPES(EG_SHAPE(2, 4)), .in_order_of_execution = in_order_of_execution);
    assert_made(s);
    assert_ok(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_linear_class, .replace = same_linear}), false));
    assert_int_equal(eg_surgery_size(s), 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(eg_surgery_at(s, i)->path, paths[i]);
        assert_int_equal(eg_surgery_at(s, i)->index, i);
    }
    eg_surgery_free(s);
    eg_module_release(m);
}

static void modules_are_offered_as_they_run(void **state)
{
    (void)state;
    assert_order(false, (const char *const[]){"idle", "head.0", "head.1", "stem"});
    assert_order(true, (const char *const[]){"stem", "head.0", "head.1", "idle"});
}

/* Puts what it gets in rows, of which there are two. */
static eg_tensor *two_rows_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)self;
    (void)n_in;
    return eg_reshape(in[0], EG_SHAPE(2, 4));
}

typedef struct two_rows {
    eg_module base;
} two_rows;

static EG_CLASS(two_rows, .forward = two_rows_forward);

static eg_module *to_two_rows(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_new(two_rows, m->ctx);
}

static void any_batch_is_checked(void **state)
{
    (void)state;
    for (int any = 0; any < 2; any++) {
        eg_module *m = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 4, 4), eg_relu(ctx)));
        eg_surgery *s = eg_surgery_new(m, .inputs = EG_SHAPES(EG_SHAPE(2, 4)), .any_batch = any != 0);
        assert_ok(eg_surgery_check(s));
        assert_ok(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_relu_class, .replace = to_two_rows}), false));
        if (any)
            assert_fails(eg_surgery_check(s), EG_ESHAPE, "would no longer run on one sample more");
        else
            assert_ok(eg_surgery_check(s));
        eg_surgery_free(s);
        eg_module_release(m);
    }
    eg_module *m = eg_new(two_rows, ctx);
    eg_surgery *s = eg_surgery_new(m, .inputs = EG_SHAPES(EG_SHAPE(2, 4)), .any_batch = true);
    assert_fails(eg_surgery_check(s), EG_ESHAPE, "does not run on one sample more, also without the surgery");
    eg_surgery_free(s);
    eg_module_release(m);
}

static void both_need_inputs(void **state)
{
    (void)state;
    eg_module *m = eg_relu(ctx);
    assert_refused(eg_surgery_new(m, .any_batch = true), EG_EINVAL, "any_batch has to run the model");
    assert_refused(eg_surgery_new(m, .in_order_of_execution = true), EG_EINVAL, "in_order_of_execution has to run");
    eg_module_release(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SURGERY_TEST(modules_are_offered_as_they_run),
        SURGERY_TEST(any_batch_is_checked),
        SURGERY_TEST(both_need_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

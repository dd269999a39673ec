/*
 * Policies that ask for the shapes at a module.
 */
#include "surgery_support.h"

/* A strided convolution in the place of a pool, whose channels only a run tells. */
static eg_module *to_conv(void *payload, eg_module *m, size_t index)
{
    const eg_pool2d *pool = EG_CAST(m, eg_max_pool2d);
    eg_shape in;
    (void)index;
    if (eg_surgery_shapes_of(payload, m, &in, NULL) != EG_OK)
        return NULL;
    return eg_conv2d(m->ctx, in.dims[1], in.dims[1], pool->kernel_size, .stride = pool->stride);
}

static eg_module *make_net(void)
{
    return eg_sequential(ctx,
                         EG_MODULES(eg_conv2d(ctx, 3, 8, 3, .padding = 1), eg_max_pool2d(ctx, 2),
                                    eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 8, 12, 1), eg_max_pool2d(ctx, 2))),
                                    eg_flatten(ctx), eg_linear(ctx, 48, 2)));
}

static void a_policy_knows_shapes(void **state)
{
    (void)state;
    eg_module *m = make_net();
    eg_surgery *s = eg_surgery_new(m, .inputs = EG_SHAPES(EG_SHAPE(2, 3, 8, 8)));
    assert_ok(
        eg_surgery_replace(s, EG_POLICIES({.cls = &eg_max_pool2d_class, .replace = to_conv, .payload = s}), false));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(eg_surgery_size(s), 2);
    assert_int_equal(((const eg_conv2d *)eg_module_find(m, "1"))->in_channels, 8);
    assert_int_equal(((const eg_conv2d *)eg_module_find(m, "2.1"))->in_channels, 12);
    eg_surgery_free(s);
    eg_module_release(m);
}

static void assert_shape(eg_shape shape, eg_shape expected)
{
    assert_true(eg_shape_equal(shape, expected));
}

/* Of containers too, of what is planned, and not of what was. */
static void shapes_are_of_the_plan(void **state)
{
    (void)state;
    eg_module *m = make_net(), *block = eg_module_find(m, "2"), *fresh = eg_conv2d(ctx, 3, 8, 4, .stride = 4);
    eg_module_retain(fresh);
    eg_surgery *s = eg_surgery_new(m, .inputs = EG_SHAPES(EG_SHAPE(2, 3, 8, 8)));
    eg_shape in, out;
    assert_ok(eg_surgery_shapes_of(s, block, &in, &out));
    assert_shape(in, EG_SHAPE(2, 8, 4, 4));
    assert_shape(out, EG_SHAPE(2, 12, 2, 2));
    assert_ok(eg_surgery_shapes_of(s, m, &in, &out));
    assert_shape(in, EG_SHAPE(2, 3, 8, 8));
    assert_shape(out, EG_SHAPE(2, 2));
    assert_int_equal(eg_surgery_shapes_of(s, fresh, &in, &out), EG_ENOENT);
    assert_recorded(EG_ENOENT, "not in the model");
    assert_ok(eg_surgery_put(s, eg_module_find(m, "0"), fresh, NULL));
    assert_int_equal(eg_surgery_shapes_of(s, block, &in, &out), EG_ESHAPE); /* 1 by 1 is too small to be pooled twice */
    eg_error_clear();
    eg_surgery_drop(s);
    assert_ok(eg_surgery_shapes_of(s, block, NULL, &out));
    assert_shape(out, EG_SHAPE(2, 12, 2, 2));
    assert_ok(eg_surgery_put(s, eg_module_find(m, "0"), eg_conv2d(ctx, 3, 8, 1), NULL)); /* of as many edits */
    assert_ok(eg_surgery_shapes_of(s, block, &in, NULL));
    assert_shape(in, EG_SHAPE(2, 8, 4, 4));
    eg_surgery_free(s);
    eg_module_release(fresh);
    eg_module_release(m);
}

static void what_cannot_be_known_is_said(void **state)
{
    (void)state;
    eg_module *m = make_net();
    eg_surgery *s = eg_surgery_new(m);
    eg_shape shape;
    assert_int_equal(eg_surgery_shapes_of(s, m, &shape, NULL), EG_EINVAL);
    assert_recorded(EG_EINVAL, "give the surgery .inputs");
    assert_int_equal(eg_surgery_shapes_of(NULL, m, &shape, NULL), EG_EINVAL);
    assert_recorded(EG_EINVAL, "surgery");
    assert_int_equal(eg_surgery_shapes_of(s, NULL, &shape, NULL), EG_EINVAL);
    assert_recorded(EG_EINVAL, "module");
    eg_surgery_free(s);
    eg_module_release(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SURGERY_TEST(a_policy_knows_shapes),
        SURGERY_TEST(shapes_are_of_the_plan),
        SURGERY_TEST(what_cannot_be_known_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Counting, row by row of what the reference does (1.3), and its example with what it means (1.7.1).
 */
#include "surgery_support.h"

#define LIST(...) EG_CLASSES(__VA_ARGS__)

static eg_module *linear(void)
{
    return eg_linear(ctx, 4, 4);
}

static eg_module *leaf_alone(void)
{
    return linear();
}

static eg_module *one_in_a_sequence(void)
{
    return eg_sequential(ctx, EG_MODULES(linear()));
}

static eg_module *in_two_parents(void)
{
    eg_module *l = linear();
    return eg_sequential(
        ctx, EG_MODULES(eg_sequential(ctx, EG_MODULES(l)), eg_sequential(ctx, EG_MODULES(eg_module_retain(l)))));
}

static eg_module *twice_in_one_parent(void)
{
    eg_module *l = linear();
    return eg_sequential(ctx, EG_MODULES(l, eg_module_retain(l)));
}

/* The doc example says (Linear, Linear, ReLU): an instance of ReLU, which its own text forgets. */
static eg_module *example(void)
{
    return eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 16, 32), eg_linear(ctx, 32, 64), eg_relu(ctx)));
}

static eg_module *example_without_relu(void)
{
    return eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 16, 32), eg_linear(ctx, 32, 64)));
}

static eg_module *nested(void)
{
    return eg_sequential(ctx, EG_MODULES(eg_sequential(ctx, EG_MODULES(eg_relu(ctx), linear())), linear()));
}

static const eg_class special_class = {
    .struct_size = sizeof(eg_class), .name = "Special", .super = &eg_linear_class, .instance_size = sizeof(eg_linear)};

static eg_module *with_a_subclass(void)
{
    eg_linear prototype = {.base.ctx = ctx, 4, 4};
    return eg_sequential(ctx, EG_MODULES(eg_module_new(&special_class, sizeof(prototype), &prototype), linear()));
}

static void counts_as_the_reference(void **state)
{
    (void)state;
    const struct {
        const char *row;
        eg_module *(*make)(void);
        eg_class_list classes;
        int64_t count;
    } rows[] = {
        {"1.3 recursive over children", nested, LIST(&eg_linear_class), 2},
        {"1.3 isinstance: subclasses count", with_a_subclass, LIST(&eg_linear_class), 2},
        {"1.3 the subclass alone", with_a_subclass, LIST(&special_class), 1},
        {"1.3 several classes", nested, LIST(&eg_linear_class, &eg_relu_class), 3},
        {"1.3 a module of two listed classes counts once", with_a_subclass, LIST(&special_class, &eg_linear_class), 2},
        {"1.3 no classes", nested, {NULL, 0}, 0},
        {"1.3 the root is never counted", leaf_alone, LIST(&eg_linear_class), 0},
        {"1.3 Sequential(Linear), class Module", one_in_a_sequence, LIST(&eg_module_class), 1},
        {"1.3 a leaf of two parents: 1, as version D", in_two_parents, LIST(&eg_linear_class), 1},
        {"1.3 a leaf twice under one parent", twice_in_one_parent, LIST(&eg_linear_class), 1},
        {"1.3 all below it, once each", in_two_parents, LIST(&eg_module_class), 3},
        {"1.7.1 the example, Linear", example, LIST(&eg_linear_class), 2},
        {"1.7.1 the example, (Linear, ReLU)", example, LIST(&eg_linear_class, &eg_relu_class), 3},
        {"1.7.1 without an instance of ReLU", example_without_relu, LIST(&eg_linear_class, &eg_relu_class), 2},
    };
    for (size_t i = 0; i < EG_COUNT(rows); i++) {
        eg_module *m = rows[i].make();
        assert_made(m);
        int64_t count = eg_count_module_instances(m, rows[i].classes);
        if (count != rows[i].count)
            fail_msg("%s: %lld, expected %lld", rows[i].row, (long long)count, (long long)rows[i].count);
        eg_module_release(m);
    }
}

/* 1.3: each pair of a diamond doubles the number of paths; each module is met once. */
static void deep_diamonds_take_no_time(void **state)
{
    (void)state;
    eg_module *m = linear();
    for (int i = 0; i < 200; i++) {
        eg_module *left = eg_sequential(ctx, EG_MODULES(m)),
                  *right = eg_sequential(ctx, EG_MODULES(eg_module_retain(m)));
        m = eg_sequential(ctx, EG_MODULES(left, right));
    }
    assert_made(m);
    assert_int_equal(eg_count_module_instances(m, LIST(&eg_linear_class)), 1);
    assert_int_equal(eg_count_module_instances(m, LIST(&eg_module_class)), 600);
    eg_module_release(m);
}

/* 1.3: children that are None are skipped. */
static void empty_slots_are_skipped(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(linear(), linear()));
    eg_module **slot = eg__slot_child(&m->slots[0]), *was = *slot;
    *slot = NULL;
    assert_int_equal(eg_count_module_instances(m, LIST(&eg_linear_class)), 1);
    *slot = was;
    eg_module_release(m);
}

static void refuses(void **state)
{
    (void)state;
    assert_int_equal(eg_count_module_instances(NULL, LIST(&eg_linear_class)), -1);
    assert_recorded(EG_EINVAL, "model");
    eg_module *m = linear();
    assert_int_equal(eg_count_module_instances(m, (eg_class_list){NULL, 2}), -1);
    assert_recorded(EG_EINVAL, "list of classes");
    eg_module_release(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SURGERY_TEST(counts_as_the_reference),
        SURGERY_TEST(deep_diamonds_take_no_time),
        SURGERY_TEST(empty_slots_are_skipped),
        SURGERY_TEST(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

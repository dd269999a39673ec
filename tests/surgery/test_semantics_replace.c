/*
 * Replacing, row by row of what the reference does or fails at (1.2, 1.4).
 */
#include "surgery_support.h"

static const eg_class special_class = {
    .struct_size = sizeof(eg_class), .name = "Special", .super = &eg_linear_class, .instance_size = sizeof(eg_linear)};

static eg_module *linear(void)
{
    return eg_linear(ctx, 4, 4);
}

static eg_module *special(void)
{
    eg_linear prototype = {.base.ctx = ctx, 4, 4};
    return eg_module_new(&special_class, sizeof(prototype), &prototype);
}

static eg_module *child(eg_module *m, size_t i)
{
    return *eg__slot_child(&m->slots[i]);
}

/* What is replaced, as text: the paths with the indices, "0:0 2.1:1". */
static void assert_replaced(eg_surgery *s, const char *expected)
{
    char text[256] = "";
    for (size_t i = 0; i < eg_surgery_size(s); i++) {
        const eg_replaced *r = eg_surgery_at(s, i);
        size_t len = strlen(text);
        snprintf(text + len, sizeof(text) - len, "%s%s:%zu", i > 0 ? " " : "", r->path, r->index);
    }
    assert_string_equal(text, expected);
}

static eg_module *second_only(void *payload, eg_module *m, size_t index)
{
    return index == 1 ? to_gelu(payload, m, index) : NULL;
}

static eg_module *same(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_module_retain(m);
}

static eg_module *to_pair(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_sequential(m->ctx, EG_MODULES(eg_linear(m->ctx, 4, 4), eg_relu(m->ctx)));
}

/* relu, linear, block(relu, special), linear */
static eg_module *net(void)
{
    return eg_sequential(
        ctx, EG_MODULES(eg_relu(ctx), linear(), eg_sequential(ctx, EG_MODULES(eg_relu(ctx), special())), linear()));
}

static void rows_of_the_table(void **state)
{
    (void)state;
    const struct {
        const char *row;
        eg_policies policies;
        bool recurse;
        const char *replaced;
    } rows[] = {
        {"1.2 NULL leaves it", EG_POLICIES({.cls = &eg_relu_class, .replace = to_nothing}), false, ""},
        {"1.2 the same object is a replacement", EG_POLICIES({.cls = &eg_relu_class, .replace = same}), false,
         "0:0 2.0:1"},
        {"1.4 type match: subclasses", EG_POLICIES({.cls = &eg_linear_class, .replace = same_linear}), false,
         "1:0 2.1:1 3:2"},
        {"1.4 type match: exact on demand",
         EG_POLICIES({.cls = &eg_linear_class, .replace = same_linear, .exact = true}), false, "1:0 3:1"},
        {"1.4 order: parents first, as registered",
         EG_POLICIES({.replace = same_linear, .cls = &eg_linear_class}, {.replace = to_gelu, .cls = &eg_relu_class}),
         false, "0:0 1:0 2.0:1 2.1:1 3:2"},
        {"1.4 index counts matches, also those left", EG_POLICIES({.cls = &eg_relu_class, .replace = second_only}),
         false, "2.0:1"},
        {"1.4 indices given go on", EG_POLICIES({.cls = &eg_relu_class, .replace = to_gelu, .index = 5}), false,
         "0:5 2.0:6"},
        {"1.4 the most specific class wins",
         EG_POLICIES({.cls = &eg_linear_class, .replace = to_nothing}, {.cls = &special_class, .replace = to_gelu}),
         false, "2.1:0"},
        {"1.4 several match: none then hit",
         EG_POLICIES({.cls = &eg_relu_class, .replace = to_nothing}, {.cls = &eg_relu_class, .replace = to_gelu}),
         false, "0:0 2.0:1"},
        {"1.4 several match: hit then none",
         EG_POLICIES({.cls = &eg_relu_class, .replace = to_gelu}, {.cls = &eg_relu_class, .replace = to_nothing}),
         false, "0:0 2.0:1"},
        {"1.4 what is below a replaced one is not offered",
         EG_POLICIES({.cls = &eg_sequential_class, .replace = to_pair}, {.cls = &eg_relu_class, .replace = to_gelu}),
         false, "0:0 2:0"},
        {"1.4 with recursion the new one and what is below it are, after all others",
         EG_POLICIES({.cls = &eg_sequential_class, .at = "2", .replace = same},
                     {.cls = &eg_relu_class, .replace = to_gelu}),
         true, "0:0 2:0 2.0:1"},
        {"1.4 a wrapper of the original ends", EG_POLICIES({.cls = &eg_linear_class, .exact = true, .replace = wrap}),
         true, "1:0 3:1"},
    };
    for (size_t i = 0; i < EG_COUNT(rows); i++) {
        eg_module *m = net();
        print_message("%s\n", rows[i].row);
        eg_surgery *s = eg_replace_module_classes(m, rows[i].policies, .recurse_on_replacements = rows[i].recurse);
        assert_made(s);
        assert_replaced(s, rows[i].replaced);
        eg_surgery_free(s);
        eg_module_release(m);
    }
}

/* 1.4 two hits: an error that names both, and nothing is changed. */
static void two_hits_are_a_conflict(void **state)
{
    (void)state;
    eg_module *m = net();
    uint64_t before = fingerprint(m, NULL);
    assert_refused(
        eg_replace_module_classes(m, EG_POLICIES({.cls = &eg_relu_class, .replace = to_gelu, .name = "first"},
                                                 {.cls = &eg_relu_class, .replace = to_sigmoid, .name = "second"})),
        EG_EINVAL, "policies 'first' and 'second' both replace '0', a ReLU");
    assert_true(fingerprint(m, NULL) == before);
    eg_module_release(m);
}

/* 1.4 the counter is written back, and a plan that fails leaves it. */
static void counters_continue(void **state)
{
    (void)state;
    eg_module *m = net();
    eg_policies p = EG_POLICIES({.cls = &eg_relu_class, .replace = to_gelu, .index = 5});
    eg_surgery *s = eg_surgery_new(m);
    assert_ok(eg_surgery_replace(s, p, false));
    assert_int_equal(p.items[0].index, 7);
    assert_int_equal(p.items[0].n_replaced, 2);
    eg_surgery_free(s);
    eg_module_release(m);
}

/* 1.4 shared by two parents, and under two names of one: replaced once, in all slots, the tie kept. */
static void shared_modules_stay_shared(void **state)
{
    (void)state;
    eg_module *l = linear();
    eg_module *m =
        eg_sequential(ctx, EG_MODULES(l, eg_module_retain(l), eg_sequential(ctx, EG_MODULES(eg_module_retain(l)))));
    eg_surgery *s = eg_replace_module_classes(m, EG_POLICIES({.cls = &eg_linear_class, .replace = to_gelu}));
    assert_made(s);
    assert_replaced(s, "0:0");
    assert_ptr_equal(child(m, 0)->cls, &eg_gelu_class);
    assert_ptr_equal(child(m, 0), child(m, 1));
    assert_ptr_equal(child(m, 0), child(child(m, 2), 0));
    eg_surgery_free(s);
    eg_module_release(m);
}

/* 1.4 the root: never without .root, replaced where its holder is known. */
static void the_root(void **state)
{
    (void)state;
    eg_module *m = eg_relu(ctx), *was = m;
    eg_policies p = EG_POLICIES({.cls = &eg_relu_class, .replace = to_gelu});
    eg_surgery *s = eg_replace_module_classes(m, p);
    assert_made(s);
    assert_replaced(s, "");
    eg_surgery_free(s);
    s = eg_replace_module_classes(m, p, .root = &m);
    assert_made(s);
    assert_string_equal(eg_surgery_at(s, 0)->path, "");
    assert_ptr_not_equal(m, was);
    assert_ptr_equal(m->cls, &eg_gelu_class);
    assert_ok(eg_surgery_undo(s));
    assert_ptr_equal(m, was);
    eg_surgery_free(s);
    eg_module_release(m);
}

/* 1.4 a policy that wraps what it is given in ever new ones of its own class. */
static eg_module *endless(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_sequential(m->ctx, EG_MODULES(eg_relu(m->ctx)));
}

static void endless_recursion_ends_in_an_error(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_relu(ctx), linear()));
    uint64_t before = fingerprint(m, NULL);
    assert_refused(eg_replace_module_classes(m,
                                             EG_POLICIES({.cls = &eg_relu_class, .replace = endless, .name = "again"}),
                                             .recurse_on_replacements = true),
                   EG_EINVAL, "policy 'again' goes on replacing what was put in: .. -> ReLU -> ReLU");
    assert_true(fingerprint(m, NULL) == before);
    eg_module_release(m);
}

/* 1.4 carried over: mode, requires_grad, hooks, weights, buffers; each can be left out. */
static eg_tensor *count_calls(void *payload, eg_module *m, eg_tensor *t, bool *failed)
{
    (void)m;
    (void)t;
    (void)failed;
    ++*(int *)payload;
    return NULL;
}

static eg_module *same_norm(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_batch_norm2d(m->ctx, 2);
}

static void carries_over(void **state)
{
    (void)state;
    for (unsigned without = 0; without < 32; without++) {
        eg_module *norm = eg_batch_norm2d(ctx, 2), *m = eg_sequential(ctx, EG_MODULES(norm));
        int calls = 0;
        uint64_t id;
        assert_ok(eg_module_add_hook(norm, count_calls, &calls, &id));
        eg_module_set_requires_grad(norm, false);
        eg_module_train(m, false);
        eg_tensor *weight = eg_module_tensor(m, "0.weight"), *mean = eg_module_tensor(m, "0.running_mean");
        eg_surgery *s = eg_replace_module_classes(m, EG_POLICIES({.cls = &eg_batch_norm2d_class, .replace = same_norm}),
                                                  .without = without);
        assert_made(s);
        eg_module *fresh = child(m, 0);
        assert_ptr_not_equal(fresh, norm);
        assert_int_equal(eg_module_tensor(m, "0.weight") == weight, !(without & EG_CARRY_WEIGHTS));
        assert_int_equal(eg_module_tensor(m, "0.running_mean") == mean, !(without & EG_CARRY_BUFFERS));
        assert_int_equal(fresh->training, (without & EG_CARRY_TRAINING) != 0);
        bool frozen = !(without & EG_CARRY_WEIGHTS) || !(without & EG_CARRY_REQUIRES_GRAD);
        assert_int_equal(eg_module_tensor(m, "0.weight")->requires_grad, !frozen);
        assert_non_null(eg_call(m, eg_ones(ctx, EG_SHAPE(1, 2, 3, 3))));
        assert_int_equal(calls, !(without & EG_CARRY_HOOKS));
        if (!(without & EG_CARRY_HOOKS))
            assert_ok(eg_module_remove_hook(fresh, id));
        eg_surgery_free(s);
        eg_module_release(m);
    }
}

/* 1.4 other references: those that are declared follow. 1.4 an error at match k leaves the model. */
static eg_module *fails_at_second(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    return index == 1 ? eg_linear(m->ctx, -1, 1) : eg_gelu(m->ctx);
}

static void references_follow_and_errors_undo(void **state)
{
    (void)state;
    eg_module *m = net(), *held = eg_module_retain(child(m, 0));
    uint64_t before = fingerprint(m, NULL);
    eg_surgery *s = eg_surgery_new(m, .references = EG_REFERENCES(&held, &held));
    assert_fails(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_relu_class, .replace = fails_at_second}), false),
                 EG_EINVAL, "policy 'ReLU' at '2.0'");
    assert_true(fingerprint(m, NULL) == before);
    assert_ok(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_relu_class, .replace = to_gelu}), false));
    assert_ok(eg_surgery_commit(s));
    assert_ptr_equal(held, child(m, 0));
    assert_ptr_equal(held->cls, &eg_gelu_class);
    eg_surgery_free(s);
    eg_module_release(held);
    eg_module_release(m);
}

/* 1.4 device, meta device and DDP; 4.5: a context is what a device is there. A module of another one is refused, and
 * all that is put in, parameters and buffers, is of the model's own, also for a pool, which has no parameters to tell
 * from. There are no modules without numbers here, and no wrappers over processes. */
static eg_module *of_another_context(void *payload, eg_module *m, size_t index)
{
    (void)m;
    (void)index;
    return eg_blur_max_pool2d(payload, 2);
}

static eg_module *blurred(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_blur_max_pool2d(m->ctx, 2);
}

static eg_status is_of_the_context(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    (void)path;
    *(size_t *)payload += kind == EG_SLOT_BUFFER;
    assert_ptr_equal(t->ctx, ctx);
    return EG_OK;
}

static void all_is_of_one_context(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_max_pool2d(ctx, 2), linear()));
    uint64_t before = fingerprint(m, NULL);
    eg_context *other = eg_context_new(.threads = 1);
    assert_refused(eg_replace_module_classes(
                       m, EG_POLICIES({.cls = &eg_max_pool2d_class, .replace = of_another_context, .payload = other})),
                   EG_EINVAL, "made in another context than the model");
    assert_true(fingerprint(m, NULL) == before);
    eg_context_free(other);
    eg_surgery *s = eg_replace_module_classes(m, EG_POLICIES({.cls = &eg_max_pool2d_class, .replace = blurred}));
    assert_made(s);
    size_t n_buffers = 0;
    assert_ok(eg_module_walk_tensors(m, is_of_the_context, &n_buffers));
    assert_int_equal(n_buffers, 1); /* the filter of the blur */
    eg_surgery_free(s);
    eg_module_release(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SURGERY_TEST(rows_of_the_table),
        SURGERY_TEST(two_hits_are_a_conflict),
        SURGERY_TEST(counters_continue),
        SURGERY_TEST(shared_modules_stay_shared),
        SURGERY_TEST(the_root),
        SURGERY_TEST(endless_recursion_ends_in_an_error),
        SURGERY_TEST(carries_over),
        SURGERY_TEST(references_follow_and_errors_undo),
        SURGERY_TEST(all_is_of_one_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

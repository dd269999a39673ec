/*
 * The reference's own tests of its engine (4.1-4.4, 4.20) and the example of its page, corrected where it cannot work
 * (1.7.4).
 */
#include "surgery_support.h"

/* ---- 4.1, 4.2: nested layers. Nested is a Linear that holds another ---- */

typedef struct nested {
    eg_linear base;
    eg_module *submodule;
} nested;

static eg_status nested_build(eg_module *self)
{
    EG_TRY(eg_linear_class.build(self));
    nested *n = (nested *)self;
    eg_module *sub = eg_linear(self->ctx, n->base.in_features, n->base.out_features - 1);
    n->submodule = sub;
    return eg_module_add_child(self, "submodule", &n->submodule, sub);
}

static const eg_class nested_class = {.struct_size = sizeof(eg_class),
                                      .name = "Nested",
                                      .super = &eg_linear_class,
                                      .instance_size = sizeof(nested),
                                      .build = nested_build};

static eg_module *make_nested(const eg_linear *from)
{
    nested prototype = {.base = {.base.ctx = ctx, from->in_features, from->out_features}};
    return eg_module_new(&nested_class, sizeof(prototype), &prototype);
}

/* What was asked, "L32-0": the class's letter, the number of outputs, the index. */
typedef struct log {
    char text[256];
    bool only_first;
} call_log;

static eg_module *nest(void *payload, eg_module *m, size_t index)
{
    call_log *log = payload;
    const eg_linear *l = EG_CAST(m, eg_linear);
    size_t len = strlen(log->text);
    snprintf(log->text + len, sizeof(log->text) - len, "%s%c%lld-%zu", len > 0 ? " " : "", m->cls->name[0],
             (long long)l->out_features, index);
    if (log->only_first)
        return index == 0 ? make_nested(l) : NULL;
    bool wanted = l->out_features == 10 || l->out_features == 9;
    return wanted && !eg_is_a(m, &nested_class) ? make_nested(l) : NULL;
}

static eg_module *to_avg_pool(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_avg_pool2d(m->ctx, 3, .stride = 2);
}

static eg_module *simple(void)
{
    return eg_sequential(ctx, EG_NAMED({"fc1", eg_linear(ctx, 16, 32)}, {"fc2", eg_linear(ctx, 32, 10)},
                                       {"pool", eg_max_pool2d(ctx, 3)}));
}

static bool is_nested(eg_module *m, const char *path)
{
    return eg_is_a(eg_module_find(m, path), &nested_class);
}

static void nested_layers(void **state)
{
    (void)state;
    for (int recurse = 0; recurse < 2; recurse++) {
        call_log log = {.text = ""};
        eg_module *m = simple();
        eg_surgery *s =
            eg_replace_module_classes(m,
                                      EG_POLICIES({.cls = &eg_linear_class, .replace = nest, .payload = &log},
                                                  {.cls = &eg_max_pool2d_class, .replace = to_avg_pool}),
                                      .recurse_on_replacements = recurse == 1);
        assert_made(s);
        assert_false(is_nested(m, "fc1"));
        assert_true(is_nested(m, "fc2"));
        assert_int_equal(is_nested(m, "fc2.submodule"), recurse);
        assert_ptr_equal(eg_module_find(m, "pool")->cls, &eg_avg_pool2d_class);
        if (recurse)
            assert_false(is_nested(m, "fc2.submodule.submodule"));
        assert_string_equal(log.text, recurse ? "L32-0 L10-1 N10-2 L9-3 N9-4 L8-5" : "L32-0 L10-1");
        assert_int_equal(eg_surgery_size(s), 2 + recurse);
        eg_surgery_free(s);
        eg_module_release(m);
    }
}

/* 4.2 */
static void first_index_only(void **state)
{
    (void)state;
    for (int recurse = 0; recurse < 2; recurse++) {
        call_log log = {.only_first = true};
        eg_module *m = simple();
        eg_surgery *s =
            eg_replace_module_classes(m, EG_POLICIES({.cls = &eg_linear_class, .replace = nest, .payload = &log}),
                                      .recurse_on_replacements = recurse == 1);
        assert_made(s);
        assert_true(is_nested(m, "fc1"));
        assert_false(is_nested(m, "fc2"));
        assert_false(is_nested(m, "fc1.submodule"));
        eg_surgery_free(s);
        eg_module_release(m);
    }
}

/* 4.3 */
static void a_policy_without_matches(void **state)
{
    (void)state;
    eg_module *m = simple();
    uint64_t before = fingerprint(m, NULL);
    size_t asked = 0;
    eg_surgery *s =
        eg_replace_module_classes(m, EG_POLICIES({.cls = &eg_conv2d_class, .replace = to_nothing, .payload = &asked}));
    assert_made(s);
    assert_int_equal(asked, 0);
    assert_int_equal(eg_surgery_size(s), 0);
    assert_true(fingerprint(m, NULL) == before);
    eg_surgery_free(s);
    eg_module_release(m);
}

/* ---- 4.4 and 1.7.4: the example of the page ---- */

static eg_module *conv_to_linear(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_linear(m->ctx, 16, 32);
}

/* The page's rule wants in_features 32, which its own Linear(16, 32) does not have; 16 is what fires. */
static eg_module *widen(void *payload, eg_module *m, size_t index)
{
    call_log *log = payload;
    int64_t in = EG_CAST(m, eg_linear)->in_features;
    size_t len = strlen(log->text);
    snprintf(log->text + len, sizeof(log->text) - len, "%s%lld-%zu", len > 0 ? " " : "", (long long)in, index);
    return in == 16 ? eg_linear(m->ctx, 32, 64) : NULL;
}

static void example_of_the_page(void **state)
{
    (void)state;
    for (int recurse = 0; recurse < 2; recurse++) {
        call_log log = {.text = ""};
        eg_module *m = eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 1, 32, 3), eg_relu(ctx), eg_max_pool2d(ctx, 2),
                                                     eg_flatten(ctx), eg_linear(ctx, 5408, 128), eg_relu(ctx),
                                                     eg_log_softmax(ctx, 1)));
        eg_surgery *s =
            eg_replace_module_classes(m,
                                      EG_POLICIES({.cls = &eg_conv2d_class, .replace = conv_to_linear},
                                                  {.cls = &eg_max_pool2d_class, .replace = to_avg_pool},
                                                  {.cls = &eg_linear_class, .replace = widen, .payload = &log}),
                                      .recurse_on_replacements = recurse == 1);
        assert_made(s);
        assert_int_equal(eg_surgery_size(s), 2 + recurse);
        assert_string_equal(log.text, recurse ? "5408-0 16-1 32-2" : "5408-0");
        const eg_linear *first = EG_CAST(eg_module_find(m, "0"), eg_linear);
        assert_int_equal(first->in_features, recurse ? 32 : 16);
        assert_int_equal(first->out_features, recurse ? 64 : 32);
        assert_ptr_equal(eg_module_find(m, "2")->cls, &eg_avg_pool2d_class);
        eg_surgery_free(s);
        eg_module_release(m);
    }
}

/* ---- 4.20: twice is once ---- */

static void twice_is_once(void **state)
{
    (void)state;
    eg_module *m = simple();
    eg_optimizer *o = eg_adam(m);
    eg_policies p = EG_POLICIES({.cls = &eg_max_pool2d_class, .replace = to_avg_pool});
    eg_surgery *s = eg_replace_module_classes(m, p, .optimizers = EG_OPTIMIZERS(o));
    assert_made(s);
    uint64_t once = fingerprint(m, o);
    eg_surgery *again = eg_replace_module_classes(m, p, .optimizers = EG_OPTIMIZERS(o));
    assert_made(again);
    assert_int_equal(eg_surgery_size(again), 0);
    assert_true(fingerprint(m, o) == once);
    eg_surgery_free(again);
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SURGERY_TEST(nested_layers),       SURGERY_TEST(first_index_only), SURGERY_TEST(a_policy_without_matches),
        SURGERY_TEST(example_of_the_page), SURGERY_TEST(twice_is_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

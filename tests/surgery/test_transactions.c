/*
 * Transactions: savepoints, undo, redo, what refuses and with which words.
 */
#include "surgery_support.h"

#include "engraft/nas.h"

static eg_module *net(void)
{
    return eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 4, 6), eg_relu(ctx),
                                         eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 6, 6), eg_relu(ctx))),
                                         eg_linear(ctx, 6, 2)));
}

#define RELUS EG_POLICIES({.cls = &eg_relu_class, .replace = to_gelu})
#define GELUS EG_POLICIES({.cls = &eg_gelu_class, .replace = to_sigmoid})

static void savepoints_nest(void **state)
{
    (void)state;
    eg_module *m = net();
    uint64_t prints[3];
    eg_surgery *s = eg_surgery_new(m);
    prints[0] = fingerprint(m, NULL);
    size_t first = eg_surgery_savepoint(s);
    assert_ok(eg_surgery_replace(s, RELUS, false));
    assert_ok(eg_surgery_commit(s));
    prints[1] = fingerprint(m, NULL);
    size_t second = eg_surgery_savepoint(s);
    assert_ok(eg_surgery_replace(s, GELUS, false));
    assert_ok(eg_surgery_commit(s));
    assert_ok(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_linear_class, .replace = same_linear}), false));
    assert_int_equal(eg_surgery_size(s), 7);
    assert_ok(eg_surgery_rollback(s, second)); /* one commit and one plan */
    assert_true(fingerprint(m, NULL) == prints[1]);
    assert_int_equal(eg_surgery_size(s), 2);
    assert_ok(eg_surgery_replace(s, GELUS, false)); /* it can be gone on from there, and gone back to again */
    assert_ok(eg_surgery_commit(s));
    assert_ok(eg_surgery_rollback(s, second));
    assert_true(fingerprint(m, NULL) == prints[1]);
    assert_ok(eg_surgery_rollback(s, first));
    assert_true(fingerprint(m, NULL) == prints[0]);
    assert_int_equal(eg_surgery_size(s), 0);
    assert_fails(eg_surgery_rollback(s, second), EG_EINVAL, "has ended");
    eg_surgery_free(s);
    eg_module_release(m);
}

static void undo_redo_drop(void **state)
{
    (void)state;
    eg_module *m = net();
    eg_optimizer *o = eg_adam(m);
    uint64_t before = fingerprint(m, o);
    eg_surgery *s = eg_surgery_new(m, .optimizers = EG_OPTIMIZERS(o));
    assert_fails(eg_surgery_undo(s), EG_EINVAL, "nothing is committed");
    assert_ok(eg_surgery_commit(s)); /* of nothing */
    assert_fails(eg_surgery_undo(s), EG_EINVAL, "nothing is committed");
    assert_ok(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_linear_class, .replace = same_linear}), false));
    assert_false(eg_surgery_at(s, 0)->committed);
    assert_ok(eg_surgery_commit(s));
    assert_true(eg_surgery_at(s, 0)->committed);
    uint64_t after = fingerprint(m, o);
    for (int i = 0; i < 3; i++) {
        assert_ok(eg_surgery_undo(s));
        assert_true(fingerprint(m, o) == before);
        assert_false(eg_surgery_at(s, 0)->committed);
        assert_ok(eg_surgery_commit(s));
        assert_true(fingerprint(m, o) == after);
    }
    assert_ok(eg_surgery_undo(s));
    eg_surgery_drop(s);
    assert_int_equal(eg_surgery_size(s), 0);
    assert_ok(eg_surgery_commit(s));
    assert_true(fingerprint(m, o) == before);
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m);
}

static void foreign_changes_stop_undo(void **state)
{
    (void)state;
    eg_module *m = net();
    eg_surgery *s = eg_replace_module_classes(m, RELUS);
    assert_made(s);
    eg_module **slot = eg__slot_child(&m->slots[1]), *mine = eg_tanh(ctx), *theirs = *slot;
    *slot = mine;
    uint64_t changed = fingerprint(m, NULL);
    assert_fails(eg_surgery_undo(s), EG_EINVAL, "'1' of Sequential '' was changed");
    assert_true(fingerprint(m, NULL) == changed);
    *slot = theirs;
    assert_ok(eg_surgery_undo(s));
    *slot = mine; /* what is planned again refuses likewise */
    eg_module *relu = eg_surgery_at(s, 0)->old;
    assert_fails(eg_surgery_commit(s), EG_EINVAL, "was changed");
    assert_ptr_equal(*slot, mine);
    *slot = relu;
    eg_surgery_free(s);
    eg_module_release(mine);
    eg_module_release(m);
}

static void added_parameters_stop_undo(void **state)
{
    (void)state;
    eg_module *m = net(), *other = eg_linear(ctx, 2, 2);
    eg_optimizer *o = eg_adam(m);
    eg_surgery *s = eg_replace_module_classes(m, RELUS, .optimizers = EG_OPTIMIZERS(o));
    assert_made(s);
    assert_ok(eg_optimizer_add_module(o, "other.", other, NULL));
    uint64_t changed = fingerprint(m, o);
    assert_fails(eg_surgery_undo(s), EG_EINVAL, "parameters were added");
    assert_true(fingerprint(m, o) == changed);
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(other);
    eg_module_release(m);
}

static void idle_policies_are_noted(void **state)
{
    (void)state;
    eg_module *m = net();
    eg_surgery *s = eg_surgery_new(m);
    assert_ok(eg_surgery_replace(s,
                                 EG_POLICIES({.cls = &eg_conv2d_class, .replace = to_gelu},
                                             {.cls = &eg_relu_class, .at = "1", .replace = to_nothing}),
                                 false));
    assert_string_equal(eg_surgery_note_at(s, 0), "policy 'Conv2d' matched no module");
    assert_string_equal(eg_surgery_note_at(s, 1), "policy 'ReLU at 1' was asked for 1 module and replaced none");
    assert_null(eg_surgery_note_at(s, 2));
    assert_fails(eg_surgery_note(NULL, "x"), EG_EINVAL, "surgery");
    eg_surgery_free(s);
    eg_module_release(m);
}

static void checks_name_what_no_longer_fits(void **state)
{
    (void)state;
    eg_module *m = net();
    uint64_t before = fingerprint(m, NULL);
    eg_surgery *s = eg_surgery_new(m, .inputs = EG_SHAPES(EG_SHAPE(3, 4)));
    assert_ok(eg_surgery_put(s, *eg__slot_child(&m->slots[0]), eg_linear(ctx, 4, 5), "narrower"));
    assert_int_equal(eg_surgery_check(s), EG_ESHAPE);
    const char *said = eg_error_last()->message;
    if (!strstr(said, "would no longer run") || !strstr(said, "2.0") || !strstr(said, "5 features") ||
        !strstr(said, "expects 6"))
        fail_msg("message \"%s\" does not name the module and both sizes", said);
    eg_error_clear();
    assert_int_equal(eg_surgery_commit(s), EG_ESHAPE);
    eg_error_clear();
    assert_true(fingerprint(m, NULL) == before);
    eg_surgery_free(s);
    eg_module_release(m);
}

static eg_tensor *sees_nothing(void *payload, eg_module *m, eg_tensor *t, bool *failed)
{
    (void)payload;
    (void)m;
    (void)t;
    (void)failed;
    return NULL;
}

static void wrapped_modules_keep_their_hooks(void **state)
{
    (void)state;
    eg_module *m = net(), *relu = *eg__slot_child(&m->slots[1]);
    uint64_t id;
    assert_ok(eg_module_add_hook(relu, sees_nothing, NULL, &id));
    eg_surgery *s = eg_replace_module_classes(m, EG_POLICIES({.cls = &eg_relu_class, .at = "1", .replace = wrap}));
    assert_made(s);
    assert_int_equal((*eg__slot_child(&m->slots[1]))->n_hooks, 0);
    assert_ok(eg_module_remove_hook(relu, id));
    eg_surgery_free(s);
    eg_module_release(m);
}

static void cycles_are_refused(void **state)
{
    (void)state;
    eg_module *m = net(), *block = *eg__slot_child(&m->slots[2]);
    uint64_t before = fingerprint(m, NULL);
    eg_surgery *s = eg_surgery_new(m);
    eg_module *inner = *eg__slot_child(&block->slots[1]);
    assert_fails(eg_surgery_put(s, inner, eg_sequential(ctx, EG_MODULES(eg_module_retain(block))), NULL), EG_EINVAL,
                 "contains itself");
    assert_int_equal(eg_surgery_size(s), 0);
    assert_fails(eg_surgery_replace(s, EG_POLICIES({.cls = NULL}), false), EG_EINVAL, "no function 'replace'");
    assert_fails(eg_surgery_put(s, m, eg_relu(ctx), NULL), EG_EINVAL, ".root");
    eg_module *stranger = eg_relu(ctx);
    assert_fails(eg_surgery_put(s, stranger, eg_relu(ctx), NULL), EG_ENOENT, "not in the model");
    assert_true(fingerprint(m, NULL) == before);
    eg_module_release(stranger);
    eg_surgery_free(s);
    eg_module_release(m);
}

/* A failure that a predicate records and lives with is not the policy's. */
static bool tries_in_vain(void *payload, eg_module *m, const char *path)
{
    (void)payload;
    (void)path;
    return EG_CAST(m, eg_conv2d) == NULL;
}

static void failures_of_predicates_do_not_count(void **state)
{
    (void)state;
    eg_module *m = net();
    size_t asked = 0;
    eg_surgery *s = eg_replace_module_classes(
        m, EG_POLICIES({.cls = &eg_relu_class, .when = tries_in_vain, .replace = to_nothing, .payload = &asked}));
    assert_made(s);
    assert_int_equal(asked, 2);
    assert_int_equal(eg_error_last()->code, EG_OK);
    eg_surgery_free(s);
    eg_module_release(m);
}

static void bound_modules_are_refused(void **state)
{
    (void)state;
    eg_module *choice = eg_layer_choice(ctx, EG_CHOICES({"a", eg_relu(ctx)}, {"b", eg_gelu(ctx)}), .key = "k");
    eg_module *m = eg_sequential(ctx, EG_MODULES(choice, eg_linear(ctx, 4, 4)));
    assert_made(m);
    eg_mutator *mutator = eg_random_mutator_new(m);
    assert_made(mutator);
    uint64_t before = fingerprint(m, NULL);
    assert_refused(eg_replace_module_classes(m, EG_POLICIES({.cls = &eg_layer_choice_class, .replace = to_gelu})),
                   EG_EINVAL, "bound to a mutator");
    assert_true(fingerprint(m, NULL) == before);
    eg_mutator_detach(mutator);
    eg_module_release(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SURGERY_TEST(savepoints_nest),
        SURGERY_TEST(undo_redo_drop),
        SURGERY_TEST(foreign_changes_stop_undo),
        SURGERY_TEST(added_parameters_stop_undo),
        SURGERY_TEST(idle_policies_are_noted),
        SURGERY_TEST(checks_name_what_no_longer_fits),
        SURGERY_TEST(wrapped_modules_keep_their_hooks),
        SURGERY_TEST(cycles_are_refused),
        SURGERY_TEST(failures_of_predicates_do_not_count),
        SURGERY_TEST(bound_modules_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

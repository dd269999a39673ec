/*
 * Differences of models and of surgeries: golden texts, names of tensors, what became of what modules had.
 */
#include "support.h"

#include "engraft/layers.h"
#include "engraft/surgery_report.h"

static eg_context *ctx;

static int setup(void **state)
{
    (void)state;
    eg_error_clear();
    ctx = eg_context_new(.seed = 1, .threads = 1, .backend = "ref");
    return ctx == NULL;
}

static int teardown(void **state)
{
    (void)state;
    size_t left = eg_context_get_stats(ctx).bytes_in_use;
    eg_context_free(ctx);
    return left != 0;
}

static eg_module *small_net(void)
{
    return eg_sequential(ctx, EG_NAMED({"conv", eg_conv2d(ctx, 3, 8, 3, .padding = 1)}, {"relu", eg_relu(ctx)},
                                       {"pool", eg_global_avg_pool2d(ctx)}, {"head", eg_linear(ctx, 8, 10)}));
}

/* The texts are equal; else both are shown. Frees `text`. */
static void check_text(char *text, const char *expected)
{
    assert_made(text);
    if (strcmp(text, expected) != 0) {
        fprintf(stderr, "got:\n%s\n", text); /* may be longer than a message */
        fail_msg("expected:\n%s", expected);
    }
    eg_free(text);
}

static const eg_model_change *change_at(const eg_model_diff *d, const char *path)
{
    for (size_t i = 0; i < eg_model_diff_size(d); i++) {
        if (strcmp(eg_model_diff_at(d, i)->path, path) == 0)
            return eg_model_diff_at(d, i);
    }
    fail_msg("no change at '%s'", path);
    return NULL;
}

static const eg_key_change *key_named(const eg_model_diff *d, const char *name)
{
    for (size_t i = 0; i < eg_model_diff_n_keys(d); i++) {
        const eg_key_change *k = eg_model_diff_key_at(d, i);
        if (strcmp(k->after != NULL ? k->after : k->before, name) == 0)
            return k;
    }
    fail_msg("no tensor '%s'", name);
    return NULL;
}

/* ---- two models ---- */

static void a_model_and_its_clone_are_alike(void **state)
{
    (void)state;
    eg_module *net = small_net(), *clone = eg_module_clone(net);
    eg_model_diff *d = eg_model_diff_new(net, clone), *same = eg_model_diff_new(net, net);
    assert_made(d);
    assert_int_equal(eg_model_diff_size(d), 0);
    assert_int_equal(eg_model_diff_n_keys(d), 4);
    check_text(eg_model_diff_text(d), "no difference\n");
    check_text(eg_model_diff_text(same), "no difference\n");
    eg_model_diff_free(d);
    eg_model_diff_free(same);
    eg_module_release(clone);
    eg_module_release(net);
}

static void two_models_compared_by_name(void **state)
{
    (void)state;
    eg_module *a = small_net();
    eg_module *b = eg_sequential(ctx, EG_NAMED({"conv", eg_conv2d(ctx, 3, 6, 3, .padding = 1, .no_bias = true)},
                                               {"norm", eg_batch_norm2d(ctx, 6)}, {"relu", eg_gelu(ctx)},
                                               {"pool", eg_global_avg_pool2d(ctx)}, {"fc", eg_linear(ctx, 6, 10)}));
    eg_model_diff *d = eg_model_diff_new(a, b);
    assert_made(d);
    check_text(eg_model_diff_text(d),
               "   module  parameters  change\n"
               "~  conv    224 -> 162  Conv2d: out_channels 8 -> 6, no_bias False -> True\n"
               "+  norm            12  BatchNorm2d(6, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)\n"
               "~  relu             0  ReLU() -> GELU(approximate='none')\n"
               "-  head            90  Linear(in_features=8, out_features=10, bias=True)\n"
               "+  fc              70  Linear(in_features=6, out_features=10, bias=True)\n"
               "\n"
               "   tensor                    shape                         change\n"
               "~  conv.weight               (8, 3, 3, 3) -> (6, 3, 3, 3)  new\n"
               "+  norm.weight               (6)                           new\n"
               "+  norm.bias                 (6)                           new\n"
               "+  norm.running_mean         (6)                           new\n"
               "+  norm.running_var          (6)                           new\n"
               "+  norm.num_batches_tracked  ()                            new\n"
               "+  fc.weight                 (10, 6)                       new\n"
               "+  fc.bias                   (10)                          new\n"
               "-  conv.bias                 (8)                           dropped\n"
               "-  head.weight               (10, 8)                       dropped\n"
               "-  head.bias                 (10)                          dropped\n"
               "\n"
               "modules     5 -> 6 (+20.0 %)\n"
               "parameters  314 -> 244 (-22.3 %)\n"
               "buffers     0 -> 13\n"
               "tensors     0 the same, 0 made from others, 8 new, 4 dropped\n");
    eg_model_diff_free(d);
    eg_module_release(a);
    eg_module_release(b);
}

/* ---- surgeries ---- */

static eg_module *to_gelu(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_gelu(m->ctx);
}

static eg_module *wrap(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_sequential(m->ctx, EG_NAMED({"conv", eg_module_retain(m)}, {"norm", eg_batch_norm2d(m->ctx, 8)}));
}

static eg_module *new_head(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_linear(m->ctx, 8, 5, .no_bias = true);
}

static void a_surgery_golden(void **state)
{
    (void)state;
    eg_module *net = small_net();
    eg_surgery *s = eg_surgery_new(net);
    assert_made(s);
    assert_ok(eg_surgery_replace(s,
                                 EG_POLICIES({.cls = &eg_relu_class, .replace = to_gelu},
                                             {.cls = &eg_conv2d_class, .replace = wrap, .name = "wrap"},
                                             {.cls = &eg_linear_class, .replace = new_head},
                                             {.cls = &eg_dropout_class, .replace = to_gelu}),
                                 false));
    check_text(
        eg_surgery_text(s),
        "3 replacements, 0 committed and 3 planned\n"
        "   0  conv: Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1)) -> Sequential()\n"
        "      by wrap, match 0\n"
        "      kept: parameter weight (as 'conv.weight'), parameter bias (as 'conv.bias'), mode training\n"
        "      new: parameter norm.weight (8), parameter norm.bias (8), buffer norm.running_mean (8), buffer "
        "norm.running_var (8), buffer norm.num_batches_tracked ()\n"
        "   1  relu: ReLU() -> GELU(approximate='none')\n"
        "      by ReLU, match 0\n"
        "      kept: mode training\n"
        "   2  head: Linear(in_features=8, out_features=10, bias=True) -> Linear(in_features=8, out_features=5, "
        "bias=False)\n"
        "      by Linear, match 0\n"
        "      kept: requires_grad weight, mode training\n"
        "      dropped: parameter weight (shape (10, 8) became (5, 8)), parameter bias (no such name in the new "
        "module)\n"
        "      new: parameter weight (5, 8)\n"
        "note: policy 'Dropout' matched no module\n"
        "\n"
        "   module     parameters  change\n"
        "~  conv         224 -> 0  Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1)) -> Sequential()\n"
        ">  conv.conv         224  Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1)), was conv\n"
        "+  conv.norm          16  BatchNorm2d(8, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)\n"
        "~  relu                0  ReLU() -> GELU(approximate='none')\n"
        "~  head         90 -> 40  Linear: out_features 10 -> 5, no_bias False -> True\n"
        "\n"
        "   tensor                         shape              change\n"
        ">  conv.conv.weight               (8, 3, 3, 3)       was conv.weight\n"
        ">  conv.conv.bias                 (8)                was conv.bias\n"
        "+  conv.norm.weight               (8)                new\n"
        "+  conv.norm.bias                 (8)                new\n"
        "+  conv.norm.running_mean         (8)                new\n"
        "+  conv.norm.running_var          (8)                new\n"
        "+  conv.norm.num_batches_tracked  ()                 new\n"
        "~  head.weight                    (10, 8) -> (5, 8)  new\n"
        "-  head.bias                      (10)               dropped\n"
        "\n"
        "modules     5 -> 7 (+40.0 %)\n"
        "parameters  314 -> 280 (-10.8 %)\n"
        "buffers     0 -> 17\n"
        "tensors     2 the same, 0 made from others, 6 new, 2 dropped\n");
    eg_surgery_free(s);
    eg_module_release(net);
}

/* ---- the same in pieces ---- */

static const eg_carried *carried_of(const eg_model_diff *d, size_t i, const char *what, const char *name)
{
    for (size_t k = 0; k < eg_model_diff_n_carried(d, i); k++) {
        const eg_carried *c = eg_model_diff_carried_at(d, i, k);
        if (strcmp(c->what, what) == 0 && strcmp(c->name, name) == 0)
            return c;
    }
    fail_msg("nothing is said of %s '%s'", what, name);
    return NULL;
}

static void check_carried(const eg_model_diff *d, const char *what, const char *name, eg_fate fate, const char *detail)
{
    const eg_carried *c = carried_of(d, 0, what, name);
    assert_string_equal(eg_fate_name(c->fate), eg_fate_name(fate));
    if (detail == NULL)
        assert_null(c->detail);
    else
        assert_string_equal(c->detail, detail);
}

static eg_tensor *pass_on(void *payload, eg_module *m, eg_tensor *t, bool *failed)
{
    (void)payload;
    (void)m;
    (void)t;
    (void)failed;
    return NULL;
}

static void wrapping_moves(void **state)
{
    (void)state;
    eg_module *net = small_net(), *conv = eg_module_find(net, "conv");
    uint64_t id;
    assert_ok(eg_module_add_hook(conv, pass_on, NULL, &id));
    eg_surgery *s = eg_surgery_new(net);
    assert_ok(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_conv2d_class, .replace = wrap}), false));
    for (int committed = 0; committed < 2; committed++) {
        eg_model_diff *d = eg_surgery_diff(s);
        assert_made(d);
        assert_int_equal(eg_model_diff_size(d), 3);
        const eg_model_change *moved = change_at(d, "conv.conv");
        assert_int_equal(moved->kind, EG_CHANGE_MOVED);
        assert_string_equal(moved->was, "conv");
        assert_int_equal(change_at(d, "conv")->kind, EG_CHANGE_MODIFIED);
        assert_int_equal(change_at(d, "conv.norm")->kind, EG_CHANGE_ADDED);
        const eg_key_change *key = key_named(d, "conv.conv.weight");
        assert_int_equal(key->fate, EG_FATE_KEPT);
        assert_string_equal(key->before, "conv.weight");
        check_carried(d, "parameter", "weight", EG_FATE_KEPT, "as 'conv.weight'");
        check_carried(d, "parameter", "norm.weight", EG_FATE_NEW, "(8)");
        check_carried(d, "mode", "training", EG_FATE_KEPT, NULL);
        char number[24];
        snprintf(number, sizeof number, "%llu", (unsigned long long)id);
        check_carried(d, "hook", number, EG_FATE_KEPT, "at 'conv.conv'");
        eg_model_diff_free(d);
        assert_ok(eg_surgery_commit(s));
    }
    eg_surgery_free(s);
    eg_module_release(net);
}

static eg_module *plain_copy(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    eg_module *made = eg_linear(m->ctx, 8, 10);
    eg_module_train(made, false);
    return made;
}

static void what_is_not_carried_is_said(void **state)
{
    (void)state;
    eg_module *net = small_net(), *head = eg_module_find(net, "head");
    uint64_t id;
    assert_ok(eg_module_add_pre_hook(head, pass_on, NULL, &id));
    eg_module_set_requires_grad(head, false);
    eg_surgery *s =
        eg_surgery_new(net, .without = EG_CARRY_WEIGHTS | EG_CARRY_TRAINING | EG_CARRY_REQUIRES_GRAD | EG_CARRY_HOOKS);
    assert_ok(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_linear_class, .replace = plain_copy}), false));
    eg_model_diff *d = eg_surgery_diff(s);
    assert_made(d);
    assert_int_equal(eg_model_diff_size(d), 0); /* the structure is the same */
    check_carried(d, "parameter", "weight", EG_FATE_DROPPED, "as asked for");
    check_carried(d, "mode", "training", EG_FATE_DROPPED, "it is in evaluation mode now");
    check_carried(d, "requires_grad", "weight", EG_FATE_DROPPED, "it is trained now");
    char number[24];
    snprintf(number, sizeof number, "%llu", (unsigned long long)id);
    check_carried(d, "pre-hook", number, EG_FATE_DROPPED, "as asked for");
    const eg_key_change *key = key_named(d, "head.weight");
    assert_int_equal(key->fate, EG_FATE_NEW);
    assert_true(!key->trained_before && key->trained_after);
    eg_model_diff_free(d);
    eg_surgery_free(s);
    eg_module_release(net);
}

/* Half of the columns, in a new layer. */
static void slices_are_conversions(void **state)
{
    (void)state;
    eg_module *net = small_net(), *head = eg_module_find(net, "head");
    eg_surgery *s = eg_surgery_new(net);
    const int64_t rows[] = {0, 2, 4}, columns[] = {1, 3};
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *some = eg_surgery_slice(s, eg_module_tensor(head, "weight"), 0, rows, 3);
    eg_tensor *part = eg_surgery_slice(s, some, 1, columns, 2),
              *bias = eg_surgery_slice(s, eg_module_tensor(head, "bias"), 0, rows, 3);
    eg_module *fresh = eg_linear(ctx, 2, 3);
    eg_surgery *inner = eg_surgery_new(fresh); /* a short way to put tensors into a module */
    assert_ok(eg_surgery_put_tensor(inner, fresh, "weight", part));
    assert_ok(eg_surgery_put_tensor(inner, fresh, "bias", bias));
    assert_ok(eg_surgery_commit(inner));
    eg_surgery_free(inner);
    assert_ok(eg_surgery_put(s, head, fresh, "pruned"));
    eg_model_diff *d = eg_surgery_diff(s);
    assert_made(d);
    const eg_key_change *key = key_named(d, "head.weight");
    assert_int_equal(key->fate, EG_FATE_CONVERTED);
    assert_string_equal(key->before, "head.weight");
    assert_true(eg_shape_equal(key->shape_before, EG_SHAPE(10, 8)) && eg_shape_equal(key->shape_after, EG_SHAPE(3, 2)));
    check_carried(d, "parameter", "weight", EG_FATE_CONVERTED, "into 'weight' (3, 2)");
    char *text = eg_model_diff_text(d);
    assert_non_null(strstr(text, "90 -> 9  Linear: in_features 8 -> 2, out_features 10 -> 3\n"));
    assert_non_null(strstr(text, "(10, 8) -> (3, 2)  made from itself\n"));
    assert_non_null(strstr(text, "tensors     2 the same, 2 made from others, 0 new, 0 dropped\n"));
    eg_free(text);
    eg_model_diff_free(d);
    eg_surgery_free(s);
    eg_tape_end(tape);
    eg_module_release(net);
}

static void freezing_and_taking_out(void **state)
{
    (void)state;
    eg_module *net = small_net();
    eg_surgery *s = eg_surgery_new(net);
    assert_ok(eg_surgery_set_trained(s, eg_module_tensor(net, "conv.weight"), false));
    assert_ok(eg_surgery_put_tensor(s, eg_module_find(net, "head"), "bias", eg_none));
    assert_ok(eg_surgery_commit(s));
    char *text = eg_surgery_text(s);
    check_text(text, "0 replacements, 0 committed and 0 planned\n"
                     "\n"
                     "   tensor       shape         change\n"
                     "~  conv.weight  (8, 3, 3, 3)  the same, no longer trained\n"
                     "-  head.bias    (10)          dropped\n"
                     "\n"
                     "modules     5\n"
                     "parameters  314 -> 304 (-3.2 %)\n"
                     "buffers     0\n"
                     "tensors     3 the same, 0 made from others, 0 new, 1 dropped\n");
    eg_surgery_free(s);
    eg_module_release(net);
}

/* A list without its first layer: the others move up with what is in them. */
static eg_module *shorter(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_sequential(
        m->ctx, EG_MODULES(eg_module_retain(eg_module_find(m, "1")), eg_module_retain(eg_module_find(m, "2"))));
}

static void dropping_a_layer_moves_the_others(void **state)
{
    (void)state;
    eg_module *net = eg_sequential(
        ctx, EG_NAMED({"body",
                       eg_sequential(ctx, EG_MODULES(eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 4, 4), eg_relu(ctx))),
                                                     eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 4, 4), eg_gelu(ctx))),
                                                     eg_tanh(ctx)))}));
    eg_surgery *s = eg_surgery_new(net);
    assert_ok(eg_surgery_replace(s, EG_POLICIES({.at = "body", .replace = shorter}), false));
    eg_model_diff *d = eg_surgery_diff(s);
    check_text(eg_model_diff_text(d), "   module    parameters  change\n"
                                      "-  body.0             0  Sequential()\n"
                                      ">  body.0             0  Sequential(), was body.1\n"
                                      "-  body.0.0          20  Linear(in_features=4, out_features=4, bias=True)\n"
                                      "-  body.0.1           0  ReLU()\n"
                                      ">  body.1             0  Tanh(), was body.2\n"
                                      "\n"
                                      "   tensor           shape   change\n"
                                      ">  body.0.0.weight  (4, 4)  was body.1.0.weight\n"
                                      ">  body.0.0.bias    (4)     was body.1.0.bias\n"
                                      "-  body.0.0.weight  (4, 4)  dropped\n"
                                      "-  body.0.0.bias    (4)     dropped\n"
                                      "\n"
                                      "modules     9 -> 6 (-33.3 %)\n"
                                      "parameters  40 -> 20 (-50.0 %)\n"
                                      "buffers     0\n"
                                      "tensors     2 the same, 0 made from others, 0 new, 2 dropped\n");
    eg_model_diff_free(d);
    eg_surgery_free(s);
    eg_module_release(net);
}

static void shared_modules_have_one_path(void **state)
{
    (void)state;
    eg_module *relu = eg_relu(ctx), *fc = eg_linear(ctx, 4, 4);
    eg_module *net = eg_sequential(ctx, EG_MODULES(fc, relu, eg_module_retain(fc), eg_module_retain(relu)));
    eg_surgery *s = eg_surgery_new(net);
    assert_ok(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_relu_class, .replace = to_gelu}), false));
    eg_model_diff *d = eg_surgery_diff(s);
    check_text(eg_model_diff_text(d), "   module  parameters  change\n"
                                      "~  1                0  ReLU() -> GELU(approximate='none')\n"
                                      "\n"
                                      "modules     3\n"
                                      "parameters  20\n"
                                      "buffers     0\n"
                                      "tensors     4 the same, 0 made from others, 0 new, 0 dropped\n");
    eg_model_diff_free(d);
    /* a tie that ends */
    eg_surgery_drop(s);
    assert_ok(eg_surgery_put(s, net, eg_sequential(ctx, EG_MODULES(eg_module_retain(fc), eg_linear(ctx, 4, 4))),
                             NULL) == EG_EINVAL
                  ? EG_OK
                  : EG_EINTERNAL); /* nobody holds the root */
    eg_error_clear();
    eg_surgery_free(s);
    eg_module *untied = eg_sequential(
        ctx, EG_MODULES(eg_module_retain(fc), eg_module_retain(relu), eg_linear(ctx, 4, 4), eg_module_retain(relu)));
    d = eg_model_diff_new(net, untied);
    assert_made(d);
    assert_string_equal(change_at(d, "2")->before, "= 0");
    assert_string_equal(change_at(d, "2")->after, "Linear(in_features=4, out_features=4, bias=True)");
    assert_int_equal(eg_model_diff_size(d), 1);
    eg_model_diff_free(d);
    eg_module_release(untied);
    eg_module_release(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_model_and_its_clone_are_alike, setup, teardown),
        cmocka_unit_test_setup_teardown(two_models_compared_by_name, setup, teardown),
        cmocka_unit_test_setup_teardown(a_surgery_golden, setup, teardown),
        cmocka_unit_test_setup_teardown(wrapping_moves, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_not_carried_is_said, setup, teardown),
        cmocka_unit_test_setup_teardown(slices_are_conversions, setup, teardown),
        cmocka_unit_test_setup_teardown(freezing_and_taking_out, setup, teardown),
        cmocka_unit_test_setup_teardown(dropping_a_layer_moves_the_others, setup, teardown),
        cmocka_unit_test_setup_teardown(shared_modules_have_one_path, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Surgery in the middle of training: what does not change the function changes nothing, bit for bit, and what is undone
 * has never been.
 */
#include "surgery_support.h"

enum { BEFORE = 5, AFTER = 10, BATCH = 4, FEATURES = 6, CLASSES = 3 };

typedef struct run {
    eg_context *ctx;
    eg_module *net;
    eg_optimizer *optimizer;
} run;

static eg_optimizer *make_adam(eg_module *m)
{
    return eg_adam(m, .lr = 0.01);
}

static eg_optimizer *make_sgd(eg_module *m)
{
    return eg_sgd(m, .lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3);
}

/* Two runs of the same seed are the same run. */
static run start(eg_optimizer *(*make)(eg_module *))
{
    run r = {.ctx = eg_context_new(.seed = 11, .threads = 1, .backend = "ref")};
    assert_made(r.ctx);
    eg_module *block = eg_sequential(r.ctx, EG_MODULES(eg_linear(r.ctx, 8, 8), eg_relu(r.ctx), eg_dropout(r.ctx, 0.4)));
    r.net = eg_sequential(r.ctx, EG_MODULES(eg_conv2d(r.ctx, 1, 2, 1), eg_batch_norm2d(r.ctx, 2), eg_flatten(r.ctx),
                                            eg_linear(r.ctx, 2 * FEATURES, 8), eg_relu(r.ctx), eg_dropout(r.ctx, 0.3),
                                            block, eg_linear(r.ctx, 8, CLASSES)));
    assert_made(r.net);
    eg_module_train(r.net, true);
    r.optimizer = make(r.net);
    assert_made(r.optimizer);
    return r;
}

static void end(run *r)
{
    eg_optimizer_free(r->optimizer);
    eg_module_release(r->net);
    assert_int_equal(eg_context_get_stats(r->ctx).bytes_in_use, 0);
    eg_context_free(r->ctx);
}

static void train(run *r, int steps)
{
    static const int64_t labels[BATCH] = {0, 1, 2, 1};
    for (int i = 0; i < steps; i++) {
        eg_tape *tape = eg_tape_begin(r->ctx, EG_RECORD);
        eg_tensor *x = eg_randn(r->ctx, EG_SHAPE(BATCH, 1, 1, FEATURES));
        eg_tensor *loss = eg_f_cross_entropy(eg_call(r->net, x), eg_from_labels(r->ctx, BATCH, labels));
        assert_ok(eg_backward(loss));
        assert_ok(eg_optimizer_step(r->optimizer));
        eg_optimizer_zero_grad(r->optimizer);
        eg_tape_end(tape);
    }
}

/* All numbers of a run: parameters, buffers, states, steps. */
static eg_state *numbers_of(run *r)
{
    eg_state *state = eg_state_new();
    assert_made(state);
    assert_ok(eg_module_state(r->net, "net.", state));
    assert_ok(eg_optimizer_state(r->optimizer, "optimizer.", state));
    return state;
}

static void assert_equal_runs(run *a, run *b)
{
    eg_tape *ta = eg_tape_begin(a->ctx, EG_NO_GRAD), *tb = eg_tape_begin(b->ctx, EG_NO_GRAD);
    eg_state *x = numbers_of(a), *y = numbers_of(b);
    assert_int_equal(eg_state_size(x), eg_state_size(y));
    for (size_t i = 0; i < eg_state_size(x); i++) {
        const char *name, *other;
        const eg_tensor *t = eg_state_at(x, i, &name), *u = eg_state_at(y, i, &other);
        assert_string_equal(name, other);
        assert_true(eg_shape_equal(t->shape, u->shape) && t->dtype == u->dtype);
        size_t bytes = (size_t)eg_tensor_numel(t) * eg_dtype_size(t->dtype);
        if (memcmp(eg_tensor_data((eg_tensor *)t), eg_tensor_data((eg_tensor *)u), bytes) != 0)
            fail_msg("'%s' differs", name);
    }
    eg_state_free(x);
    eg_state_free(y);
    eg_tape_end(ta);
    eg_tape_end(tb);
}

/* ---- identity ---- */

static eg_module *fresh_equal(void *payload, eg_module *m, size_t index)
{
    (void)index;
    ++*(size_t *)payload;
    eg_module *copy = eg_module_clone(m);
    for (size_t i = 0; copy != NULL && i < copy->n_slots;
         i++) { /* other numbers, which the old ones take the place of */
        if (copy->slots[i].kind == EG_SLOT_PARAMETER)
            eg_init_constant(*eg__slot_tensor(&copy->slots[i]), 7);
    }
    return copy;
}

static bool is_leaf(void *payload, eg_module *m, const char *path)
{
    (void)payload;
    (void)path;
    return !eg_is_a(m, &eg_sequential_class);
}

/* Leaves, then containers. */
static void replace_all(run *r)
{
    size_t made = 0;
    eg_surgery *s = eg_surgery_new(r->net, .root = &r->net, .optimizers = EG_OPTIMIZERS(r->optimizer));
    assert_made(s);
    assert_ok(eg_surgery_replace(
        s, EG_POLICIES({.replace = fresh_equal, .payload = &made, .when = is_leaf, .name = "leaves"}), false));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(made, 10);
    assert_ok(eg_surgery_replace(
        s, EG_POLICIES({.cls = &eg_sequential_class, .replace = fresh_equal, .payload = &made}), false));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(made, 11); /* the root, with all that is below it */
    eg_surgery_free(s);
}

static void identity_changes_nothing(eg_optimizer *(*make)(eg_module *))
{
    run plain = start(make), cut = start(make);
    train(&plain, BEFORE);
    train(&cut, BEFORE);
    assert_equal_runs(&plain, &cut);
    replace_all(&cut);
    assert_equal_runs(&plain, &cut);
    for (int i = 0; i < AFTER; i++) {
        train(&plain, 1);
        train(&cut, 1);
        assert_equal_runs(&plain, &cut);
    }
    end(&plain);
    end(&cut);
}

static void identity_under_adam(void **state)
{
    (void)state;
    identity_changes_nothing(make_adam);
}

static void identity_under_sgd(void **state)
{
    (void)state;
    identity_changes_nothing(make_sgd);
}

/* ---- undo ---- */

static eg_module *wider(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_sequential(m->ctx, EG_MODULES(eg_linear(m->ctx, 8, 16), eg_relu(m->ctx), eg_linear(m->ctx, 16, CLASSES)));
}

static eg_surgery *widen(run *r, bool snapshot)
{
    eg_surgery *s = eg_surgery_new(r->net, .optimizers = EG_OPTIMIZERS(r->optimizer), .snapshot = snapshot);
    assert_made(s);
    assert_ok(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_linear_class, .at = "7", .replace = wider}), false));
    assert_ok(eg_surgery_commit(s));
    return s;
}

static void snapshot_restores(eg_optimizer *(*make)(eg_module *), int before)
{
    run r = start(make);
    train(&r, before);
    uint64_t then = fingerprint(r.net, r.optimizer);
    eg_surgery *s = widen(&r, true);
    train(&r, 4);
    assert_true(fingerprint(r.net, r.optimizer) != then);
    assert_ok(eg_surgery_undo(s));
    assert_true(fingerprint(r.net, r.optimizer) == then);
    eg_surgery_free(s);
    end(&r);
}

static void snapshot_restores_everything(void **state)
{
    (void)state;
    snapshot_restores(make_adam, 3);
    snapshot_restores(make_sgd, 3);
}

/* What had no states yet has none again. */
static void snapshot_restores_the_beginning(void **state)
{
    (void)state;
    snapshot_restores(make_adam, 0);
    snapshot_restores(make_sgd, 0);
}

static void without_snapshot_training_stays(void **state)
{
    (void)state;
    run r = start(make_adam);
    train(&r, 3);
    eg_tensor *shared = eg_module_tensor(r.net, "3.weight"), *gone = eg_module_tensor(r.net, "7.weight");
    uint64_t head = print_tensor(0, gone), body = print_tensor(0, shared);
    eg_surgery *s = widen(&r, false);
    train(&r, 4);
    uint64_t trained = print_tensor(0, shared);
    assert_true(trained != body);
    assert_ok(eg_surgery_undo(s));
    assert_true(print_tensor(0, shared) == trained);
    assert_true(print_tensor(0, eg_module_tensor(r.net, "7.weight")) == head);
    for (size_t i = 0; i < r.optimizer->n_params; i++) {
        const eg__param *p = &r.optimizer->params[i];
        assert_int_equal(p->step, strncmp(p->name, "7.", 2) == 0 ? 3 : 7);
    }
    eg_surgery_free(s);
    end(&r);
}

/* Undone at once, a surgery leaves no trace in what follows. */
static void undone_surgery_leaves_no_trace(void **state)
{
    (void)state;
    run plain = start(make_adam), cut = start(make_adam);
    train(&plain, BEFORE);
    train(&cut, BEFORE);
    eg_surgery *s = widen(&cut, false);
    assert_ok(eg_surgery_undo(s));
    eg_surgery_free(s);
    train(&plain, AFTER);
    train(&cut, AFTER);
    assert_equal_runs(&plain, &cut);
    end(&plain);
    end(&cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(identity_under_adam),
        cmocka_unit_test(identity_under_sgd),
        cmocka_unit_test(snapshot_restores_everything),
        cmocka_unit_test(snapshot_restores_the_beginning),
        cmocka_unit_test(without_snapshot_training_stays),
        cmocka_unit_test(undone_surgery_leaves_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Surgery in the middle of a training: one that puts in equals changes nothing, and the optimizer goes on without a
 * jump.
 */
#include "support.h"

#include "engraft/layers.h"
#include "engraft/methods.h"

static eg_context *ctx;

static int setup(void **state)
{
    (void)state;
    eg_error_clear();
    ctx = eg_context_new(.seed = 5, .threads = 1, .backend = "ref");
    return ctx == NULL;
}

static int teardown(void **state)
{
    (void)state;
    size_t left = eg_context_get_stats(ctx).bytes_in_use;
    eg_context_free(ctx);
    return left != 0;
}

static eg_module *make_model(eg_context *c)
{
    eg_module *shared = eg_linear(c, 12, 12);
    return eg_sequential(
        c, EG_MODULES(eg_conv2d(c, 2, 6, 3, .padding = 1), eg_batch_norm2d(c, 6), eg_relu(c), eg_dropout(c, 0.25),
                      eg_sequential(c, EG_MODULES(eg_conv2d(c, 6, 12, 3), eg_relu(c))), eg_global_avg_pool2d(c),
                      eg_module_retain(shared), eg_relu(c), shared, eg_dropout(c, 0.5), eg_linear(c, 12, 3)));
}

/* A training: its own context, so that two of them draw the same random numbers. */
typedef struct training {
    eg_context *ctx;
    eg_module *model;
    eg_optimizer *optimizer;
    int64_t step;
} training;

static training begin(bool adam)
{
    training t = {.ctx = eg_context_new(.seed = 9, .threads = 1, .backend = "ref")};
    assert_made(t.ctx);
    t.model = make_model(t.ctx);
    assert_made(t.model);
    t.optimizer = adam ? eg_adam(t.model, .lr = 1e-2, .weight_decay = EG_F64(0.01))
                       : eg_sgd(t.model, .lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3);
    assert_made(t.optimizer);
    return t;
}

static void end(training *t)
{
    eg_optimizer_free(t->optimizer);
    eg_module_release(t->model);
    assert_int_equal(eg_context_get_stats(t->ctx).bytes_in_use, 0);
    eg_context_free(t->ctx);
}

static double train(training *t, int n)
{
    double loss = 0;
    for (int i = 0; i < n; i++) {
        eg_tape *tape = eg_tape_begin(t->ctx, EG_RECORD);
        float numbers[4 * 2 * 6 * 6];
        eg_rng rng = eg_rng_make(1, "data", (uint64_t)t->step++);
        for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++)
            numbers[k] = (float)eg_rng_normal(&rng);
        eg_tensor *x = eg_from_data(t->ctx, EG_SHAPE(4, 2, 6, 6), numbers);
        eg_tensor *y = eg_call(t->model, x);
        eg_tensor *l = eg_f_cross_entropy(y, eg_from_labels(t->ctx, 4, (const int64_t[]){0, 1, 2, 0}));
        assert_made(l);
        assert_ok(eg_backward(l));
        loss = eg_tensor_item(l);
        eg_tape_end(tape);
        assert_ok(eg_optimizer_step(t->optimizer));
        eg_optimizer_zero_grad(t->optimizer);
    }
    return loss;
}

/* ---- no jump in the optimizer ---- */

static eg_tensor *state_tensor(eg_optimizer *o, const char *name, eg_state *into)
{
    assert_ok(eg_optimizer_state(o, "", into));
    eg_tensor *t = eg_state_get(into, name);
    if (t == NULL)
        fail_msg("the optimizer has no '%s'", name);
    return t;
}

static double length(eg_tensor *t)
{
    size_t n = (size_t)eg_tensor_numel(t);
    float *v = calloc(n, sizeof(*v));
    double sum = 0;
    assert_ok(eg_tensor_read(t, v, n));
    for (size_t i = 0; i < n; i++)
        sum += (double)v[i] * v[i];
    free(v);
    return sqrt(sum);
}

/* The factors' steps are those of the weight, and moments are there from the first step on. */
static void factors_go_on_with_moments(void **state)
{
    (void)state;
    training t = begin(true);
    train(&t, 20);
    eg_state *before = eg_state_new();
    double steps = eg_tensor_item(state_tensor(t.optimizer, "6.weight.step", before));
    eg_surgery *s = eg_surgery_new(t.model, .optimizers = EG_OPTIMIZERS(t.optimizer));
    assert_ok(eg_surgery_apply(s, eg_factorize(t.ctx, .rank = 3, .min_channels = 8), NULL));
    assert_ok(eg_surgery_commit(s));
    eg_state *after = eg_state_new();
    assert_true(eg_tensor_item(state_tensor(t.optimizer, "6.0.weight.step", after)) == steps);
    assert_true(length(state_tensor(t.optimizer, "6.0.weight.exp_avg", after)) > 0);
    assert_true(length(state_tensor(t.optimizer, "6.1.weight.exp_avg_sq", after)) > 0);
    double loss = train(&t, 1), later = train(&t, 10);
    assert_true(isfinite(loss) && isfinite(later) && later < 5 * loss);
    eg_state_free(before);
    eg_state_free(after);
    eg_surgery_free(s);
    end(&t);
}

typedef struct slicing {
    eg_surgery *s;
    int64_t kept[4];
} slicing;

/* Rows 1, 3, 4, 7 of a linear layer. */
static eg_module *keep_rows(void *payload, eg_module *m, size_t index)
{
    slicing *c = payload;
    (void)index;
    const eg_linear *l = EG_CAST(m, eg_linear);
    eg_module *fewer = eg_linear(m->ctx, l->in_features, 4);
    if (fewer == NULL)
        return NULL;
    eg_linear *to = EG_CAST(fewer, eg_linear);
    eg_tensor *weight = eg_surgery_slice(c->s, l->weight, 0, c->kept, 4);
    eg_tensor *bias = eg_surgery_slice(c->s, l->bias, 0, c->kept, 4);
    if (weight == NULL || bias == NULL) {
        eg_module_release(fewer);
        return NULL;
    }
    eg_tensor_release(to->weight);
    eg_tensor_release(to->bias);
    to->weight = eg_tensor_keep(weight);
    to->bias = eg_tensor_keep(bias);
    return fewer;
}

static void slices_take_their_states_along(void **state)
{
    (void)state;
    training t = begin(true);
    train(&t, 7);
    slicing c = {.kept = {1, 3, 4, 7}};
    c.s = eg_surgery_new(t.model, .optimizers = EG_OPTIMIZERS(t.optimizer));
    eg_state *before = eg_state_new(), *after = eg_state_new();
    float whole[12 * 12], part[4 * 12];
    assert_ok(eg_tensor_read(state_tensor(t.optimizer, "6.weight.exp_avg", before), whole, 144));
    assert_ok(eg_surgery_replace(
        c.s, EG_POLICIES({.cls = &eg_linear_class, .replace = keep_rows, .payload = &c, .at = "6"}), false));
    assert_ok(eg_surgery_commit(c.s));
    assert_ok(eg_tensor_read(state_tensor(t.optimizer, "6.weight.exp_avg", after), part, 48));
    for (size_t i = 0; i < 4; i++)
        assert_memory_equal(part + i * 12, whole + c.kept[i] * 12, 12 * sizeof(float));
    assert_true(eg_tensor_item(eg_state_get(after, "6.weight.step")) == 7);
    assert_ok(eg_surgery_undo(c.s));
    eg_state_free(before);
    eg_state_free(after);
    eg_surgery_free(c.s);
    end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(factors_go_on_with_moments, setup, teardown),
        cmocka_unit_test_setup_teardown(slices_take_their_states_along, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * tests/optim/test_optimizers.c - optimizers against PyTorch, groups, clipping, checkpoints.
 */
#include "optim/optim_support.h"

#include "engraft/layers.h"

enum { MOST_PARAMS = 3, MOST_NUMBERS = 64 };

static int setup(void **state)
{
    *state = eg_context_new(.seed = 1, .threads = 1);
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    eg_error_clear();
    return 0;
}

/* ---- trajectories ---- */

typedef struct run {
    eg_context *ctx;
    const json_t *vector;
    eg_tensor *params[MOST_PARAMS];
    size_t n;
    eg_optimizer *optimizer;
} run;

static eg_optimizer *make_optimizer(eg_context *ctx, const json_t *vector)
{
    const json_t *o = json_object_get(vector, "options"), *betas = json_object_get(o, "betas");
    const char *kind = json_string_value(json_object_get(vector, "kind"));
    double lr = json_option(o, "lr", 0);
    if (strcmp(kind, "sgd") == 0)
        return eg_sgd(NULL, .ctx = ctx, .lr = lr, .momentum = json_option(o, "momentum", 0),
                      .dampening = json_option(o, "dampening", 0), .weight_decay = json_option(o, "weight_decay", 0),
                      .nesterov = json_is_true(json_object_get(o, "nesterov")));
    eg_adam_options options = {.struct_size = sizeof options, .ctx = ctx, .lr = lr, .eps = json_option(o, "eps", 0)};
    if (betas) {
        options.beta1 = EG_F64(json_number_value(json_array_get(betas, 0)));
        options.beta2 = EG_F64(json_number_value(json_array_get(betas, 1)));
    }
    if (json_object_get(o, "weight_decay"))
        options.weight_decay = EG_F64(json_option(o, "weight_decay", 0));
    return strcmp(kind, "adam") == 0 ? eg_adam_with(&options) : eg_adamw_with(&options);
}

static void run_begin(run *r, eg_context *ctx, const json_t *vector)
{
    *r = (run){.ctx = ctx, .vector = vector};
    const json_t *shapes = json_object_get(vector, "shapes"), *start = json_object_get(vector, "start");
    for (r->n = 0; r->n < json_array_size(shapes); r->n++) {
        float values[MOST_NUMBERS];
        json_floats(json_array_get(start, r->n), values, MOST_NUMBERS);
        r->params[r->n] = make_parameter(ctx, json_shape(json_array_get(shapes, r->n)), values);
    }
    r->optimizer = make_optimizer(ctx, vector);
    assert_made(r->optimizer);
    assert_ok(eg_optimizer_add(r->optimizer, "p", r->params, r->n, NULL));
}

static void run_end(run *r)
{
    eg_optimizer_free(r->optimizer);
    for (size_t i = 0; i < r->n; i++)
        eg_tensor_release(r->params[i]);
}

static void run_step(run *r, size_t step)
{
    const json_t *grads = json_array_get(json_object_get(r->vector, "grads"), step);
    eg_optimizer_zero_grad(r->optimizer);
    for (size_t i = 0; i < r->n; i++) {
        float values[MOST_NUMBERS];
        if (json_is_null(json_array_get(grads, i)))
            continue;
        json_floats(json_array_get(grads, i), values, MOST_NUMBERS);
        set_grad(r->params[i], values);
    }
    assert_ok(eg_optimizer_step(r->optimizer));
}

static size_t run_read(const run *r, size_t i, float *values)
{
    size_t n = (size_t)eg_tensor_numel(r->params[i]);
    assert_true(n <= MOST_NUMBERS);
    assert_ok(eg_tensor_read(r->params[i], values, n));
    return n;
}

static void run_compare(const run *r, size_t step)
{
    const json_t *after = json_array_get(json_object_get(r->vector, "after"), step);
    for (size_t i = 0; i < r->n; i++) {
        float got[MOST_NUMBERS], expected[MOST_NUMBERS];
        size_t n = run_read(r, i, got);
        json_floats(json_array_get(after, i), expected, MOST_NUMBERS);
        for (size_t k = 0; k < n; k++)
            assert_relative((double)got[k], (double)expected[k], 1e-5,
                            json_string_value(json_object_get(r->vector, "kind")));
    }
}

static void test_trajectories(void **state)
{
    json_t *json = optim_vectors(), *vector;
    size_t i;
    json_array_foreach(json_object_get(json, "optimizers"), i, vector)
    {
        run r;
        run_begin(&r, *state, vector);
        for (size_t step = 0; step < json_array_size(json_object_get(vector, "grads")); step++) {
            float before[MOST_NUMBERS], after[MOST_NUMBERS];
            size_t n = run_read(&r, 1, before);
            run_step(&r, step);
            run_compare(&r, step);
            if (!eg_tensor_grad(r.params[1])) { /* without a gradient: not a bit changes */
                run_read(&r, 1, after);
                assert_memory_equal(before, after, n * sizeof *before);
            }
        }
        run_end(&r);
    }
    assert_true(i >= 11);
    json_decref(json);
}

static void test_state_continues(void **state)
{
    json_t *json = optim_vectors(), *vector;
    size_t index;
    json_array_foreach(json_object_get(json, "optimizers"), index, vector)
    {
        run whole, resumed;
        run_begin(&whole, *state, vector);
        run_begin(&resumed, *state, vector);
        for (size_t step = 0; step < 3; step++)
            run_step(&whole, step);
        assert_ok(eg_optimizer_set_lr(whole.optimizer, 0, 0.0625));
        eg_state *saved = eg_state_new();
        assert_ok(eg_optimizer_state(whole.optimizer, "optimizer.", saved));
        assert_ok(eg_optimizer_load_state(resumed.optimizer, "optimizer.", saved));
        assert_true(eg_optimizer_lr(resumed.optimizer, 0) == 0.0625);
        for (size_t i = 0; i < whole.n; i++)
            assert_ok(eg_tensor_assign(resumed.params[i], whole.params[i]));
        for (size_t step = 3; step < 5; step++) {
            run_step(&whole, step);
            run_step(&resumed, step);
        }
        for (size_t i = 0; i < whole.n; i++) {
            float a[MOST_NUMBERS], b[MOST_NUMBERS];
            size_t n = run_read(&whole, i, a);
            run_read(&resumed, i, b);
            assert_memory_equal(a, b, n * sizeof *a);
        }
        eg_state_free(saved);
        run_end(&whole);
        run_end(&resumed);
    }
    json_decref(json);
}

/* ---- states that do not fit ---- */

static eg_optimizer *adam_of(eg_context *ctx, const char *name, eg_tensor *t)
{
    eg_optimizer *o = eg_adam(NULL, .ctx = ctx);
    assert_made(o);
    assert_ok(eg_optimizer_add(o, name, &t, 1, NULL));
    return o;
}

static void test_state_refused(void **state)
{
    eg_context *ctx = *state;
    const float values[] = {1, 2, 3};
    eg_tensor *t = make_parameter(ctx, EG_SHAPE(3), values), *other = make_parameter(ctx, EG_SHAPE(2), values);
    eg_optimizer *from = adam_of(ctx, "w", t), *renamed = adam_of(ctx, "v", t), *reshaped = adam_of(ctx, "w", other);
    eg_optimizer *sgd = eg_sgd(NULL, .ctx = ctx, .lr = 0.1);
    set_grad(t, values);
    assert_ok(eg_optimizer_step(from));
    eg_state *saved = eg_state_new(), *empty = eg_state_new(), *partial = eg_state_new();
    assert_ok(eg_optimizer_state(from, "o.", saved));
    assert_int_equal(eg_state_size(saved), 5);
    assert_non_null(eg_state_get(saved, "o.w.0.exp_avg_sq"));
    assert_fails(eg_optimizer_load_state(from, "o.", empty), EG_ENOENT, "'o.lr'");
    assert_fails(eg_optimizer_load_state(renamed, "o.", saved), EG_ENOENT, "'o.w.0.");
    assert_fails(eg_optimizer_load_state(reshaped, "o.", saved), EG_ESHAPE, "(3), expected (2)");
    assert_fails(eg_optimizer_load_state(sgd, "o.", saved), EG_ENOENT, "sgd");
    for (size_t i = 0; i < eg_state_size(saved); i++) {
        const char *name;
        eg_tensor *tensor = eg_state_at(saved, i, &name);
        if (strcmp(name, "o.w.0.exp_avg") != 0)
            assert_ok(eg_state_put(partial, name, tensor));
    }
    assert_fails(eg_optimizer_load_state(from, "o.", partial), EG_ENOENT, "'o.w.0.exp_avg'");
    assert_fails(eg_optimizer_load_state(NULL, "o.", saved), EG_EINVAL, "optimizer");
    assert_ok(eg_optimizer_load_state(from, "o.", saved));
    eg_state_free(saved);
    eg_state_free(empty);
    eg_state_free(partial);
    eg_optimizer_free(from);
    eg_optimizer_free(renamed);
    eg_optimizer_free(reshaped);
    eg_optimizer_free(sgd);
    eg_tensor_release(t);
    eg_tensor_release(other);
}

/* ---- groups ---- */

static void test_groups(void **state)
{
    eg_context *ctx = *state;
    const float one[] = {1};
    eg_tensor *a = make_parameter(ctx, EG_SHAPE(1), one), *b = make_parameter(ctx, EG_SHAPE(1), one);
    eg_optimizer *o = eg_sgd(NULL, .ctx = ctx, .lr = 0.5, .weight_decay = 1);
    assert_made(o);
    assert_int_equal(eg_optimizer_n_groups(o), 0);
    assert_ok(eg_optimizer_add(o, "a", &a, 1, NULL));
    eg_group_options second = {.struct_size = sizeof second, .lr = EG_F64(0.25), .weight_decay = EG_F64(0)};
    assert_ok(eg_optimizer_add(o, "b", &b, 1, &second));
    assert_int_equal(eg_optimizer_n_groups(o), 2);
    set_grad(a, one);
    set_grad(b, one);
    assert_ok(eg_optimizer_step(o));
    assert_tensor(a, 0, 0.0F); /* 1 - 0.5 (1 + 1) */
    assert_tensor(b, 0, 0.75F);
    assert_fails(eg_optimizer_add(o, "c", &b, 1, NULL), EG_EINVAL, "'c.0' is in the optimizer already, as 'b.0'");
    eg_tensor *c = make_parameter(ctx, EG_SHAPE(1), one);
    eg_tensor *const pair[] = {c, a};
    assert_fails(eg_optimizer_add(o, "d", pair, 2, NULL), EG_EINVAL, "'d.1'");
    assert_fails(eg_optimizer_add(o, "a", &c, 1, NULL), EG_EINVAL, "another parameter 'a.0'");
    assert_int_equal(eg_optimizer_n_groups(o), 2);
    assert_ok(eg_optimizer_add(o, "d", &c, 1, NULL)); /* the failures left nothing behind */
    assert_true(isnan(eg_optimizer_lr(o, 3)));
    assert_recorded(EG_EINVAL, "group 3");
    assert_fails(eg_optimizer_set_lr(o, 0, -1), EG_EINVAL, "learning rate is -1");
    eg_optimizer_free(o);
    eg_tensor_release(a);
    eg_tensor_release(b);
    eg_tensor_release(c);
}

static void test_module(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_linear(ctx, 2, 1);
    assert_made(net);
    eg_optimizer *o = eg_sgd(net, .lr = 1);
    assert_made(o);
    const float x[] = {1, 2}, zeros[] = {0, 0};
    assert_ok(eg_tensor_write(eg_module_tensor(net, "weight"), zeros, 2));
    assert_ok(eg_tensor_write(eg_module_tensor(net, "bias"), zeros, 1));
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    assert_ok(eg_backward(eg_sum(eg_call(net, eg_from_data(ctx, EG_SHAPE(1, 2), x)))));
    eg_tape_end(tape);
    assert_ok(eg_optimizer_step(o));
    assert_tensor(eg_module_tensor(net, "weight"), 0, -1, -2);
    assert_tensor(eg_module_tensor(net, "bias"), 0, -1);
    eg_optimizer_zero_grad(o);
    assert_null(eg_tensor_grad(eg_module_tensor(net, "weight")));
    eg_state *saved = eg_state_new();
    assert_ok(eg_optimizer_state(o, NULL, saved));
    assert_non_null(eg_state_get(saved, "weight.step"));
    eg_state_free(saved);
    eg_optimizer_free(o);
    eg_module_release(net);
}

static void test_float64(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *t = eg_tensor_keep(eg_empty(ctx, EG_F64, EG_SHAPE(2), EG_LAYOUT_DEFAULT));
    eg_tensor *f = make_parameter(ctx, EG_SHAPE(2), (const float[]){1, 2});
    assert_ok(eg_tensor_write(t, (const float[]){1, 2}, 2));
    assert_ok(eg_tensor_set_requires_grad(t, true));
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    assert_ok(eg_backward(eg_sum(t)));
    eg_tape_end(tape);
    set_grad(f, (const float[]){1, 1});
    eg_optimizer *o = eg_sgd(NULL, .ctx = ctx, .lr = 0.5, .momentum = 0.5);
    eg_tensor *const both[] = {t, f};
    assert_ok(eg_optimizer_add(o, "p", both, 2, NULL));
    assert_ok(eg_optimizer_step(o));
    assert_ok(eg_optimizer_step(o));
    assert_tensor(t, 0, -0.25F, 0.75F); /* 0.5, then 0.5 * 1.5 */
    assert_tensor(f, 0, -0.25F, 0.75F);
    double norm = 0;
    assert_ok(eg_optimizer_clip_grad_norm(o, 1, &norm)); /* over both types */
    assert_close(norm, 2, 1e-12);
    assert_tensor(eg_tensor_grad(t), 1e-5, 0.5F, 0.5F);
    assert_tensor(eg_tensor_grad(f), 1e-5, 0.5F, 0.5F);
    eg_optimizer_free(o);
    eg_tensor_release(t);
    eg_tensor_release(f);
}

/* ---- clipping and bad options ---- */

static void test_clip(void **state)
{
    eg_context *ctx = *state;
    json_t *json = optim_vectors(), *vector;
    size_t index;
    json_array_foreach(json_object_get(json, "clip"), index, vector)
    {
        const json_t *shapes = json_object_get(vector, "shapes");
        eg_optimizer *o = eg_sgd(NULL, .ctx = ctx, .lr = 1);
        eg_tensor *params[MOST_PARAMS];
        float values[MOST_NUMBERS];
        for (size_t i = 0; i < MOST_PARAMS; i++) {
            json_floats(json_array_get(json_object_get(vector, "grads"), i), values, MOST_NUMBERS);
            params[i] = make_parameter(ctx, json_shape(json_array_get(shapes, i)), values);
            set_grad(params[i], values);
        }
        assert_ok(eg_optimizer_add(o, "p", params, MOST_PARAMS, NULL));
        double norm = 0;
        assert_ok(eg_optimizer_clip_grad_norm(o, json_option(vector, "max_norm", 0), &norm));
        assert_relative(norm, json_option(vector, "norm", 0), 1e-6, "norm");
        for (size_t i = 0; i < MOST_PARAMS; i++) {
            json_floats(json_array_get(json_object_get(vector, "after"), i), values, MOST_NUMBERS);
            assert_numbers(eg_tensor_grad(params[i]), values, (size_t)eg_tensor_numel(params[i]), 1e-6);
        }
        eg_optimizer_free(o);
        for (size_t i = 0; i < MOST_PARAMS; i++)
            eg_tensor_release(params[i]);
    }
    assert_int_equal(index, 2);
    json_decref(json);
}

static void test_clip_not_finite(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *t = make_parameter(ctx, EG_SHAPE(2), (const float[]){1, 2});
    set_grad(t, (const float[]){INFINITY, 3});
    eg_optimizer *o = eg_sgd(NULL, .ctx = ctx, .lr = 1);
    assert_ok(eg_optimizer_add(o, "p", &t, 1, NULL));
    double norm = 0;
    assert_fails(eg_optimizer_clip_grad_norm(o, 1, &norm), EG_EINVAL, "norm of the gradients is inf");
    assert_true(isinf(norm));
    assert_fails(eg_optimizer_clip_grad_norm(o, 0, NULL), EG_EINVAL, "above 0");
    eg_optimizer_zero_grad(o);
    assert_ok(eg_optimizer_clip_grad_norm(o, 1, &norm)); /* no gradients at all */
    assert_true(norm == 0);
    assert_ok(eg_optimizer_step(o));
    assert_tensor(t, 0, 1, 2);
    eg_optimizer_free(o);
    eg_tensor_release(t);
}

/* A program built before the last fields were added passes a smaller struct: those have their defaults. */
static void test_older_struct(void **state)
{
    eg_sgd_options options = {.struct_size = offsetof(eg_sgd_options, momentum), .ctx = *state, .lr = 0.5};
    options.momentum = -1; /* behind the end of the caller's struct, not read */
    eg_optimizer *optimizer = eg_sgd_with(&options);
    assert_made(optimizer);
    eg_optimizer_free(optimizer);
}

static void test_bad_options(void **state)
{
    eg_context *ctx = *state;
    assert_refused(eg_sgd(NULL, .ctx = ctx), EG_EINVAL, "learning rate is 0");
    assert_refused(eg_sgd(NULL, .lr = 1), EG_EINVAL, "model");
    assert_refused(eg_sgd(NULL, .ctx = ctx, .lr = NAN), EG_EINVAL, "learning rate is nan");
    assert_refused(eg_sgd(NULL, .ctx = ctx, .lr = 1, .momentum = -1), EG_EINVAL, "momentum -1");
    assert_refused(eg_sgd(NULL, .ctx = ctx, .lr = 1, .nesterov = true), EG_EINVAL, "nesterov");
    assert_refused(eg_sgd(NULL, .ctx = ctx, .lr = 1, .weight_decay = -1), EG_EINVAL, "weight decay is -1");
    assert_refused(eg_adam(NULL, .ctx = ctx, .beta1 = EG_F64(1)), EG_EINVAL, "beta1 1");
    assert_refused(eg_adamw(NULL, .ctx = ctx, .eps = -1), EG_EINVAL, "eps -1");
    assert_refused(eg_sgd_with(&(eg_sgd_options){.ctx = ctx, .lr = 1}), EG_EINVAL, "struct_size");
    assert_refused(eg_adamw_with(&(eg_adam_options){.ctx = ctx}), EG_EINVAL, "struct_size");
    assert_refused(eg_sgd_with(NULL), EG_EINVAL, "options");
    assert_fails(eg_optimizer_step(NULL), EG_EINVAL, "optimizer");
    eg_optimizer_zero_grad(NULL);
    eg_optimizer_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_trajectories, setup, teardown),
        cmocka_unit_test_setup_teardown(test_state_continues, setup, teardown),
        cmocka_unit_test_setup_teardown(test_state_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_groups, setup, teardown),
        cmocka_unit_test_setup_teardown(test_module, setup, teardown),
        cmocka_unit_test_setup_teardown(test_float64, setup, teardown),
        cmocka_unit_test_setup_teardown(test_clip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_clip_not_finite, setup, teardown),
        cmocka_unit_test_setup_teardown(test_older_struct, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_options, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

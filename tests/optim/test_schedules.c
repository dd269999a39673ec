/*
 * tests/optim/test_schedules.c - schedules against PyTorch, by hand, and resumed.
 */
#include "optim/optim_support.h"

typedef struct fixture {
    eg_context *ctx;
    eg_tensor *param;
    eg_optimizer *optimizer;
} fixture;

static void begin(fixture *f, double lr)
{
    f->ctx = eg_context_new(.seed = 1, .threads = 1);
    assert_made(f->ctx);
    f->param = make_parameter(f->ctx, EG_SHAPE(1), (const float[]){1});
    f->optimizer = eg_sgd(NULL, .ctx = f->ctx, .lr = lr);
    assert_made(f->optimizer);
    assert_ok(eg_optimizer_add(f->optimizer, "p", &f->param, 1, NULL));
}

static void end(fixture *f, eg_scheduler *s)
{
    eg_scheduler_free(s);
    eg_optimizer_free(f->optimizer);
    eg_tensor_release(f->param);
    eg_context_free(f->ctx);
    eg_error_clear();
}

static double argument(const json_t *vector, size_t i)
{
    return json_number_value(json_array_get(json_object_get(vector, "arguments"), i));
}

static eg_scheduler *make_schedule(eg_optimizer *o, const json_t *v)
{
    const char *kind = json_string_value(json_object_get(v, "kind"));
    int64_t first = (int64_t)argument(v, 0);
    if (strcmp(kind, "step") == 0)
        return eg_step_lr(o, first, argument(v, 1));
    if (strcmp(kind, "cosine") == 0)
        return eg_cosine_lr(o, first, argument(v, 1));
    if (strcmp(kind, "warmup") == 0)
        return eg_linear_warmup_lr(o, first, argument(v, 1), eg_constant_lr(o));
    if (strcmp(kind, "warmup_step") == 0)
        return eg_linear_warmup_lr(o, first, argument(v, 1), eg_step_lr(o, (int64_t)argument(v, 2), argument(v, 3)));
    if (strcmp(kind, "warmup_cosine") == 0)
        return eg_linear_warmup_lr(o, first, argument(v, 1), eg_cosine_lr(o, (int64_t)argument(v, 2), argument(v, 3)));
    if (strcmp(kind, "one_cycle") == 0)
        return eg_one_cycle_lr(o, argument(v, 0), (int64_t)argument(v, 1), argument(v, 2), argument(v, 3),
                               argument(v, 4));
    assert_string_equal(kind, "multi_step");
    eg_shape milestones = json_shape(json_array_get(json_object_get(v, "arguments"), 0));
    return eg_multi_step_lr(o, milestones.dims, (size_t)milestones.ndim, argument(v, 1));
}

static void test_rates(void **state)
{
    (void)state;
    json_t *json = optim_vectors(), *vector;
    size_t index;
    json_array_foreach(json_object_get(json, "schedules"), index, vector)
    {
        const json_t *rates = json_object_get(vector, "rates");
        const char *kind = json_string_value(json_object_get(vector, "kind"));
        assert_true(json_array_size(rates) > 12);
        fixture f;
        begin(&f, json_option(vector, "lr", 0));
        eg_scheduler *s = make_schedule(f.optimizer, vector);
        assert_made(s);
        for (size_t t = 0; t < json_array_size(rates); t++) {
            double expected = json_number_value(json_array_get(rates, t)), got = eg_optimizer_lr(f.optimizer, 0);
            if (!(fabs(got - expected) <= 1e-5 * expected + 1e-12))
                fail_msg("%s at %zu is %.9g, expected %.9g", kind, t, got, expected);
            assert_int_equal(eg_scheduler_position(s), t);
            assert_ok(eg_scheduler_step(s));
        }
        /* Any position can be gone to, and gives the same rate to the bit. */
        for (size_t t = json_array_size(rates); t-- > 0;) {
            assert_ok(eg_scheduler_set_position(s, (int64_t)t));
            double expected = json_number_value(json_array_get(rates, t)), got = eg_optimizer_lr(f.optimizer, 0);
            if (!(fabs(got - expected) <= 1e-5 * expected + 1e-12))
                fail_msg("%s set to %zu is %.9g, expected %.9g", kind, t, got, expected);
        }
        end(&f, s);
    }
    assert_true(index >= 10);
    json_decref(json);
}

static void test_ends(void **state)
{
    (void)state;
    fixture f;
    begin(&f, 0.5);
    eg_scheduler *s = eg_cosine_lr(f.optimizer, 4, 0.125);
    assert_ok(eg_scheduler_set_position(s, 4));
    assert_true(eg_optimizer_lr(f.optimizer, 0) == 0.125);
    assert_ok(eg_scheduler_set_position(s, 1000)); /* stays there */
    assert_true(eg_optimizer_lr(f.optimizer, 0) == 0.125);
    eg_scheduler_free(s);
    s = eg_one_cycle_lr(f.optimizer, 1, 10, 0, 0, 0);
    assert_ok(eg_scheduler_set_position(s, 9));
    double last = eg_optimizer_lr(f.optimizer, 0);
    assert_close(last, 1 / 25.0 / 1e4, 1e-12);
    assert_ok(eg_scheduler_set_position(s, 99));
    assert_true(eg_optimizer_lr(f.optimizer, 0) == last);
    end(&f, s);
}

/* A rate set by hand rescales what the schedule still does; groups keep their ratio. */
static void test_by_hand(void **state)
{
    (void)state;
    fixture f;
    begin(&f, 0.5);
    eg_tensor *second = make_parameter(f.ctx, EG_SHAPE(1), (const float[]){1});
    eg_group_options options = {.struct_size = sizeof options, .lr = EG_F64(0.25)};
    eg_scheduler *s = eg_step_lr(f.optimizer, 2, 0.5);
    assert_ok(eg_scheduler_set_position(s, 2));
    assert_ok(eg_optimizer_add(f.optimizer, "late", &second, 1, &options)); /* joins where the schedule is */
    assert_true(eg_optimizer_lr(f.optimizer, 0) == 0.25);
    assert_true(eg_optimizer_lr(f.optimizer, 1) == 0.125);
    assert_ok(eg_optimizer_set_lr(f.optimizer, 0, 2));
    assert_true(eg_optimizer_lr(f.optimizer, 0) == 2);
    assert_ok(eg_scheduler_step(s));
    assert_true(eg_optimizer_lr(f.optimizer, 0) == 2);
    assert_ok(eg_scheduler_step(s));
    assert_true(eg_optimizer_lr(f.optimizer, 0) == 1);
    assert_true(eg_optimizer_lr(f.optimizer, 1) == 0.0625);
    eg_scheduler_free(s);
    /* At the end of a cosine nothing of the initial rate is left: by hand holds until the schedule speaks again. */
    s = eg_cosine_lr(f.optimizer, 4, 0);
    assert_ok(eg_scheduler_set_position(s, 4));
    assert_ok(eg_optimizer_set_lr(f.optimizer, 0, 3));
    assert_true(eg_optimizer_lr(f.optimizer, 0) == 3);
    assert_ok(eg_scheduler_step(s));
    assert_true(eg_optimizer_lr(f.optimizer, 0) == 0);
    eg_tensor_release(second); /* the optimizer keeps it */
    end(&f, s);
}

/* Position and optimizer state are all there is to a schedule's checkpoint, in either order. */
static void test_resumes(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        fixture a, b;
        begin(&a, 0.1);
        begin(&b, 0.7);
        eg_scheduler *sa = eg_linear_warmup_lr(a.optimizer, 3, 0.1, eg_cosine_lr(a.optimizer, 9, 0.001));
        eg_scheduler *sb = eg_linear_warmup_lr(b.optimizer, 3, 0.1, eg_cosine_lr(b.optimizer, 9, 0.001));
        for (int t = 0; t < 5; t++)
            assert_ok(eg_scheduler_step(sa));
        eg_state *saved = eg_state_new();
        assert_ok(eg_optimizer_state(a.optimizer, "o.", saved));
        if (order == 0)
            assert_ok(eg_scheduler_set_position(sb, eg_scheduler_position(sa)));
        assert_ok(eg_optimizer_load_state(b.optimizer, "o.", saved));
        if (order == 1)
            assert_ok(eg_scheduler_set_position(sb, eg_scheduler_position(sa)));
        for (int t = 0; t < 8; t++) {
            assert_true(eg_optimizer_lr(a.optimizer, 0) == eg_optimizer_lr(b.optimizer, 0));
            assert_ok(eg_scheduler_step(sa));
            assert_ok(eg_scheduler_step(sb));
        }
        eg_state_free(saved);
        end(&a, sa);
        end(&b, sb);
    }
}

static void test_bad_arguments(void **state)
{
    (void)state;
    fixture f, other;
    begin(&f, 0.5);
    begin(&other, 0.5);
    const int64_t falling[] = {3, 2};
    assert_refused(eg_step_lr(NULL, 1, 0.1), EG_EINVAL, "optimizer");
    assert_refused(eg_step_lr(f.optimizer, 0, 0.1), EG_EINVAL, "step size 0");
    assert_refused(eg_multi_step_lr(f.optimizer, falling, 2, 0.1), EG_EINVAL, "2 after 3");
    assert_refused(eg_multi_step_lr(f.optimizer, NULL, 2, 0.1), EG_EINVAL, "NULL");
    assert_refused(eg_cosine_lr(f.optimizer, 0, 0), EG_EINVAL, "t_max 0");
    assert_refused(eg_cosine_lr(f.optimizer, 3, NAN), EG_EINVAL, "eta_min");
    assert_refused(eg_linear_warmup_lr(f.optimizer, -1, 0.1, eg_step_lr(f.optimizer, 1, 0.5)), EG_EINVAL, "-1 steps");
    assert_refused(eg_linear_warmup_lr(f.optimizer, 1, 0.1, eg_step_lr(other.optimizer, 1, 0.5)), EG_EINVAL,
                   "another optimizer");
    assert_refused(eg_one_cycle_lr(f.optimizer, 0, 10, 0, 0, 0), EG_EINVAL, "max_lr 0");
    assert_refused(eg_one_cycle_lr(f.optimizer, 1, 10, 1, 0, 0), EG_EINVAL, "pct_start 1");
    assert_fails(eg_scheduler_step(NULL), EG_EINVAL, "scheduler");
    eg_scheduler *s = eg_step_lr(f.optimizer, 1, 0.5);
    assert_fails(eg_scheduler_set_position(s, -1), EG_EINVAL, "position -1");
    eg_scheduler_free(NULL);
    end(&other, NULL);
    end(&f, s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates),   cmocka_unit_test(test_ends),          cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_resumes), cmocka_unit_test(test_bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

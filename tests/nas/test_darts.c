/*
 * DARTS: what alphas mean, their gradients, a step of the strategy, and its state.
 */
#include "nas/toy.h"

static int setup(void **state)
{
    *state = eg_context_new(.seed = 3, .threads = 2);
    return *state == NULL;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    return 0;
}

/* ---- the final decision ---- */

typedef struct edges {
    eg_module base;
    eg_module *e[3], *merge;
} edges;

static eg_status edges_build(eg_module *self)
{
    edges *m = (edges *)self;
    static const char *const keys[] = {"e0", "e1", "e2"};
    for (int i = 0; i < 3; i++)
        EG_TRY(eg_module_add_child(self, keys[i], &m->e[i],
                                   eg_layer_choice(self->ctx, GAINS_ABC(self->ctx), .key = keys[i])));
    return EG_SLOT(
        m, merge,
        eg_input_choice(self->ctx, .choose_from = EG_KEYS("e0", "e1", "e2"), .n_chosen = EG_N(2), .key = "sw"));
}

static eg_tensor *edges_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    edges *m = (edges *)self;
    return eg_call(m->merge, eg_call(m->e[0], in[0]), eg_call(m->e[1], in[0]), eg_call(m->e[2], in[0]));
}

static EG_CLASS(edges, .build = edges_build, .forward = edges_forward);

static void set_alpha(eg_mutator *mutator, const char *key, const float *values)
{
    eg_tensor *alpha = eg_darts_mutator_alpha(mutator, key);
    assert_made(alpha);
    assert_ok(eg_tensor_write(alpha, values, (size_t)eg_tensor_numel(alpha)));
}

static void strongest_edges_are_exported(void **state)
{
    eg_module *net = eg_new(edges, *state);
    eg_mutator *mutator = eg_darts_mutator_new(net);
    assert_made(mutator);
    set_alpha(mutator, "e0", (const float[]){1, 2, 0, 0});
    set_alpha(mutator, "e1", (const float[]){0, 0, 0, 5}); /* "none" is strong: a weak edge */
    set_alpha(mutator, "e2", (const float[]){3, 0, 0, 0});
    eg_arch *arch = eg_mutator_export(mutator);
    assert_made(arch);
    eg_arch *expected = parse_arch("{\"e0\": \"b\", \"e1\": [], \"e2\": \"a\", \"sw\": [\"e0\", \"e2\"]}");
    assert_true(eg_arch_equal(arch, expected));
    /* the exported network computes only what is left */
    eg_mutator_detach(mutator);
    assert_ok(eg_apply_arch(net, arch));
    assert_close(run_on_one(net), 11, 0);
    assert_int_equal(eg_module_n_parameters(net), 2);
    eg_arch_free(arch);
    eg_arch_free(expected);
    eg_module_release(net);
}

static void sources_without_weights_count_as_zero(void **state)
{
    (void)state;
    log_record record = {0};
    eg_context *ctx = eg_context_new(.threads = 1, .log = record_log, .log_payload = &record);
    eg_module *net = eg_new(pick, ctx, false);
    eg_mutator *mutator = eg_darts_mutator_new(net);
    eg_arch *arch = eg_mutator_export(mutator);
    assert_made(arch);
    char *value = eg_arch_value(arch, "merge");
    assert_string_equal(value, "[\"left\", \"right\"]");
    assert_int_equal(record.lines, 1);
    assert_non_null(strstr(record.last, "input choice 'merge': source ''"));
    eg_free(value);
    eg_arch_free(arch);
    eg_mutator_detach(mutator);
    eg_module_release(net);
    eg_context_free(ctx);
}

static void any_number_means_all(void **state)
{
    eg_module *net = eg_new(pick, *state, true);
    eg_mutator *mutator = eg_darts_mutator_new(net);
    eg_arch *arch = eg_mutator_export(mutator);
    char *value = eg_arch_value(arch, "merge");
    assert_string_equal(value, "[\"left\", \"right\", \"\"]");
    eg_free(value);
    eg_arch_free(arch);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void minus_infinity_cuts_a_candidate(void **state)
{
    eg_context *ctx = *state;
    eg_module *m = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k");
    eg_mutator *mutator = eg_darts_mutator_new(m);
    set_alpha(mutator, "k", (const float[]){0, -INFINITY, 0, -INFINITY});
    assert_ok(eg_mutator_reset(mutator));
    assert_close(run_on_one(m), 50.5, 1e-4);
    eg_mutator_detach(mutator);
    eg_module_release(m);
}

static void alphas_start_small(void **state)
{
    eg_module *net = eg_new(pick, *state, false);
    eg_mutator *mutator = eg_darts_mutator_new(net);
    eg_tensor *alpha = eg_darts_mutator_alpha(mutator, "left");
    assert_made(alpha);
    assert_int_equal(eg_tensor_numel(alpha), 4);
    float values[4];
    assert_ok(eg_tensor_read(alpha, values, 4));
    for (int i = 0; i < 4; i++)
        assert_true(values[i] != 0 && fabsf(values[i]) < 6e-3F);
    assert_refused(eg_darts_mutator_alpha(mutator, "merge"), EG_ENOENT, "'merge'");
    eg_state *tensors = eg_state_new();
    assert_ok(eg_darts_mutator_state(mutator, "alpha.", tensors));
    assert_int_equal(eg_state_size(tensors), 2);
    assert_ptr_equal(eg_state_get(tensors, "alpha.left"), alpha);
    eg_state_free(tensors);
    eg_mutator_detach(mutator);
    mutator = eg_random_mutator_new(net);
    assert_refused(eg_darts_mutator_alpha(mutator, "left"), EG_EINVAL, "RandomMutator, expected a DartsMutator");
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* y = sum_i p_i g_i x with p = softmax(alpha) over four entries, one of them "none"; dy/dalpha_j = p_j (g_j - y). */
static void gradients_by_hand(void **state)
{
    eg_context *ctx = *state;
    eg_module *m = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k");
    eg_mutator *mutator = eg_darts_mutator_new(m);
    const float alpha[4] = {0.3F, -0.2F, 0.1F, 0.4F};
    const double gains[4] = {1, 10, 100, 0};
    set_alpha(mutator, "k", alpha);
    double p[4], sum = 0, y = 0;
    for (int i = 0; i < 4; i++)
        sum += p[i] = exp((double)alpha[i]);
    for (int i = 0; i < 4; i++)
        y += (p[i] /= sum) * gains[i];
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    assert_ok(eg_mutator_reset(mutator));
    eg_tensor *out = eg_call(m, eg_ones(ctx, EG_SHAPE(1, 1)));
    assert_close(eg_tensor_item(out), y, 1e-4);
    assert_ok(eg_backward(eg_sum(out)));
    eg_tape_end(tape);
    eg_tensor *grad = eg_tensor_grad(eg_darts_mutator_alpha(mutator, "k"));
    assert_made(grad);
    float expected[4];
    for (int i = 0; i < 4; i++)
        expected[i] = (float)(p[i] * (gains[i] - y));
    assert_numbers(grad, expected, 4, 1e-4);
    eg_mutator_detach(mutator);
    eg_module_release(m);
}

/* ---- the strategy ---- */

/* Two candidates of a linear classifier's input: the feature itself, or nothing of it. Only the first can learn. */
static eg_module *make_learner(eg_context *ctx)
{
    return eg_sequential(
        ctx, EG_MODULES(eg_layer_choice(ctx, EG_CHOICES({"blind", make_gain(ctx, 1e-6)}, {"seeing", make_gain(ctx, 1)}),
                                        .key = "k"),
                        eg_linear(ctx, 2, 2)));
}

static eg_batch make_batch(eg_context *ctx, eg_rng *rng)
{
    enum { N = 32 };
    float x[N * 2];
    int64_t y[N];
    for (int i = 0; i < N; i++) {
        y[i] = (int64_t)eg_rng_below(rng, 2);
        x[2 * i] = (float)(y[i] == 0 ? -1 : 1) + 0.3F * (float)eg_rng_normal(rng);
        x[2 * i + 1] = (float)eg_rng_normal(rng);
    }
    return (eg_batch){.x = eg_from_data(ctx, EG_SHAPE(N, 2), x), .y = eg_from_labels(ctx, N, y), .size = N};
}

typedef struct searcher {
    eg_context *ctx;
    eg_module *net;
    eg_optimizer *optimizer;
    eg_strategy *strategy;
    eg_rng data;
} searcher;

static searcher start_search(uint64_t seed, double arch_lr)
{
    searcher s = {.ctx = eg_context_new(.seed = seed, .threads = 1), .data = eg_rng_make(seed, "data", 0)};
    s.net = make_learner(s.ctx);
    s.optimizer = eg_sgd(s.net, .lr = 0.1, .momentum = 0.9);
    eg_strategy_options options = {.struct_size = sizeof options, .arch_lr = arch_lr};
    s.strategy = eg_strategy_new(eg_strategy_find("darts"), s.net, s.optimizer, NULL, &options);
    assert_made(s.strategy);
    return s;
}

static void end_search(searcher *s)
{
    eg_strategy_free(s->strategy);
    eg_optimizer_free(s->optimizer);
    eg_module_release(s->net);
    eg_context_free(s->ctx);
}

static eg_step_result step(searcher *s)
{
    eg_tape *tape = eg_tape_begin(s->ctx, EG_NO_GRAD);
    eg_batch train = make_batch(s->ctx, &s->data), valid = make_batch(s->ctx, &s->data);
    eg_step_result result;
    assert_ok(s->strategy->cls->train_step(s->strategy, &train, &valid, &result));
    eg_tape_end(tape);
    return result;
}

static void the_better_branch_wins(void **state)
{
    (void)state;
    searcher s = start_search(5, 0.05);
    eg_step_result first = step(&s), last = {0};
    for (int i = 0; i < 60; i++)
        last = step(&s);
    assert_true(last.loss < first.loss);
    assert_true(last.accuracy > 0.9);
    eg_arch *arch = s.strategy->cls->choose(s.strategy);
    assert_made(arch);
    char *value = eg_arch_value(arch, "k");
    assert_string_equal(value, "\"seeing\"");
    eg_free(value);
    eg_arch_free(arch);
    end_search(&s);
}

/* Adam's first step has length lr (its moments agree), weight decay included: alpha moves by that, against the
 * gradient. */
static void a_step_moves_both(void **state)
{
    (void)state;
    searcher s = start_search(6, 0.01);
    eg_tensor *alpha = eg_darts_mutator_alpha(s.strategy->mutator, "k"), *weight = eg_module_tensor(s.net, "1.weight");
    float a[2][3], w[2][4];
    assert_ok(eg_tensor_read(alpha, a[0], 3));
    assert_ok(eg_tensor_read(weight, w[0], 4));
    step(&s);
    assert_ok(eg_tensor_read(alpha, a[1], 3));
    assert_ok(eg_tensor_read(weight, w[1], 4));
    for (int i = 0; i < 3; i++)
        assert_close(fabsf(a[1][i] - a[0][i]), 0.01, 1e-4);
    assert_true(memcmp(w[0], w[1], sizeof w[0]) != 0);
    assert_null(eg_tensor_grad(weight));
    assert_null(eg_tensor_grad(alpha));
    assert_true(eg_tensor_requires_grad(weight)); /* as the model was given */
    end_search(&s);
}

static void alphas_wait_for_the_warmup(void **state)
{
    (void)state;
    searcher s = start_search(9, 0.01);
    eg_tensor *alpha = eg_darts_mutator_alpha(s.strategy->mutator, "k"), *weight = eg_module_tensor(s.net, "1.weight");
    static const double trained[] = {0, 0.499, 0.5, 1};
    s.strategy->options.warmup = 0.5;
    for (int i = 0; i < 4; i++) {
        float a[2][3], w[2][4];
        assert_ok(eg_tensor_read(alpha, a[0], 3));
        assert_ok(eg_tensor_read(weight, w[0], 4));
        s.strategy->trained = trained[i];
        step(&s);
        assert_ok(eg_tensor_read(alpha, a[1], 3));
        assert_ok(eg_tensor_read(weight, w[1], 4));
        assert_int_equal(memcmp(a[0], a[1], sizeof a[0]) == 0, trained[i] < 0.5);
        assert_true(memcmp(w[0], w[1], sizeof w[0]) != 0);
    }
    end_search(&s);
}

/* A search that stops, saves, and goes on elsewhere gives the same bits. */
static void state_resumes(void **state)
{
    (void)state;
    searcher whole = start_search(7, 0.02), resumed = start_search(8, 0.02);
    for (int i = 0; i < 5; i++)
        step(&whole);
    eg_state *saved = eg_state_new();
    assert_ok(eg_module_state(whole.net, "model.", saved));
    assert_ok(eg_optimizer_state(whole.optimizer, "optimizer.", saved));
    assert_ok(whole.strategy->cls->save(whole.strategy, "strategy.", saved));
    assert_ok(eg_module_load_state(resumed.net, "model.", saved, false));
    assert_ok(eg_optimizer_load_state(resumed.optimizer, "optimizer.", saved));
    assert_ok(resumed.strategy->cls->load(resumed.strategy, "strategy.", saved));
    resumed.data = whole.data;
    *eg_context_rng(resumed.ctx) = *eg_context_rng(whole.ctx);
    eg_state_free(saved);
    for (int i = 0; i < 5; i++) {
        eg_step_result a = step(&whole), b = step(&resumed);
        assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
    }
    float a[3], b[3];
    assert_ok(eg_tensor_read(eg_darts_mutator_alpha(whole.strategy->mutator, "k"), a, 3));
    assert_ok(eg_tensor_read(eg_darts_mutator_alpha(resumed.strategy->mutator, "k"), b, 3));
    assert_memory_equal(a, b, sizeof a);
    assert_int_equal(eg_context_rng(whole.ctx)->position, eg_context_rng(resumed.ctx)->position);
    eg_state *empty = eg_state_new();
    assert_fails(whole.strategy->cls->load(whole.strategy, "strategy.", empty), EG_ENOENT, "strategy.alpha.k");
    eg_state_free(empty);
    end_search(&whole);
    end_search(&resumed);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(strongest_edges_are_exported), TEST(sources_without_weights_count_as_zero),
        TEST(any_number_means_all),         TEST(minus_infinity_cuts_a_candidate),
        TEST(alphas_start_small),           TEST(gradients_by_hand),
        TEST(the_better_branch_wins),       TEST(a_step_moves_both),
        TEST(alphas_wait_for_the_warmup),   TEST(state_resumes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

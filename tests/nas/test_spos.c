/*
 * SPOS: one path a step, then evolution among paths.
 */
#include "nas/toy.h"

static int setup(void **state)
{
    *state = eg_context_new(.seed = 4, .threads = 1);
    return *state == NULL;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    return 0;
}

/* `n` choices of three, each of its own key. */
static eg_module *make_chain(eg_context *ctx, int n)
{
    eg_module *net = eg_sequential(ctx);
    for (int i = 0; i < n; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        assert_ok(eg_append(net, eg_layer_choice(ctx, GAINS_012(ctx), .key = key)));
    }
    return net;
}

/* Judges by how many choices are "2". */
typedef struct judge {
    eg_strategy *strategy;
    size_t evaluations, progress, cancel_at, last_total;
    double best;
} judge;

static eg_status count_twos(void *payload, double *accuracy)
{
    judge *j = payload;
    const eg_mutator *mutator = j->strategy->mutator;
    double twos = 0;
    for (size_t i = 0; i < mutator->n_mutables; i++)
        twos += eg_decisions_get(mutator->current, eg_mutable_key(mutator->mutables[i]))->weights[2];
    *accuracy = twos / (double)mutator->n_mutables;
    j->best = fmax(j->best, *accuracy);
    j->evaluations++;
    return EG_OK;
}

static eg_status count_progress(void *payload, const char *what, size_t done, size_t total)
{
    judge *j = payload;
    assert_string_equal(what, "candidates");
    assert_true(done == j->evaluations && done <= total); /* after each, and with the true number at the end */
    j->last_total = total;
    if (j->cancel_at > 0 && done == j->cancel_at)
        return eg_fail(EG_ECANCELED, "canceled");
    j->progress++;
    return EG_OK;
}

typedef struct search {
    eg_module *net;
    eg_optimizer *optimizer;
    eg_strategy_host host;
    judge judge;
    eg_strategy *strategy;
} search;

static void start_search(search *s, eg_context *ctx, int n, eg_strategy_options options)
{
    *s = (search){.net = make_chain(ctx, n)};
    s->optimizer = eg_sgd(s->net, .lr = 0.1);
    s->host = (eg_strategy_host){.payload = &s->judge, .evaluate = count_twos, .progress = count_progress};
    options.struct_size = sizeof options;
    s->strategy = eg_strategy_new(eg_strategy_find("spos"), s->net, s->optimizer, &s->host, &options);
    assert_made(s->strategy);
    s->judge.strategy = s->strategy;
}

static void end_search(search *s)
{
    eg_strategy_free(s->strategy);
    eg_optimizer_free(s->optimizer);
    eg_module_release(s->net);
}

static eg_arch *choose(search *s)
{
    return s->strategy->cls->choose(s->strategy);
}

static void evolution_finds_the_best(void **state)
{
    search s;
    start_search(&s, *state, 12, (eg_strategy_options){.evaluations = 400, .seed = 1});
    eg_arch *arch = choose(&s);
    assert_made(arch);
    assert_int_equal(s.judge.evaluations, 400);
    assert_int_equal(s.judge.progress, 400);
    assert_int_equal(s.judge.last_total, 400);
    double evolved = s.judge.best;
    /* what was chosen is the best that was seen, and it is what the model now does */
    double chosen;
    assert_ok(count_twos(&s.judge, &chosen));
    assert_close(chosen, evolved, 0);
    eg_arch_free(arch);
    end_search(&s);

    start_search(&s, *state, 12, (eg_strategy_options){.evaluations = 400, .seed = 1, .choice = "random"});
    arch = choose(&s);
    assert_made(arch);
    assert_int_equal(s.judge.evaluations, 400);
    assert_true(evolved > s.judge.best);
    assert_true(evolved >= 11.0 / 12);
    eg_arch_free(arch);
    end_search(&s);
}

static void the_seed_decides(void **state)
{
    eg_arch *found[3];
    for (int i = 0; i < 3; i++) {
        search s;
        start_search(&s, *state, 10, (eg_strategy_options){.evaluations = 30, .population = 10, .seed = i < 2 ? 1 : 2});
        found[i] = choose(&s);
        assert_made(found[i]);
        end_search(&s);
    }
    assert_true(eg_arch_equal(found[0], found[1]));
    assert_false(eg_arch_equal(found[0], found[2]));
    for (int i = 0; i < 3; i++)
        eg_arch_free(found[i]);
}

static void a_small_space_ends(void **state)
{
    (void)state;
    log_record record = {0};
    eg_context *ctx = eg_context_new(.threads = 1, .log = record_log, .log_payload = &record);
    search s;
    start_search(&s, ctx, 2, (eg_strategy_options){0});
    eg_arch *arch = choose(&s);
    assert_made(arch);
    assert_int_equal(s.judge.evaluations, 9); /* all there are, each once */
    assert_int_equal(s.judge.last_total, 9);
    assert_int_equal(record.lines, 1);
    assert_non_null(strstr(record.last, "no new architecture found after 9"));
    char *text = eg_arch_text(arch);
    assert_string_equal(text, "{\n  \"k0\": 2,\n  \"k1\": 2\n}\n");
    eg_free(text);
    eg_arch_free(arch);
    end_search(&s);
    eg_context_free(ctx);
}

static void canceling_stops(void **state)
{
    search s;
    start_search(&s, *state, 4, (eg_strategy_options){0});
    s.judge.cancel_at = 5;
    assert_refused(choose(&s), EG_ECANCELED, "canceled");
    assert_int_equal(s.judge.evaluations, 5);
    end_search(&s);
}

static void bad_options_are_refused(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = make_chain(ctx, 1);
    eg_optimizer *optimizer = eg_sgd(net, .lr = 0.1);
    const eg_strategy_class *cls = eg_strategy_find("spos");
    eg_strategy_options options = {.struct_size = sizeof options, .choice = "luck"};
    assert_refused(eg_strategy_new(cls, net, optimizer, NULL, &options), EG_EINVAL,
                   "choice is 'luck', expected 'evolution' or 'random'");
    options = (eg_strategy_options){.struct_size = sizeof options, .population = -1};
    assert_refused(eg_strategy_new(cls, net, optimizer, NULL, &options), EG_EINVAL, "population is -1");
    assert_refused(eg_strategy_new(cls, net, NULL, NULL, NULL), EG_EINVAL, "optimizer");
    eg_strategy *strategy = eg_strategy_new(cls, net, optimizer, NULL, NULL);
    assert_refused(cls->choose(strategy), EG_EINVAL, "evaluate");
    eg_strategy_free(strategy);
    assert_null(eg_mutable_mutator(net));
    eg_optimizer_free(optimizer);
    eg_module_release(net);
}

/* ---- training ---- */

static void idle_branches_do_not_move(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_sequential(
        ctx, EG_MODULES(eg_layer_choice(ctx, EG_MODULES(make_gain(ctx, .5), make_gain(ctx, .7)), .key = "k"),
                        eg_linear(ctx, 2, 2)));
    eg_optimizer *optimizer = eg_sgd(net, .lr = 0.1, .momentum = 0.9, .weight_decay = 0.1);
    eg_strategy *strategy = eg_strategy_new(eg_strategy_find("spos"), net, optimizer, NULL, NULL);
    assert_made(strategy);
    eg_module *choice = eg_module_child_at(net, 0, NULL);
    int used[2] = {0};
    for (int i = 0; i < 20; i++) {
        eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
        eg_batch batch = {
            .x = eg_randn(ctx, EG_SHAPE(4, 2)), .y = eg_from_labels(ctx, 4, (const int64_t[]){0, 1, 0, 1}), .size = 4};
        double before[2], after[2];
        for (size_t k = 0; k < 2; k++)
            before[k] = eg_tensor_item(((gain *)eg_layer_choice_at(choice, k))->weight);
        eg_step_result result;
        assert_ok(strategy->cls->train_step(strategy, &batch, NULL, &result));
        assert_true(result.loss > 0);
        const eg_decision *decision = eg_decisions_get(strategy->mutator->current, "k");
        for (size_t k = 0; k < 2; k++) {
            after[k] = eg_tensor_item(((gain *)eg_layer_choice_at(choice, k))->weight);
            assert_int_equal(before[k] != after[k], decision->weights[k] != 0);
            used[k] += decision->weights[k] != 0;
        }
        eg_tape_end(tape);
    }
    assert_true(used[0] > 2 && used[1] > 2);
    eg_strategy_free(strategy);
    eg_optimizer_free(optimizer);
    eg_module_release(net);
}

/* Layers that no input choice has chosen are not run. */
static void unused_layers_are_dropped(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_new(pick, ctx, true);
    eg_optimizer *optimizer = eg_sgd(net, .lr = 0.1);
    eg_strategy *strategy = eg_strategy_new(eg_strategy_find("spos"), net, optimizer, NULL, NULL);
    assert_made(strategy);
    int dropped = 0;
    for (int i = 0; i < 30; i++) {
        assert_ok(eg_mutator_reset(strategy->mutator));
        const eg_decisions *now = strategy->mutator->current;
        const eg_decision *left = eg_decisions_get(now, "left"), *merge = eg_decisions_get(now, "merge");
        double chosen = left->weights[0] + left->weights[1] + left->weights[2];
        assert_close(chosen, merge->weights[0], 0);
        dropped += chosen == 0;
    }
    assert_true(dropped > 3);
    eg_strategy_free(strategy);
    eg_optimizer_free(optimizer);
    eg_module_release(net);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(evolution_finds_the_best),  TEST(the_seed_decides),        TEST(a_small_space_ends),
        TEST(canceling_stops),           TEST(bad_options_are_refused), TEST(idle_branches_do_not_move),
        TEST(unused_layers_are_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

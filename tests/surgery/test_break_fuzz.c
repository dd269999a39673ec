/*
 * Random models, random methods on top of one another, with commits, undos, savepoints and trainings between: what must
 * hold whatever they are. EG_TEST_SURGERIES says how many, EG_TEST_SURGERY which one alone.
 */
#include "random_models.h"

#include "engraft/methods.h"
#include "engraft/surgery_report.h"

enum { MAX_OUT = 1 << 17, N_STEPS = 14 };

static bool loud;

/* ---- random methods ---- */

static const char *const calls[] = {"blur_pool(min_channels=1)",
                                    "blur_pool(min_channels=1, blur_last=true)",
                                    "blur_pool(keep_convs=true)",
                                    "squeeze_excite(min_channels=1, latent_channels=0.5)",
                                    "squeeze_excite(min_channels=2, near_identity=true)",
                                    "ghost_batch_norm(ghost_batch_size=1)",
                                    "ghost_batch_norm(ghost_batch_size=2)",
                                    "stochastic_depth",
                                    "stochastic_depth(drop_rate=1, method=sample, distribution=uniform)",
                                    "unwrap",
                                    "weight_standardization",
                                    "weight_standardization(n_last_layers_ignore=1)",
                                    "gated_linear_unit",
                                    "gated_linear_unit(gate_bias=true)",
                                    "alibi",
                                    "low_precision_norm",
                                    "factorize(rank=1, min_channels=1)",
                                    "factorize(max_error=0.5, min_channels=1)",
                                    "factorize(rank=0.5, min_channels=2)",
                                    "low_rank_adapter(rank=1)",
                                    "low_rank_adapter(rank=3, alpha=1)",
                                    "merge_adapter",
                                    "fold_batch_norm",
                                    "fuse_conv_bn_relu",
                                    "fuse_parallel_linear",
                                    "prune_channels",
                                    "prune_channels(ratio=0.9)",
                                    "prune_channels(ratio=1, global=true, score=l1)",
                                    "prune_heads(ratio=0.5)",
                                    "widen",
                                    "widen(ratio=1)",
                                    "widen(ratio=0.3)",
                                    "layer_freezing",
                                    "layer_freezing(unfreeze=true)",
                                    "layer_freezing(depth=1)",
                                    "activation_swap",
                                    "activation_swap(from=SiLU, to=ReLU)",
                                    "activation_swap(from=GELU, to=Identity)",
                                    "new_head(classes=4)",
                                    "drop_layers(first=1)",
                                    "duplicate_layers",
                                    "duplicate_layers(first=0, count=2)",
                                    "identity_elimination",
                                    "fold_batch_norm",
                                    "widen",
                                    "merge_adapter",
                                    "unwrap"};
static const char *const patterns[] = {NULL, NULL,   NULL,   NULL,     NULL,         "**",
                                       "*",  "0.**", "1, 2", "*.0.**", "**.body.**", "0"};

/* ---- the state of a case ---- */

typedef struct world {
    eg_module *net, *held;
    eg_optimizer *o;
    eg_surgery *s;
    eg_shape input;
    eg_tensor *x;
    bool exact;      /* what is planned promises it */
    bool by_numbers; /* what was done depends on numbers that a copy has not */
    bool trained;    /* since the last commit */
    uint64_t prints[64];
    bool touched[64]; /* trained since */
    size_t n_commits;
    char log[4096];
} world;

static void say(world *w, const char *format, ...) EG_PRINTF(2, 3);
static void say(world *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t len = strlen(w->log);
    vsnprintf(w->log + len, sizeof(w->log) - len, format, args);
    va_end(args);
    if (loud)
        fprintf(stderr, "%s", w->log + len);
}

static size_t outputs(world *w, eg_module *m, float *out)
{
    bool was = m->training;
    eg_module_train(m, false);
    eg_tape *quiet = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *y = eg_call(m, w->x);
    if (y == NULL)
        fail_msg("%s\nthe model does not run: %s", w->log, eg_error_last()->message);
    size_t n = (size_t)eg_tensor_numel(y);
    assert_true(n <= MAX_OUT);
    assert_ok(eg_tensor_read(y, out, n));
    eg_tape_end(quiet);
    eg_module_train(m, was);
    return n;
}

static void train_step(world *w)
{
    for (size_t i = 0; i < 64; i++)
        w->touched[i] = true;
    w->by_numbers = w->s != NULL;
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *y = eg_call(w->net, w->x);
    if (y == NULL) { /* ghost batches want more samples */
        const char *text = eg_error_last()->message;
        if (strstr(text, "ghost_batch_size") == NULL && strstr(text, "value per channel") == NULL)
            fail_msg("%s\ntraining: %s", w->log, eg_error_last()->message);
        eg_error_clear();
        eg_tape_end(tape);
        return;
    }
    eg_tensor *loss = eg_mean(eg_mul(y, y));
    if (loss->tape_id != 0 && eg_backward(loss) != EG_OK)
        fail_msg("%s\nbackward: %s", w->log, eg_error_last()->message);
    eg_tape_end(tape);
    if (eg_optimizer_step(w->o) != EG_OK)
        fail_msg("%s\nstep: %s", w->log, eg_error_last()->message);
    if (!chance(5))
        eg_optimizer_zero_grad(w->o);
}

/* ---- what must hold ---- */

typedef struct census {
    world *w;
    size_t n_trained;
    eg__ptr_map seen;
} census;

static eg_status check_parameter(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    census *c = payload;
    if (kind != EG_SLOT_PARAMETER)
        return EG_OK;
    size_t n = times_in(c->w->o, t);
    if (n != (size_t)t->requires_grad)
        fail_msg("%s\n'%s' is %strained and in the optimizer %zu times", c->w->log, path,
                 t->requires_grad ? "" : "not ", n);
    bool added;
    assert_ok(eg__ptr_map_add(&c->seen, t, &added));
    c->n_trained += t->requires_grad && added;
    return EG_OK;
}

static void check_optimizer(world *w)
{
    census c = {.w = w};
    assert_ok(eg_module_walk_tensors(w->net, check_parameter, &c));
    for (size_t i = 0; i < w->o->n_params; i++) {
        const eg__param *p = &w->o->params[i];
        for (size_t k = 0; k < EG__MAX_STATES; k++) {
            if (p->states[k] != NULL && !eg_shape_equal(p->states[k]->shape, p->tensor->shape))
                fail_msg("%s\nstate %zu of '%s' has another shape", w->log, k, p->name);
        }
        if (eg_module_tensor(w->net, p->name) != p->tensor)
            fail_msg("%s\nthe optimizer calls a parameter '%s', the model does not", w->log, p->name);
    }
    eg__ptr_map_free(&c.seen);
    if (c.n_trained != w->o->n_params)
        fail_msg("%s\nthe optimizer has %zu parameters, the model trains %zu", w->log, w->o->n_params, c.n_trained);
}

static void compare(world *w, const char *what, const float *a, size_t n, const float *b, size_t n_b, float tolerance)
{
    float most = 0;
    if (n != n_b)
        fail_msg("%s\n%s: %zu outputs, %zu now", w->log, what, n, n_b);
    for (size_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(a[i]));
    if (!isfinite(most) || most > 1e15f)
        return;
    for (size_t i = 0; i < n; i++) {
        if (!(fabsf(a[i] - b[i]) <= tolerance * (most + 1e-6f)))
            fail_msg("%s\n%s: output %zu was %g and is %g (largest %g)", w->log, what, i, (double)a[i], (double)b[i],
                     (double)most);
    }
}

static eg_status find_special(void *payload, const char *path, eg_module *m)
{
    (void)path;
    *(bool *)payload = *(bool *)payload || m->n_hooks > 0 || m->n_reparams > 0;
    return EG_OK;
}

/* The model from its JSON computes the same. */
static void check_json(world *w)
{
    bool special = false;
    assert_ok(eg_module_walk(w->net, find_special, &special));
    if (special)
        return;
    char *json = eg_module_json(w->net);
    if (json == NULL)
        fail_msg("%s\nJSON: %s", w->log, eg_error_last()->message);
    eg_module *again = eg_module_from_json(ctx, json);
    if (again == NULL)
        fail_msg("%s\nfrom JSON: %s\n%s", w->log, eg_error_last()->message, json);
    eg_free(json);
    eg_state *state = eg_state_new();
    assert_ok(eg_module_state(w->net, NULL, state));
    if (eg_module_load_state(again, NULL, state, true) != EG_OK)
        fail_msg("%s\nstate: %s", w->log, eg_error_last()->message);
    static float a[MAX_OUT], b[MAX_OUT];
    size_t n = outputs(w, w->net, a), n_b = outputs(w, again, b);
    compare(w, "from JSON", a, n, b, n_b, 1e-6f);
    eg_state_free(state);
    eg_module_release(again);
}

/* What is planned, planned again on a copy, has the same structure: the replay itself sees to that. */
static void check_recipe(world *w, eg_module *copy)
{
    char *recipe = eg_surgery_recipe(w->s);
    if (recipe == NULL) {
        if (eg_error_last()->code != EG_EUNSUPPORTED)
            fail_msg("%s\nrecipe: %s", w->log, eg_error_last()->message);
        eg_error_clear();
        return;
    }
    eg_surgery *s = eg_surgery_new(copy, .root = &copy, .inputs = {&w->input, 1});
    assert_made(s);
    if (eg_surgery_replay(s, recipe, false) != EG_OK)
        fail_msg("%s\nreplay: %s\n%s", w->log, eg_error_last()->message, recipe);
    if (eg_surgery_commit(s) != EG_OK)
        fail_msg("%s\ncommit of the replay: %s", w->log, eg_error_last()->message);
    eg_surgery_free(s);
    eg_module_release(copy);
    eg_free(recipe);
}

/* ---- actions ---- */

static void apply(world *w)
{
    const char *call = calls[below(sizeof(calls) / sizeof(calls[0]))];
    const char *at = patterns[below(sizeof(patterns) / sizeof(patterns[0]))];
    uint64_t before = fingerprint(w->net, w->o);
    size_t planned = eg_surgery_size(w->s);
    bool had = eg_surgery_has_plan(w->s);
    say(w, "apply %s at %s;", call, at != NULL ? at : "-");
    eg_module *options = eg_method_from_text(ctx, call);
    assert_made(options);
    const eg_method *method = (const eg_method *)(const void *)options->cls;
    eg_error_clear();
    eg_status status = eg_surgery_apply(w->s, options, at);
    if ((status != EG_OK) != (eg_error_last()->code != EG_OK))
        fail_msg("%s\nstatus %d, but recorded: %s", w->log, status, eg_error_last()->message);
    assert_true(fingerprint(w->net, w->o) == before);
    if (status != EG_OK) {
        say(w, " (%s)", eg_error_last()->message);
        assert_int_equal(eg_surgery_size(w->s), planned);
        assert_true(eg_surgery_has_plan(w->s) == had);
        eg_error_clear();
        return;
    }
    if (method->promise != EG_PROMISE_EXACT)
        w->exact = false;
    w->by_numbers = w->by_numbers || strstr(call, "max_error") != NULL || strstr(call, "global") != NULL;
}

static void commit(world *w)
{
    static float a[MAX_OUT], b[MAX_OUT];
    if (!eg_surgery_has_plan(w->s) || w->n_commits == 60)
        return;
    size_t n = outputs(w, w->net, a);
    uint64_t before = fingerprint(w->net, w->o);
    say(w, " commit;");
    if (chance(3)) {
        eg_status checked = eg_surgery_check(w->s);
        eg_error_clear();
        assert_true(fingerprint(w->net, w->o) == before);
        if (checked == EG_OK && chance(3)) {
            say(w, "(train between);");
            train_step(w);
            before = fingerprint(w->net, w->o);
            n = outputs(w, w->net, a);
            w->exact = false; /* numbers were computed before */
        }
    }
    if (eg_surgery_commit(w->s) != EG_OK) {
        say(w, " FAILED (%s);", eg_error_last()->message);
        const char *text = eg_error_last()->message;
        if (strstr(text, "no longer run") == NULL || getenv("EG_TEST_STRICT") != NULL)
            fail_msg("%s\ncommit", w->log);
        eg_error_clear();
        assert_true(fingerprint(w->net, w->o) == before);
        eg_surgery_drop(w->s);
        w->exact = true;
        return;
    }
    size_t n_b = outputs(w, w->net, b);
    if (w->exact)
        compare(w, "exact", a, n, b, n_b, 2e-3f);
    check_optimizer(w);
    check_json(w);
    w->touched[w->n_commits] = false;
    w->prints[w->n_commits++] = before;
    w->exact = true;
}

static void undo(world *w)
{
    if (w->n_commits == 0)
        return;
    say(w, " undo;");
    bool drop = eg_surgery_has_plan(w->s);
    if (drop)
        eg_surgery_drop(w->s);
    w->n_commits--;
    if (eg_surgery_undo(w->s) != EG_OK)
        fail_msg("%s\nundo: %s", w->log, eg_error_last()->message);
    if (!w->touched[w->n_commits] && fingerprint(w->net, w->o) != w->prints[w->n_commits])
        fail_msg("%s\nundo did not restore", w->log);
    check_optimizer(w);
    if (chance(2)) {
        eg_surgery_drop(w->s);
    } else {
        w->exact = false;
        say(w, " redo");
        commit(w);
    }
}

static void act(world *w)
{
    switch (below(10)) {
    case 0:
        undo(w);
        break;
    case 1:
        say(w, " train;");
        train_step(w);
        w->exact = w->exact && !eg_surgery_has_plan(w->s); /* planned modules have the numbers from before */
        break;
    case 2:
        if (eg_surgery_has_plan(w->s)) {
            size_t savepoint = eg_surgery_savepoint(w->s);
            uint64_t before = fingerprint(w->net, w->o);
            bool exact = w->exact;
            size_t n = w->n_commits;
            say(w, " savepoint;");
            apply(w);
            if (chance(2))
                commit(w);
            if (w->n_commits > n)
                before = w->prints[n];
            w->n_commits = EG_MIN(w->n_commits, n);
            say(w, " rollback;");
            if (w->touched[n] && w->n_commits < n)
                break;
            if (eg_surgery_rollback(w->s, savepoint) != EG_OK) {
                if (strstr(eg_error_last()->message, "undone or dropped") == NULL &&
                    strstr(eg_error_last()->message, "has ended") == NULL)
                    fail_msg("%s\nrollback: %s", w->log, eg_error_last()->message);
                eg_error_clear();
                break;
            }
            if (!w->touched[n] && fingerprint(w->net, w->o) != before)
                fail_msg("%s\nrollback did not restore", w->log);
            w->exact = exact && !eg_surgery_has_plan(w->s);
            break;
        }
        break;
    case 3:
    case 4:
    case 5:
        commit(w);
        break;
    default:
        apply(w);
    }
}

static eg_optimizer *random_optimizer(eg_module *m)
{
    switch (below(3)) {
    case 0:
        return eg_sgd(m, .lr = 0.01, .momentum = 0.9);
    case 1:
        return eg_adam(m, .lr = 1e-3);
    default:
        return eg_sgd(m, .lr = 0.01);
    }
}

static void run_case(uint64_t number)
{
    static world w;
    eg_rng own = eg_rng_make(20261202, "surgery", number);
    rng = &own;
    memset(&w, 0, sizeof(w));
    eg_rng *stream = eg_context_rng(ctx);
    *stream = eg_rng_make(20261202, "weights", number);
    say(&w, "case %llu: ", (unsigned long long)number);
    w.net = chance(4) ? random_sequence_model(&w.input) : random_image_model(&w.input);
    assert_made(w.net);
    w.x = eg_tensor_keep(eg_randn(ctx, w.input));
    eg_tape *trial = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_module_train(w.net, false);
    bool runs = eg_call(w.net, w.x) != NULL; /* batch norms without statistics may have too few numbers */
    eg_module_train(w.net, true);
    eg_tape_end(trial);
    if (!runs) {
        eg_error_clear();
        eg_tensor_release(w.x);
        eg_module_release(w.net);
        return;
    }
    w.o = random_optimizer(w.net);
    assert_made(w.o);
    w.exact = true;
    size_t n = below(3);
    for (size_t i = 0; i < n; i++)
        train_step(&w);
    if (loud) {
        char *text = eg_module_text(w.net);
        fprintf(stderr, "%s\n", text);
        eg_free(text);
    }
    bool special = false;
    assert_ok(eg_module_walk(w.net, find_special, &special));
    eg_module *copy = eg_module_clone(w.net);
    assert_made(copy);
    w.s = eg_surgery_new(w.net, .root = &w.net, .optimizers = EG_OPTIMIZERS(w.o), .inputs = {&w.input, 1},
                         .snapshot = chance(4));
    assert_made(w.s);
    n = 3 + below(N_STEPS);
    for (size_t i = 0; i < n; i++)
        act(&w);
    commit(&w);
    if (!special && !w.by_numbers) {
        check_recipe(&w, copy);
    } else {
        eg_module_release(copy);
    }
    bool optimizer_first = chance(2);
    if (optimizer_first)
        eg_optimizer_free(w.o);
    eg_surgery_free(w.s);
    if (!optimizer_first)
        eg_optimizer_free(w.o);
    eg_tensor_release(w.x);
    eg_module_release(w.net);
}

static void survives(void **state)
{
    (void)state;
    const char *many = getenv("EG_TEST_SURGERIES"), *one = getenv("EG_TEST_SURGERY");
    uint64_t first = one != NULL ? strtoull(one, NULL, 10) : 0, n = one != NULL    ? 1
                                                                    : many != NULL ? strtoull(many, NULL, 10)
                                                                                   : 60;
    loud = one != NULL;
    if (getenv("EG_TEST_FIRST") != NULL)
        first = strtoull(getenv("EG_TEST_FIRST"), NULL, 10);
    assert_ok(eg_context_register_class(ctx, &my_conv_class));
    for (uint64_t i = first; i < first + n; i++) {
        eg_tape *inner = eg_tape_begin(ctx, EG_NO_GRAD);
        assert_non_null(inner);
        run_case(i);
        eg_tape_end(inner);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {SURGERY_TEST(survives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

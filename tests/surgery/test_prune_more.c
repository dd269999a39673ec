/*
 * Pruning and widening: random networks, options, and trainings that go on.
 */
#include "surgery/prune_nets.h"

#include "engraft/methods.h"
#include "engraft/optim.h"

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

/* ---- random networks ---- */

static int64_t pick(eg_rng *rng, int64_t low, int64_t high)
{
    return low + (int64_t)eg_rng_below(rng, (uint64_t)(high - low + 1));
}

/* Groups that divide both. */
static int64_t pick_groups(eg_rng *rng, int64_t a, int64_t b)
{
    int64_t groups = pick(rng, 1, a);
    while (a % groups != 0 || b % groups != 0)
        groups--;
    return groups;
}

static eg_module *random_conv(eg_rng *rng, int64_t in, int64_t out)
{
    int64_t kernel = pick(rng, 0, 1) * 2 + 1, groups = pick_groups(rng, in, out);
    if (pick(rng, 0, 3) == 0)
        return eg_conv_transpose2d(ctx, in, out, kernel, .padding = kernel / 2, .groups = groups);
    return eg_conv2d(ctx, in, out, kernel, .padding = kernel / 2, .groups = groups, .no_bias = pick(rng, 0, 1) == 0);
}

static eg_module *random_norm(eg_rng *rng, int64_t n)
{
    switch (pick(rng, 0, 4)) {
    case 0:
        return eg_group_norm(ctx, pick_groups(rng, n, n), n);
    case 1:
        return eg_instance_norm2d(ctx, n, .affine = pick(rng, 0, 1) == 0);
    case 2:
        return eg_prelu(ctx, n);
    default:
        return eg_batch_norm2d(ctx, n, .relu = pick(rng, 0, 1) == 0);
    }
}

/* A block from *n channels, over 8 x 8 positions; *n becomes what it gives. */
static eg_module *random_block(eg_rng *rng, int64_t *n)
{
    int64_t in = *n, out = 2 * pick(rng, 2, 8);
    switch (pick(rng, 0, 9)) {
    case 0:
        return residual(ctx, in, in);
    case 1:
        *n = out;
        return residual(ctx, in, out, .projection = true);
    case 2:
        *n = in + out;
        return eg_new(branches, ctx, EG_MODULES(random_conv(rng, in, out)), .dense = true);
    case 3:
        *n = 2 * out;
        return eg_new(branches, ctx,
                      EG_MODULES(random_conv(rng, in, out), SEQ(random_norm(rng, in), random_conv(rng, in, out))));
    case 4:
        return eg_new(gated, ctx,
                      EG_MODULES(SEQ(eg_adaptive_avg_pool2d(ctx, 1), CONV(in, out, 1), eg_relu(ctx), CONV(out, in, 1),
                                     eg_sigmoid(ctx))));
    case 5:
        return eg_new(
            added, ctx,
            EG_MODULES(random_conv(rng, in, out), random_norm(rng, out), eg_silu(ctx), random_conv(rng, out, in)));
    case 6:
        *n = in % 2 == 0 ? in / 2 : in;
        return in % 2 == 0 ? function(ctx, GLU) : random_norm(rng, in);
    case 7:
        return in % 2 == 0 ? function(ctx, pick(rng, 0, 1) ? HALVES : SHUFFLE) : eg_gelu(ctx);
    case 8:
        return SEQ(eg_pixel_unshuffle(ctx, 2), random_conv(rng, 4 * in, 4 * in), eg_pixel_shuffle(ctx, 2));
    default:
        *n = out;
        return SEQ(random_conv(rng, in, out), random_norm(rng, out));
    }
}

static eg_module *random_net(uint64_t seed)
{
    eg_rng rng = eg_rng_make(seed, "nets", 0);
    int64_t n = 2 * pick(&rng, 2, 6);
    eg_module *m = SEQ(CONV(3, n, 3, .padding = 1));
    assert_made(m);
    for (int64_t i = pick(&rng, 1, 6); i > 0; i--)
        assert_ok(eg_append(m, random_block(&rng, &n)));
    if (pick(&rng, 0, 1) == 0) {
        assert_ok(eg_append(m, eg_avg_pool2d(ctx, 4)));
        assert_ok(eg_append(m, eg_flatten(ctx)));
        assert_ok(eg_append(m, eg_linear(ctx, 4 * n, 3)));
    } else {
        assert_ok(eg_append(m, eg_global_avg_pool2d(ctx)));
        assert_ok(eg_append(m, eg_linear(ctx, n, 3)));
    }
    return m;
}

static size_t count_free(const eg_coupling *c)
{
    size_t n = 0;
    for (size_t i = 0; i < eg_coupling_size(c); i++)
        n += eg_coupling_at(c, i)->fixed == NULL;
    return n;
}

/* Doubles, or triples, what chance names: the outputs stay. */
static size_t check_widened(eg_module *m, const char *name, eg_shape input, uint64_t seed)
{
    fill_random(m);
    eg_module_train(m, false);
    eg_coupling *c = eg_coupling_new(m, (eg_shapes){&input, 1});
    assert_made(c);
    eg_rng rng = eg_rng_make(seed, "copies", 0);
    size_t more = 0, n, n_after;
    for (size_t i = 0; i < eg_coupling_size(c); i++) {
        const eg_coupled_group *g = eg_coupling_at(c, i);
        for (size_t u = 0; u < g->n_units && g->fixed == NULL && g->mixed == NULL && !g->single; u++) {
            int copies = eg_rng_uniform(&rng) < 0.4 ? (int)pick(&rng, 2, 3) : 1;
            assert_ok(eg_coupling_set(c, i, u, copies));
            more += (size_t)copies - 1;
        }
    }
    float *before = outputs_of(m, input, &n);
    eg_surgery *s = eg_surgery_new(m, .inputs = {&input, 1});
    assert_made(s);
    eg_status status = eg_surgery_resize(s, c);
    if (status == EG_OK) {
        assert_ok(eg_surgery_commit(s));
        float *after = outputs_of(m, input, &n_after);
        assert_same_outputs(name, before, after, n);
        free(after);
    } else if (status != EG_EUNSUPPORTED) {
        fail_msg("%s: %s", name, eg_error_last()->message);
    }
    eg_error_clear();
    free(before);
    eg_surgery_free(s);
    eg_coupling_free(c);
    return status == EG_OK ? more : 0;
}

static void random_nets(void **state)
{
    (void)state;
    const char *count = getenv("PRUNE_NETS");
    uint64_t n = count != NULL ? strtoull(count, NULL, 10) : 200;
    uint64_t first = getenv("PRUNE_FIRST") != NULL ? strtoull(getenv("PRUNE_FIRST"), NULL, 10) : 0;
    size_t groups = 0, widened = 0;
    for (uint64_t seed = first; seed < first + n; seed++) {
        char name[64];
        eg_shape input = EG_SHAPE(2, 3, 8, 8);
        snprintf(name, sizeof(name), "random net %llu", (unsigned long long)seed);
        eg_module *m = random_net(seed);
        eg_coupling *c = eg_coupling_new(m, (eg_shapes){&input, 1});
        if (c == NULL)
            fail_msg("%s: %s", name, eg_error_last()->message);
        groups += count_free(c);
        if (getenv("PRUNE_TEXT") != NULL) {
            char *text = eg_coupling_text(c), *net = eg_module_text(m);
            printf("%s\n%s", net, text);
            eg_free(text);
            eg_free(net);
        }
        eg_coupling_free(c);
        check_zeros(m, name, input, seed);
        widened += check_widened(m, name, input, seed);
        eg_module_release(m);
    }
    assert_true(groups > n);
    assert_true(widened > n);
}

static void every_net_widens(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(nets) / sizeof(nets[0]); i++) {
        eg_module *m = nets[i].make(ctx);
        assert_made(m);
        size_t more = check_widened(m, nets[i].name, nets[i].input, 3);
        if (more == 0 && strcmp(nets[i].name, "fixed") != 0 && strcmp(nets[i].name, "split") != 0)
            fail_msg("%s does not become wider", nets[i].name);
        eg_module_release(m);
    }
}

/* ---- trainings ---- */

enum { BATCH = 4, BEFORE = 6, AFTER = 8 };

/* Steps first .. first + n - 1 on batches of their own; units marked in the coupling (NULL: none) are zero after each.
 */
static float train(eg_module *m, eg_optimizer *adam, uint64_t first, uint64_t n, const eg_coupling *c,
                   const bool *const *gone)
{
    float last = 0;
    eg_module_train(m, true);
    for (uint64_t step = first; step < first + n; step++) {
        eg_rng rng = eg_rng_make(step, "batch", 0);
        float x[BATCH * 3 * 64];
        int64_t y[BATCH];
        for (size_t i = 0; i < sizeof(x) / sizeof(x[0]); i++)
            x[i] = (float)eg_rng_normal(&rng);
        for (size_t i = 0; i < BATCH; i++)
            y[i] = pick(&rng, 0, 9);
        eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
        eg_tensor *loss = eg_f_cross_entropy(eg_call(m, eg_from_data(ctx, EG_SHAPE(BATCH, 3, 8, 8), x)),
                                             eg_from_labels(ctx, BATCH, y));
        assert_made(loss);
        assert_ok(eg_tensor_read(loss, &last, 1));
        eg_optimizer_zero_grad(adam);
        assert_ok(eg_backward(loss));
        assert_ok(eg_optimizer_step(adam));
        eg_tape_end(tape);
        for (size_t i = 0; c != NULL && i < eg_coupling_size(c); i++) {
            const eg_coupled_group *g = eg_coupling_at(c, i);
            for (size_t u = 0; u < g->n_units; u++) {
                for (size_t k = 0; gone[i] != NULL && gone[i][u] && k < g->n_parts; k++)
                    zero_unit(&g->parts[k], u);
            }
        }
    }
    return last;
}

/* A network whose zeros are kept zero, and one without them, train alike: with Adam, whose moments went with the
 * weights. */
static void adam_goes_on(void **state)
{
    (void)state;
    eg_shape input = EG_SHAPE(BATCH, 3, 8, 8);
    eg_module *m[2];
    eg_optimizer *adam[2];
    bool *gone[64] = {NULL};
    for (int i = 0; i < 2; i++) {
        m[i] = resnet_b(ctx);
        fill_random(m[i]);
    }
    eg_state *numbers = eg_state_new();
    assert_ok(eg_module_state(m[0], NULL, numbers));
    assert_ok(eg_module_load_state(m[1], NULL, numbers, true));
    eg_state_free(numbers);
    eg_coupling *c[2];
    for (int i = 0; i < 2; i++) {
        adam[i] = eg_adam(m[i], .lr = 1e-3);
        c[i] = eg_coupling_new(m[i], (eg_shapes){&input, 1});
        assert_made(c[i]);
        train(m[i], adam[i], 0, BEFORE, NULL, NULL);
    }
    eg_rng rng = eg_rng_make(4, "gone", 0);
    for (size_t i = 0; i < eg_coupling_size(c[0]); i++) {
        const eg_coupled_group *g = eg_coupling_at(c[0], i);
        if (g->fixed != NULL)
            continue;
        gone[i] = calloc(g->n_units, sizeof(bool));
        assert_non_null(gone[i]);
        for (size_t u = 1; u < g->n_units; u++) {
            gone[i][u] = eg_rng_uniform(&rng) < 0.4;
            for (size_t k = 0; k < g->n_parts && gone[i][u]; k++)
                zero_unit(&g->parts[k], u);
            assert_ok(eg_coupling_set(c[1], i, u, !gone[i][u]));
        }
    }
    eg_surgery *s = eg_surgery_new(m[1], .optimizers = EG_OPTIMIZERS(adam[1]), .inputs = {&input, 1});
    assert_ok(eg_surgery_resize(s, c[1]));
    assert_ok(eg_surgery_commit(s));
    assert_true(eg_module_n_parameters(m[1]) < eg_module_n_parameters(m[0]));
    for (uint64_t i = 0; i < AFTER; i++) {
        float masked = train(m[0], adam[0], BEFORE + i, 1, c[0], (const bool *const *)gone);
        assert_close(train(m[1], adam[1], BEFORE + i, 1, NULL, NULL), masked, 2e-4);
    }
    for (size_t i = 0; i < eg_coupling_size(c[0]); i++)
        free(gone[i]);
    eg_surgery_free(s);
    for (int i = 0; i < 2; i++) {
        eg_coupling_free(c[i]);
        eg_optimizer_free(adam[i]);
        eg_module_release(m[i]);
    }
}

/* All numbers of a model and its optimizer, for comparing bits. */
static float *numbers_of(eg_module *m, eg_optimizer *o, size_t *n)
{
    eg_state *state = eg_state_new();
    assert_ok(eg_module_state(m, "model", state));
    assert_ok(eg_optimizer_state(o, "optimizer", state));
    float *all = NULL;
    *n = 0;
    for (size_t i = 0; i < eg_state_size(state); i++) {
        eg_tensor *t = eg_state_at(state, i, NULL);
        size_t size = (size_t)eg_tensor_numel(t);
        if (eg_tensor_dtype(t) != EG_F32)
            continue;
        all = realloc(all, (*n + size) * sizeof(float));
        assert_non_null(all);
        assert_ok(eg_tensor_read(t, all + *n, size));
        *n += size;
    }
    eg_state_free(state);
    return all;
}

static void undo_gives_all_back(void **state)
{
    (void)state;
    eg_shape input = EG_SHAPE(BATCH, 3, 8, 8);
    eg_module *m = resnet_a(ctx);
    eg_optimizer *adam = eg_adam(m, .lr = 1e-3);
    train(m, adam, 0, BEFORE, NULL, NULL);
    eg_surgery *s = eg_surgery_new(m, .optimizers = EG_OPTIMIZERS(adam), .inputs = {&input, 1});
    size_t n, n_after;
    float *before = numbers_of(m, adam, &n);
    char *text = eg_module_text(m);
    assert_ok(eg_surgery_prune(s, .ratio = 0.5, .score = EG_IMPORTANCE_TAYLOR, .global = true));
    assert_ok(eg_surgery_commit(s));
    free(numbers_of(m, adam, &n_after));
    assert_true(n_after < n);
    assert_ok(eg_surgery_undo(s));
    float *after = numbers_of(m, adam, &n_after);
    char *text_after = eg_module_text(m);
    assert_int_equal(n, n_after);
    assert_memory_equal(before, after, n * sizeof(float));
    assert_string_equal(text, text_after);
    free(before);
    free(after);
    eg_free(text);
    eg_free(text_after);
    eg_surgery_free(s);
    eg_optimizer_free(adam);
    eg_module_release(m);
}

/* ---- choosing ---- */

static eg_module *two_layers(void)
{
    return SEQ(CONV(1, 10, 1, .no_bias = true), CONV(10, 12, 1, .no_bias = true), eg_global_avg_pool2d(ctx),
               eg_linear(ctx, 12, 2, .no_bias = true));
}

/* Sizes of the two layers after pruning with these options. */
static void prune_two(const eg_prune_options *options, int64_t first, int64_t second)
{
    eg_shape input = EG_SHAPE(1, 1, 4, 4);
    eg_module *m = two_layers();
    eg_surgery *s = eg_surgery_new(m, .inputs = {&input, 1});
    assert_ok(eg_surgery_prune_with(s, options));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(eg_tensor_size(eg_module_tensor(m, "0.weight"), 0), first);
    assert_int_equal(eg_tensor_size(eg_module_tensor(m, "1.weight"), 0), second);
    assert_int_equal(EG_CAST(eg_module_find(m, "1"), eg_conv2d)->in_channels, first);
    assert_int_equal(EG_CAST(eg_module_find(m, "3"), eg_linear)->in_features, second);
    eg_surgery_free(s);
    eg_module_release(m);
}

static void options_count(void **state)
{
    (void)state;
    const struct {
        eg_prune_options options;
        int64_t first, second;
    } rows[] = {
        {{.ratio = 0}, 10, 12},
        {{.ratio = 0.3}, 7, 9},
        {{.ratio = 1}, 1, 1},
        {{.ratio = 0.5, .round_to = 4}, 8, 8},
        {{.ratio = 0.5, .round_to = 16}, 10, 12},
        {{.ratio = 1, .min_units = 5}, 5, 5},
        {{.ratio = 1, .min_units = 5, .round_to = 4}, 8, 8},
        {{.ratio = 0.5, .at = "0"}, 5, 12},
        {{.ratio = 0.5, .at = "1"}, 10, 6},
        {{.ratio = 0.5, .ignore = "3"}, 5, 12},
        {{.ratio = 0.5, .ignore = "1"}, 10, 12},
        {{.ratio = 0.5, .score = EG_IMPORTANCE_RANDOM}, 5, 6},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        eg_prune_options options = rows[i].options;
        options.struct_size = sizeof(options);
        prune_two(&options, rows[i].first, rows[i].second);
    }
}

/* Weights of 2 layers by which unit 1 of the first goes by its length, and unit 2 by what the loss would lose. */
static void scores_say_what_goes(void **state)
{
    (void)state;
    const float first[4] = {3, 0.5F, 2, 1}, second[2][4] = {{1, 0.5F, 1, 1}, {1, 0.5F, -1, 1}};
    const struct {
        eg_importance score;
        float left[3];
    } rows[] = {{EG_IMPORTANCE_L1, {3, 2, 1}}, {EG_IMPORTANCE_L2, {3, 2, 1}}, {EG_IMPORTANCE_TAYLOR, {3, 0.5F, 1}}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        eg_module *m = SEQ(eg_linear(ctx, 1, 4, .no_bias = true), eg_linear(ctx, 4, 2, .no_bias = true));
        assert_ok(eg_tensor_write(eg_module_tensor(m, "0.weight"), first, 4));
        assert_ok(eg_tensor_write(eg_module_tensor(m, "1.weight"), &second[0][0], 8));
        eg_shape input = EG_SHAPE(1, 1);
        eg_surgery *s = eg_surgery_new(m, .inputs = {&input, 1});
        if (rows[i].score == EG_IMPORTANCE_TAYLOR)
            assert_fails(eg_surgery_prune(s, .ratio = 0.25, .score = EG_IMPORTANCE_TAYLOR), EG_EINVAL,
                         "needs gradients");
        eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
        assert_ok(eg_backward(eg_sum(eg_call(m, eg_from_data(ctx, input, (const float[]){1}))))); /* y1 + y2 */
        eg_tape_end(tape);
        assert_ok(eg_surgery_prune(s, .ratio = 0.25, .score = rows[i].score));
        assert_ok(eg_surgery_commit(s));
        assert_numbers(eg_module_tensor(m, "0.weight"), rows[i].left, 3, 0);
        eg_surgery_free(s);
        eg_module_release(m);
    }
}

static void refuses(void **state)
{
    (void)state;
    eg_shape input = EG_SHAPE(1, 1, 4, 4);
    eg_shapes inputs = {&input, 1};
    eg_module *m = two_layers();
    assert_refused(eg_coupling_new(NULL, inputs), EG_EINVAL, "model");
    assert_refused(eg_coupling_text(NULL), EG_EINVAL, "coupling");
    eg_coupling *c = eg_coupling_new(m, inputs);
    assert_made(c);
    assert_int_equal(eg_coupling_size(c), 4); /* two that can change, the input and the output */
    assert_refused(eg_coupling_at(c, 4), EG_EINVAL, "no group 4");
    assert_fails(eg_coupling_set(NULL, 0, 0, 0), EG_EINVAL, "coupling");
    assert_fails(eg_coupling_set(c, 0, 10, 0), EG_EINVAL, "no unit 10");
    assert_fails(eg_coupling_set(c, 3, 0, 0), EG_EINVAL, "an output of the model");
    assert_fails(eg_coupling_set(c, 0, 0, -1), EG_EINVAL, "-1 copies");
    for (size_t u = 0; u < 9; u++)
        assert_ok(eg_coupling_set(c, 0, u, 0));
    assert_fails(eg_coupling_set(c, 0, 9, 0), EG_EINVAL, "last unit");
    eg_surgery *s = eg_surgery_new(m);
    assert_fails(eg_surgery_resize(s, c), EG_EINVAL, ".inputs");
    assert_fails(eg_surgery_resize(NULL, c), EG_EINVAL, "surgery");
    assert_fails(eg_surgery_prune(s, .ratio = 0.5), EG_EINVAL, ".inputs");
    assert_fails(eg_surgery_prune(s, .ratio = 1.5), EG_EINVAL, "ratio");
    eg_surgery_free(s);
    eg_coupling_free(c);
    eg_module_release(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_net_widens, setup, teardown),
        cmocka_unit_test_setup_teardown(random_nets, setup, teardown),
        cmocka_unit_test_setup_teardown(adam_goes_on, setup, teardown),
        cmocka_unit_test_setup_teardown(undo_gives_all_back, setup, teardown),
        cmocka_unit_test_setup_teardown(options_count, setup, teardown),
        cmocka_unit_test_setup_teardown(scores_say_what_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Open fields while a module runs: gradients, what is left behind, layers of many kinds, and what cannot be.
 */
#include "nas/everything.h"

static int setup(void **state)
{
    *state = eg_context_new(.seed = 7, .threads = 2);
    return *state == NULL;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    return 0;
}

/* ---- gradients ---- */

typedef struct checked {
    eg_module *module;
    eg_tensor **places[2];
} checked;

/* The module with in[1], in[2] in the places of its parameters. */
static eg_tensor *run_checked(void *payload, eg_tensor *const *in, size_t n_in)
{
    const checked *c = payload;
    eg_tensor *kept[2];
    for (size_t i = 1; i < n_in; i++) {
        kept[i - 1] = *c->places[i - 1];
        *c->places[i - 1] = in[i];
    }
    eg_tensor *y = eg_module_call(c->module, in, 1);
    for (size_t i = 1; i < n_in; i++) {
        if (*c->places[i - 1] != in[i])
            fail_msg("parameter %zu is not put back", i);
        *c->places[i - 1] = kept[i - 1];
    }
    return y;
}

static eg_tensor *random_f64(eg_context *ctx, eg_shape shape)
{
    eg_tensor *t = eg_empty(ctx, EG_F64, shape, EG_LAYOUT_ROW_MAJOR);
    assert_ok(eg_init_normal(t, 0, 1));
    assert_ok(eg_tensor_set_requires_grad(t, true));
    return t;
}

static void check_gradients(eg_context *ctx, eg_module *m, eg_tensor **weight, eg_tensor **bias, eg_shape input)
{
    checked c = {m, {weight, bias}};
    eg_tensor *in[3] = {random_f64(ctx, input), random_f64(ctx, eg_tensor_shape(*weight)),
                        random_f64(ctx, eg_tensor_shape(*bias))};
    assert_ok(eg_gradcheck(ctx, run_checked, &c, in, 3, NULL));
}

static void gradients_reach_the_whole(void **state)
{
    eg_context *ctx = *state;
    int64_t in = eg_value_choice(ctx, EG_VALUES(2, 3, 5), .key = "in"),
            out = eg_value_choice(ctx, EG_VALUES(4, 6), .key = "out");
    int64_t kernel = eg_value_choice(ctx, EG_VALUES(1, 3, 5), .key = "kernel");
    eg_module *conv = eg_conv2d(ctx, in, out, kernel), *linear = eg_linear(ctx, in, out);
    eg_module *net = eg_sequential(ctx, EG_MODULES(conv, linear));
    eg_mutator *mutator = attach(net);
    eg_conv2d *c = EG_CAST(conv, eg_conv2d);
    eg_linear *l = EG_CAST(linear, eg_linear);
    static const char *const archs[] = {"{\"in\": 3, \"out\": 4, \"kernel\": 3}",
                                        "{\"in\": 5, \"out\": 4, \"kernel\": 5}",
                                        "{\"in\": 2, \"out\": 6, \"kernel\": 1}"};
    static const int64_t sizes[] = {3, 5, 2};
    for (int i = 0; i < 3; i++) {
        decide(mutator, archs[i]);
        check_gradients(ctx, conv, &c->weight, &c->bias, EG_SHAPE(2, sizes[i], 6, 5));
        check_gradients(ctx, linear, &l->weight, &l->bias, EG_SHAPE(3, sizes[i]));
    }
    /* what does not run gets 0 */
    decide(mutator, archs[0]);
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    assert_ok(eg_backward(eg_sum(run(conv, EG_SHAPE(1, 3, 4, 4)))));
    eg_tensor *grad = eg_tensor_grad(c->weight);
    assert_true(eg_shape_equal(eg_tensor_shape(grad), EG_SHAPE(6, 5, 5, 5)));
    float all[6 * 5 * 25];
    assert_ok(eg_tensor_read(grad, all, 750));
    for (int o = 0; o < 6; o++)
        for (int k = 0; k < 5; k++)
            for (int y = 0; y < 5; y++)
                for (int x = 0; x < 5; x++) {
                    bool runs = o < 4 && k < 3 && y >= 1 && y <= 3 && x >= 1 && x <= 3;
                    assert_close(all[((o * 5 + k) * 5 + y) * 5 + x], runs ? 4 : 0, 0);
                }
    eg_tape_end(tape);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* ---- what running leaves behind ---- */

static void statistics_are_written_through(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_batch_norm2d(ctx, eg_value_choice(ctx, EG_VALUES(2, 4), .key = "w"));
    eg_batch_norm2d *norm = EG_CAST(net, eg_batch_norm2d);
    eg_mutator *mutator = attach(net);
    decide(mutator, "{\"w\": 2}");
    assert_made(run(net, EG_SHAPE(2, 2, 3, 3)));
    assert_tensor(norm->running_mean, 1e-7, 0.1F, 0.1F, 0, 0);
    assert_tensor(norm->running_var, 1e-6, 0.9F, 0.9F, 1, 1);
    assert_int_equal(norm->num_features, 4);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void a_failure_puts_all_back(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_conv2d(ctx, 3, eg_value_choice(ctx, EG_VALUES(2, 4), .key = "w"), 3);
    eg_conv2d *conv = EG_CAST(net, eg_conv2d);
    eg_tensor *weight = conv->weight;
    eg_mutator *mutator = attach(net);
    decide(mutator, "{\"w\": 2}");
    assert_refused(run(net, EG_SHAPE(1, 2, 5, 5)), EG_ESHAPE, "conv2d");
    assert_ptr_equal(conv->weight, weight);
    assert_int_equal(conv->out_channels, 4);
    assert_made(run(net, EG_SHAPE(1, 3, 5, 5)));
    assert_ptr_equal(conv->weight, weight);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* A composite that draws numbers and makes a choice without a key when it is built. */
typedef struct busy {
    eg_module base;
    int64_t width;
    eg_module *choice;
    eg_tensor *scale;
} busy;

static eg_status busy_build(eg_module *self)
{
    busy *b = (busy *)self;
    EG_SLOT(b, choice, eg_layer_choice(self->ctx, GAINS_ABC(self->ctx)));
    EG_PARAM(b, scale, eg_randn(self->ctx, EG_SHAPE(b->width)));
    eg_module_release(eg_linear(self->ctx, 2, eg_value_choice(self->ctx, EG_VALUES(1, 2))));
    return eg_module_status(self);
}

static eg_tensor *busy_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const busy *b = (const busy *)self;
    return eg_mul(eg_call(b->choice, in[0]), b->scale);
}

static EG_CLASS(busy, .build = busy_build, .forward = busy_forward,
                .fields = EG_FIELDS(EG_INT(busy, width, EG_AT_LEAST(1), .help = "width")));

static void looking_for_shapes_leaves_no_trace(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_new(busy, ctx, eg_value_choice(ctx, EG_VALUES(2, 3), .key = "w"));
    eg_mutator *mutator = attach(net);
    decide(mutator, "{\"LayerChoice1\": 0, \"w\": 2}");
    eg_rng before = *eg_context_rng(ctx);
    size_t bytes = eg_context_get_stats(ctx).bytes_in_use;
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    assert_int_equal(eg_tensor_size(run(net, EG_SHAPE(5, 1)), 1), 2);
    eg_tape_end(tape);
    assert_int_equal(eg_context_get_stats(ctx).bytes_in_use, bytes);
    assert_memory_equal(eg_context_rng(ctx), &before, sizeof before);
    eg_module *next = eg_layer_choice(ctx, GAINS_ABC(ctx));
    assert_string_equal(eg_mutable_key(next), "LayerChoice3"); /* after LayerChoice1 and ValueChoice2 */
    eg_module_release(next);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* ---- in and around other choices ---- */

/* Both candidates, times 0.25 and 0.5, as a mixture and one by one. */
static void a_mixture_of_open_candidates(void **state)
{
    eg_context *ctx = *state;
    int64_t width = eg_value_choice(ctx, EG_VALUES(2, 4), .key = "w");
    eg_module *a = eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 3, width, 1), eg_batch_norm2d(ctx, width)));
    eg_module *b =
        eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 3, width, 3, .padding = 1), eg_batch_norm2d(ctx, width)));
    eg_module *net = eg_layer_choice(ctx, EG_MODULES(a, b), .key = "op");
    const eg_conv2d *conv = EG_CAST(eg_module_find(net, "1.0"), eg_conv2d);
    eg_mutator *mutator = eg_mutator_attach(&eg_mutator_base_class, 0, NULL, net);
    assert_made(mutator);
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(2, 3, 4, 4)),
              *weights = eg_from_data(ctx, EG_SHAPE(2), (const float[]){0.25F, 0.5F});
    assert_ok(eg_decisions_set_mask(mutator->current, "w", (const bool[]){true, false}, 2));
    assert_ok(eg_decisions_set_tensor(mutator->current, "op", weights));
    float plain[4 * 27], again[4 * 27];
    for (int recompute = 0; recompute < 2; recompute++) {
        eg_mutator_set_recompute(mutator, recompute);
        eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
        eg_tensor *y = eg_call(net, x);
        assert_made(y);
        eg_tensor *expected = eg_add(eg_affine(eg_call(a, x), 0.25, 0), eg_affine(eg_call(b, x), 0.5, 0));
        float left[64], right[64];
        assert_ok(eg_tensor_read(y, left, 64));
        assert_ok(eg_tensor_read(expected, right, 64));
        for (int i = 0; i < 64; i++)
            assert_close(left[i], right[i], 1e-6);
        assert_ok(eg_backward(eg_sum(eg_mul(y, y))));
        assert_ok(eg_tensor_read(eg_tensor_grad(conv->weight), recompute ? again : plain, 4 * 27));
        eg_tape_end(tape);
        eg_module_zero_grad(net);
    }
    assert_memory_equal(plain, again, sizeof plain);
    assert_true(plain[0] != 0 && plain[2 * 27] == 0);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* A copy has open fields of its own. */
static void a_copy_is_decided_on_its_own(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_linear(ctx, 2, eg_value_choice(ctx, EG_VALUES(3, 5), .key = "w"));
    eg_module *copy = eg_module_clone(net);
    eg_mutator *first = attach(net), *second = attach(copy);
    decide(first, "{\"w\": 3}");
    decide(second, "{\"w\": 5}");
    assert_int_equal(eg_tensor_size(run(net, EG_SHAPE(1, 2)), 1), 3);
    assert_int_equal(eg_tensor_size(run(copy, EG_SHAPE(1, 2)), 1), 5);
    decide(second, "{\"w\": 3}");
    compare(run(net, EG_SHAPE(1, 2)), run(copy, EG_SHAPE(1, 2)));
    eg_mutator_detach(first);
    eg_mutator_detach(second);
    eg_module_release(copy);
    eg_module_release(net);
}

/* A composite that hands on a double. */
typedef struct softened {
    eg_module base;
    double slope;
    eg_module *relu;
} softened;

static eg_status softened_build(eg_module *self)
{
    softened *s = (softened *)self;
    return EG_SLOT(s, relu, eg_leaky_relu(self->ctx, EG_F64(EG_OPEN_F64(s, slope))));
}

static eg_tensor *softened_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_call(((softened *)self)->relu, in[0]);
}

static EG_CLASS(softened, .build = softened_build, .forward = softened_forward,
                .fields = EG_FIELDS(EG_FLOAT(softened, slope, .help = "below 0")));

static void doubles_are_handed_on(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_new(softened, ctx, (double)eg_value_choice(ctx, EG_VALUES(0.25, 0.5), .key = "s"));
    eg_mutator *mutator = attach(net);
    decide(mutator, "{\"s\": 0.25}");
    assert_close(eg_tensor_item(eg_call(net, eg_full(ctx, EG_SHAPE(1), -4))), -1, 0);
    decide(mutator, "{\"s\": 0.5}");
    assert_close(eg_tensor_item(eg_call(net, eg_full(ctx, EG_SHAPE(1), -4))), -2, 0);
    eg_mutator_detach(mutator);
    eg_module_release(net);
    net = eg_new(softened, ctx, 0.125); /* a constant is handed on as it is */
    assert_close(eg_tensor_item(eg_call(net, eg_full(ctx, EG_SHAPE(1), -8))), -1, 0);
    eg_module_release(net);
}

static void each_value_is_logged(void **state)
{
    (void)state;
    log_record record = {0};
    eg_context *ctx = eg_context_new(.log = record_log, .log_payload = &record);
    eg_module *net = eg_linear(ctx, 2, eg_value_choice(ctx, EG_VALUES(3, 5), .key = "w"));
    eg_arch *arch = parse_arch("{\"w\": 3}");
    assert_ok(eg_apply_arch(net, arch));
    assert_string_equal(record.last, "'w' is 3 (in 1 field)");
    eg_arch_free(arch);
    eg_module_release(net);
    eg_context_free(ctx);
}

/* ---- other layers ---- */

static void check_layer(eg_module *layer, const char *arch_text, eg_shape input)
{
    eg_module *net = eg_sequential(layer->ctx, EG_MODULES(layer)), *fixed = eg_module_clone(net);
    eg_mutator *mutator = attach(net);
    eg_arch *arch = parse_arch(arch_text);
    assert_ok(eg_mutator_set_arch(mutator, arch));
    assert_ok(eg_apply_arch(fixed, arch));
    eg_tensor *x = eg_randn(layer->ctx, input), *a = eg_call(net, x), *b = eg_call(fixed, x);
    assert_made(a);
    assert_made(b);
    compare(eg_tuple_get(a, 0), eg_tuple_get(b, 0));
    eg_mutator_detach(mutator);
    eg_arch_free(arch);
    eg_module_release(fixed);
    eg_module_release(net);
}

static void layers_of_many_kinds(void **state)
{
    eg_context *ctx = *state;
#define OPEN(key_, ...) eg_value_choice(ctx, EG_VALUES(__VA_ARGS__), .key = key_)
    check_layer(eg_multihead_attention(ctx, OPEN("e", 8, 4), 2), "{\"e\": 4}", EG_SHAPE(5, 2, 4));
    check_layer(eg_multihead_attention(ctx, 8, OPEN("h", 1, 2, 4)), "{\"h\": 2}", EG_SHAPE(5, 2, 8));
    check_layer(eg_lstm(ctx, 3, OPEN("h", 6, 4), .num_layers = OPEN("n", 1, 2, 3)), "{\"h\": 4, \"n\": 2}",
                EG_SHAPE(4, 2, 3));
    check_layer(eg_conv_transpose2d(ctx, OPEN("i", 2, 4), OPEN("o", 3, 5), OPEN("k", 2, 4), .stride = 2),
                "{\"i\": 2, \"o\": 3, \"k\": 2}", EG_SHAPE(1, 2, 3, 3));
    check_layer(eg_conv1d(ctx, OPEN("i", 2, 4), 3, OPEN("k", 1, 3, 5)), "{\"i\": 2, \"k\": 3}", EG_SHAPE(1, 2, 9));
    check_layer(eg_group_norm(ctx, 2, OPEN("c", 4, 8)), "{\"c\": 4}", EG_SHAPE(2, 4, 3, 3));
    check_layer(eg_avg_pool2d(ctx, OPEN("k", 2, 3)), "{\"k\": 2}", EG_SHAPE(1, 2, 6, 6));
    check_layer(eg_conv2d(ctx, 2, 2, 3, .dilation = OPEN("d", 1, 2), .stride = OPEN("s", 1, 2)), "{\"d\": 2, \"s\": 1}",
                EG_SHAPE(1, 2, 9, 9));
#undef OPEN
}

static void what_cannot_be(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_conv2d(ctx, 4, 4, 3, .groups = eg_value_choice(ctx, EG_VALUES(1, 4), .key = "g"));
    eg_mutator *mutator = attach(net);
    decide(mutator, "{\"g\": 1}");
    assert_refused(run(net, EG_SHAPE(1, 4, 5, 5)), EG_EINVAL,
                   "Conv2d: 'weight' would have to be (4, 4, 3, 3), the largest values made it (4, 1, 3, 3)");
    decide(mutator, "{\"g\": 4}");
    assert_made(run(net, EG_SHAPE(1, 4, 5, 5)));
    eg_mutator_detach(mutator);
    eg_arch *arch = parse_arch("{\"g\": 1}");
    assert_fails(eg_apply_arch(net, arch), EG_EINVAL, "'weight' would have to be");
    eg_arch_free(arch);
    eg_module_release(net);
    net = eg_conv2d(ctx, 4, eg_value_choice(ctx, EG_VALUES(3, 4), .key = "c"), 3, .groups = 2);
    mutator = attach(net);
    decide(mutator, "{\"c\": 3}");
    assert_refused(run(net, EG_SHAPE(1, 4, 5, 5)), EG_EINVAL, "must be multiples of groups 2");
    eg_mutator_detach(mutator);
    eg_module_release(net);
    net = eg_linear(ctx, 4, eg_value_choice(ctx, EG_VALUES(3, 4), .key = "c"));
    assert_fails(eg_weight_norm(net, "weight", 0), EG_EUNSUPPORTED, "Linear: 'weight' cannot be normalized");
    assert_fails(eg_spectral_norm(net, "weight", 0, 1), EG_EUNSUPPORTED, "the module has open fields");
    eg_arch *three = parse_arch("{\"c\": 3}");
    assert_ok(eg_apply_arch(net, three));
    eg_arch_free(three);
    assert_ok(eg_weight_norm(net, "weight", 0));
    assert_made(run(net, EG_SHAPE(1, 4)));
    eg_module_release(net);
}

/* What two modules share, they share when it has become smaller. */
static void shared_parameters_stay_shared(void **state)
{
    eg_context *ctx = *state;
    int64_t width = eg_value_choice(ctx, EG_VALUES(2, 3), .key = "w");
    eg_module *a = eg_linear(ctx, 3, width, .no_bias = true), *b = eg_linear(ctx, 3, width, .no_bias = true);
    eg_linear *first = EG_CAST(a, eg_linear), *second = EG_CAST(b, eg_linear);
    eg_tensor_release(second->weight);
    second->weight = eg_tensor_keep(first->weight);
    eg_module *net = eg_module_list(ctx, EG_MODULES(a, b));
    eg_arch *arch = parse_arch("{\"w\": 2}");
    assert_ok(eg_apply_arch(net, arch));
    assert_ptr_equal(first->weight, second->weight);
    assert_true(eg_shape_equal(eg_tensor_shape(first->weight), EG_SHAPE(2, 3)));
    assert_true(eg_tensor_requires_grad(first->weight));
    eg_arch_free(arch);
    eg_module_release(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gradients_reach_the_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(statistics_are_written_through, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failure_puts_all_back, setup, teardown),
        cmocka_unit_test_setup_teardown(looking_for_shapes_leaves_no_trace, setup, teardown),
        cmocka_unit_test_setup_teardown(a_mixture_of_open_candidates, setup, teardown),
        cmocka_unit_test_setup_teardown(a_copy_is_decided_on_its_own, setup, teardown),
        cmocka_unit_test_setup_teardown(doubles_are_handed_on, setup, teardown),
        cmocka_unit_test_setup_teardown(each_value_is_logged, setup, teardown),
        cmocka_unit_test_setup_teardown(layers_of_many_kinds, setup, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be, setup, teardown),
        cmocka_unit_test_setup_teardown(shared_parameters_stay_shared, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

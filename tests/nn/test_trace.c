/*
 * Traces: shapes, parameters and multiply-accumulates against counts made by hand.
 */
#include "support.h"

#include "engraft/layers.h"

#include <string.h>

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

/* A residual block: two 3x3 convolutions and a shortcut, which is a 1x1 convolution where the shape changes. */
typedef struct residual {
    eg_module base;
    int64_t in, out, stride;
    eg_module *body, *shortcut;
} residual;

static eg_status residual_build(eg_module *self)
{
    residual *r = (residual *)self;
    eg_context *c = self->ctx;
    EG_SLOT(
        r, body,
        eg_sequential(c, EG_MODULES(eg_conv2d(c, r->in, r->out, 3, .stride = r->stride, .padding = 1, .no_bias = true),
                                    eg_batch_norm2d(c, r->out), eg_relu(c),
                                    eg_conv2d(c, r->out, r->out, 3, .padding = 1, .no_bias = true),
                                    eg_batch_norm2d(c, r->out))));
    EG_SLOT(r, shortcut,
            r->in == r->out && r->stride == 1 ? eg_identity(c)
                                              : eg_conv2d(c, r->in, r->out, 1, .stride = r->stride, .no_bias = true));
    return eg_module_status(self);
}

static eg_tensor *residual_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    residual *r = (residual *)self;
    eg_tensor *y = eg_call(r->body, in[0]); /* C does not say which argument of a call comes first */
    return eg_f_relu(eg_add(y, eg_call(r->shortcut, in[0])));
}

static EG_CLASS(residual, .build = residual_build, .forward = residual_forward,
                .fields = EG_FIELDS(EG_INT(residual, in, .min = 1, .help = "channels in"),
                                    EG_INT(residual, out, .min = 1, .help = "channels out"),
                                    EG_INT(residual, stride, .min = 1, .def = 1, .help = "of the first convolution")));

static eg_module *resnet(void)
{
    return eg_sequential(ctx,
                         EG_NAMED({"stem", eg_conv2d(ctx, 3, 8, 3, .padding = 1)}, {"a", eg_new(residual, ctx, 8, 8)},
                                  {"b", eg_new(residual, ctx, 8, 16, .stride = 2)}, {"pool", eg_global_avg_pool2d(ctx)},
                                  {"head", eg_linear(ctx, 16, 10)}));
}

static void residual_net_by_hand(void **state)
{
    (void)state;
    eg_module *m = resnet();
    eg_trace *trace = eg_trace_new(m, &EG_SHAPE(2, 3, 32, 32), 1);
    if (trace == NULL)
        fail_msg("%s", eg_error_first()->message);
    int64_t params = 3 * 8 * 9 + 8 + 2 * (8 * 8 * 9 + 16) + (8 * 16 * 9 + 16 * 16 * 9 + 2 * 32 + 8 * 16) + 170;
    assert_int_equal(eg_trace_params(trace), params);
    assert_int_equal(eg_module_n_parameters(m), params);
    uint64_t macs[] = {2 * 32 * 32 * 8 * 27,
                       2 * 32 * 32 * 8 * 72,
                       2 * 32 * 32 * 8 * 72,
                       2 * 16 * 16 * 16 * 72,
                       2 * 16 * 16 * 16 * 144,
                       2 * 16 * 16 * 16 * 8,
                       2 * 160};
    const char *paths[] = {"stem", "a.body.0", "a.body.3", "b.body.0", "b.body.3", "b.shortcut", "head"};
    uint64_t weighted = 0, sum = 0;
    size_t found = 0;
    for (size_t i = 0; i < eg_trace_size(trace); i++) {
        const eg_trace_op *op = eg_trace_at(trace, i);
        sum += op->macs;
        if (strcmp(op->op, "conv2d") != 0 && strcmp(op->op, "linear") != 0)
            continue;
        assert_true(found < 7);
        assert_string_equal(op->path, paths[found]);
        assert_int_equal(op->macs, macs[found++]);
        weighted += op->macs;
    }
    assert_int_equal(found, 7);
    assert_int_equal(eg_trace_macs(trace), sum);
    assert_true(sum >= weighted);
    assert_true(eg_shape_equal(eg_trace_output(trace, 0), EG_SHAPE(2, 10)));
    assert_int_equal(eg_trace_output(trace, 1).ndim, 0);
    assert_null(eg_trace_at(trace, eg_trace_size(trace)));
    eg_trace_free(trace);
    eg_trace_free(NULL);
    eg_module_release(m);
}

static void graph_is_connected(void **state)
{
    (void)state;
    eg_module *m = resnet();
    eg_trace *trace = eg_trace_new(m, &EG_SHAPE(1, 3, 16, 16), 1);
    assert_non_null(trace);
    const eg_trace_op *stem = eg_trace_at(trace, 0);
    assert_string_equal(stem->op, "conv2d");
    assert_int_equal(stem->n_inputs, 3);
    assert_int_equal(stem->inputs[0], 1); /* the model's input */
    size_t users = 0;
    for (size_t i = 1; i < eg_trace_size(trace); i++) {
        const eg_trace_op *op = eg_trace_at(trace, i);
        assert_true(op->output > eg_trace_at(trace, i - 1)->output);
        for (size_t k = 0; k < op->n_inputs; k++) {
            assert_true(op->inputs[k] < op->output);
            users += op->inputs[k] == stem->output;
        }
    }
    assert_int_equal(users, 2); /* the first block's body and its sum */
    const eg_trace_op *no_bias = eg_trace_at(trace, 1);
    assert_string_equal(no_bias->path, "a.body.0");
    assert_int_equal(no_bias->inputs[2], 0); /* absent */
    eg_trace_free(trace);
    eg_module_release(m);
}

static void separable_net_by_hand(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 1, 16, 3, .stride = 2, .padding = 1, .no_bias = true),
                                                 eg_batch_norm2d(ctx, 16), eg_relu(ctx),
                                                 eg_conv2d(ctx, 16, 16, 5, .padding = 2, .groups = 16, .no_bias = true),
                                                 eg_conv2d(ctx, 16, 24, 1), eg_max_pool2d(ctx, 2), eg_flatten(ctx),
                                                 eg_linear(ctx, 24 * 49, 10)));
    eg_trace *trace = eg_trace_new(m, &EG_SHAPE(1, 1, 28, 28), 1);
    assert_non_null(trace);
    assert_int_equal(eg_trace_params(trace), 144 + 32 + 400 + (384 + 24) + 11760 + 10);
    uint64_t by_hand = 196 * 16 * 9 + 196 * 16 * 25 + 196 * 24 * 16 + 11760, weighted = 0;
    bool norm = false, relu = false;
    for (size_t i = 0; i < eg_trace_size(trace); i++) {
        const eg_trace_op *op = eg_trace_at(trace, i);
        if (strcmp(op->op, "conv2d") == 0 || strcmp(op->op, "linear") == 0)
            weighted += op->macs;
        norm = norm || strcmp(op->path, "1") == 0;
        relu = relu || strcmp(op->op, "relu") == 0;
    }
    assert_int_equal(weighted, by_hand);
    assert_true(norm && relu); /* a trace shows the model as written, nothing fused */
    char *text = eg_trace_text(trace);
    assert_non_null(strstr(text, "conv2d"));
    assert_non_null(strstr(text, "(1, 24, 14, 14)"));
    assert_non_null(strstr(text, "12754"));
    size_t width = strcspn(text, "\n"), lines = 0;
    for (const char *line = text; *line != '\0'; line += width + 1, lines++)
        assert_int_equal(strcspn(line, "\n"), width); /* a table: lines of one width */
    assert_int_equal(lines, eg_trace_size(trace) + 2);
    eg_free(text);
    eg_trace_free(trace);
    eg_module_release(m);
}

static void model_is_left_as_it_was(void **state)
{
    (void)state;
    eg_module *m =
        eg_sequential(ctx, EG_MODULES(eg_batch_norm2d(ctx, 2), eg_dropout(ctx, 0.5), eg_batch_norm2d(ctx, 2)));
    eg_module_train(eg_module_find(m, "2"), false);
    uint64_t position = eg_context_rng(ctx)->position;
    for (int i = 0; i < 2; i++) {
        eg_trace *trace = eg_trace_new(m, &EG_SHAPE(4, 2, 3, 3), 1);
        assert_non_null(trace);
        assert_int_equal(eg_trace_params(trace), 8); /* the second time too */
        eg_trace_free(trace);
    }
    assert_int_equal(eg_context_rng(ctx)->position, position);
    assert_true(m->training);
    assert_true(eg_module_find(m, "0")->training);
    assert_false(eg_module_find(m, "2")->training);
    int64_t tracked;
    assert_int_equal(eg_tensor_read_i64(eg_module_tensor(m, "0.num_batches_tracked"), &tracked, 1), EG_OK);
    assert_int_equal(tracked, 0);
    assert_null(eg_trace_new(m, &EG_SHAPE(4, 3, 3, 3), 1));
    assert_int_equal(eg_error_last()->code, EG_ESHAPE);
    assert_non_null(strstr(eg_error_last()->message, "'0'"));
    assert_true(m->training);
    assert_null(eg_trace_new(m, NULL, 1));
    assert_null(eg_trace_new(NULL, &EG_SHAPE(4, 3, 3, 3), 1));
    eg_module_release(m);
}

/* Two inputs, a tuple out; one of two branches, the same weight twice. */
typedef struct pair {
    eg_module base;
    eg_module *used, *idle;
} pair;

static eg_status pair_build(eg_module *self)
{
    pair *p = (pair *)self;
    EG_SLOT(p, used, eg_linear(self->ctx, 4, 4));
    EG_SLOT(p, idle, eg_linear(self->ctx, 4, 4));
    return eg_module_status(self);
}

static eg_tensor *pair_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    pair *p = (pair *)self;
    eg_tensor *out[] = {eg_call(p->used, eg_call(p->used, in[0])), in[1]};
    return out[0] == NULL ? NULL : eg_tuple(self->ctx, out, 2);
}

static EG_CLASS(pair, .build = pair_build, .forward = pair_forward, .n_inputs = 2);

static void used_parameters_count_once(void **state)
{
    (void)state;
    eg_module *m = eg_new(pair, ctx);
    const eg_shape inputs[] = {EG_SHAPE(3, 4), EG_SHAPE(5, 6)};
    eg_trace *trace = eg_trace_new(m, inputs, 2);
    assert_non_null(trace);
    assert_int_equal(eg_trace_size(trace), 2);
    assert_int_equal(eg_trace_params(trace), 20);
    assert_int_equal(eg_module_n_parameters(m), 40);
    assert_int_equal(eg_trace_macs(trace), 2 * 3 * 16);
    assert_true(eg_shape_equal(eg_trace_output(trace, 0), EG_SHAPE(3, 4)));
    assert_true(eg_shape_equal(eg_trace_output(trace, 1), EG_SHAPE(5, 6)));
    assert_int_equal(eg_trace_at(trace, 0)->inputs[0], 1);
    assert_int_equal(eg_trace_at(trace, 0)->inputs[1], eg_trace_at(trace, 1)->inputs[1]); /* the weight's number */
    eg_trace_free(trace);
    assert_null(eg_trace_new(m, inputs, 1));
    eg_module_release(m);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(residual_net_by_hand),    TEST(graph_is_connected),         TEST(separable_net_by_hand),
        TEST(model_is_left_as_it_was), TEST(used_parameters_count_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

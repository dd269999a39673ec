/*
 * Modules when memory runs out: each allocation fails in turn, and nothing breaks, leaks or goes unsaid.
 */
#include "support_alloc.h"

#include "engraft/layers.h"

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

typedef struct labeled {
    eg_module base;
    const char *label;
    eg_module *inner;
    eg_tensor *gain;
} labeled;

static eg_status labeled_build(eg_module *self)
{
    labeled *l = (labeled *)self;
    EG_SLOT(l, inner, eg_linear(self->ctx, 6, 6));
    EG_PARAM(l, gain, eg_ones(self->ctx, EG_SHAPE(6)));
    return eg_module_status(self);
}

static eg_tensor *labeled_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    labeled *l = (labeled *)self;
    return eg_mul(eg_call(l->inner, in[0]), l->gain);
}

static EG_CLASS(labeled, .build = labeled_build, .forward = labeled_forward,
                .fields = EG_FIELDS(EG_TEXT(labeled, label, .help = "any text")));

static eg_module *make_net(void)
{
    return eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 1, 6, 3), eg_batch_norm2d(ctx, 6), eg_relu(ctx),
                                         eg_global_avg_pool2d(ctx), eg_new(labeled, ctx, .label = "text")));
}

static eg_status make(void *payload)
{
    (void)payload;
    eg_module *m = make_net();
    eg_module_release(m);
    return m == NULL ? eg_error_last()->code : EG_OK;
}

static eg_status copy(void *payload)
{
    eg_module *m = eg_module_clone(payload);
    eg_module_release(m);
    return m == NULL ? eg_error_last()->code : EG_OK;
}

static eg_status run(void *payload)
{
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    if (tape == NULL)
        return eg_error_last()->code;
    eg_tensor *y = eg_call((eg_module *)payload, eg_ones(ctx, EG_SHAPE(2, 1, 5, 5)));
    eg_status status = y == NULL ? eg_error_last()->code : eg_backward(eg_sum(y));
    eg_tape_end(tape);
    return status;
}

static eg_status save_and_load(void *payload)
{
    eg_state *dict = eg_state_new();
    if (dict == NULL)
        return eg_error_last()->code;
    eg_status status = eg_module_state(payload, "net.", dict);
    if (status == EG_OK)
        status = eg_module_load_state(payload, "net.", dict, true);
    eg_state_free(dict);
    return status;
}

static eg_status describe(void *payload)
{
    char *text = eg_module_text(payload);
    eg_free(text);
    return text == NULL ? eg_error_last()->code : EG_OK;
}

static eg_status trace(void *payload)
{
    eg_trace *t = eg_trace_new(payload, &EG_SHAPE(2, 1, 5, 5), 1);
    if (t == NULL)
        return eg_error_last()->code;
    char *text = eg_trace_text(t);
    eg_free(text);
    eg_trace_free(t);
    return text == NULL ? eg_error_last()->code : EG_OK;
}

static eg_status change(void *payload)
{
    (void)payload;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_relu(ctx)));
    eg_status status = m == NULL ? eg_error_last()->code : eg_append(m, eg_sigmoid(ctx));
    eg_module *child = status == EG_OK ? eg_sequential(ctx, EG_MODULES(eg_tanh(ctx))) : NULL;
    if (status == EG_OK) /* NULL would empty the slot */
        status = child == NULL ? eg_error_last()->code : eg_module_set_child(m, "0", child);
    if (status == EG_OK && eg_module_find(m, "0.0") == NULL)
        status = EG_EINTERNAL;
    eg_module_release(m);
    return status;
}

static void survives(alloc_work work, eg_module *m)
{
    for (int all_after = 0; all_after < 2; all_after++)
        assert_true(assert_survives_allocation_failures(work, m, all_after) > 0);
}

static void making_and_changing(void **state)
{
    (void)state;
    survives(make, NULL);
    survives(change, NULL);
}

static void using_one(void **state)
{
    (void)state;
    eg_module *m = make_net();
    assert_non_null(m);
    survives(copy, m);
    survives(save_and_load, m);
    survives(describe, m);
    survives(trace, m);
    assert_true(m->training); /* also after a trace that failed */
    eg_module_release(m);
}

/* Every run in a context of its own: what it keeps for the next run is made anew. */
static eg_status run_in_a_new_context(void *payload)
{
    (void)payload;
    ctx = eg_context_new(.seed = 1, .threads = 1, .backend = "ref");
    if (ctx == NULL)
        return eg_error_last()->code;
    eg_module *m = make_net();
    eg_status status = m == NULL ? eg_error_last()->code : run(m);
    eg_module_release(m);
    eg_context_free(ctx);
    return status;
}

static void running_one(void **state)
{
    (void)state;
    survives(run_in_a_new_context, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(making_and_changing, setup, teardown),
        cmocka_unit_test_setup_teardown(using_one, setup, teardown),
        cmocka_unit_test(running_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

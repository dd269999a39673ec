/*
 * Deep copies and state dicts.
 */
#include "support.h"

#include "engraft/layers.h"

#include <stdlib.h>
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

static void assert_message(eg_status code, const char *part)
{
    assert_int_equal(eg_error_last()->code, code);
    if (strstr(eg_error_last()->message, part) == NULL)
        fail_msg("message is \"%s\", expected \"%s\" in it", eg_error_last()->message, part);
    eg_error_clear();
}

/* A module with all that a copy must deal with: fields, slots in the struct and outside of it, memory of its own. */
typedef struct holder {
    eg_module base;
    int64_t n;
    const char *label;
    eg_module *a, *b; /* the same module */
    eg_tensor *tied;  /* the weight of a */
    eg_tensor *mean;
    char *memory; /* made by build */
} holder;

static eg_status holder_build(eg_module *self)
{
    holder *h = (holder *)self;
    h->memory = calloc(8, 1);
    EG_CHECK(h->memory != NULL, EG_ENOMEM, "no memory");
    strcpy(h->memory, "own");
    EG_SLOT(h, a, eg_linear(self->ctx, h->n, h->n));
    EG_SLOT(h, b, eg_module_retain(h->a));
    EG_PARAM(h, tied, eg_module_tensor(h->a, "weight"));
    EG_BUFFER(h, mean, eg_zeros(self->ctx, EG_SHAPE(1, 2, 3, 3)));
    eg_module_add_child(self, "loose", NULL, eg_relu(self->ctx));
    return eg_module_status(self);
}

static eg_tensor *holder_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    holder *h = (holder *)self;
    return eg_call(h->b, eg_call(h->a, in[0]));
}

static eg_status holder_copy(eg_module *dst, const eg_module *src)
{
    holder *h = (holder *)dst;
    h->memory = calloc(8, 1);
    EG_CHECK(h->memory != NULL, EG_ENOMEM, "no memory");
    strcpy(h->memory, ((const holder *)src)->memory);
    return EG_OK;
}

static void holder_finalize(eg_module *self)
{
    free(((holder *)self)->memory);
}

static EG_CLASS(holder, .build = holder_build, .forward = holder_forward, .copy = holder_copy,
                .finalize = holder_finalize,
                .fields = EG_FIELDS(EG_INT(holder, n, .min = 1, .help = "size"),
                                    EG_TEXT(holder, label, .help = "text")));

static void clone_shares_nothing_and_keeps_sharing(void **state)
{
    (void)state;
    eg_module *m = eg_new(holder, ctx, .n = 2, .label = "x");
    holder *h = (holder *)m;
    eg_module_train(h->a, false);
    eg_tensor_set_requires_grad(eg_module_tensor(m, "a.bias"), false);
    eg_module *copy = eg_module_clone(m);
    holder *c = (holder *)copy;
    assert_non_null(c);
    assert_int_equal(c->n, 2);
    assert_string_equal(c->label, "x");
    assert_ptr_not_equal(c->label, h->label);
    assert_string_equal(c->memory, "own");
    assert_ptr_not_equal(c->memory, h->memory);
    assert_ptr_not_equal(c->a, h->a);
    assert_ptr_equal(c->a, c->b);
    assert_ptr_equal(c->tied, eg_module_tensor(copy, "a.weight"));
    assert_ptr_not_equal(c->tied, h->tied);
    assert_ptr_not_equal(eg_tensor_data(c->tied), eg_tensor_data(h->tied));
    assert_non_null(eg_module_find(copy, "loose"));
    assert_ptr_not_equal(eg_module_find(copy, "loose"), eg_module_find(m, "loose"));
    assert_false(c->a->training);
    assert_true(copy->training);
    assert_null(copy->name);
    assert_string_equal(c->a->name, "a");
    assert_true(eg_tensor_requires_grad(c->tied));
    assert_false(eg_tensor_requires_grad(eg_module_tensor(copy, "b.bias")));
    assert_false(eg_tensor_requires_grad(c->mean));

    /* a change of one is not seen in the other */
    float before[4], after[4];
    eg_tensor_read(h->tied, before, 4);
    eg_init_constant(c->tied, 7);
    eg_tensor_read(h->tied, after, 4);
    assert_memory_equal(before, after, sizeof(before));
    assert_int_equal(eg_module_set_child(copy, "a", eg_relu(ctx)), EG_OK);
    assert_ptr_equal(c->b->cls, &eg_relu_class);
    assert_ptr_equal(h->b->cls, &eg_linear_class);
    eg_module_release(m);
    eg_module_release(copy);
}

static eg_tensor *count_call(void *payload, eg_module *m, eg_tensor *t, bool *failed)
{
    (void)m;
    (void)t;
    (void)failed;
    ++*(int *)payload;
    return NULL;
}

static void clone_computes_the_same_without_hooks_and_gradients(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 2, 4, 3, .padding = 1, .no_bias = true),
                                                 eg_batch_norm2d(ctx, 4, .relu = true), eg_global_avg_pool2d(ctx),
                                                 eg_linear(ctx, 4, 3)));
    int calls = 0;
    eg_module_add_hook(eg_module_find(m, "0"), count_call, &calls, NULL);
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(2, 2, 5, 5));
    assert_int_equal(eg_backward(eg_sum(eg_call(m, x))), EG_OK);
    eg_module *copy = eg_module_clone(m);
    assert_non_null(copy);
    assert_null(eg_tensor_grad(eg_module_tensor(copy, "0.weight")));
    assert_non_null(eg_tensor_grad(eg_module_tensor(m, "0.weight")));
    eg_module_train(m, false);
    eg_module_train(copy, false);
    float y[2][6];
    assert_int_equal(eg_tensor_read(eg_call(m, x), y[0], 6), EG_OK);
    assert_int_equal(calls, 2);
    assert_int_equal(eg_tensor_read(eg_call(copy, x), y[1], 6), EG_OK);
    assert_int_equal(calls, 2);
    assert_memory_equal(y[0], y[1], sizeof(y[0]));
    eg_tape_end(tape);
    int64_t tracked;
    assert_int_equal(eg_tensor_read_i64(eg_module_tensor(copy, "1.num_batches_tracked"), &tracked, 1), EG_OK);
    assert_int_equal(tracked, 1);
    assert_null(eg_module_clone(NULL));
    eg_module_release(m);
    eg_module_release(copy);
}

/* ---- state dicts ---- */

static eg_module *small_net(void)
{
    return eg_sequential(ctx, EG_NAMED({"conv", eg_conv2d(ctx, 1, 2, 3)}, {"norm", eg_batch_norm2d(ctx, 2)},
                                       {"head", eg_linear(ctx, 2, 3, .no_bias = true)}));
}

static void state_has_pytorchs_names_in_its_order(void **state)
{
    (void)state;
    static const char *const names[] = {"net.conv.weight",
                                        "net.conv.bias",
                                        "net.norm.weight",
                                        "net.norm.bias",
                                        "net.norm.running_mean",
                                        "net.norm.running_var",
                                        "net.norm.num_batches_tracked",
                                        "net.head.weight"};
    eg_module *m = small_net();
    eg_state *dict = eg_state_new();
    assert_int_equal(eg_module_state(m, "net.", dict), EG_OK);
    assert_int_equal(eg_state_size(dict), sizeof(names) / sizeof(names[0]));
    for (size_t i = 0; i < eg_state_size(dict); i++) {
        const char *name;
        eg_tensor *t = eg_state_at(dict, i, &name);
        assert_string_equal(name, names[i]);
        assert_ptr_equal(t, eg_module_tensor(m, name + strlen("net."))); /* not copied */
        assert_ptr_equal(t, eg_state_get(dict, name));
    }
    assert_int_equal(eg_tensor_dtype(eg_state_get(dict, names[6])), EG_I64);
    assert_int_equal(eg_tensor_ndim(eg_state_get(dict, names[6])), 0);
    assert_null(eg_state_get(dict, "conv.weight"));
    assert_int_equal(eg_error_last()->code, EG_OK);
    assert_null(eg_state_at(dict, 8, NULL));
    assert_message(EG_EINVAL, "no tensor number 8, the state has 8");
    eg_module_release(m);
    eg_state_free(dict); /* keeps the tensors beyond the model */
    eg_state_free(NULL);
}

static void put_replaces(void **state)
{
    (void)state;
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_state *dict = eg_state_new();
    eg_tensor *a = eg_ones(ctx, EG_SHAPE(2)), *b = eg_zeros(ctx, EG_SHAPE(3));
    assert_int_equal(eg_state_put(dict, "t", a), EG_OK);
    assert_int_equal(eg_state_put(dict, "t", b), EG_OK);
    assert_int_equal(eg_state_put(dict, "t", b), EG_OK);
    assert_int_equal(eg_state_size(dict), 1);
    assert_ptr_equal(eg_state_get(dict, "t"), b);
    assert_int_equal(eg_state_put(dict, "u", eg_none), EG_EINVAL);
    assert_int_equal(eg_state_put(dict, "u", NULL), EG_EINVAL);
    eg_state_free(dict);
    eg_tape_end(tape);
}

/* All numbers of a model, for comparison. */
static size_t numbers(eg_module *m, float *out)
{
    eg_state *dict = eg_state_new();
    assert_int_equal(eg_module_state(m, NULL, dict), EG_OK);
    size_t n = 0;
    for (size_t i = 0; i < eg_state_size(dict); i++) {
        const eg_tensor *t = eg_state_at(dict, i, NULL);
        size_t size = (size_t)eg_tensor_numel(t);
        if (eg_tensor_dtype(t) == EG_I64) {
            int64_t tracked;
            assert_int_equal(eg_tensor_read_i64(t, &tracked, 1), EG_OK);
            out[n] = (float)tracked;
        } else {
            assert_int_equal(eg_tensor_read(t, out + n, size), EG_OK);
        }
        n += size;
    }
    eg_state_free(dict);
    return n;
}

static void load_copies_numbers(void **state)
{
    (void)state;
    eg_module *from = small_net(), *to = small_net();
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    assert_non_null(eg_call(eg_module_find(from, "norm"), eg_randn(ctx, EG_SHAPE(4, 2, 3, 3)))); /* statistics move */
    eg_tape_end(tape);
    eg_state *dict = eg_state_new();
    eg_module_state(from, "a.", dict);
    eg_init_constant(eg_module_tensor(to, "head.weight"), 9);
    assert_int_equal(eg_module_load_state(to, "a.", dict, true), EG_OK);
    float a[64], b[64];
    size_t n = numbers(from, a);
    assert_int_equal(numbers(to, b), n);
    assert_int_equal(n, 18 + 2 + 8 + 1 + 6);
    assert_memory_equal(a, b, n * sizeof(float));
    assert_ptr_not_equal(eg_module_tensor(to, "head.weight"), eg_module_tensor(from, "head.weight"));
    assert_int_equal(eg_module_load_state(from, "a.", dict, true), EG_OK); /* onto itself */
    eg_state_free(dict);
    eg_module_release(from);
    eg_module_release(to);
}

static void load_changes_all_or_nothing(void **state)
{
    (void)state;
    eg_module *m = small_net();
    float before[64], after[64];
    size_t n = numbers(m, before);
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_state *dict = eg_state_new();
    eg_state_put(dict, "conv.weight", eg_ones(ctx, EG_SHAPE(2, 1, 3, 3)));
    eg_state_put(dict, "conv.scale", eg_ones(ctx, EG_SHAPE(2)));
    assert_int_equal(eg_module_load_state(m, NULL, dict, true), EG_ENOENT);
    assert_message(EG_ENOENT, "missing from the state: 'conv.bias', 'norm.weight', 'norm.bias', 'norm.running_mean', "
                              "'norm.running_var' and 2 more; not in the model: 'conv.scale'");
    numbers(m, after);
    assert_memory_equal(before, after, n * sizeof(float));
    eg_state_put(dict, "head.weight", eg_ones(ctx, EG_SHAPE(3, 3)));
    assert_int_equal(eg_module_load_state(m, NULL, dict, false), EG_ESHAPE); /* shapes count in any case */
    assert_message(EG_ESHAPE, "'head.weight' has shape (3, 3), the model expects (3, 2)");
    numbers(m, after);
    assert_memory_equal(before, after, n * sizeof(float));
    eg_state_put(dict, "head.weight", eg_shape_only(ctx, EG_SHAPE(3, 2)));
    assert_int_equal(eg_module_load_state(m, NULL, dict, false), EG_EINVAL);
    numbers(m, after);
    assert_memory_equal(before, after, n * sizeof(float));
    eg_state_put(dict, "head.weight", eg_ones(ctx, EG_SHAPE(3, 2)));
    assert_int_equal(eg_module_load_state(m, NULL, dict, false), EG_OK);
    numbers(m, after);
    assert_true(after[0] == 1 && after[n - 1] == 1);
    assert_int_equal(eg_module_load_state(NULL, NULL, dict, true), EG_EINVAL);
    assert_int_equal(eg_module_load_state(m, NULL, NULL, true), EG_EINVAL);
    eg_state_free(dict);
    eg_tape_end(tape);
    eg_module_release(m);
}

static void absent_parameters_leave_no_name(void **state)
{
    (void)state;
    eg_module *m = eg_batch_norm2d(ctx, 3, .no_affine = true);
    assert_true(eg_is_none(((eg_batch_norm2d *)m)->weight));
    assert_true(eg_is_none(eg_module_tensor(m, "weight")));
    assert_int_equal(eg_module_n_parameters(m), 0);
    eg_state *dict = eg_state_new();
    assert_int_equal(eg_module_state(m, NULL, dict), EG_OK);
    assert_int_equal(eg_state_size(dict), 3);
    eg_module *copy = eg_module_clone(m);
    assert_true(eg_is_none(((eg_batch_norm2d *)copy)->bias));
    eg_module_release(copy);
    eg_state_free(dict);
    eg_module_release(m);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(clone_shares_nothing_and_keeps_sharing),
        TEST(clone_computes_the_same_without_hooks_and_gradients),
        TEST(state_has_pytorchs_names_in_its_order),
        TEST(put_replaces),
        TEST(load_copies_numbers),
        TEST(load_changes_all_or_nothing),
        TEST(absent_parameters_leave_no_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Modules: slots, sharing, changes, hooks, modes, failures and their messages; classes of one's own.
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
    if (left != 0)
        print_error("%zu bytes of tensors are left\n", left);
    return left != 0; /* every test frees what it made */
}

/* ---- classes of one's own ---- */

typedef struct scale {
    eg_module base;
    int64_t channels;
    eg_tensor *gain;
} scale;

static eg_status scale_build(eg_module *self)
{
    scale *s = (scale *)self;
    return EG_PARAM(s, gain, eg_full(self->ctx, EG_SHAPE(1, s->channels, 1, 1), 2));
}

static eg_tensor *scale_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_mul(in[0], ((scale *)self)->gain);
}

static EG_CLASS(scale, .build = scale_build, .forward = scale_forward,
                .fields = EG_FIELDS(EG_INT(scale, channels, .min = 1, .help = "channels in and out")));

/* Zero is a number like any other here; it calls a module that it may lack. */
typedef struct numbered {
    eg_module base;
    int64_t index;
    eg_module *op;
} numbered;

static eg_tensor *numbered_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_call(((numbered *)self)->op, in[0]);
}

static EG_CLASS(numbered, .forward = numbered_forward,
                .fields = EG_FIELDS(EG_INT(numbered, index, EG_AT_LEAST(0), .help = "its number")));

/* A block whose inner operation and norm are slots; `shortcut` may be the same module as `op`. */
typedef struct block {
    eg_module base;
    int64_t channels;
    bool share;
    const char *label;
    eg_module *op, *shortcut, *norm;
} block;

static eg_status block_build(eg_module *self)
{
    block *b = (block *)self;
    EG_SLOT(b, op, eg_conv2d(self->ctx, b->channels, b->channels, 3, .padding = 1));
    EG_SLOT(b, shortcut, b->share ? eg_module_retain(b->op) : eg_identity(self->ctx));
    EG_SLOT(b, norm, eg_batch_norm2d(self->ctx, b->channels));
    return eg_module_status(self);
}

static eg_tensor *block_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    block *b = (block *)self;
    return eg_call(b->norm, eg_add(eg_call(b->op, in[0]), eg_call(b->shortcut, in[0])));
}

static EG_CLASS(block, .build = block_build, .forward = block_forward,
                .fields = EG_FIELDS(EG_INT(block, channels, .help = "in and out"),
                                    EG_BOOL(block, share, .help = "one module"),
                                    EG_TEXT(block, label, .help = "any text")));

typedef block wide_block;
static const eg_class wide_block_class = {
    .struct_size = sizeof(eg_class), .name = "wide_block", .super = &block_class, .instance_size = sizeof(block)};

/* Takes two tensors, gives two. */
typedef struct swap {
    eg_module base;
} swap;

static eg_tensor *swap_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    eg_tensor *both[] = {eg_affine(in[1], 1, 0), eg_affine(in[0], 1, 0)};
    return eg_tuple(self->ctx, both, 2);
}

static EG_CLASS(swap, .forward = swap_forward, .n_inputs = 2);

/* Returns an item of a tuple that its own forward made. */
typedef struct first {
    eg_module base;
    eg_module *inner;
} first;

static eg_status first_build(eg_module *self)
{
    first *f = (first *)self;
    return EG_SLOT(f, inner, eg_new(swap, self->ctx));
}

static eg_tensor *first_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_tuple_get(eg_call(((first *)self)->inner, in[0], in[0]), 0);
}

static EG_CLASS(first, .build = first_build, .forward = first_forward);

/* A net whose forward calls the modules of a list. */
typedef struct listed {
    eg_module base;
    eg_module *layers;
} listed;

static eg_status listed_build(eg_module *self)
{
    listed *l = (listed *)self;
    return EG_SLOT(l, layers,
                   eg_module_list(self->ctx, EG_MODULES(eg_conv2d(self->ctx, 2, 4, 1), eg_conv2d(self->ctx, 3, 4, 1))));
}

static eg_tensor *listed_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    eg_tensor *x = in[0];
    for (size_t i = 0; i < 2; i++)
        x = eg_call(eg_module_child_at(((listed *)self)->layers, i, NULL), x);
    return x;
}

static EG_CLASS(listed, .build = listed_build, .forward = listed_forward);

static void assert_message(const char *part)
{
    if (strstr(eg_error_last()->message, part) == NULL)
        fail_msg("message is \"%s\", expected \"%s\" in it", eg_error_last()->message, part);
    assert_string_equal(eg_error_first()->message, eg_error_last()->message);
    eg_error_clear();
}

/* The sum of a tensor's numbers. */
static double total(eg_tensor *t)
{
    return eg_tensor_item(eg_sum(t));
}

/* ---- classes ---- */

static void own_class_works_like_a_built_in_one(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_new(scale, ctx, .channels = 3), eg_relu(ctx)));
    assert_non_null(m);
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *y = eg_call(m, eg_ones(ctx, EG_SHAPE(2, 3, 4, 4)));
    assert_non_null(y);
    assert_true(total(y) == 2 * 2 * 3 * 16);
    assert_int_equal(eg_backward(eg_sum(y)), EG_OK);
    float grad[3];
    assert_int_equal(eg_tensor_read(eg_tensor_grad(eg_module_tensor(m, "0.gain")), grad, 3), EG_OK);
    assert_true(grad[0] == 32 && grad[1] == 32 && grad[2] == 32);
    eg_tape_end(tape);
    assert_int_equal(eg_module_n_parameters(m), 3);
    char *text = eg_module_text(m);
    assert_string_equal(text, "Sequential(\n  (0): scale(channels=3)\n  (1): ReLU()\n)");
    eg_free(text);
    eg_module_release(m);
    eg_context_free(NULL);
}

static void casts_follow_super(void **state)
{
    (void)state;
    eg_module *m = eg_new(wide_block, ctx, .channels = 2);
    assert_non_null(m);
    assert_true(eg_is_a(m, &wide_block_class));
    assert_true(eg_is_a(m, &block_class));
    assert_true(eg_is_a(m, &eg_module_class));
    assert_false(eg_is_a(m, &scale_class));
    assert_false(eg_is_a(NULL, &scale_class));
    assert_ptr_equal(EG_CAST(m, block), m);
    assert_null(EG_CAST(m, scale));
    assert_message("module is a wide_block, expected a scale");
    assert_int_equal(((block *)m)->channels, 2); /* fields and build are those of the super class */
    assert_int_equal(eg_module_n_children(m), 3);
    eg_module_release(m);
}

static void fields_are_checked(void **state)
{
    (void)state;
    assert_null(eg_new(scale, ctx));
    assert_message("scale: 'channels' is 0, expected at least 1 (not given?)");
    assert_null(eg_new(scale, ctx, .channels = -1));
    assert_message("scale: 'channels' is -1, expected at least 1");
    assert_null(eg_new(numbered, ctx, .index = -5));
    assert_message("numbered: 'index' is -5, expected at least 0");
    assert_null(eg_conv2d(ctx, 3, 4));
    assert_message("Conv2d: 'kernel_size' is 0, expected at least 1 (not given?)");
    assert_null(eg_conv2d(ctx, 3, 4, EG_HW(3, 0)));
    assert_message("Conv2d: 'kernel_size' is (3, 0), expected at least 1");
    assert_null(eg_conv2d(ctx, 3, 4, 3, .padding = -1));
    assert_message("Conv2d: 'padding' is -1, expected at least 0");
    assert_null(eg_conv2d(ctx, 3, 4, 3, .padding = EG_HW(-1, 2)));
    assert_message("Conv2d: 'padding' is (-1, 2), expected at least 0");
    assert_null(eg_conv2d(ctx, 3, 4, (eg_hw)1 << 60));
    assert_message("Conv2d: 'kernel_size' is 1152921504606846976, expected at most 1073741823");
    assert_null(eg_conv2d(ctx, 3, 4, EG_HW(1, 1 << 30)));
    assert_message("Conv2d: 'kernel_size' is (1, 1073741824), expected at most 1073741823");
    assert_null(eg_conv2d(ctx, 3, 4, 3, .groups = 2));
    assert_message("must be multiples of groups 2");
    assert_null(eg_dropout(ctx, 1.5));
    assert_message("Dropout: 'p' is 1.5, expected 0.0 to 1.0");
    assert_null(eg_dropout(ctx, 0.0 / 0.0));
    assert_message("Dropout: 'p' is nan");
    assert_null(eg_linear(NULL, 3, 4));
    assert_message("context is NULL");
    eg_module *m = eg_max_pool2d(ctx, EG_HW(2, 2));
    assert_int_equal(((eg_pool2d *)m)->kernel_size, 2);
    assert_int_equal(((eg_pool2d *)m)->stride, 2);
    eg_module_release(m);
}

static void texts_are_copied(void **state)
{
    (void)state;
    char label[] = "first";
    eg_module *m = eg_new(block, ctx, .channels = 1, .label = label);
    label[0] = 'w';
    assert_string_equal(((block *)m)->label, "first");
    eg_module *copy = eg_module_clone(m);
    eg_module_release(m);
    assert_string_equal(((block *)copy)->label, "first");
    eg_module_release(copy);
    assert_null(eg_new(block, ctx, .channels = -3, .label = label)); /* build fails: the conv's fields */
    assert_string_equal(eg_error_first()->message, "block: child 'op' could not be made: Conv2d: 'in_channels' is -3, "
                                                   "expected 1 to 1073741823");
}

/* ---- slots ---- */

static void failures_of_slots_reach_the_caller(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_relu(ctx), eg_conv2d(ctx, 3, 4, 0), eg_relu(ctx)));
    assert_null(m);
    assert_message("Sequential: child '1' could not be made: Conv2d: 'kernel_size' is 0");
    m = eg_sequential(ctx, EG_NAMED({"a", eg_relu(ctx)}, {"a", eg_conv2d(ctx, 1, 1, 1)}));
    assert_null(m);
    assert_message("Sequential: name 'a' is taken");
    m = eg_sequential(ctx, EG_NAMED({"a.b", eg_relu(ctx)}));
    assert_null(m);
    assert_message("'a.b' is no name for a slot");
    m = eg_sequential(ctx, EG_MODULES(NULL));
    assert_null(m);
    assert_message("Sequential: child '0' is NULL");
    m = eg_sequential(NULL, EG_MODULES(eg_relu(ctx), eg_linear(ctx, 2, 2)));
    assert_null(m);
    assert_message("context is NULL");
}

static void lists_end_with_their_container(void **state)
{
    (void)state;
    eg_module *shared = eg_conv2d(ctx, 2, 2, 1);
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_module_retain(shared), shared));
    assert_int_equal(shared->refs, 2);
    assert_null(((eg_sequential *)m)->modules);
    eg_module_retain(shared);
    eg_module_release(m);
    assert_int_equal(shared->refs, 1);
    assert_null(eg_sequential(ctx, EG_MODULES(eg_module_retain(shared), NULL)));
    assert_int_equal(shared->refs, 1);
    eg_module_release(shared);
    eg_error_clear();
}

static void shared_modules_count_once(void **state)
{
    (void)state;
    eg_module *m = eg_new(block, ctx, .channels = 2, .share = true);
    block *b = (block *)m;
    assert_ptr_equal(b->op, b->shortcut);
    assert_int_equal(eg_module_n_parameters(m), 2 * 2 * 9 + 2 + 4);
    eg_state *dict = eg_state_new();
    assert_int_equal(eg_module_state(m, NULL, dict), EG_OK);
    assert_int_equal(eg_state_size(dict), 2 + 2 + 5); /* but it has both names, as in PyTorch */
    eg_state_free(dict);
    eg_module_release(m);
}

static void set_child_updates_every_slot_of_the_module(void **state)
{
    (void)state;
    eg_module *m = eg_new(block, ctx, .channels = 2, .share = true);
    block *b = (block *)m;
    eg_module *old = eg_module_retain(b->op), *relu = eg_relu(ctx);
    assert_int_equal(eg_module_set_child(m, "op", relu), EG_OK);
    assert_ptr_equal(b->op, relu);
    assert_ptr_equal(b->shortcut, relu);
    assert_int_equal(relu->refs, 2);
    assert_int_equal(old->refs, 1);
    assert_string_equal(relu->name, "op");
    assert_ptr_equal(eg_module_find(m, "shortcut"), relu);
    eg_module_release(old);

    assert_int_equal(eg_module_empty_child(m, "norm"), EG_OK);
    assert_null(b->norm);
    const char *name = NULL;
    assert_null(eg_module_child_at(m, 2, &name));
    assert_string_equal(name, "norm");
    assert_int_equal(eg_error_last()->code, EG_OK);
    assert_null(eg_module_find(m, "norm"));
    assert_message("child 'norm' is empty");
    assert_int_equal(eg_module_set_child(m, "norm", eg_identity(ctx)), EG_OK);
    assert_non_null(b->norm);

    assert_int_equal(eg_module_set_child(m, "norm", NULL), EG_EINVAL); /* a constructor that failed empties nothing */
    assert_message("child is NULL");
    assert_non_null(eg_module_find(m, "norm"));
    assert_int_equal(eg_module_set_child(m, "nrm", eg_conv2d(ctx, 1, 1, 1)), EG_ENOENT);
    assert_message("block has no child 'nrm' (did you mean 'norm'");
    assert_int_equal(eg_module_set_child(m, "op", eg_module_retain(relu)), EG_OK); /* the same one again */
    assert_int_equal(relu->refs, 2);
    eg_module_release(m);
}

static void modules_cannot_contain_themselves(void **state)
{
    (void)state;
    eg_module *inner = eg_sequential(ctx);
    eg_module *outer = eg_sequential(ctx, EG_MODULES(inner));
    assert_int_equal(eg_append(inner, eg_module_retain(outer)), EG_EINVAL);
    assert_message("cannot contain itself");
    assert_int_equal(eg_append(outer, eg_module_retain(outer)), EG_EINVAL);
    assert_message("cannot contain itself");
    assert_int_equal(eg_module_set_child(outer, "0", eg_module_retain(outer)), EG_EINVAL);
    assert_message("cannot contain itself");
    assert_int_equal(outer->refs, 1);
    eg_module_release(outer);
    eg_module *alone = eg_sequential(ctx); /* the failure is recorded before the only reference ends */
    assert_int_equal(eg_append(alone, alone), EG_EINVAL);
    assert_message("cannot contain itself");
    alone = eg_relu(ctx);
    assert_int_equal(eg_append(alone, alone), EG_EINVAL);
    assert_message("module is a ReLU, expected a Sequential, Repeat or ModuleList");
}

static void remove_child_takes_the_slot_away(void **state)
{
    (void)state;
    eg_module *m = eg_new(block, ctx, .channels = 2);
    assert_int_equal(eg_module_remove_child(m, "op"), EG_OK);
    assert_null(((block *)m)->op);
    assert_int_equal(eg_module_n_children(m), 2);
    assert_int_equal(eg_module_remove_child(m, "op"), EG_ENOENT);
    eg_module_release(m);
    m = eg_sequential(ctx, EG_MODULES(eg_relu(ctx), eg_sigmoid(ctx), eg_tanh(ctx)));
    assert_int_equal(eg_module_remove_child(m, "1"), EG_OK);
    assert_int_equal(eg_append(m, eg_gelu(ctx)), EG_OK); /* "2" is taken */
    const char *name;
    assert_ptr_equal(eg_module_child_at(m, 2, &name)->cls, &eg_gelu_class);
    assert_string_equal(name, "3");
    assert_null(eg_module_child_at(m, 3, &name));
    assert_int_equal(eg_append(eg_module_find(m, "0"), eg_relu(ctx)), EG_EINVAL);
    eg_error_clear();
    assert_int_equal(eg_append(NULL, eg_relu(ctx)), EG_EINVAL);
    assert_int_equal(eg_append(m, NULL), EG_EINVAL);
    eg_module_release(m);
}

static void paths_find_modules_and_tensors(void **state)
{
    (void)state;
    eg_module *m =
        eg_sequential(ctx, EG_NAMED({"stem", eg_conv2d(ctx, 1, 2, 3)},
                                    {"body", eg_sequential(ctx, EG_MODULES(eg_new(block, ctx, .channels = 2)))}));
    assert_ptr_equal(eg_module_find(m, ""), m);
    assert_ptr_equal(eg_module_find(m, "body.0.norm")->cls, &eg_batch_norm2d_class);
    assert_null(eg_module_find(m, "body.0.nrom"));
    assert_message("block 'body.0' has no child 'nrom' (did you mean 'norm'");
    assert_null(eg_module_find(m, "body."));
    assert_null(eg_module_find(m, "body..norm"));
    assert_null(eg_module_find(m, "stem.weight"));
    assert_int_equal(eg_error_last()->code, EG_ENOENT);
    eg_error_clear();
    assert_true(eg_shape_equal(eg_tensor_shape(eg_module_tensor(m, "stem.weight")), EG_SHAPE(2, 1, 3, 3)));
    assert_non_null(eg_module_tensor(m, "body.0.norm.running_var"));
    assert_null(eg_module_tensor(m, "stem.wieght"));
    assert_message("Conv2d 'stem' has no parameter or buffer 'wieght' (did you mean 'weight'");
    assert_null(eg_module_tensor(m, "body.0"));
    eg_module_release(m);
}

/* ---- running ---- */

static void null_and_wrong_inputs_fail(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_NAMED({"stem", eg_conv2d(ctx, 1, 2, 3)}, {"head", eg_conv2d(ctx, 3, 2, 3)}));
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    assert_null(eg_call(m, eg_ones(ctx, EG_SHAPE(1, 1, 8, 8))));
    assert_int_equal(eg_error_last()->code, EG_ESHAPE);
    assert_message("conv2d 'head': ");
    assert_null(eg_call(m, eg_randn(ctx, EG_SHAPE(1, -1, 8, 8))));
    eg_error_clear();
    assert_null(eg_call(m, NULL));
    assert_message("an input is NULL");
    assert_null(eg_call(NULL, eg_ones(ctx, EG_SHAPE(1, 1, 8, 8))));
    assert_message("eg_call: module is NULL");
    assert_null(eg_module_call(NULL, NULL, 0));
    assert_message("eg_call: module is NULL");
    assert_null(eg_module_call(m, NULL, 1));
    assert_message("the list of inputs is NULL");
    assert_null(eg_module_cast(m, NULL));
    assert_message("eg_module_cast: class is NULL");
    eg_module *outer = eg_sequential(ctx, EG_NAMED({"cell", eg_new(numbered, ctx)}));
    assert_null(eg_call(outer, eg_ones(ctx, EG_SHAPE(1))));
    assert_message("eg_call in forward of 'cell': module is NULL");
    eg_module_release(outer);
    outer = eg_new(numbered, ctx);
    assert_null(eg_call(outer, eg_ones(ctx, EG_SHAPE(1))));
    assert_message("eg_call in forward of 'numbered': module is NULL");
    char *text = eg_module_text(outer); /* a number without a default is printed, 0 too */
    assert_string_equal(text, "numbered(index=0)");
    eg_free(text);
    eg_module_release(outer);
    eg_tensor *x = eg_ones(ctx, EG_SHAPE(1, 1, 8, 8));
    assert_null(eg_call(m, x, x));
    assert_message("Sequential: got 2 inputs, expected 1");
    eg_tape_end(tape);
    eg_module_release(m);

    m = eg_new(listed, ctx);
    tape = eg_tape_begin(ctx, EG_NO_GRAD);
    assert_null(eg_call(m, eg_ones(ctx, EG_SHAPE(1, 2, 4, 4))));
    assert_message("conv2d 'layers.1': "); /* the list has no call of its own, but its name is in the path */
    assert_null(eg_call(((listed *)m)->layers, eg_ones(ctx, EG_SHAPE(1, 2, 4, 4))));
    assert_message("ModuleList has no forward function");
    eg_tape_end(tape);
    eg_module_release(m);
}

static void several_inputs_and_outputs(void **state)
{
    (void)state;
    eg_module *m = eg_new(swap, ctx);
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *y = eg_call(m, eg_full(ctx, EG_SHAPE(3), 1), eg_full(ctx, EG_SHAPE(3), 2));
    assert_int_equal(eg_tuple_size(y), 2);
    assert_true(total(eg_tuple_get(y, 0)) == 6 && total(eg_tuple_get(y, 1)) == 3);
    assert_null(eg_call(m, eg_tuple_get(y, 0)));
    assert_message("swap: got 1 inputs, expected 2");
    eg_module_release(m);
    m = eg_sequential(ctx, EG_MODULES(eg_new(first, ctx), eg_identity(ctx), eg_new(first, ctx)));
    y = eg_call(m, eg_full(ctx, EG_SHAPE(3), 5));
    assert_non_null(y);
    assert_true(total(y) == 15);
    eg_tape_end(tape);
    eg_module_release(m);
}

static void calls_are_scopes(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx);
    for (int i = 0; i < 16; i++)
        eg_append(m, eg_sigmoid(ctx));
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *x = eg_ones(ctx, EG_SHAPE(1, 1, 64, 64));
    eg_context_reset_peak(ctx);
    size_t one = eg_context_get_stats(ctx).bytes_in_use;
    eg_tensor *y = eg_call(m, x);
    assert_non_null(y);
    eg_context_stats stats = eg_context_get_stats(ctx);
    assert_true(stats.bytes_in_use == 2 * one);
    assert_true(stats.bytes_peak <= 3 * one); /* input, and the two around the running layer */
    eg_tape_end(tape);
    assert_int_equal(eg_context_get_stats(ctx).bytes_in_use, 0);
    eg_module_release(m);
}

typedef struct hook_log {
    int calls;
    eg_tensor *replace; /* kept by the test */
    bool fail;
} hook_log;

static eg_tensor *hook(void *payload, eg_module *m, eg_tensor *t, bool *failed)
{
    hook_log *log = payload;
    (void)m;
    assert_non_null(t);
    log->calls++;
    *failed = log->fail;
    if (log->fail)
        eg_fail(EG_ECANCELED, "hook said no");
    return log->replace;
}

static void hooks_see_and_replace(void **state)
{
    (void)state;
    eg_module *m = eg_relu(ctx);
    hook_log before = {0}, after = {0};
    uint64_t ids[2];
    assert_int_equal(eg_module_add_pre_hook(m, hook, &before, &ids[0]), EG_OK);
    assert_int_equal(eg_module_add_hook(m, hook, &after, &ids[1]), EG_OK);
    assert_true(ids[0] != ids[1]);
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *x = eg_full(ctx, EG_SHAPE(2), 3);
    assert_true(total(eg_call(m, x)) == 6);
    assert_int_equal(before.calls, 1);
    assert_int_equal(after.calls, 1);
    before.replace = eg_full(ctx, EG_SHAPE(2), 4);
    assert_true(total(eg_call(m, x)) == 8);
    after.replace = eg_full(ctx, EG_SHAPE(2), 5);
    assert_true(total(eg_call(m, x)) == 10);
    after.fail = true;
    assert_null(eg_call(m, x));
    assert_message("hook said no");
    assert_int_equal(eg_module_remove_hook(m, ids[1]), EG_OK);
    assert_int_equal(eg_module_remove_hook(m, ids[1]), EG_ENOENT);
    eg_error_clear();
    assert_true(total(eg_call(m, x)) == 8);
    assert_int_equal(after.calls, 4);
    eg_tape_end(tape);
    eg_module_release(m);
}

/* Opens a tape and does not end it: on the way out, or because it failed. */
typedef struct leaky {
    eg_module base;
    bool fail;
} leaky;

static eg_tensor *leaky_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    eg_tape_begin(self->ctx, EG_RECORD);
    eg_tape_begin(self->ctx, EG_NO_GRAD);
    return ((leaky *)self)->fail ? eg_reshape(in[0], EG_SHAPE(7)) : eg_f_relu(in[0]);
}

static EG_CLASS(leaky, .forward = leaky_forward, .fields = EG_FIELDS(EG_BOOL(leaky, fail, .help = "fails")));

static void tapes_left_open_are_closed(void **state)
{
    (void)state;
    eg_module *net = eg_sequential(ctx, EG_NAMED({"a", eg_relu(ctx)}, {"bad", eg_new(leaky, ctx)}));
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *x = eg_ones(ctx, EG_SHAPE(2, 3));
    assert_null(eg_call(net, x));
    assert_int_equal(eg_error_last()->code, EG_EINVAL);
    assert_message("module 'bad' left a tape open");
    assert_false(eg_is_recording(ctx));
    assert_true(eg_tensor_item(eg_sum(x)) == 6); /* the caller's tape and its tensors are as before */
    eg_tape_end(tape);
    eg_error_clear();

    tape = eg_tape_begin(ctx, EG_RECORD);
    eg_module *failing = eg_new(leaky, ctx, .fail = true);
    assert_null(eg_call(failing, eg_ones(ctx, EG_SHAPE(2, 3))));
    assert_message("reshape"); /* the cause stands */
    assert_true(eg_is_recording(ctx));
    eg_module_release(failing);
    eg_error_clear();
    failing = eg_new(leaky, ctx);
    assert_null(eg_call(failing, eg_ones(ctx, EG_SHAPE(1))));
    assert_message("module 'leaky' left a tape open"); /* a root has no name but its class's */
    eg_tape_end(tape);
    assert_false(eg_is_recording(ctx));
    eg_module_release(failing);
    eg_module_release(net);
}

static void modes_reach_all_modules(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_new(block, ctx, .channels = 2), eg_dropout(ctx, 1)));
    assert_true(eg_module_find(m, "0.norm")->training);
    eg_module_train(m, false);
    assert_false(m->training);
    assert_false(eg_module_find(m, "0.norm")->training);
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *x = eg_ones(ctx, EG_SHAPE(2, 2, 4, 4));
    assert_true(total(eg_call(eg_module_find(m, "1"), x)) == 64);
    eg_module_train(m, true);
    assert_true(total(eg_call(eg_module_find(m, "1"), x)) == 0);
    eg_tape_end(tape);
    eg_module_set_requires_grad(m, false);
    assert_false(eg_tensor_requires_grad(eg_module_tensor(m, "0.op.weight")));
    eg_module_set_requires_grad(m, true);
    assert_true(eg_tensor_requires_grad(eg_module_tensor(m, "0.op.weight")));
    assert_false(eg_tensor_requires_grad(eg_module_tensor(m, "0.norm.running_var")));
    eg_module_release(m);
}

static void zero_grad_drops_gradients(void **state)
{
    (void)state;
    eg_module *m = eg_linear(ctx, 2, 2);
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    assert_int_equal(eg_backward(eg_sum(eg_call(m, eg_ones(ctx, EG_SHAPE(1, 2))))), EG_OK);
    eg_tape_end(tape);
    assert_non_null(eg_tensor_grad(eg_module_tensor(m, "weight")));
    eg_module_zero_grad(m);
    assert_null(eg_tensor_grad(eg_module_tensor(m, "weight")));
    eg_module_release(m);
}

/* ---- walks ---- */

static eg_status note_path(void *payload, const char *path, eg_module *m)
{
    char *text = payload;
    (void)m;
    strcat(strcat(text, path), ";");
    return strcmp(path, "stop") == 0 ? EG_ECANCELED : EG_OK;
}

static eg_status note_tensor(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    char *text = payload;
    assert_non_null(t);
    strcat(strcat(text, kind == EG_SLOT_PARAMETER ? "p:" : "b:"), path);
    strcat(text, ";");
    return EG_OK;
}

static void walks_go_parents_first(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_NAMED({"a", eg_new(block, ctx, .channels = 1, .share = true)},
                                               {"stop", eg_relu(ctx)}, {"b", eg_relu(ctx)}));
    char text[1000] = "";
    assert_int_equal(eg_module_walk(m, note_path, text), EG_ECANCELED);
    assert_string_equal(text, ";a;a.op;a.norm;stop;");
    text[0] = '\0';
    assert_int_equal(eg_module_walk_tensors(m, note_tensor, text), EG_OK);
    assert_string_equal(text,
                        "p:a.op.weight;p:a.op.bias;p:a.shortcut.weight;p:a.shortcut.bias;p:a.norm.weight;p:a.norm.bias;"
                        "b:a.norm.running_mean;b:a.norm.running_var;b:a.norm.num_batches_tracked;");
    assert_int_equal(eg_module_n_parameters(NULL), -1);
    eg_module_release(m);
}

typedef struct pruning {
    eg_module *root;
    char text[200];
} pruning;

/* Takes away the branch under way, then the root. */
static eg_status prune(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    pruning *p = payload;
    assert_int_equal(note_tensor(p->text, path, kind, t), EG_OK);
    if (strcmp(path, "a.0.weight") == 0)
        assert_int_equal(eg_module_remove_child(p->root, "a"), EG_OK);
    if (strcmp(path, "c.weight") == 0) {
        eg_module_release(p->root);
        p->root = NULL;
    }
    assert_int_equal(eg_tensor_dtype(t), EG_F32);
    return EG_OK;
}

static eg_status release_root(void *payload, const char *path, eg_module *m)
{
    pruning *p = payload;
    strcat(strcat(p->text, path), ";");
    if (m == p->root) {
        p->root = NULL;
        eg_module_release(m);
    }
    return EG_OK;
}

static void walks_outlive_what_visitors_take_away(void **state)
{
    (void)state;
    pruning p = {.root = eg_sequential(ctx, EG_NAMED({"a", eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 1, 1)))},
                                                     {"b", eg_linear(ctx, 1, 1)}, {"c", eg_linear(ctx, 1, 1)}))};
    assert_int_equal(eg_module_walk_tensors(p.root, prune, &p), EG_OK);
    assert_string_equal(p.text, "p:a.0.weight;p:a.0.bias;p:c.weight;p:c.bias;"); /* "b" moved to where "a" was */
    assert_null(p.root);
    p = (pruning){.root = eg_sequential(ctx, EG_MODULES(eg_relu(ctx)))};
    assert_int_equal(eg_module_walk(p.root, release_root, &p), EG_OK);
    assert_string_equal(p.text, ";0;");
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(own_class_works_like_a_built_in_one),
        TEST(casts_follow_super),
        TEST(fields_are_checked),
        TEST(texts_are_copied),
        TEST(failures_of_slots_reach_the_caller),
        TEST(lists_end_with_their_container),
        TEST(shared_modules_count_once),
        TEST(set_child_updates_every_slot_of_the_module),
        TEST(modules_cannot_contain_themselves),
        TEST(remove_child_takes_the_slot_away),
        TEST(paths_find_modules_and_tensors),
        TEST(null_and_wrong_inputs_fail),
        TEST(several_inputs_and_outputs),
        TEST(calls_are_scopes),
        TEST(hooks_see_and_replace),
        TEST(tapes_left_open_are_closed),
        TEST(modes_reach_all_modules),
        TEST(zero_grad_drops_gradients),
        TEST(walks_go_parents_first),
        TEST(walks_outlive_what_visitors_take_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

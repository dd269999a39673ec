/*
 * Tapes, eg_apply() and backward, on small operations of the test's own.
 */
#include "support.h"

#include "autograd/internal.h"
#include "engraft/sys/op.h"

/* ---- operations: x * y element by element; the sum; a view; two halves ---- */

static eg_status infer_same(const eg_op_call *call, eg_spec *out)
{
    for (size_t i = 1; i < call->n_in; i++)
        EG_CHECK(eg_shape_equal(eg_tensor_shape(call->in[0]), eg_tensor_shape(call->in[i])), EG_ESHAPE,
                 "input %zu has another shape than input 0", i);
    out[0] = (eg_spec){.dtype = eg_tensor_dtype(call->in[0]), .shape = eg_tensor_shape(call->in[0])};
    return EG_OK;
}

/* Where the i-th element in logical order lies. */
static int64_t place(const eg_tensor *t, int64_t i)
{
    int64_t at = 0;
    for (int dim = t->shape.ndim - 1; dim >= 0; dim--) {
        at += i % t->shape.dims[dim] * t->strides[dim];
        i /= t->shape.dims[dim];
    }
    return at;
}

static double get(const eg_tensor *t, int64_t i)
{
    return t->dtype == EG_F64 ? eg__f64(t)[place(t, i)] : (double)eg__f32(t)[place(t, i)];
}

static void set(eg_tensor *t, int64_t i, double value)
{
    if (t->dtype == EG_F64)
        eg__f64(t)[place(t, i)] = value;
    else
        eg__f32(t)[place(t, i)] = (float)value;
}

static eg_status mul_forward(eg_op_call *call)
{
    for (int64_t i = 0; i < eg_tensor_numel(call->out[0]); i++)
        set(call->out[0], i, get(call->in[0], i) * get(call->in[1], i));
    EG_TRY(eg_op_save(call, call->in[0]));
    return eg_op_save(call, call->in[1]);
}

static eg_status mul_backward(eg_op_grad *grad)
{
    for (size_t k = 0; k < 2; k++) {
        if (!grad->needs_grad[k])
            continue;
        eg_tensor *dx = eg_op_grad_new(grad, k);
        if (!dx)
            return EG_ENOMEM;
        for (int64_t i = 0; i < eg_tensor_numel(dx); i++)
            set(dx, i, get(grad->grad_out[0], i) * get(grad->saved[1 - k], i));
    }
    return EG_OK;
}

static const eg_op mul_op = {
    .struct_size = sizeof(eg_op), .name = "mul", .infer = infer_same, .forward = mul_forward, .backward = mul_backward};

static eg_status add_forward(eg_op_call *call)
{
    for (int64_t i = 0; i < eg_tensor_numel(call->out[0]); i++)
        set(call->out[0], i, get(call->in[0], i) + get(call->in[1], i));
    return EG_OK;
}

static eg_status add_backward(eg_op_grad *grad)
{
    for (size_t k = 0; k < 2; k++)
        if (grad->needs_grad[k])
            EG_TRY(eg_op_grad_pass(grad, k, grad->grad_out[0]));
    return EG_OK;
}

static const eg_op add_op = {
    .struct_size = sizeof(eg_op), .name = "add", .infer = infer_same, .forward = add_forward, .backward = add_backward};

static eg_status infer_scalar(const eg_op_call *call, eg_spec *out)
{
    out[0] = (eg_spec){.dtype = eg_tensor_dtype(call->in[0]), .shape = EG_SCALAR};
    return EG_OK;
}

static eg_status sum_forward(eg_op_call *call)
{
    double sum = 0;
    for (int64_t i = 0; i < eg_tensor_numel(call->in[0]); i++)
        sum += get(call->in[0], i);
    set(call->out[0], 0, sum);
    return EG_OK;
}

/* An expanded view: elements that share memory. */
static eg_status sum_backward(eg_op_grad *grad)
{
    static const int64_t strides[EG_MAX_DIMS];
    eg_tensor *view = eg__tensor_new_view(grad->grad_out[0], grad->in_spec[0].shape, strides, 0);
    if (!view)
        return EG_ENOMEM;
    eg_status status = eg_op_grad_pass(grad, 0, view);
    eg_tensor_release(view);
    return status;
}

static const eg_op sum_op = {.struct_size = sizeof(eg_op),
                             .name = "sum",
                             .infer = infer_scalar,
                             .forward = sum_forward,
                             .backward = sum_backward};

typedef struct view_attrs {
    int64_t start;
} view_attrs;

static eg_status view_forward(eg_op_call *call)
{
    const view_attrs *attrs = call->attrs;
    int64_t size = eg_tensor_size(call->in[0], 0) - attrs->start;
    int64_t strides[EG_MAX_DIMS] = {1};
    EG_CHECK(size >= 0, EG_ESHAPE, "start %lld lies past the end", (long long)attrs->start);
    call->out[0] = eg__tensor_new_view(call->in[0], EG_SHAPE(size), strides, call->in[0]->offset + attrs->start);
    return call->out[0] ? EG_OK : EG_ENOMEM;
}

static eg_status view_backward(eg_op_grad *grad)
{
    const view_attrs *attrs = grad->attrs;
    eg_tensor *dx = eg_op_grad_new(grad, 0);
    if (!dx)
        return EG_ENOMEM;
    for (int64_t i = 0; i < eg_tensor_numel(dx); i++)
        set(dx, i, i < attrs->start ? 0 : get(grad->grad_out[0], i - attrs->start));
    return EG_OK;
}

static const eg_op view_op = {.struct_size = sizeof(eg_op),
                              .name = "tail",
                              .attrs_size = sizeof(view_attrs),
                              .makes_outputs = true,
                              .forward = view_forward,
                              .backward = view_backward};

static eg_status infer_halves(const eg_op_call *call, eg_spec *out)
{
    int64_t n = eg_tensor_size(call->in[0], 0);
    out[0] = (eg_spec){.dtype = eg_tensor_dtype(call->in[0]), .shape = EG_SHAPE(n / 2)};
    out[1] = (eg_spec){.dtype = eg_tensor_dtype(call->in[0]), .shape = EG_SHAPE(n - n / 2)};
    return EG_OK;
}

static eg_status halves_forward(eg_op_call *call)
{
    int64_t half = eg_tensor_numel(call->out[0]);
    for (int64_t i = 0; i < eg_tensor_numel(call->in[0]); i++)
        set(call->out[i >= half], i < half ? i : i - half, get(call->in[0], i));
    return EG_OK;
}

static eg_status halves_backward(eg_op_grad *grad)
{
    eg_tensor *dx = eg_op_grad_new(grad, 0);
    if (!dx)
        return EG_ENOMEM;
    int64_t n = eg_tensor_numel(dx);
    for (int64_t i = 0; i < n; i++) {
        const eg_tensor *part = grad->grad_out[i >= n / 2];
        set(dx, i, part ? get(part, i < n / 2 ? i : i - n / 2) : 0);
    }
    return EG_OK;
}

static const eg_op halves_op = {.struct_size = sizeof(eg_op),
                                .name = "halves",
                                .n_out = 2,
                                .infer = infer_halves,
                                .forward = halves_forward,
                                .backward = halves_backward};

static eg_tensor *mul(eg_tensor *a, eg_tensor *b)
{
    return eg_apply(&mul_op, (eg_tensor *[]){a, b}, 2, NULL);
}

static eg_tensor *add(eg_tensor *a, eg_tensor *b)
{
    return eg_apply(&add_op, (eg_tensor *[]){a, b}, 2, NULL);
}

static eg_tensor *sum(eg_tensor *a)
{
    return eg_apply(&sum_op, &a, 1, NULL);
}

static eg_tensor *tail(eg_tensor *a, int64_t start)
{
    return eg_apply(&view_op, &a, 1, &(view_attrs){start});
}

static eg_tensor *halves(eg_tensor *a)
{
    return eg_apply(&halves_op, &a, 1, NULL);
}

/* ---- fixtures ---- */

static int setup(void **state)
{
    eg_error_clear();
    *state = eg_context_new(.seed = 1, .threads = 1, .backend = "ref");
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    return 0;
}

static eg_tensor *leaf(eg_context *ctx, float a, float b)
{
    eg_tensor *t = eg_from_data(ctx, EG_SHAPE(2), (const float[]){a, b});
    assert_made(t);
    assert_ok(eg_tensor_set_requires_grad(t, true));
    return t;
}

/* ---- backward ---- */

static void test_product(void **state)
{
    eg_tensor *x = leaf(*state, 2, 3), *y = leaf(*state, 5, 7);
    eg_tape *tape = eg_tape_begin(*state, EG_RECORD);
    assert_true(eg_is_recording(*state));
    eg_tensor *loss = sum(mul(x, y));
    assert_made(loss);
    assert_true(eg_tensor_requires_grad(loss));
    assert_close(eg_tensor_item(loss), 31, 0);
    assert_ok(eg_backward(loss));
    eg_tape_end(tape);
    assert_false(eg_is_recording(*state));
    assert_tensor(eg_tensor_grad(x), 0, 5, 7);
    assert_tensor(eg_tensor_grad(y), 0, 2, 3);
}

static void test_gradients_accumulate_over_passes(void **state)
{
    eg_tensor *x = leaf(*state, 2, 3);
    for (int i = 0; i < 3; i++) {
        eg_tape *tape = eg_tape_begin(*state, EG_RECORD);
        assert_ok(eg_backward(sum(mul(x, x))));
        eg_tape_end(tape);
    }
    assert_tensor(eg_tensor_grad(x), 0, 12, 18);
    eg_tensor *held = eg_tensor_keep(eg_tensor_grad(x));
    eg_tape *tape = eg_tape_begin(*state, EG_RECORD);
    assert_ok(eg_backward(sum(x)));
    eg_tape_end(tape);
    assert_tensor(held, 0, 12, 18); /* somebody else's: not changed in place */
    assert_tensor(eg_tensor_grad(x), 0, 13, 19);
    eg_tensor_release(held);
    eg_tensor_zero_grad(x);
    assert_true(eg_tensor_grad(x) == NULL);
}

static void test_fan_out(void **state)
{
    eg_tensor *x = leaf(*state, 2, 3);
    eg_tape *tape = eg_tape_begin(*state, EG_RECORD);
    eg_tensor *a = mul(x, x);                 /* x^2 */
    eg_tensor *b = add(a, a);                 /* 2 x^2, one gradient passed twice */
    eg_tensor *c = add(b, add(a, mul(a, x))); /* 3 x^2 + x^3 */
    assert_ok(eg_backward(sum(c)));
    assert_tensor(eg_tensor_grad(x), 1e-5, 6 * 2 + 3 * 4, 6 * 3 + 3 * 9);
    eg_tape_end(tape);
}

static void test_gradient_has_the_leafs_memory_order(void **state)
{
    float numbers[2 * 3 * 2 * 2];
    for (int i = 0; i < 24; i++)
        numbers[i] = (float)i;
    eg_tensor *w = eg_empty(*state, EG_F32, EG_SHAPE(2, 3, 2, 2), EG_LAYOUT_ROW_MAJOR);
    assert_ok(eg_tensor_write(w, numbers, 24));
    assert_ok(eg_tensor_set_requires_grad(w, true));
    eg_tape *tape = eg_tape_begin(*state, EG_RECORD);
    eg_tensor *y = add(w, w);
    eg_tensor *grad = eg_from_data(*state, EG_SHAPE(2, 3, 2, 2), numbers);
    assert_true(eg__is_channels_last(grad));
    assert_ok(eg_backward_from(y, grad));
    eg_tape_end(tape);
    assert_true(eg__same_strides(eg_tensor_grad(w), w));
    for (int i = 0; i < 24; i++)
        numbers[i] *= 2;
    assert_numbers(eg_tensor_grad(w), numbers, 24, 0);
}

static void test_only_what_is_needed(void **state)
{
    eg_tensor *x = eg_from_data(*state, EG_SHAPE(2), (const float[]){1, 2}), *y = leaf(*state, 3, 4);
    eg_tape *tape = eg_tape_begin(*state, EG_RECORD);
    eg_tensor *constant = mul(x, x);
    assert_false(eg_tensor_requires_grad(constant));
    assert_ok(eg_backward(sum(mul(constant, y))));
    assert_true(eg_tensor_grad(x) == NULL);
    assert_tensor(eg_tensor_grad(y), 0, 1, 4);
    eg_tape_end(tape);
}

static void test_outputs_of_which_one_is_used(void **state)
{
    eg_tensor *x = eg_from_data(*state, EG_SHAPE(3), (const float[]){1, 2, 3});
    assert_ok(eg_tensor_set_requires_grad(x, true));
    eg_tape *tape = eg_tape_begin(*state, EG_RECORD);
    eg_tensor *parts = halves(x);
    assert_made(parts);
    assert_true(eg_tensor_is_tuple(parts));
    assert_int_equal(eg_tuple_size(parts), 2);
    assert_ok(eg_backward(sum(mul(eg_tuple_get(parts, 1), eg_tuple_get(parts, 1)))));
    assert_tensor(eg_tensor_grad(x), 0, 0, 4, 6);
    eg_tape_end(tape);
}

static void test_views_have_their_own_handle(void **state)
{
    eg_tensor *x = leaf(*state, 2, 3);
    eg_tape *tape = eg_tape_begin(*state, EG_RECORD);
    eg_tensor *y = tail(x, 1);
    assert_made(y);
    assert_true(eg_tensor_data(y) == (float *)eg_tensor_data(x) + 1);
    assert_ok(eg_backward(sum(mul(y, y))));
    assert_tensor(eg_tensor_grad(x), 0, 0, 6);
    eg_tape_end(tape);
}

/* ---- what is refused ---- */

static void test_backward_twice(void **state)
{
    eg_tensor *x = leaf(*state, 2, 3);
    eg_tape *tape = eg_tape_begin(*state, EG_RECORD);
    eg_tensor *shared = mul(x, x), *loss = sum(shared), *other = sum(mul(x, x));
    assert_ok(eg_backward(loss));
    assert_fails(eg_backward(loss), EG_EINVAL, "used up");
    assert_fails(eg_backward(sum(add(shared, x))), EG_EINVAL, "used up");
    assert_tensor(eg_tensor_grad(x), 0, 4, 6);
    assert_ok(eg_backward(other)); /* shares nothing with the first */
    assert_tensor(eg_tensor_grad(x), 0, 8, 12);
    eg_tape_end(tape);
}

static void test_backward_without_a_record(void **state)
{
    eg_tensor *x = leaf(*state, 2, 3);
    assert_fails(eg_backward(sum(x)), EG_EINVAL, "nothing was recorded");
    eg_tape *tape = eg_tape_begin(*state, EG_NO_GRAD);
    assert_fails(eg_backward(sum(x)), EG_EINVAL, "nothing was recorded");
    eg_tape_end(tape);
    tape = eg_tape_begin(*state, EG_RECORD);
    assert_fails(eg_backward(mul(x, x)), EG_ESHAPE, "(2)");
    assert_fails(eg_backward_from(mul(x, x), sum(x)), EG_ESHAPE, "gradient is float32 ()");
    assert_fails(eg_backward(NULL), EG_EINVAL, "loss is NULL");
    assert_fails(eg_backward(eg_none), EG_EINVAL, "loss is none");
    eg_tensor *kept = eg_tensor_keep(sum(x));
    eg_tape_end(tape);
    assert_fails(eg_backward(kept), EG_EINVAL, "tape has ended");
    tape = eg_tape_begin(*state, EG_RECORD);
    eg_tensor *y = mul(kept, kept); /* a constant now */
    assert_false(eg_tensor_requires_grad(y));
    eg_tape_end(tape);
    eg_tensor_release(kept);
}

static void test_changed_in_place(void **state)
{
    eg_tensor *x = leaf(*state, 2, 3);
    eg_tape *tape = eg_tape_begin(*state, EG_RECORD);
    assert_ok(eg__call_push(*state, "net"));
    eg_tensor *loss = sum(mul(x, x));
    eg__call_pop(*state);
    assert_ok(eg_tensor_write(x, (const float[]){1, 1}, 2));
    assert_fails(eg_backward(loss), EG_EINVAL, "backward of mul 'net': a tensor that its gradient needs was changed");
    eg_tape_end(tape);
}

static void test_nested_tapes(void **state)
{
    eg_tensor *x = leaf(*state, 2, 3);
    eg_tape *outer = eg_tape_begin(*state, EG_RECORD);
    eg_tensor *y = mul(x, x);
    eg_tape *silent = eg_tape_begin(*state, EG_NO_GRAD);
    assert_false(eg_is_recording(*state));
    assert_false(eg_tensor_requires_grad(mul(x, y)));
    eg_tape_end(silent);
    eg_tape *inner = eg_tape_begin(*state, EG_RECORD);
    assert_refused(mul(x, y), EG_EINVAL, "mul: input 1 was recorded on an outer tape");
    assert_ok(eg_backward(sum(mul(x, eg_detach(y)))));
    assert_tensor(eg_tensor_grad(x), 0, 4, 9);
    eg_tape_end(inner);
    assert_ok(eg_backward(sum(y)));
    assert_tensor(eg_tensor_grad(x), 0, 8, 15);
    eg_tape_begin(*state, EG_RECORD); /* ended by the outer one */
    eg_tape_end(outer);
    assert_false(eg_is_recording(*state));
}

static void test_results_are_no_leaves(void **state)
{
    eg_tensor *x = leaf(*state, 2, 3);
    eg_tape *tape = eg_tape_begin(*state, EG_RECORD);
    assert_fails(eg_tensor_set_requires_grad(mul(x, x), false), EG_EINVAL, "recorded operation");
    assert_ok(eg_tensor_set_requires_grad(eg_detach(mul(x, x)), true));
    eg_tensor *labels = eg_from_labels(*state, 1, (const int64_t[]){3});
    assert_fails(eg_tensor_set_requires_grad(labels, true), EG_EDTYPE, "int64");
    eg_tape_end(tape);
}

/* ---- memory ---- */

static void test_intermediates_are_freed(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = eg_ones(ctx, EG_SHAPE(1 << 16));
    assert_ok(eg_tensor_set_requires_grad(x, true));
    size_t before = eg_context_get_stats(ctx).bytes_in_use;
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *y = x;
    for (int i = 0; i < 10; i++) {
        size_t scope = eg__scope_enter(ctx);
        y = add(add(y, y), y); /* add saves nothing: of each call only its result stays */
        eg__scope_leave(ctx, scope, y);
        assert_made(y);
    }
    assert_int_equal(eg_context_get_stats(ctx).bytes_in_use - before, (size_t)10 << 18);
    eg_tape_end(tape);
    assert_int_equal(eg_context_get_stats(ctx).bytes_in_use, before);
}

static void test_backward_lets_go_as_it_passes(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = eg_ones(ctx, EG_SHAPE(1 << 16));
    assert_ok(eg_tensor_set_requires_grad(x, true));
    size_t before = eg_context_get_stats(ctx).bytes_in_use;
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    size_t scope = eg__scope_enter(ctx);
    eg_tensor *y = x;
    for (int i = 0; i < 10; i++)
        y = mul(y, x);
    eg_tensor *loss = sum(y);
    eg__scope_leave(ctx, scope, loss);
    size_t saved = eg_context_get_stats(ctx).bytes_in_use - before;
    assert_in_range(saved, (size_t)9 << 18, ((size_t)9 << 18) + 4096);
    eg_context_reset_peak(ctx);
    assert_ok(eg_backward(loss));
    assert_in_range(eg_context_get_stats(ctx).bytes_peak - before, 0, saved + ((size_t)4 << 18));
    assert_in_range(eg_context_get_stats(ctx).bytes_in_use - before, 0, ((size_t)1 << 18) + 4096);
    eg_tape_end(tape);
}

static void test_a_steady_state_needs_no_new_memory(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = leaf(ctx, 2, 3);
    uint64_t allocations = 0;
    for (int i = 0; i < 5; i++) {
        eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
        assert_ok(eg_backward(sum(mul(add(x, x), x))));
        eg_tape_end(tape);
        if (i == 1)
            allocations = eg_context_get_stats(ctx).system_allocations;
    }
    if (eg__pool_enabled(ctx))
        assert_int_equal(eg_context_get_stats(ctx).system_allocations, allocations);
}

/* ---- eg_apply ---- */

static void test_null_keeps_the_first_failure(void **state)
{
    eg_tensor *x = leaf(*state, 2, 3);
    eg_tensor *bad = mul(x, eg_zeros(*state, EG_SHAPE(3)));
    assert_true(bad == NULL);
    assert_true(sum(add(bad, x)) == NULL);
    assert_recorded(EG_ESHAPE, "mul: input 1 has another shape");
    assert_refused(add(x, NULL), EG_EINVAL, "add: an input is NULL");
}

static void test_messages_name_the_module(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = leaf(ctx, 2, 3), *bad = eg_zeros(ctx, EG_SHAPE(3));
    assert_string_equal(eg__call_path(ctx), "");
    assert_ok(eg__call_push(ctx, ""));
    assert_ok(eg__call_push(ctx, "stem"));
    assert_ok(eg__call_push(ctx, "0"));
    assert_string_equal(eg__call_path(ctx), "stem.0");
    assert_int_equal(eg__call_depth(ctx), 3);
    assert_true(mul(x, bad) == NULL);
    assert_string_equal(eg_error_first()->message, "mul 'stem.0': input 1 has another shape than input 0");
    assert_recorded(EG_ESHAPE, "mul 'stem.0': input 1 has another shape than input 0");
    eg__call_pop(ctx);
    assert_string_equal(eg__call_path(ctx), "stem");
    eg__call_pop(ctx);
    eg__call_pop(ctx);
    assert_string_equal(eg__call_path(ctx), "");
    assert_int_equal(eg__call_depth(ctx), 0);
}

static void test_inputs_that_are_refused(void **state)
{
    eg_context *ctx = *state, *other = eg_context_new(.backend = "ref", .threads = 1);
    eg_tensor *x = leaf(ctx, 2, 3);
    assert_refused(mul(x, eg_none), EG_EINVAL, "mul: input 1 is none (a choice that selected nothing)");
    assert_refused(sum(eg_none), EG_EINVAL, "sum: input 0 is none (a choice that selected nothing)");
    assert_refused(sum(halves(x)), EG_EINVAL, "sum: input 0 is a tuple of 2 tensors");
    assert_refused(mul(x, eg_ones(other, EG_SHAPE(2))), EG_EINVAL, "mul: input 1 belongs to another context");
    assert_refused(eg_apply(&sum_op, NULL, 0, NULL), EG_EINVAL, "sum: no inputs");
    assert_refused(eg_apply(NULL, &x, 1, NULL), EG_EINVAL, "operation is NULL");
    assert_refused(eg_apply(&view_op, &x, 1, NULL), EG_EINVAL, "tail: attributes are missing");
    assert_refused(tail(x, 3), EG_ESHAPE, "tail: start 3 lies past the end");
    assert_fails(eg_op_save(NULL, x), EG_EINVAL, "call is NULL");
    assert_refused(eg_op_grad_new(NULL, 0), EG_EINVAL, "record is NULL");
    assert_fails(eg_op_grad_pass(NULL, 0, x), EG_EINVAL, "record is NULL");
    assert_fails(eg_op_grad_pass(&(eg_op_grad){.n_in = 1, .needs_grad = (bool[]){true}}, 0, NULL), EG_EINVAL,
                 "gradient is NULL");
    eg_op old = mul_op;
    old.struct_size = 8;
    assert_refused(eg_apply(&old, (eg_tensor *[]){x, x}, 2, NULL), EG_EINVAL, "struct_size is 8");
    eg_context_free(other);
}

static void test_shape_only(void **state)
{
    eg_tensor *x = eg_shape_only(*state, EG_SHAPE(4)), *w = eg_ones(*state, EG_SHAPE(4));
    assert_ok(eg_tensor_set_requires_grad(w, true));
    eg_tape *tape = eg_tape_begin(*state, EG_RECORD);
    eg_tensor *y = mul(x, w);
    assert_made(y);
    assert_true(eg_tensor_is_shape_only(y));
    assert_false(eg_tensor_requires_grad(y));
    eg_tensor *z = tail(y, 1);
    assert_made(z);
    assert_true(eg_tensor_is_shape_only(z));
    assert_int_equal(eg_tensor_size(z, 0), 3);
    assert_refused(mul(z, w), EG_ESHAPE, "another shape");
    eg_tape_end(tape);
}

/* An operation that is made of others, in both directions: nothing of it is recorded on its own. */
static eg_status cube_forward(eg_op_call *call)
{
    EG_TRY(eg_op_save(call, call->in[0]));
    eg_tensor *y = mul(call->in[0], mul(call->in[0], call->in[0]));
    return y ? eg_tensor_assign(call->out[0], y) : eg_error_last()->code;
}

static eg_status cube_backward(eg_op_grad *grad)
{
    eg_tensor *square = mul(grad->saved[0], grad->saved[0]);
    eg_tensor *three = add(square, add(square, square));
    return eg_op_grad_pass(grad, 0, mul(three, grad->grad_out[0]));
}

static const eg_op cube_op = {.struct_size = sizeof(eg_op),
                              .name = "cube",
                              .infer = infer_same,
                              .forward = cube_forward,
                              .backward = cube_backward};

static eg_status count_op(void *payload, const eg_op_call *call)
{
    char *text = payload;
    strcat(text, call->op->name);
    strcat(text, " ");
    return strlen(text) > 40 ? eg_fail(EG_ECANCELED, "enough") : EG_OK;
}

static void test_composed_operations(void **state)
{
    eg_context *ctx = *state;
    char text[100] = "";
    eg__trace_sink sink = {.payload = text, .on_op = count_op};
    const eg__trace_sink *previous = &sink;
    assert_ok(eg__trace_set(ctx, &sink, &previous));
    assert_true(previous == NULL);
    eg_tensor *x = leaf(ctx, 2, 3);
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    assert_ok(eg_backward(sum(eg_apply(&cube_op, &x, 1, NULL))));
    assert_tensor(eg_tensor_grad(x), 1e-5, 12, 27);
    assert_string_equal(text, "cube sum ");
    memset(text, 'x', 40);
    text[40] = '\0';
    assert_refused(sum(x), EG_ECANCELED, "sum: enough");
    eg_tape_end(tape);
    assert_ok(eg__trace_set(ctx, NULL, &previous));
    assert_true(previous == &sink);
}

/* Backward that records for itself: what recomputing instead of saving is made of. */
static eg_status again_forward(eg_op_call *call)
{
    EG_TRY(eg_op_save(call, call->in[0]));
    return eg_tensor_assign(call->out[0], mul(call->in[0], call->in[0]));
}

static eg_status again_backward(eg_op_grad *grad)
{
    eg_tape *tape = eg_tape_begin(grad->ctx, EG_RECORD);
    eg_tensor *x = eg_detach(grad->saved[0]);
    eg_status status = eg_tensor_set_requires_grad(x, true);
    if (status == EG_OK)
        status = eg_backward_from(mul(x, x), grad->grad_out[0]);
    if (status == EG_OK)
        status = eg_op_grad_pass(grad, 0, eg_tensor_grad(x));
    eg_tape_end(tape);
    return status;
}

static const eg_op again_op = {.struct_size = sizeof(eg_op),
                               .name = "again",
                               .infer = infer_same,
                               .forward = again_forward,
                               .backward = again_backward};

static void test_recomputing_in_backward(void **state)
{
    eg_tensor *x = leaf(*state, 2, 3);
    eg_tape *tape = eg_tape_begin(*state, EG_RECORD);
    assert_ok(eg_backward(sum(eg_apply(&again_op, &x, 1, NULL))));
    assert_tensor(eg_tensor_grad(x), 0, 4, 6);
    eg_tape_end(tape);
}

static void test_optional_inputs_and_many_inputs(void **state)
{
    eg_op op = add_op;
    op.optional = 2;
    op.infer = infer_scalar;
    op.forward = sum_forward;
    op.backward = NULL;
    eg_tensor *in[20];
    for (size_t i = 0; i < 20; i++)
        in[i] = leaf(*state, 1, 2);
    in[1] = eg_none;
    eg_tape *tape = eg_tape_begin(*state, EG_RECORD);
    eg_tensor *y = eg_apply(&op, in, 20, NULL);
    assert_made(y);
    assert_false(eg_tensor_requires_grad(y)); /* no gradient flows through it */
    eg_tape_end(tape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_product, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gradients_accumulate_over_passes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fan_out, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gradient_has_the_leafs_memory_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_only_what_is_needed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_outputs_of_which_one_is_used, setup, teardown),
        cmocka_unit_test_setup_teardown(test_views_have_their_own_handle, setup, teardown),
        cmocka_unit_test_setup_teardown(test_backward_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_backward_without_a_record, setup, teardown),
        cmocka_unit_test_setup_teardown(test_changed_in_place, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nested_tapes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_results_are_no_leaves, setup, teardown),
        cmocka_unit_test_setup_teardown(test_intermediates_are_freed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_backward_lets_go_as_it_passes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_steady_state_needs_no_new_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_null_keeps_the_first_failure, setup, teardown),
        cmocka_unit_test_setup_teardown(test_messages_name_the_module, setup, teardown),
        cmocka_unit_test_setup_teardown(test_inputs_that_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shape_only, setup, teardown),
        cmocka_unit_test_setup_teardown(test_composed_operations, setup, teardown),
        cmocka_unit_test_setup_teardown(test_recomputing_in_backward, setup, teardown),
        cmocka_unit_test_setup_teardown(test_optional_inputs_and_many_inputs, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Shapes, memory orders, numbers in and out, views, tuples, none, scopes.
 */
#include "support.h"

#include "tensor/kernels.h"

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

/* 0, 1, 2, .. */
static eg_tensor *counting(eg_context *ctx, eg_shape shape)
{
    float numbers[256];
    size_t n = (size_t)eg_shape_numel(shape);
    assert_true(n <= 256);
    for (size_t i = 0; i < n; i++)
        numbers[i] = (float)i;
    eg_tensor *t = eg_from_data(ctx, shape, numbers);
    assert_made(t);
    return t;
}

/* ---- shapes ---- */

static void test_shapes(void **state)
{
    (void)state;
    char text[EG_SHAPE_TEXT_SIZE];
    assert_string_equal(eg_shape_format(EG_SHAPE(64, 3, 32, 32), text, sizeof text), "(64, 3, 32, 32)");
    assert_string_equal(eg_shape_format(EG_SCALAR, text, sizeof text), "()");
    assert_string_equal(eg_shape_format(EG_SHAPE(12345, 3), text, 5), "(123");
    int64_t longest = INT64_MIN;
    eg_shape_format(EG_SHAPE(longest, longest, longest, longest, longest, longest), text, sizeof text);
    assert_int_equal(text[strlen(text) - 1], ')');
    assert_true(eg_shape_equal(EG_SHAPE(2, 3), EG_SHAPE(2, 3)));
    assert_false(eg_shape_equal(EG_SHAPE(2, 3), EG_SHAPE(2, 3, 1)));
    assert_false(eg_shape_equal(EG_SHAPE(2, 3), EG_SHAPE(3, 2)));
    assert_int_equal(eg_shape_numel(EG_SHAPE(2, 3, 4)), 24);
    assert_int_equal(eg_shape_numel(EG_SCALAR), 1);
    assert_int_equal(eg_shape_numel(EG_SHAPE(2, 0)), 0);
    assert_int_equal(eg_shape_numel(EG_SHAPE(2, -1)), -1);
    assert_int_equal(eg_shape_numel(EG_SHAPE((int64_t)1 << 40, (int64_t)1 << 40)), -1);
    assert_int_equal(eg_shape_numel(EG_SHAPE(0, (int64_t)1 << 40, (int64_t)1 << 40)), -1);
    assert_int_equal(eg_shape_numel((eg_shape){.ndim = 7}), -1);
    assert_int_equal(eg_shape_numel((eg_shape){.ndim = -1}), -1);
    assert_string_equal(eg_dtype_name(EG_I64), "int64");
    assert_int_equal(eg_dtype_size(EG_F64), 8);
    assert_int_equal(eg_dtype_size((eg_dtype)9), 0);
    assert_int_equal(eg_hw_h(EG_HW(3, 5)) * 10 + eg_hw_w(EG_HW(3, 5)), 35);
    assert_int_equal(eg_hw_h(4) * 10 + eg_hw_w(4), 44);
}

static void test_sizes_in_one_integer(void **state)
{
    (void)state;
    static const int64_t numbers[] = {0, 1, 7, (1 << 30) - 1, 1 << 30, -1, -5, -(1 << 29)};
    for (size_t i = 0; i < EG_COUNT(numbers); i++) {
        assert_int_equal(eg_hw_h(numbers[i]), numbers[i]);
        assert_int_equal(eg_hw_w(numbers[i]), numbers[i]);
        for (size_t j = 0; j < EG_COUNT(numbers); j++) {
            eg_hw both = EG_HW(numbers[i], numbers[j]);
            assert_int_equal(eg_hw_h(both), numbers[i]);
            assert_int_equal(eg_hw_w(both), numbers[j]);
        }
    }
    /* what does not fit is cut, but not to a size */
    assert_true(eg_hw_h(EG_HW(INT64_MAX, 2)) >= 1 << 30 && eg_hw_w(EG_HW(INT64_MAX, 2)) == 2);
    assert_true(eg_hw_h(EG_HW(2, INT64_MIN)) == 2 && eg_hw_w(EG_HW(2, INT64_MIN)) < 0);
    assert_true(eg_hw_h((eg_hw)1 << 60) == (eg_hw)1 << 60 && eg_hw_w(INT64_MIN) == INT64_MIN);
}

static void test_impossible_tensors(void **state)
{
    eg_context *ctx = *state;
    assert_refused(eg_zeros(ctx, EG_SHAPE(2, -3)), EG_EINVAL, "shape (2, -3)");
    assert_refused(eg_zeros(ctx, EG_SHAPE((int64_t)1 << 62)), EG_EINVAL, "too large");
    assert_refused(eg_zeros(ctx, EG_SHAPE((int64_t)1 << 59)), EG_ENOMEM, "out of memory");
    assert_refused(eg_ones(ctx, (eg_shape){.ndim = 9}), EG_EINVAL, "0 to 6 dimensions");
    assert_refused(eg_empty(ctx, (eg_dtype)17, EG_SHAPE(2), EG_LAYOUT_DEFAULT), EG_EDTYPE, "17 is no data type");
    assert_refused(eg_zeros(NULL, EG_SHAPE(2)), EG_EINVAL, "context is NULL");
    assert_refused(eg_from_data(ctx, EG_SHAPE(2), NULL), EG_EINVAL, "data is NULL");
    assert_refused(eg_from_labels(ctx, SIZE_MAX, (const int64_t[]){0}), EG_EINVAL, "too many");
}

static void test_memory_orders(void **state)
{
    eg_tensor *t = counting(*state, EG_SHAPE(2, 3, 4, 5));
    const int64_t nhwc[] = {60, 1, 15, 3};
    assert_memory_equal(eg_tensor_strides(t), nhwc, sizeof nhwc);
    assert_true(eg__is_channels_last(t) && eg__is_dense(t) && !eg__is_row_major(t));
    const float *data = eg_tensor_data(t);
    for (int64_t n = 0; n < 2; n++)
        for (int64_t c = 0; c < 3; c++)
            for (int64_t h = 0; h < 4; h++)
                for (int64_t w = 0; w < 5; w++)
                    assert_true(data[n * 60 + c + h * 15 + w * 3] == (float)(((n * 3 + c) * 4 + h) * 5 + w));
    eg_tensor *r = eg_empty(*state, EG_F32, EG_SHAPE(2, 3, 4, 5), EG_LAYOUT_ROW_MAJOR);
    assert_ok(eg_tensor_assign(r, t));
    assert_true(eg__is_row_major(r) && !eg__is_channels_last(r) && !eg__same_strides(r, t));
    data = eg_tensor_data(r);
    for (int i = 0; i < 120; i++)
        assert_true(data[i] == (float)i);
    eg_tensor *both = counting(*state, EG_SHAPE(4, 3, 1, 1));
    assert_true(eg__is_row_major(both) && eg__is_channels_last(both));
    eg_tensor *three = counting(*state, EG_SHAPE(2, 3, 4));
    assert_true(eg__is_row_major(three) && !eg__is_channels_last(three));
}

static void test_read_and_write(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *t = eg_zeros(ctx, EG_SHAPE(1, 2, 2, 1));
    uint64_t version = t->storage->version;
    assert_ok(eg_tensor_write(t, (const float[]){1, 2, 3, 4}, 4));
    assert_true(t->storage->version > version);
    assert_tensor(t, 0, 1, 2, 3, 4);
    float out[4];
    assert_fails(eg_tensor_read(t, out, 3), EG_ESHAPE, "tensor of shape (1, 2, 2, 1) has 4 elements, not 3");
    assert_fails(eg_tensor_write(t, out, 5), EG_ESHAPE, "not 5");
    int64_t integers[4];
    assert_ok(eg_tensor_read_i64(t, integers, 4));
    assert_int_equal(integers[3], 4);
    eg_tensor *labels = eg_from_labels(ctx, 3, (const int64_t[]){7, 8, 9});
    assert_int_equal(eg_tensor_dtype(labels), EG_I64);
    assert_tensor(labels, 0, 7, 8, 9);
    assert_ok(eg_tensor_read_i64(labels, integers, 3));
    assert_int_equal(integers[2], 9);
    eg_tensor *wide = eg_empty(ctx, EG_F64, EG_SHAPE(1, 2, 2, 1), EG_LAYOUT_DEFAULT);
    assert_ok(eg_tensor_assign(wide, t));
    assert_tensor(wide, 0, 1, 2, 3, 4);
    assert_ok(eg_tensor_assign(t, wide));
    assert_fails(eg_tensor_assign(t, labels), EG_ESHAPE, "source has shape (3), destination (1, 2, 2, 1)");
    eg_tensor *nothing = eg_zeros(ctx, EG_SHAPE(0, 3));
    assert_made(nothing);
    assert_ok(eg_tensor_read(nothing, NULL, 0));
}

static void test_filled(void **state)
{
    eg_context *ctx = *state;
    assert_tensor(eg_zeros(ctx, EG_SHAPE(2)), 0, 0, 0);
    assert_tensor(eg_ones(ctx, EG_SHAPE(2)), 0, 1, 1);
    assert_tensor(eg_full(ctx, EG_SCALAR, 2.5), 0, 2.5);
    eg_context *other = eg_context_new(.seed = 1, .threads = 2, .backend = "ref");
    eg_tensor *a = eg_randn(ctx, EG_SHAPE(2, 3, 4, 5)), *b = eg_randn(other, EG_SHAPE(120));
    float numbers[120];
    assert_ok(eg_tensor_read(a, numbers, 120));
    assert_numbers(b, numbers, 120, 0); /* drawn in logical order */
    eg_tensor *u = eg_rand(ctx, EG_SHAPE(1000));
    const float *data = eg_tensor_data(u);
    double sum = 0;
    for (int i = 0; i < 1000; i++) {
        assert_true(data[i] >= 0 && data[i] < 1);
        sum += (double)data[i];
    }
    assert_close(sum / 1000, 0.5, 5 * sqrt(1.0 / 12 / 1000));
    eg_context_free(other);
}

static void test_looking(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *t = counting(ctx, EG_SHAPE(2, 3));
    assert_true(eg_tensor_context(t) == ctx);
    assert_int_equal(eg_tensor_ndim(t), 2);
    assert_int_equal(eg_tensor_size(t, 1), 3);
    assert_int_equal(eg_tensor_size(t, -2), 2);
    assert_int_equal(eg_tensor_numel(t), 6);
    assert_int_equal(eg_tensor_size(t, 2), -1);
    assert_recorded(EG_EINVAL, "dimension 2 is out of range");
    assert_int_equal(eg_tensor_size(t, -3), -1);
    assert_recorded(EG_EINVAL, "dimension -3");
    assert_close(eg_tensor_item(eg_full(ctx, EG_SHAPE(1, 1), -2)), -2, 0);
    assert_close(eg_tensor_item(eg_from_labels(ctx, 1, (const int64_t[]){5})), 5, 0);
    assert_true(isnan(eg_tensor_item(t)));
    assert_recorded(EG_ESHAPE, "tensor has shape (2, 3), expected one element");
    assert_true(isnan(eg_tensor_item(NULL)));
    assert_recorded(EG_EINVAL, "tensor is NULL");
    assert_int_equal(eg_tensor_shape(NULL).ndim, 0);
    assert_true(eg_tensor_data(NULL) == NULL && eg_tensor_grad(NULL) == NULL);
    eg_tensor_zero_grad(NULL);
    eg_tensor_touch(NULL);
}

static void test_shape_only(void **state)
{
    eg_tensor *t = eg_shape_only(*state, EG_SHAPE(1, 3, 2, 2));
    assert_true(eg_tensor_is_shape_only(t));
    assert_true(eg_tensor_data(t) == NULL);
    assert_int_equal(eg_tensor_numel(t), 12);
    assert_int_equal(eg_context_get_stats(*state).bytes_in_use, 0);
    float out[12];
    assert_fails(eg_tensor_read(t, out, 12), EG_EINVAL, "has a shape only");
    eg_tensor *copy = eg_tensor_copy(t), *detached = eg_detach(t);
    assert_true(eg_tensor_is_shape_only(copy) && eg_tensor_is_shape_only(detached));
}

static void test_none(void **state)
{
    eg_tensor *none = eg_none;
    assert_true(eg_is_none(none) && !eg_is_none(NULL) && !eg_is_none(eg_zeros(*state, EG_SCALAR)));
    assert_true(eg_tensor_keep(none) == none);
    eg_tensor_release(none);
    eg_tensor_touch(none);
    eg_tensor_zero_grad(none);
    eg__scope_drop(none);
    assert_true(eg__scope_add(none) == none);
    assert_true(eg_detach(none) == none && eg_tensor_copy(none) == none);
    assert_int_equal(eg_tuple_size(none), 0);
    assert_int_equal(eg_tensor_numel(none), 0);
    assert_fails(eg_tensor_set_requires_grad(none, true), EG_EINVAL, "none");
    assert_fails(eg_tensor_write(none, NULL, 0), EG_EINVAL, "none");
}

static void test_tuples(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *items[] = {counting(ctx, EG_SHAPE(2)), eg_none, counting(ctx, EG_SHAPE(3))};
    eg_tensor *tuple = eg_tuple(ctx, items, 3);
    assert_made(tuple);
    assert_int_equal(eg_tuple_size(tuple), 3);
    assert_true(eg_tuple_get(tuple, 2) == items[2] && eg_is_none(eg_tuple_get(tuple, 1)));
    assert_refused(eg_tuple_get(tuple, 3), EG_EINVAL, "item 3 is out of range for a tuple of 3");
    assert_true(eg_tuple_get(items[0], 0) == items[0]);
    assert_int_equal(eg_tuple_size(items[0]), 1);
    assert_int_equal(eg_tensor_ndim(tuple), 0);
    eg_tensor *detached = eg_detach(tuple);
    assert_true(eg_tuple_get(detached, 0) != items[0]);
    assert_true(eg_tensor_data(eg_tuple_get(detached, 0)) == eg_tensor_data(items[0]));
    assert_refused(eg_tensor_copy(tuple), EG_EINVAL, "tuple of 3");
    assert_refused(eg_tuple(ctx, &tuple, 1), EG_EINVAL, "item 0 is a tuple itself");
    assert_refused(eg_tuple(ctx, &(eg_tensor *){NULL}, 1), EG_EINVAL, "an item is NULL");
    assert_refused(eg_tuple(ctx, items, 1025), EG_EINVAL, "at most 1024");
    assert_int_equal(eg_tuple_size(eg_tuple(ctx, NULL, 0)), 0);
    assert_refused(eg_tuple(ctx, NULL, 1), EG_EINVAL, "the list of items is NULL");
    assert_refused(eg_shape_format(EG_SHAPE(2), NULL, 8), EG_EINVAL, "text is NULL");
}

/* ---- views and copies ---- */

static void test_views(void **state)
{
    eg_tensor *t = counting(*state, EG_SHAPE(3, 4));
    const int64_t transposed[EG_MAX_DIMS] = {1, 4};
    eg_tensor *v = eg__scope_add(eg__tensor_new_view(t, EG_SHAPE(2, 3), transposed, 1)); /* columns 1 and 2 */
    assert_made(v);
    assert_tensor(v, 0, 1, 5, 9, 2, 6, 10);
    assert_false(eg__is_dense(v));
    assert_ok(eg_tensor_write(v, (const float[]){-1, -2, -3, -4, -5, -6}, 6));
    assert_tensor(t, 0, 0, -1, -4, 3, 4, -2, -5, 7, 8, -3, -6, 11);
    assert_int_equal(t->storage->version, v->storage->version);
    assert_false(eg__is_exclusive(t));
    eg_tensor *copy = eg_tensor_copy(v);
    assert_true(eg__is_dense(copy));
    assert_tensor(copy, 0, -1, -2, -3, -4, -5, -6);
    assert_refused(eg__tensor_new_view(t, EG_SHAPE(3, 4), (const int64_t[]){4, 1}, 1), EG_EINTERNAL, "outside");
    assert_refused(eg__tensor_new_view(t, EG_SHAPE(4, 4), (const int64_t[]){4, 1}, 0), EG_EINTERNAL, "outside");
    assert_refused(eg__tensor_new_view(t, EG_SHAPE(2), (const int64_t[]){INT64_MAX}, 1), EG_EINTERNAL, "outside");
    const int64_t none[EG_MAX_DIMS] = {0, 1};
    eg_tensor *expanded = eg__scope_add(eg__tensor_new_view(t, EG_SHAPE(2, 3), none, 0));
    assert_tensor(expanded, 0, 0, -1, -4, 0, -1, -4);
    assert_false(eg__is_dense(expanded));
}

static void test_copies_keep_the_memory_order(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *t = counting(ctx, EG_SHAPE(2, 3, 2, 2));
    assert_true(eg__is_channels_last(eg_tensor_copy(t)));
    eg_tensor *r = eg_empty(ctx, EG_F32, EG_SHAPE(2, 3, 2, 2), EG_LAYOUT_ROW_MAJOR);
    assert_true(eg__is_row_major(eg_tensor_copy(r)));
    eg_tensor *matrix = counting(ctx, EG_SHAPE(3, 4));
    const int64_t strides[EG_MAX_DIMS] = {1, 4};
    eg_tensor *transposed = eg__scope_add(eg__tensor_new_view(matrix, EG_SHAPE(4, 3), strides, 0));
    eg_tensor *copy = eg_tensor_copy(transposed);
    assert_true(eg__same_strides(copy, transposed));
    assert_tensor(copy, 0, 0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11);
    const int64_t zero[EG_MAX_DIMS] = {0};
    eg_tensor *expanded = eg__scope_add(eg__tensor_new_view(matrix, EG_SHAPE(2, 3, 2, 2), zero, 0));
    assert_true(eg__is_channels_last(eg_tensor_copy(expanded)));
    eg_tensor *detached = eg_detach(t);
    assert_true(detached != t && eg_tensor_data(detached) == eg_tensor_data(t));
}

static void test_print(void **state)
{
    char text[4096] = "";
    FILE *out = fmemopen(text, sizeof text, "w");
    assert_ok(eg_tensor_print(counting(*state, EG_SHAPE(2, 2)), out));
    assert_ok(eg_tensor_print(eg_full(*state, EG_SCALAR, 0.25), out));
    assert_ok(eg_tensor_print(eg_shape_only(*state, EG_SHAPE(3)), out));
    assert_ok(eg_tensor_print(eg_zeros(*state, EG_SHAPE(2000)), out));
    assert_ok(eg_tensor_print(eg_tuple(*state, (eg_tensor *[]){eg_none}, 1), out));
    assert_ok(eg_tensor_print(eg_zeros(*state, EG_SHAPE((int64_t)1 << 50, 0)), out)); /* and not 2^50 brackets */
    fclose(out);
    assert_string_equal(text, "float32 (2, 2)\n[[0, 1],\n [2, 3]]\nfloat32 ()\n0.25\nfloat32 (3) (shape only)\n"
                              "float32 (2000)\n2000 numbers\ntuple of 1\nnone\n"
                              "float32 (1125899906842624, 0)\n");
    assert_fails(eg_tensor_print(eg_ones(*state, EG_SCALAR), NULL), EG_EINVAL, "file is NULL");
    assert_fails(eg_tensor_print(NULL, stdout), EG_EINVAL, "tensor is NULL");
}

/* ---- owning ---- */

static size_t in_use(eg_context *ctx)
{
    return eg_context_get_stats(ctx).bytes_in_use;
}

static void test_scopes(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *outside = eg_zeros(ctx, EG_SHAPE(16));
    size_t outer = eg__scope_enter(ctx);
    eg_tensor *input = eg_zeros(ctx, EG_SHAPE(16));
    size_t inner = eg__scope_enter(ctx);
    eg_tensor *kept = eg_tensor_keep(eg_zeros(ctx, EG_SHAPE(16)));
    eg_zeros(ctx, EG_SHAPE(16));
    eg_tensor *result = eg_zeros(ctx, EG_SHAPE(16));
    assert_int_equal(in_use(ctx), 5 * 64);
    eg__scope_leave(ctx, inner, result);
    assert_int_equal(in_use(ctx), 4 * 64);
    inner = eg__scope_enter(ctx);
    eg__scope_leave(ctx, inner, input); /* a module that returns its input: nothing moves */
    eg__scope_enter(ctx);
    eg_zeros(ctx, EG_SHAPE(16)); /* left open: ended by the outer one */
    eg__scope_leave(ctx, outer, NULL);
    assert_int_equal(in_use(ctx), 2 * 64);
    assert_tensor(outside, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    eg_tensor_release(kept);
    assert_int_equal(in_use(ctx), 64);
    eg__scope_leave(ctx, SIZE_MAX, NULL);
}

static void test_a_tuple_keeps_its_items(void **state)
{
    eg_context *ctx = *state;
    size_t outer = eg__scope_enter(ctx), inner = eg__scope_enter(ctx);
    eg_tensor *items[] = {counting(ctx, EG_SHAPE(2)), counting(ctx, EG_SHAPE(3))};
    counting(ctx, EG_SHAPE(4));
    eg_tensor *tuple = eg_tuple(ctx, items, 2);
    eg__scope_leave(ctx, inner, tuple);
    assert_int_equal(in_use(ctx), 2 * 64);
    assert_tensor(eg_tuple_get(tuple, 1), 0, 0, 1, 2);
    eg__scope_leave(ctx, outer, NULL);
    assert_int_equal(in_use(ctx), 0);
}

static void test_dropping_early(void **state)
{
    eg_context *ctx = *state;
    size_t outer = eg__scope_enter(ctx);
    eg_tensor *input = counting(ctx, EG_SHAPE(2));
    size_t inner = eg__scope_enter(ctx);
    eg_tensor *a = counting(ctx, EG_SHAPE(2)), *b = counting(ctx, EG_SHAPE(2));
    eg__scope_drop(input); /* belongs to the outer scope: stays */
    eg__scope_drop(a);
    assert_int_equal(in_use(ctx), 2 * 64);
    eg_tensor_keep(b);
    eg__scope_drop(b);
    eg__scope_drop(b); /* the scope holds it no more */
    assert_tensor(b, 0, 0, 1);
    eg_tensor_release(b);
    eg__scope_leave(ctx, inner, NULL);
    assert_tensor(input, 0, 0, 1);
    eg__scope_leave(ctx, outer, NULL);
    assert_int_equal(in_use(ctx), 0);
}

static void test_storage_lives_with_its_last_view(void **state)
{
    eg_context *ctx = *state;
    size_t scope = eg__scope_enter(ctx);
    eg_tensor *v = eg_tensor_keep(eg_detach(counting(ctx, EG_SHAPE(2))));
    uint64_t id = v->storage->id;
    eg__scope_leave(ctx, scope, NULL);
    assert_true(eg__is_exclusive(v));
    assert_tensor(v, 0, 0, 1);
    assert_true(counting(ctx, EG_SHAPE(2))->storage->id != id);
    eg_tensor_release(v);
    assert_int_equal(in_use(ctx), 64);
}

static void test_which_kernels(void **state)
{
    assert_true(eg__kernels(*state, EG_F32) == &eg__ref_kernels);
    eg_context *ctx = eg_context_new(.threads = 1);
    assert_true(eg__kernels(ctx, EG_F32) == &eg__dnnl_kernels);
    assert_true(eg__kernels(ctx, EG_F64) == &eg__ref_kernels);
    assert_true(eg__kernels(ctx, EG_I64) == &eg__ref_kernels);
    eg_context_free(ctx);
    assert_true(eg__kernels_find("ref") == &eg__ref_kernels);
    assert_true(eg__kernels_find("cuda") == NULL);
    assert_true(eg__unary_saves_output(EG__RELU) && eg__unary_saves_output(EG__TANH));
    assert_false(eg__unary_saves_output(EG__GELU));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_shapes, setup, teardown),
        cmocka_unit_test(test_sizes_in_one_integer),
        cmocka_unit_test_setup_teardown(test_impossible_tensors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_orders, setup, teardown),
        cmocka_unit_test_setup_teardown(test_read_and_write, setup, teardown),
        cmocka_unit_test_setup_teardown(test_filled, setup, teardown),
        cmocka_unit_test_setup_teardown(test_looking, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shape_only, setup, teardown),
        cmocka_unit_test_setup_teardown(test_none, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tuples, setup, teardown),
        cmocka_unit_test_setup_teardown(test_views, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copies_keep_the_memory_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_print, setup, teardown),
        cmocka_unit_test_setup_teardown(test_scopes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_tuple_keeps_its_items, setup, teardown),
        cmocka_unit_test_setup_teardown(test_dropping_early, setup, teardown),
        cmocka_unit_test_setup_teardown(test_storage_lives_with_its_last_view, setup, teardown),
        cmocka_unit_test_setup_teardown(test_which_kernels, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

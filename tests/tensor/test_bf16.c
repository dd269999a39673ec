/*
 * bfloat16: rounding, copies between types and memory orders, and where it is allowed. Nothing here needs a processor
 * that has it.
 */
#include "support.h"

#include "base/internal.h"
#include "engraft/ops.h"
#include "tensor/kernels.h"

#include <string.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* All 65536 of them: a number comes back, NaN stays NaN. */
static void test_all_values(void **state)
{
    (void)state;
    for (uint32_t i = 0; i <= UINT16_MAX; i++) {
        float wide = eg__bf16_to_f32((uint16_t)i);
        assert_int_equal(bits_of(wide), i << 16);
        uint16_t back = eg__bf16_of(wide);
        if (isnan(wide))
            assert_true(isnan(eg__bf16_to_f32(back)) && (back & 0x8000) == (i & 0x8000));
        else
            assert_int_equal(back, i);
    }
}

static void test_rounding(void **state)
{
    (void)state;
    static const uint32_t rows[][2] = {
        {0x3f800000, 0x3f80},                       /* 1 */
        {0x3f808000, 0x3f80},                       /* in the middle: to the even one, here down */
        {0x3f818000, 0x3f82},                       /* and up */
        {0x3f808001, 0x3f81},                       /* a little more than the middle */
        {0x3f807fff, 0x3f80},                       /* a little less */
        {0xbf808001, 0xbf81},                       /* the same for negative numbers */
        {0x7f7fffff, 0x7f80},                       /* the largest float32 is nearest to infinity */
        {0xff7fffff, 0xff80}, {0x7f800000, 0x7f80}, /* infinity */
        {0x7f800001, 0x7fc0},                       /* NaN whose upper half is infinity's */
        {0xffc12345, 0xffc1},                       /* another NaN */
        {0x80000000, 0x8000},                       /* -0 */
        {0x00000001, 0x0000},                       /* the smallest denormal */
        {0x00018000, 0x0002},                       /* denormals round as well */
        {0x007fffff, 0x0080},                       /* up to the smallest normal number */
    };
    for (size_t i = 0; i < EG_COUNT(rows); i++)
        assert_int_equal(eg__bf16_of(float_of(rows[i][0])), rows[i][1]);
}

/* The loops of copies do the same, whatever the memory orders; in long runs, where they are vector code, and short. */
static void test_copies(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 1, .threads = 2);
    static const eg_shape shapes[] = {{.dims = {2, 3, 4, 5}, .ndim = 4}, {.dims = {3, 37, 31, 33}, .ndim = 4},
                                      {.dims = {70001}, .ndim = 1},      {.dims = {1, 1, 5}, .ndim = 3},
                                      {.dims = {0, 4}, .ndim = 2},       {.ndim = 0}};
    for (size_t s = 0; s < EG_COUNT(shapes); s++)
        for (int layouts = 0; layouts < 4; layouts++) {
            size_t n = (size_t)eg_shape_numel(shapes[s]);
            float *numbers = calloc(n + 1, sizeof *numbers), *got = calloc(n + 1, sizeof *got);
            for (size_t i = 0; i < n; i++)
                numbers[i] = (float)eg_rng_normal(eg_context_rng(ctx));
            eg_tensor *wide = eg_empty(ctx, EG_F32, shapes[s], layouts & 1 ? EG_LAYOUT_ROW_MAJOR : EG_LAYOUT_DEFAULT);
            eg_tensor *narrow =
                eg_empty(ctx, EG_BF16, shapes[s], layouts & 2 ? EG_LAYOUT_ROW_MAJOR : EG_LAYOUT_DEFAULT);
            eg_tensor *other = eg_empty(ctx, EG_BF16, shapes[s], EG_LAYOUT_DEFAULT),
                      *back = eg_empty(ctx, EG_F64, shapes[s], EG_LAYOUT_DEFAULT);
            assert_true(wide && narrow && other && back);
            assert_ok(eg_tensor_write(wide, numbers, n));
            assert_ok(eg_tensor_assign(narrow, wide));
            assert_ok(eg_tensor_assign(other, narrow));
            assert_ok(eg_tensor_assign(back, other));
            assert_ok(eg_tensor_read(back, got, n));
            for (size_t i = 0; i < n; i++)
                assert_int_equal(bits_of(got[i]), (uint32_t)eg__bf16_of(numbers[i]) << 16);
            assert_ok(eg__bf16_copy(wide, wide, true)); /* rounded where it is */
            assert_ok(eg_tensor_read(wide, numbers, n));
            assert_memory_equal(numbers, got, n * sizeof *got);
            free(numbers);
            free(got);
        }
    eg_context_free(ctx);
}

static void test_tensors(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 1, .threads = 1);
    assert_string_equal(eg_dtype_name(EG_BF16), "bfloat16");
    assert_int_equal(eg_dtype_size(EG_BF16), 2);
    eg_tensor *t = eg_empty(ctx, EG_BF16, EG_SHAPE(2, 2), EG_LAYOUT_DEFAULT);
    assert_ok(eg_tensor_write(t, (const float[]){1, 2.0078125F, -3, 1.0F / 3}, 4));
    assert_tensor(t, 0, 1, 2, -3, 0.333984375F);
    eg_tensor *column = eg_slice(t, 1, 1, 2, 1);
    assert_tensor(column, 0, 2, 0.333984375F);
    assert_close(eg_tensor_item(eg_slice(column, 0, 1, 2, 1)), 0.333984375, 0);
    assert_tensor(eg_cast(column, EG_F32), 0, 2, 0.333984375F);
    assert_ptr_equal(eg_cast(t, EG_BF16), t);
    assert_refused(eg_cast(t, EG_I64), EG_EDTYPE, "type is int64, expected float32, float64 or bfloat16");
    assert_refused(eg_cast(eg_from_labels(ctx, 1, &(int64_t){1}), EG_BF16), EG_EDTYPE, "input has type int64");
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    assert_ok(eg_tensor_print(t, file));
    fclose(file);
    assert_string_equal(text, "bfloat16 (2, 2)\n[[1, 2],\n [-3, 0.333984]]\n");
    free(text);
    assert_ok(eg_tensor_set_requires_grad(t, true));
    eg_context_free(ctx);
}

/* ---- precision ---- */

static void test_precision(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 1);
    assert_int_equal(eg_context_precision(ctx), EG_F32);
    assert_int_equal(eg_context_precision(NULL), EG_F32);
    assert_fails(eg_context_set_precision(ctx, EG_BF16), EG_EUNSUPPORTED,
                 "bf16 needs a processor with AVX512-BF16 or AMX; this one has AVX2");
    assert_fails(eg_context_set_precision(ctx, EG_F64), EG_EINVAL, "precision is float64");
    assert_fails(eg_context_set_precision(NULL, EG_F32), EG_EINVAL, "context is NULL");
    assert_int_equal(eg_context_precision(ctx), EG_F32);
    eg_context_free(ctx);

    setenv("EG_BF16", "emulate", 1);
    ctx = eg_context_new(.seed = 1);
    unsetenv("EG_BF16");
    assert_ok(eg_context_set_precision(ctx, EG_BF16));
    assert_int_equal(eg_context_precision(ctx), EG_BF16);
    assert_ok(eg_context_set_precision(ctx, EG_F32));
    assert_int_equal(eg_context_precision(ctx), EG_F32);
    eg_context_free(ctx);
}

/* Where there is no bfloat16, the tables are those that they always were; where there is, they take both. */
static void test_tables(void **state)
{
    (void)state;
    for (int ref = 0; ref < 2; ref++) {
        eg_context *ctx = eg_context_new(.seed = 1, .backend = ref ? "ref" : "dnnl");
        const eg_kernels *plain = ref ? &eg__ref_kernels : &eg__dnnl_kernels;
        assert_made(eg_zeros(ctx, EG_SHAPE(2)));
        assert_ptr_equal(eg__kernels(ctx, EG_F32), plain);
        assert_made(eg_empty(ctx, EG_BF16, EG_SHAPE(2), EG_LAYOUT_DEFAULT));
        assert_ptr_equal(eg__kernels(ctx, EG_F32), &eg__mixed_kernels);
        assert_ptr_equal(eg__kernels(ctx, EG_BF16), &eg__mixed_kernels);
        assert_ptr_equal(eg__kernels(ctx, EG_F64), &eg__ref_kernels);
        eg_context_free(ctx);
    }
    const void *const *entries = (const void *const *)(const void *)&eg__mixed_kernels;
    for (size_t i = 0; i < sizeof(eg_kernels) / sizeof *entries; i++)
        assert_non_null(entries[i]); /* none was forgotten */
}

/* A list longer than the operands for which no memory is taken, with gaps, and types mixed. */
static void test_lists(void **state)
{
    (void)state;
    enum { N = 30 };
    eg_context *ctx = eg_context_new(.seed = 1, .threads = 1);
    eg_tensor *x[N], *dx[N], *w = eg_randn(ctx, EG_SHAPE(N)), *y = eg_empty(ctx, EG_BF16, EG_SHAPE(5), 0),
                             *dw = eg_empty(ctx, EG_F32, EG_SHAPE(N), 0);
    double sum[5] = {0}, factor[N];
    float numbers[5];
    for (int i = 0; i < N; i++) {
        x[i] = eg_cast(eg_randn(ctx, EG_SHAPE(5)), i % 3 ? EG_BF16 : EG_F32);
        dx[i] = i % 4 ? eg_empty(ctx, i % 3 ? EG_BF16 : EG_F32, EG_SHAPE(5), 0) : NULL;
        factor[i] = (double)((float *)eg_tensor_data(w))[i];
        assert_ok(eg_tensor_read(x[i], numbers, 5));
        for (int k = 0; k < 5; k++)
            sum[k] += factor[i] * (double)numbers[k];
    }
    const eg_kernels *k = eg__kernels(ctx, EG_BF16);
    assert_ok(k->weighted_sum(N, (const eg_tensor *const *)x, w, y));
    assert_ok(eg_tensor_read(y, numbers, 5));
    for (int i = 0; i < 5; i++)
        assert_close((double)numbers[i], sum[i], fabs(sum[i]) / 256 + 1e-5);
    assert_ok(k->weighted_sum_backward(N, (const eg_tensor *const *)x, w, y, dx, dw));
    for (int i = 0; i < N; i++) {
        float of_y[5], got[5], of_w;
        double product = 0;
        assert_ok(eg_tensor_read(y, of_y, 5));
        assert_ok(eg_tensor_read(x[i], numbers, 5));
        for (int j = 0; j < 5; j++)
            product += (double)numbers[j] * (double)of_y[j];
        of_w = ((float *)eg_tensor_data(dw))[i];
        assert_close((double)of_w, product, 1e-4);
        if (dx[i] == NULL)
            continue;
        assert_ok(eg_tensor_read(dx[i], got, 5));
        for (int j = 0; j < 5; j++)
            assert_close((double)got[j], factor[i] * (double)of_y[j], fabs(factor[i] * (double)of_y[j]) / 256);
    }
    double squares;
    assert_ok(k->norm2(N, x, &squares));
    assert_true(squares > 50 && squares < 400);
    assert_ok(k->scale(N, x, 2));
    double larger;
    assert_ok(k->norm2(N, x, &larger));
    assert_close(larger, 4 * squares, 1e-4 * squares);
    eg_context_free(ctx);
}

int main(void)
{
    setenv("DNNL_MAX_CPU_ISA", "AVX2", 1); /* wherever this runs, it is a processor without */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_values), cmocka_unit_test(test_rounding),  cmocka_unit_test(test_copies),
        cmocka_unit_test(test_tensors),    cmocka_unit_test(test_precision), cmocka_unit_test(test_tables),
        cmocka_unit_test(test_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

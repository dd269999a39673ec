/*
 * tests/tensor/test_conv_rows.c - our own dense convolutions against the reference, over odd shapes, also those that
 * the fast table leaves to oneDNN; the same bits on any number of threads.
 */
#include "support.h"

#include "tensor/cpu/cpu.h"

enum { CONTEXTS = 3 }; /* of 1, 2 and 3 threads */

typedef struct fixture {
    eg_context *ctx[CONTEXTS];
    eg_rng rng;
} fixture;

static int open_fixture(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (!f)
        return -1;
    *state = f;
    f->rng = eg_rng_make(11, "conv_rows", 0);
    bool made = true;
    for (int i = 0; i < CONTEXTS; i++)
        made = (f->ctx[i] = eg_context_new(.seed = 1, .threads = i + 1)) != NULL && made;
    return made ? 0 : -1;
}

static int close_fixture(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < CONTEXTS; i++)
        eg_context_free(f->ctx[i]);
    free(f);
    return 0;
}

#define PICK(f, ...) pick(f, (const int64_t[]){__VA_ARGS__}, EG_COUNT(((const int64_t[]){__VA_ARGS__})))
static int64_t pick(fixture *f, const int64_t *from, size_t n)
{
    return from[eg_rng_below(&f->rng, n)];
}

typedef struct conv_case {
    eg__window win;
    eg_shape x, w, y;
} conv_case;

/* Any of them that has an output, at least 1 wide and high. */
static conv_case random_case(fixture *f)
{
    for (;;) {
        conv_case c = {.win = {.groups = 1}};
        c.x = EG_SHAPE(PICK(f, 1, 2), PICK(f, 1, 3, 7, 8, 16, 17, 24, 40, 64), PICK(f, 1, 2, 5, 8, 11),
                       PICK(f, 1, 2, 3, 7, 12, 13, 20));
        c.w = EG_SHAPE(PICK(f, 1, 3, 7, 8, 16, 17, 24, 40, 64), c.x.dims[1], PICK(f, 1, 2, 3, 5, 7),
                       PICK(f, 1, 2, 3, 5, 7));
        c.y = EG_SHAPE(c.x.dims[0], c.w.dims[0], 0, 0);
        bool exists = true;
        for (int i = 0; i < 2; i++) {
            c.win.kernel[i] = c.w.dims[2 + i];
            c.win.stride[i] = PICK(f, 1, 1, 2, 3);
            c.win.dilation[i] = PICK(f, 1, 1, 2);
            c.win.padding[i] = PICK(f, 0, 1, 2, 9);
            int64_t room = c.x.dims[2 + i] + 2 * c.win.padding[i] - (c.win.kernel[i] - 1) * c.win.dilation[i] - 1;
            c.y.dims[2 + i] = room / c.win.stride[i] + 1;
            exists = exists && room >= 0;
        }
        if (exists)
            return c;
    }
}

/* Small multiples of 1/8, of which all sums are exact in any order. */
static eg_tensor *filled(eg_context *ctx, eg_shape shape, eg_layout layout, uint64_t seed)
{
    eg_tensor *t = eg_empty(ctx, EG_F32, shape, layout);
    assert_made(t);
    eg_rng rng = eg_rng_make(seed, "fill", 0);
    size_t n = (size_t)eg_tensor_numel(t);
    float *numbers = malloc((n + 1) * sizeof *numbers);
    assert_non_null(numbers);
    for (size_t i = 0; i < n; i++)
        numbers[i] = ((float)eg_rng_below(&rng, 25) - 12.0f) / 8.0f;
    assert_ok(eg_tensor_write(t, numbers, n));
    free(numbers);
    return t;
}

static void expect_same(const eg_tensor *a, const eg_tensor *b)
{
    size_t n = (size_t)eg_tensor_numel(a), at = 0;
    float *x = malloc((n + 1) * sizeof *x), *y = malloc((n + 1) * sizeof *y);
    assert_true(x && y);
    assert_ok(eg_tensor_read(a, x, n));
    assert_ok(eg_tensor_read(b, y, n));
    while (at < n && x[at] == y[at])
        at++;
    if (at < n) {
        char shape[EG_SHAPE_TEXT_SIZE];
        fail_msg("%s: element %zu is %.9g, expected %.9g", eg_shape_format(a->shape, shape, sizeof shape), at,
                 (double)x[at], (double)y[at]);
    }
    free(x);
    free(y);
}

static void run(const eg__window *win, const eg_tensor *x, const eg_tensor *w, bool turned, const eg_tensor *b,
                eg_tensor *y, bool add)
{
    float *packed = malloc((size_t)eg__cpu_conv_rows_packed(w, turned) * sizeof *packed);
    assert_non_null(packed);
    eg__cpu_conv_rows_pack(w, turned, packed);
    assert_ok(eg__cpu_conv_rows(win, x, packed, b, y, add));
    free(packed);
}

static void forward_agrees(void **state)
{
    fixture *f = *state;
    for (uint64_t i = 0; i < 300; i++) {
        conv_case c = random_case(f);
        bool bias = PICK(f, 0, 1) != 0;
        for (int k = 0; k < CONTEXTS; k++) {
            size_t mark = eg__scope_enter(f->ctx[k]);
            eg_tensor *x = filled(f->ctx[k], c.x, EG_LAYOUT_DEFAULT, 3 * i);
            eg_tensor *w = filled(f->ctx[k], c.w, EG_LAYOUT_ROW_MAJOR, 3 * i + 1);
            eg_tensor *b = bias ? filled(f->ctx[k], EG_SHAPE(c.w.dims[0]), EG_LAYOUT_DEFAULT, 3 * i + 2) : NULL;
            eg_tensor *y = eg_full(f->ctx[k], c.y, NAN), *expected = eg_full(f->ctx[k], c.y, NAN);
            run(&c.win, x, w, false, b, y, false);
            assert_ok(eg__ref_kernels.conv2d(&c.win, x, w, b, expected));
            expect_same(y, expected);
            assert_ok(eg__ref_kernels.fill(y, NAN));
            assert_ok(eg__dnnl_kernels.conv2d(&c.win, x, w, b, y));
            expect_same(y, expected);
            eg__scope_leave(f->ctx[k], mark, NULL);
        }
    }
}

/* The gradient of the input, with stride 1, by the same kernel. */
static void turned_agrees(void **state)
{
    fixture *f = *state;
    int ran = 0;
    for (uint64_t i = 0; i < 300; i++) {
        conv_case c = random_case(f);
        bool add = PICK(f, 0, 1) != 0;
        eg__window turned = c.win;
        bool can = true;
        for (int d = 0; d < 2; d++) {
            c.win.stride[d] = turned.stride[d] = 1;
            int64_t extent = c.win.dilation[d] * (c.win.kernel[d] - 1);
            c.y.dims[2 + d] = c.x.dims[2 + d] + 2 * c.win.padding[d] - extent;
            turned.padding[d] = extent - c.win.padding[d];
            can = can && turned.padding[d] >= 0;
        }
        ran += can;
        for (int k = 0; can && k < CONTEXTS; k++) {
            size_t mark = eg__scope_enter(f->ctx[k]);
            eg_tensor *dy = filled(f->ctx[k], c.y, EG_LAYOUT_DEFAULT, 2 * i);
            eg_tensor *w = filled(f->ctx[k], c.w, EG_LAYOUT_ROW_MAJOR, 2 * i + 1);
            eg_tensor *dx = eg_full(f->ctx[k], c.x, add ? 0.25 : NAN), *expected = eg_full(f->ctx[k], c.x, 0.25);
            run(&turned, dy, w, true, NULL, dx, add);
            assert_ok(eg__ref_kernels.conv2d_backward_input(&c.win, w, dy, expected, add));
            expect_same(dx, expected);
            assert_ok(eg__ref_kernels.fill(dx, 0.25));
            assert_ok(eg__dnnl_kernels.conv2d_backward_input(&c.win, w, dy, dx, add));
            expect_same(dx, expected);
            eg__scope_leave(f->ctx[k], mark, NULL);
        }
    }
    assert_true(ran > 50);
}

/* With numbers whose sums are rounded, which show the order of additions. */
static void threads_do_not_matter(void **state)
{
    fixture *f = *state;
    const int64_t shapes[][5] = {{2, 16, 16, 9, 20}, {1, 40, 24, 11, 13}, {1, 64, 17, 5, 30}, {3, 8, 64, 4, 7}};
    for (size_t i = 0; i < EG_COUNT(shapes); i++) {
        const int64_t *s = shapes[i];
        eg__window win = {{3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, false};
        eg_tensor *first = NULL;
        for (int k = 0; k < CONTEXTS; k++) {
            eg_tensor *x = eg_empty(f->ctx[k], EG_F32, EG_SHAPE(s[0], s[1], s[3], s[4]), EG_LAYOUT_DEFAULT);
            eg_tensor *w = eg_empty(f->ctx[k], EG_F32, EG_SHAPE(s[2], s[1], 3, 3), EG_LAYOUT_ROW_MAJOR);
            eg_tensor *y = eg_full(f->ctx[k], EG_SHAPE(s[0], s[2], s[3], s[4]), NAN);
            eg_tensor *const inputs[] = {x, w};
            for (int t = 0; t < 2; t++) {
                eg_rng rng = eg_rng_make(i, "round", (uint64_t)t);
                float *numbers = eg__f32(inputs[t]);
                for (int64_t j = 0; j < eg_tensor_numel(inputs[t]); j++)
                    numbers[j] = (float)(eg_rng_uniform(&rng) - 0.5);
            }
            run(&win, x, w, false, NULL, y, false);
            if (!first)
                first = y;
            expect_same(y, first);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(forward_agrees, open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(turned_agrees, open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(threads_do_not_matter, open_fixture, close_fixture),
    };
    return cmocka_run_group_tests_name("conv_rows", tests, NULL, NULL);
}

/*
 * Layers of sequences, of images in other sizes, and normalizations of single samples: what PyTorch 1.13 prints and
 * names, ranges, clones, and that each computes the operation it is named after.
 */
#include "support.h"

#include "engraft/layers.h"

#include <string.h>

static eg_context *ctx;

static int setup(void **state)
{
    (void)state;
    eg_error_clear();
    ctx = eg_context_new(.seed = 1, .threads = 1);
    return ctx == NULL;
}

static int teardown(void **state)
{
    (void)state;
    eg_context_free(ctx);
    return 0;
}

/* ---- text and names ---- */

static void names_of(eg_module *m, char names[100])
{
    eg_state *state = eg_state_new();
    assert_int_equal(eg_module_state(m, NULL, state), EG_OK);
    names[0] = '\0';
    for (size_t i = 0; i < eg_state_size(state); i++) {
        const char *name;
        eg_state_at(state, i, &name);
        strcat(strcat(names, i == 0 ? "" : " "), name);
    }
    eg_state_free(state);
}

static void test_as_pytorch_prints(void **state)
{
    (void)state;
    const struct {
        eg_module *m;
        const char *text, *names;
    } rows[] = {
        {eg_conv1d(ctx, 4, 6, 3, .padding = 1, .dilation = 2, .groups = 2, .no_bias = true),
         "Conv1d(4, 6, kernel_size=(3,), stride=(1,), padding=(1,), dilation=(2,), groups=2, bias=False)", "weight"},
        {eg_conv1d(ctx, 1, 2, 1, .stride = 3), "Conv1d(1, 2, kernel_size=(1,), stride=(3,))", "weight bias"},
        {eg_conv_transpose2d(ctx, 4, 6, 3, .stride = 2, .padding = 1, .output_padding = 1, .dilation = 2, .groups = 2,
                             .no_bias = true),
         "ConvTranspose2d(4, 6, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), dilation=(2, 2), "
         "output_padding=(1, 1), groups=2, bias=False)",
         "weight"},
        {eg_group_norm(ctx, 2, 6), "GroupNorm(2, 6, eps=1e-05, affine=True)", "weight bias"},
        {eg_layer_norm(ctx, EG_SHAPE(3, 4)), "LayerNorm((3, 4), eps=1e-05, elementwise_affine=True)", "weight bias"},
        {eg_layer_norm(ctx, EG_SHAPE(5), .eps = 1e-6, .no_affine = true),
         "LayerNorm((5,), eps=1e-06, elementwise_affine=False)", ""},
        {eg_instance_norm2d(ctx, 6),
         "InstanceNorm2d(6, eps=1e-05, momentum=0.1, affine=False, track_running_stats=False)", ""},
        {eg_instance_norm2d(ctx, 6, .affine = true),
         "InstanceNorm2d(6, eps=1e-05, momentum=0.1, affine=True, track_running_stats=False)", "weight bias"},
        {eg_upsample(ctx, .scale_factor = 2), "Upsample(scale_factor=2.0, mode=nearest)", ""},
        {eg_upsample(ctx, .size = EG_HW(3, 4), .mode = EG_BILINEAR, .align_corners = true),
         "Upsample(size=(3, 4), mode=bilinear)", ""},
        {eg_upsample(ctx, .size = 3), "Upsample(size=3, mode=nearest)", ""},
        {eg_pixel_shuffle(ctx, 2), "PixelShuffle(upscale_factor=2)", ""},
        {eg_pixel_unshuffle(ctx, 3), "PixelUnshuffle(downscale_factor=3)", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        eg_module *copy = eg_module_clone(rows[i].m);
        char *text = eg_module_text(copy), names[100];
        assert_made(text);
        assert_string_equal(text, rows[i].text);
        names_of(copy, names);
        assert_string_equal(names, rows[i].names);
        eg_free(text);
        eg_module_release(copy);
        eg_module_release(rows[i].m);
    }
}

static void test_refused(void **state)
{
    (void)state;
    assert_null(eg_group_norm(ctx, 4, 6));
    assert_recorded(EG_EINVAL, "num_channels 6 must be a multiple of num_groups 4");
    assert_null(eg_layer_norm(ctx));
    assert_recorded(EG_EINVAL, "LayerNorm: 'normalized_shape' has 0 sizes, expected 1 to 6 (not given?)");
    assert_null(eg_layer_norm(ctx, EG_SHAPE(3, 0)));
    assert_recorded(EG_EINVAL, "LayerNorm: 'normalized_shape' has a size of 0, expected at least 1");
    assert_null(eg_upsample(ctx));
    assert_recorded(EG_EINVAL, "none of 'size' and 'scale_factor' given");
    assert_null(eg_upsample(ctx, .size = 2, .scale_factor = 2));
    assert_recorded(EG_EINVAL, "both of 'size' and 'scale_factor' given");
    assert_null(eg_upsample(ctx, .size = 2, .align_corners = true));
    assert_recorded(EG_EINVAL, "'align_corners'");
    assert_null(eg_upsample(ctx, .size = 2, .mode = 2));
    assert_recorded(EG_EINVAL, "'mode' is 2, expected 0 to 1");
    assert_null(eg_conv1d(ctx, 3, 4, 3, .groups = 2));
    assert_recorded(EG_EINVAL, "must be multiples of groups 2");
    assert_null(eg_conv_transpose2d(ctx, 3, 4, 3, .groups = 2));
    assert_recorded(EG_EINVAL, "must be multiples of groups 2");
}

/* A class of one's own with a shape among its fields. */
typedef struct frame {
    eg_module base;
    eg_shape size;
} frame;
static EG_CLASS(frame, .fields = EG_FIELDS(EG_SHAPE_FIELD(frame, size, .help = "sizes")));

static void test_fields_of_shapes(void **state)
{
    (void)state;
    const struct {
        eg_shape size;
        const char *text;
    } rows[] = {{EG_SHAPE(5), "frame(size=(5,))"}, {EG_SHAPE(3, 4, 5), "frame(size=(3, 4, 5))"}};
    for (size_t i = 0; i < 2; i++) {
        eg_module *m = eg_new(frame, ctx, rows[i].size), *copy = eg_module_clone(m);
        char *text = eg_module_text(copy);
        assert_made(text);
        assert_string_equal(text, rows[i].text);
        eg_free(text);
        eg_module_release(m);
        eg_module_release(copy);
    }
    assert_null(eg_new(frame, ctx, EG_SHAPE(INT64_MAX, 2)));
    assert_recorded(EG_EINVAL, "'size' has more elements than can be counted");
}

/* ---- what they compute ---- */

enum { MAX = 8192 };

static void assert_same(const eg_tensor *a, const eg_tensor *b)
{
    static float x[MAX], y[MAX];
    assert_made(a);
    assert_made(b);
    size_t n = (size_t)eg_tensor_numel(a);
    assert_true(n <= MAX && eg_shape_equal(eg_tensor_shape(a), eg_tensor_shape(b)));
    assert_int_equal(eg_tensor_read(a, x, n), EG_OK);
    assert_int_equal(eg_tensor_read(b, y, n), EG_OK);
    assert_memory_equal(x, y, n * sizeof(float));
}

static void test_forward(void **state)
{
    (void)state;
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(2, 4, 6, 6)), *line = eg_randn(ctx, EG_SHAPE(2, 4, 9));
    eg_module *m = eg_conv1d(ctx, 4, 6, 3, .stride = 2, .padding = 1, .dilation = 2, .groups = 2);
    assert_same(eg_call(m, line), eg_f_conv1d(line, ((eg_conv1d *)m)->weight, ((eg_conv1d *)m)->bias, .stride = 2,
                                              .padding = 1, .dilation = 2, .groups = 2));
    eg_module_release(m);
    m = eg_conv_transpose2d(ctx, 4, 6, 3, .stride = 3, .padding = 1, .output_padding = 2, .dilation = 2, .groups = 2);
    assert_true(eg_shape_equal(eg_tensor_shape(((eg_conv_transpose2d *)m)->weight), EG_SHAPE(4, 3, 3, 3)));
    assert_int_equal(eg_tensor_numel(((eg_conv_transpose2d *)m)->bias), 6);
    assert_same(eg_call(m, x),
                eg_f_conv_transpose2d(x, ((eg_conv_transpose2d *)m)->weight, ((eg_conv_transpose2d *)m)->bias,
                                      .stride = 3, .padding = 1, .output_padding = 2, .dilation = 2, .groups = 2));
    eg_module_release(m);
    m = eg_group_norm(ctx, 2, 4, .eps = 0.5);
    assert_same(eg_call(m, x), eg_f_group_norm(x, 2, eg_none, eg_none, .eps = 0.5));
    eg_module_release(m);
    m = eg_layer_norm(ctx, EG_SHAPE(6, 6), .eps = 0.5);
    assert_same(eg_call(m, x), eg_f_layer_norm(x, EG_SHAPE(6, 6), eg_none, eg_none, .eps = 0.5));
    eg_module_release(m);
    m = eg_instance_norm2d(ctx, 4, .eps = 0.5);
    assert_same(eg_call(m, x), eg_f_instance_norm(x, eg_none, eg_none, .eps = 0.5));
    eg_module_release(m);
    m = eg_upsample(ctx, .size = EG_HW(5, 9), .mode = EG_BILINEAR, .align_corners = true);
    assert_same(eg_call(m, x), eg_f_interpolate(x, .size = EG_HW(5, 9), .mode = EG_BILINEAR, .align_corners = true));
    eg_module_release(m);
    m = eg_sequential(ctx, EG_MODULES(eg_pixel_unshuffle(ctx, 3), eg_pixel_shuffle(ctx, 3)));
    assert_same(eg_call(m, x), x);
    eg_module_release(m);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {TEST(test_as_pytorch_prints), TEST(test_refused), TEST(test_fields_of_shapes),
                                       TEST(test_forward)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Modules as text: what PyTorch 1.13 printed for the same model, character for character.
 */
#include "support.h"

#include "nn/internal.h"

#include <string.h>

static eg_context *ctx;

static int setup(void **state)
{
    (void)state;
    ctx = eg_context_new(.seed = 1, .threads = 1);
    return ctx == NULL;
}

static int teardown(void **state)
{
    (void)state;
    eg_context_free(ctx);
    return 0;
}

static const char *const golden =
    "Sequential(\n"
    "  (stem): Sequential(\n"
    "    (0): Conv2d(1, 16, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False)\n"
    "    (1): BatchNorm2d(16, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)\n"
    "    (2): ReLU()\n"
    "  )\n"
    "  (list): ModuleList(\n"
    "    (0): Conv2d(16, 16, kernel_size=(3, 1), stride=(2, 1), padding=(1, 0), dilation=(2, 2), groups=16)\n"
    "    (1): BatchNorm2d(16, eps=0.001, momentum=0.01, affine=False, track_running_stats=True)\n"
    "  )\n"
    "  (pools): Sequential(\n"
    "    (0): MaxPool2d(kernel_size=3, stride=1, padding=1, dilation=1, ceil_mode=False)\n"
    "    (1): MaxPool2d(kernel_size=(3, 2), stride=(3, 2), padding=0, dilation=1, ceil_mode=True)\n"
    "    (2): AvgPool2d(kernel_size=2, stride=2, padding=0)\n"
    "    (3): AvgPool2d(kernel_size=(3, 1), stride=(2, 1), padding=(1, 0))\n"
    "    (4): AdaptiveAvgPool2d(output_size=1)\n"
    "    (5): AdaptiveAvgPool2d(output_size=(2, 3))\n"
    "  )\n"
    "  (acts): Sequential(\n"
    "    (0): ReLU6()\n"
    "    (1): Sigmoid()\n"
    "    (2): Tanh()\n"
    "    (3): GELU(approximate='none')\n"
    "    (4): SiLU()\n"
    "    (5): Hardswish()\n"
    "    (6): Hardsigmoid()\n"
    "    (7): Identity()\n"
    "    (8): LeakyReLU(negative_slope=0.01)\n"
    "    (9): LeakyReLU(negative_slope=0.2)\n"
    "    (10): Softmax(dim=1)\n"
    "    (11): LogSoftmax(dim=-1)\n"
    "    (12): Dropout(p=0.5, inplace=False)\n"
    "    (13): Flatten(start_dim=1, end_dim=-1)\n"
    "    (14): Flatten(start_dim=2, end_dim=3)\n"
    "  )\n"
    "  (empty): Sequential()\n"
    "  (head): Linear(in_features=16, out_features=10, bias=True)\n"
    "  (last): Linear(in_features=10, out_features=2, bias=False)\n"
    ")";

static eg_module *golden_model(void)
{
    eg_module *stem = eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 1, 16, 3, .padding = 1, .no_bias = true),
                                                    eg_batch_norm2d(ctx, 16), eg_relu(ctx)));
    eg_module *list = eg_module_list(
        ctx, EG_MODULES(eg_conv2d(ctx, 16, 16, EG_HW(3, 1), .stride = EG_HW(2, 1), .padding = EG_HW(1, 0),
                                  .dilation = 2, .groups = 16),
                        eg_batch_norm2d(ctx, 16, .eps = 1e-3, .momentum = EG_F64(0.01), .no_affine = true)));
    eg_module *pools =
        eg_sequential(ctx, EG_MODULES(eg_max_pool2d(ctx, 3, .stride = 1, .padding = 1),
                                      eg_max_pool2d(ctx, EG_HW(3, 2), .ceil_mode = true), eg_avg_pool2d(ctx, 2),
                                      eg_avg_pool2d(ctx, EG_HW(3, 1), .stride = EG_HW(2, 1), .padding = EG_HW(1, 0)),
                                      eg_adaptive_avg_pool2d(ctx, 1), eg_adaptive_avg_pool2d(ctx, EG_HW(2, 3))));
    eg_module *acts =
        eg_sequential(ctx, EG_MODULES(eg_relu6(ctx), eg_sigmoid(ctx), eg_tanh(ctx), eg_gelu(ctx), eg_silu(ctx),
                                      eg_hardswish(ctx), eg_hardsigmoid(ctx), eg_identity(ctx), eg_leaky_relu(ctx),
                                      eg_leaky_relu(ctx, EG_F64(0.2)), eg_softmax(ctx, 1), eg_log_softmax(ctx, -1),
                                      eg_dropout(ctx, 0.5), eg_flatten(ctx), eg_flatten(ctx, 2, 3)));
    return eg_sequential(ctx, EG_NAMED({"stem", stem}, {"list", list}, {"pools", pools}, {"acts", acts},
                                       {"empty", eg_sequential(ctx)}, {"head", eg_linear(ctx, 16, 10)},
                                       {"last", eg_linear(ctx, 10, 2, .no_bias = true)}));
}

static void text_is_pytorchs(void **state)
{
    (void)state;
    eg_module *m = golden_model();
    char *text = eg_module_text(m);
    assert_non_null(text);
    assert_string_equal(text, golden);
    eg_free(text);
    eg_module_release(m);
}

static void print_writes_a_line_more(void **state)
{
    (void)state;
    eg_module *m = golden_model();
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(eg_module_print(m, file), EG_OK);
    rewind(file);
    char read[8192] = "";
    size_t n = fread(read, 1, sizeof(read) - 1, file);
    fclose(file);
    assert_int_equal(n, strlen(golden) + 1);
    assert_memory_equal(read, golden, strlen(golden));
    assert_int_equal(read[n - 1], '\n');
    assert_int_equal(eg_module_print(m, NULL), EG_EINVAL);
    assert_int_equal(eg_module_print(NULL, stdout), EG_EINVAL);
    eg_module_release(m);
}

static void batch_norms_of_other_kinds(void **state)
{
    (void)state;
    eg_module *m = eg_batch_norm2d(ctx, 4, .cumulative = true, .no_track_running_stats = true);
    char *text = eg_module_text(m);
    assert_string_equal(text, "BatchNorm2d(4, eps=1e-05, momentum=None, affine=True, track_running_stats=False)");
    eg_free(text);
    eg_module_release(m);
}

static void layers_that_pytorch_lacks(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_batch_norm2d(ctx, 4, .relu = true, .momentum = EG_F64(0)),
                                                 eg_drop_path(ctx, 0.25), eg_global_avg_pool2d(ctx), eg_relu(ctx)));
    assert_int_equal(eg_module_empty_child(m, "3"), EG_OK);
    char *text = eg_module_text(m);
    assert_string_equal(
        text, "Sequential(\n"
              "  (0): BatchNorm2d(4, eps=1e-05, momentum=0.0, affine=True, track_running_stats=True, relu=True)\n"
              "  (1): DropPath(p=0.25)\n"
              "  (2): GlobalAvgPool2d()\n"
              "  (3): None\n"
              ")");
    eg_free(text);
    eg_module_release(m);
}

/* A class without describe prints the fields that are not at their defaults, of its super class first; with children,
 * on a line of their own. */
typedef struct dial {
    eg_module base;
    int64_t n;
    eg_hw size, plain;
    double rate;
    eg_opt_f64 decay;
    bool flag;
    const char *text;
    int kind;
} dial;
typedef struct big_dial {
    dial dial;
    int64_t more;
} big_dial;

static const char *const kinds[] = {"round", "square", NULL};
static EG_CLASS(dial, .fields = EG_FIELDS(
                          EG_INT(dial, n, .def = 7, .help = "number"), EG_HW_FIELD(dial, size, .help = "size"),
                          EG_HW_FIELD(dial, plain, .def = 2, .help = "another"), EG_FLOAT(dial, rate, .help = "rate"),
                          EG_OPT_FLOAT(dial, decay, .def = 0.5, .help = "decay"), EG_BOOL(dial, flag, .help = "flag"),
                          EG_TEXT(dial, text, .help = "text"), EG_ENUM(dial, kind, .values = kinds, .help = "kind")));
static EG_CLASS(big_dial, .super = &dial_class, .fields = EG_FIELDS(EG_INT(big_dial, more, .help = "more")));

static void fields_are_printed_where_they_differ(void **state)
{
    (void)state;
    eg_module *m = eg_new(dial, ctx);
    char *text = eg_module_text(m);
    assert_string_equal(text, "dial()");
    eg_free(text);
    assert_int_equal(((dial *)m)->n, 7);
    eg_module_release(m);
    m = eg_module_new(&big_dial_class, sizeof(big_dial),
                      &(big_dial){.dial = {.base.ctx = ctx,
                                           .n = 3,
                                           .size = EG_HW(4, 5),
                                           .rate = 1e-7,
                                           .decay = EG_F64(0),
                                           .flag = true,
                                           .text = "hi",
                                           .kind = 1},
                                  .more = 9});
    assert_non_null(m);
    text = eg_module_text(m);
    assert_string_equal(
        text, "big_dial(n=3, size=(4, 5), rate=1e-07, decay=0.0, flag=True, text='hi', kind='square', more=9)");
    eg_free(text);
    assert_int_equal(eg_module_add_child(m, "op", NULL, eg_relu(ctx)), EG_OK);
    eg_free((char *)(uintptr_t)((big_dial *)m)->dial.text);
    ((big_dial *)m)->dial.text = NULL;
    text = eg_module_text(m);
    assert_string_equal(text, "big_dial(\n  n=3, size=(4, 5), rate=1e-07, decay=0.0, flag=True, kind='square', more=9\n"
                              "  (op): ReLU()\n)");
    eg_free(text);
    eg_module_release(m);
    assert_null(eg_new(dial, ctx, .kind = 2));
    assert_string_equal(eg_error_last()->message, "dial: 'kind' is 2, expected 0 to 1");
    eg_error_clear();
}

static void equal_fields(void **state)
{
    (void)state;
    eg_module *a = eg_conv2d(ctx, 1, 2, 3), *b = eg_conv2d(ctx, 1, 2, EG_HW(3, 3), .stride = 1),
              *c = eg_conv2d(ctx, 1, 2, 3, .stride = 2);
    assert_true(eg__fields_equal(a, b));
    assert_false(eg__fields_equal(a, c));
    eg_module_release(a);
    eg_module_release(b);
    eg_module_release(c);
    a = eg_new(dial, ctx, .text = "x");
    b = eg_new(dial, ctx, .text = "y");
    assert_false(eg__fields_equal(a, b));
    eg_module_release(a);
    eg_module_release(b);
}

static void numbers_are_pythons(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0.1, "0.1"},
                 {1e-5, "1e-05"},
                 {1e-4, "0.0001"},
                 {0.00012, "0.00012"},
                 {1, "1.0"},
                 {100, "100.0"},
                 {123456789, "123456789.0"},
                 {1e15, "1000000000000000.0"},
                 {1e16, "1e+16"},
                 {1.5e16, "1.5e+16"},
                 {1e22, "1e+22"},
                 {1e300, "1e+300"},
                 {5e-324, "5e-324"},
                 {0.30000000000000004, "0.30000000000000004"},
                 {1.0 / 3, "0.3333333333333333"},
                 {-2.5, "-2.5"},
                 {12345678901234568.0, "1.2345678901234568e+16"},
                 {0, "0.0"},
                 {1.0 / 0.0, "inf"},
                 {-1.0 / 0.0, "-inf"}};
    char text[EG__NUMBER_TEXT_SIZE];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(eg__number_text(cases[i].value, text), cases[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_pytorchs),
        cmocka_unit_test(print_writes_a_line_more),
        cmocka_unit_test(batch_norms_of_other_kinds),
        cmocka_unit_test(layers_that_pytorch_lacks),
        cmocka_unit_test(fields_are_printed_where_they_differ),
        cmocka_unit_test(equal_fields),
        cmocka_unit_test(numbers_are_pythons),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* Modules from calls as people type them. */
#include "support.h"

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

static void assert_prints(const char *call, const char *printed)
{
    eg_module *m = eg_module_from_text(ctx, call);
    if (m == NULL)
        fail_msg("%s: %s", call, eg_error_last()->message);
    char *text = eg_module_text(m);
    assert_string_equal(text, printed);
    eg_free(text);
    eg_module_release(m);
}

static void calls_are_read(void **state)
{
    (void)state;
    assert_prints("SiLU", "SiLU()");
    assert_prints("  SiLU ( ) ", "SiLU()");
    assert_prints("Conv2d(in_channels=3, out_channels=8, kernel_size=(3, 1), no_bias=True)",
                  "Conv2d(3, 8, kernel_size=(3, 1), stride=(1, 1), bias=False)");
    assert_prints("Conv2d(in_channels=3,out_channels=8,kernel_size=[3,1],padding=1,no_bias=true)",
                  "Conv2d(3, 8, kernel_size=(3, 1), stride=(1, 1), padding=(1, 1), bias=False)");
    assert_prints("Dropout(p=0.25)", "Dropout(p=0.25, inplace=False)");
    eg_module *m = eg_module_from_text(ctx, "Upsample(scale_factor=2, mode='bilinear')");
    assert_made(m);
    assert_int_equal(((const eg_upsample *)m)->mode, EG_BILINEAR);
    eg_module_release(m);
    m = eg_module_from_text(ctx, "Upsample(scale_factor=2, mode=bilinear)");
    assert_made(m);
    eg_module_release(m);
}

static void assert_wrong(const char *call, eg_status status, const char *part)
{
    assert_null(eg_module_from_text(ctx, call));
    assert_recorded(status, part);
}

static void what_is_no_call_is_refused(void **state)
{
    (void)state;
    assert_wrong("", EG_EINVAL, "there is no name");
    assert_wrong("(p=1)", EG_EINVAL, "there is no name");
    assert_wrong("Dropout(p=0.5", EG_EINVAL, "not closed");
    assert_wrong("Dropout(0.5)", EG_EINVAL, "no '='");
    assert_wrong("Dropout(p=)", EG_EINVAL, "no value");
    assert_wrong("Dropout(=1)", EG_EINVAL, "no name");
    assert_wrong("Dropout(p=0.5, p=0.1)", EG_EINVAL, "given twice");
    assert_wrong("Dropout(q=0.5)", EG_EFORMAT, "has no field 'q'");
    assert_wrong("Dropout(p=2)", EG_EINVAL, "'p'");
    assert_wrong("Dropuot(p=0.5)", EG_ENOENT, "Dropout");
    assert_wrong("Dropout(p=\xff)", EG_EINVAL, "UTF-8");
    assert_null(eg_module_from_text(NULL, "ReLU"));
    assert_recorded(EG_EINVAL, "context is NULL");
    assert_null(eg_module_from_text(ctx, NULL));
    assert_recorded(EG_EINVAL, "text is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_are_read, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_no_call_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The record of failures, and option structs.
 */
#include "support.h"

#include "base/internal.h"

#include <errno.h>

static int setup(void **state)
{
    (void)state;
    eg_error_clear();
    return 0;
}

static void test_nothing_failed(void **state)
{
    (void)state;
    assert_int_equal(eg_error_last()->code, EG_OK);
    assert_string_equal(eg_error_last()->message, "");
    assert_string_equal(eg_error_first()->where, "");
    assert_int_equal(eg_exit_status(NULL), 0);
}

static eg_status fail_here(void)
{
    return eg_fail(EG_ESHAPE, "input has %d channels, weight expects %d", 3, 16);
}

static void test_first_and_last(void **state)
{
    (void)state;
    assert_int_equal(fail_here(), EG_ESHAPE);
    assert_int_equal(eg_fail(EG_EIO, "second"), EG_EIO);
    assert_string_equal(eg_error_first()->message, "input has 3 channels, weight expects 16");
    assert_string_equal(eg_error_first()->where, "fail_here");
    assert_string_equal(eg_error_last()->message, "second");
    assert_int_equal(eg_error_last()->code, EG_EIO);
    eg_error_clear();
    assert_int_equal(eg_error_first()->code, EG_OK);
}

static void test_prefix(void **state)
{
    (void)state;
    fail_here();
    assert_int_equal(eg__fail_prefix(EG_ESHAPE, "conv2d '%s'", "stem.0"), EG_ESHAPE);
    const char *expected = "conv2d 'stem.0': input has 3 channels, weight expects 16";
    assert_string_equal(eg_error_last()->message, expected);
    assert_string_equal(eg_error_first()->message, expected);
    assert_string_equal(eg_error_last()->where, "fail_here");
    eg_fail(EG_EIO, "disk is full");
    eg__fail_prefix(EG_EIO, "cannot save");
    assert_string_equal(eg_error_last()->message, "cannot save: disk is full");
    assert_string_equal(eg_error_first()->message, expected); /* another failure: left alone */
}

static void test_prefix_of_a_failure_that_left_no_text(void **state)
{
    (void)state;
    assert_int_equal(eg__fail_prefix(EG_ENOMEM, "custom"), EG_ENOMEM);
    assert_string_equal(eg_error_last()->message, "custom: out of memory");
    eg__fail_prefix(EG_EINVAL, "outer");
    assert_string_equal(eg_error_last()->message, "outer: invalid argument");
}

static void test_long_texts_are_cut(void **state)
{
    (void)state;
    char text[2000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    eg_fail(EG_EINVAL, "%s", text);
    size_t length = strlen(eg_error_last()->message);
    assert_in_range(length, 400, 511);
    assert_string_equal(eg_error_last()->message + length - 3, "...");
    eg__fail_prefix(EG_EINVAL, "%s", text);
    assert_int_equal(strlen(eg_error_last()->message), length);
    eg_fail_at(text, EG_EINVAL, "short");
    assert_in_range(strlen(eg_error_last()->where), 30, 63);
}

static void test_control_characters_are_replaced(void **state)
{
    (void)state;
    eg_fail(EG_EFORMAT, "no operation '%s'", "a\nb\x1b[31m\tc\x7f");
    assert_string_equal(eg_error_last()->message, "no operation 'a?b?[31m?c?'");
    assert_string_equal(eg_error_first()->message, "no operation 'a?b?[31m?c?'");
    eg__fail_prefix(EG_EFORMAT, "run '%s'", "x\r");
    assert_string_equal(eg_error_last()->message, "run 'x?': no operation 'a?b?[31m?c?'");
    eg_fail(EG_EFORMAT, "%s", "\xc2\x9b[2J \xc3\xa9 \xc2\xb5 \xc2"); /* U+009B starts a command too */
    assert_string_equal(eg_error_last()->message, "??[2J \xc3\xa9 \xc2\xb5 \xc2");
}

static void test_a_message_may_quote_the_last_one(void **state)
{
    (void)state;
    eg_fail(EG_EIO, "cause");
    eg_fail(EG_EFORMAT, "effect of %s", eg_error_last()->message);
    assert_string_equal(eg_error_last()->message, "effect of cause");
    assert_string_equal(eg_error_first()->message, "cause");
}

static void test_null(void **state)
{
    (void)state;
    assert_true(eg__null("eg_relu", "input") == NULL);
    assert_string_equal(eg_error_last()->message, "eg_relu: input is NULL");
    assert_string_equal(eg_error_last()->where, "eg_relu");
    eg_error_clear();
    eg_fail(EG_EIO, "cause");
    assert_true(eg__null("eg_relu", "input") == NULL);
    assert_string_equal(eg_error_last()->message, "cause");
}

static void test_marks(void **state)
{
    (void)state;
    eg__error_mark mark;
    eg__error_save(&mark);
    eg_fail(EG_ENOENT, "tried and handled");
    eg__error_restore(&mark);
    assert_int_equal(eg_error_first()->code, EG_OK);
    eg_fail(EG_EIO, "real");
    eg__error_save(&mark);
    eg_fail(EG_ENOENT, "tried and handled");
    eg__error_restore(&mark);
    assert_string_equal(eg_error_last()->message, "real");
    eg__fail_prefix(EG_EIO, "still one"); /* first and last are one failure still */
    assert_string_equal(eg_error_first()->message, "still one: real");
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(eg_status_name(EG_OK), "ok");
    assert_string_equal(eg_status_name(EG_EINTERNAL), "internal error");
    assert_string_equal(eg_status_name((eg_status)99), "unknown status");
    assert_string_equal(eg_status_name((eg_status)-1), "unknown status");
    assert_string_equal(eg_version(), EG_VERSION_STRING);
}

typedef struct options {
    size_t struct_size;
    int a, b;
} options;

static void test_errno(void **state)
{
    (void)state;
    char text[EG__ERRNO_TEXT_SIZE];
    errno = ENOENT;
    assert_fails(eg__fail_errno("open", "a.csv"), EG_ENOENT, "cannot open 'a.csv': No such file or directory");
    errno = ENOMEM;
    assert_fails(eg__fail_errno("read", "a.csv"), EG_ENOMEM, "cannot read 'a.csv'");
    errno = EACCES;
    assert_fails(eg__fail_errno("write", "a.csv"), EG_EIO, "cannot write 'a.csv': Permission denied");
    assert_non_null(strstr(eg__errno_text(123456, text), "123456"));
}

static void test_options(void **state)
{
    (void)state;
    options own = {1, 2, 3};
    assert_ok(eg__options_copy(&own, sizeof own, NULL));
    assert_int_equal(own.a, 0);
    options old = {.struct_size = offsetof(options, b), .a = 5, .b = 6}; /* a caller that knows no b */
    assert_ok(eg__options_copy(&own, sizeof own, &old));
    assert_int_equal(own.a, 5);
    assert_int_equal(own.b, 0);
    struct {
        options known;
        int more[10];
    } newer = {.known = {.struct_size = sizeof newer, .a = 7, .b = 8}};
    assert_ok(eg__options_copy(&own, sizeof own, &newer));
    assert_int_equal(own.b, 8);
    assert_fails(eg__options_copy(&own, sizeof own, &(options){.a = 1}), EG_EINVAL, "struct_size is not set");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_nothing_failed, setup),
        cmocka_unit_test_setup(test_first_and_last, setup),
        cmocka_unit_test_setup(test_prefix, setup),
        cmocka_unit_test_setup(test_prefix_of_a_failure_that_left_no_text, setup),
        cmocka_unit_test_setup(test_long_texts_are_cut, setup),
        cmocka_unit_test_setup(test_control_characters_are_replaced, setup),
        cmocka_unit_test_setup(test_a_message_may_quote_the_last_one, setup),
        cmocka_unit_test_setup(test_null, setup),
        cmocka_unit_test_setup(test_marks, setup),
        cmocka_unit_test_setup(test_names, setup),
        cmocka_unit_test_setup(test_errno, setup),
        cmocka_unit_test_setup(test_options, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

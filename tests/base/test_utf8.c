/* What counts as well-formed UTF-8: the table of the Unicode standard (3.9), its edges and what lies just outside. */
#include "support.h"

#include "base/internal.h"

static void test_well_formed(void **state)
{
    (void)state;
    static const char *const good[] = {"",
                                       "plain",
                                       "\x7f",
                                       "\xc2\x80",
                                       "\xdf\xbf",
                                       "a\xc3\xa4z",
                                       "\xe0\xa0\x80",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "\xef\xbf\xbf",
                                       "\xe2\x82\xac",
                                       "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf"};
    for (size_t i = 0; i < EG_COUNT(good); i++)
        if (!eg__is_utf8(good[i]))
            fail_msg("text %zu is refused", i);
}

static void test_malformed(void **state)
{
    (void)state;
    static const char *const bad[] = {"\x80",
                                      "a\xbf",
                                      "\xc3",
                                      "\xc3z",
                                      "\xe2\x82",
                                      "\xe2\x82z",
                                      "\xf0\x90\x80",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xe0\x9f\xbf",
                                      "\xf0\x8f\xbf\xbf", /* overlong */
                                      "\xed\xa0\x80",
                                      "\xed\xbf\xbf", /* surrogates */
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xf8\x88\x80\x80\x80",
                                      "\xff"};
    for (size_t i = 0; i < EG_COUNT(bad); i++)
        if (eg__is_utf8(bad[i]))
            fail_msg("text %zu is let through", i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_well_formed),
        cmocka_unit_test(test_malformed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

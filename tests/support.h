/*
 * tests/support.h - what the tests share. Include it first: cmocka wants its standard headers before it.
 */
#ifndef EG_TESTS_SUPPORT_H
#define EG_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifndef EG_SOURCE_DIR
#define EG_SOURCE_DIR "."
#endif

#endif

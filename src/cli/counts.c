/*
 * Large numbers in options: 500k, 1.5M, 2G.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>

/* -1 for what is no count. */
static double parse_count(const char *text)
{
    char *end;
    errno = 0;
    double number = strtod(text, &end), unit = 1;
    if (*end == 'K' || *end == 'k')
        unit = 1e3;
    else if (*end == 'M' || *end == 'm')
        unit = 1e6;
    else if (*end == 'G' || *end == 'g')
        unit = 1e9;
    end += unit > 1;
    double count = number * unit;
    bool whole = end != text && !*end && errno == 0 && count >= 0 && count < 1e18 && count == (double)(int64_t)count;
    return whole ? count : -1;
}

eg_status check_count(const char *text)
{
    EG_CHECK(parse_count(text) >= 0, EG_EINVAL,
             "'%s' is no count, expected a whole number, or one with k, M or G behind it", text);
    return EG_OK;
}

int64_t count_of(const char *text)
{
    return (int64_t)parse_count(text);
}

/*
 * Results on standard output.
 */
#include "cli/cli.h"

#include <stdlib.h>

int print_json(json_t *object)
{
    char *text = object ? json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(10)) : NULL;
    json_decref(object);
    if (!text) {
        fputs("engraft: no memory for the result\n", stderr);
        return EXIT_FAILED;
    }
    puts(text);
    free(text);
    return EXIT_OK;
}

void print_scalars(const json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        if (json_is_string(value))
            printf("%-20s %s\n", key, json_string_value(value));
        else if (json_is_integer(value))
            printf("%-20s %" JSON_INTEGER_FORMAT "\n", key, json_integer_value(value));
        else if (json_is_real(value))
            printf("%-20s %.4f\n", key, json_real_value(value));
    }
}

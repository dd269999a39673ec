/*
 * base/json.c - JSON texts and files, through jansson.
 */
#include "base/internal.h"

#include <stdlib.h>
#include <string.h>

json_t *eg__json_parse(const char *text, size_t size, const char *what)
{
    json_error_t error;
    json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (json)
        return json;
    /* jansson leaves the text empty when it is out of memory itself */
    if (json_error_code(&error) == json_error_out_of_memory || !error.text[0])
        eg_fail(EG_ENOMEM, "out of memory: '%s'", what);
    else
        eg_fail(EG_EFORMAT, "'%s' line %d column %d: %s", what, error.line, error.column, error.text);
    return NULL;
}

json_t *eg__json_read(const char *path)
{
    char *text;
    size_t size;
    if (eg__file_read(path, 0, &text, &size) != EG_OK)
        return NULL;
    json_t *json = eg__json_parse(text, size, path);
    eg_free(text);
    return json;
}

static int append(const char *data, size_t size, void *payload)
{
    eg__buf *buf = payload;
    eg__buf_append(buf, data, size);
    return buf->failed ? -1 : 0;
}

/* ---- the fewest digits that read back as the same number: jansson writes all numbers of a text with as many ---- */

/* Writes a real number of `n` characters anew, or as it is where the locale's decimal point is more than a character.
 */
static void append_real(eg__buf *out, const char *number, size_t n)
{
    char text[64], zero[16];
    if (snprintf(zero, sizeof zero, "%.1f", 0.0) != 3 || n + 3 > sizeof text) {
        eg__buf_append(out, number, n);
        return;
    }
    const char point = zero[1];
    memcpy(text, number, n);
    text[n] = '\0';
    if (strchr(text, '.'))
        *strchr(text, '.') = point;
    double value = strtod(text, NULL);
    int digits = 15;
    do {
        snprintf(text, sizeof text, "%.*g", digits, value);
    } while (strtod(text, NULL) != value && ++digits <= 17);
    if (strchr(text, point))
        *strchr(text, point) = '.';
    eg__buf_printf(out, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

static size_t string_length(const char *text)
{
    size_t n = 1;
    while (text[n] != '"')
        n += text[n] == '\\' ? 2 : 1;
    return n + 1;
}

/* Copies a JSON text with its real numbers written anew. */
static void append_shortened(eg__buf *out, const char *text)
{
    for (size_t n; *text; text += n) {
        bool number = *text == '-' || (*text >= '0' && *text <= '9');
        n = *text == '"' ? string_length(text) : number ? strspn(text, "+-.0123456789eE") : 1;
        if (number && strcspn(text, ".eE") < n)
            append_real(out, text, n);
        else
            eg__buf_append(out, text, n);
    }
}

char *eg__json_text(const json_t *json)
{
    if (!json) {
        eg_fail(EG_EINVAL, "cannot write as JSON: not a JSON value");
        return NULL;
    }
    eg__buf buf = {0};
    size_t flags = JSON_SORT_KEYS | JSON_INDENT(2) | JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY;
    if (json_dump_callback(json, append, &buf, flags) != 0)
        buf.failed = true; /* jansson holds nothing that it could not write: it is out of memory */
    char *text = eg__buf_take(&buf);
    if (!text)
        return NULL;
    append_shortened(&buf, text);
    free(text);
    eg__buf_append(&buf, "\n", 1);
    return eg__buf_take(&buf);
}

eg_status eg__json_write(const json_t *json, const char *path)
{
    char *text = eg__json_text(json);
    if (!text)
        return eg_error_last()->code;
    eg_status status = eg__file_write(path, text, strlen(text));
    free(text);
    return status;
}

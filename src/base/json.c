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

json_t *eg__json_append(json_t *list, json_t *item)
{
    if (list == NULL)
        json_decref(item);
    else if (json_array_append_new(list, item) != 0)
        json_decref(list), list = NULL;
    return list;
}

json_t *eg__json_read(const char *path, size_t max)
{
    char *text;
    size_t size;
    if (eg__file_read(path, max, &text, &size) != EG_OK)
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

/* ---- for people ---- */

enum { LINE_WIDTH = 120 };

static char *one_line(const json_t *json)
{
    eg__buf raw = {0}, buf = {0};
    if (json_dump_callback(json, append, &raw, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17)) != 0)
        raw.failed = true;
    char *text = eg__buf_take(&raw);
    if (!text)
        return NULL;
    append_shortened(&buf, text);
    free(text);
    return eg__buf_take(&buf);
}

/* "key": value on one line; "key" alone for no value. */
static char *member_line(const char *key, const json_t *value)
{
    json_t *name = json_string(key);
    char *head = name ? one_line(name) : NULL, *tail = head && value ? one_line(value) : NULL;
    eg__buf buf = {.failed = !head || (value && !tail)};
    eg__buf_printf(&buf, value ? "%s: %s" : "%s: ", head ? head : "", tail ? tail : "");
    json_decref(name);
    free(head);
    free(tail);
    return eg__buf_take(&buf);
}

static void lay_out(eg__buf *out, const json_t *json, size_t indent, size_t before);

/* Members one below the other, but as many in a line as it holds of those that are no lists or objects. */
static void lay_out_members(eg__buf *out, const json_t *object, size_t indent)
{
    size_t column = LINE_WIDTH; /* where the last line ends, if a member may follow there */
    const char *key, *comma = "";
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        bool scalar = !json_is_array(value) && !json_is_object(value);
        char *line = member_line(key, scalar ? value : NULL);
        if (!line) {
            out->failed = true;
            return;
        }
        size_t length = strlen(line);
        bool follows = scalar && column + 2 + length < LINE_WIDTH;
        if (follows)
            eg__buf_printf(out, "%s %s", comma, line);
        else
            eg__buf_printf(out, "%s\n%*s%s", comma, (int)indent, "", line);
        free(line);
        column = (follows ? column + 2 : indent) + length;
        if (!scalar) {
            lay_out(out, value, indent, length);
            column = LINE_WIDTH;
        }
        comma = ",";
    }
}

static void lay_out_items(eg__buf *out, const json_t *list, size_t indent)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        eg__buf_printf(out, "%s\n%*s", i > 0 ? "," : "", (int)indent, "");
        lay_out(out, json_array_get(list, i), indent, 0);
    }
}

/* A value that begins `before` characters after the line's indent. */
static void lay_out(eg__buf *out, const json_t *json, size_t indent, size_t before)
{
    char *line = out->failed ? NULL : one_line(json);
    bool list = json_is_array(json), plain = !list && !json_is_object(json);
    if (!line) {
        out->failed = true;
    } else if (plain || indent + before + strlen(line) < LINE_WIDTH) {
        eg__buf_printf(out, "%s", line);
    } else {
        eg__buf_printf(out, list ? "[" : "{");
        if (list)
            lay_out_items(out, json, indent + 2);
        else
            lay_out_members(out, json, indent + 2);
        eg__buf_printf(out, "\n%*s%s", (int)indent, "", list ? "]" : "}");
    }
    free(line);
}

char *eg__json_layout(const json_t *json)
{
    eg__buf buf = {0};
    lay_out(&buf, json, 0, 0);
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

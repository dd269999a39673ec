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

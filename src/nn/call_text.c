/*
 * Calls as text, "Conv2d(in_channels=3, out_channels=8, kernel_size=3)": what people type for a module.
 */
#include "nn/internal.h"
#include "nn/json.h"

#include <ctype.h>
#include <string.h>

typedef struct span {
    const char *start, *end;
} span;

static span trim(span s)
{
    while (s.start < s.end && isspace((unsigned char)*s.start))
        s.start++;
    while (s.start < s.end && isspace((unsigned char)s.end[-1]))
        s.end--;
    return s;
}

static eg_status fail_text(const char *text, const char *what)
{
    return eg_fail(EG_EINVAL, "'%s': %s, expected such as Name(field=value, field=value)", text, what);
}

/* The part before the next comma that is in no brackets and no quotes; it is taken off. */
static span take_argument(span *rest)
{
    span first = *rest;
    char quote = '\0';
    int depth = 0;
    for (const char *p = rest->start; p < rest->end; p++) {
        if (quote != '\0')
            quote = *p == quote ? '\0' : quote;
        else if (*p == '\'' || *p == '"')
            quote = *p;
        else if (strchr("([{", *p) != NULL)
            depth++;
        else if (strchr(")]}", *p) != NULL)
            depth--;
        else if (*p == ',' && depth == 0) {
            first.end = p;
            rest->start = p + 1;
            return first;
        }
    }
    rest->start = rest->end;
    return first;
}

/* Numbers, true, false, null and lists as in JSON; (3, 1) is a list too; anything else is a text. */
static json_t *value_of(span s)
{
    size_t len = (size_t)(s.end - s.start);
    bool quoted = len >= 2 && (*s.start == '\'' || *s.start == '"') && s.end[-1] == *s.start;
    if (quoted)
        return json_stringn(s.start + 1, len - 2);
    char *text = eg__format("%.*s", (int)len, s.start);
    if (text == NULL)
        return NULL;
    if (len >= 2 && *text == '(' && text[len - 1] == ')') {
        *text = '[';
        text[len - 1] = ']';
    }
    bool truth = strcmp(text, "True") == 0, falsehood = strcmp(text, "False") == 0;
    json_t *value = truth || falsehood ? json_boolean(truth) : json_loads(text, JSON_DECODE_ANY, NULL);
    if (value == NULL)
        value = json_string(text);
    eg_free(text);
    return value;
}

static eg_status add_argument(json_t *object, span argument, const char *text)
{
    const char *equals = memchr(argument.start, '=', (size_t)(argument.end - argument.start));
    if (equals == NULL)
        return fail_text(text, "an argument has no '='");
    span name = trim((span){argument.start, equals}), value = trim((span){equals + 1, argument.end});
    if (name.start == name.end || value.start == value.end)
        return fail_text(text, "an argument has no name, or no value");
    char *key = eg__format("%.*s", (int)(name.end - name.start), name.start);
    json_t *json = key != NULL ? value_of(value) : NULL;
    eg_status status = EG_OK;
    if (json == NULL)
        status = eg_fail(EG_ENOMEM, "out of memory");
    else if (json_object_get(object, key) != NULL)
        status = eg_fail(EG_EINVAL, "'%s': '%s' is given twice", text, key);
    else if (json_object_set(object, key, json) != 0)
        status = eg_fail(EG_ENOMEM, "out of memory");
    json_decref(json);
    eg_free(key);
    return status;
}

json_t *eg__call_json(const char *text)
{
    span all = trim((span){text, text + strlen(text)}), name = all;
    const char *open = memchr(all.start, '(', (size_t)(all.end - all.start));
    if (open != NULL)
        name = trim((span){all.start, open});
    bool closed = open == NULL || all.end[-1] == ')';
    if (name.start == name.end || !closed) {
        fail_text(text, closed ? "there is no name" : "its last bracket is not closed");
        return NULL;
    }
    if (!eg__is_utf8(text)) {
        eg_fail(EG_EINVAL, "'%s' is no UTF-8", text);
        return NULL;
    }
    json_t *object = json_pack("{s:s%}", "class", name.start, name.end - name.start);
    if (object == NULL)
        eg_fail(EG_ENOMEM, "out of memory");
    span rest = open != NULL ? trim((span){open + 1, all.end - 1}) : (span){NULL, NULL};
    while (object != NULL && rest.start < rest.end) {
        if (add_argument(object, take_argument(&rest), text) == EG_OK)
            continue;
        json_decref(object);
        object = NULL;
    }
    return object;
}

eg_module *eg_module_from_text(eg_context *ctx, const char *text)
{
    if (ctx == NULL || text == NULL)
        return eg__null(__func__, ctx == NULL ? "context" : "text");
    json_t *json = eg__call_json(text);
    eg_module *m = json != NULL ? eg__module_from_json(ctx, json, "model") : NULL;
    json_decref(json);
    return m;
}

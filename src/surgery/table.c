/*
 * What reports are written with: tables, and JSON that may run out of memory anywhere.
 */
#include "surgery/diff.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- tables ---- */

static char *format_text(const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *text = length < 0 ? NULL : eg__calloc((size_t)length + 1, 1);
    if (text != NULL)
        vsnprintf(text, (size_t)length + 1, format, args);
    return text;
}

void eg__table_cell(eg__table *table, const char *format, ...)
{
    va_list args;
    if (table->failed || eg__grow(&table->lines, &table->capacity, table->n + 1, sizeof(*table->lines)) != EG_OK) {
        table->failed = true;
        return;
    }
    va_start(args, format);
    const char *text = eg__texts_add(&table->texts, format_text(format, args));
    va_end(args);
    table->failed = text == NULL;
    table->lines[table->n].cells[table->column++] = text;
}

void eg__table_end(eg__table *table)
{
    table->n += !table->failed;
    table->column = 0;
}

/* Nothing is padded behind the last cell of a line. */
static void write_line(const eg__table *t, const struct eg__table_line *line, const int *width, eg__buf *out)
{
    size_t last = 0;
    for (size_t i = 0; i < EG__TABLE_COLUMNS; i++)
        last = line->cells[i] != NULL && *line->cells[i] != '\0' ? i : last;
    for (size_t i = 0; i <= last; i++) {
        const char *cell = line->cells[i] != NULL ? line->cells[i] : "";
        const char *gap = i > 0 ? "  " : "";
        if (t->numbers & 1u << i)
            eg__buf_printf(out, "%s%*s", gap, width[i], cell);
        else
            eg__buf_printf(out, "%s%-*s", gap, i < last ? width[i] : 0, cell);
    }
    eg__buf_printf(out, "\n");
}

void eg__table_write(eg__table *table, eg__buf *out)
{
    int width[EG__TABLE_COLUMNS] = {0};
    out->failed = out->failed || table->failed;
    for (size_t i = 0; i < table->n && !out->failed; i++) {
        for (size_t k = 0; k < EG__TABLE_COLUMNS; k++) {
            const char *cell = table->lines[i].cells[k];
            width[k] = EG_MAX(width[k], cell != NULL ? (int)EG_MIN(strlen(cell), (size_t)200) : 0);
        }
    }
    for (size_t i = 0; i < table->n && !out->failed; i++)
        write_line(table, &table->lines[i], width, out);
    free(table->lines);
    eg__texts_free(&table->texts);
    *table = (eg__table){0};
}

/* ---- JSON ---- */

json_t *eg__json_text_of(const char *text)
{
    if (text == NULL)
        return json_null();
    if (eg__is_utf8(text))
        return json_string(text);
    char *plain = eg__strdup(text);
    for (char *c = plain; c != NULL && *c != '\0'; c++)
        *c = (unsigned char)*c < 0x80 ? *c : '?';
    json_t *json = plain != NULL ? json_string(plain) : NULL;
    free(plain);
    return json;
}

eg_status eg__json_put(json_t *object, const char *key, json_t *value)
{
    if (value != NULL && !eg__is_utf8(key)) {
        json_decref(value);
        return eg_fail(EG_EINVAL, "the name of a module or tensor is no UTF-8, which JSON cannot say");
    }
    EG_CHECK(value != NULL && json_object_set_new(object, key, value) == 0, EG_ENOMEM,
             "out of memory: a report as JSON");
    return EG_OK;
}

char *eg__json_finish(json_t *json, eg_status status)
{
    char *text = json != NULL && status == EG_OK ? eg__json_layout(json) : NULL;
    json_decref(json);
    return text;
}

/*
 * base/memory.c - allocation with checked sizes, growing arrays and growing text.
 */
#include "base/internal.h"

#include <stdlib.h>
#include <string.h>

void eg_free(void *memory)
{
    free(memory);
}

void *eg__calloc(size_t n, size_t size)
{
    void *memory = NULL;
    if (size == 0 || n <= PTRDIFF_MAX / size) /* calloc checks too, but a sanitizer's aborts */
        memory = calloc(n ? n : 1, size ? size : 1);
    if (!memory)
        eg_fail(EG_ENOMEM, "out of memory: %zu items of %zu bytes", n, size);
    return memory;
}

eg_status eg__grow(void *array_pointer, size_t *capacity, size_t needed, size_t size)
{
    if (needed <= *capacity)
        return EG_OK;
    size_t wanted = *capacity < 8 ? 8 : *capacity;
    while (wanted < needed && wanted <= SIZE_MAX / 2)
        wanted *= 2;
    if (wanted < needed)
        wanted = needed;
    EG_CHECK(wanted <= PTRDIFF_MAX / size, EG_ENOMEM, "out of memory: %zu items of %zu bytes", wanted, size);
    void *array;
    memcpy(&array, array_pointer, sizeof array);
    char *grown = realloc(array, wanted * size);
    EG_CHECK(grown, EG_ENOMEM, "out of memory: %zu items of %zu bytes", wanted, size);
    memset(grown + *capacity * size, 0, (wanted - *capacity) * size);
    memcpy(array_pointer, &grown, sizeof grown);
    *capacity = wanted;
    return EG_OK;
}

char *eg__strdup(const char *text)
{
    if (!text)
        return NULL;
    size_t size = strlen(text) + 1;
    char *copy = eg__calloc(size, 1);
    if (copy)
        memcpy(copy, text, size);
    return copy;
}

static void append_format(eg__buf *buf, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    if (length < 0)
        buf->failed = true;
    if (!buf->failed && eg__grow(&buf->data, &buf->capacity, buf->len + (size_t)length + 1, 1) != EG_OK)
        buf->failed = true;
    if (!buf->failed) {
        vsnprintf(buf->data + buf->len, (size_t)length + 1, format, again);
        buf->len += (size_t)length;
    }
    va_end(again);
}

char *eg__format(const char *format, ...)
{
    eg__buf buf = {0};
    va_list args;
    va_start(args, format);
    append_format(&buf, format, args);
    va_end(args);
    return eg__buf_take(&buf);
}

void eg__buf_append(eg__buf *buf, const char *data, size_t len)
{
    if (buf->failed)
        return;
    if (len >= SIZE_MAX - buf->len || eg__grow(&buf->data, &buf->capacity, buf->len + len + 1, 1) != EG_OK) {
        buf->failed = true;
        return;
    }
    if (len > 0)
        memcpy(buf->data + buf->len, data, len);
    buf->len += len;
    buf->data[buf->len] = '\0';
}

void eg__buf_printf(eg__buf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    append_format(buf, format, args);
    va_end(args);
}

char *eg__buf_take(eg__buf *buf)
{
    eg__buf_append(buf, "", 0); /* an empty text is a text too */
    if (buf->failed) {
        eg__buf_free(buf);
        eg_fail(EG_ENOMEM, "out of memory: text");
        return NULL;
    }
    char *text = buf->data;
    *buf = (eg__buf){0};
    return text;
}

void eg__buf_free(eg__buf *buf)
{
    free(buf->data);
    *buf = (eg__buf){0};
}

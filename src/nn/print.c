/*
 * Modules as text, as PyTorch prints them.
 */
#include "nn/internal.h"

#include <stdarg.h>

void eg__text_add(eg__text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text->data, text->size, format, args);
    va_end(args);
    size_t used = length < 0 || text->size == 0 ? 0 : EG_MIN((size_t)length, text->size - 1);
    text->data += used;
    text->size -= used;
}

static void describe_fields(const eg_module *m, eg__buf *buf)
{
    const eg_field *field;
    const char *separator = "";
    for (size_t i = 0; (field = eg__field_at(m->cls, i)) != NULL; i++) {
        bool required = field->type == EG_FIELD_INT && field->def == 0; /* 0 is then a value like any other */
        if (!required && eg__field_is_default(m, field))
            continue;
        eg__buf_printf(buf, "%s%s=", separator, field->name);
        eg__field_print(m, field, buf);
        separator = ", ";
    }
}

eg_status eg__module_describe(const eg_module *m, eg__buf *buf)
{
    const eg_class *c = m->cls;
    while (c != NULL && c->describe == NULL)
        c = c->super;
    if (c == NULL) {
        describe_fields(m, buf);
    } else {
        char text[512] = "";
        c->describe(m, text, sizeof(text));
        eg__buf_printf(buf, "%s", text);
    }
    return buf->failed ? EG_ENOMEM : EG_OK;
}

static void print_module(eg_module *m, size_t indent, eg__buf *buf)
{
    eg__buf_printf(buf, "%s(", m->cls->name);
    size_t start = buf->len, children = eg_module_n_children(m);
    if (children > 0)
        eg__buf_printf(buf, "\n%*s", (int)indent + 2, "");
    size_t lead = buf->len;
    eg__module_describe(m, buf);
    if (children == 0)
        goto end;
    if (buf->len == lead && !buf->failed)
        buf->len = start; /* nothing was said of m itself: its children start on the first line */
    for (size_t i = 0; i < m->n_slots; i++) {
        if (m->slots[i].kind != EG_SLOT_CHILD)
            continue;
        eg__buf_printf(buf, "\n%*s(%s): ", (int)indent + 2, "", m->slots[i].name);
        eg_module *child = *eg__slot_child(&m->slots[i]);
        if (child == NULL)
            eg__buf_printf(buf, "None");
        else
            print_module(child, indent + 2, buf);
    }
    eg__buf_printf(buf, "\n%*s", (int)indent, "");
end:
    eg__buf_printf(buf, ")");
}

char *eg_module_text(eg_module *m)
{
    if (m == NULL)
        return eg__null(__func__, "module");
    eg__buf buf = {0};
    print_module(m, 0, &buf);
    return eg__buf_take(&buf);
}

eg_status eg_module_print(eg_module *m, FILE *out)
{
    EG_CHECK(out != NULL, EG_EINVAL, "file is NULL");
    char *text = eg_module_text(m);
    if (text == NULL)
        return eg_error_last()->code;
    bool written = fputs(text, out) >= 0 && fputc('\n', out) != EOF;
    eg_free(text);
    EG_CHECK(written, EG_EIO, "cannot print the module");
    return EG_OK;
}

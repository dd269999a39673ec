/*
 * Differences and surgeries as text and as JSON.
 */
#include "surgery/diff.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *eg_fate_name(eg_fate fate)
{
    static const char *const names[] = {"kept", "converted", "dropped", "new"};
    return (size_t)fate < EG_COUNT(names) ? names[fate] : "unknown";
}

/* The model itself has the empty path. */
static const char *path_text(const char *path)
{
    return *path != '\0' ? path : "(model)";
}

/* What is the same under the same name is not worth a line. */
static bool is_plain(const eg_key_change *key)
{
    return key->fate == EG_FATE_KEPT && key->trained_before == key->trained_after &&
           strcmp(key->before, key->after) == 0;
}

/* ---- text ---- */

static char *attributes_text(const eg_model_change *c)
{
    eg__buf text = {0};
    eg__buf_printf(&text, "%.*s:", (int)strcspn(c->after, "("), c->after);
    for (size_t i = 0; i < c->n_attributes; i++)
        eg__buf_printf(&text, "%s %s %s -> %s", i > 0 ? "," : "", c->attributes[i].name, c->attributes[i].before,
                       c->attributes[i].after);
    return eg__buf_take(&text);
}

static void write_change(eg__table *t, const eg_model_change *c)
{
    static const char *const marks[] = {"+", "-", "~", ">"};
    eg__table_cell(t, "%s", marks[c->kind]);
    eg__table_cell(t, "%s", path_text(c->path));
    if (c->parameters_before == c->parameters_after || c->kind == EG_CHANGE_ADDED)
        eg__table_cell(t, "%" PRId64, c->parameters_after);
    else if (c->kind == EG_CHANGE_REMOVED)
        eg__table_cell(t, "%" PRId64, c->parameters_before);
    else
        eg__table_cell(t, "%" PRId64 " -> %" PRId64, c->parameters_before, c->parameters_after);
    char *attributes = c->n_attributes > 0 ? attributes_text(c) : NULL;
    t->failed = t->failed || (c->n_attributes > 0 && attributes == NULL);
    if (attributes != NULL)
        eg__table_cell(t, "%s", attributes);
    else if (c->kind == EG_CHANGE_MODIFIED)
        eg__table_cell(t, "%s -> %s", c->before, c->after);
    else if (c->kind == EG_CHANGE_MOVED)
        eg__table_cell(t, "%s, was %s", c->after, path_text(c->was));
    else
        eg__table_cell(t, "%s", c->kind == EG_CHANGE_ADDED ? c->after : c->before);
    eg_free(attributes);
    eg__table_end(t);
}

static void write_heads(eg__table *t, const char *second, const char *third)
{
    const char *heads[] = {"", second, third, "change"};
    for (size_t i = 0; i < EG_COUNT(heads); i++)
        eg__table_cell(t, "%s", heads[i]);
    eg__table_end(t);
}

static void write_changes(const eg_model_diff *d, eg__buf *out)
{
    eg__table t = {.numbers = 1u << 2};
    write_heads(&t, "module", "parameters");
    for (size_t i = 0; i < d->n_changes; i++)
        write_change(&t, &d->changes[i].shown);
    eg__table_write(&t, out);
}

/* "was conv.weight", "made from itself", "new, no longer trained". */
static void write_key_change(eg__table *t, const eg_key_change *key, bool renamed)
{
    const char *trained = "";
    if (key->before != NULL && key->after != NULL && key->trained_before != key->trained_after)
        trained = key->trained_after ? ", now trained" : ", no longer trained";
    if (key->fate == EG_FATE_CONVERTED)
        eg__table_cell(t, "made from %s%s", renamed ? key->before : "itself", trained);
    else if (renamed)
        eg__table_cell(t, "was %s%s", key->before, trained);
    else
        eg__table_cell(t, "%s%s", key->fate == EG_FATE_KEPT ? "the same" : eg_fate_name(key->fate), trained);
}

static void write_key(eg__table *t, const eg_key_change *key)
{
    static const char *const marks[] = {">", "~", "-", "+"};
    char before[EG_SHAPE_TEXT_SIZE], after[EG_SHAPE_TEXT_SIZE];
    bool both = key->before != NULL && key->after != NULL;
    bool renamed = both && strcmp(key->before, key->after) != 0;
    eg__table_cell(t, "%s", both && !renamed ? "~" : marks[key->fate]);
    eg__table_cell(t, "%s", key->after != NULL ? key->after : key->before);
    eg_shape_format(key->shape_before, before, sizeof(before));
    eg_shape_format(key->shape_after, after, sizeof(after));
    if (both && strcmp(before, after) != 0)
        eg__table_cell(t, "%s -> %s", before, after);
    else
        eg__table_cell(t, "%s", key->after != NULL ? after : before);
    write_key_change(t, key, renamed);
    eg__table_end(t);
}

static void write_keys(const eg_model_diff *d, eg__buf *out)
{
    eg__table t = {0};
    for (size_t i = 0; i < d->n_keys; i++) {
        if (is_plain(&d->keys[i]))
            continue;
        if (t.n == 0)
            write_heads(&t, "tensor", "shape");
        write_key(&t, &d->keys[i]);
    }
    if (t.n > 0 && out->len > 0)
        eg__buf_printf(out, "\n");
    eg__table_write(&t, out);
}

static size_t count_keys(const eg_model_diff *d, eg_fate fate)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n_keys; i++)
        n += d->keys[i].fate == fate ||
             (fate == EG_FATE_DROPPED && d->keys[i].fate == EG_FATE_NEW && d->keys[i].before != NULL);
    return n;
}

static void write_total(eg__buf *out, const char *what, int64_t before, int64_t after)
{
    eg__buf_printf(out, "%-10s  %" PRId64, what, before);
    if (before != after)
        eg__buf_printf(out, " -> %" PRId64, after);
    if (before != after && before != 0)
        eg__buf_printf(out, " (%+.1f %%)", 100.0 * ((double)after / (double)before - 1));
    eg__buf_printf(out, "\n");
}

static bool is_empty(const eg_model_diff *d)
{
    for (size_t i = 0; i < d->n_keys; i++) {
        if (!is_plain(&d->keys[i]))
            return false;
    }
    return d->n_changes == 0;
}

static void write_diff(const eg_model_diff *d, eg__buf *out)
{
    if (is_empty(d)) {
        eg__buf_printf(out, "no difference\n");
        return;
    }
    eg__buf body = {0};
    if (d->n_changes > 0)
        write_changes(d, &body);
    write_keys(d, &body);
    eg__buf_printf(&body, "\n");
    write_total(&body, "modules", (int64_t)d->before.by_module.n, (int64_t)d->after.by_module.n);
    write_total(&body, "parameters", d->before.parameters, d->after.parameters);
    write_total(&body, "buffers", d->before.buffers, d->after.buffers);
    eg__buf_printf(&body, "%-10s  %zu the same, %zu made from others, %zu new, %zu dropped\n", "tensors",
                   count_keys(d, EG_FATE_KEPT), count_keys(d, EG_FATE_CONVERTED), count_keys(d, EG_FATE_NEW),
                   count_keys(d, EG_FATE_DROPPED));
    char *text = eg__buf_take(&body);
    out->failed = out->failed || text == NULL;
    if (text != NULL)
        eg__buf_printf(out, "%s", text);
    eg_free(text);
}

char *eg_model_diff_text(const eg_model_diff *diff)
{
    if (diff == NULL)
        return eg__null(__func__, "difference");
    eg__buf out = {0};
    write_diff(diff, &out);
    return eg__buf_take(&out);
}

/* ---- replacements as text ---- */

/* "training" of the mode that stays is said in one word. */
static void write_carried(eg__buf *out, const eg__fates *f, eg_fate fate)
{
    const char *comma = "";
    for (size_t i = 0; i < f->n; i++) {
        const eg_carried *c = &f->items[i];
        if (c->fate != fate)
            continue;
        if (*comma == '\0')
            eg__buf_printf(out, "      %s: ", eg_fate_name(fate));
        eg__buf_printf(out, "%s%s %s", comma, c->what, c->name);
        if (c->detail != NULL)
            eg__buf_printf(out, *c->detail == '(' ? " %s" : " (%s)", c->detail);
        comma = ", ";
    }
    eg__buf_printf(out, "%s", *comma != '\0' ? "\n" : "");
}

static void write_replacement(eg__buf *out, size_t i, const eg__fates *f)
{
    const eg_replaced *r = &f->replaced;
    eg__buf_printf(out, "%4zu  %s: %s -> %s\n", i, path_text(r->path), f->old_text, f->fresh_text);
    if (r->policy != NULL)
        eg__buf_printf(out, "      by %s, match %zu%s\n", r->policy, r->index,
                       r->of_replacement ? ", of what the surgery has made" : "");
    for (eg_fate fate = EG_FATE_KEPT; fate <= EG_FATE_NEW; fate++)
        write_carried(out, f, fate);
}

static void write_surgery(const eg_model_diff *d, const eg_surgery *s, eg__buf *out)
{
    size_t n = 0;
    while (n < d->n_fates && d->fates[n].replaced.committed)
        n++;
    eg__buf_printf(out, "%zu replacement%s, %zu committed and %zu planned\n", d->n_fates, d->n_fates == 1 ? "" : "s", n,
                   d->n_fates - n);
    for (size_t i = 0; i < d->n_fates; i++)
        write_replacement(out, i, &d->fates[i]);
    const char *note;
    for (size_t i = 0; (note = eg_surgery_note_at(s, i)) != NULL; i++)
        eg__buf_printf(out, "note: %s\n", note);
    eg__buf_printf(out, "\n");
    write_diff(d, out);
}

char *eg_surgery_text(eg_surgery *s)
{
    eg_model_diff *d = eg_surgery_diff(s);
    if (d == NULL)
        return NULL;
    eg__buf out = {0};
    write_surgery(d, s, &out);
    eg_model_diff_free(d);
    return eg__buf_take(&out);
}

eg_status eg_surgery_print(eg_surgery *s, FILE *out)
{
    EG_CHECK(out != NULL, EG_EINVAL, "file is NULL");
    char *text = eg_surgery_text(s);
    if (text == NULL)
        return eg_error_last()->code;
    bool written = fputs(text, out) >= 0;
    eg_free(text);
    EG_CHECK(written, EG_EIO, "cannot print the surgery");
    return EG_OK;
}

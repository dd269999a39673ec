/*
 * Differences and surgeries as JSON.
 */
#include "surgery/diff.h"

#include <string.h>

static json_t *pair_json(int64_t before, int64_t after)
{
    return json_pack("[I, I]", (json_int_t)before, (json_int_t)after);
}

static json_t *flag_pair_json(bool before, bool after)
{
    return json_pack("[b, b]", before, after);
}

/* ---- changes ---- */

static json_t *text_pair_json(const char *before, const char *after)
{
    return eg__json_append(eg__json_append(json_array(), eg__json_text_of(before)), eg__json_text_of(after));
}

static eg_status fill_change(json_t *o, const eg_model_change *c)
{
    static const char *const kinds[] = {"added", "removed", "modified", "moved"};
    EG_TRY(eg__json_put(o, "change", json_string(kinds[c->kind])));
    EG_TRY(eg__json_put(o, "path", eg__json_text_of(c->path)));
    if (c->was != NULL)
        EG_TRY(eg__json_put(o, "was", eg__json_text_of(c->was)));
    EG_TRY(eg__json_put(o, "before", eg__json_text_of(c->before)));
    EG_TRY(eg__json_put(o, "after", eg__json_text_of(c->after)));
    EG_TRY(eg__json_put(o, "parameters", pair_json(c->parameters_before, c->parameters_after)));
    if (c->n_attributes == 0)
        return EG_OK;
    json_t *attributes = json_object();
    EG_TRY(eg__json_put(o, "attributes", attributes));
    for (size_t i = 0; i < c->n_attributes; i++) {
        const eg_attribute_change *a = &c->attributes[i];
        EG_TRY(eg__json_put(attributes, a->name, text_pair_json(a->before, a->after)));
    }
    return EG_OK;
}

static eg_status fill_key(json_t *o, const eg_key_change *k)
{
    EG_TRY(eg__json_put(o, "fate", json_string(eg_fate_name(k->fate))));
    EG_TRY(eg__json_put(o, "kind", json_string(k->kind == EG_SLOT_PARAMETER ? "parameter" : "buffer")));
    EG_TRY(eg__json_put(o, "before", eg__json_text_of(k->before)));
    EG_TRY(eg__json_put(o, "after", eg__json_text_of(k->after)));
    if (k->before != NULL)
        EG_TRY(eg__json_put(o, "shape_before", eg__shape_json(&k->shape_before)));
    if (k->after != NULL)
        EG_TRY(eg__json_put(o, "shape_after", eg__shape_json(&k->shape_after)));
    if (k->before == NULL || k->after == NULL || k->trained_before == k->trained_after)
        return EG_OK;
    return eg__json_put(o, "trained", flag_pair_json(k->trained_before, k->trained_after));
}

/* ---- lists ---- */

typedef eg_status (*fill_fn)(json_t *object, const eg_model_diff *d, size_t i);

static eg_status fill_change_at(json_t *o, const eg_model_diff *d, size_t i)
{
    return fill_change(o, &d->changes[i].shown);
}

static eg_status fill_key_at(json_t *o, const eg_model_diff *d, size_t i)
{
    return fill_key(o, &d->keys[i]);
}

static eg_status put_list(json_t *o, const char *name, const eg_model_diff *d, fill_fn fill, size_t n)
{
    json_t *list = json_array();
    EG_TRY(eg__json_put(o, name, list));
    for (size_t i = 0; i < n; i++) {
        json_t *item = json_object();
        EG_CHECK(item != NULL && json_array_append_new(list, item) == 0, EG_ENOMEM, "out of memory: a report as JSON");
        EG_TRY(fill(item, d, i));
    }
    return EG_OK;
}

/* Names that are others in the other model. */
static eg_status put_renames(json_t *o, const char *name, const eg_model_diff *d, bool back)
{
    json_t *map = json_object();
    EG_TRY(eg__json_put(o, name, map));
    for (size_t i = 0; i < d->n_keys; i++) {
        const eg_key_change *k = &d->keys[i];
        if (k->fate != EG_FATE_KEPT || strcmp(k->before, k->after) == 0 || !eg__is_utf8(k->before) ||
            !eg__is_utf8(k->after))
            continue;
        const char *from = back ? k->after : k->before, *to = back ? k->before : k->after;
        if (json_object_get(map, from) == NULL)
            EG_TRY(eg__json_put(map, from, json_string(to)));
    }
    return EG_OK;
}

static eg_status fill_diff(json_t *o, const eg_model_diff *d)
{
    EG_TRY(eg__json_put(o, "modules", pair_json((int64_t)d->before.by_module.n, (int64_t)d->after.by_module.n)));
    EG_TRY(eg__json_put(o, "parameters", pair_json(d->before.parameters, d->after.parameters)));
    EG_TRY(eg__json_put(o, "buffers", pair_json(d->before.buffers, d->after.buffers)));
    EG_TRY(put_list(o, "changes", d, fill_change_at, d->n_changes));
    EG_TRY(put_list(o, "tensors", d, fill_key_at, d->n_keys));
    EG_TRY(put_renames(o, "new_names", d, false));
    return put_renames(o, "old_names", d, true);
}

char *eg_model_diff_json(const eg_model_diff *diff)
{
    if (diff == NULL)
        return eg__null(__func__, "difference");
    json_t *o = json_object();
    return eg__json_finish(o, o != NULL ? fill_diff(o, diff) : eg_fail(EG_ENOMEM, "out of memory: a report as JSON"));
}

/* ---- surgeries ---- */

static eg_status fill_carried(json_t *o, const eg_carried *c)
{
    EG_TRY(eg__json_put(o, "fate", json_string(eg_fate_name(c->fate))));
    EG_TRY(eg__json_put(o, "what", json_string(c->what)));
    EG_TRY(eg__json_put(o, "name", eg__json_text_of(c->name)));
    return c->detail != NULL ? eg__json_put(o, "detail", eg__json_text_of(c->detail)) : EG_OK;
}

static eg_status fill_replacement(json_t *o, const eg_model_diff *d, size_t i)
{
    const eg__fates *f = &d->fates[i];
    const eg_replaced *r = &f->replaced;
    EG_TRY(eg__json_put(o, "path", eg__json_text_of(r->path)));
    EG_TRY(eg__json_put(o, "old", eg__json_text_of(f->old_text)));
    EG_TRY(eg__json_put(o, "new", eg__json_text_of(f->fresh_text)));
    EG_TRY(eg__json_put(o, "policy", eg__json_text_of(r->policy)));
    EG_TRY(eg__json_put(o, "index", json_integer((json_int_t)r->index)));
    EG_TRY(eg__json_put(o, "of_replacement", json_boolean(r->of_replacement)));
    EG_TRY(eg__json_put(o, "committed", json_boolean(r->committed)));
    json_t *list = json_array();
    EG_TRY(eg__json_put(o, "carried", list));
    for (size_t k = 0; k < f->n; k++) {
        json_t *item = json_object();
        EG_CHECK(item != NULL && json_array_append_new(list, item) == 0, EG_ENOMEM, "out of memory: a report as JSON");
        EG_TRY(fill_carried(item, &f->items[k]));
    }
    return EG_OK;
}

static eg_status fill_surgery(json_t *o, const eg_model_diff *d, const eg_surgery *s)
{
    json_t *notes = json_array(), *difference = json_object();
    const char *note;
    for (size_t i = 0; (note = eg_surgery_note_at(s, i)) != NULL; i++)
        notes = eg__json_append(notes, eg__json_text_of(note));
    eg_status status = put_list(o, "replacements", d, fill_replacement, d->n_fates);
    if (status == EG_OK)
        status = eg__json_put(o, "notes", json_incref(notes));
    if (status == EG_OK)
        status = eg__json_put(o, "difference", json_incref(difference));
    if (status == EG_OK)
        status = fill_diff(difference, d);
    json_decref(notes);
    json_decref(difference);
    return status;
}

char *eg_surgery_json(eg_surgery *s)
{
    eg_model_diff *d = eg_surgery_diff(s);
    json_t *o = d != NULL ? json_object() : NULL;
    eg_status status = o != NULL ? fill_surgery(o, d, s) : EG_ENOMEM;
    if (d != NULL && o == NULL)
        eg_fail(EG_ENOMEM, "out of memory: a report as JSON");
    char *text = eg__json_finish(o, status);
    eg_model_diff_free(d);
    return text;
}

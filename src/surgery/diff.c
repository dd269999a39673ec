/*
 * What is different between two models: which modules stand where, and which tensors have which names.
 *
 * Modules and tensors are known by what they are, not by their names: what stands elsewhere was moved.
 */
#include "surgery/diff.h"

#include <stdlib.h>
#include <string.h>

/* ---- attributes ---- */

static const char *field_text(eg_model_diff *d, const eg_module *m, const eg_field *field)
{
    eg__buf text = {0};
    eg__field_print(m, field, &text);
    return eg__texts_add(&d->texts, eg__buf_take(&text));
}

static eg_status compare_field(eg_model_diff *d, const eg_field *field, const eg_module *a, const eg_module *b,
                               eg_attribute_change *out, size_t *n)
{
    if (field->type == EG_FIELD_MODULES || field->type == EG_FIELD_NAMED)
        return EG_OK;
    const char *before = field_text(d, a, field), *after = before != NULL ? field_text(d, b, field) : NULL;
    if (after == NULL)
        return EG_ENOMEM;
    if (strcmp(before, after) != 0)
        out[(*n)++] = (eg_attribute_change){field->name, before, after};
    return EG_OK;
}

/* The list is one of the diff's texts, so that it is freed with them. */
static eg_status compare_fields(eg_model_diff *d, const eg_module *a, const eg_module *b, eg_model_change *out)
{
    size_t n = 0;
    const eg_field *field;
    while (eg__field_at(a->cls, n) != NULL)
        n++;
    eg_attribute_change *list = eg__calloc(n + 1, sizeof(*list));
    if (eg__texts_add(&d->texts, (char *)list) == NULL)
        return EG_ENOMEM;
    out->attributes = list;
    for (size_t i = 0; (field = eg__field_at(a->cls, i)) != NULL; i++)
        EG_TRY(compare_field(d, field, a, b, list, &out->n_attributes));
    return EG_OK;
}

/* ---- modules ---- */

static eg_status add_change(eg_model_diff *d, eg_change_kind kind, const eg__item *before, const eg__item *after,
                            size_t position)
{
    EG_TRY(eg__grow(&d->changes, &d->changes_capacity, d->n_changes + 1, sizeof(*d->changes)));
    eg__change *change = &d->changes[d->n_changes];
    bool gives_way = after == NULL && eg__inventory_at(&d->after, before->path) != NULL;
    *change = (eg__change){.position = position, .rank = gives_way ? 0 : after != NULL ? 1 : 2, .number = d->n_changes};
    d->n_changes++;
    eg_model_change *shown = &change->shown;
    shown->kind = kind;
    shown->path = after != NULL ? after->path : before->path;
    shown->was = kind == EG_CHANGE_MOVED ? before->path : NULL;
    shown->before = before != NULL ? before->text : NULL;
    shown->after = after != NULL ? after->text : NULL;
    shown->parameters_before = before != NULL ? before->parameters : 0;
    shown->parameters_after = after != NULL ? after->parameters : 0;
    bool comparable = kind == EG_CHANGE_MODIFIED && before->module->cls == after->module->cls &&
                      before->same_as == NULL && after->same_as == NULL;
    return comparable ? compare_fields(d, before->module, after->module, shown) : EG_OK;
}

/* Whether the other model has the same module under the same name below the same parent, wherever that is. */
static eg_status is_implied(const eg__inventory *own, const eg__inventory *other, const eg__item *item, bool *implied)
{
    *implied = false;
    const eg__item *parent = item->parent != SIZE_MAX ? eg__inventory_of(other, own->items[item->parent].module) : NULL;
    if (parent == NULL)
        return EG_OK;
    const char *dot = strrchr(item->path, '.'), *name = dot != NULL ? dot + 1 : item->path;
    char *path = eg__format("%s%s%s", parent->path, *parent->path == '\0' ? "" : ".", name);
    if (path == NULL)
        return EG_ENOMEM;
    const eg__item *same = eg__inventory_at(other, path);
    *implied = same != NULL && same->module == item->module;
    eg_free(path);
    return EG_OK;
}

/* Not all fields are printed. */
static bool is_alike(const eg__item *a, const eg__item *b)
{
    bool comparable = a->same_as == NULL && b->same_as == NULL && a->module->cls == b->module->cls;
    return strcmp(a->text, b->text) == 0 && (!comparable || eg__fields_equal(a->module, b->module));
}

static eg_status compare_item(eg_model_diff *d, size_t i)
{
    const eg__item *after = &d->after.items[i], *here = eg__inventory_at(&d->before, after->path);
    const eg__item *was = after->same_as == NULL ? eg__inventory_of(&d->before, after->module) : NULL;
    bool implied;
    if (here != NULL && here->module == after->module)
        return EG_OK;
    EG_TRY(is_implied(&d->after, &d->before, after, &implied));
    if (implied)
        return EG_OK;
    if (was != NULL)
        return add_change(d, EG_CHANGE_MOVED, was, after, i);
    if (here == NULL)
        return add_change(d, EG_CHANGE_ADDED, NULL, after, i);
    return is_alike(here, after) ? EG_OK : add_change(d, EG_CHANGE_MODIFIED, here, after, i);
}

/* What is gone, and has no successor in its place. */
static eg_status compare_gone(eg_model_diff *d, const eg__item *before, size_t position)
{
    const eg__item *here = eg__inventory_at(&d->after, before->path);
    bool implied, moved = before->same_as == NULL && eg__inventory_of(&d->after, before->module) != NULL;
    if (moved || (here != NULL && (here->same_as != NULL || eg__inventory_of(&d->before, here->module) == NULL)))
        return EG_OK;
    if (here != NULL && here->module == before->module)
        return EG_OK;
    EG_TRY(is_implied(&d->before, &d->after, before, &implied));
    return implied ? EG_OK : add_change(d, EG_CHANGE_REMOVED, before, NULL, position);
}

static int by_position(const void *a, const void *b)
{
    const eg__change *x = a, *y = b;
    const size_t of_x[] = {x->position, x->rank, x->number}, of_y[] = {y->position, y->rank, y->number};
    size_t i = 0;
    while (i < 2 && of_x[i] == of_y[i])
        i++;
    return (of_x[i] > of_y[i]) - (of_x[i] < of_y[i]);
}

static eg_status compare_modules(eg_model_diff *d)
{
    for (size_t i = 0; i < d->after.n; i++)
        EG_TRY(compare_item(d, i));
    size_t position = 0;
    for (size_t i = 0; i < d->before.n; i++) {
        const eg__item *here = eg__inventory_at(&d->after, d->before.items[i].path);
        position = here != NULL ? (size_t)(here - d->after.items) : position;
        EG_TRY(compare_gone(d, &d->before.items[i], position));
    }
    if (d->n_changes > 0)
        qsort(d->changes, d->n_changes, sizeof(*d->changes), by_position);
    return EG_OK;
}

/* ---- tensors ---- */

/* The item of one model that is the same tensor as an item of the other: under the same name, if it has that. */
static const eg__tensor_item *same_tensor(const eg_model_diff *d, const eg__inventory *other,
                                          const eg__tensor_item *item)
{
    const eg__tensor_item *named = eg__inventory_key(other, item->key);
    if (named != NULL && named->tensor == item->tensor)
        return named;
    if (!d->by_name)
        return eg__inventory_tensor(other, item->tensor);
    bool alike = named != NULL && eg_shape_equal(named->tensor->shape, item->tensor->shape) &&
                 named->tensor->dtype == item->tensor->dtype;
    return alike ? named : NULL;
}

static eg_status add_key(eg_model_diff *d, eg_fate fate, const eg__tensor_item *before, const eg__tensor_item *after)
{
    EG_TRY(eg__grow(&d->keys, &d->keys_capacity, d->n_keys + 1, sizeof(*d->keys)));
    eg_key_change *key = &d->keys[d->n_keys++];
    *key = (eg_key_change){.fate = fate, .kind = after != NULL ? after->kind : before->kind};
    if (before != NULL) {
        key->before = before->key;
        key->shape_before = before->tensor->shape;
        key->trained_before = before->trained;
    }
    if (after != NULL) {
        key->after = after->key;
        key->shape_after = after->tensor->shape;
        key->trained_after = after->trained;
    }
    return EG_OK;
}

static eg_tensor *mapped(const eg__ptr_map *map, const eg_tensor *t)
{
    void **value = eg__ptr_map_find(map, t);
    return value != NULL ? *value : NULL;
}

/* Whether a tensor from before is in the model after, or something that was made from it. */
static bool is_used(const eg_model_diff *d, const eg__tensor_item *item)
{
    return same_tensor(d, &d->after, item) != NULL || mapped(&d->targets, item->tensor) != NULL;
}

static eg_status compare_after(eg_model_diff *d, const eg__tensor_item *item, bool *seen)
{
    const eg__tensor_item *before = same_tensor(d, &d->before, item), *named = eg__inventory_key(&d->before, item->key);
    const eg_tensor *origin = before == NULL ? mapped(&d->origins, item->tensor) : NULL;
    eg_fate fate = before != NULL ? EG_FATE_KEPT : origin != NULL ? EG_FATE_CONVERTED : EG_FATE_NEW;
    if (origin != NULL)
        before = eg__inventory_tensor(&d->before, origin);
    else if (before == NULL && named != NULL && !is_used(d, named))
        before = named; /* another has its name */
    if (before != NULL)
        seen[before - d->before.tensors] = true;
    return add_key(d, fate, before, item);
}

/* A name from before that no tensor after was told to come from. */
static eg_status compare_before(eg_model_diff *d, const eg__tensor_item *item)
{
    const eg__tensor_item *after = same_tensor(d, &d->after, item);
    if (after != NULL)
        return add_key(d, EG_FATE_KEPT, item, after);
    const eg_tensor *target = mapped(&d->targets, item->tensor);
    return target != NULL ? add_key(d, EG_FATE_CONVERTED, item, eg__inventory_tensor(&d->after, target))
                          : add_key(d, EG_FATE_DROPPED, item, NULL);
}

static eg_status compare_tensors(eg_model_diff *d)
{
    eg_status status = EG_OK;
    bool *seen = eg__calloc(d->before.n_tensors + 1, sizeof(*seen));
    if (seen == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < d->after.n_tensors && status == EG_OK; i++)
        status = compare_after(d, &d->after.tensors[i], seen);
    for (size_t i = 0; i < d->before.n_tensors && status == EG_OK; i++) {
        if (!seen[i])
            status = compare_before(d, &d->before.tensors[i]);
    }
    free(seen);
    return status;
}

/* ---- where tensors come from ---- */

static eg_status find_origins(eg_model_diff *d, const eg_surgery *s)
{
    for (size_t i = 0; i < s->n_derivations; i++) {
        const eg__derivation *made = &s->derivations[i];
        eg_tensor *origin = NULL;
        for (size_t k = 0; k < made->n && origin == NULL; k++)
            origin = eg__inventory_tensor(&d->before, made->from[k]) != NULL ? made->from[k]
                                                                             : mapped(&d->origins, made->from[k]);
        if (origin != NULL)
            EG_TRY(eg__ptr_map_put(&d->origins, made->fresh, origin));
    }
    for (size_t i = s->n_derivations; i-- > 0;) { /* what comes last is in the model */
        const eg__derivation *made = &s->derivations[i];
        eg_tensor *target =
            eg__inventory_tensor(&d->after, made->fresh) != NULL ? made->fresh : mapped(&d->targets, made->fresh);
        for (size_t k = 0; k < made->n && target != NULL; k++)
            EG_TRY(eg__ptr_map_put(&d->targets, made->from[k], target));
    }
    return EG_OK;
}

/* ---- making one ---- */

static bool share_tensors(const eg_model_diff *d)
{
    for (size_t i = 0; i < d->after.n_tensors; i++) {
        if (eg__inventory_tensor(&d->before, d->after.tensors[i].tensor) != NULL)
            return true;
    }
    return false;
}

static eg_status compare(eg_model_diff *d)
{
    EG_TRY(compare_modules(d));
    return compare_tensors(d);
}

static eg_model_diff *finish(eg_model_diff *d, eg_status status)
{
    if (status == EG_OK)
        return d;
    eg_model_diff_free(d);
    return NULL;
}

eg_model_diff *eg_model_diff_new(eg_module *before, eg_module *after)
{
    if (before == NULL || after == NULL)
        return eg__null(__func__, before == NULL ? "model before" : "model after");
    eg_model_diff *d = eg__calloc(1, sizeof(*d));
    if (d == NULL)
        return NULL;
    eg_status status = eg__inventory_take(&d->before, before);
    if (status == EG_OK)
        status = eg__inventory_take(&d->after, after);
    d->by_name = !share_tensors(d);
    return finish(d, status == EG_OK ? compare(d) : status);
}

static eg_status take_before(void *payload, eg_module *root)
{
    return eg__inventory_take(&((eg_model_diff *)payload)->before, root);
}

/* The surgery and the diff of it. */
typedef struct looking {
    eg_surgery *s;
    eg_model_diff *d;
} looking;

static eg_status take_after(void *payload, eg_module *root)
{
    const looking *l = payload;
    EG_TRY(eg__inventory_take(&l->d->after, root));
    EG_TRY(find_origins(l->d, l->s));
    EG_TRY(compare(l->d));
    return eg__diff_find_fates(l->d, l->s);
}

eg_model_diff *eg_surgery_diff(eg_surgery *s)
{
    if (s == NULL)
        return eg__null(__func__, "surgery");
    eg_model_diff *d = eg__calloc(1, sizeof(*d));
    if (d == NULL)
        return NULL;
    eg_status status = eg__surgery_look_back(s, take_before, d);
    if (status == EG_OK)
        status = eg_surgery_look(s, take_after, &(looking){s, d});
    return finish(d, status);
}

void eg_model_diff_free(eg_model_diff *diff)
{
    if (diff == NULL)
        return;
    eg__inventory_free(&diff->before);
    eg__inventory_free(&diff->after);
    eg__ptr_map_free(&diff->origins);
    eg__ptr_map_free(&diff->targets);
    for (size_t i = 0; i < diff->n_fates; i++)
        free(diff->fates[i].items);
    free(diff->fates);
    free(diff->changes);
    free(diff->keys);
    eg__texts_free(&diff->texts);
    free(diff);
}

/* ---- reading one ---- */

static bool is_in(const eg_model_diff *diff, size_t i, size_t n, const char *function, const char *what)
{
    if (diff == NULL)
        eg__null(function, "difference");
    else if (i >= n)
        eg_fail(EG_EINVAL, "no %s number %zu, the difference has %zu", what, i, n);
    return diff != NULL && i < n;
}

size_t eg_model_diff_size(const eg_model_diff *diff)
{
    return diff != NULL ? diff->n_changes : 0;
}

const eg_model_change *eg_model_diff_at(const eg_model_diff *diff, size_t i)
{
    return is_in(diff, i, eg_model_diff_size(diff), __func__, "change") ? &diff->changes[i].shown : NULL;
}

size_t eg_model_diff_n_keys(const eg_model_diff *diff)
{
    return diff != NULL ? diff->n_keys : 0;
}

const eg_key_change *eg_model_diff_key_at(const eg_model_diff *diff, size_t i)
{
    return is_in(diff, i, eg_model_diff_n_keys(diff), __func__, "tensor") ? &diff->keys[i] : NULL;
}

size_t eg_model_diff_n_carried(const eg_model_diff *diff, size_t i)
{
    return diff != NULL && i < diff->n_fates ? diff->fates[i].n : 0;
}

const eg_carried *eg_model_diff_carried_at(const eg_model_diff *diff, size_t i, size_t k)
{
    if (!is_in(diff, i, diff != NULL ? diff->n_fates : 0, __func__, "replacement"))
        return NULL;
    return is_in(diff, k, diff->fates[i].n, __func__, "thing carried over") ? &diff->fates[i].items[k] : NULL;
}

/* ---- state dicts under other names ---- */

/* NULL: the tensor is not the same in the other model. */
static const char *other_name(const eg_model_diff *d, const char *key, bool back, bool *known)
{
    const eg__inventory *own = back ? &d->after : &d->before, *other = back ? &d->before : &d->after;
    const eg__tensor_item *item = eg__inventory_key(own, key);
    *known = item != NULL || eg__inventory_key(other, key) != NULL;
    const eg__tensor_item *same = item != NULL ? same_tensor(d, other, item) : NULL;
    return same != NULL ? same->key : NULL;
}

static eg_status rename_one(const eg_model_diff *d, const char *prefix, bool back, const char *name, eg_tensor *t,
                            eg_state *out)
{
    size_t len = strlen(prefix);
    bool known = false, ours = strncmp(name, prefix, len) == 0;
    const char *other = ours ? other_name(d, name + len, back, &known) : NULL;
    if (!known)
        return eg_state_put(out, name, t);
    if (other == NULL)
        return EG_OK;
    char *text = eg__format("%s%s", prefix, other);
    eg_status status = text != NULL ? eg_state_put(out, text, t) : EG_ENOMEM;
    eg_free(text);
    return status;
}

/* Every name of a tensor that has several in the other model: a checkpoint has it under each. */
static eg_status put_other_names(const eg_model_diff *d, const eg_state *in, const char *prefix, bool back,
                                 eg_state *out)
{
    const eg__inventory *own = back ? &d->after : &d->before, *other = back ? &d->before : &d->after;
    for (size_t i = 0; i < other->n_tensors; i++) {
        const eg__tensor_item *item = &other->tensors[i], *same = same_tensor(d, own, item);
        char *from = same != NULL ? eg__format("%s%s", prefix, same->key) : NULL;
        char *to = from != NULL ? eg__format("%s%s", prefix, item->key) : NULL;
        eg_tensor *t = to != NULL ? eg_state_get(in, from) : NULL;
        eg_status status = same != NULL && to == NULL ? EG_ENOMEM : EG_OK;
        if (t != NULL && eg_state_get(out, to) == NULL)
            status = eg_state_put(out, to, t);
        eg_free(from);
        eg_free(to);
        EG_TRY(status);
    }
    return EG_OK;
}

eg_status eg_model_diff_rename(const eg_model_diff *diff, const eg_state *in, const char *prefix, bool back,
                               eg_state *out)
{
    EG_CHECK(diff != NULL && in != NULL && out != NULL && in != out, EG_EINVAL,
             "the difference or a state is NULL, or the two states are one");
    const char *before_names = prefix != NULL ? prefix : "";
    for (size_t i = 0; i < eg_state_size(in); i++) {
        const char *name;
        eg_tensor *t = eg_state_at(in, i, &name);
        EG_TRY(rename_one(diff, before_names, back, name, t, out));
    }
    return put_other_names(diff, in, before_names, back, out);
}

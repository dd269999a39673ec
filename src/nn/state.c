/*
 * State dicts: named tensors, taken from a model and put into one.
 */
#include "nn/internal.h"

#include <stdlib.h>
#include <string.h>

struct eg_state {
    eg__map tensors; /* name -> eg_tensor *, kept */
};

eg_state *eg_state_new(void)
{
    return eg__calloc(1, sizeof(eg_state));
}

void eg_state_free(eg_state *state)
{
    if (state == NULL)
        return;
    for (size_t i = 0; i < state->tensors.n; i++)
        eg_tensor_release(state->tensors.entries[i].value);
    eg__map_free(&state->tensors);
    free(state);
}

eg_status eg_state_put(eg_state *state, const char *name, eg_tensor *t)
{
    EG_CHECK(state != NULL && name != NULL, EG_EINVAL, "state or name is NULL");
    if (t == NULL) {
        eg__null(__func__, "tensor");
        return eg_error_last()->code;
    }
    EG_CHECK(!eg_is_none(t) && !eg_tensor_is_tuple(t), EG_EINVAL, "'%s' is not a plain tensor", name);
    eg_tensor *old = eg__map_get(&state->tensors, name);
    EG_TRY(eg__map_put(&state->tensors, name, t));
    eg_tensor_keep(t);
    eg_tensor_release(old);
    return EG_OK;
}

eg_tensor *eg_state_get(const eg_state *state, const char *name)
{
    return state == NULL || name == NULL ? NULL : eg__map_get(&state->tensors, name);
}

size_t eg_state_size(const eg_state *state)
{
    return state == NULL ? 0 : state->tensors.n;
}

eg_tensor *eg_state_at(const eg_state *state, size_t i, const char **name)
{
    if (state == NULL)
        return eg__null(__func__, "state");
    if (i >= state->tensors.n) {
        eg_fail(EG_EINVAL, "no tensor number %zu, the state has %zu", i, state->tensors.n);
        return NULL;
    }
    if (name != NULL)
        *name = state->tensors.entries[i].key;
    return state->tensors.entries[i].value;
}

/* ---- from a model ---- */

typedef struct collect {
    const char *prefix;
    eg_state *state;
} collect;

static eg_status collect_tensor(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    collect *c = payload;
    (void)kind;
    char *name = eg__format("%s%s", c->prefix, path);
    if (name == NULL)
        return EG_ENOMEM;
    eg_status status = eg_state_put(c->state, name, t);
    free(name);
    return status;
}

eg_status eg_module_state(eg_module *m, const char *prefix, eg_state *state)
{
    EG_CHECK(state != NULL, EG_EINVAL, "state is NULL");
    collect c = {.prefix = prefix == NULL ? "" : prefix, .state = state};
    return eg_module_walk_tensors(m, collect_tensor, &c);
}

/* ---- into a model ---- */

enum { LISTED = 5 };

/* Names for a message, the first five and the number of the others. */
typedef struct name_list {
    eg__buf text;
    size_t n;
} name_list;

static void list_name(name_list *list, const char *name)
{
    if (list->n++ < LISTED)
        eg__buf_printf(&list->text, "%s'%s'", list->n == 1 ? "" : ", ", name);
}

static const char *list_text(name_list *list)
{
    if (list->n > LISTED)
        eg__buf_printf(&list->text, " and %zu more", list->n - LISTED);
    return list->text.data == NULL ? "" : list->text.data;
}

/* Compares the tensors that the model has with those given: missing and left over. */
static eg_status compare_names(const eg_state *wanted, const eg_state *given, const char *prefix)
{
    name_list missing = {0}, unexpected = {0};
    for (size_t i = 0; i < wanted->tensors.n; i++) {
        const char *name = wanted->tensors.entries[i].key;
        if (eg_state_get(given, name) == NULL)
            list_name(&missing, name);
    }
    for (size_t i = 0; i < given->tensors.n; i++) {
        const char *name = given->tensors.entries[i].key;
        if (strncmp(name, prefix, strlen(prefix)) == 0 && eg_state_get(wanted, name) == NULL)
            list_name(&unexpected, name);
    }
    eg_status status = EG_OK;
    if (missing.n > 0 && unexpected.n > 0)
        status = eg_fail(EG_ENOENT, "missing from the state: %s; not in the model: %s", list_text(&missing),
                         list_text(&unexpected));
    else if (missing.n > 0)
        status = eg_fail(EG_ENOENT, "missing from the state: %s", list_text(&missing));
    else if (unexpected.n > 0)
        status = eg_fail(EG_ENOENT, "not in the model: %s", list_text(&unexpected));
    eg__buf_free(&missing.text);
    eg__buf_free(&unexpected.text);
    return status;
}

static eg_status check_tensor(const char *name, const eg_tensor *have, const eg_tensor *want)
{
    char text[2][EG_SHAPE_TEXT_SIZE];
    eg_shape a = eg_tensor_shape(have), b = eg_tensor_shape(want);
    EG_CHECK(eg_shape_equal(a, b), EG_ESHAPE, "'%s' has shape %s, the model expects %s", name,
             eg_shape_format(a, text[0], sizeof(text[0])), eg_shape_format(b, text[1], sizeof(text[1])));
    EG_CHECK(!eg_tensor_is_shape_only(have) && !eg_tensor_is_shape_only(want), EG_EINVAL, "'%s' has no numbers", name);
    return EG_OK;
}

static eg_status load(const eg_state *wanted, const eg_state *given, const char *prefix, bool strict)
{
    if (strict)
        EG_TRY(compare_names(wanted, given, prefix));
    for (size_t i = 0; i < wanted->tensors.n; i++) {
        const struct eg__map_entry *entry = &wanted->tensors.entries[i];
        const eg_tensor *have = eg_state_get(given, entry->key);
        if (have != NULL)
            EG_TRY(check_tensor(entry->key, have, entry->value));
    }
    for (size_t i = 0; i < wanted->tensors.n; i++) {
        const struct eg__map_entry *entry = &wanted->tensors.entries[i];
        const eg_tensor *have = eg_state_get(given, entry->key);
        if (have != NULL && have != entry->value)
            EG_TRY(eg_tensor_assign(entry->value, have));
    }
    return EG_OK;
}

eg_status eg_module_load_state(eg_module *m, const char *prefix, const eg_state *state, bool strict)
{
    EG_CHECK(state != NULL, EG_EINVAL, "state is NULL");
    eg_state *wanted = eg_state_new();
    if (wanted == NULL)
        return EG_ENOMEM;
    eg_status status = eg_module_state(m, prefix, wanted);
    if (status == EG_OK)
        status = load(wanted, state, prefix == NULL ? "" : prefix, strict);
    eg_state_free(wanted);
    return status;
}

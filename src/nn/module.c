/*
 * Modules made and ended, and the class records they are made from.
 */
#include "nn/internal.h"

#include <stdlib.h>
#include <string.h>

static eg_tensor *no_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)in;
    (void)n_in;
    eg_fail(EG_EUNSUPPORTED, "%s has no forward function; call its children", self->cls->name);
    return NULL;
}

const eg_class eg_module_class = {
    .struct_size = sizeof(eg_class),
    .name = "Module",
    .instance_size = sizeof(eg_module),
    .forward = no_forward,
};

/* ---- what a class inherits ---- */

static const eg_class *super_of(const eg_class *cls)
{
    if (cls->super != NULL)
        return cls->super;
    return cls == &eg_module_class ? NULL : &eg_module_class;
}

eg__forward_fn eg__class_forward(const eg_class *cls)
{
    while (cls->forward == NULL)
        cls = super_of(cls);
    return cls->forward;
}

bool eg__class_is_container(const eg_class *cls)
{
    return eg__class_forward(cls) == no_forward;
}

size_t eg__class_n_inputs(const eg_class *cls)
{
    for (; cls != NULL; cls = super_of(cls)) {
        if (cls->n_inputs != 0)
            return cls->n_inputs;
    }
    return 1;
}

bool eg_is_a(const eg_module *m, const eg_class *cls)
{
    if (m == NULL)
        return false;
    for (const eg_class *c = m->cls; c != NULL; c = super_of(c)) {
        if (c == cls)
            return true;
    }
    return false;
}

void *eg_module_cast(eg_module *m, const eg_class *cls)
{
    if (m == NULL || cls == NULL)
        return eg__null(__func__, m == NULL ? "module" : "class");
    if (!eg_is_a(m, cls)) {
        eg_fail(EG_EINVAL, "module is a %s, expected a %s", m->cls->name, cls->name);
        return NULL;
    }
    return m;
}

/* ---- making one ---- */

static eg_status check_class(const eg_class *cls)
{
    for (const eg_class *c = cls; c != NULL; c = super_of(c)) {
        EG_CHECK(c->struct_size >= offsetof(eg_class, describe) && c->name != NULL, EG_EINVAL,
                 "class record is incomplete; define it with EG_CLASS");
        EG_CHECK(c->instance_size >= sizeof(eg_module) && c->instance_size <= cls->instance_size, EG_EINVAL,
                 "class %s: its struct is smaller than that of its super class", cls->name);
    }
    return EG_OK;
}

/* The struct with the prototype's fields and a fresh head; its texts and lists still belong to the prototype. */
static eg_module *instantiate(const eg_class *cls, size_t size, const void *prototype)
{
    eg__nn_state *state = eg__nn_state_of(((const eg_module *)prototype)->ctx);
    eg_module *m = state != NULL ? eg__calloc(1, cls->instance_size) : NULL;
    if (m == NULL)
        return NULL;
    state->n_made++;
    memcpy(m, prototype, EG_MIN(size, cls->instance_size));
    *m = (eg_module){.cls = cls, .refs = 1, .training = true, .ctx = m->ctx};
    return m;
}

/* The lists of children in a prototype, as its struct holds them. */
typedef struct child_list {
    eg_module *const *modules; /* one of the two */
    const eg_named_module *named;
    size_t n;
} child_list;

static child_list list_at(const void *instance, const eg_field *field)
{
    child_list list = {0};
    const char *base = instance;
    memcpy(&list.n, base + field->count_offset, sizeof(list.n));
    if (field->type == EG_FIELD_MODULES)
        memcpy(&list.modules, base + field->offset, sizeof(list.modules));
    else
        memcpy(&list.named, base + field->offset, sizeof(list.named));
    if (list.modules == NULL && list.named == NULL)
        list.n = 0;
    return list;
}

static bool is_list(const eg_field *field)
{
    return field->type == EG_FIELD_MODULES || field->type == EG_FIELD_NAMED;
}

static eg_module *list_child(const child_list *list, size_t i)
{
    return list->named != NULL ? list->named[i].module : list->modules[i];
}

/* Ends a prototype's children: what was given is taken over also by a construction that fails. */
static void release_lists(const eg_class *cls, size_t size, const void *prototype)
{
    const eg_field *field;
    for (size_t i = 0; (field = eg__field_at(cls, i)) != NULL; i++) {
        if (!is_list(field) || EG_MAX(field->offset, field->count_offset) + sizeof(void *) > size)
            continue;
        child_list list = list_at(prototype, field);
        for (size_t k = 0; k < list.n; k++)
            eg_module_release(list_child(&list, k));
    }
}

static void adopt_list(eg_module *m, const child_list *list)
{
    for (size_t k = 0; k < list->n; k++) {
        char number[24];
        snprintf(number, sizeof(number), "%zu", k);
        eg_module_add_child(m, list->named != NULL ? list->named[k].name : number, NULL, list_child(list, k));
    }
}

/* Moves the children of the lists into slots; a failure is found in the module's status. */
static eg_status adopt_lists(eg_module *m)
{
    const eg_field *field;
    for (size_t i = 0; (field = eg__field_at(m->cls, i)) != NULL; i++) {
        if (!is_list(field))
            continue;
        child_list list = list_at(m, field);
        memset((char *)m + field->offset, 0, sizeof(void *));
        memset((char *)m + field->count_offset, 0, sizeof(size_t));
        adopt_list(m, &list);
    }
    return m->status;
}

/* A scope of its own: the parameters that build makes are held by their slots alone. */
static eg_status build(eg_module *m)
{
    const eg_class *c = m->cls;
    while (c != NULL && c->build == NULL)
        c = super_of(c);
    if (c == NULL)
        return EG_OK;
    size_t mark = eg__scope_enter(m->ctx);
    eg_status status = mark != SIZE_MAX ? c->build(m) : EG_ENOMEM;
    eg__scope_leave(m->ctx, mark, NULL);
    return status;
}

/* Frees a module that has no slots any more. One that was not built yet may still hold the caller's pointers: its class
 * must not see it. */
static void free_module(eg_module *m, bool built)
{
    if (m->free_extension != NULL)
        m->free_extension(m->extension);
    const eg_class *c = m->cls;
    while (c != NULL && c->finalize == NULL)
        c = super_of(c);
    if (built && c != NULL)
        c->finalize(m);
    eg__fields_free(m);
    eg__reparams_free(m);
    eg__open_free(m);
    free(m->hooks);
    free(m->name);
    free(m);
}

/* Ends m and what nothing else holds, children first: slots end before finalize, which may free what their fields lie
 * in. Without recursion, since a chain of modules may be longer than the C stack: what is to end is linked. */
static void destroy(eg_module *m, bool built)
{
    eg_module *dead = m;
    while (dead != NULL) {
        eg_module *next = dead;
        if (next->slots != NULL) {
            eg__slots_free(next, &dead);
            continue;
        }
        dead = next->link;
        free_module(next, built || next != m);
    }
}

eg_module *eg_module_new(const eg_class *cls, size_t size, const void *prototype)
{
    if (cls == NULL || prototype == NULL || size < sizeof(eg_module)) {
        eg_fail(EG_EINVAL, "class or prototype is missing; make modules with eg_new");
        return NULL;
    }
    eg_module *m = NULL;
    if (((const eg_module *)prototype)->ctx == NULL)
        eg__null(cls->name, "context");
    else if (check_class(cls) == EG_OK)
        m = instantiate(cls, size, prototype);
    if (m == NULL) {
        release_lists(cls, size, prototype);
        return NULL;
    }
    eg_status status = eg__fields_init(m);
    if (status != EG_OK)
        release_lists(cls, size, prototype);
    else
        status = adopt_lists(m);
    bool built = status == EG_OK;
    if (built)
        status = build(m);
    if (status == EG_OK)
        status = m->status;
    if (status == EG_OK)
        return m;
    destroy(m, built);
    return NULL;
}

/* ---- references ---- */

eg_module *eg_module_retain(eg_module *m)
{
    if (m != NULL)
        m->refs++;
    return m;
}

void eg_module_release(eg_module *m)
{
    if (m != NULL && --m->refs == 0)
        destroy(m, true);
}

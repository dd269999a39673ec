/*
 * Running modules: scopes, the path for messages, hooks.
 */
#include "nn/internal.h"

#include <stdlib.h>
#include <string.h>

static void free_state(eg_context *ctx, void *memory)
{
    (void)ctx;
    eg__nn_state *state = memory;
    for (size_t i = 0; i < state->n_open_values; i++)
        eg_module_release(state->open_values[i]);
    free(state->open_values);
}

eg__nn_state *eg__nn_state_of(eg_context *ctx)
{
    return eg__context_slot(ctx, EG__SLOT_NN, sizeof(eg__nn_state), free_state);
}

/* ---- the path ---- */

enum { NAME_SIZE = 256 };

/* The name by which `parent` knows m: "conv", or "layers.0" where a module list stands between. */
static bool find_name(eg_module *parent, const eg_module *m, char *text, size_t size)
{
    for (size_t i = 0; i < parent->n_slots; i++) {
        if (parent->slots[i].kind != EG_SLOT_CHILD)
            continue;
        eg_module *child = *eg__slot_child(&parent->slots[i]);
        if (child != m && (child == NULL || !eg__class_is_container(child->cls)))
            continue;
        int length = snprintf(text, size, "%s", parent->slots[i].name);
        if (child == m)
            return true;
        if (length < 0 || (size_t)length + 1 >= size)
            continue;
        text[length] = '.';
        if (find_name(child, m, text + length + 1, size - (size_t)length - 1))
            return true;
    }
    return false;
}

/* A module that its caller does not hold goes by the name it has elsewhere. The first one called is the root. */
static eg_status push(eg__nn_state *state, const eg_module *m)
{
    char name[NAME_SIZE] = "";
    if (state->running != NULL && state->running != m && !find_name(state->running, m, name, sizeof(name)))
        snprintf(name, sizeof(name), "%s", m->name != NULL ? m->name : m->cls->name);
    return eg__call_push(m->ctx, name);
}

/* ---- hooks ---- */

/* Runs the hooks of one side over t. NULL on failure. */
static eg_tensor *run_hooks(eg_module *m, bool before, eg_tensor *t)
{
    for (size_t i = 0; i < m->n_hooks; i++) {
        eg_hook hook = m->hooks[i];
        if (hook.before != before)
            continue;
        bool failed = false;
        eg_tensor *replacement = hook.fn(hook.payload, m, t, &failed);
        if (failed) {
            if (eg_error_last()->code == EG_OK)
                eg_fail(EG_EINTERNAL, "%s: a hook failed without a message", m->cls->name);
            return NULL;
        }
        if (replacement != NULL)
            t = replacement;
    }
    return t;
}

static eg_status add_hook(eg_module *m, eg_hook_fn fn, void *payload, bool before, uint64_t *id)
{
    EG_CHECK(m != NULL && fn != NULL, EG_EINVAL, "module or function is NULL");
    eg__nn_state *state = eg__nn_state_of(m->ctx);
    if (state == NULL)
        return EG_ENOMEM;
    EG_TRY(eg__grow(&m->hooks, &m->hooks_capacity, m->n_hooks + 1, sizeof(*m->hooks)));
    m->hooks[m->n_hooks++] = (eg_hook){.id = ++state->last_hook, .fn = fn, .payload = payload, .before = before};
    if (id != NULL)
        *id = state->last_hook;
    return EG_OK;
}

eg_status eg_module_add_pre_hook(eg_module *m, eg_hook_fn fn, void *payload, uint64_t *id)
{
    return add_hook(m, fn, payload, true, id);
}

eg_status eg_module_add_hook(eg_module *m, eg_hook_fn fn, void *payload, uint64_t *id)
{
    return add_hook(m, fn, payload, false, id);
}

eg_status eg_module_remove_hook(eg_module *m, uint64_t id)
{
    EG_CHECK(m != NULL, EG_EINVAL, "module is NULL");
    for (size_t i = 0; i < m->n_hooks; i++) {
        if (m->hooks[i].id != id)
            continue;
        memmove(&m->hooks[i], &m->hooks[i + 1], (m->n_hooks - i - 1) * sizeof(*m->hooks));
        m->n_hooks--;
        return EG_OK;
    }
    return eg_fail(EG_ENOENT, "%s has no hook number %llu", m->cls->name, (unsigned long long)id);
}

/* ---- calls ---- */

/* The nearest enter or leave function of the class and its super classes, run where there is one. */
static eg_status run_around(eg_module *m, bool before)
{
    for (const eg_class *c = m->cls; c != NULL; c = c->super) {
        eg_status (*fn)(eg_module *) = before ? c->enter : c->leave;
        if (fn != NULL)
            return fn(m);
    }
    return EG_OK;
}

/* Open fields get the values in force. */
static eg_status narrow(eg_module *m, bool shapes, eg__narrowed *narrowed)
{
    eg_status status = eg__open_narrow(m, NULL, NULL, shapes ? EG__NARROW_SHAPES : EG__NARROW_PARTS, narrowed);
    if (status != EG_OK)
        return eg__op_fail(status, m->cls->name, eg__call_path(m->ctx));
    eg__open_enter(m, narrowed);
    return EG_OK;
}

static eg_tensor *run_forward(eg_module *m, eg__forward_fn forward, eg_tensor *const *in, size_t n_in)
{
    bool shapes = n_in > 0 && eg_tensor_is_shape_only(in[0]);
    eg__narrowed narrowed = {0};
    eg_status status = run_around(m, true);
    if (status == EG_OK && m->n_reparams > 0)
        status = eg__reparams_compute(m, m->training && !eg__is_repeating(m->ctx) && !shapes);
    if (status == EG_OK && m->open != NULL)
        status = narrow(m, shapes, &narrowed);
    eg_tensor *out = status == EG_OK ? forward(m, in, n_in) : NULL;
    eg__open_leave(m, &narrowed);
    eg__reparams_clear(m);
    if (run_around(m, false) != EG_OK)
        return NULL;
    if (out == NULL && eg_error_last()->code == EG_OK)
        eg_fail(EG_EINTERNAL, "%s: forward returned NULL without a failure", m->cls->name);
    return out == NULL ? NULL : run_hooks(m, false, out);
}

static eg_tensor *run(eg_module *m, eg__forward_fn forward, eg_tensor *const *in, size_t n_in)
{
    size_t takes = eg__class_n_inputs(m->cls);
    if (takes != EG_ANY_INPUTS && takes != n_in) {
        eg_status status = eg_fail(EG_EINVAL, "got %zu inputs, expected %zu", n_in, takes);
        eg__op_fail(status, m->cls->name, eg__call_path(m->ctx));
        return NULL;
    }
    eg_tensor *first = n_in == 0 ? NULL : run_hooks(m, true, in[0]);
    if (n_in > 0 && first == NULL)
        return NULL;
    if (n_in == 0 || first == in[0])
        return run_forward(m, forward, in, n_in);
    eg_tensor **replaced = eg__calloc(n_in, sizeof(eg_tensor *));
    if (replaced == NULL)
        return NULL;
    memcpy(replaced, in, n_in * sizeof(eg_tensor *));
    replaced[0] = first;
    eg_tensor *out = run_forward(m, forward, replaced, n_in);
    free(replaced);
    return out;
}

/* ---- precision ---- */

/* Casts t, or the items of a tuple, if of type `from`. NULL on failure. */
static eg_tensor *cast_value(eg_tensor *t, eg_dtype from, eg_dtype to)
{
    if (t->kind == EG__DENSE)
        return t->storage != NULL && t->dtype == from ? eg_cast(t, to) : t;
    if (t->kind == EG__NONE)
        return t;
    eg_tensor **items = eg__calloc(t->n_items, sizeof(*items)), *tuple = NULL;
    size_t n = 0;
    while (items != NULL && n < t->n_items && (items[n] = cast_value(t->items[n], from, to)) != NULL)
        n++;
    if (items != NULL && n == t->n_items)
        tuple = eg_tuple(t->ctx, items, n);
    free(items);
    return tuple;
}

/* The outermost call, in a context whose activations are bfloat16: they begin and end here. */
static eg_tensor *run_cast(eg_module *m, eg__forward_fn forward, eg_tensor *const *in, size_t n_in)
{
    eg_tensor **cast = eg__calloc(n_in, sizeof(*cast)), *out = NULL;
    size_t n = 0;
    while (cast != NULL && n < n_in && (cast[n] = cast_value(in[n], EG_F32, EG_BF16)) != NULL)
        n++;
    if (cast != NULL && n == n_in)
        out = run(m, forward, cast, n_in);
    free(cast);
    return out == NULL ? NULL : cast_value(out, EG_BF16, EG_F32);
}

/* Ends the call's scope. What is returned belongs to the scope of the caller, whoever held it before: it may be an item
 * of a tuple that ends here. Inputs are the caller's already. */
static eg_tensor *leave(eg_context *ctx, size_t mark, eg_tensor *out, eg_tensor *const *in, size_t n_in)
{
    bool callers = out == NULL || eg_is_none(out);
    for (size_t i = 0; i < n_in && !callers; i++)
        callers = in[i] == out;
    if (!callers)
        eg_tensor_keep(out);
    eg__scope_leave(ctx, mark, NULL);
    return callers ? out : eg__scope_add(out);
}

/* Ends what forward left open. Its result would be recorded where nobody looks, if it lived at all. When it failed, the
 * cause stands. */
static eg_tensor *close_tapes(eg_module *m, uint64_t last_tape, eg_tensor *out)
{
    if (!eg__tapes_close_after(m->ctx, last_tape) || out == NULL)
        return out;
    const char *path = eg__call_path(m->ctx);
    eg_fail(EG_EINVAL, "module '%s' left a tape open", path[0] ? path : m->cls->name);
    return NULL;
}

/* There is no module to tell the context, so it is asked of the inputs which forward made the call. NULL. */
static eg_tensor *no_module(eg_tensor *const *in, size_t n_in)
{
    eg_context *ctx = NULL;
    for (size_t i = 0; in != NULL && i < n_in && ctx == NULL; i++)
        ctx = in[i] == NULL ? NULL : in[i]->ctx;
    eg__nn_state *state = ctx == NULL ? NULL : eg__nn_state_of(ctx);
    eg_module *caller = state == NULL ? NULL : state->running;
    if (caller == NULL || eg_error_last()->code != EG_OK)
        return eg__null("eg_call", "module");
    const char *path = eg__call_path(ctx);
    eg_fail_at("eg_call", EG_EINVAL, "eg_call in forward of '%s': module is NULL", path[0] ? path : caller->cls->name);
    return NULL;
}

eg_tensor *eg__module_call_with(eg_module *m, eg__forward_fn forward, eg_tensor *const *in, size_t n_in)
{
    if (m == NULL)
        return no_module(in, n_in);
    if (in == NULL && n_in > 0)
        return eg__null(m->cls->name, "the list of inputs");
    for (size_t i = 0; i < n_in; i++) {
        if (in[i] == NULL)
            return eg__null(m->cls->name, "an input");
    }
    eg__nn_state *state = eg__nn_state_of(m->ctx);
    size_t mark = state == NULL ? SIZE_MAX : eg__scope_enter(m->ctx);
    if (mark == SIZE_MAX)
        return NULL;
    eg_context *ctx = m->ctx;
    eg_module *caller = state->running;
    eg_tensor *out = NULL;
    eg_module_retain(m); /* it may be replaced while it runs */
    if (push(state, m) == EG_OK) {
        state->running = m;
        uint64_t last_tape = eg__tape_last(ctx);
        bool casts = caller == NULL && eg_context_precision(ctx) == EG_BF16 && eg__is_outermost(ctx);
        out = close_tapes(m, last_tape, (casts ? run_cast : run)(m, forward, in, n_in));
        state->running = caller;
        eg__call_pop(ctx);
    }
    out = leave(ctx, mark, out, in, n_in);
    eg_module_release(m);
    return out;
}

eg_tensor *eg_module_call(eg_module *m, eg_tensor *const *in, size_t n_in)
{
    if (m == NULL)
        return no_module(in, n_in);
    return eg__module_call_with(m, eg__class_forward(m->cls), in, n_in);
}

/*
 * A surgery made and ended, and what can be asked of it.
 */
#include "surgery/internal.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- making one ---- */

static eg_status check_options(const eg_surgery_options *o)
{
    EG_CHECK(o->root == NULL || *o->root == o->model, EG_EINVAL, ".root does not hold the model");
    for (size_t i = 0; i < o->optimizers.n; i++) {
        const eg_optimizer *optimizer = o->optimizers.items[i];
        EG_CHECK(optimizer != NULL, EG_EINVAL, "optimizer %zu is NULL", i);
        EG_CHECK(optimizer->ctx == o->model->ctx, EG_EINVAL, "optimizer %zu is of another context than the model", i);
        for (size_t k = 0; k < i; k++)
            EG_CHECK(o->optimizers.items[k] != optimizer, EG_EINVAL, "optimizer %zu is listed twice", i);
    }
    EG_CHECK(o->inputs.n > 0 || !(o->any_batch || o->in_order_of_execution), EG_EINVAL,
             "%s has to run the model: give the surgery .inputs", o->any_batch ? "any_batch" : "in_order_of_execution");
    for (size_t i = 0; i < o->references.n; i++)
        EG_CHECK(o->references.items[i] != NULL, EG_EINVAL, "reference %zu is NULL", i);
    return EG_OK;
}

/* A copy of a list; NULL on failure. */
static void *copy_list(const void *items, size_t n, size_t size)
{
    void *copy = eg__calloc(n + 1, size);
    if (copy != NULL && n > 0)
        memcpy(copy, items, n * size);
    return copy;
}

static bool is_listed(const eg_surgery *s, eg_module **place)
{
    size_t i = 0;
    while (i < s->n_places && s->places[i] != place)
        i++;
    return i < s->n_places;
}

static eg_status fill(eg_surgery *s, const eg_surgery_options *o)
{
    bool held = o->root != NULL;
    s->ctx = o->model->ctx;
    s->root = eg_module_retain(o->model);
    s->root_is_held = held;
    s->without = o->without;
    s->snapshot = o->snapshot;
    s->any_batch = o->any_batch;
    s->in_order_of_execution = o->in_order_of_execution;
    s->rng = eg_rng_make(eg_context_seed(s->ctx), "surgery", 0);
    s->places = eg__calloc(o->references.n + 1, sizeof(*s->places));
    s->optimizers = copy_list(o->optimizers.items, o->optimizers.n, sizeof(*s->optimizers));
    s->inputs = copy_list(o->inputs.items, o->inputs.n, sizeof(*s->inputs));
    EG_TRY(eg__grow(&s->ways, &s->ways_capacity, 1, sizeof(*s->ways)));
    if (s->places == NULL || s->optimizers == NULL || s->inputs == NULL)
        return EG_ENOMEM;
    s->n_ways = 1; /* the root's, which is empty */
    eg__buf_append(&s->way_names, "", 1);
    if (held)
        s->places[s->n_places++] = o->root;
    for (size_t i = 0; i < o->references.n; i++) {
        if (!is_listed(s, o->references.items[i]))
            s->places[s->n_places++] = o->references.items[i];
    }
    s->n_optimizers = o->optimizers.n;
    s->n_inputs = o->inputs.n;
    return s->way_names.failed ? EG_ENOMEM : EG_OK;
}

eg_surgery *eg_surgery_new_with(const eg_surgery_options *options)
{
    eg_surgery_options own;
    if (eg__options_copy(&own, sizeof(own), options) != EG_OK)
        return NULL;
    if (own.model == NULL)
        return eg__null("eg_surgery_new", "model");
    if (check_options(&own) != EG_OK)
        return NULL;
    eg_surgery *s = eg__calloc(1, sizeof(*s));
    if (s != NULL && fill(s, &own) != EG_OK) {
        eg_surgery_free(s);
        return NULL;
    }
    return s;
}

void eg__notes_cut(eg_surgery *s, size_t n)
{
    while (s->n_notes > n)
        free(s->notes[--s->n_notes]);
}

void eg_surgery_free(eg_surgery *s)
{
    if (s == NULL)
        return;
    eg__exchanges_free(s, s->exchanges);
    while (s->n_batches > 0)
        eg__batch_free(s, &s->batches[--s->n_batches]);
    eg__surgery_cut(s, 0, 0, 0);
    eg__notes_cut(s, 0);
    for (size_t i = 0; i < s->n_names; i++)
        free(s->names[i]);
    for (size_t i = 0; i < s->n_paths; i++)
        free(s->paths[i]);
    eg_module_release(s->root);
    eg__buf_free(&s->way_names);
    eg__ptr_map_free(&s->flagged);
    void *lists[] = {s->places,     s->optimizers, s->inputs, s->edits, s->replacements, s->derivations, s->batches,
                     s->savepoints, s->notes,      s->names,  s->ways,  s->paths,        s->steps};
    for (size_t i = 0; i < EG_COUNT(lists); i++)
        free(lists[i]);
    free(s);
}

/* ---- notes ---- */

eg_status eg_surgery_note(eg_surgery *s, const char *format, ...)
{
    if (s == NULL || format == NULL) {
        eg__null(__func__, s == NULL ? "surgery" : "format");
        return eg_error_last()->code;
    }
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    EG_TRY(eg__grow(&s->notes, &s->notes_capacity, s->n_notes + 1, sizeof(*s->notes)));
    s->notes[s->n_notes] = eg__strdup(text);
    if (s->notes[s->n_notes] == NULL)
        return EG_ENOMEM;
    s->n_notes++;
    return EG_OK;
}

const char *eg_surgery_note_at(const eg_surgery *s, size_t i)
{
    return s != NULL && i < s->n_notes ? s->notes[i] : NULL;
}

/* ---- replacements ---- */

size_t eg_surgery_size(const eg_surgery *s)
{
    return s != NULL ? s->n_replacements : 0;
}

/* Paths that were asked for are kept, since callers may keep them. */
static const char *shown_path(eg_surgery *s, size_t i)
{
    if (eg__grow(&s->paths, &s->paths_capacity, s->n_replacements, sizeof(*s->paths)) != EG_OK)
        return NULL;
    if (s->paths[i] == NULL)
        s->paths[i] = eg__way_text(s, s->replacements[i].way);
    s->n_paths = EG_MAX(s->n_paths, i + 1);
    return s->paths[i];
}

const eg_replaced *eg_surgery_at(eg_surgery *s, size_t i)
{
    if (s == NULL)
        return eg__null(__func__, "surgery");
    if (i >= s->n_replacements) {
        eg_fail(EG_EINVAL, "there is no replacement %zu, there are %zu", i, s->n_replacements);
        return NULL;
    }
    const eg__replacement *r = &s->replacements[i];
    s->shown = (eg_replaced){.path = shown_path(s, i),
                             .old = r->old,
                             .fresh = r->fresh,
                             .policy = r->policy > 0 ? s->names[r->policy - 1] : NULL,
                             .index = r->index,
                             .of_replacement = r->maker != 0,
                             .committed = i < eg__committed_replacements(s)};
    return s->shown.path != NULL ? &s->shown : NULL;
}

/* ---- checking ---- */

static eg_status try_shapes(eg_surgery *s, const eg_shape *inputs)
{
    eg_trace *trace = eg_trace_new(s->root, inputs, s->n_inputs);
    eg_trace_free(trace);
    return trace != NULL ? EG_OK : eg_error_last()->code;
}

/* A model that did not run before is not the surgery's fault. `on`: what is behind "runs". */
static eg_status check_shapes(eg_surgery *s, const eg_shape *inputs, const char *on)
{
    EG_TRY(eg__surgery_enter(s));
    eg_status after = try_shapes(s, inputs);
    eg__surgery_leave(s);
    if (after == EG_OK)
        return EG_OK;
    eg__error_mark mark;
    eg__error_save(&mark);
    eg_status before = try_shapes(s, inputs);
    if (before != EG_OK)
        return eg__fail_prefix(before, "the model does not run on %s, also without the surgery",
                               *on == '\0' ? "these inputs" : "one sample more");
    eg__error_restore(&mark);
    return eg__fail_prefix(after, "the model would no longer run%s", on);
}

static eg_status check_all_shapes(eg_surgery *s)
{
    EG_TRY(check_shapes(s, s->inputs, ""));
    if (!s->any_batch)
        return EG_OK;
    eg_shape *more = copy_list(s->inputs, s->n_inputs, sizeof(*more));
    if (more == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < s->n_inputs; i++)
        more[i].dims[0] += more[i].ndim > 0;
    eg_status status = check_shapes(s, more, " on one sample more");
    free(more);
    return status;
}

eg_status eg_surgery_check(eg_surgery *s)
{
    if (s == NULL) {
        eg__null(__func__, "surgery");
        return eg_error_last()->code;
    }
    EG_CHECK(s->entered == 0, EG_EINVAL, "a surgery cannot be checked while it is being looked at");
    eg__exchanges_free(s, s->exchanges);
    s->exchanges = NULL;
    s->checked = false;
    if (s->n_inputs > 0)
        EG_TRY(check_all_shapes(s));
    EG_TRY(eg__exchanges_plan(s));
    s->checked = true;
    return EG_OK;
}

/* ---- the calls of the reference ---- */

int64_t eg_count_module_instances(eg_module *model, eg_class_list classes)
{
    if (model == NULL || (classes.items == NULL && classes.n > 0)) {
        eg__null(__func__, model == NULL ? "model" : "list of classes");
        return -1;
    }
    eg__model_graph graph = {0};
    eg_status status = eg__model_graph_build(&graph, model);
    int64_t count = 0;
    for (size_t i = 1; i < graph.n_vertices; i++) {
        bool is = false;
        for (size_t k = 0; k < classes.n && !is; k++)
            is = eg_is_a(graph.vertices[i].module, classes.items[k]);
        count += is;
    }
    eg__model_graph_free(&graph);
    return status == EG_OK ? count : -1;
}

eg_surgery *eg_replace_module_classes_with(const eg_replace_options *options)
{
    eg_replace_options own;
    if (eg__options_copy(&own, sizeof(own), options) != EG_OK)
        return NULL;
    eg_surgery *s = eg_surgery_new(own.model, .root = own.root, .optimizers = own.optimizers, .inputs = own.inputs,
                                   .without = own.without);
    if (s == NULL)
        return NULL;
    if (eg_surgery_replace(s, own.policies, own.recurse_on_replacements) == EG_OK && eg_surgery_commit(s) == EG_OK)
        return s;
    eg_surgery_free(s);
    return NULL;
}

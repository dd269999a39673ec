/*
 * Methods: surgeries with names.
 */
#include "nn/json.h"
#include "surgery/internal.h"

#include <stdlib.h>
#include <string.h>

const eg_class eg_method_class = {
    .struct_size = sizeof(eg_class),
    .name = "Method",
    .instance_size = sizeof(eg_module),
};

/* A record begins with the class of its options. */
static const eg_method *method_of(const eg_module *options)
{
    return options->cls->super == &eg_method_class ? (const eg_method *)(const void *)options->cls : NULL;
}

/* What a policy of a method is asked with. */
typedef struct application {
    eg_surgery *s;
    const eg_method *method;
    eg_module *options;
    size_t n_notes; /* with those that the method has made */
} application;

static eg_module *replace(void *payload, eg_module *module, size_t index)
{
    application *a = payload;
    eg_module *made = a->method->replace(a->options, a->s, module, index);
    a->n_notes = a->s->n_notes;
    return made;
}

/* One policy for each class that the method changes. */
static eg_status plan_policies(eg_surgery *s, const eg_method *method, eg_module *options,
                               const eg_class *const *targets, const char *at)
{
    size_t n = 0;
    while (targets[n] != NULL)
        n++;
    eg_policy *items = eg__calloc(n + 1, sizeof(*items));
    if (items == NULL)
        return EG_ENOMEM;
    application a = {s, method, options, s->n_notes};
    for (size_t i = 0; i < n; i++)
        items[i] = (eg_policy){.cls = targets[i],
                               .replace = replace,
                               .payload = &a,
                               .at = at,
                               .spare = method->makes,
                               .without = EG_CARRY_WEIGHTS | EG_CARRY_BUFFERS, /* methods have their own ways */
                               .name = method->options.name};
    size_t n_notes = s->n_notes, n_replacements = s->n_replacements;
    eg_status status = eg_surgery_replace(s, (eg_policies){items, n}, method->recurses);
    free(items);
    eg__notes_cut(s, status == EG_OK ? a.n_notes : n_notes); /* of single classes, which nobody has asked for */
    if (status == EG_OK && s->n_replacements == n_replacements)
        status = eg_surgery_note(s, "%s found no module to change", method->options.name);
    return status;
}

static eg_status plan_with(eg_surgery *s, const eg_method *method, eg_module *options, const eg_class *cls,
                           const char *at)
{
    EG_CHECK(cls == NULL || method->replace != NULL, EG_EUNSUPPORTED,
             "it does nothing to single modules: apply it to the model");
    EG_CHECK(!method->runs || s->n_inputs > 0, EG_EINVAL, "needs to run the model: give the surgery .inputs");
    if (cls != NULL)
        return plan_policies(s, method, options, (const eg_class *const[]){cls, NULL}, at);
    if (method->replace != NULL)
        return plan_policies(s, method, options, method->targets, at);
    eg__apart apart;
    EG_TRY(eg__apart_begin(s, &apart));
    eg_status status = method->plan(options, s, at);
    eg__apart_end(s, &apart);
    return status;
}

/* For recipes. What changes nothing is no step. */
static eg_status note_step(eg_surgery *s, eg_module *options, const eg_class *cls, const char *at, size_t first_edit)
{
    if (s->n_edits == first_edit)
        return EG_OK;
    EG_TRY(eg__grow(&s->steps, &s->steps_capacity, s->n_steps + 1, sizeof(*s->steps)));
    char *copy = eg__strdup(at);
    if (at != NULL && copy == NULL)
        return EG_ENOMEM;
    s->steps[s->n_steps++] = (eg__step){.options = eg_module_retain(options),
                                        .cls = cls,
                                        .at = copy,
                                        .first_edit = first_edit,
                                        .n_edits = s->n_edits - first_edit,
                                        .end_replacement = s->n_replacements};
    return EG_OK;
}

static eg_status plan_method(eg_surgery *s, const eg_method *method, eg_module *options, const eg_class *cls,
                             const char *at)
{
    size_t n_edits = s->n_edits, n_replacements = s->n_replacements, n_derivations = s->n_derivations;
    size_t n_notes = s->n_notes;
    EG_TRY(eg__path_check(at));
    eg_status status = plan_with(s, method, options, cls, at);
    if (status == EG_OK)
        status = note_step(s, options, cls, at, n_edits);
    if (status != EG_OK) {
        eg__surgery_cut(s, n_edits, n_replacements, n_derivations);
        eg__notes_cut(s, n_notes);
    }
    return status;
}

/* Takes the options over. `cls`: what the method is limited to, or NULL. */
static eg_status apply(eg_surgery *s, eg_module *options, const eg_class *cls, const char *at)
{
    const eg_method *method = method_of(options);
    eg_status status = method != NULL ? plan_method(s, method, options, cls, at)
                                      : eg_fail(EG_EINVAL, "a %s is no options of a method", options->cls->name);
    if (status != EG_OK && method != NULL)
        eg__fail_prefix(status, "%s", method->options.name);
    eg_module_release(options);
    return status;
}

eg_status eg_surgery_apply(eg_surgery *s, eg_module *options, const char *at)
{
    if (s == NULL || options == NULL) {
        eg__null(__func__, s == NULL ? "surgery" : "options");
        eg_module_release(options);
        return eg_error_last()->code;
    }
    return apply(s, options, NULL, at);
}

eg_status eg_surgery_apply_to(eg_surgery *s, eg_module *options, const eg_class *cls, const char *at)
{
    if (s == NULL || options == NULL || cls == NULL) {
        eg__null(__func__, s == NULL ? "surgery" : options == NULL ? "options" : "class");
        eg_module_release(options);
        return eg_error_last()->code;
    }
    return apply(s, options, cls, at);
}

bool eg_surgery_has_plan(const eg_surgery *s)
{
    return s != NULL && (s->n_edits > eg__committed_edits(s) || s->n_replacements > eg__committed_replacements(s));
}

eg_module *eg_method_from_text(eg_context *ctx, const char *text)
{
    if (ctx == NULL || text == NULL)
        return eg__null(__func__, ctx == NULL ? "context" : "text");
    json_t *json = eg__call_json(text);
    const eg_method *method = json != NULL ? eg_method_find(json_string_value(json_object_get(json, "class"))) : NULL;
    eg_module *options =
        method != NULL ? eg__module_of_class_from_json(ctx, &method->options, json, method->options.name) : NULL;
    json_decref(json);
    return options;
}

const eg_method *eg_method_at(size_t i)
{
    size_t n = 0;
    while (n < i && eg__methods[n] != NULL)
        n++;
    return eg__methods[n];
}

const eg_method *eg_method_find(const char *name)
{
    if (name == NULL)
        return eg__null(__func__, "name");
    const char *names[64];
    size_t n = 0;
    for (; eg__methods[n] != NULL && n < EG_COUNT(names); n++) {
        names[n] = eg__methods[n]->options.name;
        if (strcmp(names[n], name) == 0)
            return eg__methods[n];
    }
    char near[200];
    eg_closest_name(name, names, n, near, sizeof(near));
    eg_fail(EG_ENOENT, "there is no method '%s'%s%s%s", name, *near == '\0' ? "" : " (did you mean ", near,
            *near == '\0' ? "" : "?)");
    return NULL;
}

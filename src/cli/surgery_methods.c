/*
 * engraft surgery methods: what there is to be applied, and what it takes.
 */
#include "cli/surgery.h"

#include <string.h>

/* What kind of value a field takes. */
static const char *kind_of(const eg_field *f)
{
    switch (f->type) {
    case EG_FIELD_INT:
        return "whole number";
    case EG_FIELD_FLOAT:
    case EG_FIELD_OPT_FLOAT:
        return "number";
    case EG_FIELD_BOOL:
        return "true or false";
    case EG_FIELD_ENUM:
        return "one of";
    default:
        return "text";
    }
}

/* A whole number that 0 is out of the range of, and nothing stands for. */
static bool is_required(const eg_field *f)
{
    return f->type == EG_FIELD_INT && f->def == 0 && f->min > 0;
}

static json_t *option_json(const eg_field *f)
{
    json_t *option = json_pack("{s:s, s:s, s:b}", "help", f->help, "type", kind_of(f), "required", is_required(f));
    bool is_number = f->type == EG_FIELD_INT || f->type == EG_FIELD_FLOAT;
    if (is_number && !is_required(f))
        json_object_set_new(option, "default", json_real(f->def));
    if (f->type == EG_FIELD_ENUM) {
        json_t *values = json_array();
        for (size_t i = 0; f->values[i]; i++)
            json_array_append_new(values, json_string(f->values[i]));
        json_object_set_new(option, "values", values);
    }
    return option;
}

static json_t *method_json(const eg_method *m)
{
    static const char *const promises[] = {"exact", "close", "trained"};
    json_t *fields = json_object();
    for (const eg_field *f = m->options.fields; f && f->name; f++)
        json_object_set_new(fields, f->name, option_json(f));
    return json_pack("{s:s, s:s, s:s, s:s, s:s*, s:b, s:o}", "name", m->options.name, "help", m->help, "source",
                     m->source ? m->source : "", "outputs", promises[m->promise], "inverse", m->inverse, "needs_input",
                     m->runs, "options", fields);
}

static void print_option(const eg_field *f)
{
    printf("  %-22s %s", f->name, f->help);
    if (f->type == EG_FIELD_ENUM) {
        for (size_t i = 0; f->values[i]; i++)
            printf("%s%s", i == 0 ? ": " : f->values[i + 1] ? ", " : " or ", f->values[i]);
        printf(" (default: %s)", f->values[(size_t)f->def]);
    } else if (is_required(f)) {
        printf(" (required)");
    } else if (f->def != 0) {
        printf(" (default: %g)", f->def);
    }
    putchar('\n');
}

static void print_method(const eg_method *m)
{
    static const char *const promises[] = {"outputs stay the same", "outputs stay near", "is to be trained after"};
    printf("%s: %s; %s\n", m->options.name, m->help, promises[m->promise]);
    for (const eg_field *f = m->options.fields; f && f->name; f++)
        print_option(f);
    if (m->runs)
        puts("  runs the model, so the shape of a sample must be known (--input)");
    if (m->source)
        printf("  source: %s\n", m->source);
    if (m->inverse)
        printf("  taken back by: %s\n", m->inverse);
}

static int run_methods(const command *self, void *args, bool *given)
{
    const surgery_args *a = args;
    json_t *list = json_array();
    (void)given;
    if (a->words[0] && !eg_method_find(a->words[0])) {
        json_decref(list);
        return report_failure(self->name);
    }
    for (size_t i = 0; eg_method_at(i); i++) {
        if (a->words[0] && strcmp(a->words[0], eg_method_at(i)->options.name) != 0)
            continue;
        if (a->json)
            json_array_append_new(list, method_json(eg_method_at(i)));
        else
            print_method(eg_method_at(i));
    }
    int result = a->json ? print_json(json_pack("{s:O}", "methods", list)) : EXIT_OK;
    json_decref(list);
    return result;
}

static const option_spec methods_options[] = {JSON_ROW, END_ROW};
const command surgery_methods = {
    .name = "surgery methods",
    .synopsis = "[METHOD]",
    .summary = "list the methods, and what they take",
    .options = methods_options,
    .args_size = sizeof(surgery_args),
    .run = run_methods,
    .max_words = 1,
    .words_offset = offsetof(surgery_args, words),
};

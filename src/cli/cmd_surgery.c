/*
 * engraft surgery: models looked at, changed, compared, and changed back.
 */
#include "cli/surgery.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ROW(...) OPTION(surgery_args, __VA_ARGS__)
#define INPUT_ROW ROW(TEXT, input, "input", "SIZES", "sizes of a sample: 3,32,32", .flags = 0, .shown = "the run's")
#define JSON_ROW ROW(FLAG, json, "json", NULL, "print one JSON object", .flags = 0)
#define THREADS_ROW                                                                                                    \
    ROW(INT, threads, "threads", "N", "threads to compute with", .max = 1024, .initial = "0", .shown = "all processors")
#define RULE_ROWS                                                                                                      \
    ROW(RULE, rules, "method", "CALL", "apply a method: 'factorize(rank=0.25)'; again and again, in order",            \
        .flags = 0),                                                                                                   \
        ROW(RULE, rules, "replace", "CLASS=CALL", "replace modules of a class: 'ReLU=SiLU', by a method or a class",   \
            .flags = 0),                                                                                               \
        ROW(RULE, rules, "at", "PATHS", "limits what stands before it to these paths: 'layers.*.conv, head.**'",       \
            .flags = 0),                                                                                               \
        ROW(RULE, rules, "recipe", "FILE", "do what a recipe says: surgery.json of an earlier surgery", .flags = 0),   \
        ROW(FLAG, any_model, "any-model", NULL, "allow a recipe that was made for another model", .flags = 0)
#define END_ROW                                                                                                        \
    {                                                                                                                  \
        .name = NULL                                                                                                   \
    }

static const char about_models[] =
    "MODEL is a folder with model.json and model.safetensors (a retraining leaves one), a search's run, a file of a\n"
    "model (weights beside it, .safetensors) or of a space, or the name of a space.";

int print_text(const command *self, char *text, bool json)
{
    if (!text)
        return report_failure(self->name);
    if (json) {
        json_t *object = json_loads(text, 0, NULL);
        eg_free(text);
        return print_json(object);
    }
    fputs(text, stdout);
    eg_free(text);
    return EXIT_OK;
}

/* ---- a part's work: a context, the models that it names, and a surgery ---- */

typedef struct work {
    eg_context *ctx;
    named_model first, second;
    eg_surgery *s;
} work;

static eg_status open_work(work *w, const surgery_args *a)
{
    *w = (work){.ctx = open_context(a->threads, a->seed, NULL)};
    if (!w->ctx)
        return eg_error_last()->code;
    EG_TRY(load_named_model(w->ctx, a->words[0], a->input, &w->first));
    return a->words[1] ? load_named_model(w->ctx, a->words[1], a->input, &w->second) : EG_OK;
}

static eg_status open_surgery(work *w, const surgery_args *a)
{
    EG_TRY(open_work(w, a));
    EG_CHECK(a->rules.n > 0 || a->words[1], EG_EINVAL,
             "nothing is to be done: give --method, --replace or --recipe ('engraft surgery methods' lists methods)");
    EG_CHECK(a->rules.n == 0 || !a->words[1], EG_EINVAL,
             "two models are compared as they are: --method, --replace and --recipe go with one");
    if (a->words[1])
        return EG_OK;
    bool runs = w->first.input.ndim > 0;
    w->s = eg_surgery_new(w->first.model, .root = &w->first.model,
                          .inputs = {.items = &w->first.input, .n = runs ? 1 : 0});
    return w->s ? plan_rules(w->s, w->ctx, &a->rules, a->any_model) : eg_error_last()->code;
}

static void close_work(work *w)
{
    eg_surgery_free(w->s);
    eg_module_release(w->first.model);
    eg_module_release(w->second.model);
    close_context(w->ctx);
}

/* What the surgery has to say, for people. */
static void print_notes(const work *w)
{
    for (size_t i = 0; w->s && eg_surgery_note_at(w->s, i); i++)
        fprintf(stderr, "engraft: %s\n", eg_surgery_note_at(w->s, i));
}

typedef int (*part_fn)(const command *self, work *w, const surgery_args *a);

static int run_with(const command *self, void *args, eg_status (*open)(work *, const surgery_args *), part_fn part)
{
    const surgery_args *a = args;
    work w;
    int result = open(&w, a) == EG_OK ? part(self, &w, a) : report_failure(self->name);
    print_notes(&w);
    close_work(&w);
    return result;
}

/* For parts that need a plan: without one nothing is done. */
static bool has_plan(const work *w)
{
    if (eg_surgery_has_plan(w->s))
        return true;
    fputs("engraft: no module matched: nothing to do\n", stderr);
    return false;
}

/* ---- ls and count ---- */

static int ls_part(const command *self, work *w, const surgery_args *a)
{
    return list_model(self, &w->first, a->tree, a->json);
}

static int run_ls(const command *self, void *args, bool *given)
{
    (void)given;
    return run_with(self, args, open_work, ls_part);
}

static const option_spec ls_options[] = {ROW(FLAG, tree, "tree", NULL, "draw the tree of modules", .flags = 0),
                                         INPUT_ROW, JSON_ROW, END_ROW};
static const command ls = {
    .name = "surgery ls",
    .synopsis = "MODEL [--tree] [--input SIZES]",
    .summary = "list the modules of a model, with their parameters and share of the work",
    .details = about_models,
    .options = ls_options,
    .args_size = sizeof(surgery_args),
    .run = run_ls,
    .min_words = 1,
    .max_words = 1,
    .words_offset = offsetof(surgery_args, words),
};

static eg_status count_module(void *payload, const char *path, eg_module *m)
{
    json_t *counts = payload;
    (void)path;
    const json_t *had = json_object_get(counts, m->cls->name);
    json_object_set_new(counts, m->cls->name, json_integer(json_integer_value(had) + 1));
    return EG_OK;
}

/* With a class: its modules, as eg_count_module_instances() counts. */
static int count_part(const command *self, work *w, const surgery_args *a)
{
    if (a->words[1]) {
        const eg_class *cls = eg_context_find_class(w->ctx, a->words[1]);
        int64_t n = cls ? eg_count_module_instances(w->first.model, EG_CLASSES(cls)) : -1;
        if (n < 0)
            return report_failure(self->name);
        if (a->json)
            print_json(json_pack("{s:s, s:I}", "class", a->words[1], "count", (json_int_t)n));
        else
            printf("%lld\n", (long long)n);
        return n > 0 ? EXIT_OK : EXIT_NOTHING;
    }
    json_t *counts = json_object();
    if (eg_module_walk(w->first.model, count_module, counts) != EG_OK) {
        json_decref(counts);
        return report_failure(self->name);
    }
    if (a->json)
        return print_json(counts);
    print_scalars(counts);
    json_decref(counts);
    return EXIT_OK;
}

static eg_status open_count(work *w, const surgery_args *a)
{
    surgery_args first = *a;
    first.words[1] = NULL;
    return open_work(w, &first);
}

static int run_count(const command *self, void *args, bool *given)
{
    (void)given;
    return run_with(self, args, open_count, count_part);
}

static const option_spec count_options[] = {JSON_ROW, END_ROW};
static const command count = {
    .name = "surgery count",
    .synopsis = "MODEL [CLASS]",
    .summary = "count modules, of each class or of one and its subclasses",
    .details = about_models,
    .options = count_options,
    .args_size = sizeof(surgery_args),
    .run = run_count,
    .min_words = 1,
    .max_words = 2,
    .words_offset = offsetof(surgery_args, words),
};

/* ---- plan, diff, cost, verify ---- */

static int plan_part(const command *self, work *w, const surgery_args *a)
{
    if (!has_plan(w))
        return EXIT_NOTHING;
    if (eg_surgery_check(w->s) != EG_OK)
        return report_failure(self->name);
    return print_text(self, a->json ? eg_surgery_json(w->s) : eg_surgery_text(w->s), a->json);
}

static int run_plan(const command *self, void *args, bool *given)
{
    (void)given;
    return run_with(self, args, open_surgery, plan_part);
}

static int diff_part(const command *self, work *w, const surgery_args *a)
{
    if (w->s && !has_plan(w))
        return EXIT_NOTHING;
    eg_model_diff *diff = w->s ? eg_surgery_diff(w->s) : eg_model_diff_new(w->first.model, w->second.model);
    if (!diff)
        return report_failure(self->name);
    int result = print_text(self, a->json ? eg_model_diff_json(diff) : eg_model_diff_text(diff), a->json);
    eg_model_diff_free(diff);
    return result;
}

static int run_diff(const command *self, void *args, bool *given)
{
    (void)given;
    return run_with(self, args, open_surgery, diff_part);
}

static eg_status check_runs(const named_model *named)
{
    EG_CHECK(named->input.ndim > 0, EG_EINVAL, "the shape of a sample is not known: give --input, such as 3,32,32");
    return EG_OK;
}

/* Of one model alone its layers; with a second one, or a plan, before and after. */
static int cost_part(const command *self, work *w, const surgery_args *a)
{
    eg_cost_options options = {.struct_size = sizeof(options), .repeats = (int)a->repeats};
    if (check_runs(&w->first) != EG_OK)
        return report_failure(self->name);
    if (!w->s && !w->second.model) {
        eg_cost cost;
        if (eg_model_cost_with(w->first.model, EG_SHAPES(w->first.input), &cost, &options) != EG_OK)
            return report_failure(self->name);
        int result = print_text(self, a->json ? eg_cost_json(&cost) : eg_cost_text(&cost), a->json);
        eg_cost_free(&cost);
        return result;
    }
    if (w->s && !has_plan(w))
        return EXIT_NOTHING;
    eg_cost_change change;
    eg_status status =
        w->s ? eg_surgery_cost_with(w->s, &change, &options)
             : eg_compare_cost(w->first.model, w->second.model, EG_SHAPES(w->first.input), &change, &options);
    if (status != EG_OK)
        return report_failure(self->name);
    int result = print_text(self, a->json ? eg_cost_change_json(&change) : eg_cost_change_text(&change), a->json);
    eg_cost_change_free(&change);
    return result;
}

static eg_status open_cost(work *w, const surgery_args *a)
{
    return a->rules.n > 0 || a->words[1] ? open_surgery(w, a) : open_work(w, a);
}

static int run_cost(const command *self, void *args, bool *given)
{
    (void)given;
    return run_with(self, args, open_cost, cost_part);
}

static int verify_part(const command *self, work *w, const surgery_args *a)
{
    if (check_runs(&w->first) != EG_OK)
        return report_failure(self->name);
    if (w->s && !has_plan(w))
        return EXIT_NOTHING;
    eg_promise promise = a->words[1] ? EG_PROMISE_EXACT : promise_of_rules(&a->rules);
    if (a->tolerance > 0)
        promise = EG_PROMISE_CLOSE;
    eg_guard_options options = {
        .struct_size = sizeof(options), .promise = promise, .tolerance = a->tolerance, .seed = (uint64_t)a->seed};
    eg_guard_report report = {0};
    eg_status status =
        w->s ? eg_surgery_guard_with(w->s, &report, &options)
             : eg_compare_outputs(w->first.model, w->second.model, EG_SHAPES(w->first.input), &report, &options);
    if (status != EG_OK && report.n_numbers == 0)
        return report_failure(self->name);
    eg_error_clear();
    print_text(self, a->json ? eg_guard_json(&report) : eg_guard_text(&report), a->json);
    if (!a->json)
        putchar('\n');
    return report.kept ? EXIT_OK : EXIT_FAILED;
}

static int run_verify(const command *self, void *args, bool *given)
{
    (void)given;
    return run_with(self, args, open_surgery, verify_part);
}

static const option_spec plan_options[] = {RULE_ROWS, INPUT_ROW, JSON_ROW, END_ROW};
static const command plan = {
    .name = "surgery plan",
    .synopsis = "MODEL --method CALL.. | --replace CLASS=CALL.. [--at PATHS]",
    .summary = "show what a surgery would do, and check that the model would still run",
    .details = about_models,
    .options = plan_options,
    .args_size = sizeof(surgery_args),
    .run = run_plan,
    .min_words = 1,
    .max_words = 1,
    .words_offset = offsetof(surgery_args, words),
};
static const command diff = {
    .name = "surgery diff",
    .synopsis = "MODEL OTHER | MODEL --method CALL..",
    .summary = "what is different between two models, or before and after a surgery",
    .details = about_models,
    .options = plan_options,
    .args_size = sizeof(surgery_args),
    .run = run_diff,
    .min_words = 1,
    .max_words = 2,
    .words_offset = offsetof(surgery_args, words),
};

static const option_spec cost_options[] = {
    RULE_ROWS,
    INPUT_ROW,
    ROW(INT, repeats, "repeats", "N", "runs that are timed; -1: none", .min = -1, .max = 100000, .initial = "20"),
    THREADS_ROW,
    JSON_ROW,
    END_ROW};
static const command cost = {
    .name = "surgery cost",
    .synopsis = "MODEL [OTHER | --method CALL..] [--input SIZES]",
    .summary = "parameters, work, memory and time of a model, or before and after",
    .details = about_models,
    .options = cost_options,
    .args_size = sizeof(surgery_args),
    .run = run_cost,
    .min_words = 1,
    .max_words = 2,
    .words_offset = offsetof(surgery_args, words),
};

static const option_spec verify_options[] = {RULE_ROWS,
                                             INPUT_ROW,
                                             ROW(REAL, tolerance, "tolerance", "X",
                                                 "largest difference, of the largest output", .initial = "0",
                                                 .shown = "what the methods promise"),
                                             ROW(INT, seed, "seed", "N", "of the random input", .initial = "0"),
                                             THREADS_ROW,
                                             JSON_ROW,
                                             END_ROW};
static const command verify = {
    .name = "surgery verify",
    .synopsis = "MODEL OTHER | MODEL --method CALL.. [--input SIZES]",
    .summary = "compare outputs on random input; exit status 1 where a promise is broken",
    .details = about_models,
    .options = verify_options,
    .args_size = sizeof(surgery_args),
    .run = run_verify,
    .min_words = 1,
    .max_words = 2,
    .words_offset = offsetof(surgery_args, words),
};

/* ---- apply and undo ---- */

static eg_status check_new_folder(const char *directory)
{
    EG_CHECK(!file_exists(directory), EG_EINVAL, "'%s' is there already: a surgery writes into a new folder",
             directory);
    EG_CHECK(mkdir(directory, 0777) == 0, EG_EIO, "cannot make the folder '%s'", directory);
    return EG_OK;
}

/* The model before stays in a folder of its own: that is what undo reads. */
static eg_status write_result(work *w, const char *out)
{
    EG_TRY(eg_surgery_check(w->s));
    EG_TRY(check_new_folder(out));
    char *before = path_join(out, "before"), *recipe = path_join(out, "surgery.json");
    eg_status status = before && recipe ? check_new_folder(before) : eg_fail(EG_ENOMEM, "out of memory");
    if (status == EG_OK)
        status = save_named_model(w->first.model, before);
    if (status == EG_OK)
        status = eg_surgery_commit(w->s);
    if (status == EG_OK)
        status = eg_surgery_save_recipe(w->s, recipe);
    if (status == EG_OK)
        status = save_named_model(w->first.model, out);
    free(before);
    free(recipe);
    return status;
}

static int apply_part(const command *self, work *w, const surgery_args *a)
{
    if (!has_plan(w))
        return EXIT_NOTHING;
    if (write_result(w, a->out) != EG_OK)
        return report_failure(self->name);
    if (a->json)
        return print_text(self, eg_surgery_json(w->s), true);
    printf("%zu module%s replaced; the model is in '%s'\n", eg_surgery_size(w->s),
           eg_surgery_size(w->s) == 1 ? "" : "s", a->out);
    return EXIT_OK;
}

static int run_apply(const command *self, void *args, bool *given)
{
    return options_complete(self, given) ? run_with(self, args, open_surgery, apply_part) : EXIT_USAGE;
}

static const option_spec apply_options[] = {RULE_ROWS,
                                            ROW(TEXT, out, "out", "DIR",
                                                "new folder for model.json, model.safetensors and surgery.json",
                                                .flags = OPTION_REQUIRED),
                                            INPUT_ROW, JSON_ROW, END_ROW};
static const command apply = {
    .name = "surgery apply",
    .synopsis = "MODEL --method CALL.. | --replace CLASS=CALL.. --out DIR",
    .summary = "change a model, and write what it is then into a new folder",
    .details = about_models,
    .options = apply_options,
    .args_size = sizeof(surgery_args),
    .run = run_apply,
    .min_words = 1,
    .max_words = 1,
    .words_offset = offsetof(surgery_args, words),
};

static eg_status open_before(work *w, const surgery_args *a)
{
    char *before = path_join(a->words[0], "before");
    if (!before)
        return eg_fail(EG_ENOMEM, "out of memory");
    surgery_args from = *a;
    from.words[0] = before;
    eg_status status = file_exists(before) ? open_work(w, &from) : EG_ENOENT;
    if (!file_exists(before)) {
        *w = (work){0};
        eg_fail(EG_ENOENT, "'%s' is not what 'engraft surgery apply' has written: it has no folder 'before'",
                a->words[0]);
    }
    free(before);
    return status;
}

static int undo_part(const command *self, work *w, const surgery_args *a)
{
    if (check_new_folder(a->out) != EG_OK || save_named_model(w->first.model, a->out) != EG_OK)
        return report_failure(self->name);
    printf("the model before is in '%s'\n", a->out);
    return EXIT_OK;
}

static int run_undo(const command *self, void *args, bool *given)
{
    return options_complete(self, given) ? run_with(self, args, open_before, undo_part) : EXIT_USAGE;
}

static const option_spec undo_options[] = {
    ROW(TEXT, out, "out", "DIR", "new folder for the model as it was", .flags = OPTION_REQUIRED), END_ROW};
static const command undo = {
    .name = "surgery undo",
    .synopsis = "DIR --out DIR",
    .summary = "the model as it was before 'surgery apply' wrote a folder",
    .options = undo_options,
    .args_size = sizeof(surgery_args),
    .run = run_undo,
    .min_words = 1,
    .max_words = 1,
    .words_offset = offsetof(surgery_args, words),
};

/* ---- methods ---- */

static json_t *method_json(const eg_method *m)
{
    static const char *const promises[] = {"exact", "close", "trained"};
    json_t *fields = json_object();
    for (const eg_field *f = m->options.fields; f && f->name; f++)
        json_object_set_new(fields, f->name, json_string(f->help));
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "name", m->options.name, "help", m->help, "source",
                     m->source ? m->source : "", "outputs", promises[m->promise], "options", fields);
}

static void print_method(const eg_method *m)
{
    static const char *const promises[] = {"outputs stay the same", "outputs stay near", "is to be trained after"};
    printf("%s: %s; %s\n", m->options.name, m->help, promises[m->promise]);
    for (const eg_field *f = m->options.fields; f && f->name; f++)
        printf("  %-18s %s%s", f->name, f->help, f->def != 0 ? "" : "\n"),
            f->def != 0 ? printf(" (default: %g)\n", f->def) : 0;
    if (m->source)
        printf("  source: %s\n", m->source);
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

static const command methods = {
    .name = "surgery methods",
    .synopsis = "[METHOD]",
    .summary = "list the methods, and what they take",
    .options = count_options,
    .args_size = sizeof(surgery_args),
    .run = run_methods,
    .max_words = 1,
    .words_offset = offsetof(surgery_args, words),
};

static const command *const parts[] = {&ls, &count, &methods, &plan, &apply, &undo, &diff, &cost, &verify, NULL};

const command surgery_command = {
    .name = "surgery",
    .synopsis = "ls|count|methods|plan|apply|undo|diff|cost|verify ..",
    .summary = "look at a model, change it by policy, and change it back",
    .details = "'engraft surgery PART --help' explains a part.",
    .parts = parts,
};

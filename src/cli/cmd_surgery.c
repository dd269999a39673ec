/*
 * engraft surgery: models looked at, changed, compared, and changed back.
 */
#include "cli/surgery.h"

#include <stdlib.h>
#include <string.h>

const char about_models[] =
    "MODEL is a folder with model.json and model.safetensors (a retraining leaves one), a search's run, a file of a\n"
    "model (weights beside it, .safetensors) or of a space, or the name of a space. Spaces run with all candidates.";

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

/* ---- what parts have in common ---- */

eg_status open_work(work *w, const surgery_args *a)
{
    *w = (work){.ctx = open_context(a->threads, a->seed, NULL)};
    if (!w->ctx)
        return eg_error_last()->code;
    EG_TRY(load_named_model(w->ctx, a->words[0], a->input, &w->first));
    if (!a->words[1])
        return EG_OK;
    EG_TRY(load_named_model(w->ctx, a->words[1], a->input, &w->second));
    if (w->first.input.ndim == 0)
        w->first.input = w->second.input;
    return EG_OK;
}

/* What is wrong with the words and options together, whatever the model is. */
static eg_status check_work(const surgery_args *a)
{
    EG_CHECK(a->rules.n > 0 || a->words[1], EG_EINVAL,
             "nothing is to be done: give --method, --replace or --recipe ('engraft surgery methods' lists methods)");
    EG_CHECK(a->rules.n == 0 || !a->words[1], EG_EINVAL,
             "two models are compared as they are: --method, --replace and --recipe go with one");
    return check_rules(&a->rules);
}

static eg_status open_surgery(work *w, const surgery_args *a)
{
    EG_TRY(open_work(w, a));
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
    close_named_model(&w->first);
    close_named_model(&w->second);
    close_context(w->ctx);
}

/* What the surgery has to say, for people. */
static void print_notes(const work *w)
{
    for (size_t i = 0; w->s && eg_surgery_note_at(w->s, i); i++)
        fprintf(stderr, "engraft: %s\n", eg_surgery_note_at(w->s, i));
}

/* What a program gives as .inputs, people give as --input. */
static int report_opening(const command *self)
{
    const char *message = eg_error_first()->message, *there = strstr(message, "give the surgery .inputs");
    if (!there)
        return report_failure(self->name);
    fprintf(stderr, "engraft %s: %.*sgive --input, such as 3,32,32\n", self->name, (int)(there - message), message);
    return EXIT_FAILED;
}

int run_with(const command *self, void *args, eg_status (*open)(work *, const surgery_args *), part_fn part)
{
    const surgery_args *a = args;
    work w;
    int result = open(&w, a) == EG_OK ? part(self, &w, a) : report_opening(self);
    print_notes(&w);
    if (result == EXIT_NOTHING && w.s)
        fputs("engraft: nothing to do\n", stderr);
    close_work(&w);
    return result;
}

int run_surgery(const command *self, void *args, part_fn part)
{
    if (check_work(args) != EG_OK)
        return usage_error(self->name, "%s", eg_error_first()->message);
    return run_with(self, args, open_surgery, part);
}

bool has_plan(const command *self, const work *w, const surgery_args *a)
{
    bool has = eg_surgery_has_plan(w->s);
    if (!has && a->json)
        print_text(self, eg_surgery_json(w->s), true);
    return has;
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
    if (!has_plan(self, w, a))
        return EXIT_NOTHING;
    if (eg_surgery_check(w->s) != EG_OK)
        return report_failure(self->name);
    return print_text(self, a->json ? eg_surgery_json(w->s) : eg_surgery_text(w->s), a->json);
}

static int run_plan(const command *self, void *args, bool *given)
{
    (void)given;
    return run_surgery(self, args, plan_part);
}

static int diff_part(const command *self, work *w, const surgery_args *a)
{
    if (w->s && !has_plan(self, w, a))
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
    return run_surgery(self, args, diff_part);
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
    if (w->s && !has_plan(self, w, a))
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

static int run_cost(const command *self, void *args, bool *given)
{
    const surgery_args *a = args;
    (void)given;
    return a->rules.n > 0 || a->words[1] ? run_surgery(self, args, cost_part)
                                         : run_with(self, args, open_work, cost_part);
}

/* Each model without weights has random numbers of its own. */
static eg_status check_weights(const work *w, const surgery_args *a)
{
    bool first = w->first.is_random;
    EG_CHECK(!w->second.model || !(first || w->second.is_random), EG_EINVAL,
             "'%s' has no weights beside it (.safetensors), so its outputs cannot be compared",
             first ? a->words[0] : a->words[1]);
    return EG_OK;
}

static eg_promise promise_to_verify(const surgery_args *a)
{
    if (a->tolerance > 0)
        return EG_PROMISE_CLOSE;
    return a->words[1] ? promise_of_folder(a->words[1], EG_PROMISE_EXACT) : promise_of_rules(&a->rules);
}

static int verify_part(const command *self, work *w, const surgery_args *a)
{
    if (check_runs(&w->first) != EG_OK || check_weights(w, a) != EG_OK)
        return report_failure(self->name);
    if (w->s && !has_plan(self, w, a))
        return EXIT_NOTHING;
    eg_promise promise = promise_to_verify(a);
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
    return report.kept ? EXIT_OK : EXIT_FAILED;
}

static int run_verify(const command *self, void *args, bool *given)
{
    (void)given;
    return run_surgery(self, args, verify_part);
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
                                                 .shown = "what methods promise, also those of OTHER's surgery.json"),
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

static const command *const parts[] = {&ls,   &count, &surgery_methods, &plan, &surgery_apply, &surgery_undo,
                                       &diff, &cost,  &verify,          NULL};

const command surgery_command = {
    .name = "surgery",
    .synopsis = "ls|count|methods|plan|apply|undo|diff|cost|verify ..",
    .summary = "look at a model, change it by policy, and change it back",
    .details = "'engraft surgery PART --help' explains a part.",
    .parts = parts,
};

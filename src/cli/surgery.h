/*
 * cli/surgery.h - what the parts of `engraft surgery` share: models as people name them, rules, tables.
 */
#ifndef EG_CLI_SURGERY_H
#define EG_CLI_SURGERY_H

#include "cli/cli.h"

/* What all parts are given. */
typedef struct surgery_args {
    const char *words[2]; /* MODEL, and of some parts another */
    rule_list rules;      /* --method, --replace, --at and --recipe, in order */
    const char *input, *out;
    int64_t threads, seed, repeats;
    double tolerance;
    bool tree, json, any_model;
} surgery_args;

/* Rows of their options. */
#define ROW(...) OPTION(surgery_args, __VA_ARGS__)
#define INPUT_ROW                                                                                                      \
    ROW(TEXT, input, "input", "SIZES", "sizes of a sample: 3,32,32", .flags = 0, .check = check_sizes,                 \
        .shown = "the run's, or that of an earlier surgery")
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

extern const char about_models[]; /* for help */

/** A model and the shape that it runs on. */
typedef struct named_model {
    eg_module *model;
    eg_shape input; /* of a batch of one; ndim 0 = not known */
    bool is_random; /* there are no weights beside it */
    /* Of a space: its text as a file, and what lets all its candidates run. */
    char *space;
    eg_mutator *choices;
} named_model;
/** What `name` stands for: a folder with model.json and model.safetensors or the run of a search, a file of a model
 * (with its weights beside it) or of a space, or the name of a space. `input`: as --input says, or NULL. For
 * close_named_model(). */
eg_status load_named_model(eg_context *ctx, const char *name, const char *input, named_model *out);
void close_named_model(named_model *named);
/** model.json and model.safetensors into a folder; of a space space.json. */
eg_status save_named_model(named_model *named, const char *directory);

/** Fails for rules that no model could make right. */
eg_status check_rules(const rule_list *rules);
/** Plans what the rules say, in order. */
eg_status plan_rules(eg_surgery *s, eg_context *ctx, const rule_list *rules, bool any_model);
/** The least that any of the rules promises of the outputs; a module that is put in by itself promises nothing. */
eg_promise promise_of_rules(const rule_list *rules);

/** The same of what the recipe of a folder says; `otherwise` where it has none. */
eg_promise promise_of_folder(const char *directory, eg_promise otherwise);

/** A part's work: a context, the models that it names, and a surgery. */
typedef struct work {
    eg_context *ctx;
    named_model first, second;
    eg_surgery *s;
} work;
typedef int (*part_fn)(const command *self, work *w, const surgery_args *a);
/** Opens the models alone. */
eg_status open_work(work *w, const surgery_args *a);
/** Runs a part on what `open` opens; says afterwards what the surgery has to say. */
int run_with(const command *self, void *args, eg_status (*open)(work *, const surgery_args *), part_fn part);
/** Runs a part on what the rules plan, or on two models. */
int run_surgery(const command *self, void *args, part_fn part);
/** For parts that need a plan: without one nothing is done, which the JSON of the plan says. */
bool has_plan(const command *self, const work *w, const surgery_args *a);

/** A table of the modules of a model. */
int list_model(const command *self, const named_model *named, bool tree, bool json);

/** A text of the library's (for eg_free(), NULL on failure) on standard output; `json`: formatted as all JSON is here.
 */
int print_text(const command *self, char *text, bool json);

extern const command surgery_methods, surgery_apply, surgery_undo;

#endif

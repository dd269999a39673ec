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

/** A model and the shape that it runs on. */
typedef struct named_model {
    eg_module *model;
    eg_shape input; /* of a batch of one; ndim 0 = not known */
} named_model;
/** What `name` stands for: a folder with model.json and model.safetensors or the run of a search, a file of a model
 * (with its weights beside it) or of a space, or the name of a space. `input`: as --input says, or NULL. */
eg_status load_named_model(eg_context *ctx, const char *name, const char *input, named_model *out);
/** model.json and model.safetensors into a folder, which is made. */
eg_status save_named_model(eg_module *model, const char *directory);

/** Plans what the rules say, in order. */
eg_status plan_rules(eg_surgery *s, eg_context *ctx, const rule_list *rules, bool any_model);
/** The least that any of the rules promises of the outputs; a module that is put in by itself promises nothing. */
eg_promise promise_of_rules(const rule_list *rules);

/** A table of the modules of a model. */
int list_model(const command *self, const named_model *named, bool tree, bool json);

/** A text of the library's (for eg_free(), NULL on failure) on standard output; `json`: formatted as all JSON is here.
 */
int print_text(const command *self, char *text, bool json);

#endif

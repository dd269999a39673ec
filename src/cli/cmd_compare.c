/*
 * engraft compare: two finished retrainings side by side, such as what a search found and a control.
 */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

typedef struct compare_args {
    const char *run, *control;
    bool json;
} compare_args;

#define ROW(...) OPTION(compare_args, __VA_ARGS__)

static const option_spec options[] = {
    ROW(TEXT, run, "run", "DIR", "a finished retraining", .flags = OPTION_REQUIRED),
    ROW(TEXT, control, "control", "DIR", "the retraining to hold it against", .flags = OPTION_REQUIRED),
    ROW(FLAG, json, "json", NULL,
        "print both as one JSON object: run, control, each with arch, params, macs, test_accuracy", .flags = 0),
    {.name = NULL},
};

enum { SIDES = 2, COLUMN = 26 };

typedef struct side {
    const char *directory;
    json_t *result; /* with "arch" */
    json_t *mutables;
} side;

/* A directory without a readable run.json is looked at no further: what is missing in it is said later. */
static eg_status check_retraining(const char *directory)
{
    char *path = path_join(directory, "run.json");
    json_t *run = path ? json_load_file(path, 0, NULL) : NULL;
    bool search = is_search(run);
    json_decref(run);
    free(path);
    EG_CHECK(!search, EG_EINVAL, "'%s' is a search, not a retraining", directory);
    return EG_OK;
}

static eg_status load_side(side *s)
{
    EG_TRY(check_retraining(s->directory));
    EG_TRY(load_result(s->directory, false, &s->result));
    EG_CHECK(s->result, EG_ENOENT, "'%s' has no result.json: it is no finished retraining", s->directory);
    char *path = path_join(s->directory, "arch.json");
    json_t *arch = path ? json_load_file(path, 0, NULL) : NULL;
    free(path);
    EG_CHECK(json_is_object(arch), EG_EFORMAT, "'%s/arch.json' is missing or no architecture", s->directory);
    json_object_set_new(s->result, "arch", arch);
    json_t *run = load_run(s->directory);
    json_object_set(s->result, "data", json_object_get(run, "data"));
    json_decref(run);
    return EG_OK;
}

/* What the decisions are about. */
static eg_status load_mutables(eg_context *ctx, side *s)
{
    network_options network = {0};
    json_t *run = load_run(s->directory);
    eg_status status = run ? network_options_of(run, s->directory, &network) : eg_error_last()->code;
    eg_module *model = status == EG_OK ? build_network(ctx, &network) : NULL;
    s->mutables = model ? mutables_of(model) : NULL;
    eg_module_release(model);
    free(network.space_text);
    json_decref(run);
    return s->mutables ? EG_OK : eg_error_last()->code;
}

static void print_row(const char *name, char text[SIDES][64])
{
    printf("%-20s %-*s %s\n", name, COLUMN, text[0], text[1]);
}

static void format_decision(const side *s, const char *key, char *text, size_t size)
{
    char *shown = decision_text(s->mutables, key, json_object_get(json_object_get(s->result, "arch"), key));
    snprintf(text, size, "%s", shown ? shown : "");
    free(shown);
}

static const json_t *arch_of(const side *s)
{
    return json_object_get(s->result, "arch");
}

/* A row for each decision that either of them has. */
static void print_decisions(const side *sides)
{
    char text[SIDES][64];
    const char *key;
    json_t *value;
    for (int of = 0; of < SIDES; of++) {
        json_object_foreach((json_t *)(uintptr_t)arch_of(&sides[of]), key, value)
        {
            if (of > 0 && json_object_get(arch_of(&sides[0]), key))
                continue;
            for (int i = 0; i < SIDES; i++)
                format_decision(&sides[i], key, text[i], sizeof text[i]);
            print_row(key, text);
        }
    }
}

/* What both should have in common. */
static void print_text(const side *sides, const char *key)
{
    char text[SIDES][64];
    for (int i = 0; i < SIDES; i++) {
        const char *value = json_string_value(json_object_get(sides[i].result, key));
        snprintf(text[i], sizeof text[i], "%s", value ? value : "-");
    }
    print_row(key, text);
}

static bool differ(const side *sides, const char *key)
{
    return !json_equal(json_object_get(sides[0].result, key), json_object_get(sides[1].result, key));
}

static void print_table(const side *sides)
{
    char text[SIDES][64];
    for (int i = 0; i < SIDES; i++)
        snprintf(text[i], sizeof text[i], "%s", sides[i].directory);
    print_row("", text);
    print_text(sides, "space");
    print_text(sides, "data");
    print_decisions(sides);
    for (int i = 0; i < SIDES; i++)
        snprintf(text[i], sizeof text[i], "%.1f k",
                 json_number_value(json_object_get(sides[i].result, "params")) / 1e3);
    print_row("parameters", text);
    for (int i = 0; i < SIDES; i++)
        snprintf(text[i], sizeof text[i], "%.2f M", json_number_value(json_object_get(sides[i].result, "macs")) / 1e6);
    print_row("MACs", text);
    for (int i = 0; i < SIDES; i++)
        snprintf(text[i], sizeof text[i], "%.2f %%",
                 100 * json_number_value(json_object_get(sides[i].result, "test_accuracy")));
    print_row("test accuracy", text);
    if (differ(sides, "data"))
        printf("\nnote: they were measured on different data\n");
    else if (differ(sides, "space"))
        printf("\nnote: they are of different spaces\n");
}

static int compare_run(const command *self, void *args, bool *given)
{
    const compare_args *a = args;
    if (!options_complete(self, given))
        return EXIT_USAGE;
    side sides[SIDES] = {{.directory = a->run}, {.directory = a->control}};
    eg_status status = EG_OK;
    for (int i = 0; i < SIDES && status == EG_OK; i++)
        status = load_side(&sides[i]);
    eg_context *ctx = status == EG_OK && !a->json ? open_context(1, 0, NULL) : NULL;
    if (status == EG_OK && !a->json && !ctx)
        status = eg_error_last()->code;
    for (int i = 0; ctx && i < SIDES && status == EG_OK; i++)
        status = load_mutables(ctx, &sides[i]);
    int exit_status = EXIT_OK;
    if (status != EG_OK)
        exit_status = report_failure(self->name);
    else if (a->json)
        exit_status = print_json(json_pack("{s:O, s:O}", "run", sides[0].result, "control", sides[1].result));
    else
        print_table(sides);
    for (int i = 0; i < SIDES; i++) {
        json_decref(sides[i].result);
        json_decref(sides[i].mutables);
    }
    close_context(ctx);
    return exit_status;
}

const command compare_command = {
    .name = "compare",
    .synopsis = "--run DIR --control DIR [--json]",
    .summary = "show two retrainings side by side, such as a search's and a random control's",
    .options = options,
    .args_size = sizeof(compare_args),
    .run = compare_run,
};

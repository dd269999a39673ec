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
} side;

static eg_status load_side(side *s)
{
    s->result = load_result(s->directory);
    EG_CHECK(json_is_object(s->result), EG_ENOENT, "'%s' has no result.json: it is no finished retraining",
             s->directory);
    const char *const numbers[] = {"params", "macs", "test_accuracy", NULL};
    for (size_t i = 0; numbers[i]; i++)
        EG_CHECK(json_is_number(json_object_get(s->result, numbers[i])), EG_EFORMAT,
                 "'%s/result.json' lacks the number '%s'", s->directory, numbers[i]);
    char *path = path_join(s->directory, "arch.json");
    json_t *arch = path ? json_load_file(path, 0, NULL) : NULL;
    free(path);
    EG_CHECK(json_is_object(arch), EG_EFORMAT, "'%s/arch.json' is missing or no architecture", s->directory);
    json_object_set_new(s->result, "arch", arch);
    return EG_OK;
}

static void print_row(const char *name, char text[SIDES][64])
{
    printf("%-20s %-*s %s\n", name, COLUMN, text[0], text[1]);
}

/* One decision as a word or a JSON text; "-" where a side has no such key. */
static void format_decision(const side *s, const char *key, char *text, size_t size)
{
    const json_t *value = json_object_get(json_object_get(s->result, "arch"), key);
    char *dump = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const char *shown = json_is_string(value) ? json_string_value(value) : dump;
    if (json_is_string(value) && !*shown)
        shown = "yes"; /* the one unnamed input of a choice whether to take it */
    snprintf(text, size, "%s", shown ? shown : "-");
    free(dump);
}

static void print_table(const side *sides)
{
    char text[SIDES][64];
    for (int i = 0; i < SIDES; i++)
        snprintf(text[i], sizeof text[i], "%s", sides[i].directory);
    print_row("", text);
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(sides[0].result, "arch"), key, value)
    {
        for (int i = 0; i < SIDES; i++)
            format_decision(&sides[i], key, text[i], sizeof text[i]);
        print_row(key, text);
    }
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
    int exit_status = EXIT_OK;
    if (status != EG_OK)
        exit_status = report_failure(self->name);
    else if (a->json)
        exit_status = print_json(json_pack("{s:O, s:O}", "run", sides[0].result, "control", sides[1].result));
    else
        print_table(sides);
    for (int i = 0; i < SIDES; i++)
        json_decref(sides[i].result);
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

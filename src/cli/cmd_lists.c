/*
 * engraft spaces, engraft strategies: what there is.
 */
#include "cli/cli.h"

typedef struct list_args {
    bool json, schema;
} list_args;

static const option_spec options[] = {
    OPTION(list_args, FLAG, json, "json", NULL, "print one JSON object: a list of name, help, source", .flags = 0),
    {.name = NULL},
};

static const option_spec space_options[] = {
    OPTION(list_args, FLAG, json, "json", NULL, "print one JSON object: a list of name, help, source", .flags = 0),
    OPTION(list_args, FLAG, schema, "schema", NULL, "print the JSON Schema of files of spaces", .flags = 0),
    {.name = NULL},
};

typedef struct entry {
    const char *name, *help, *source;
} entry;

/* Entry i of a list; its name is NULL after the last. */
typedef entry (*entry_fn)(size_t i);

static entry space_at(size_t i)
{
    const eg_space *space = eg_spaces()[i];
    return space ? (entry){space->name, space->help, space->source} : (entry){NULL, NULL, NULL};
}

static entry strategy_at(size_t i)
{
    const eg_strategy_class *strategy = eg_strategies()[i];
    return strategy ? (entry){strategy->name, strategy->help, strategy->source} : (entry){NULL, NULL, NULL};
}

static int print_list(const char *name, const list_args *a, entry_fn at)
{
    json_t *list = json_array();
    for (size_t i = 0; at(i).name; i++) {
        entry e = at(i);
        if (a->json)
            json_array_append_new(list,
                                  json_pack("{s:s, s:s*, s:s*}", "name", e.name, "help", e.help, "source", e.source));
        else
            printf("%-16s %s\n%-16s %s\n", e.name, e.help, "", e.source ? e.source : "");
    }
    if (a->json)
        return print_json(json_pack("{s:o}", name, list));
    json_decref(list);
    return EXIT_OK;
}

/* The context knows all built-in classes: the schema is the same for everybody. */
static int print_schema(const command *self)
{
    eg_context *ctx = eg_context_new(.threads = 1);
    char *text = ctx ? eg_space_schema(ctx) : NULL;
    if (text)
        fputs(text, stdout);
    int status = text ? EXIT_OK : report_failure(self->name);
    eg_free(text);
    eg_context_free(ctx);
    return status;
}

static int spaces_run(const command *self, void *args, bool *given)
{
    (void)given;
    if (((const list_args *)args)->schema)
        return print_schema(self);
    return print_list(self->name, args, space_at);
}

static int strategies_run(const command *self, void *args, bool *given)
{
    (void)given;
    return print_list(self->name, args, strategy_at);
}

const command spaces_command = {
    .name = "spaces",
    .synopsis = "[--json | --schema]",
    .summary = "list the search spaces",
    .options = space_options,
    .args_size = sizeof(list_args),
    .run = spaces_run,
};

const command strategies_command = {
    .name = "strategies",
    .synopsis = "[--json]",
    .summary = "list the search strategies",
    .options = options,
    .args_size = sizeof(list_args),
    .run = strategies_run,
};

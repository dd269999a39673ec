/*
 * Options: parsing, help, and their JSON form, all from one table a command.
 */
#include "cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------- near names */

const char *did_you_mean(const char *name, const char *const *names, char *text, size_t size)
{
    char near[128];
    size_t n = 0;
    while (names[n])
        n++;
    eg_closest_name(name, names, n, near, sizeof near);
    snprintf(text, size, *near ? ": did you mean %s?" : "%s", near);
    return text;
}

/* ---------------------------------------------------------------------------------------------- values */

static void *member(const option_spec *o, void *args)
{
    return (char *)args + o->offset;
}

static void describe_range(const option_spec *o, char *text, size_t size)
{
    const char *kind = o->type == OPTION_INT ? "a whole number" : "a number",
               *from = o->above_min ? "above" : "of at least";
    if (o->max > 0)
        snprintf(text, size, "%s %s %.10g and at most %.10g", kind, from, o->min, o->max);
    else
        snprintf(text, size, "%s %s %.10g", kind, from, o->min);
}

static bool in_range(const option_spec *o, double value)
{
    return isfinite(value) && (o->above_min ? value > o->min : value >= o->min) && (o->max <= 0 || value <= o->max);
}

static bool parse_number(const option_spec *o, const char *text, void *out)
{
    char *end;
    errno = 0;
    if (o->type == OPTION_INT) {
        long long value = strtoll(text, &end, 10);
        *(int64_t *)out = value;
        return *text && !*end && errno == 0 && in_range(o, (double)value);
    }
    double value = strtod(text, &end);
    *(double *)out = value;
    return *text && !*end && errno == 0 && in_range(o, value);
}

/* Stores a value from text; on failure the reason is the pending error. */
static eg_status set_value(const option_spec *o, const char *text, void *args)
{
    void *out = member(o, args);
    if (o->type == OPTION_TEXT) {
        EG_CHECK(*text, EG_EINVAL, "option '--%s' takes %s, not an empty text", o->name, o->value);
        EG_TRY(o->check ? o->check(text) : EG_OK);
        *(const char **)out = text;
    } else if (o->type == OPTION_RULE) {
        rule_list *rules = out;
        EG_CHECK(*text, EG_EINVAL, "option '--%s' takes %s, not an empty text", o->name, o->value);
        EG_CHECK(rules->n < MAX_RULES, EG_EINVAL, "option '--%s': at most %d rules", o->name, MAX_RULES);
        rules->items[rules->n++] = (struct rule){o->name, text};
    } else if (o->type == OPTION_SWITCH) {
        EG_CHECK(strcmp(text, "on") == 0 || strcmp(text, "off") == 0, EG_EINVAL,
                 "option '--%s' takes 'on' or 'off', not '%s'", o->name, text);
        *(bool *)out = strcmp(text, "on") == 0;
    } else if (!parse_number(o, text, out)) {
        char range[160];
        describe_range(o, range, sizeof range);
        return eg_fail(EG_EINVAL, "option '--%s' takes %s, not '%s'", o->name, range, text);
    }
    return EG_OK;
}

static void set_initial(const command *c, void *args)
{
    for (const option_spec *o = c->options; o->name; o++) {
        if (!o->initial)
            continue;
        else if (o->type == OPTION_TEXT)
            *(const char **)member(o, args) = o->initial;
        else if (o->type == OPTION_SWITCH)
            *(bool *)member(o, args) = strcmp(o->initial, "on") == 0;
        else if (o->type == OPTION_INT)
            *(int64_t *)member(o, args) = strtoll(o->initial, NULL, 10);
        else
            *(double *)member(o, args) = strtod(o->initial, NULL);
    }
}

/* ---------------------------------------------------------------------------------------------- the command line */

/* The one option that begins with `name`; NULL when there is none, or more than one. */
static const char *only_completion(const char *name, const char *const *list)
{
    const char *found = NULL;
    for (size_t i = 0; list[i]; i++) {
        if (strncmp(list[i], name, strlen(name)) != 0)
            continue;
        if (found)
            return NULL;
        found = list[i];
    }
    return found;
}

static int unknown_option(const command *c, const char *text)
{
    char names[MAX_OPTIONS + 1][40], name[64], near[128];
    const char *list[MAX_OPTIONS + 2] = {"--help"};
    for (size_t i = 0; c->options[i].name; i++) {
        snprintf(names[i], sizeof names[i], "--%s", c->options[i].name);
        list[i + 1] = names[i];
    }
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "="), text);
    const char *only = only_completion(name, list);
    if (only)
        return usage_error(c->name, "unknown option '%s': did you mean '%s'?", text, only);
    return usage_error(c->name, "unknown option '%s'%s", text, did_you_mean(name, list, near, sizeof near));
}

/* getopt_long takes any clear beginning of a long option, which the next option of a like name would make unclear. */
static bool is_full_name(const command *c, const char *word)
{
    if (strncmp(word, "--", 2) != 0 || !word[2])
        return true; /* no long option */
    const char *name = word + 2;
    size_t length = strcspn(name, "=");
    bool found = length == strlen("help") && strncmp(name, "help", length) == 0;
    for (const option_spec *o = c->options; o->name && !found; o++)
        found = length == strlen(o->name) && strncmp(name, o->name, length) == 0;
    return found;
}

/* What getopt_long refused. */
static int refused(const command *c, int code, char **argv)
{
    const char *text = argv[optind - 1];
    if (code == ':')
        return usage_error(c->name, "option '%s' needs a value", text);
    if (optopt >= 256) { /* a flag that was given a value */
        const option_spec *o = optopt - 256 < MAX_OPTIONS ? &c->options[optopt - 256] : NULL;
        return usage_error(c->name, "option '--%s' takes no value", o ? o->name : "help");
    }
    if (optopt != 0 && strncmp(text, "--", 2) != 0) {
        char name[] = {'-', (char)optopt, '\0'};
        return unknown_option(c, name);
    }
    return unknown_option(c, text);
}

/* The words before the first option; how many there are. */
static size_t take_words(const command *c, int argc, char **argv, void *args)
{
    const char **out = (const char **)(void *)((char *)args + c->words_offset);
    size_t n = 0;
    while (n < c->max_words && (int)n + 1 < argc && argv[n + 1][0] != '-') {
        out[n] = argv[n + 1];
        n++;
    }
    return n;
}

int options_parse(const command *c, int argc, char **argv, void *args, bool *given)
{
    enum { HELP = 256 + MAX_OPTIONS };
    struct option table[MAX_OPTIONS + 2] = {{"help", no_argument, NULL, HELP}};
    size_t n = 0;
    for (; c->options[n].name; n++)
        table[n + 1] =
            (struct option){c->options[n].name, c->options[n].type == OPTION_FLAG ? no_argument : required_argument,
                            NULL, 256 + (int)n};
    set_initial(c, args);
    size_t words = take_words(c, argc, argv, args);
    bool asks_help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (words < c->min_words && !asks_help)
        return usage_error(c->name, "usage: engraft %s %s", c->name, c->synopsis);
    opterr = 0;
    optind = 1 + (int)words;
    for (;;) {
        if (optind < argc && !is_full_name(c, argv[optind]))
            return unknown_option(c, argv[optind]);
        int code = getopt_long(argc, argv, "+:h", table, NULL); /* +: words stay in their order */
        if (code == -1)
            break;
        if (code == '?' || code == ':')
            return refused(c, code, argv);
        if (code == HELP || code == 'h') {
            options_help(c);
            return EXIT_OK;
        }
        const option_spec *o = &c->options[code - 256];
        if (o->type == OPTION_FLAG)
            *(bool *)member(o, args) = true;
        else if (set_value(o, optarg, args) != EG_OK)
            return usage_error(c->name, "%s", eg_error_last()->message);
        given[code - 256] = true;
    }
    if (optind < argc)
        return usage_error(c->name, "'%s' is not an option", argv[optind]);
    return -1;
}

bool options_complete(const command *c, const bool *given)
{
    for (size_t i = 0; c->options[i].name; i++) {
        if ((c->options[i].flags & OPTION_REQUIRED) && !given[i]) {
            usage_error(c->name, "option '--%s %s' is missing (%s)", c->options[i].name, c->options[i].value,
                        c->options[i].help);
            return false;
        }
    }
    return true;
}

/* ---------------------------------------------------------------------------------------------- JSON */

/* Values in run.json are of our own making, yet people edit files. */
static eg_status merge_value(const option_spec *o, const json_t *value, void *args)
{
    void *out = member(o, args);
    EG_CHECK(o->type == OPTION_TEXT   ? json_is_string(value)
             : o->type == OPTION_INT  ? json_is_integer(value)
             : o->type == OPTION_REAL ? json_is_number(value)
                                      : json_is_boolean(value),
             EG_EFORMAT, "'%s' in run.json is of the wrong type", o->name);
    if (o->type == OPTION_TEXT)
        return set_value(o, json_string_value(value), args);
    if (o->type == OPTION_SWITCH || o->type == OPTION_FLAG)
        *(bool *)out = json_is_true(value);
    else if (o->type == OPTION_INT)
        *(int64_t *)out = json_integer_value(value);
    else
        *(double *)out = json_number_value(value);
    char range[160];
    describe_range(o, range, sizeof range);
    EG_CHECK((o->type != OPTION_INT && o->type != OPTION_REAL) || in_range(o, json_number_value(value)), EG_EFORMAT,
             "'%s' in run.json is %g, expected %s", o->name, json_number_value(value), range);
    return EG_OK;
}

eg_status options_merge(const command *c, void *args, bool *given, const json_t *object, int flag)
{
    for (size_t i = 0; c->options[i].name; i++) {
        const option_spec *o = &c->options[i];
        const json_t *value = json_object_get(object, o->name);
        if (given[i] || !(o->flags & flag) || !value)
            continue;
        EG_TRY(merge_value(o, value, args));
        given[i] = true;
    }
    return EG_OK;
}

static json_t *value_json(const option_spec *o, void *value)
{
    switch (o->type) {
    case OPTION_TEXT:
        return *(const char **)value ? json_string(*(const char **)value) : json_null();
    case OPTION_INT:
        return json_integer((json_int_t) * (int64_t *)value);
    case OPTION_REAL:
        return json_real(*(double *)value);
    default:
        return json_boolean(*(bool *)value);
    }
}

json_t *options_record(const command *c, const void *args)
{
    json_t *object = json_pack("{s:s}", "command", c->name);
    for (const option_spec *o = c->options; object && o->name; o++) {
        if (!(o->flags & OPTION_RECORDED))
            continue;
        json_t *value = value_json(o, member(o, (void *)(uintptr_t)args));
        if (json_is_null(value)) {
            json_decref(value);
        } else if (json_object_set_new(object, o->name, value) != 0) {
            json_decref(object);
            object = NULL;
        }
    }
    if (!object)
        eg_fail(EG_ENOMEM, "no memory for run.json (or an option is no UTF-8)");
    return object;
}

/* ---------------------------------------------------------------------------------------------- help */

void options_help(const command *c)
{
    printf("usage: engraft %s %s\n\n%s\n\n", c->name, c->synopsis, c->summary);
    if (c->details)
        printf("%s\n\n", c->details);
    for (const option_spec *o = c->options; o->name; o++) {
        char left[64];
        const char *shown = o->shown ? o->shown : o->initial;
        snprintf(left, sizeof left, "--%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
        printf("  %-24s %s", left, o->help);
        if (o->flags & OPTION_REQUIRED)
            printf(" (required)");
        else if (shown)
            printf(" (default: %s)", shown);
        putchar('\n');
    }
    printf("  %-24s %s\n", "--help", "show this text");
}

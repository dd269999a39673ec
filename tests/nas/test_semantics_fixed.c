/*
 * The classic interface, sections 1.11 and 1.12: fixed architectures and classic mode.
 *
 * Has no equal in C: values that are tensors or arrays (a file holds JSON); a mutator that keeps following (what stays
 * open is decided by its own field `fixed`, so there is none); a type of mutable that classic mode does not know; the
 * process ended from inside of a constructor. The environment of classic mode is held by test_classic.c.
 */
#include "nas/semantics.h"

#define GAINS_PQR(ctx) EG_CHOICES({"p", make_gain((ctx), 1)}, {"q", make_gain((ctx), 10)}, {"r", make_gain((ctx), 100)})

/* ---- 1.11 values ---- */

static void value(eg_context *ctx, const char *input, outcome *o)
{
    eg_module *net = eg_sequential(ctx, EG_MODULES(eg_layer_choice(ctx, GAINS_PQR(ctx), .key = "k")));
    eg_arch *arch = eg_arch_new();
    assert_ok(eg_arch_set(arch, "k", input));
    if (eg_apply_arch(net, arch) == EG_OK)
        say_run(o, net);
    else
        say_status(o, eg_error_first()->code, "");
    eg_arch_free(arch);
    eg_module_release(net);
}

static void numbered(eg_context *ctx, const char *input, outcome *o)
{
    eg_module *net = eg_sequential(ctx, EG_MODULES(eg_layer_choice(ctx, GAINS_012(ctx), .key = "k", .fixed = input)));
    say_run(o, net);
    eg_module_release(net);
}

/* Of two sources without a key, "" is the first. */
static void sources(eg_context *ctx, const char *input, outcome *o)
{
    eg_module *m = eg_input_choice(ctx, .choose_from = EG_KEYS("", ""), .key = "in", .fixed = input);
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    if (m == NULL)
        say_status(o, eg_error_first()->code, "");
    else
        say_tensor(o, eg_call(m, eg_full(ctx, EG_SHAPE(1), 1), eg_full(ctx, EG_SHAPE(1), 2)));
    eg_tape_end(tape);
    eg_module_release(m);
}

/* ---- 1.11 keys ---- */

static void keys(eg_context *ctx, const char *input, outcome *o)
{
    bool strict = input[0] == 's';
    eg_module *net = eg_new(pick, ctx, false);
    eg_arch *arch = parse_arch(input + 1);
    eg_status status = eg_fixed_architecture(
        net, arch, &(eg_fixed_options){.struct_size = sizeof(eg_fixed_options), .not_strict = !strict});
    say_status(o, status, "applied");
    eg_arch_free(arch);
    eg_module_release(net);
}

static void files(eg_context *ctx, const char *input, outcome *o)
{
    char *directory = temporary_make(), path[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "arch.json", path);
    if (*input != '\0') {
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        fputs(input, file);
        fclose(file);
    }
    eg_module *net = eg_sequential(ctx, EG_MODULES(eg_layer_choice(ctx, GAINS_PQR(ctx), .key = "k")));
    eg_status status = eg_apply_fixed_architecture(net, path);
    if (status == EG_OK)
        say_run(o, net);
    else
        say_status(o, status, "");
    eg_module_release(net);
    temporary_remove(directory);
}

/* ---- 1.11 replacing ---- */

static const char *kind_of(const eg_module *m)
{
    return m == NULL ? "nothing" : eg_is_a(m, &eg_layer_choice_class) ? "choice" : "gain";
}

static void replacing(eg_context *ctx, const char *input, outcome *o)
{
    bool mask = strcmp(input, "mask") == 0, shared = strcmp(input, "shared") == 0, root = strcmp(input, "root") == 0,
         stay = strcmp(input, "root stays") == 0;
    const char *text = strcmp(input, "two") == 0    ? "{\"k\": [0, 2]}"
                       : strcmp(input, "half") == 0 ? "{\"k\": [0.0, 0.5, 0.0]}"
                       : strcmp(input, "none") == 0 ? "{\"k\": []}"
                                                    : "{\"k\": \"q\"}";
    eg_module *choice = eg_layer_choice(ctx, GAINS_PQR(ctx), .key = "k", .return_mask = mask);
    eg_module *net = root || stay
                         ? eg_module_retain(choice)
                         : eg_sequential(ctx, EG_MODULES(eg_module_retain(choice),
                                                         shared ? eg_module_retain(choice) : eg_identity(ctx)));
    eg_module_release(choice);
    eg_arch *arch = parse_arch(text);
    eg_fixed_options options = {.struct_size = sizeof options, .root = root ? &net : NULL};
    assert_ok(eg_fixed_architecture(net, arch, &options));
    if (root || stay) {
        say(o, "%s", kind_of(net));
    } else {
        const eg_module *first = eg_module_child_at(net, 0, NULL);
        say(o, "%s", kind_of(first));
        if (shared)
            say(o, " %s", first == eg_module_child_at(net, 1, NULL) ? "both" : "one");
        for (size_t i = 0; i < eg_layer_choice_size(first); i++)
            say(o, " %s", kind_of(eg_layer_choice_at(first, i)));
        say(o, " %s", eg_module_find(net, "0.q") != NULL ? "0.q" : "0");
        eg_error_clear();
    }
    eg_arch_free(arch);
    eg_module_release(net);
}

static log_record heard;

/* A layer choice, and one in a part: only that one gives way, and its name is that in the whole. */
static void parts(eg_context *ctx, const char *input, outcome *o)
{
    (void)ctx;
    bool quiet = input[0] == 'q';
    heard = (log_record){0};
    eg_context *loud = eg_context_new(.seed = 1, .threads = 1, .log = record_log, .log_payload = &heard);
    eg_module *inner = eg_sequential(
        loud, EG_MODULES(eg_sequential(loud, EG_MODULES(eg_layer_choice(loud, GAINS_PQR(loud), .key = "b")))));
    eg_module *net = eg_sequential(loud, EG_MODULES(eg_layer_choice(loud, GAINS_PQR(loud), .key = "a"), inner));
    eg_arch *arch = parse_arch("{\"a\": \"p\", \"b\": \"q\"}");
    eg_fixed_options options = {.struct_size = sizeof options, .part = quiet ? input + 1 : input, .quiet = quiet};
    eg_status status = eg_fixed_architecture(net, arch, &options);
    if (status != EG_OK) {
        say_status(o, status, "");
    } else {
        say(o, "%s %s", kind_of(eg_module_find(net, "0")), kind_of(eg_module_find(net, "1.0.0")));
        if (heard.lines > 0)
            say(o, " %zu: %s", heard.lines, heard.last);
    }
    eg_arch_free(arch);
    eg_module_release(net);
    eg_context_free(loud);
}

/* A checkpoint of the supernet goes in before, one of the network after. */
static void checkpoints(eg_context *ctx, const char *input, outcome *o)
{
    (void)input;
    eg_module *net = eg_sequential(ctx, EG_MODULES(eg_layer_choice(ctx, GAINS_PQR(ctx), .key = "k")));
    say(o, "%s ", eg_module_tensor(net, "0.q.weight") != NULL ? "0.q.weight" : "-");
    eg_arch *arch = parse_arch("{\"k\": \"q\"}");
    assert_ok(eg_apply_arch(net, arch));
    say(o, "%s", eg_module_tensor(net, "0.weight") != NULL ? "0.weight" : "-");
    eg_arch_free(arch);
    eg_module_release(net);
}

static void twice(eg_context *ctx, const char *input, outcome *o)
{
    eg_module *net = eg_new(pick, ctx, false);
    eg_arch *arch = parse_arch("{\"left\": 0, \"right\": 1, \"merge\": [0, 1]}");
    eg_mutator *mutator = strcmp(input, "mutator") == 0 ? eg_random_mutator_new(net) : NULL;
    eg_status status = eg_apply_arch(net, arch);
    if (status == EG_OK && strcmp(input, "again") == 0)
        status = eg_apply_arch(net, arch); /* left and right have given way */
    say_status(o, status, "applied");
    eg_mutator_detach(mutator);
    eg_arch_free(arch);
    eg_module_release(net);
}

/* ---- 1.12 classic mode ---- */

static void search_space(eg_context *ctx, const char *input, outcome *o)
{
    eg_module *net = eg_new(pick, ctx, input[0] == 'a');
    say_json(o, eg_search_space_text(net));
    eg_module_release(net);
}

static void stand_alone(eg_context *ctx, const char *input, outcome *o)
{
    eg_module *net = eg_new(pick, ctx, input[0] == 'a');
    eg_mutator *mutator = eg_classic_mutator_new(net);
    say_arch(o, eg_mutator_export(mutator));
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void parameters(eg_context *ctx, const char *input, outcome *o)
{
    eg_module *net = eg_sequential(ctx, EG_MODULES(eg_layer_choice(ctx, GAINS_PQR(ctx), .key = "k")));
    eg_mutator *mutator = eg_classic_mutator_new(net);
    char text[300];
    snprintf(text, sizeof text, "{\"parameter_id\": 0, \"parameters\": {%s}}", input);
    eg_status status = eg_classic_mutator_set(mutator, text);
    if (status == EG_OK)
        say_arch(o, eg_mutator_export(mutator));
    else
        say_status(o, status, "");
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

#define SPACE(n)                                                                                                       \
    "{\"left\":{\"_type\":\"layer_choice\",\"_value\":[\"a\",\"b\",\"c\"]},\"merge\":{\"_type\":\"input_choice\","     \
    "\"_value\":{\"candidates\":[\"left\",\"right\",\"\"],\"n_chosen\":" n                                             \
    "}},\"right\":{\"_type\":\"layer_choice\",\"_value\":[\"0\",\"1\",\"2\"]}}"
#define PQR "!'k' is 7, expected a name, an index 0 to 2"

static const row rows[] = {
    {"1.11", "a name", SAME, value, "\"q\"", "10 10"},
    {"1.11", "an index", SAME, value, "1", "10 10"},
    {"1.11", "a list of one name", SAME, value, "[\"q\"]", "10 10"},
    {"1.11", "a list of one index", SAME, value, "[1]", "10 10"},
    {"1.11", "a real index", SAME, value, "1.0", "10 10"},
    {"1.11", "names and indices", SAME, value, "[\"p\", 2]", "101 101"},
    {"1.11", "integers are indices", SAME, value, "[0, 1]", "11 11"},
    {"1.11", "booleans are a mask", SAME, value, "[true, false, true]", "101 101"},
    {"1.11", "reals are weights", SAME, value, "[0.0, 1.0, 0.0]", "10 10"},
    {"1.11", "weights work", BETTER, value, "[0.5, 0.0, 0.25]", "25.5 25.5"},
    {"1.11", "an empty list", SAME, value, "[]", "none"},
    {"1.11", "null", SAME, value, "null", "none"},
    {"1.11", "an index twice", BETTER, value, "[0, 1, 0]", "!'k' is [0, 1, 0], expected each candidate once"},
    {"1.11", "booleans of another number", BETTER, value, "[true, true]", "!'k' is true, expected"},
    {"1.11", "true", BETTER, value, "true", "!'k' is true, expected"},
    {"1.11", "false", BETTER, value, "false", "!'k' is false, expected"},
    {"1.11", "an index out of range", BETTER, value, "7", PQR},
    {"1.11", "a negative index", BETTER, value, "-1", "!'k' is -1, expected"},
    {"1.11", "one of a list out of range", BETTER, value, "[0, 7]", PQR},
    {"2", "an unknown name, with its key", BETTER, value, "\"zz\"", "!'k' is \"zz\", expected 'p', 'q' or 'r'"},
    {"1.11", "numbered candidates have names", SAME, numbered, "\"1\"", "10 10"},
    {"1.11", "numbered candidates have indices", SAME, numbered, "1", "10 10"},
    {"1.11", "of equal names the first", SAME, sources, "\"\"", "1"},
    {"1.11", "equal names twice", BETTER, sources, "[\"\", \"\"]",
     "!'in' is [\"\", \"\"], expected each candidate once"},
    {"1.11", "all keys", SAME, keys, "s{\"left\": 0, \"right\": 1, \"merge\": [0, 1]}", "applied"},
    {"2", "a key is missing", SAME, keys, "s{\"left\": 0, \"right\": 1}", "!missing keys in the architecture: 'merge'"},
    {"2", "an unexpected key", SAME, keys, "s{\"left\": 0, \"right\": 1, \"merge\": [0], \"x\": 1}",
     "!unexpected keys in the architecture: 'x'"},
    {"1.11", "not strict: as documented", BETTER, keys, "n{\"left\": 0, \"right\": 1, \"merge\": [0], \"x\": 1}",
     "applied"},
    {"1.11", "not strict: missing ones still fail", SAME, keys, "n{\"left\": 0}", "!missing keys"},
    {"1.11", "a file", SAME, files, "{\"k\": \"r\"}", "100 100"},
    {"2", "no file", SAME, files, "", "!not found"},
    {"2", "no JSON", SAME, files, "{\"k\": ", "!malformed data"},
    {"1.11", "one of weight 1 is replaced", SAME, replacing, "one", "gain 0"},
    {"1.11", "two stay, without the third", SAME, replacing, "two", "choice gain nothing gain 0"},
    {"1.11", "half a weight stays", SAME, replacing, "half", "choice nothing gain nothing 0.q"},
    {"1.11", "nothing chosen stays", SAME, replacing, "none", "choice nothing nothing nothing 0"},
    {"1.11", "one whose mask is asked for stays", SAME, replacing, "mask", "choice nothing gain nothing 0.q"},
    {"1.11", "a choice under two names, at both", BETTER, replacing, "shared", "gain both 0"},
    {"1.11", "the root, where the caller holds it", BETTER, replacing, "root", "gain"},
    {"1.11", "the root stays otherwise", SAME, replacing, "root stays", "choice"},
    {"1.11", "within a part, named in the whole", SAME, parts, "1",
     "choice gain 1: replacing '1.0.0' (key 'b') with its candidate 'q'"},
    {"1.11", "within a part of a part", SAME, parts, "1.0",
     "choice gain 1: replacing '1.0.0' (key 'b') with its candidate 'q'"},
    {"1.11", "quietly", BETTER, parts, "q1", "choice gain"},
    {"1.11", "a part that is a choice is not replaced", SAME, parts, "q1.0.0", "choice choice"},
    {"1.11", "a part that is not there", SAME, parts, "2", "!has no child '2'"},
    {"1.11", "names of parameters before and after", SAME, checkpoints, "", "0.q.weight 0.weight"},
    {"2", "an architecture beside a mutator", SAME, twice, "mutator", "!the model has a RandomMutator"},
    {"2", "a second architecture for what gave way", SAME, twice, "again", "!unexpected keys"},
    {"1.12", "search space, any number", SAME, search_space, "any", SPACE("null")},
    {"1.12", "search space, two inputs", SAME, search_space, "2", SPACE("2")},
    {"1.12", "stand-alone, any number: all", SAME, stand_alone, "any",
     "{\"left\":\"a\",\"merge\":[\"left\",\"right\",\"\"],\"right\":0}"},
    {"1.12", "stand-alone, two inputs: the first", SAME, stand_alone, "2",
     "{\"left\":\"a\",\"merge\":[\"left\",\"right\"],\"right\":0}"},
    {"1.12", "parameters", SAME, parameters, "\"k\": {\"_value\": \"q\", \"_idx\": 1}", "{\"k\":\"q\"}"},
    {"2", "no parameters", SAME, parameters, "", "!missing keys in the architecture: 'k'"},
    {"2", "unmatched keys", SAME, parameters, "\"j\": {}", "!unexpected keys in the architecture: 'j'"},
    {"2", "not a valid choice", SAME, parameters, "\"k\": {\"_value\": \"q\", \"_idx\": 3}",
     "!_idx of 'k' is not among"},
    {"2", "index and value differ", SAME, parameters, "\"k\": {\"_value\": \"p\", \"_idx\": 1}",
     "!its candidate is 'q'"},
};

int main(void)
{
    return run_rows("semantics_fixed", rows, sizeof rows / sizeof *rows);
}

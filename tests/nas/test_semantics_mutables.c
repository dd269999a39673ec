/*
 * The classic interface, sections 1.1 to 1.5 of what is known of its behaviour: mutables, layer choices, input choices,
 * scopes, trees.
 *
 * Has no equal in C: keys that are no texts (converted there with a warning); types of containers that are refused
 * (tuple, dict, ModuleList): C's type checks do; the deprecated `length` and `choices`; negative indices; names of
 * candidates that collide with attributes ("length", "key"): a C name collides with nothing; a forward function that
 * was not written: a scope without one fails with "not supported". Nested choices are no error here any more, so the
 * rows that refuse them are not held. The rows of section 2 about single strategies and tuners belong to the tests of
 * these.
 */
#include "nas/semantics.h"

/* ---- 1.1 Mutable ---- */

static void automatic_keys(eg_context *ctx, const char *input, outcome *o)
{
    static const eg_class sub = {.struct_size = sizeof(eg_class),
                                 .name = "Sub",
                                 .super = &eg_layer_choice_class,
                                 .instance_size = sizeof(eg_layer_choice)};
    eg_module *m[] = {
        eg_layer_choice(ctx, GAINS_012(ctx)), eg_input_choice(ctx, .n_candidates = 2),
        eg_layer_choice(ctx, GAINS_012(ctx), .key = "kk"), eg_layer_choice(ctx, GAINS_012(ctx)),
        eg_module_new(&sub, sizeof(eg_layer_choice), &(eg_layer_choice){.base.ctx = ctx, GAINS_012(ctx)})};
    for (size_t i = 0; i < 5; i++) {
        say(o, "%s%s", i > 0 ? " " : "", eg_mutable_key(m[i]));
        eg_module_release(m[i]);
    }
    if (strcmp(input, "reset") == 0)
        eg_context_reset_keys(ctx);
    eg_module *next = eg_input_choice(ctx, .n_candidates = 1);
    say(o, " %s", eg_mutable_key(next));
    eg_module_release(next);
}

/* Names before, while and after a mutator is there. */
static void names(eg_context *ctx, const char *input, outcome *o)
{
    bool root = strcmp(input, "root") == 0;
    eg_module *choice = eg_layer_choice(ctx, GAINS_012(ctx), .key = "k");
    eg_module *net = root ? eg_module_retain(choice)
                          : eg_sequential(ctx, EG_MODULES(make_gain(ctx, 1),
                                                          eg_sequential(ctx, EG_MODULES(eg_module_retain(choice)))));
    say(o, "%s/", eg_mutable_name(choice));
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_made(mutator);
    say(o, "%s/", eg_mutable_name(choice));
    eg_mutator_detach(mutator);
    say(o, "%s", eg_mutable_name(choice));
    eg_module_release(choice);
    eg_module_release(net);
}

static void two_mutators(eg_context *ctx, const char *input, outcome *o)
{
    eg_module *net = eg_new(pick, ctx, false);
    eg_mutator *first = eg_random_mutator_new(net);
    if (strcmp(input, "detached") == 0)
        eg_mutator_detach(first);
    eg_mutator *second = eg_random_mutator_new(strcmp(input, "part") == 0 ? ((pick *)net)->left : net);
    say_status(o, second != NULL ? EG_OK : eg_error_first()->code, "attached");
    eg_mutator_detach(second);
    if (strcmp(input, "detached") != 0)
        eg_mutator_detach(first);
    eg_module_release(net);
}

static void copies(eg_context *ctx, const char *input, outcome *o)
{
    (void)input;
    eg_module *net = eg_new(pick, ctx, false);
    eg_mutator *mutator = eg_random_mutator_new(net);
    eg_module *copy = eg_module_clone(net);
    say(o, "%s %s %s", copy != NULL ? "copied" : "refused", eg_mutable_key(((pick *)copy)->left),
        eg_mutable_mutator(copy) == NULL ? "free" : "bound");
    eg_module_release(copy);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void parameters_of_mutators(eg_context *ctx, const char *input, outcome *o)
{
    (void)input;
    eg_module *net = eg_new(pick, ctx, false);
    int64_t before = eg_module_n_parameters(net);
    eg_mutator *mutator = eg_darts_mutator_new(net);
    assert_made(mutator);
    say(o, "%lld -> %lld", (long long)before, (long long)eg_module_n_parameters(net));
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void unbound(eg_context *ctx, const char *input, outcome *o)
{
    eg_module *m = input[0] == 'l' ? eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k")
                                   : eg_input_choice(ctx, .n_candidates = 1, .key = "k");
    if (input[0] == 's') {
        eg_module_release(m);
        m = eg_new(part, ctx, "k", EG_MODULES(make_gain(ctx, 3)));
    }
    say_run(o, m);
    eg_module_release(m);
}

/* ---- 1.2 LayerChoice: each letter of the input does something to three candidates ---- */

static void edit(eg_context *ctx, const char *input, outcome *o)
{
    bool named = input[0] == 'n';
    eg_module *m =
        named ? eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k") : eg_layer_choice(ctx, GAINS_012(ctx), .key = "k");
    eg_module *slice[3];
    size_t at = 0;
    eg_status status = EG_OK;
    for (const char *c = input + 1; *c != '\0' && status == EG_OK; c++) {
        if (*c == 'd')
            status = eg_layer_choice_remove(m, 1, 2);
        else if (*c == 's')
            status = eg_layer_choice_remove(m, 0, 2);
        else if (*c == 'a')
            status = eg_layer_choice_remove(m, 0, 3);
        else if (*c == 'x')
            status = eg_layer_choice_remove(m, 2, 4);
        else if (*c == 'B')
            status = eg_layer_choice_index(m, "b", &at);
        else if (*c == 'r')
            status = eg_layer_choice_remove(m, at, at + 1);
        else if (*c == 'N')
            status = eg_layer_choice_index(m, "new", &at);
        else if (*c == 'S')
            status = eg_layer_choice_set(m, at, make_gain(ctx, 7));
        else if (*c == 'o')
            status = eg_layer_choice_set(m, 3, make_gain(ctx, 7));
        else if (*c == 'n')
            status = eg_module_empty_child(m, eg_layer_choice_name(m, at));
        else if (*c == 'l')
            status = eg_layer_choice_slice(m, 1, eg_layer_choice_size(m), slice);
    }
    if (status == EG_OK)
        say_names(o, m);
    for (size_t i = 0; i < eg_layer_choice_size(m) && status == EG_OK; i++) {
        const eg_module *candidate = eg_layer_choice_at(m, i);
        say(o, " %g", candidate != NULL ? ((const gain *)candidate)->factor : 0);
    }
    if (strchr(input, 'l') != NULL && status == EG_OK)
        say(o, " [%g %g]", ((gain *)slice[0])->factor, ((gain *)slice[1])->factor);
    if (status != EG_OK)
        say_status(o, status, "");
    eg_module_release(m);
}

static void edit_attached(eg_context *ctx, const char *input, outcome *o)
{
    eg_module *m = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k", .fixed = input[0] == 'f' ? "2" : NULL);
    eg_mutator *mutator = input[0] == 'f' ? NULL : eg_random_mutator_new(m);
    if (mutator != NULL)
        assert_ok(eg_decisions_set_mask(mutator->current, "k", (bool[]){false, true, false}, 3));
    if (strcmp(input, "set") == 0)
        assert_ok(eg_layer_choice_set(m, 1, make_gain(ctx, 7)));
    if (strcmp(input, "empty") == 0)
        assert_ok(eg_module_empty_child(m, "b"));
    eg_status status = strcmp(input, "remove") == 0 || input[0] == 'f' ? eg_layer_choice_remove(m, 0, 1) : EG_OK;
    if (status == EG_OK)
        say_run(o, m);
    else
        say_status(o, status, "");
    eg_mutator_detach(mutator);
    eg_module_release(m);
}

static void candidate_names(eg_context *ctx, const char *input, outcome *o)
{
    eg_module *m = eg_layer_choice(ctx, EG_CHOICES({"a", make_gain(ctx, 1)}, {input, make_gain(ctx, 2)}));
    say_status(o, m != NULL ? EG_OK : eg_error_first()->code, "made");
    eg_module_release(m);
}

/* Two inputs: the second one less. */
typedef struct minus {
    eg_module base;
} minus;

static eg_tensor *minus_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)self, (void)n_in;
    return eg_sub(in[0], in[1]);
}

static EG_CLASS(minus, .forward = minus_forward, .n_inputs = 2);

static void more_arguments(eg_context *ctx, const char *input, outcome *o)
{
    (void)input;
    eg_module *m = eg_layer_choice(ctx, EG_CHOICES({"a", eg_new(minus, ctx)}, {"b", eg_new(minus, ctx)}), .fixed = "1",
                                   .return_mask = true);
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    say_tensor(o, eg_call(m, eg_full(ctx, EG_SHAPE(1), 5), eg_full(ctx, EG_SHAPE(1), 3)));
    eg_tape_end(tape);
    eg_module_release(m);
}

static void printed(eg_context *ctx, const char *input, outcome *o)
{
    (void)input;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k")));
    char *text = eg_module_text(m);
    say(o, "%s %s", strstr(text, "(a): gain") != NULL ? "named" : "no names",
        eg_module_tensor(m, "0.a.weight") != NULL ? "0.a.weight" : "no weight");
    eg_free(text);
    eg_module_release(m);
}

/* ---- 1.3 InputChoice ---- */

typedef struct input_case {
    const char *name;
    int64_t n;
    const char *from[4];
    double n_chosen; /* -1 = unset */
} input_case;

static const input_case input_cases[] = {
    {"n", 3, {NULL}, -1},         {"from", 0, {"", "", NULL}, -1},     {"both", 2, {"", "", NULL}, 1},
    {"zero", 2, {NULL}, 0},       {"mismatch", 3, {"", "", NULL}, -1}, {"neither", 0, {NULL}, -1},
    {"negative", -2, {NULL}, -1}, {"too many chosen", 2, {NULL}, 3},   {"half", 2, {NULL}, 0.5},
};

static void input_choices(eg_context *ctx, const char *input, outcome *o)
{
    const input_case *c = input_cases;
    while (strcmp(c->name, input) != 0)
        c++;
    const char *const *from = c->from[0] != NULL ? c->from : NULL;
    eg_module *m = eg_input_choice(ctx, .n_candidates = c->n, .choose_from = from, .key = "in",
                                   .n_chosen = c->n_chosen >= 0 ? EG_N(c->n_chosen) : (eg_opt_f64){.set = false});
    if (m == NULL) {
        say_status(o, eg_error_first()->code, "");
        return;
    }
    say(o, "%zu of", eg_input_choice_size(m));
    for (size_t i = 0; i < eg_input_choice_size(m); i++)
        say(o, " '%s'", eg_input_choice_source(m, i));
    say(o, " choose %d", (int)eg_input_choice_n_chosen(m));
    eg_module_release(m);
}

/* Inputs are given by name: a letter each, which is also their number; "-" is no key. */
static void named_inputs(eg_context *ctx, const char *input, outcome *o)
{
    eg_module *m = eg_input_choice(ctx, .choose_from = EG_KEYS("a", EG_NO_KEY, "b", EG_NO_KEY), .key = "in",
                                   .reduction = EG_CHOICE_CONCAT, .fixed = "[0, 1, 2, 3]");
    static const char *const texts[] = {"a", "b", "c", ""};
    const char *given[8];
    eg_tensor *in[8];
    size_t n = 0;
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    for (const char *c = input; *c != '\0'; c++, n++) {
        given[n] = *c == '-' ? texts[3] : texts[*c - 'a'];
        in[n] = eg_full(ctx, EG_SHAPE(1, 1), *c == '-' ? (double)n : (double)(*c - 'a') + 100);
    }
    say_tensor(o, eg_input_choice_call(m, given, in, n));
    eg_tape_end(tape);
    eg_module_release(m);
}

static void chosen_inputs(eg_context *ctx, const char *input, outcome *o)
{
    bool none = input[0] == 'n'; /* reduction */
    eg_module *m = eg_input_choice(ctx, .n_candidates = 1, .n_chosen = EG_N(1), .key = "in", .fixed = input + 1,
                                   .reduction = none ? EG_CHOICE_NONE : EG_CHOICE_SUM);
    say_run(o, m);
    eg_module_release(m);
}

static void too_few_inputs(eg_context *ctx, const char *input, outcome *o)
{
    eg_module *m = eg_input_choice(ctx, .n_candidates = 2, .key = "in", .fixed = input);
    say_run(o, m);
    eg_module_release(m);
}

/* ---- 1.4 MutableScope: enters and leaves are written down ---- */

static outcome *journal;

static eg_status note_enter(eg_mutator *self, eg_module *scope)
{
    (void)self;
    say(journal, "+%s ", eg_mutable_key(scope));
    return EG_OK;
}

static eg_status note_exit(eg_mutator *self, eg_module *scope)
{
    (void)self;
    say(journal, "-%s ", eg_mutable_key(scope));
    return EG_OK;
}

static const eg_mutator_class noting = {.struct_size = sizeof(eg_mutator_class),
                                        .name = "Noting",
                                        .instance_size = sizeof(eg_mutator),
                                        .enter_mutable_scope = note_enter,
                                        .exit_mutable_scope = note_exit};

static eg_module *scope(eg_context *ctx, const char *key, eg_module *first, eg_module *second)
{
    return eg_new(part, ctx, key, .modules = (eg_module *const[]){first, second}, .n_modules = second != NULL ? 2 : 1);
}

static eg_module *open_layer(eg_context *ctx, const char *key)
{
    return eg_layer_choice(ctx, GAINS_012(ctx), .key = key);
}

/* o(c1(k1), c2(k2)), c1 anew: the second c1 shares its key. */
static eg_module *scopes_net(eg_context *ctx)
{
    return eg_sequential(ctx, EG_MODULES(scope(ctx, "o", scope(ctx, "c1", open_layer(ctx, "k1"), NULL),
                                               scope(ctx, "c2", open_layer(ctx, "k2"), NULL)),
                                         scope(ctx, "c1", make_gain(ctx, 1), NULL)));
}

static void scopes(eg_context *ctx, const char *input, outcome *o)
{
    eg_module *net = scopes_net(ctx);
    eg_mutator *mutator = eg_mutator_attach(&noting, 0, NULL, net);
    assert_made(mutator);
    if (strcmp(input, "space") == 0) {
        say_json(o, eg_search_space_text(net));
    } else {
        journal = o;
        assert_ok(eg_decisions_set_mask(mutator->current, "k1", (bool[]){false, true, false}, 3));
        if (strcmp(input, "order") == 0) /* else k2 has no decision: a failure inside of c2 */
            assert_ok(eg_decisions_set_mask(mutator->current, "k2", (bool[]){false, true, false}, 3));
        eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
        say(o, "%s", eg_call(net, eg_ones(ctx, EG_SHAPE(1, 1))) != NULL ? "ran" : "failed");
        eg_tape_end(tape);
        eg_error_clear();
    }
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void scope_without_key(eg_context *ctx, const char *input, outcome *o)
{
    eg_module *m = eg_new(part, ctx, input[0] == '-' ? NULL : input, EG_MODULES(make_gain(ctx, 1)));
    say_status(o, m != NULL ? EG_OK : eg_error_first()->code, "made");
    eg_module_release(m);
}

/* ---- 1.5 StructuredMutableTreeNode ---- */

static eg_status note_key(void *payload, eg_module *m)
{
    say(payload, "%s ", eg_mutable_key(m));
    return EG_OK;
}

/* Twice the scope o1 (of o1_c1 and o1_c2, each with an open layer), then an open layer. */
static eg_module *tree_net(eg_context *ctx)
{
    eg_module *m[2];
    for (int i = 0; i < 2; i++)
        m[i] = scope(ctx, "o1", scope(ctx, "o1_c1", open_layer(ctx, "o1op"), NULL),
                     scope(ctx, "o1_c2", open_layer(ctx, "o12op"), NULL));
    return eg_sequential(ctx, EG_MODULES(m[0], m[1], open_layer(ctx, "tail")));
}

static void trees(eg_context *ctx, const char *input, outcome *o)
{
    eg_module *net = tree_net(ctx);
    eg_mutator *mutator = eg_random_mutator_new(net);
    const eg_mutable_node *root = mutator->tree;
    eg_key_memo *memo = eg_key_memo_new();
    bool all = strcmp(input, "all") == 0;
    eg_traverse_order order = strcmp(input, "post") == 0 ? EG_POST_ORDER : EG_PRE_ORDER;
    if (strcmp(input, "children") == 0) {
        for (size_t i = 0; i < root->n_children; i++)
            say(o, "%s ", eg_mutable_key(root->children[i]->module));
    } else if (strcmp(input, "memo") == 0) { /* what the first scope holds is known to the second traversal */
        assert_ok(eg_mutable_node_traverse(root->children[0], order, true, memo, note_key, o));
        say(o, "| ");
        assert_ok(eg_mutable_node_traverse(root, order, true, memo, note_key, o));
    } else if (strcmp(input, "filled") == 0) { /* also where nothing is left out */
        assert_ok(eg_mutable_node_traverse(root->children[2], order, false, memo, note_key, o));
        say(o, "%s %s", eg_key_memo_has(memo, "tail") ? "tail" : "-", eg_key_memo_has(memo, "o1") ? "o1" : "-");
    } else if (strcmp(input, "other") == 0) {
        say_status(o, eg_mutable_node_traverse(root, (eg_traverse_order)2, true, NULL, note_key, o), "");
    } else {
        assert_ok(eg_mutable_node_traverse(root, order, !all, NULL, note_key, o));
    }
    eg_key_memo_free(memo);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* ---- the table ---- */

#define ONE_SPACE                                                                                                      \
    "{\"k1\":{\"_type\":\"layer_choice\",\"_value\":[\"0\",\"1\",\"2\"]},\"k2\":{\"_type\":\"layer_choice\",\"_"       \
    "value\":[\"0\",\"1\",\"2\"]}}"

static const row rows[] = {
    {"1.1", "only automatic keys take a number, under the class's own name", SAME, automatic_keys, "",
     "LayerChoice1 InputChoice2 kk LayerChoice3 Sub4 InputChoice5"},
    {"1.1", "the counter can be reset", SAME, automatic_keys, "reset",
     "LayerChoice1 InputChoice2 kk LayerChoice3 Sub4 InputChoice1"},
    {"1.1", "the name is the key, then the path", SAME, names, "part", "k/1.0/k"},
    {"1.1", "the name of the root is empty", SAME, names, "root", "k//k"},
    {"1.1", "one mutator at a time", SAME, two_mutators, "", "!has a RandomMutator already"},
    {"1.1", "also for a part of the model", SAME, two_mutators, "part", "!has a RandomMutator already"},
    {"1.1", "a model can be unbound", BETTER, two_mutators, "detached", "attached"},
    {"1.1", "a model can be copied, without its mutator", BETTER, copies, "", "copied left free"},
    {"1.1", "parameters of a mutator are none of the model", SAME, parameters_of_mutators, "", "6 -> 6"},
    {"2", "a layer choice without a mutator fails", SAME, unbound, "layer", "!layer choice 'k' has no mutator"},
    {"2", "an input choice without a mutator fails", SAME, unbound, "input", "!input choice 'k' has no mutator"},
    {"1.4", "a scope without a mutator is a plain module", SAME, unbound, "scope", "3 3"},
    {"1.2", "names of a list", SAME, edit, "-", "0,1,2 1 10 100"},
    {"1.2", "names as given, in order", SAME, edit, "n", "a,b,c 1 10 100"},
    {"1.2", "set by index", SAME, edit, "-S", "0,1,2 7 10 100"},
    {"1.2", "set by name", SAME, edit, "nBS", "a,b,c 1 7 100"},
    {"1.2", "a slice", SAME, edit, "nl", "a,b,c 1 10 100 [10 100]"},
    {"1.2", "names are not renumbered", SAME, edit, "-d", "0,2 1 100"},
    {"1.2", "remove by name", SAME, edit, "nBr", "a,c 1 100"},
    {"1.2", "remove a slice", SAME, edit, "-s", "2 100"},
    {"1.2", "remove, then set under the old name", SAME, edit, "nBrS", "a,c 1 7"},
    {"1.2", "a candidate can be emptied", SAME, edit, "nBn", "a,b,c 1 0 100"},
    {"1.2", "an emptied one can be filled", SAME, edit, "nBnS", "a,b,c 1 7 100"},
    {"1.2", "the last one cannot be removed", BETTER, edit, "-a", "!no candidates left"},
    {"1.2", "adding is a failure", BETTER, edit, "nN", "!has no candidate 'new'"},
    {"2", "bad index", SAME, edit, "-o", "!no candidate 3, expected 0 to 2"},
    {"2", "bad slice", BETTER, edit, "-x", "!has 3 candidates: 2 to 4 is no range of them"},
    {"1.2", "set while a mutator is attached", SAME, edit_attached, "set", "7 7"},
    {"1.2", "an empty candidate that is chosen fails", SAME, edit_attached, "empty",
     "!candidate 'b' is chosen, but was"},
    {"1.2", "removing under a mutator would shift decisions", BETTER, edit_attached, "remove", "!detach it before"},
    {"1.2", "removing under a fixed decision too", BETTER, edit_attached, "fixed", "!follows 2, which may count"},
    {"2", "names with a dot", SAME, candidate_names, "x.y", "!'.'"},
    {"2", "an empty name", SAME, candidate_names, "", "!is no name for a slot"},
    {"2", "a name twice", SAME, candidate_names, "a", "!'a'"},
    {"2", "names of attributes are free", BETTER, candidate_names, "reduction", "made"},
    {"1.2", "all arguments reach the candidate; the mask comes with it", SAME, more_arguments, "", "(2, 0 1)"},
    {"1.2", "candidates are direct children", SAME, printed, "", "named 0.a.weight"},
    {"1.3", "a number of candidates", SAME, input_choices, "n", "3 of '' '' '' choose -1"},
    {"1.3", "choose_from alone", SAME, input_choices, "from", "2 of '' '' choose -1"},
    {"1.3", "both, agreeing", SAME, input_choices, "both", "2 of '' '' choose 1"},
    {"1.3", "none of them can be what is asked for", SAME, input_choices, "zero", "2 of '' '' choose 0"},
    {"2", "both, not agreeing", SAME, input_choices, "mismatch", "!n_candidates is 3, but choose_from names 2"},
    {"2", "neither", SAME, input_choices, "neither", "!neither n_candidates nor choose_from"},
    {"2", "a negative number", SAME, input_choices, "negative", "!n_candidates"},
    {"2", "more chosen than there are", SAME, input_choices, "too many chosen", "!n_chosen is 3, expected 0 to 2"},
    {"2", "half an input", SAME, input_choices, "half", "!n_chosen is 0.5"},
    {"1.3", "inputs by name, put in order", BETTER, named_inputs, "ba--", "100 2 101 3"},
    {"1.3", "sources of one name are taken in order", BETTER, named_inputs, "-b-a", "100 0 101 2"},
    {"2", "a source is missing", SAME, named_inputs, "a--", "!input 2, from 'b', is not given"},
    {"2", "a source without a key is missing", SAME, named_inputs, "ab-", "!input 3, from '', is not given"},
    {"2", "an input too many", SAME, named_inputs, "a-b-c", "!was given 'c', which is none of its sources"},
    {"2", "a name too many", SAME, named_inputs, "ab--a", "!was given 'a', which is none of its sources or one too"},
    {"2", "another number of inputs", SAME, too_few_inputs, "0", "!'in' was given 1 inputs, expected 2"},
    {"1.3", "n_chosen is a recommendation", SAME, chosen_inputs, "s[]", "none"},
    {"1.3", "one of one: a shortcut", SAME, chosen_inputs, "s0", "1 1"},
    {"1.3", "nothing chosen, nothing joined: an empty list", SAME, chosen_inputs, "n[]", "()"},
    {"1.4", "enter and exit, nested, for each instance", SAME, scopes, "order", "+o +c1 -c1 +c2 -c2 -o +c1 -c1 ran"},
    {"1.4", "exit when forward fails", SAME, scopes, "failure", "+o +c1 -c1 +c2 -c2 -o failed"},
    {"1.4", "scopes are not in the search space", SAME, scopes, "space", ONE_SPACE},
    {"1.4", "a scope with a key", SAME, scope_without_key, "s", "made"},
    {"2", "a scope without a key", SAME, scope_without_key, "-", "!no key"},
    {"1.5", "pre-order", SAME, trees, "pre", "o1 o1_c1 o1op o1_c2 o12op tail "},
    {"1.5", "post-order", SAME, trees, "post", "o1op o1_c1 o12op o1_c2 o1 tail "},
    {"1.5", "with duplicates", SAME, trees, "all", "o1 o1_c1 o1op o1_c2 o12op o1 o1_c1 o1op o1_c2 o12op tail "},
    {"1.5", "children of the root", SAME, trees, "children", "o1 o1 tail "},
    {"1.5", "a memo is shared by traversals", SAME, trees, "memo", "o1 o1_c1 o1op o1_c2 o12op | tail "},
    {"1.5", "a memo is filled without leaving out", SAME, trees, "filled", "tail tail -"},
    {"2", "another order", SAME, trees, "other", "!order is 2"},
};

int main(void)
{
    return run_rows("semantics_mutables", rows, sizeof rows / sizeof *rows);
}

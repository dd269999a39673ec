/*
 * The classic interface, sections 1.6 to 1.8: parsing a model, following and exporting decisions, random mutators; and
 * the project's own tests of them (section 5).
 *
 * Has no equal in C: assigning `model` of a mutator (a C program that writes there is on its own), calling a mutator
 * like a module (it is none), functions that were not overridden (a class without any follows what it was told), masks
 * of types that are none of decisions' three. Graphs are held by test_graph.c.
 */
#include "nas/semantics.h"

/* ---- 1.6 parsing: a list of mutables, "L" a layer choice of key, "I" an input choice from key ---- */

static eg_module *open_layer(eg_context *ctx, const char *key)
{
    return eg_layer_choice(ctx, GAINS_ABC(ctx), .key = key);
}

static eg_module *choose_from(eg_context *ctx, const char *source)
{
    return eg_input_choice(ctx, .choose_from = EG_KEYS(source), .key = "in");
}

static void parsing(eg_context *ctx, const char *input, outcome *o)
{
    eg_module *shared = open_layer(ctx, "a"), *net = NULL;
    if (strcmp(input, "shared") == 0)
        net = eg_sequential(ctx, EG_MODULES(eg_module_retain(shared), eg_module_retain(shared), open_layer(ctx, "a")));
    else if (strcmp(input, "later") == 0)
        net = eg_sequential(ctx, EG_MODULES(choose_from(ctx, "a"), eg_module_retain(shared)));
    else if (strcmp(input, "before") == 0)
        net = eg_sequential(ctx, EG_MODULES(eg_module_retain(shared), choose_from(ctx, "a")));
    else if (strcmp(input, "unknown") == 0)
        net = eg_sequential(ctx, EG_MODULES(eg_module_retain(shared), choose_from(ctx, "b")));
    else if (strcmp(input, "own") == 0)
        net = eg_sequential(ctx, EG_MODULES(choose_from(ctx, "in")));
    else if (strcmp(input, "scope") == 0)
        net = eg_new(part, ctx, "s", EG_MODULES(choose_from(ctx, "s")));
    else if (strcmp(input, "empty") == 0)
        net = eg_sequential(ctx, EG_MODULES(eg_identity(ctx), eg_module_retain(shared)));
    else if (strcmp(input, "sizes") == 0)
        net = eg_sequential(
            ctx, EG_MODULES(eg_module_retain(shared), eg_layer_choice(ctx, EG_MODULES(make_gain(ctx, 1)), .key = "a")));
    eg_module_release(shared);
    assert_made(net);
    if (strcmp(input, "empty") == 0)
        assert_ok(eg_module_empty_child(net, "0"));
    eg_mutator *mutator = eg_random_mutator_new(net);
    if (mutator == NULL)
        say_status(o, eg_error_first()->code, "");
    for (size_t i = 0; mutator != NULL && i < mutator->n_mutables; i++)
        say(o, "%s:%s ", eg_mutable_key(mutator->mutables[i]), eg_mutable_name(mutator->mutables[i]));
    if (mutator != NULL)
        say(o, "of %zu", mutator->tree->n_children);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* ---- 1.7 following: candidates 1, 10, 100 times (1, 1) ---- */

/* "sum 101" is a mask, "sum .5 0 .25" weights, "sum t .5 0 .25" a tensor of weights. */
static void follow(eg_context *ctx, const char *input, outcome *o)
{
    static const char *const names[] = {"sum", "mean", "concat", "none"};
    int reduction = 0;
    while (strncmp(input, names[reduction], strlen(names[reduction])) != 0)
        reduction++;
    const char *text = strchr(input, ' ') + 1;
    bool tensor = *text == 't', plain = strchr(text, '.') == NULL;
    eg_module *m = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k", .reduction = reduction, .return_mask = tensor);
    eg_mutator *mutator = eg_mutator_attach(&eg_mutator_base_class, 0, NULL, m);
    double weights[8] = {0};
    bool mask[8] = {false};
    float numbers[8] = {0};
    int n = 0;
    for (const char *c = tensor ? text + 1 : text; *c != '\0' && n < 8; n++) {
        char *end;
        weights[n] = plain ? *c - '0' : strtod(c, &end);
        numbers[n] = (float)weights[n];
        mask[n] = weights[n] != 0;
        c = plain ? c + 1 : end;
    }
    if (tensor)
        assert_ok(eg_decisions_set_tensor(mutator->current, "k", eg_from_data(ctx, EG_SHAPE(n), numbers)));
    else
        assert_ok(plain ? eg_decisions_set_mask(mutator->current, "k", mask, (size_t)n)
                        : eg_decisions_set_weights(mutator->current, "k", weights, (size_t)n));
    say_run(o, m);
    eg_mutator_detach(mutator);
    eg_module_release(m);
}

static void no_decision(eg_context *ctx, const char *input, outcome *o)
{
    eg_module *net = eg_new(pick, ctx, false);
    eg_mutator *mutator = eg_random_mutator_new(net);
    if (strcmp(input, "after reset") == 0)
        assert_ok(eg_mutator_reset(mutator));
    if (strcmp(input, "status") == 0)
        say_json(o, eg_mutator_status(mutator));
    else if (run_on_one(net) >= 0)
        say(o, "ran");
    else
        say_status(o, eg_error_first()->code, "");
    eg_error_clear();
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void reductions(eg_context *ctx, const char *input, outcome *o)
{
    (void)input;
    eg_module *m = eg_layer_choice(ctx, GAINS_ABC(ctx), .reduction = 7);
    say_status(o, m != NULL ? EG_OK : eg_error_first()->code, "made");
    eg_module_release(m);
}

/* ---- 1.7 export: a decision for "k", exported, and read again ---- */

static eg_status sample_two(eg_mutator *self, eg_decisions *out)
{
    (void)self;
    return eg_decisions_set_mask(out, "k", (const bool[]){false, true, false}, 3);
}

static eg_status sample_more(eg_mutator *self, eg_decisions *out)
{
    EG_TRY(sample_two(self, out));
    return eg_decisions_set_mask(out, "more", (const bool[]){true}, 1);
}

static eg_status sample_none(eg_mutator *self, eg_decisions *out)
{
    (void)self, (void)out;
    return EG_OK;
}

static eg_status sample_short(eg_mutator *self, eg_decisions *out)
{
    (void)self;
    return eg_decisions_set_mask(out, "k", (const bool[]){true, false}, 2);
}

static void export_of(eg_context *ctx, const char *input, outcome *o)
{
    eg_mutator_class cls = {.struct_size = sizeof cls, .name = "Two", .instance_size = sizeof(eg_mutator)};
    cls.sample_final = strcmp(input, "more") == 0    ? sample_more
                       : strcmp(input, "none") == 0  ? sample_none
                       : strcmp(input, "short") == 0 ? sample_short
                                                     : sample_two;
    eg_module *m = open_layer(ctx, "k");
    eg_mutator *mutator = eg_mutator_attach(&cls, 0, NULL, m);
    assert_ok(eg_decisions_set_mask(mutator->current, "k", (const bool[]){true, false, false}, 3));
    say_arch(o, eg_mutator_export(mutator));
    if (strcmp(input, "two") == 0)
        say_run(o, m); /* the decision in force is another */
    eg_mutator_detach(mutator);
    eg_module_release(m);
}

/* The first letter: numbered, named, digits (named "3", "5", "7"), inputs of names, inputs with doubles, inputs
 * unnamed. */
static void conversions(eg_context *ctx, const char *input, outcome *o)
{
    const eg_named_module digits[] = {{"3", make_gain(ctx, 1)}, {"5", make_gain(ctx, 1)}, {"7", make_gain(ctx, 1)}};
    eg_module *inputs = eg_sequential(ctx, EG_MODULES(open_layer(ctx, "a"), open_layer(ctx, "b")));
    eg_module *m = NULL;
    if (input[0] == 'i')
        m = eg_input_choice(ctx, .choose_from = EG_KEYS("a", "b", ""), .key = "k");
    else if (input[0] == 'j')
        m = eg_input_choice(ctx, .choose_from = EG_KEYS("a", "", ""), .key = "k");
    else if (input[0] == '0')
        m = eg_layer_choice(ctx, GAINS_012(ctx), .key = "k");
    else if (input[0] == 'd')
        m = eg_layer_choice(ctx, .named = digits, .n_named = 3, .key = "k");
    else
        m = open_layer(ctx, "k");
    if (input[0] != 'd')
        for (int i = 0; i < 3; i++)
            eg_module_release(digits[i].module);
    eg_module *net = eg_sequential(ctx, EG_MODULES(inputs, m));
    eg_mutator *mutator = eg_mutator_attach(&eg_mutator_base_class, 0, NULL, net);
    assert_made(mutator);
    double weights[3];
    bool mask[3];
    assert_int_equal(sscanf(input + 1, "%lf %lf %lf", &weights[0], &weights[1], &weights[2]), 3);
    for (int i = 0; i < 3; i++)
        mask[i] = weights[i] != 0;
    eg_decisions *d = mutator->current;
    assert_ok(eg_decisions_set_mask(d, "a", (const bool[]){true, false, false}, 3));
    assert_ok(eg_decisions_set_mask(d, "b", (const bool[]){true, false, false}, 3));
    assert_ok(strchr(input, '.') != NULL ? eg_decisions_set_weights(d, "k", weights, 3)
                                         : eg_decisions_set_mask(d, "k", mask, 3));
    eg_arch *arch = eg_mutator_export(mutator);
    assert_made(arch);
    char *value = eg_arch_value(arch, "k");
    say(o, "%s", value);
    eg_free(value);
    assert_ok(eg_mutator_set_arch(mutator, arch)); /* any decision survives export and apply */
    for (size_t i = 0; i < 3; i++)
        assert_close(eg_decisions_get(mutator->current, "k")->weights[i], weights[i], 1e-12);
    eg_arch_free(arch);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void status(eg_context *ctx, const char *input, outcome *o)
{
    (void)input;
    eg_module *net = eg_new(pick, ctx, false);
    eg_mutator *mutator = eg_mutator_attach(&eg_mutator_base_class, 0, NULL, net);
    assert_ok(eg_decisions_set_mask(mutator->current, "left", (const bool[]){true, false, false}, 3));
    assert_ok(eg_decisions_set_weights(mutator->current, "right", (const double[]){0.5, 0, 1}, 3));
    assert_ok(eg_decisions_set_tensor(mutator->current, "merge", eg_full(ctx, EG_SHAPE(3), 0.25)));
    say_json(o, eg_mutator_status(mutator));
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* ---- 1.8 random mutators: shares of the outcomes against equal ones, with a fixed seed ---- */

/* Chi-squared that a fair sample exceeds with a probability of 1 in 1000, for 1 .. 9 degrees of freedom. */
static const double critical[] = {0, 10.83, 13.82, 16.27, 18.47, 20.52, 22.46, 24.32, 26.12, 27.88};

/* "layer": 3 candidates; "K of N" inputs; "any of N". Writes how many different masks came. */
static void random_shares(eg_context *ctx, const char *input, outcome *o)
{
    enum { DRAWS = 4000 };
    int n = 3, k = -1;
    if (sscanf(input, "%d of %d", &k, &n) != 2 && sscanf(input, "any of %d", &n) != 1)
        assert_string_equal(input, "layer");
    eg_module *m = strcmp(input, "layer") == 0
                       ? open_layer(ctx, "k")
                       : eg_input_choice(ctx, .n_candidates = n, .n_chosen = EG_N(k), .key = "k");
    eg_mutator *mutator = eg_random_mutator_new(m);
    int counts[16] = {0}, different = 0;
    for (int i = 0; i < DRAWS; i++) {
        assert_ok(eg_mutator_reset(mutator));
        const eg_decision *d = eg_decisions_get(mutator->current, "k");
        int mask = 0;
        for (size_t c = 0; c < d->n; c++)
            mask |= d->weights[c] != 0 ? 1 << c : 0;
        different += counts[mask]++ == 0 ? 1 : 0;
    }
    double expected = (double)DRAWS / different, chi = 0;
    for (int mask = 0; mask < 16; mask++)
        chi += counts[mask] > 0 ? (counts[mask] - expected) * (counts[mask] - expected) / expected : 0;
    assert_true(different <= 10);
    say(o, "%d %s", different, different == 1 || chi < critical[different - 1] ? "equal shares" : "unequal");
    eg_mutator_detach(mutator);
    eg_module_release(m);
}

static void random_repeats(eg_context *ctx, const char *input, outcome *o)
{
    (void)input;
    eg_module *net = eg_new(pick, ctx, true);
    eg_mutator *mutator = eg_random_mutator_new(net);
    eg_rng start = *eg_context_rng(ctx);
    eg_arch *a[6], *b[6];
    for (int i = 0; i < 6; i++)
        a[i] = eg_mutator_export(mutator);
    *eg_context_rng(ctx) = start;
    bool repeats = true, fresh = false;
    for (int i = 0; i < 6; i++) {
        b[i] = eg_mutator_export(mutator);
        repeats = repeats && eg_arch_equal(a[i], b[i]);
        fresh = fresh || !eg_arch_equal(a[0], a[i]);
    }
    say(o, "%s, %s", repeats ? "repeats" : "differs", fresh ? "each export is a new sample" : "one sample");
    for (int i = 0; i < 6; i++)
        eg_arch_free(a[i]), eg_arch_free(b[i]);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* ---- 5 the project's own tests ---- */

/* NaiveSearchSpace: two layer choices, one that returns its mask; "choose one or none", "any of two" with its mask. */
typedef struct naive {
    eg_module base;
    eg_module *conv1, *conv2, *skip, *sum;
} naive;

static eg_status naive_build(eg_module *self)
{
    naive *s = (naive *)self;
    eg_context *ctx = self->ctx;
    EG_SLOT(
        s, conv1,
        eg_layer_choice(ctx, EG_MODULES(eg_conv2d(ctx, 3, 3, 3, .padding = 1), eg_conv2d(ctx, 3, 3, 5, .padding = 2))));
    EG_SLOT(s, conv2,
            eg_layer_choice(ctx,
                            EG_MODULES(eg_conv2d(ctx, 3, 3, 3, .padding = 1), eg_conv2d(ctx, 3, 3, 5, .padding = 2)),
                            .return_mask = true));
    EG_SLOT(s, skip, eg_input_choice(ctx, .n_candidates = 1));
    EG_SLOT(s, sum, eg_input_choice(ctx, .n_candidates = 2, .return_mask = true));
    return eg_module_status(self);
}

static eg_tensor *naive_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    naive *s = (naive *)self;
    eg_tensor *x0 = eg_call(s->skip, in[0]), *x1 = eg_call(s->conv1, in[0]);
    x1 = eg_add(x1, x0); /* x0 may be none */
    eg_tensor *both = eg_call(s->conv2, x1), *picked = eg_call(s->sum, eg_tuple_get(both, 0), x1);
    if (picked == NULL || eg_tensor_numel(eg_tuple_get(both, 1)) != 2 || eg_tensor_numel(eg_tuple_get(picked, 1)) != 2)
        return NULL;
    return eg_is_none(eg_tuple_get(picked, 0)) ? x1 : eg_tuple_get(picked, 0);
}

static EG_NAMED_CLASS(naive, "NaiveSearchSpace", .build = naive_build, .forward = naive_forward);

/* SpaceWithMutableScope: nodes that are scopes; each picks one of the tensors before it and an operation. */
typedef struct node {
    eg_module base;
    const char *key;
    int64_t index;
    eg_module *input, *op;
} node;

static eg_status node_build(eg_module *self)
{
    node *n = (node *)self;
    char keys[2][24];
    const char *from[] = {EG_NO_KEY, EG_NO_KEY, "node_2", "node_3", NULL};
    from[n->index] = NULL;
    snprintf(keys[0], sizeof keys[0], "%s_x_input", n->key);
    snprintf(keys[1], sizeof keys[1], "%s_x_op", n->key);
    EG_SLOT(n, input,
            eg_input_choice(self->ctx, .choose_from = from, .n_chosen = EG_N(1), .return_mask = true, .key = keys[0]));
    EG_SLOT(n, op, eg_layer_choice(self->ctx, GAINS_ABC(self->ctx), .key = keys[1]));
    return eg_module_status(self);
}

static eg_tensor *node_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    node *n = (node *)self;
    eg_tensor *picked = eg_module_call(n->input, in, n_in);
    if (picked == NULL || eg_tensor_numel(eg_tuple_get(picked, 1)) != n->index)
        return NULL;
    return eg_call(n->op, eg_tuple_get(picked, 0));
}

static EG_CLASS(node, .super = &eg_mutable_scope_class, .build = node_build, .forward = node_forward,
                .n_inputs = EG_ANY_INPUTS,
                .fields = EG_FIELDS(EG_TEXT(node, key, .help = "key"), EG_INT(node, index, .help = "its number")));

typedef struct scoped {
    eg_module base;
    eg_module *nodes[3];
} scoped;

static eg_status scoped_build(eg_module *self)
{
    static const char *const keys[] = {"node_2", "node_3", "node_4"};
    for (int i = 0; i < 3; i++)
        EG_TRY(
            eg_module_add_child(self, keys[i], &((scoped *)self)->nodes[i], eg_new(node, self->ctx, keys[i], i + 2)));
    return EG_OK;
}

static eg_tensor *scoped_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    eg_tensor *x[5] = {in[0], in[0]};
    for (int i = 0; i < 3; i++) {
        x[i + 2] = eg_module_call(((scoped *)self)->nodes[i], x, (size_t)i + 2);
        if (x[i + 2] == NULL)
            return NULL;
    }
    return eg_is_none(x[4]) ? in[0] : x[4];
}

static EG_CLASS(scoped, .build = scoped_build, .forward = scoped_forward);

/* A step, of what a mutator samples where there is one: the weights of DARTS belong to the tape. */
static bool backward_works(eg_module *net, eg_mutator *mutator)
{
    eg_tape *tape = eg_tape_begin(net->ctx, EG_RECORD);
    if (mutator != NULL)
        assert_ok(eg_mutator_reset(mutator));
    eg_tensor *y = eg_call(net, eg_ones(net->ctx, EG_SHAPE(2, 3, 8, 8)));
    bool worked = y != NULL && eg_backward(eg_sum(y)) == EG_OK;
    eg_tape_end(tape);
    eg_module_zero_grad(net);
    return worked;
}

static void train_and_fix(eg_context *ctx, const char *input, outcome *o)
{
    bool scopes = strncmp(input, "scoped ", 7) == 0;
    input += scopes ? 7 : 0;
    eg_module *net = scopes ? eg_new(scoped, ctx) : eg_new(naive, ctx);
    eg_mutator *mutator = strcmp(input, "random") == 0  ? eg_random_mutator_new(net)
                          : strcmp(input, "darts") == 0 ? eg_darts_mutator_new(net)
                                                        : eg_classic_mutator_new(net);
    assert_made(mutator);
    int good = 0;
    for (int i = 0; i < 20; i++)
        good += backward_works(net, mutator) ? 1 : 0;
    eg_arch *arch = eg_mutator_export(mutator);
    assert_made(arch);
    eg_context_reset_keys(ctx);
    eg_module *fixed = scopes ? eg_new(scoped, ctx) : eg_new(naive, ctx);
    for (size_t i = 0; i < eg_arch_size(arch); i++)
        say(o, "%s ", eg_arch_key(arch, i));
    assert_ok(eg_apply_arch(fixed, arch));
    say(o, "%d %s", good, backward_works(fixed, NULL) ? "fixed" : "failed");
    eg_arch_free(arch);
    eg_mutator_detach(mutator);
    eg_module_release(net);
    eg_module_release(fixed);
}

#define SCOPED "node_2_x_input node_2_x_op node_3_x_input node_3_x_op node_4_x_input node_4_x_op 20 fixed"
#define NAIVE "InputChoice3 InputChoice4 LayerChoice1 LayerChoice2 20 fixed"

static const row rows[] = {
    {"1.6", "each module once, each key once, nodes for all", SAME, parsing, "shared", "a:0 of 2"},
    {"1.6", "a source before", SAME, parsing, "before", "a:0 in:1 of 2"},
    {"1.6", "a choice's own key counts", SAME, parsing, "own", "in:0 of 1"},
    {"1.6", "so does that of a scope around it", SAME, parsing, "scope", "s: in:0 of 1"},
    {"1.6", "emptied slots are passed over", SAME, parsing, "empty", "a:1 of 1"},
    {"2", "a source that comes later", SAME, parsing, "later", "!'in' chooses from 'a', which is no key that appeared"},
    {"2", "a source that is nowhere", SAME, parsing, "unknown", "!'in' chooses from 'b'"},
    {"2", "one key for two sizes, found at once", BETTER, parsing, "sizes",
     "!'a' has 3 candidates at '0' and 1 at '1'"},
    {"1.7", "mask, sum", SAME, follow, "sum 101", "101 101"},
    {"1.7", "mask, mean of what is chosen", SAME, follow, "mean 101", "50.5 50.5"},
    {"1.7", "mask, concat", SAME, follow, "concat 101", "1 1 100 100"},
    {"1.7", "mask, none", SAME, follow, "none 101", "(1 1, 100 100)"},
    {"1.7", "one chosen is passed on", SAME, follow, "mean 010", "10 10"},
    {"1.7", "one chosen, concat", SAME, follow, "concat 010", "10 10"},
    {"1.7", "one chosen, none: a list of one", SAME, follow, "none 010", "(10 10)"},
    {"1.7", "weights, sum", SAME, follow, "sum .5 0 .25", "25.5 25.5"},
    {"1.7", "weights, mean: by number, not by weight", SAME, follow, "mean .5 0 .25", "12.75 12.75"},
    {"1.7", "weights, concat", SAME, follow, "concat .5 0 .25", "0.5 0.5 25 25"},
    {"1.7", "weights, none", SAME, follow, "none .5 0 .25", "(0.5 0.5, 25 25)"},
    {"1.7", "nothing chosen, sum", SAME, follow, "sum 000", "none"},
    {"1.7", "nothing chosen, mean", SAME, follow, "mean 000", "none"},
    {"1.7", "nothing chosen, concat", SAME, follow, "concat 000", "none"},
    {"1.7", "nothing chosen, none", SAME, follow, "none 000", "()"},
    {"1.7", "a tensor of weights, and it as the mask", SAME, follow, "sum t .5 .25 .25", "(28 28, 0.5 0.25 0.25)"},
    {"1.7", "lists of numbers work", BETTER, follow, "sum 1. 0. 2.", "201 201"},
    {"2", "a mask too short", SAME, follow, "sum 10", "!'k': the decision has 2 entries, expected 3"},
    {"2", "a mask too long", SAME, follow, "sum 1000", "!'k': the decision has 4 entries, expected 3"},
    {"2", "weights too short", SAME, follow, "sum .5 .5", "!'k': the decision has 2 entries, expected 3"},
    {"2", "an unknown reduction, when the choice is made", BETTER, reductions, "", "!reduction"},
    {"2", "forward before reset", SAME, no_decision, "", "!mutator 'RandomMutator' has no decision for it (forgot"},
    {"1.7", "forward after reset", SAME, no_decision, "after reset", "ran"},
    {"1.7", "status before reset", SAME, no_decision, "status", "{}"},
    {"1.7", "export samples anew and leaves what is in force", SAME, export_of, "two", "{\"k\":\"b\"}1 1"},
    {"2", "export without a key", SAME, export_of, "none", "!there is no decision for 'k'"},
    {"2", "export with a key too many", SAME, export_of, "more", "!'more', which is no choice of the model"},
    {"2", "export of a mask too short", SAME, export_of, "short", "!'k'"},
    {"1.7", "several, numbered", SAME, conversions, "0 1 0 1", "[0, 2]"},
    {"1.7", "one, numbered, as real numbers", SAME, conversions, "0 1. 0. 0.", "0"},
    {"1.7", "weights", SAME, conversions, "0 .5 0 .25", "[0.5, 0.0, 0.25]"},
    {"1.7", "none", SAME, conversions, "0 0 0 0", "[]"},
    {"1.7", "one, named", SAME, conversions, "n 0 1 0", "\"b\""},
    {"1.7", "several, named", SAME, conversions, "n 1 1 0", "[\"a\", \"b\"]"},
    {"1.7", "names of digits are no names", SAME, conversions, "d 0 1 0", "1"},
    {"1.7", "inputs by the keys of their sources", SAME, conversions, "i 1 0 1", "[\"a\", \"\"]"},
    {"1.7", "inputs whose sources are not distinct", SAME, conversions, "j 1 0 1", "[0, 2]"},
    {"1.7", "one input", SAME, conversions, "i 0 1 0", "\"b\""},
    {"1.7", "status", SAME, status, "",
     "{\"left\":[true,false,false],\"merge\":[0.25,0.25,0.25],\"right\":[0.5,0.0,1.0]}"},
    {"1.8", "layer choices", SAME, random_shares, "layer", "3 equal shares"},
    {"1.8", "any number: a coin for each", SAME, random_shares, "any of 3", "8 equal shares"},
    {"1.8", "one of two", SAME, random_shares, "1 of 2", "2 equal shares"},
    {"1.8", "two of four", SAME, random_shares, "2 of 4", "6 equal shares"},
    {"1.8", "none of three", SAME, random_shares, "0 of 3", "1 equal shares"},
    {"1.8", "all of three", SAME, random_shares, "3 of 3", "1 equal shares"},
    {"1.8", "a seed decides", SAME, random_repeats, "", "repeats, each export is a new sample"},
    {"5.1", "random: train, export, fix another", SAME, train_and_fix, "random", NAIVE},
    {"5.1", "darts: train, export, fix another", SAME, train_and_fix, "darts", NAIVE},
    {"5.1", "random, with scopes", SAME, train_and_fix, "scoped random", SCOPED},
    {"5.1", "darts, with scopes", SAME, train_and_fix, "scoped darts", SCOPED},
    {"5.4", "classic, with scopes", SAME, train_and_fix, "scoped classic", SCOPED},
    {"5.4", "classic, stand-alone", SAME, train_and_fix, "classic", NAIVE},
};

int main(void)
{
    return run_rows("semantics_mutators", rows, sizeof rows / sizeof *rows);
}

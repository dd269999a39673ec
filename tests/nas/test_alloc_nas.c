/*
 * Every function of nas.h that hands something over, and what is done with it next: each allocation fails once. A
 * model that a failure left behind is as it was before.
 */
#include "alloc_table.h"

#include "nas/toy.h"

typedef struct world {
    alloc_world base;
    eg_module *model; /* has no mutator */
    eg_arch *arch;    /* of it */
    char *text, *arch_text;
} world;

static char *directory, arch_path[TEMPORARY_PATH_SIZE], rewritten[TEMPORARY_PATH_SIZE];

static const char arch_json[] =
    "{\"left\": \"b\", \"right\": 2, \"merge\": [\"left\", \"right\"], \"inner\": [0.25, 0.5, 0.25]}";

/* Two scopes, three layer choices and an input choice. */
static eg_module *make_model(eg_context *ctx)
{
    eg_module *inner = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "inner");
    return eg_sequential(
        ctx, EG_MODULES(eg_new(part, ctx, .key = "cell", EG_MODULES(eg_new(pick, ctx), inner)), eg_identity(ctx)));
}

static void setup(void *payload)
{
    world *w = payload;
    w->model = make_model(w->base.ctx);
    w->arch = eg_arch_parse(arch_json);
    w->text = eg_module_text(w->model);
    w->arch_text = eg_arch_text(w->arch);
    assert_made(w->model);
    assert_true(w->arch && w->text && w->arch_text);
}

static void teardown(void *payload)
{
    world *w = payload;
    eg_module_release(w->model);
    eg_arch_free(w->arch);
    eg_free(w->text);
    eg_free(w->arch_text);
}

static void check(void *payload)
{
    world *w = payload;
    assert_int_equal(w->model->refs, 1);
    assert_null(eg_mutable_mutator(w->model));
    char *text = eg_module_text(w->model), *arch_text = eg_arch_text(w->arch);
    assert_true(text && arch_text);
    assert_string_equal(text, w->text);
    assert_string_equal(arch_text, w->arch_text);
    eg_free(text);
    eg_free(arch_text);
    assert_string_equal(eg_mutable_name(eg_module_find(w->model, "0.0.left")),
                        "left"); /* the key: it is bound to nobody */
}

#define MAKES(row, type, make, release)                                                                                \
    static eg_status row(void *payload)                                                                                \
    {                                                                                                                  \
        world *w = payload;                                                                                            \
        eg_context *ctx = w->base.ctx;                                                                                 \
        (void)ctx;                                                                                                     \
        type *made = make;                                                                                             \
        eg_status status = alloc_made(made);                                                                           \
        release(made);                                                                                                 \
        return status;                                                                                                 \
    }

/* ---- mutables ---- */

MAKES(layer_choice, eg_module, eg_layer_choice(ctx, GAINS_ABC(ctx)), eg_module_release)
MAKES(layer_choice_numbered, eg_module, eg_layer_choice(ctx, GAINS_012(ctx), .key = "op"), eg_module_release)
MAKES(input_choice, eg_module, eg_input_choice(ctx, .n_candidates = 3), eg_module_release)
MAKES(input_choice_keys, eg_module, eg_input_choice(ctx, .choose_from = EG_KEYS("a", EG_NO_KEY), .n_chosen = EG_N(1)),
      eg_module_release)
MAKES(layer_choice_fixed, eg_module, eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "op", .fixed = "[0.25, 0.5, 0.25]"),
      eg_module_release)
MAKES(input_choice_fixed, eg_module, eg_input_choice(ctx, .n_candidates = 3, .fixed = "[0, 2]"), eg_module_release)
MAKES(value_choice, eg_module, eg_linear(ctx, 2, eg_value_choice(ctx, EG_VALUES(2, 3), .key = "w")), eg_module_release)
MAKES(scope, eg_module, eg_new(part, ctx, .key = "cell", EG_MODULES(make_gain(ctx, 2))), eg_module_release)
MAKES(clone, eg_module, eg_module_clone(w->model), eg_module_release)

/* ---- architectures ---- */

MAKES(arch_new, eg_arch, eg_arch_new(), eg_arch_free)
MAKES(arch_copy, eg_arch, eg_arch_copy(w->arch), eg_arch_free)
MAKES(arch_parse, eg_arch, eg_arch_parse(arch_json), eg_arch_free)
MAKES(arch_load, eg_arch, eg_arch_load(arch_path), eg_arch_free)
MAKES(arch_text, char, eg_arch_text(w->arch), eg_free)
MAKES(arch_value, char, eg_arch_value(w->arch, "inner"), eg_free)

static eg_status arch_save(void *payload)
{
    return eg_arch_save(((world *)payload)->arch, rewritten);
}

static eg_status fill_arch(eg_arch *arch)
{
    EG_TRY(eg_arch_set(arch, "b", "[0.5, 0.25]"));
    EG_TRY(eg_arch_set(arch, "a", "\"conv3x3\""));
    for (size_t i = 0; i < eg_arch_size(arch); i++)
        EG_TRY(alloc_made(eg_arch_key(arch, i)));
    return eg_arch_set(arch, "a", "1");
}

static eg_status arch_set(void *payload)
{
    (void)payload;
    eg_arch *arch = eg_arch_new();
    eg_status status = alloc_made(arch);
    if (status == EG_OK)
        status = fill_arch(arch);
    eg_arch_free(arch);
    return status;
}

/* ---- decisions ---- */

static eg_status fill_decisions(eg_context *ctx, eg_decisions *decisions)
{
    EG_TRY(eg_decisions_set_mask(decisions, "a", (const bool[]){true, false}, 2));
    EG_TRY(eg_decisions_set_weights(decisions, "b", (const double[]){0.5, 0.5}, 2));
    EG_TRY(eg_decisions_set_tensor(decisions, "c", eg_ones(ctx, EG_SHAPE(2))));
    EG_TRY(eg_decisions_set_mask(decisions, "b", (const bool[]){true, false, false}, 3));
    return eg_decisions_set_tensor(decisions, "a", eg_ones(ctx, EG_SHAPE(2)));
}

static eg_status decisions(void *payload)
{
    eg_decisions *made = eg_decisions_new();
    eg_status status = alloc_made(made);
    if (status == EG_OK)
        status = fill_decisions(((world *)payload)->base.ctx, made);
    eg_decisions_free(made);
    return status;
}

/* ---- mutators ---- */

static eg_status visit(void *payload, eg_module *m)
{
    (void)payload, (void)m;
    return EG_OK;
}

static eg_status run(eg_mutator *mutator)
{
    eg_tape *tape = eg_tape_begin(mutator->ctx, EG_RECORD);
    EG_TRY(alloc_made(tape));
    eg_status status = eg_mutator_reset(mutator);
    if (status == EG_OK)
        status = alloc_made(eg_call(mutator->model, eg_ones(mutator->ctx, EG_SHAPE(1, 1))));
    eg_tape_end(tape);
    return status;
}

static eg_status use_mutator(world *w, eg_mutator *mutator)
{
    EG_TRY(eg_mutable_node_traverse(mutator->tree, EG_POST_ORDER, true, NULL, visit, NULL));
    EG_TRY(run(mutator));
    char *status_text = eg_mutator_status(mutator);
    EG_TRY(alloc_made(status_text));
    eg_free(status_text);
    eg_arch *arch = eg_mutator_export(mutator);
    EG_TRY(alloc_made(arch));
    eg_arch_free(arch);
    EG_TRY(eg_mutator_set_arch(mutator, w->arch));
    arch = eg_mutator_export_decisions(mutator, mutator->current);
    EG_TRY(alloc_made(arch));
    bool equal = eg_arch_equal(arch, w->arch);
    eg_arch_free(arch);
    assert_true(equal);
    return run(mutator);
}

static eg_status with_mutator(world *w, eg_mutator *mutator)
{
    eg_status status = alloc_made(mutator);
    if (status == EG_OK)
        status = use_mutator(w, mutator);
    eg_mutator_detach(mutator);
    return status;
}

static eg_status random_mutator(void *payload)
{
    return with_mutator(payload, eg_random_mutator_new(((world *)payload)->model));
}

static eg_status darts_mutator(void *payload)
{
    return with_mutator(payload, eg_darts_mutator_new(((world *)payload)->model));
}

static eg_status attach(void *payload)
{
    const eg_random_mutator prototype = {0};
    eg_mutator *mutator =
        eg_mutator_attach(&eg_random_mutator_class, sizeof prototype, &prototype, ((world *)payload)->model);
    eg_status status = alloc_made(mutator);
    eg_mutator_detach(mutator);
    return status;
}

static eg_status darts_state(void *payload)
{
    eg_mutator *mutator = eg_darts_mutator_new(((world *)payload)->model);
    eg_state *state = mutator ? eg_state_new() : NULL;
    eg_status status = state ? eg_darts_mutator_state(mutator, "alpha.", state) : eg_error_last()->code;
    eg_state_free(state);
    eg_mutator_detach(mutator);
    return status;
}

/* ---- fixed architectures: of a clone, which a failure leaves as it was ---- */

typedef eg_status (*apply_fn)(world *w, eg_module **model);

static eg_status apply_to_clone(world *w, apply_fn apply)
{
    eg_module *model = eg_module_clone(w->model);
    EG_TRY(alloc_made(model));
    eg_status status = apply(w, &model);
    long countdown = alloc_countdown;
    alloc_countdown = -1;
    char *text = eg_module_text(model);
    assert_made(text);
    assert_int_equal(strcmp(text, w->text) == 0, status != EG_OK);
    eg_free(text);
    alloc_countdown = countdown;
    eg_module_release(model);
    return status;
}

static eg_status apply_arch(world *w, eg_module **model)
{
    return eg_apply_arch(*model, w->arch);
}

static eg_status apply_path(world *w, eg_module **model)
{
    (void)w;
    return eg_apply_fixed_architecture(*model, arch_path);
}

static eg_status apply_options(world *w, eg_module **model)
{
    return eg_fixed_architecture(
        *model, w->arch,
        &(eg_fixed_options){.struct_size = sizeof(eg_fixed_options), .not_strict = true, .quiet = true, .root = model});
}

static eg_status fixed(void *payload)
{
    return apply_to_clone(payload, apply_arch);
}

static eg_status fixed_path(void *payload)
{
    return apply_to_clone(payload, apply_path);
}

static eg_status fixed_options(void *payload)
{
    return apply_to_clone(payload, apply_options);
}

/* The root itself is the choice that gives way. */
static eg_status fixed_root(void *payload)
{
    eg_context *ctx = ((world *)payload)->base.ctx;
    eg_module *choice = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "op"), *root = choice;
    eg_arch *arch = choice ? eg_arch_parse("{\"op\": \"b\"}") : NULL;
    eg_status status = arch ? EG_OK : eg_error_last()->code;
    if (status == EG_OK)
        status = eg_fixed_architecture(choice, arch,
                                       &(eg_fixed_options){.struct_size = sizeof(eg_fixed_options), .root = &root});
    assert_int_equal(root != choice, status == EG_OK);
    eg_arch_free(arch);
    eg_module_release(root);
    return status;
}

/* ---- spaces ---- */

static const eg_space_options small = {.struct_size = sizeof(eg_space_options),
                                       .input = {.dims = {1, 16, 16}, .ndim = 3},
                                       .classes = 3,
                                       .channels = 4,
                                       .layers = 3,
                                       .drop_path = 0.1};

/* A row for each space would have to know their names. */
/* The others are in test_alloc_zoo.c, which makes only some of their many allocations fail. */
static eg_status space(void *payload)
{
    static const char *const names[] = {"cells", "darts", "mlp"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        eg_module *model = eg_space_build(((world *)payload)->base.ctx, names[i], &small);
        EG_TRY(alloc_made(model));
        char *text = eg_search_space_text(model);
        eg_status status = alloc_made(text);
        eg_free(text);
        eg_module_release(model);
        EG_TRY(status);
    }
    return EG_OK;
}

MAKES(space_text, char, eg_search_space_text(w->model), eg_free)
MAKES(space_json, char, eg_space_json(ctx, "cells", &small, true), eg_free)
MAKES(space_schema, char, eg_space_schema(ctx), eg_free)
MAKES(space_from_json, eg_module,
      eg_space_from_json(
          ctx,
          "{\"format\": \"engraft-space/1\", \"input\": [4], \"classes\": 3, \"model\": {\"class\": \"Sequential\", "
          "\"modules\": [{\"class\": \"MLPLayer\", \"width\": 4, \"children\": {\"op.tanh\": {\"class\": \"ReLU\"}}}, "
          "{\"class\": \"Linear\", \"in_features\": 4, \"out_features\": 3}]}}",
          NULL),
      eg_module_release)

/* That of the world knows them already. */
static eg_status nas_register(void *payload)
{
    (void)payload;
    eg_context *fresh = eg_context_new(.threads = 1);
    eg_status status = fresh != NULL ? eg_nas_register(fresh) : eg_error_last()->code;
    eg_context_free(fresh);
    return status;
}

/* ---- strategies ---- */

static eg_status evaluate(void *payload, double *accuracy)
{
    double *last = payload;
    *accuracy = *last = *last * 0.5 + 0.25;
    return EG_OK;
}

static eg_status progress(void *payload, const char *what, size_t done, size_t total)
{
    (void)payload, (void)what, (void)done, (void)total;
    return EG_OK;
}

static eg_status save_and_load(eg_strategy *strategy)
{
    if (!strategy->cls->save)
        return EG_OK;
    eg_state *state = eg_state_new();
    EG_TRY(alloc_made(state));
    eg_status status = strategy->cls->save(strategy, "strategy.", state);
    if (status == EG_OK)
        status = strategy->cls->load(strategy, "strategy.", state);
    eg_state_free(state);
    return status;
}

static eg_status use_strategy(eg_strategy *strategy)
{
    EG_TRY(save_and_load(strategy));
    eg_arch *arch = strategy->cls->choose(strategy);
    eg_status status = alloc_made(arch);
    eg_arch_free(arch);
    return status;
}

static eg_status with_strategy(world *w, const char *name, const char *choice)
{
    double last = 0;
    eg_strategy_host host = {.payload = &last, .evaluate = evaluate, .progress = progress};
    eg_strategy_options options = {
        .struct_size = sizeof options, .evaluations = 4, .population = 2, .choice = choice, .seed = 1};
    eg_optimizer *optimizer = eg_sgd(w->model, .lr = 0.1);
    eg_strategy *strategy =
        optimizer ? eg_strategy_new(eg_strategy_find(name), w->model, optimizer, &host, &options) : NULL;
    eg_status status = alloc_made(strategy);
    if (status == EG_OK)
        status = use_strategy(strategy);
    eg_strategy_free(strategy);
    eg_optimizer_free(optimizer);
    return status;
}

static eg_status darts(void *payload)
{
    return with_strategy(payload, "darts", NULL);
}

static eg_status spos(void *payload)
{
    return with_strategy(payload, "spos", NULL);
}

static eg_status spos_random(void *payload)
{
    return with_strategy(payload, "spos", "random");
}

static eg_status random_strategy(void *payload)
{
    return with_strategy(payload, "random", NULL);
}

/* ---- the table ---- */

static const alloc_row rows[] = {
    {"eg_layer_choice_class", layer_choice, false},
    {"eg_layer_choice_class (numbered)", layer_choice_numbered, false},
    {"eg_input_choice_class", input_choice, false},
    {"eg_input_choice_class (keys)", input_choice_keys, false},
    {"eg_layer_choice_class (fixed)", layer_choice_fixed, true},
    {"eg_input_choice_class (fixed)", input_choice_fixed, true},
    {"eg_value_choice_class", value_choice, false},
    {"eg_mutable_scope_class", scope, false},
    {"eg_module_clone (mutables)", clone, false},
    {"eg_arch_new", arch_new, false},
    {"eg_arch_copy", arch_copy, false},
    {"eg_arch_parse", arch_parse, true},
    {"eg_arch_load", arch_load, true},
    {"eg_arch_text", arch_text, false},
    {"eg_arch_value", arch_value, false},
    {"eg_arch_save", arch_save, false},
    {"eg_arch_set eg_arch_key", arch_set, true},
    {"eg_decisions_new eg_decisions_set_mask eg_decisions_set_weights eg_decisions_set_tensor", decisions, false},
    {"eg_mutator_attach", attach, false},
    {"eg_random_mutator_new eg_mutator_reset eg_mutator_status eg_mutator_export eg_mutator_set_arch "
     "eg_mutator_export_decisions",
     random_mutator, false},
    {"eg_darts_mutator_new", darts_mutator, false},
    {"eg_darts_mutator_state", darts_state, false},
    {"eg_apply_arch eg_fixed_architecture", fixed, false},
    {"eg_apply_fixed_architecture", fixed_path, true},
    {"eg_fixed_architecture (options)", fixed_options, false},
    {"eg_fixed_architecture (root)", fixed_root, true},
    {"eg_space_build", space, false},
    {"eg_search_space_text", space_text, false},
    {"eg_space_json", space_json, false},
    {"eg_space_schema", space_schema, false},
    {"eg_space_from_json", space_from_json, true},
    {"eg_nas_register", nas_register, false},
    {"eg_strategy_new (darts)", darts, false},
    {"eg_strategy_new (spos)", spos, false},
    {"eg_strategy_new (spos, random)", spos_random, false},
    {"eg_strategy_new (random)", random_strategy, false},
};

enum { N_ROWS = sizeof rows / sizeof rows[0] };

static const alloc_table table = {.backend = "ref",
                                  .world_size = sizeof(world),
                                  .setup = setup,
                                  .teardown = teardown,
                                  .check = check,
                                  .rows = rows,
                                  .n_rows = N_ROWS,
                                  .dense = 150};

static void test_complete(void **unused)
{
    (void)unused;
    alloc_check_complete(&table, "nas.h",
                         "eg_mutable_class eg_mutable_mutator eg_layer_choice_at eg_darts_mutator_alpha "
                         /* those of test_alloc_classic.c */
                         "eg_input_choice_call eg_key_memo_new eg_mutator_graph eg_graph_text eg_classic_mutator_new "
                         "eg_get_and_apply_next_architecture");
}

static int make_files(void **unused)
{
    (void)unused;
    directory = temporary_make();
    temporary_path(directory, "arch.json", arch_path);
    temporary_path(directory, "rewritten.json", rewritten);
    eg_arch *arch = parse_arch(arch_json);
    assert_ok(eg_arch_save(arch, arch_path));
    eg_arch_free(arch);
    return 0;
}

static int remove_files(void **unused)
{
    (void)unused;
    temporary_remove(directory);
    return 0;
}

int main(void)
{
    if (!alloc_prepare())
        return 1;
    static alloc_target targets[N_ROWS];
    struct CMUnitTest tests[N_ROWS + 1] = {[N_ROWS] = cmocka_unit_test(test_complete)};
    alloc_make_tests(&table, tests, targets);
    return cmocka_run_group_tests(tests, make_files, remove_files);
}

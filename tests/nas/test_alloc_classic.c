/*
 * What test_alloc_nas.c does, for graphs, classic mode, edits of choices, and architectures for a part of a model.
 */
#include "alloc_table.h"

#include "nas/toy.h"

typedef struct world {
    alloc_world base;
    eg_module *model; /* has no mutator */
} world;

static char *directory, path[TEMPORARY_PATH_SIZE], parameters_path[TEMPORARY_PATH_SIZE];

static const char parameters[] =
    "{\"parameter_id\": 7, \"parameters\": {\"left\": {\"_value\": \"b\", \"_idx\": 1}, \"right\": {\"_value\": \"2\", "
    "\"_idx\": 2}, \"merge\": {\"_value\": [\"right\", \"left\"], \"_idx\": [1, 0]}}}";

static void setup(void *payload)
{
    world *w = payload;
    eg_context *ctx = w->base.ctx;
    w->model = eg_sequential(ctx, EG_MODULES(eg_new(part, ctx, .key = "cell", EG_MODULES(eg_new(pick, ctx)))));
    assert_made(w->model);
}

static void teardown(void *payload)
{
    eg_module_release(((world *)payload)->model);
}

static void check(void *payload)
{
    world *w = payload;
    assert_int_equal(w->model->refs, 1);
    assert_null(eg_mutable_mutator(w->model));
    assert_null(eg_mutable_mutator(eg_module_find(w->model, "0.0.left")));
}

/* ---- choices ---- */

static eg_status edits(void *payload)
{
    eg_context *ctx = ((world *)payload)->base.ctx;
    eg_module *m = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "op");
    eg_module *more = m != NULL ? make_gain(ctx, 7) : NULL;
    eg_status status = alloc_made(more);
    if (status == EG_OK)
        status = eg_layer_choice_set(m, 1, more);
    if (status == EG_OK)
        status = eg_layer_choice_remove(m, 0, 1);
    eg_module_release(m);
    return status;
}

static eg_status named_inputs(void *payload)
{
    eg_context *ctx = ((world *)payload)->base.ctx;
    eg_module *m = eg_input_choice(ctx, .choose_from = EG_KEYS("a", EG_NO_KEY), .key = "in", .fixed = "[0, 1]");
    eg_status status = alloc_made(m);
    if (status == EG_OK)
        status = alloc_made(eg_input_choice_call(
            m, EG_KEYS(EG_NO_KEY, "a"), (eg_tensor *const[]){eg_ones(ctx, EG_SHAPE(1)), eg_ones(ctx, EG_SHAPE(1))}, 2));
    eg_module_release(m);
    return status;
}

static eg_status visit(void *payload, eg_module *m)
{
    (void)payload, (void)m;
    return EG_OK;
}

static eg_status memos(void *payload)
{
    eg_mutator *mutator = eg_classic_mutator_new(((world *)payload)->model);
    eg_key_memo *memo = mutator != NULL ? eg_key_memo_new() : NULL;
    eg_status status = alloc_made(memo);
    if (status == EG_OK)
        status = eg_mutable_node_traverse(mutator->tree, EG_PRE_ORDER, true, memo, visit, NULL);
    eg_key_memo_free(memo);
    eg_mutator_detach(mutator);
    return status;
}

/* ---- graphs ---- */

static eg_status write_graph(const eg_graph *graph)
{
    char *text = eg_graph_text(graph);
    EG_TRY(alloc_made(text));
    eg_free(text);
    EG_TRY(eg_graph_save(graph, path));
    EG_TRY(eg_graph_save_binary(graph, path));
    return eg_graph_save_event(graph, directory);
}

static eg_status graphs(void *payload)
{
    eg_mutator *mutator = eg_random_mutator_new(((world *)payload)->model);
    EG_TRY(alloc_made(mutator));
    eg_graph *graph = eg_mutator_graph(mutator, &EG_SHAPE(1, 1), 1);
    eg_status status = alloc_made(graph);
    if (status == EG_OK)
        status = write_graph(graph);
    eg_graph_free(graph);
    eg_mutator_detach(mutator);
    return status;
}

/* ---- classic mode ---- */

static eg_status classic(void *payload)
{
    eg_mutator *mutator = eg_classic_mutator_new(((world *)payload)->model);
    eg_status status = alloc_made(mutator);
    if (status == EG_OK)
        status = eg_classic_mutator_set(mutator, parameters);
    if (status == EG_OK)
        status = eg_report_final_result(mutator, 0.5);
    eg_mutator_detach(mutator);
    return status;
}

static eg_status trial(void *payload)
{
    setenv("EG_TRIAL_PARAMETERS", parameters_path, 1);
    setenv("EG_TRIAL_RESULTS", "/dev/null", 1);
    eg_mutator *mutator = eg_get_and_apply_next_architecture(((world *)payload)->model);
    unsetenv("EG_TRIAL_PARAMETERS");
    unsetenv("EG_TRIAL_RESULTS");
    eg_status status = alloc_made(mutator);
    if (status == EG_OK)
        status = eg_report_intermediate_result(mutator, 0.5);
    eg_mutator_detach(mutator);
    return status;
}

static eg_status dry_run(void *payload)
{
    setenv("EG_GEN_SEARCH_SPACE", path, 1);
    assert_null(eg_get_and_apply_next_architecture(((world *)payload)->model));
    unsetenv("EG_GEN_SEARCH_SPACE");
    eg_status status = eg_error_last()->code;
    if (status == EG_EDONE)
        eg_error_clear();
    return status == EG_EDONE ? EG_OK : status;
}

/* ---- a part of a model ---- */

static eg_status fixed_part(void *payload)
{
    eg_module *model = eg_module_clone(((world *)payload)->model);
    eg_arch *arch = model != NULL ? eg_arch_parse("{\"left\": 0, \"right\": 1, \"merge\": [0, 1]}") : NULL;
    eg_status status = alloc_made(arch);
    if (status == EG_OK)
        status = eg_fixed_architecture(model, arch,
                                       &(eg_fixed_options){.struct_size = sizeof(eg_fixed_options), .part = "0.0"});
    eg_arch_free(arch);
    eg_module_release(model);
    return status;
}

static const alloc_row rows[] = {
    {"eg_layer_choice_set eg_layer_choice_remove", edits, false},
    {"eg_input_choice_call", named_inputs, true},
    {"eg_key_memo_new", memos, false},
    {"eg_mutator_graph eg_graph_text eg_graph_save", graphs, false},
    {"eg_classic_mutator_new eg_classic_mutator_set eg_report_final_result", classic, true},
    {"eg_get_and_apply_next_architecture (trial) eg_report_intermediate_result", trial, true},
    {"eg_get_and_apply_next_architecture (dry run)", dry_run, false},
    {"eg_fixed_architecture (part)", fixed_part, true},
};

enum { N_ROWS = sizeof rows / sizeof rows[0] };

static const alloc_table table = {.backend = "ref",
                                  .world_size = sizeof(world),
                                  .setup = setup,
                                  .teardown = teardown,
                                  .check = check,
                                  .rows = rows,
                                  .n_rows = N_ROWS,
                                  .dense = 100};

static int make_files(void **unused)
{
    (void)unused;
    directory = temporary_make();
    temporary_path(directory, "written", path);
    temporary_path(directory, "parameters", parameters_path);
    FILE *file = fopen(parameters_path, "wb");
    assert_non_null(file);
    assert_true(fputs(parameters, file) >= 0);
    assert_int_equal(fclose(file), 0);
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
    struct CMUnitTest tests[N_ROWS];
    alloc_make_tests(&table, tests, targets);
    return cmocka_run_group_tests(tests, make_files, remove_files);
}

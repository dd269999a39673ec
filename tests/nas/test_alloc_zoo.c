/*
 * The cells of zoo.h and the spaces that have forwards of their own: made, and run under an architecture, with each
 * allocation failing once.
 */
#include "alloc_table.h"

#include "nas/zoo.h"

static void setup(void *world)
{
    (void)world;
}

static void teardown(void *world)
{
    (void)world;
}

static void check(void *world)
{
    (void)world;
}

/* Runs a model, which is taken over, on n inputs of a shape. */
static eg_status run(eg_module *model, eg_shape shape, size_t n)
{
    eg_mutator *mutator = model != NULL ? eg_random_mutator_new(model) : NULL;
    eg_status status = mutator != NULL ? eg_mutator_reset(mutator) : eg_error_last()->code;
    eg_tensor *x = status == EG_OK ? eg_ones(model->ctx, shape) : NULL;
    if (status == EG_OK)
        status = alloc_made(x == NULL ? NULL : n == 1 ? eg_call(model, x) : eg_call(model, x, x));
    eg_mutator_detach(mutator);
    eg_module_release(model);
    return status;
}

#define RUNS(row, make, shape, n)                                                                                      \
    static eg_status row(void *world)                                                                                  \
    {                                                                                                                  \
        eg_context *ctx = ((alloc_world *)world)->ctx;                                                                 \
        return run(make, shape, n);                                                                                    \
    }

#define SPACE(name, size, words)                                                                                       \
    eg_space_build(ctx, name,                                                                                          \
                   &(eg_space_options){.struct_size = sizeof(eg_space_options),                                        \
                                       .input = size,                                                                  \
                                       .classes = 2,                                                                   \
                                       .channels = 2,                                                                  \
                                       .layers = 2,                                                                    \
                                       .vocabulary = words})

#define CELL "{\"op1\": 0, \"op2\": 2, \"input1\": 0, \"input2\": [0, 1], \"input3\": [0, 1, 2]}"

RUNS(darts_cell, eg_darts_cell(ctx, 1, 2, 2, 2, .reduction = true), EG_SHAPE(2, 2, 4, 4), 2)
RUNS(micro_layer, eg_enas_micro_layer(ctx, 2, 2, 2, 2, .reduction = true), EG_SHAPE(2, 2, 4, 4), 2)
RUNS(macro, eg_enas_macro(ctx, 3, 2), EG_SHAPE(2, 3, 8, 8), 1)
RUNS(nasbench101_cell, eg_nasbench101_cell(ctx, 2, 5), EG_SHAPE(2, 2, 4, 4), 1)
RUNS(nasbench101, eg_nasbench101(ctx, 1, 2, 4, 1, .fixed = CELL), EG_SHAPE(2, 1, 8, 8), 1)
RUNS(nasbench201_cell, eg_nasbench201_cell(ctx, "cell", 2, 4, 2), EG_SHAPE(2, 2, 4, 4), 1)
RUNS(nasbench201, SPACE("nasbench201", EG_SHAPE(1, 8, 8), 0), EG_SHAPE(2, 1, 8, 8), 1)
RUNS(shufflenet_block, eg_shufflenet_block(ctx, 2, 4, 3, 2), EG_SHAPE(2, 2, 4, 4), 1)
RUNS(spos, SPACE("spos", EG_SHAPE(1, 8, 8), 0), EG_SHAPE(2, 1, 8, 8), 1)
RUNS(proxylessnas, SPACE("proxylessnas", EG_SHAPE(1, 8, 8), 0), EG_SHAPE(2, 1, 8, 8), 1)
RUNS(nasbench_macro, SPACE("nasbench_macro", EG_SHAPE(1, 8, 8), 0), EG_SHAPE(2, 1, 8, 8), 1)
RUNS(enas_micro, SPACE("enas_micro", EG_SHAPE(1, 8, 8), 0), EG_SHAPE(2, 1, 8, 8), 1)
RUNS(numbers, SPACE("textnas", EG_SHAPE(2, 5), 0), EG_SHAPE(2, 2, 5), 1)
RUNS(words, SPACE("textnas", EG_SHAPE(5), 3), EG_SHAPE(2, 5), 1)

/* The benchmark's functions of an architecture. */
static eg_status nasbench101_names(void *world)
{
    (void)world;
    eg_arch *arch = eg_arch_parse(CELL);
    eg_status status = arch != NULL ? eg_nasbench101_check(arch) : eg_error_last()->code;
    char *hash = status == EG_OK ? eg_nasbench101_hash(arch) : NULL;
    if (status == EG_OK)
        status = alloc_made(hash);
    eg_free(hash);
    eg_arch_free(arch);
    return status;
}

static const alloc_row rows[] = {
    {"eg_darts_cell_class", darts_cell, false},
    {"eg_enas_micro_layer_class", micro_layer, false},
    {"eg_enas_macro_class", macro, false},
    {"eg_nasbench101_cell_class", nasbench101_cell, false},
    {"eg_nasbench101_class", nasbench101, true},
    {"eg_nasbench101_check eg_nasbench101_hash", nasbench101_names, true},
    {"eg_nasbench201_cell_class", nasbench201_cell, false},
    {"nasbench201", nasbench201, false},
    {"eg_shufflenet_block_class", shufflenet_block, false},
    {"spos", spos, false},
    {"proxylessnas", proxylessnas, false},
    {"nasbench_macro", nasbench_macro, false},
    {"enas_micro", enas_micro, false},
    {"textnas", numbers, false},
    {"textnas of words", words, false},
};

enum { N_ROWS = sizeof rows / sizeof *rows };

static const alloc_table table = {.backend = "ref",
                                  .world_size = sizeof(alloc_world),
                                  .setup = setup,
                                  .teardown = teardown,
                                  .check = check,
                                  .rows = rows,
                                  .n_rows = N_ROWS,
                                  .dense = 60};

static void test_complete(void **unused)
{
    (void)unused;
    alloc_check_complete(&table, "zoo.h", "");
}

int main(void)
{
    if (!alloc_prepare())
        return 1;
    static alloc_target targets[N_ROWS];
    struct CMUnitTest tests[N_ROWS + 1] = {[N_ROWS] = cmocka_unit_test(test_complete)};
    alloc_make_tests(&table, tests, targets);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

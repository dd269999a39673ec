/*
 * The spaces without a benchmark or zoo behind them, and that of DARTS: paths of the supernet and plain networks agree.
 */
#include "zoo.h"

static void paths_equal_networks(void **state)
{
    (void)state;
    static const char *const names[] = {"cells", "darts", "mlp"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_space(names[i],
                    &(eg_space_options){.struct_size = sizeof(eg_space_options),
                                        .input = EG_SHAPE(1, 9, 8),
                                        .classes = 3,
                                        .channels = 4,
                                        .layers = 3,
                                        .drop_path = 0.1},
                    100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(paths_equal_networks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Pruning and widening, held to what they must not change: units whose parameters are all zero go without a trace, and
 * doubled ones share what they gave.
 */
#include "surgery/prune_nets.h"

static eg_context *ctx;

static int setup(void **state)
{
    (void)state;
    eg_error_clear();
    ctx = eg_context_new(.seed = 1, .threads = 1, .backend = "ref");
    return ctx == NULL;
}

static int teardown(void **state)
{
    (void)state;
    size_t left = eg_context_get_stats(ctx).bytes_in_use;
    eg_context_free(ctx);
    return left != 0;
}

static void every_net(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(nets) / sizeof(nets[0]); i++) {
        eg_module *m = nets[i].make(ctx);
        if (m == NULL)
            fail_msg("%s: %s", nets[i].name, eg_error_last()->message);
        eg_coupling *c = eg_coupling_new(m, (eg_shapes){&nets[i].input, 1});
        if (c == NULL)
            fail_msg("%s: %s", nets[i].name, eg_error_last()->message);
        if (getenv("PRUNE_TEXT") != NULL) {
            char *text = eg_coupling_text(c);
            printf("%s\n%s", nets[i].name, text);
            eg_free(text);
        }
        eg_coupling_free(c);
        check_zeros(m, nets[i].name, nets[i].input, 7);
        eg_module_release(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_net, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The spaces of mobile networks: Single Path One-Shot's and ProxylessNAS's, and NAS-Bench-Macro. What their networks
 * cost is what their authors say.
 */
#include "nas/zoo.h"

#include <inttypes.h>
#include <stdlib.h>
#include <zlib.h>

/* An architecture of one digit for each layer choice, in the order of the mutables. */
static void set_digits(eg_mutator *mutator, const char *digits)
{
    eg_arch *arch = eg_arch_new();
    assert_int_equal(mutator->n_mutables, strlen(digits));
    for (size_t i = 0; i < mutator->n_mutables; i++) {
        const char value[2] = {digits[i]};
        assert_ok(eg_arch_set(arch, eg_mutable_key(mutator->mutables[i]), value));
    }
    assert_ok(eg_mutator_set_arch(mutator, arch));
    eg_arch_free(arch);
}

typedef struct cost {
    int64_t params, macs;
} cost;

static cost cost_of(eg_module *net, eg_mutator *mutator, const char *digits, eg_shape shape)
{
    set_digits(mutator, digits);
    eg_trace *trace = eg_trace_new(net, &shape, 1);
    assert_made(trace);
    cost c = {eg_trace_params(trace), (int64_t)eg_trace_macs(trace)};
    eg_trace_free(trace);
    return c;
}

typedef struct world {
    eg_context *ctx;
    eg_module *net;
    eg_mutator *mutator;
} world;

static world open_world(const char *space, eg_shape input, int64_t classes)
{
    world w = {.ctx = eg_context_new(.threads = 1)};
    eg_space_options options = {.struct_size = sizeof options, .input = input, .classes = classes};
    w.net = eg_space_build(w.ctx, space, &options);
    assert_made(w.net);
    w.mutator = eg_random_mutator_new(w.net);
    assert_made(w.mutator);
    return w;
}

static void close_world(world *w)
{
    eg_mutator_detach(w->mutator);
    eg_module_release(w->net);
    eg_context_free(w->ctx);
}

/* ---- NAS-Bench-Macro ---- */

enum { MACRO_LAYERS = 8, MACRO_KINDS = 3, MACRO_NETWORKS = 6561, MACRO_DRAWN = 60 };

/* What the benchmark says, for which it is enough that all of its numbers are sums: of the network "00000000" and of
 * what each other candidate has more. */
static const cost macro_base = {387882, 7713280};
static const cost macro_more[MACRO_LAYERS][MACRO_KINDS] = {
    {{0}, {8416, 4415488}, {21952, 10141696}},    {{0}, {27200, 6733824}, {60416, 15040512}},
    {{0}, {31168, 4304896}, {76672, 9527296}},    {{0}, {103552, 6512640}, {219136, 13811712}},
    {{0}, {103552, 6512640}, {219136, 13811712}}, {{0}, {119680, 4249600}, {284416, 9220096}},
    {{0}, {403712, 6402048}, {831488, 13197312}}, {{0}, {403712, 6402048}, {831488, 13197312}},
};

static void macro_digits(int n, char digits[MACRO_LAYERS + 1])
{
    for (int i = MACRO_LAYERS; i-- > 0; n /= MACRO_KINDS)
        digits[i] = (char)('0' + n % MACRO_KINDS);
    digits[MACRO_LAYERS] = '\0';
}

static cost macro_cost(const char *digits)
{
    cost sum = macro_base;
    for (int i = 0; i < MACRO_LAYERS; i++) {
        sum.params += macro_more[i][digits[i] - '0'].params;
        sum.macs += macro_more[i][digits[i] - '0'].macs;
    }
    return sum;
}

static void macro_networks_cost_what_the_benchmark_says(void **state)
{
    (void)state;
    world w = open_world("nasbench_macro", EG_SHAPE(3, 32, 32), 10);
    char digits[MACRO_LAYERS + 1];
    for (int i = 0; i < MACRO_NETWORKS; i += MACRO_NETWORKS / MACRO_DRAWN) {
        macro_digits(i, digits);
        cost got = cost_of(w.net, w.mutator, digits, EG_SHAPE(1, 3, 32, 32)), expected = macro_cost(digits);
        assert_int_equal(got.params, expected.params);
        assert_int_equal(got.macs, expected.macs);
    }
    for (int layer = 0; layer < MACRO_LAYERS; layer++) { /* each candidate of each layer alone */
        for (char kind = '1'; kind <= '2'; kind++) {
            macro_digits(0, digits);
            digits[layer] = kind;
            cost got = cost_of(w.net, w.mutator, digits, EG_SHAPE(1, 3, 32, 32)), expected = macro_cost(digits);
            assert_int_equal(got.params, expected.params);
            assert_int_equal(got.macs, expected.macs);
        }
    }
    close_world(&w);
}

/* All of the benchmark's table "arch,acc1,acc2,acc3,mean_acc,std,params,flops", where EG_BENCHMARKS names the folder
 * that it is in. */
static void the_whole_benchmark_of_macro_networks(void **state)
{
    (void)state;
    const char *folder = getenv("EG_BENCHMARKS");
    char path[1000], line[300];
    snprintf(path, sizeof path, "%s/nasbench_macro_cifar10.csv.gz", folder != NULL ? folder : ".");
    gzFile file = folder != NULL ? gzopen(path, "rb") : NULL;
    if (file == NULL) {
        print_message("skipped: EG_BENCHMARKS names no folder with nasbench_macro_cifar10.csv.gz\n");
        skip();
    }
    int n = 0;
    while (gzgets(file, line, sizeof line) != NULL) {
        char digits[16], expected[16];
        int64_t params, flops;
        if (sscanf(line, "%15[0-2],%*f,%*f,%*f,%*f,%*f,%" SCNd64 ",%" SCNd64, digits, &params, &flops) != 3)
            continue;
        macro_digits(n++, expected);
        assert_string_equal(digits, expected);
        cost got = macro_cost(digits);
        assert_int_equal(got.params, params);
        assert_int_equal(got.macs, flops);
    }
    gzclose(file);
    assert_int_equal(n, MACRO_NETWORKS);
}

static void macro_shapes(void **state)
{
    (void)state;
    const space_row rows[] = {{EG_SHAPE(1, 28, 28), 0, 0, 0},   {EG_SHAPE(3, 33, 20), 4, 1, 0},
                              {EG_SHAPE(1, 8, 9), 2, 3, 0},     {EG_SHAPE(3, 32, 32), 2, 20, 0},
                              {EG_SHAPE(3, 224, 224), 0, 0, 0}, {EG_SHAPE(3, 32, 32), 0, 0, 4221386}};
    check_space_shapes("nasbench_macro", rows, sizeof rows / sizeof *rows);
}

/* ---- Single Path One-Shot ---- */

enum { SPOS_BLOCKS = 20, SPOS_KINDS = 4 };

/* Multiply-accumulates of the four candidates at 224 x 224, by its authors' table. */
static const int64_t spos_macs[SPOS_BLOCKS][SPOS_KINDS] = {
    {13396992, 15805440, 19418112, 13146112}, {7325696, 8931328, 11339776, 12343296},
    {7325696, 8931328, 11339776, 12343296},   {7325696, 8931328, 11339776, 12343296},
    {26304768, 28111104, 30820608, 20296192}, {10599680, 11603200, 13108480, 16746240},
    {10599680, 11603200, 13108480, 16746240}, {10599680, 11603200, 13108480, 16746240},
    {30670080, 31673600, 33178880, 21199360}, {10317440, 10819200, 11571840, 15899520},
    {10317440, 10819200, 11571840, 15899520}, {10317440, 10819200, 11571840, 15899520},
    {10317440, 10819200, 11571840, 15899520}, {10317440, 10819200, 11571840, 15899520},
    {10317440, 10819200, 11571840, 15899520}, {10317440, 10819200, 11571840, 15899520},
    {30387840, 30889600, 31642240, 20634880}, {10176320, 10427200, 10803520, 15476160},
    {10176320, 10427200, 10803520, 15476160}, {10176320, 10427200, 10803520, 15476160},
};

static void spos_blocks_cost_what_their_authors_say(void **state)
{
    (void)state;
    world w = open_world("spos", EG_SHAPE(3, 224, 224), 1000);
    const int64_t stem = 27 * 16 * 112 * 112, last = 640 * 1024 * 49 + 1024 * 1000;
    for (int turn = 0; turn < SPOS_KINDS; turn++) {
        char digits[SPOS_BLOCKS + 1] = {0};
        int64_t expected = stem + last;
        for (int i = 0; i < SPOS_BLOCKS; i++) {
            int kind = (i * 3 + turn + i / 4) % SPOS_KINDS;
            digits[i] = (char)('0' + kind);
            expected += spos_macs[i][kind];
        }
        assert_int_equal(cost_of(w.net, w.mutator, digits, EG_SHAPE(1, 3, 224, 224)).macs, expected);
    }
    char digits[SPOS_BLOCKS + 1] = "00000000000000000000";
    const int64_t base = cost_of(w.net, w.mutator, digits, EG_SHAPE(1, 3, 224, 224)).macs;
    for (int i = 0; i < SPOS_BLOCKS; i++) { /* each candidate alone */
        for (int kind = 1; kind < SPOS_KINDS; kind++) {
            digits[i] = (char)('0' + kind);
            int64_t more = cost_of(w.net, w.mutator, digits, EG_SHAPE(1, 3, 224, 224)).macs - base;
            assert_int_equal(more, spos_macs[i][kind] - spos_macs[i][0]);
        }
        digits[i] = '0';
    }
    assert_string_equal(eg_mutable_key(w.mutator->mutables[19]), "LayerChoice20");
    assert_string_equal(eg_layer_choice_name(w.mutator->mutables[0], 3), "xception3x3");
    close_world(&w);
}

/* In [x0, x1, x2, x3], x0 and x2 are left as they are, and come first. */
static void blocks_split_and_shuffle_channels(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    eg_module *block = eg_shufflenet_block(ctx, 4, 4, 3);
    assert_made(block);
    eg_module_train(block, false);
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    float in[4 * 9], out[4 * 9];
    for (int i = 0; i < 4 * 9; i++)
        in[i] = (float)i;
    eg_tensor *y = eg_call(block, eg_from_data(ctx, EG_SHAPE(1, 4, 3, 3), in));
    assert_made(y);
    assert_ok(eg_tensor_read(y, out, 4 * 9));
    assert_memory_equal(out, in, 9 * sizeof *in);
    assert_memory_equal(out + 9, in + 18, 9 * sizeof *in);
    eg_tensor *odd = eg_slice(eg_from_data(ctx, EG_SHAPE(1, 4, 3, 3), in), 1, 1, 4, 2);
    float expected[2 * 9];
    assert_ok(eg_tensor_read(eg_call(eg_module_find(block, "branch_main"), odd), expected, 2 * 9));
    assert_memory_equal(out + 18, expected, sizeof expected);
    eg_tape_end(tape);
    eg_module_release(block);
    check_cell(block = eg_shufflenet_block(ctx, 3, 8, 5, 2), (const eg_shape[2]){EG_SHAPE(2, 3, 9, 6)},
               &EG_SHAPE(2, 8, 5, 3), 1);
    eg_module_release(block);
    check_cell(block = eg_shufflenet_block(ctx, 6, 8, 3, 1, .xception = true, .drop_path = 0.5),
               (const eg_shape[2]){EG_SHAPE(2, 6, 4, 4)}, &EG_SHAPE(2, 8, 4, 4), 1);
    eg_module_release(block);
    assert_refused(eg_shufflenet_block(ctx, 5, 8, 3), EG_EINVAL, "5 to 8 channels, expected an even number");
    assert_refused(eg_shufflenet_block(ctx, 8, 4, 3), EG_EINVAL, "more than half of it after");
    assert_refused(eg_shufflenet_block(ctx, 8, 8, 3, 2), EG_EINVAL, "8 to 8 channels, expected more");
    assert_refused(eg_shufflenet_block(ctx, 8, 8, 4), EG_EINVAL, "a kernel of 4, expected an odd number");
    eg_context_free(ctx);
}

static void spos_shapes(void **state)
{
    (void)state;
    const space_row rows[] = {{EG_SHAPE(1, 28, 28), 0, 0, 0}, {EG_SHAPE(3, 63, 65), 4, 1, 0},
                              {EG_SHAPE(1, 8, 9), 2, 3, 0},   {EG_SHAPE(3, 32, 32), 2, 45, 0},
                              {EG_SHAPE(3, 64, 64), 2, 0, 0}, {EG_SHAPE(3, 224, 224), 0, 0, 0}};
    check_space_shapes("spos", rows, sizeof rows / sizeof *rows);
}

/* ---- ProxylessNAS ---- */

/* An inverted bottleneck, a residual without parameters around it. */
static int64_t mbconv_params(int64_t in, int64_t out, int64_t kernel, int64_t expansion)
{
    int64_t hidden = in * expansion, wider = expansion > 1 ? in * hidden + 2 * hidden : 0;
    return wider + hidden * kernel * kernel + 2 * hidden + hidden * out + 2 * out;
}

static int64_t proxyless_params(const char *digits)
{
    static const int64_t widths[] = {24, 40, 80, 96, 192, 320}, sizes[] = {4, 4, 4, 4, 4, 1};
    int64_t in = 16, sum = 27 * 32 + 64 + mbconv_params(32, 16, 3, 1) + 320 * 1280 + 2560 + 1280 * 1000 + 1000;
    for (size_t stage = 0; stage < 6; stage++) {
        for (int64_t i = 0; i < sizes[stage]; i++, in = widths[stage], digits++) {
            int kind = *digits - '0';
            sum += kind == 6 ? 0 : mbconv_params(in, widths[stage], 3 + kind / 2 * 2, kind % 2 == 0 ? 3 : 6);
        }
    }
    return sum;
}

static void proxyless_networks_are_those_of_the_paper(void **state)
{
    (void)state;
    world w = open_world("proxylessnas", EG_SHAPE(3, 224, 224), 1000);
    static const char *const networks[] = {"000000000000000000000", "555555555555555555555", "166612461356246105124",
                                           "066606660666066606660", "123401234512340123453"};
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
        cost got = cost_of(w.net, w.mutator, networks[i], EG_SHAPE(1, 3, 224, 224));
        assert_int_equal(got.params, proxyless_params(networks[i]));
    }
    assert_string_equal(eg_mutable_key(w.mutator->mutables[0]), "s1_c0");
    assert_string_equal(eg_mutable_key(w.mutator->mutables[20]), "s6_c0");
    assert_int_equal(eg_layer_choice_size(w.mutator->mutables[0]), 6);
    assert_int_equal(eg_layer_choice_size(w.mutator->mutables[1]), 7);
    assert_string_equal(eg_layer_choice_name(w.mutator->mutables[1], 1), "3x3_MBConv6");
    assert_string_equal(eg_layer_choice_name(w.mutator->mutables[1], 6), "Zero");
    close_world(&w);
}

/* The image in the last block: halved five times, three times from a small one. */
static void small_images_are_halved_less(void **state)
{
    (void)state;
    static const int64_t sides[][2] = {{224, 7}, {64, 2}, {63, 8}, {32, 4}, {8, 1}};
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        eg_context *ctx = eg_context_new(.threads = 1);
        eg_space_options options = {.struct_size = sizeof options,
                                    .input = EG_SHAPE(3, sides[i][0], sides[i][0]),
                                    .classes = 10,
                                    .channels = 2};
        eg_module *net = eg_space_build(ctx, "proxylessnas", &options);
        assert_made(net);
        eg_mutator *mutator = eg_random_mutator_new(net);
        assert_ok(eg_mutator_reset(mutator));
        eg_trace *trace = eg_trace_new(net, &EG_SHAPE(1, 3, sides[i][0], sides[i][0]), 1);
        assert_made(trace);
        int64_t last = 0;
        for (size_t k = 0; k < eg_trace_size(trace); k++) {
            if (strcmp(eg_trace_at(trace, k)->op, "conv2d") == 0)
                last = eg_trace_at(trace, k)->output_shape.dims[2];
        }
        assert_int_equal(last, sides[i][1]);
        eg_trace_free(trace);
        eg_mutator_detach(mutator);
        eg_module_release(net);
        eg_context_free(ctx);
    }
}

static void proxyless_shapes(void **state)
{
    (void)state;
    const space_row rows[] = {{EG_SHAPE(1, 28, 28), 0, 0, 0}, {EG_SHAPE(3, 63, 65), 4, 1, 0},
                              {EG_SHAPE(1, 8, 9), 2, 3, 0},   {EG_SHAPE(3, 32, 32), 6, 45, 0},
                              {EG_SHAPE(3, 64, 64), 2, 0, 0}, {EG_SHAPE(3, 224, 224), 0, 0, 0}};
    check_space_shapes("proxylessnas", rows, sizeof rows / sizeof *rows);
}

/* ---- all of them ---- */

static void paths_equal_networks(void **state)
{
    (void)state;
    static const char *const names[] = {"nasbench_macro", "proxylessnas", "spos"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        check_space(names[i],
                    &(eg_space_options){.struct_size = sizeof(eg_space_options),
                                        .input = EG_SHAPE(1, 9, 8),
                                        .classes = 3,
                                        .channels = 2,
                                        .layers = 6,
                                        .drop_path = 0.1},
                    100);
        check_space(
            names[i],
            &(eg_space_options){
                .struct_size = sizeof(eg_space_options), .input = EG_SHAPE(3, 32, 32), .classes = 10, .channels = 4},
            3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(macro_networks_cost_what_the_benchmark_says),
        cmocka_unit_test(the_whole_benchmark_of_macro_networks),
        cmocka_unit_test(macro_shapes),
        cmocka_unit_test(spos_blocks_cost_what_their_authors_say),
        cmocka_unit_test(blocks_split_and_shuffle_channels),
        cmocka_unit_test(spos_shapes),
        cmocka_unit_test(proxyless_networks_are_those_of_the_paper),
        cmocka_unit_test(small_images_are_halved_less),
        cmocka_unit_test(proxyless_shapes),
        cmocka_unit_test(paths_equal_networks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

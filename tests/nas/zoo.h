/*
 * tests/nas/zoo.h - what is expected of every search space, of its options and of its cells.
 */
#ifndef EG_TESTS_NAS_ZOO_H
#define EG_TESTS_NAS_ZOO_H

#include "nas/toy.h"

#include "engraft/zoo.h"

enum { ZOO_BATCH = 2, ZOO_CLASSES_MAX = 16, ZOO_TRAINING_STEPS = 10 };

/* The logits of a network in evaluation. */
static inline void zoo_logits(eg_module *net, eg_tensor *x, float *out, size_t n)
{
    eg_module_train(net, false);
    eg_tape *tape = eg_tape_begin(net->ctx, EG_NO_GRAD);
    eg_tensor *y = eg_call(net, x);
    assert_made(y);
    assert_ok(eg_tensor_read(y, out, n));
    eg_tape_end(tape);
}

/* So that batch norms differ from each other. */
static inline void zoo_randomize_statistics(eg_module *net, eg_mutator *mutator, eg_tensor *x)
{
    eg_module_train(net, true);
    for (int i = 0; i < 3; i++) {
        assert_ok(eg_mutator_reset(mutator));
        eg_tape *tape = eg_tape_begin(net->ctx, EG_NO_GRAD);
        assert_made(eg_call(net, x));
        eg_tape_end(tape);
    }
}

/* An architecture, through its text; the network that is made by it with the supernet's weights. */
static inline eg_module *zoo_plain_network(eg_module *supernet, const char *name, const eg_space_options *options,
                                           const eg_arch *arch)
{
    eg_module *net = eg_space_build(supernet->ctx, name, options);
    assert_made(net);
    eg_state *weights = eg_state_new();
    assert_ok(eg_module_state(supernet, NULL, weights));
    assert_ok(eg_module_load_state(net, NULL, weights, true));
    eg_state_free(weights);
    char *text = eg_arch_text(arch);
    eg_arch *parsed = parse_arch(text);
    assert_true(eg_arch_equal(arch, parsed));
    eg_free(text);
    assert_ok(eg_apply_arch(net, parsed));
    eg_arch_free(parsed);
    assert_null(eg_mutable_mutator(net));
    return net;
}

static inline void zoo_train(eg_module *net, eg_tensor *x, int64_t classes)
{
    eg_module_train(net, true);
    eg_optimizer *sgd = eg_sgd(net, .lr = 0.01, .momentum = 0.9);
    assert_made(sgd);
    for (int i = 0; i < ZOO_TRAINING_STEPS; i++) {
        eg_tape *tape = eg_tape_begin(net->ctx, EG_RECORD);
        eg_tensor *target = eg_from_labels(net->ctx, ZOO_BATCH, (int64_t[ZOO_BATCH]){0, classes - 1});
        eg_tensor *loss = eg_f_cross_entropy(eg_call(net, x), target);
        assert_made(loss);
        assert_true(isfinite(eg_tensor_item(loss)));
        assert_ok(eg_backward(loss));
        assert_ok(eg_optimizer_step(sgd));
        eg_module_zero_grad(net);
        eg_tape_end(tape);
    }
    eg_optimizer_free(sgd);
}

/* n random architectures of a space: each is the same in the supernet, as a plain network and as a clone of it, to the
 * last bit, and can be trained. `x` (ZOO_BATCH, ..) or NULL: random numbers. */
static inline void check_space_on(const char *name, const eg_space_options *options, eg_context *ctx, eg_tensor *x,
                                  int n)
{
    float path[ZOO_BATCH * ZOO_CLASSES_MAX], alone[ZOO_BATCH * ZOO_CLASSES_MAX];
    size_t numbers = ZOO_BATCH * (size_t)options->classes;
    assert_true(numbers <= sizeof path / sizeof *path);
    eg_module *net = eg_space_build(ctx, name, options);
    assert_made(net);
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_made(mutator);
    zoo_randomize_statistics(net, mutator, x);
    for (int i = 0; i < n; i++) {
        eg_arch *arch = eg_mutator_export(mutator);
        assert_made(arch);
        assert_ok(eg_mutator_set_arch(mutator, arch));
        zoo_logits(net, x, path, numbers);
        eg_module *plain = zoo_plain_network(net, name, options, arch);
        zoo_logits(plain, x, alone, numbers);
        assert_memory_equal(path, alone, numbers * sizeof(float));
        if (i == 0) {
            eg_module *clone = eg_module_clone(plain);
            assert_made(clone);
            zoo_logits(clone, x, alone, numbers);
            assert_memory_equal(path, alone, numbers * sizeof(float));
            eg_module_release(clone);
        }
        zoo_train(plain, x, options->classes);
        eg_module_release(plain);
        eg_arch_free(arch);
    }
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* The same on random numbers. */
static inline void check_space(const char *name, const eg_space_options *options, int n)
{
    eg_context *ctx = eg_context_new(.seed = 11, .threads = 1);
    eg_shape shape = {.ndim = options->input.ndim + 1, .dims = {ZOO_BATCH}};
    for (int i = 0; i < options->input.ndim; i++)
        shape.dims[i + 1] = options->input.dims[i];
    eg_tensor *x = eg_tensor_keep(eg_randn(ctx, shape));
    check_space_on(name, options, ctx, x, n);
    eg_tensor_release(x);
    eg_context_free(ctx);
}

/* What a space gives for an input, by shapes alone, under a random architecture. */
typedef struct space_row {
    eg_shape input;
    int64_t channels, layers, parameters; /* 0 = the space's own; 0 = any */
} space_row;

static inline void check_space_shapes(const char *name, const space_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        eg_context *ctx = eg_context_new(.threads = 1);
        eg_space_options options = {.struct_size = sizeof options,
                                    .input = rows[i].input,
                                    .classes = 10,
                                    .channels = rows[i].channels,
                                    .layers = rows[i].layers};
        eg_module *net = eg_space_build(ctx, name, &options);
        assert_made(net);
        if (rows[i].parameters > 0)
            assert_int_equal(eg_module_n_parameters(net), rows[i].parameters);
        eg_mutator *mutator = eg_random_mutator_new(net);
        assert_made(mutator);
        assert_ok(eg_mutator_reset(mutator));
        eg_shape shape = {.ndim = options.input.ndim + 1, .dims = {ZOO_BATCH}};
        memcpy(shape.dims + 1, options.input.dims, (size_t)options.input.ndim * sizeof *shape.dims);
        eg_trace *trace = eg_trace_new(net, &shape, 1);
        assert_made(trace);
        assert_true(eg_shape_equal(eg_trace_output(trace, 0), EG_SHAPE(ZOO_BATCH, 10)));
        eg_trace_free(trace);
        eg_mutator_detach(mutator);
        eg_module_release(net);
        eg_context_free(ctx);
    }
}

/* A cell on two inputs of one shape, or on one (in[1].ndim = 0), under a random architecture: its outputs' shapes. */
static inline void check_cell(eg_module *cell, const eg_shape in[2], const eg_shape *out, size_t n_out)
{
    assert_made(cell);
    eg_mutator *mutator = eg_random_mutator_new(cell);
    assert_made(mutator);
    for (int training = 0; training < 2; training++) {
        eg_module_train(cell, training != 0);
        assert_ok(eg_mutator_reset(mutator));
        eg_tape *tape = eg_tape_begin(cell->ctx, EG_RECORD);
        eg_tensor *x = eg_randn(cell->ctx, in[0]);
        eg_tensor *y = in[1].ndim > 0 ? eg_call(cell, x, eg_randn(cell->ctx, in[1])) : eg_call(cell, x);
        assert_made(y);
        for (size_t i = 0; i < n_out; i++) {
            eg_shape shape = eg_tensor_shape(eg_tensor_is_tuple(y) ? eg_tuple_get(y, i) : y);
            char got[EG_SHAPE_TEXT_SIZE], expected[EG_SHAPE_TEXT_SIZE];
            assert_string_equal(eg_shape_format(shape, got, sizeof got),
                                eg_shape_format(out[i], expected, sizeof expected));
        }
        eg_tape_end(tape);
    }
    eg_mutator_detach(mutator);
}

#endif

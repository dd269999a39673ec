/*
 * tests/train/train_support.h - a data set that can be learned and models small enough to train in no time.
 */
#ifndef EG_TESTS_TRAIN_SUPPORT_H
#define EG_TESTS_TRAIN_SUPPORT_H

#include "support.h"

#include "engraft/engraft.h"

#include <jansson.h>

enum { TOY_SIDE = 6, TOY_CLASSES = 3 };

/* Images of noise with a bright row whose place is the class. */
static inline eg_dataset *toy_data(eg_context *ctx, size_t n, uint64_t seed)
{
    const size_t pixels = TOY_SIDE * TOY_SIDE;
    float *images = calloc(n * pixels, sizeof *images);
    int64_t *labels = calloc(n, sizeof *labels);
    assert_true(images && labels);
    eg_rng rng = eg_rng_make(seed, "toy", 0);
    for (size_t i = 0; i < n; i++) {
        labels[i] = (int64_t)(i % TOY_CLASSES);
        for (size_t k = 0; k < pixels; k++)
            images[i * pixels + k] =
                (float)(0.5 * eg_rng_normal(&rng) + ((int64_t)(k / TOY_SIDE) == 2 * labels[i] ? 1.5 : 0.0));
    }
    eg_dataset *data = eg_dataset_from_arrays(ctx, images, EG_SHAPE(1, TOY_SIDE, TOY_SIDE), labels, n, TOY_CLASSES);
    free(images);
    free(labels);
    assert_made(data);
    return data;
}

/* With batch norm and dropout: state beside the weights, and random numbers in each step. */
static inline eg_module *toy_model(eg_context *ctx)
{
    eg_module *model = eg_sequential(
        ctx, EG_MODULES(eg_conv2d(ctx, 1, 8, 3, .padding = 1, .no_bias = true), eg_batch_norm2d(ctx, 8, .relu = true),
                        eg_flatten(ctx), eg_dropout(ctx, 0.2), eg_linear(ctx, 8 * TOY_SIDE * TOY_SIDE, TOY_CLASSES)));
    assert_made(model);
    return model;
}

/* Two choices of layers and an optional shortcut. */
static inline eg_module *toy_supernet(eg_context *ctx)
{
    eg_module *model = eg_sequential(
        ctx,
        EG_MODULES(eg_conv2d(ctx, 1, 8, 3, .padding = 1, .no_bias = true), eg_batch_norm2d(ctx, 8, .relu = true),
                   eg_layer_choice(ctx,
                                   EG_CHOICES({"conv3x3", eg_conv2d(ctx, 8, 8, 3, .padding = 1)},
                                              {"conv1x1", eg_conv2d(ctx, 8, 8, 1)},
                                              {"pool", eg_avg_pool2d(ctx, 3, .stride = 1, .padding = 1)}),
                                   .key = "first"),
                   eg_batch_norm2d(ctx, 8, .relu = true),
                   eg_layer_choice(
                       ctx, EG_CHOICES({"conv3x3", eg_conv2d(ctx, 8, 8, 3, .padding = 1)}, {"skip", eg_identity(ctx)}),
                       .key = "second"),
                   eg_batch_norm2d(ctx, 8, .relu = true), eg_flatten(ctx),
                   eg_linear(ctx, 8 * TOY_SIDE * TOY_SIDE, TOY_CLASSES)));
    assert_made(model);
    return model;
}

static inline char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("cannot open %s", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *size = (size_t)ftell(file);
    rewind(file);
    char *data = calloc(*size + 1, 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size, file), *size);
    fclose(file);
    return data;
}

static inline void assert_same_file(const char *a, const char *b)
{
    size_t n, m;
    char *x = read_file(a, &n), *y = read_file(b, &m);
    if (n != m || memcmp(x, y, n) != 0)
        fail_msg("%s and %s differ", a, b);
    free(x);
    free(y);
}

/* Writes a checkpoint anew with one member of its scalars replaced by what JSON text `value` says. */
static inline void edit_checkpoint(const char *path, const char *key, const char *value)
{
    eg_context *ctx = eg_context_new(.seed = 7);
    char *metadata;
    eg_state *state = eg_safetensors_load(ctx, path, &metadata);
    assert_made(state);
    json_t *outer = json_loads(metadata, 0, NULL);
    json_t *scalars = json_loads(json_string_value(json_object_get(outer, "engraft")), 0, NULL);
    assert_non_null(json_object_get(scalars, key));
    assert_int_equal(json_object_set_new(scalars, key, json_loads(value, JSON_DECODE_ANY, NULL)), 0);
    char *text = json_dumps(scalars, JSON_COMPACT);
    assert_int_equal(json_object_set_new(outer, "engraft", json_string(text)), 0);
    char *edited = json_dumps(outer, JSON_COMPACT);
    assert_ok(eg_safetensors_save(state, path, edited));
    free(edited);
    free(text);
    json_decref(scalars);
    json_decref(outer);
    eg_free(metadata);
    eg_state_free(state);
    eg_context_free(ctx);
}

static inline void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

#endif

/*
 * tests/train/works.h - pieces of work that use all of the library, each leaving a record of every number it came to:
 * losses, gradients, weights. They assert nothing, so that any thread can do them: a failure is a status, with the
 * library's message in the record.
 */
#ifndef EG_TESTS_TRAIN_WORKS_H
#define EG_TESTS_TRAIN_WORKS_H

#include "support.h"

#include "engraft/engraft.h"

typedef struct record {
    float *numbers;
    size_t n;
    char failure[300];
} record;

/* Enough numbers in an activation that the kernels share them out among threads. */
enum { WORK_BATCH = 16, WORK_SIDE = 16, WORK_CLASSES = 4, WORK_STEPS = 2 };

static inline eg_status record_tensor(record *r, const eg_tensor *t)
{
    size_t n = (size_t)eg_tensor_numel(t);
    float *grown = realloc(r->numbers, (r->n + n + 1) * sizeof *grown);
    if (!grown)
        return EG_ENOMEM;
    r->numbers = grown;
    if (eg_tensor_dtype(t) == EG_I64)
        return EG_OK; /* a count of batches */
    eg_status status = eg_tensor_read(t, r->numbers + r->n, n);
    r->n += n;
    return status;
}

/* All tensors of the state and their gradients. */
static inline eg_status record_state(record *r, const eg_state *state)
{
    eg_status status = EG_OK;
    for (size_t i = 0; i < eg_state_size(state) && status == EG_OK; i++) {
        eg_tensor *t = eg_state_at(state, i, NULL), *grad = eg_tensor_grad(t);
        status = record_tensor(r, t);
        if (grad && status == EG_OK)
            status = record_tensor(r, grad);
    }
    return status;
}

static inline eg_status record_model(record *r, eg_module *model, eg_mutator *mutator)
{
    eg_state *state = eg_state_new();
    eg_status status = eg_module_state(model, "weights.", state);
    if (status == EG_OK && mutator)
        status = eg_darts_mutator_state(mutator, "alphas.", state);
    if (status == EG_OK)
        status = record_state(r, state);
    eg_state_free(state);
    return status;
}

static inline eg_dataset *work_images(eg_context *ctx, int64_t channels)
{
    enum { SAMPLES = WORK_BATCH * WORK_STEPS };
    size_t numel = (size_t)channels * WORK_SIDE * WORK_SIDE;
    float *images = calloc(SAMPLES * numel, sizeof *images);
    int64_t labels[SAMPLES];
    if (!images)
        return NULL;
    eg_rng rng = eg_rng_make(5, "images", 0);
    for (size_t i = 0; i < SAMPLES * numel; i++)
        images[i] = (float)eg_rng_normal(&rng);
    for (size_t i = 0; i < SAMPLES; i++)
        labels[i] = (int64_t)i % WORK_CLASSES;
    eg_shape shape = EG_SHAPE(channels, WORK_SIDE, WORK_SIDE);
    eg_dataset *data = eg_dataset_from_arrays(ctx, images, shape, labels, SAMPLES, WORK_CLASSES);
    free(images);
    return data;
}

/* A step on a batch; the gradients are in the record before the optimizer has them. */
static inline eg_status work_step(record *r, eg_module *model, eg_mutator *mutator, eg_optimizer *optimizer,
                                  eg_tensor *x, eg_tensor *y)
{
    eg_tape *tape = eg_tape_begin(eg_tensor_context(x), EG_RECORD);
    eg_status status = mutator ? eg_mutator_reset(mutator) : EG_OK;
    eg_tensor *loss = eg_f_cross_entropy(eg_tuple_get(eg_call(model, x), 0), y);
    if (status == EG_OK)
        status = eg_backward(loss);
    if (status == EG_OK)
        status = record_tensor(r, loss);
    eg_tape_end(tape);
    if (status == EG_OK)
        status = record_model(r, model, mutator);
    if (status == EG_OK)
        status = eg_optimizer_clip_grad_norm(optimizer, 5.0, NULL);
    if (status == EG_OK)
        status = eg_optimizer_step(optimizer);
    eg_optimizer_zero_grad(optimizer);
    return status;
}

/* Steps on what a loader with threads of its own gives. */
static inline eg_status work_on_batches(record *r, eg_module *model, eg_mutator *mutator, eg_optimizer *optimizer,
                                        eg_dataset *data)
{
    eg_transform transforms[] = {eg_random_crop(2), eg_random_flip(0.5)};
    eg_loader *loader = eg_loader_new(data, WORK_BATCH, .shuffle = true, .workers = 2, .seed = 3,
                                      .transforms = transforms, .n_transforms = 2);
    eg_status status = loader && optimizer ? EG_OK : eg_error_first()->code;
    for (int i = 0; i < WORK_STEPS && status == EG_OK; i++) {
        eg_tape *tape = eg_tape_begin(model->ctx, EG_NO_GRAD); /* owns the batch */
        eg_batch batch;
        status = eg_loader_next(loader, &batch);
        if (status == EG_OK)
            status = work_step(r, model, mutator, optimizer, batch.x, batch.y);
        eg_tape_end(tape);
    }
    eg_loader_free(loader);
    return status == EG_OK ? record_model(r, model, mutator) : status;
}

/* Each kind of convolution that has a way of its own, pooling, batch norm, dropout. */
static inline eg_status work_convolutions(eg_context *ctx, record *r)
{
    eg_module *model =
        eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 3, 24, 3, .padding = 1), eg_batch_norm2d(ctx, 24, .relu = true),
                                      eg_conv2d(ctx, 24, 24, 3, .padding = 1, .groups = 24, .no_bias = true),
                                      eg_conv2d(ctx, 24, 24, 5, .padding = 4, .dilation = 2, .groups = 24),
                                      eg_conv2d(ctx, 24, 32, 1, .stride = 2), eg_batch_norm2d(ctx, 32, .relu = true),
                                      eg_max_pool2d(ctx, 3, .stride = 1, .padding = 1), eg_dropout(ctx, 0.1),
                                      eg_conv2d(ctx, 32, 40, 3, .groups = 2), eg_avg_pool2d(ctx, 2), eg_flatten(ctx),
                                      eg_linear(ctx, 40 * 3 * 3, WORK_CLASSES)));
    eg_dataset *data = work_images(ctx, 3);
    eg_optimizer *optimizer = eg_sgd(model, .lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3);
    eg_status status = optimizer && data ? work_on_batches(r, model, NULL, optimizer, data) : eg_error_first()->code;
    eg_optimizer_free(optimizer);
    eg_dataset_release(data);
    eg_module_release(model);
    return status;
}

/* Weights and alphas are trained together. */
static inline eg_status work_supernet(eg_context *ctx, record *r)
{
    eg_module *model = eg_space_build(ctx, "darts",
                                      &(eg_space_options){.struct_size = sizeof(eg_space_options),
                                                          .input = EG_SHAPE(3, WORK_SIDE, WORK_SIDE),
                                                          .classes = WORK_CLASSES,
                                                          .channels = 4,
                                                          .layers = 1});
    eg_mutator *mutator = eg_darts_mutator_new(model);
    eg_dataset *data = work_images(ctx, 3);
    eg_optimizer *optimizer = eg_adam(model, .lr = 1e-3);
    eg_state *alphas = eg_state_new();
    eg_status status = optimizer && data ? eg_darts_mutator_state(mutator, NULL, alphas) : eg_error_first()->code;
    for (size_t i = 0; i < eg_state_size(alphas) && status == EG_OK; i++) {
        const char *name;
        eg_tensor *alpha = eg_state_at(alphas, i, &name);
        status = eg_optimizer_add(optimizer, name, &alpha, 1, NULL);
    }
    if (status == EG_OK)
        status = work_on_batches(r, model, mutator, optimizer, data);
    eg_state_free(alphas);
    eg_optimizer_free(optimizer);
    eg_dataset_release(data);
    eg_mutator_detach(mutator);
    eg_module_release(model);
    return status;
}

/* What an LSTM made of a sequence, through attention, as a class. */
typedef struct reader {
    eg_module base;
    int64_t in, hidden;
    eg_module *lstm, *norm, *head;
} reader;

static inline eg_status reader_build(eg_module *self)
{
    reader *m = (reader *)self;
    EG_SLOT(m, lstm,
            eg_lstm(self->ctx, m->in, m->hidden, 2, .batch_first = true, .dropout = 0.2, .bidirectional = true));
    EG_SLOT(m, norm, eg_layer_norm(self->ctx, EG_SHAPE(2 * m->hidden)));
    EG_SLOT(m, head, eg_linear(self->ctx, 2 * m->hidden, WORK_CLASSES));
    return eg_module_status(self);
}

static inline eg_tensor *reader_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    reader *m = (reader *)self;
    eg_tensor *y = eg_call(m->norm, eg_tuple_get(eg_call(m->lstm, in[0]), 0));
    y = eg_f_scaled_dot_product_attention(y, y, y, eg_none);
    return eg_call(m->head, eg_mean(y, .dims = EG_SHAPE(1)));
}

static EG_CLASS(reader, .build = reader_build, .forward = reader_forward,
                .fields = EG_FIELDS(EG_INT(reader, in, EG_AT_LEAST(1), .help = "features"),
                                    EG_INT(reader, hidden, EG_AT_LEAST(1), .help = "units")));

static inline eg_status work_sequences(eg_context *ctx, record *r)
{
    enum { T = 24, N = 32, IN = 10, HIDDEN = 48 };
    eg_module *model = eg_new(reader, ctx, IN, HIDDEN);
    eg_optimizer *optimizer = eg_adamw(model, .lr = 1e-3);
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(N, T, IN));
    int64_t labels[N];
    for (int64_t i = 0; i < N; i++)
        labels[i] = i % WORK_CLASSES;
    eg_tensor *y = eg_from_labels(ctx, N, labels);
    eg_status status = optimizer && x && y ? EG_OK : eg_error_first()->code;
    for (int i = 0; i < WORK_STEPS && status == EG_OK; i++)
        status = work_step(r, model, NULL, optimizer, x, y);
    if (status == EG_OK)
        status = record_model(r, model, NULL);
    eg_tape_end(tape);
    eg_optimizer_free(optimizer);
    eg_module_release(model);
    return status;
}

/* A trainer with its files: checkpoints and events. */
static inline eg_status work_trainer(eg_context *ctx, record *r)
{
    char folder[] = "/tmp/engraft-work-XXXXXX";
    eg_module *model =
        eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 1, 16, 3, .padding = 1), eg_group_norm(ctx, 4, 16), eg_relu(ctx),
                                      eg_conv_transpose2d(ctx, 16, 16, 3, .stride = 2, .padding = 1),
                                      eg_upsample(ctx, .scale_factor = 2, .mode = EG_BILINEAR),
                                      eg_global_avg_pool2d(ctx), eg_linear(ctx, 16, WORK_CLASSES)));
    eg_dataset *data = work_images(ctx, 1);
    eg_trainer *trainer = mkdtemp(folder) ? eg_trainer_new(ctx, model, data, .validation = data, .epochs = 2,
                                                           .batch_size = WORK_BATCH, .workers = 2, .run = folder)
                                          : NULL;
    eg_status status = trainer ? eg_trainer_train(trainer) : eg_error_first()->code;
    if (status == EG_OK)
        status = record_model(r, model, NULL);
    eg_trainer_free(trainer);
    eg_dataset_release(data);
    eg_module_release(model);
    temporary_remove_tree(folder);
    return status;
}

typedef eg_status (*work)(eg_context *ctx, record *r);

enum { WORKS = 4 };
static const struct {
    const char *name;
    work work;
} works[WORKS] = {{"convolutions", work_convolutions},
                  {"supernet", work_supernet},
                  {"sequences", work_sequences},
                  {"trainer", work_trainer}};

/* One of them in a context of its own. */
static inline record work_alone(size_t kind, int threads)
{
    record r = {0};
    eg_error_clear();
    eg_context *ctx = eg_context_new(.seed = 11, .threads = threads);
    eg_status status = ctx ? works[kind].work(ctx, &r) : eg_error_last()->code;
    if (status != EG_OK)
        snprintf(r.failure, sizeof r.failure, "%s: %s", eg_error_first()->where, eg_error_first()->message);
    eg_context_free(ctx);
    return r;
}

/* Bit for bit; `what` is for the message. */
static inline void assert_same_record(const record *a, const record *b, size_t kind, const char *what)
{
    if (a->failure[0] || b->failure[0])
        fail_msg("%s: %s%s", works[kind].name, a->failure, b->failure);
    assert_true(a->n > 0);
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++)
        if (memcmp(&a->numbers[i], &b->numbers[i], sizeof *a->numbers) != 0)
            fail_msg("%s, %s: number %zu of %zu is %.9g and %.9g", works[kind].name, what, i, a->n,
                     (double)a->numbers[i], (double)b->numbers[i]);
}

#endif

/*
 * bench/kernels.c - time of single kernels at the shapes of a DARTS cell, one JSON line a case:
 *
 *     kernels [--threads N] [--batch N] [--channels N] [--size N] [--backend dnnl|ref] [--only NAME]
 *
 * {"kernel", "channels", "size", "batch", "threads", "us"}: microseconds of one call, the least of some repetitions.
 */
#include "tensor/kernels.h"

#include <stdlib.h>
#include <string.h>

#define INPUTS 8

typedef struct options {
    int threads;
    int64_t batch, channels, size;
    const char *backend, *only;
} options;

/** Everything that the cases work on, made once. */
typedef struct bench {
    options o;
    eg_context *ctx;
    const eg_kernels *k;
    eg_tensor *x[INPUTS], *y, *dy, *dx, *half, *pooled, *plain, *workspace, *pool_workspace;
    eg_tensor *mean, *var, *gamma, *beta, *dgamma, *dbeta, *mix, *dmix, *bias;
    eg_tensor *w, *dw;        /* of the running convolution */
    eg_tensor *a, *b, *c;     /* of a linear layer: (batch, 4 channels) x (4 channels, 10) */
    eg_tensor *p, *g, *m, *v; /* a million parameters */
    eg__window win;
} bench;

typedef eg_status (*run_fn)(bench *);

static eg_status conv(bench *b)
{
    return b->k->conv2d(&b->win, b->x[0], b->w, NULL, b->win.stride[0] == 1 ? b->y : b->half);
}
static eg_status conv_input(bench *b)
{
    return b->k->conv2d_backward_input(&b->win, b->w, b->win.stride[0] == 1 ? b->dy : b->half, b->dx, false);
}
static eg_status conv_weight(bench *b)
{
    return b->k->conv2d_backward_weight(&b->win, b->x[0], b->win.stride[0] == 1 ? b->dy : b->half, b->dw, NULL);
}
static eg_status norm(bench *b)
{
    eg_tensor_release(b->workspace);
    return b->k->batch_norm(&(eg__batch_norm){.eps = 1e-5}, b->x[0], NULL, NULL, b->mean, b->var, b->y, &b->workspace);
}
static eg_status norm_back(bench *b)
{
    return b->k->batch_norm_backward(&(eg__batch_norm){.eps = 1e-5}, b->x[0], NULL, NULL, b->mean, b->var, b->workspace,
                                     b->dy, b->dx, NULL, NULL);
}
static eg_status norm_relu(bench *b)
{
    eg_tensor_release(b->workspace);
    return b->k->batch_norm(&(eg__batch_norm){.eps = 1e-5, .relu = true}, b->x[0], b->gamma, b->beta, b->mean, b->var,
                            b->y, &b->workspace);
}
static eg_status norm_relu_back(bench *b)
{
    return b->k->batch_norm_backward(&(eg__batch_norm){.eps = 1e-5, .relu = true}, b->x[0], b->gamma, b->beta, b->mean,
                                     b->var, b->workspace, b->dy, b->dx, b->dgamma, b->dbeta);
}
static eg_status norm_eval(bench *b)
{
    return b->k->batch_norm_eval(&(eg__batch_norm){.eps = 1e-5, .relu = true}, b->x[0], b->gamma, b->beta, b->mean,
                                 b->var, b->y);
}
static const eg__window pool = {{3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, true};
static eg_status max_pool(bench *b)
{
    eg_tensor_release(b->pool_workspace);
    return b->k->max_pool2d(&pool, b->x[0], b->y, &b->pool_workspace);
}
static eg_status max_pool_back(bench *b)
{
    return b->k->max_pool2d_backward(&pool, b->pool_workspace, b->dy, b->dx, false);
}
static eg_status avg_pool(bench *b)
{
    return b->k->avg_pool2d(&pool, b->x[0], b->y);
}
static eg_status avg_pool_back(bench *b)
{
    return b->k->avg_pool2d_backward(&pool, b->dy, b->dx, false);
}
static eg_status global_pool(bench *b)
{
    return b->k->adaptive_avg_pool2d(b->x[0], b->pooled);
}
static eg_status global_pool_back(bench *b)
{
    return b->k->adaptive_avg_pool2d_backward(b->pooled, b->dx);
}
static eg_status relu(bench *b)
{
    return b->k->unary(EG__RELU, 0, 0, b->x[0], b->y);
}
static eg_status relu_back(bench *b)
{
    return b->k->unary_backward(EG__RELU, 0, 0, b->y, b->dy, b->dx, false);
}
static eg_status sigmoid(bench *b)
{
    return b->k->unary(EG__SIGMOID, 0, 0, b->x[0], b->y);
}
static eg_status gelu(bench *b)
{
    return b->k->unary(EG__GELU, 0, 0, b->x[0], b->y);
}
static eg_status add(bench *b)
{
    return b->k->binary(EG__ADD, b->x[0], b->x[1], b->y);
}
static eg_status add_channel(bench *b)
{
    return b->k->binary(EG__ADD, b->x[0], b->bias, b->y);
}
static eg_status accumulate(bench *b)
{
    return b->k->accumulate(b->x[0], b->y);
}
static eg_status copy(bench *b)
{
    return b->k->copy(b->x[0], b->y);
}
static eg_status to_rows(bench *b)
{
    return b->k->copy(b->x[0], b->plain);
}
static eg_status from_rows(bench *b)
{
    return b->k->copy(b->plain, b->y);
}
static eg_status fill(bench *b)
{
    return b->k->fill(b->y, 0);
}
static eg_status sum_channels(bench *b)
{
    return b->k->reduce(EG__SUM, b->x[0], b->bias, NULL);
}
static eg_status weighted(bench *b)
{
    return b->k->weighted_sum(INPUTS, (const eg_tensor *const *)b->x, b->mix, b->y);
}
static eg_status weighted_back(bench *b)
{
    eg_tensor *dx[INPUTS] = {b->y, b->dx, b->y, b->dx, b->y, b->dx, b->y, b->dx};
    return b->k->weighted_sum_backward(INPUTS, (const eg_tensor *const *)b->x, b->mix, b->dy, dx, b->dmix);
}
static eg_status matmul(bench *b)
{
    return b->k->matmul(b->a, b->b, NULL, b->c);
}
static eg_status softmax(bench *b)
{
    return b->k->softmax(1, false, b->c, b->c);
}
static eg_status sgd(bench *b)
{
    return b->k->sgd(&(eg__sgd){.lr = 1e-6, .momentum = 0.9, .weight_decay = 1e-4}, 1, &b->p, &b->g, &b->m);
}
static eg_status adam(bench *b)
{
    return b->k->adam(&(eg__adam){.lr = 1e-6, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .step = 9}, 1, &b->p, &b->g,
                      &b->m, &b->v);
}
static eg_status norm2(bench *b)
{
    double sum;
    return b->k->norm2(1, &b->p, &sum);
}

static const struct convolution {
    const char *name;
    int64_t kernel, dilation, stride;
    bool depthwise;
} convolutions[] = {
    {"conv1x1", 1, 1, 1, false},        {"conv1x1_s2", 1, 1, 2, false},     {"conv3x3", 3, 1, 1, false},
    {"depthwise3x3", 3, 1, 1, true},    {"depthwise5x5", 5, 1, 1, true},    {"depthwise3x3_d2", 3, 2, 1, true},
    {"depthwise5x5_d2", 5, 2, 1, true}, {"depthwise3x3_s2", 3, 1, 2, true},
};

static const struct kernel {
    const char *name;
    run_fn run;
} kernels[] = {
    {"batch_norm", norm},
    {"batch_norm_backward", norm_back},
    {"batch_norm_relu", norm_relu},
    {"batch_norm_relu_backward", norm_relu_back},
    {"batch_norm_eval", norm_eval},
    {"max_pool", max_pool},
    {"max_pool_backward", max_pool_back},
    {"avg_pool", avg_pool},
    {"avg_pool_backward", avg_pool_back},
    {"global_pool", global_pool},
    {"global_pool_backward", global_pool_back},
    {"relu", relu},
    {"relu_backward", relu_back},
    {"sigmoid", sigmoid},
    {"gelu", gelu},
    {"add", add},
    {"add_channel", add_channel},
    {"accumulate", accumulate},
    {"copy", copy},
    {"copy_to_nchw", to_rows},
    {"copy_from_nchw", from_rows},
    {"fill", fill},
    {"sum_channels", sum_channels},
    {"weighted_sum8", weighted},
    {"weighted_sum8_backward", weighted_back},
    {"matmul", matmul},
    {"softmax", softmax},
    {"sgd_1m", sgd},
    {"adam_1m", adam},
    {"norm2_1m", norm2},
};

/** Least time of a call over some rounds of calls, each round of a millisecond at least. */
static eg_status measure(bench *b, const char *name, run_fn run)
{
    if (b->o.only && strcmp(b->o.only, name) != 0)
        return EG_OK;
    EG_TRY(run(b));
    double start = eg__now(), best = 1e30;
    for (int round = 0, calls = 1; round < 40 && eg__now() - start < 0.4; round++) {
        double begin = eg__now();
        for (int i = 0; i < calls; i++)
            EG_TRY(run(b));
        double seconds = eg__now() - begin;
        best = EG_MIN(best, seconds / calls);
        if (seconds < 1e-3)
            calls = (int)(1e-3 / (seconds / calls + 1e-9)) + 1;
    }
    printf("{\"kernel\": \"%s\", \"channels\": %d, \"size\": %d, \"batch\": %d, \"threads\": %d, \"us\": %.2f}\n", name,
           (int)b->o.channels, (int)b->o.size, (int)b->o.batch, b->o.threads, best * 1e6);
    return EG_OK;
}

static eg_status measure_convolution(bench *b, const struct convolution *c)
{
    int64_t channels = b->o.channels, in = c->depthwise ? 1 : channels, padding = c->dilation * (c->kernel / 2);
    char name[64];
    b->win = (eg__window){{c->kernel, c->kernel},     {c->stride, c->stride},      {padding, padding},
                          {c->dilation, c->dilation}, c->depthwise ? channels : 1, false};
    eg_shape shape = EG_SHAPE(channels, in, c->kernel, c->kernel);
    b->w = eg_empty(b->ctx, EG_F32, shape, EG_LAYOUT_ROW_MAJOR);
    b->dw = eg_empty(b->ctx, EG_F32, shape, EG_LAYOUT_ROW_MAJOR);
    if (!b->w || !b->dw)
        return EG_ENOMEM;
    EG_TRY(b->k->fill(b->w, 0.1));
    const run_fn runs[] = {conv, conv_input, conv_weight};
    const char *const directions[] = {"", "_backward_input", "_backward_weight"};
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s%s", c->name, directions[i]);
        EG_TRY(measure(b, name, runs[i]));
    }
    return EG_OK;
}

static eg_status prepare(bench *b)
{
    int64_t n = b->o.batch, c = b->o.channels, s = b->o.size;
    eg_context *ctx = b->ctx;
    for (int i = 0; i < INPUTS; i++)
        b->x[i] = eg_randn(ctx, EG_SHAPE(n, c, s, s));
    b->y = eg_zeros(ctx, EG_SHAPE(n, c, s, s));
    b->dy = eg_randn(ctx, EG_SHAPE(n, c, s, s));
    b->dx = eg_zeros(ctx, EG_SHAPE(n, c, s, s));
    b->half = eg_randn(ctx, EG_SHAPE(n, c, (s + 1) / 2, (s + 1) / 2));
    b->pooled = eg_zeros(ctx, EG_SHAPE(n, c, 1, 1));
    b->plain = eg_empty(ctx, EG_F32, EG_SHAPE(n, c, s, s), EG_LAYOUT_ROW_MAJOR);
    eg_tensor **vectors[] = {&b->mean, &b->var, &b->gamma, &b->beta, &b->dgamma, &b->dbeta};
    for (size_t i = 0; i < EG_COUNT(vectors); i++)
        *vectors[i] = eg_ones(ctx, EG_SHAPE(c));
    eg_tensor *bias = eg_ones(ctx, EG_SHAPE(1, c, 1, 1));
    b->bias = bias ? eg__scope_add(eg__tensor_new_view(bias, bias->shape, (const int64_t[]){0, 1, 0, 0}, 0)) : NULL;
    b->mix = eg_rand(ctx, EG_SHAPE(INPUTS));
    b->dmix = eg_rand(ctx, EG_SHAPE(INPUTS));
    b->a = eg_randn(ctx, EG_SHAPE(n, 4 * c));
    b->b = eg_randn(ctx, EG_SHAPE(4 * c, 10));
    b->c = eg_randn(ctx, EG_SHAPE(n, 10));
    b->p = eg_randn(ctx, EG_SHAPE(1000000));
    b->g = eg_randn(ctx, EG_SHAPE(1000000));
    b->m = eg_zeros(ctx, EG_SHAPE(1000000));
    b->v = eg_zeros(ctx, EG_SHAPE(1000000));
    return eg_error_first()->code;
}

static eg_status run_all(bench *b)
{
    EG_TRY(prepare(b));
    for (size_t i = 0; i < EG_COUNT(convolutions); i++)
        EG_TRY(measure_convolution(b, &convolutions[i]));
    EG_TRY(norm_relu(b)); /* backward cases find what forward left, also with --only */
    EG_TRY(max_pool(b));
    for (size_t i = 0; i < EG_COUNT(kernels); i++)
        EG_TRY(measure(b, kernels[i].name, kernels[i].run));
    eg_tensor_release(b->workspace);
    eg_tensor_release(b->pool_workspace);
    return EG_OK;
}

static bool parse(int argc, char **argv, options *o)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--threads") == 0)
            o->threads = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--batch") == 0)
            o->batch = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--channels") == 0)
            o->channels = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--size") == 0)
            o->size = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--backend") == 0)
            o->backend = argv[i + 1];
        else if (strcmp(argv[i], "--only") == 0)
            o->only = argv[i + 1];
        else
            return false;
    }
    return argc % 2 == 1 && o->threads > 0 && o->batch > 0 && o->channels > 0 && o->size > 0 &&
           eg__kernels_find(o->backend);
}

int main(int argc, char **argv)
{
    bench b = {.o = {.threads = 1, .batch = 64, .channels = 16, .size = 32, .backend = "dnnl"}};
    if (!parse(argc, argv, &b.o)) {
        fprintf(
            stderr,
            "usage: kernels [--threads N] [--batch N] [--channels N] [--size N] [--backend dnnl|ref] [--only NAME]\n");
        return 2;
    }
    b.ctx = eg_context_new(.threads = b.o.threads, .backend = b.o.backend);
    b.k = eg__kernels_find(b.o.backend);
    if (b.ctx)
        (void)run_all(&b);
    return eg_exit_status(b.ctx);
}

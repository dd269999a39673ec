/*
 * Batch norms folded into the convolutions before them, with the ReLU behind them or without.
 *
 * In evaluation a batch norm is y = s x + t with s = gamma / sqrt(var + eps) and t = beta - s mean, for each channel;
 * after a convolution that is a convolution with weight s w and bias s b + t. Computed in double precision.
 */
#include "engraft/methods.h"
#include "surgery/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The numbers of a vector; `otherwise` for eg_none. For free(). */
static float *read_vector(const eg_tensor *t, size_t n, float otherwise)
{
    float *v = eg__calloc(n, sizeof(*v));
    for (size_t i = 0; i < n && v != NULL; i++)
        v[i] = otherwise;
    if (v != NULL && !eg_is_none(t) && eg_tensor_read(t, v, n) != EG_OK) {
        free(v);
        return NULL;
    }
    return v;
}

typedef struct vectors {
    float *gamma, *beta, *mean, *var, *bias, *weight;
} vectors;

static bool read_vectors(vectors *v, const eg_conv2d *c, const eg_batch_norm2d *b)
{
    size_t n = (size_t)c->out_channels;
    v->gamma = read_vector(b->weight, n, 1);
    v->beta = read_vector(b->bias, n, 0);
    v->mean = read_vector(b->running_mean, n, 0);
    v->var = read_vector(b->running_var, n, 1);
    v->bias = read_vector(c->bias, n, 0);
    v->weight = read_vector(c->weight, (size_t)eg_tensor_numel(c->weight), 0);
    return v->gamma != NULL && v->beta != NULL && v->mean != NULL && v->var != NULL && v->bias != NULL &&
           v->weight != NULL;
}

static void free_vectors(vectors *v)
{
    float *all[] = {v->gamma, v->beta, v->mean, v->var, v->bias, v->weight};
    for (size_t i = 0; i < EG_COUNT(all); i++)
        free(all[i]);
}

static void fold(vectors *v, const eg_conv2d *c, double eps)
{
    size_t n = (size_t)c->out_channels, taps = (size_t)eg_tensor_numel(c->weight) / n;
    for (size_t i = 0; i < n; i++) {
        double scale = v->gamma[i] / sqrt((double)v->var[i] + eps);
        for (size_t k = 0; k < taps; k++)
            v->weight[i * taps + k] = (float)(scale * v->weight[i * taps + k]);
        v->bias[i] = (float)(scale * ((double)v->bias[i] - v->mean[i]) + v->beta[i]);
    }
}

/* The convolution that does what both did. */
static eg_module *make_folded(eg_surgery *s, const eg_class *cls, const eg_conv2d *c, const eg_batch_norm2d *b)
{
    eg_conv2d prototype = {.base.ctx = c->base.ctx,
                           .in_channels = c->in_channels,
                           .out_channels = c->out_channels,
                           .kernel_size = c->kernel_size,
                           .stride = c->stride,
                           .padding = c->padding,
                           .dilation = c->dilation,
                           .groups = c->groups};
    eg_module *m = eg_module_new(cls, sizeof(prototype), &prototype);
    vectors v = {0};
    bool done = m != NULL && read_vectors(&v, c, b);
    if (done) {
        eg_conv2d *folded = EG_CAST(m, eg_conv2d);
        eg_tensor *from[] = {c->weight};
        fold(&v, c, b->eps);
        done = eg_tensor_write(folded->weight, v.weight, (size_t)eg_tensor_numel(c->weight)) == EG_OK &&
               eg_tensor_write(folded->bias, v.bias, (size_t)c->out_channels) == EG_OK &&
               eg_surgery_derive(s, folded->weight, from, 1, NULL, NULL, NULL) == EG_OK;
        folded->weight->requires_grad = c->weight->requires_grad;
        folded->bias->requires_grad = c->weight->requires_grad;
    }
    free_vectors(&v);
    if (done)
        return m;
    eg_module_release(m);
    return NULL;
}

/* Whether the module that holds the one at a path can do nothing with another in its place. */
static bool is_wanted_as_it_is(eg_module *root, const char *path)
{
    const char *dot = strrchr(path, '.');
    char *parent = eg__format("%.*s", dot != NULL ? (int)(dot - path) : 0, path);
    const eg_module *holder = parent != NULL ? eg__module_below(root, parent) : NULL;
    eg_free(parent);
    return holder != NULL && eg_is_a(holder, &eg_ghost_batch_norm2d_class);
}

/* Why a chain is left as it is; NULL when it is folded. */
static const char *find_reason(const eg_chain *chain, eg_module *root)
{
    if (chain->refused != NULL)
        return chain->refused;
    const eg_module *conv = chain->modules[0], *norm = chain->modules[1];
    if (conv->cls != &eg_conv2d_class || norm->cls != &eg_batch_norm2d_class ||
        (chain->n > 2 && chain->modules[2]->cls != &eg_relu_class))
        return "they are of classes of their own";
    if (is_wanted_as_it_is(root, chain->paths[1]))
        return "it is in a GhostBatchNorm2d: unwrap it first";
    if (conv->open != NULL || norm->open != NULL || conv->n_reparams > 0 || norm->n_reparams > 0)
        return "its parameters are computed, or not decided yet";
    if (((const eg_batch_norm2d *)norm)->no_track_running_stats)
        return "the norm has no running statistics";
    return NULL;
}

/* What a method looks for, and puts in the place of its first module. */
typedef struct search {
    eg_surgery *s;
    const char *name; /* of the method */
    const char *at;
    eg_class_list classes;
    const eg_class *fused;
    bool with_relu; /* only norms that have one */
    size_t n;       /* folded */
} search;

static eg_status fold_chain(eg_surgery *s, const search *f, const eg_chain *chain)
{
    const eg_conv2d *c = EG_CAST(chain->modules[0], eg_conv2d);
    const eg_batch_norm2d *b = EG_CAST(chain->modules[1], eg_batch_norm2d);
    eg_module *folded = make_folded(s, f->fused, c, b);
    if (folded == NULL)
        return eg_error_last()->code;
    EG_TRY(eg_surgery_put(s, chain->modules[0], folded, f->name));
    for (size_t i = 1; i < chain->n; i++) {
        bool keeps_relu = i == 1 && b->relu && f->fused == &eg_conv2d_class;
        eg_module *rest = keeps_relu ? eg_relu(s->ctx) : eg_identity(s->ctx);
        if (rest == NULL)
            return eg_error_last()->code;
        EG_TRY(eg_surgery_put(s, chain->modules[i], rest, f->name));
    }
    return EG_OK;
}

/* Folds what it finds, while the plan is in place: its tensors are those that count. */
static eg_status fold_all(void *payload, eg_module *root)
{
    search *f = payload;
    eg_surgery *s = f->s;
    eg_chains *chains = eg_chains_find(root, (eg_shapes){s->inputs, s->n_inputs}, f->classes);
    eg_status status = chains != NULL ? EG_OK : eg_error_last()->code;
    for (size_t i = 0; i < eg_chains_size(chains) && status == EG_OK; i++) {
        const eg_chain *chain = eg_chains_at(chains, i);
        bool meant = !f->with_relu || ((const eg_batch_norm2d *)chain->modules[1])->relu;
        if (!meant || !eg__path_matches(f->at, chain->paths[1]))
            continue;
        const char *reason = find_reason(chain, root);
        status = reason != NULL ? eg_surgery_note(s, "%s leaves '%s': %s", f->name, chain->paths[1], reason)
                                : fold_chain(s, f, chain);
        f->n += reason == NULL;
    }
    eg_chains_free(chains);
    return status;
}

static eg_status plan_fold(eg_module *options, eg_surgery *s, const char *at)
{
    (void)options;
    search f = {.s = s,
                .name = "fold_batch_norm",
                .at = at,
                .classes = EG_CLASSES(&eg_conv2d_class, &eg_batch_norm2d_class),
                .fused = &eg_conv2d_class};
    EG_TRY(eg_surgery_look(s, fold_all, &f));
    return f.n > 0 ? EG_OK : eg_surgery_note(s, "fold_batch_norm found no batch norm to fold");
}

EG_METHOD(eg_fold_batch_norm, "fold_batch_norm", NULL, .help = "batch norms go into the convolutions before them",
          .source = "Jacob et al. 2018, section 3.2; saves the pass over memory that a norm is",
          .promise = EG_PROMISE_EXACT, .runs = true, .plan = plan_fold);

/* ReLUs of their own, then those of norms. */
static eg_status plan_fuse(eg_module *options, eg_surgery *s, const char *at)
{
    (void)options;
    const char *name = "fuse_conv_bn_relu";
    search three = {.s = s,
                    .name = name,
                    .at = at,
                    .classes = EG_CLASSES(&eg_conv2d_class, &eg_batch_norm2d_class, &eg_relu_class),
                    .fused = &eg_conv_relu2d_class};
    search two = {.s = s,
                  .name = name,
                  .at = at,
                  .classes = EG_CLASSES(&eg_conv2d_class, &eg_batch_norm2d_class),
                  .fused = &eg_conv_relu2d_class,
                  .with_relu = true};
    EG_TRY(eg_surgery_look(s, fold_all, &three));
    EG_TRY(eg_surgery_look(s, fold_all, &two));
    return three.n + two.n > 0 ? EG_OK : eg_surgery_note(s, "%s found no convolution with both behind it", name);
}

EG_METHOD(eg_fuse_conv_bn_relu, "fuse_conv_bn_relu", NULL,
          .help = "a convolution, its batch norm and ReLU become one module",
          .source = "Jacob et al. 2018, section 3.2; torch.ao.quantization.fuse_modules in evaluation",
          .promise = EG_PROMISE_EXACT, .runs = true, .plan = plan_fuse);

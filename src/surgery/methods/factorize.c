/*
 * Weights as products of two smaller ones, by their largest singular values.
 *
 * W = A B with A = U sqrt(S), B = sqrt(S) V: of all products of this rank the nearest to W (Eckart and Young 1936).
 * What optimizers keep follows by the chain rule: dL/dA = dL/dW B' and dL/dB = A' dL/dW, so averages of gradients are
 * multiplied likewise, and averages of their squares by the squares of the factors (as if entries were independent).
 */
#include "engraft/methods.h"
#include "surgery/internal.h"
#include "surgery/svd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- states of the factors ---- */

/* How what belongs to W makes what belongs to a factor. */
typedef struct factor {
    eg_tensor *other; /* kept: the other factor as a matrix */
    bool left;        /* this one is A */
    eg_shape shape;   /* of its weight */
} factor;

static void free_factor(void *payload)
{
    eg_tensor_release(((factor *)payload)->other);
    free(payload);
}

static eg_tensor *as_matrix(eg_tensor *t)
{
    return eg_reshape(t, EG_SHAPE(eg_tensor_size(t, 0), -1));
}

static eg_tensor *derive(void *payload, const char *what, eg_tensor *const *from, size_t n)
{
    const factor *f = payload;
    (void)n;
    if (from[0] == NULL)
        return NULL;
    eg_tensor *w = as_matrix(from[0]), *other = f->other;
    if (strcmp(what, "exp_avg_sq") == 0)
        other = eg_mul(other, other);
    eg_tensor *turned = eg_permute(other, EG_SHAPE(1, 0));
    return eg_reshape(f->left ? eg_matmul(w, turned) : eg_matmul(turned, w), f->shape);
}

static eg_status tell(eg_surgery *s, eg_tensor *fresh, eg_tensor *from, eg_tensor *other, bool left)
{
    factor *f = eg__calloc(1, sizeof(*f));
    if (f == NULL)
        return EG_ENOMEM;
    *f = (factor){.other = eg_tensor_keep(eg_tensor_copy(as_matrix(eg_detach(other)))),
                  .left = left,
                  .shape = eg_tensor_shape(fresh)};
    if (f->other == NULL) {
        free(f);
        return eg_error_last()->code;
    }
    fresh->requires_grad = from->requires_grad;
    return eg_surgery_derive(s, fresh, &from, 1, derive, f, free_factor);
}

/* ---- the factors ---- */

/* A into `left` (rows, rank, ..), B into `right` (rank, columns ..). */
static eg_status write_factors(const eg__svd *svd, size_t rank, eg_tensor *left, eg_tensor *right)
{
    float *a = eg__calloc(svd->rows * rank, sizeof(*a)), *b = eg__calloc(rank * svd->columns, sizeof(*b));
    eg_status status = a != NULL && b != NULL ? EG_OK : EG_ENOMEM;
    for (size_t k = 0; k < rank && status == EG_OK; k++) {
        double root = sqrt(svd->sigma[k]);
        for (size_t i = 0; i < svd->rows; i++)
            a[i * rank + k] = (float)(svd->u[i * svd->n + k] * root);
        for (size_t j = 0; j < svd->columns; j++)
            b[k * svd->columns + j] = (float)(svd->v[k * svd->columns + j] * root);
    }
    if (status == EG_OK)
        status = eg_tensor_write(left, a, svd->rows * rank);
    if (status == EG_OK)
        status = eg_tensor_write(right, b, rank * svd->columns);
    free(a);
    free(b);
    return status;
}

/* The largest rank whose factors are smaller than the weight: r (rows + columns) < rows columns. */
static size_t break_even(size_t rows, size_t columns)
{
    return (rows * columns - 1) / (rows + columns);
}

static size_t wanted_rank(const eg_factorize *o, const eg__svd *svd, int64_t narrowest)
{
    if (o->max_error > 0) {
        size_t rank = 1;
        while (rank < svd->n && eg__svd_error(svd, rank) > o->max_error)
            rank++;
        return rank;
    }
    double rank = o->rank < 1 ? o->rank * (double)narrowest : o->rank;
    return rank < (double)svd->n ? EG_MAX((size_t)rank, 1) : svd->n;
}

static eg_tensor *weight_of(eg_module *m)
{
    return *eg__slot_tensor(eg__slot_find(m, "weight", strlen("weight")));
}

/* The two layers in one module, with the weights and the old bias. `first` and `second` are taken over. */
static eg_module *join(eg_surgery *s, eg_module *old, eg_module *first, eg_module *second, const eg__svd *svd,
                       size_t rank)
{
    eg_module *m = eg_factorized(old->ctx, EG_MODULES(first, second), .error = eg__svd_error(svd, rank));
    if (m == NULL)
        return NULL;
    eg_tensor *left = weight_of(second), *right = weight_of(first), *from = weight_of(old);
    eg_slot *bias = eg__slot_find(second, "bias", strlen("bias")), *had = eg__slot_find(old, "bias", strlen("bias"));
    eg_status status = write_factors(svd, rank, left, right);
    if (status == EG_OK)
        status = tell(s, left, from, right, true);
    if (status == EG_OK)
        status = tell(s, right, from, left, false);
    if (status != EG_OK) {
        eg_module_release(m);
        return NULL;
    }
    eg_tensor_release(*eg__slot_tensor(bias)); /* the very bias goes on */
    *eg__slot_tensor(bias) = eg_tensor_keep(*eg__slot_tensor(had));
    return m;
}

/* A pair of layers of this rank that does what the old one did; NULL on failure. */
static eg_module *make_pair(eg_surgery *s, eg_module *old, const eg__svd *svd, size_t rank)
{
    eg_context *ctx = old->ctx;
    int64_t r = (int64_t)rank;
    eg_module *first, *second;
    if (eg_is_a(old, &eg_linear_class)) {
        const eg_linear *l = (const eg_linear *)old;
        first = eg_linear(ctx, l->in_features, r, .no_bias = true);
        second = eg_linear(ctx, r, l->out_features, .no_bias = l->no_bias);
    } else {
        const eg_conv2d *c = (const eg_conv2d *)old;
        first = eg_conv2d(ctx, c->in_channels, r, c->kernel_size, .stride = c->stride, .padding = c->padding,
                          .dilation = c->dilation, .no_bias = true);
        second = eg_conv2d(ctx, r, c->out_channels, 1, .no_bias = c->no_bias);
    }
    if (first != NULL && second != NULL)
        return join(s, old, first, second, svd, rank);
    eg_module_release(first);
    eg_module_release(second);
    return NULL;
}

/* Whether it is a layer that the method understands, and wide enough. */
static bool is_meant(const eg_factorize *o, const eg_module *m, int64_t *narrowest)
{
    if (m->open != NULL || m->n_reparams > 0)
        return false;
    if (m->cls == &eg_linear_class) {
        const eg_linear *l = (const eg_linear *)m;
        *narrowest = EG_MIN(l->in_features, l->out_features);
    } else if (m->cls == &eg_conv2d_class && ((const eg_conv2d *)m)->groups == 1) {
        const eg_conv2d *c = (const eg_conv2d *)m;
        *narrowest = EG_MIN(c->in_channels, c->out_channels);
    } else {
        return false;
    }
    return *narrowest >= o->min_channels;
}

static eg_module *replace(eg_module *options, eg_surgery *s, eg_module *module, size_t index)
{
    const eg_factorize *o = (const eg_factorize *)options;
    int64_t narrowest;
    (void)index;
    if (!is_meant(o, module, &narrowest))
        return NULL;
    eg__svd svd;
    eg_module *made = NULL;
    if (eg__svd_make(&svd, weight_of(module)) == EG_OK) {
        size_t rank = wanted_rank(o, &svd, narrowest);
        if (rank <= break_even(svd.rows, svd.columns))
            made = make_pair(s, module, &svd, rank);
    }
    eg__svd_free(&svd);
    return made;
}

EG_METHOD(eg_factorize, "factorize",
          EG_FIELDS(EG_FLOAT(eg_factorize, rank, EG_AT_LEAST(0), .def = 0.25,
                             .help = "singular values kept; below 1 a share of the channels"),
                    EG_FLOAT(eg_factorize, max_error, .max = 1,
                             .help = "the smallest rank with at most this relative error, instead of `rank`"),
                    EG_INT(eg_factorize, min_channels, EG_AT_LEAST(1), .def = 512,
                           .help = "of the narrower side of a layer that is factorized")),
          .help = "convolutions and linear layers become products of two smaller ones, by truncated SVD",
          .source =
              "Denton et al. 2014; defaults of Composer, which found them no gain on GPUs (under 5 % throughput for "
              "over 1 % accuracy) from random factors; these keep the nearest product of the trained weight",
          .promise = EG_PROMISE_TRAINED, .replace = replace,
          .targets = (const eg_class *const[]){&eg_conv2d_class, &eg_linear_class, NULL},
          .makes = (const eg_class *const[]){&eg_factorized_class, NULL});

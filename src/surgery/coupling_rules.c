/*
 * What each operation ties together. A new operation takes one function and one line in the table at the end; without
 * one, whatever it touches is fixed.
 */
#include "surgery/coupling_rules.h"

#include <string.h>

const char eg__why_positions[] = "positions";

static const char in_group[] = "whole groups of channels go, not their parts";

/* ---- convolutions and products ---- */

/* Channels x[i] and y[i] of a convolution whose weight has dimension wx for x's and wy for y's, of which `whole` is as
 * large as all of them and the other one as large as those of a group. */
static void tie_groups(const eg__rule_call *c, int64_t groups, int wx, int wy, int whole)
{
    uint32_t x = in(c, 0), w = in(c, 1), y = out(c, 0);
    int64_t nx = size_of(c, x, 1), ny = size_of(c, y, 1), px = nx / groups, py = ny / groups;
    int part = whole == wx ? wy : wx;
    bool blocks = eg__goes_by_groups(groups, nx);
    tie_dims(c, whole == wx ? x : y, 1, w, whole);
    if (blocks) {
        fix_dim(c, w, part, in_group);
    } else {
        borders(c, x, 1, px);
        borders(c, y, 1, py);
    }
    for (int64_t i = 0; i < nx; i++) {
        if (blocks)
            tie(c, x, 1, i, y, 1, i / px * py);
        else if (whole == wx)
            tie(c, x, 1, i, x, 1, i % px);
        else
            tie(c, x, 1, i, w, wx, i % px);
    }
    for (int64_t i = 0; i < ny; i++) {
        if (blocks)
            tie(c, y, 1, i, y, 1, i / py * py);
        else if (whole == wy)
            tie(c, y, 1, i, y, 1, i % py);
        else
            tie(c, y, 1, i, w, wy, i % py);
    }
}

static void window_rule(const eg__rule_call *c)
{
    for (size_t i = 0; i < 2 && has(c, i); i++)
        fix_from(c, in(c, i), 2, eg__why_positions);
    fix_from(c, out(c, 0), 2, eg__why_positions);
    tie_dims(c, in(c, 0), 0, out(c, 0), 0);
}

static void conv_rule(const eg__rule_call *c)
{
    window_rule(c);
    tie_groups(c, ((const eg__conv2d_attrs *)c->s->attrs)->window.groups, 1, 0, 0);
    if (has(c, 2))
        tie_dims(c, in(c, 2), 0, out(c, 0), 1);
}

static void conv_transpose_rule(const eg__rule_call *c)
{
    window_rule(c);
    tie_groups(c, ((const eg__conv_transpose2d_attrs *)c->s->attrs)->window.groups, 0, 1, 0);
    if (has(c, 2))
        tie_dims(c, in(c, 2), 0, out(c, 0), 1);
}

static void linear_rule(const eg__rule_call *c)
{
    uint32_t x = in(c, 0), w = in(c, 1), y = out(c, 0);
    int last = ndim_of(c, x) - 1;
    tie_first(c, x, y, 1);
    tie_dims(c, x, last, w, 1);
    tie_dims(c, y, last, w, 0);
    if (has(c, 2))
        tie_dims(c, in(c, 2), 0, y, last);
}

static void matmul_rule(const eg__rule_call *c)
{
    uint32_t a = in(c, 0), b = in(c, 1), y = out(c, 0);
    int na = ndim_of(c, a), nb = ndim_of(c, b), ny = ndim_of(c, y);
    if (na < 2 || nb < 2) {
        for (size_t i = 0; i < 2; i++)
            fix_from(c, in(c, i), 0, "a product with a vector");
        fix_from(c, y, 0, "a product with a vector");
        return;
    }
    tie_dims(c, a, na - 1, b, nb - 2);
    mix_dim(c, a, na - 1, "a product of two tensors sums over it");
    tie_dims(c, a, na - 2, y, ny - 2);
    tie_dims(c, b, nb - 1, y, ny - 1);
    tie_aligned(c, a, y, 2);
    tie_aligned(c, b, y, 2);
}

static void embedding_rule(const eg__rule_call *c)
{
    uint32_t index = in(c, 0), w = in(c, 1), y = out(c, 0);
    fix_dim(c, w, 0, "entries of a vocabulary");
    tie_first(c, index, y, 0);
    tie_dims(c, w, 1, y, ndim_of(c, y) - 1);
}

static void attention_rule(const eg__rule_call *c)
{
    uint32_t q = in(c, 0), k = in(c, 1), v = in(c, 2), y = out(c, 0);
    int nq = ndim_of(c, q), nk = ndim_of(c, k), nv = ndim_of(c, v), ny = ndim_of(c, y);
    tie_dims(c, q, nq - 1, k, nk - 1);
    fix_dim(c, q, nq - 1, "the scale of attention is by their number");
    tie_dims(c, k, nk - 2, v, nv - 2);
    fix_dim(c, k, nk - 2, eg__why_positions);
    fix_dim(c, q, nq - 2, eg__why_positions);
    tie_dims(c, q, nq - 2, y, ny - 2);
    tie_dims(c, v, nv - 1, y, ny - 1);
    tie_aligned(c, q, y, 2);
    tie_aligned(c, k, y, 2);
    tie_aligned(c, v, y, 2);
    if (has(c, 3))
        tie_aligned(c, in(c, 3), y, 2);
}

/* Gates are stacked: hidden feature i is in each of them. */
static void rnn_rule(const eg__rule_call *c)
{
    enum { X, WEIGHT_IH, WEIGHT_HH, BIAS_IH, BIAS_HH, H0, C0 };
    uint32_t x = in(c, X), hh = in(c, WEIGHT_HH), y = out(c, 0);
    int64_t hidden = size_of(c, hh, 1);
    tie_dims(c, x, 2, in(c, WEIGHT_IH), 1);
    tie_dims(c, x, 1, y, 1);
    tie_dims(c, x, 0, y, 0);
    fix_dim(c, x, 0, eg__why_positions);
    tie_dims(c, hh, 1, y, 2);
    for (size_t p = WEIGHT_IH; p <= BIAS_HH; p++) {
        for (int64_t i = 0; has(c, p) && i < size_of(c, in(c, p), 0); i++)
            tie(c, in(c, p), 0, i, y, 2, i % hidden);
        if (has(c, p))
            borders(c, in(c, p), 0, hidden);
    }
    for (size_t p = H0; p <= C0; p++) {
        for (int d = 0; has(c, p) && d < 2; d++)
            tie_dims(c, in(c, p), d, y, d + 1);
    }
    for (size_t o = 1; o < c->s->n_out; o++) {
        for (int d = 0; d < 2; d++)
            tie_dims(c, out(c, o), d, y, d + 1);
    }
}

/* ---- what keeps the shape ---- */

static void same_rule(const eg__rule_call *c)
{
    for (size_t i = 0; i < c->s->n_in; i++) {
        if (has(c, i))
            tie_aligned(c, in(c, i), out(c, 0), 0);
    }
}

/* Vectors with a number for each channel. */
static void norm_rule(const eg__rule_call *c)
{
    tie_first(c, in(c, 0), out(c, 0), 0);
    for (size_t i = 1; i < c->s->n_in; i++) {
        if (has(c, i))
            tie_dims(c, in(c, i), 0, in(c, 0), EG_MIN(1, ndim_of(c, in(c, 0)) - 1));
    }
}

static void group_norm_rule(const eg__rule_call *c)
{
    uint32_t x = in(c, 0);
    int64_t groups = ((const eg__group_norm_attrs *)c->s->attrs)->groups, n = size_of(c, x, 1), part = n / groups;
    bool blocks = eg__goes_by_groups(groups, n);
    norm_rule(c);
    for (int64_t i = 0; i < n; i++)
        tie(c, x, 1, i, x, 1, blocks ? i / part * part : i % part);
    if (!blocks)
        mix_dim(c, x, 1, "its normalization takes all channels of a group together");
}

static void instance_norm_rule(const eg__rule_call *c)
{
    norm_rule(c);
    fix_from(c, in(c, 0), 2, eg__why_positions);
}

static void layer_norm_rule(const eg__rule_call *c)
{
    uint32_t x = in(c, 0);
    int n = ((const eg__group_norm_attrs *)c->s->attrs)->normalized.ndim, first = ndim_of(c, x) - n;
    same_rule(c);
    for (int d = 0; d < n; d++)
        mix_dim(c, x, first + d, "its normalization takes them all together");
}

static void along_rule(const eg__rule_call *c)
{
    int dim = wrap(((const eg__dim_attrs *)c->s->attrs)->dim, ndim_of(c, in(c, 0)));
    same_rule(c);
    fix_dim(c, in(c, 0), dim, "its softmax or sum runs over them");
}

static void weighted_sum_rule(const eg__rule_call *c)
{
    for (size_t i = 0; i + 1 < c->s->n_in; i++)
        tie_first(c, in(c, i), out(c, 0), 0);
    fix_from(c, in(c, c->s->n_in - 1), 0, "weights of a sum");
}

/* ---- positions ---- */

static void pool_rule(const eg__rule_call *c)
{
    window_rule(c);
    tie_dims(c, in(c, 0), 1, out(c, 0), 1);
}

/* Each channel of the one is several of the other. */
static void shuffle_rule(const eg__rule_call *c)
{
    uint32_t x = in(c, 0), y = out(c, 0);
    bool up = size_of(c, x, 1) > size_of(c, y, 1);
    uint32_t many = up ? x : y, few = up ? y : x;
    int64_t each = size_of(c, many, 1) / size_of(c, few, 1);
    window_rule(c);
    for (int64_t i = 0; i < size_of(c, many, 1); i++)
        tie(c, many, 1, i, few, 1, i / each);
}

static void no_rule(const eg__rule_call *c)
{
    for (size_t i = 0; i < c->s->n_in; i++) {
        if (has(c, i))
            fix_from(c, in(c, i), 0, "the operation has no rule");
    }
    for (size_t i = 0; i < c->s->n_out; i++)
        fix_from(c, out(c, i), 0, "the operation has no rule");
}

/* ---- the table ---- */

static const struct rule {
    const char *op;
    void (*apply)(const eg__rule_call *c);
} rules[] = {
    {"conv2d", conv_rule},
    {"conv_transpose2d", conv_transpose_rule},
    {"linear", linear_rule},
    {"matmul", matmul_rule},
    {"embedding", embedding_rule},
    {"scaled_dot_product_attention", attention_rule},
    {"lstm", rnn_rule},
    {"gru", rnn_rule},
    {"batch_norm", norm_rule},
    {"group_norm", group_norm_rule},
    {"instance_norm", instance_norm_rule},
    {"layer_norm", layer_norm_rule},
    {"prelu", norm_rule},
    {"max_pool2d", pool_rule},
    {"avg_pool2d", pool_rule},
    {"adaptive_avg_pool2d", pool_rule},
    {"interpolate", pool_rule},
    {"pixel_shuffle", shuffle_rule},
    {"pixel_unshuffle", shuffle_rule},
    {"relu", same_rule},
    {"relu6", same_rule},
    {"leaky_relu", same_rule},
    {"sigmoid", same_rule},
    {"tanh", same_rule},
    {"gelu", same_rule},
    {"silu", same_rule},
    {"hardswish", same_rule},
    {"hardsigmoid", same_rule},
    {"elu", same_rule},
    {"softplus", same_rule},
    {"mish", same_rule},
    {"exp", same_rule},
    {"log", same_rule},
    {"sqrt", same_rule},
    {"abs", same_rule},
    {"pow", same_rule},
    {"clamp", same_rule},
    {"smooth_l1", same_rule},
    {"dropout", same_rule},
    {"drop_path", same_rule},
    {"add", same_rule},
    {"sub", same_rule},
    {"mul", same_rule},
    {"div", same_rule},
    {"maximum", same_rule},
    {"minimum", same_rule},
    {"gt", same_rule},
    {"eq", same_rule},
    {"where", same_rule},
    {"cast", same_rule},
    {"affine", same_rule},
    {"add_n", same_rule},
    {"weighted_sum", weighted_sum_rule},
    {"softmax", along_rule},
    {"log_softmax", along_rule},
    {"cumsum", along_rule},
    {"sum", eg__reduce_rule},
    {"mean", eg__reduce_rule},
    {"max", eg__reduce_rule},
    {"argmax", eg__reduce_rule},
    {"reshape", eg__reshape_rule},
    {"flatten", eg__reshape_rule},
    {"permute", eg__permute_rule},
    {"slice", eg__slice_rule},
    {"concat", eg__concat_rule},
    {"pad", eg__pad_rule},
};

static void (*rule_of(const char *op))(const eg__rule_call *c)
{
    for (size_t i = 0; i < EG_COUNT(rules); i++) {
        if (strcmp(rules[i].op, op) == 0)
            return rules[i].apply;
    }
    return no_rule;
}

/* Reshapes and slices have other ways to go first. */
static void fix_refused(const eg__rule_call *c)
{
    void (*rule)(const eg__rule_call *) = rule_of(c->s->op->name);
    unsigned ways = rule == eg__reshape_rule ? EG_MAX_DIMS : rule == eg__slice_rule ? 2 : 1;
    for (size_t i = 0; i < c->s->n_in && c->s->refused >= ways; i++) {
        if (has(c, i))
            fix_from(c, in(c, i), 0, "the code of the model has their number in it");
    }
    for (size_t i = 0; i < c->s->n_out && c->s->refused >= ways; i++)
        fix_from(c, out(c, i), 0, "the code of the model has their number in it");
}

void eg__ties_apply_rules(eg__ties *ties)
{
    for (size_t i = 0; i < ties->n_steps; i++)
        fix_refused(&(eg__rule_call){ties, &ties->steps[i], i + 1});
    for (int pass = 0; pass < 3; pass++) {
        ties->choosing = pass >= 1;
        ties->bordering = pass == 2;
        for (size_t i = 0; i < ties->n_steps; i++)
            rule_of(ties->steps[i].op->name)(&(eg__rule_call){ties, &ties->steps[i], i + 1});
    }
}

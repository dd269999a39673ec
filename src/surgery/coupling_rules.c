/*
 * What each operation ties together. A new operation takes one function and one line in the table at the end; without
 * one, whatever it touches is fixed.
 *
 * Groups of channels (grouped convolution, group norm) can be made smaller in two ways. Whole groups go where there are
 * at least as many as channels in one (depthwise convolution is the extreme); else the same channel of every group.
 */
#include "surgery/coupling.h"

#include <string.h>

const char eg__why_positions[] = "positions";

static const char in_group[] = "whole groups of channels go, not their parts";

/* ---- the words of the rules: i and o are numbers of inputs and outputs of the step ---- */

typedef struct rule_call {
    eg__ties *t;
    const eg__tied_step *s;
    size_t step; /* number + 1 */
} rule_call;

static bool has(const rule_call *c, size_t i)
{
    return i < c->s->n_in && c->s->in[i] != 0;
}

static uint32_t in(const rule_call *c, size_t i)
{
    return c->s->in[i] - 1;
}

static uint32_t out(const rule_call *c, size_t i)
{
    return c->s->out[i] - 1;
}

static eg_shape shape_of(const rule_call *c, uint32_t tensor)
{
    return c->t->tensors[tensor].shape;
}

static int64_t size_of(const rule_call *c, uint32_t tensor, int dim)
{
    return c->t->tensors[tensor].shape.dims[dim];
}

static int ndim_of(const rule_call *c, uint32_t tensor)
{
    return c->t->tensors[tensor].shape.ndim;
}

static void tie(const rule_call *c, uint32_t a, int da, int64_t ia, uint32_t b, int db, int64_t ib)
{
    eg__ties_join(c->t, eg__node_at(c->t, a, da, ia), eg__node_at(c->t, b, db, ib));
}

/* Index by index; what is broadcast is not tied. */
static void tie_dims(const rule_call *c, uint32_t a, int da, uint32_t b, int db)
{
    int64_t n = size_of(c, a, da);
    for (int64_t i = 0; i < n && n == size_of(c, b, db); i++)
        tie(c, a, da, i, b, db, i);
}

/* All but the last `but` dimensions, from the first. */
static void tie_first(const rule_call *c, uint32_t a, uint32_t b, int but)
{
    for (int d = 0; d < ndim_of(c, a) - but && d < ndim_of(c, b); d++)
        tie_dims(c, a, d, b, d);
}

/* The dimensions of a, before its last `but`, with those of b, as broadcasting lines them up. */
static void tie_aligned(const rule_call *c, uint32_t a, uint32_t b, int but)
{
    int shift = ndim_of(c, b) - ndim_of(c, a);
    for (int d = EG_MAX(0, -shift); d < ndim_of(c, a) - but; d++)
        tie_dims(c, a, d, b, d + shift);
}

static void fix_dim(const rule_call *c, uint32_t tensor, int dim, const char *why)
{
    eg__ties_fix_dim(c->t, tensor, dim, why, c->step);
}

static void fix_from(const rule_call *c, uint32_t tensor, int dim, const char *why)
{
    for (; dim < ndim_of(c, tensor); dim++)
        fix_dim(c, tensor, dim, why);
}

static void mix_dim(const rule_call *c, uint32_t tensor, int dim, const char *why)
{
    for (int64_t i = 0; i < size_of(c, tensor, dim); i++) {
        eg__node_set *set = &c->t->sets[eg__ties_find(c->t, eg__node_at(c->t, tensor, dim, i))];
        if (set->mixed == NULL)
            *set = (eg__node_set){set->fixed, why, set->fixed_step, (uint32_t)c->step, false};
    }
}

/* Nodes of one set in a row are copied as a row, as channels are that become a block each in a flattened image. Before
 * this index something else begins (a group, a piece of a concatenation), and a row must not go on: [a b] copied is
 * [a b a b], where [a a b b] would be needed. Taking out is no matter. */
static void border(const rule_call *c, uint32_t tensor, int dim, int64_t index)
{
    if (!c->t->bordering || index <= 0 || index >= size_of(c, tensor, dim))
        return;
    uint32_t set = eg__ties_find(c->t, eg__node_at(c->t, tensor, dim, index));
    if (set == eg__ties_find(c->t, eg__node_at(c->t, tensor, dim, index - 1)))
        c->t->sets[set].crossing = true;
}

/* One after every `part` indices. */
static void borders(const rule_call *c, uint32_t tensor, int dim, int64_t part)
{
    for (int64_t i = part; i < size_of(c, tensor, dim); i += part)
        border(c, tensor, dim, i);
}

static int wrap(int64_t dim, int ndim)
{
    return (int)(dim < 0 ? dim + ndim : dim);
}

/* ---- convolutions and products ---- */

/* Channels x[i] and y[i] of a convolution whose weight has dimension wx for x's and wy for y's, of which `whole` is as
 * large as all of them and the other one as large as those of a group. */
static void tie_groups(const rule_call *c, int64_t groups, int wx, int wy, int whole)
{
    uint32_t x = in(c, 0), w = in(c, 1), y = out(c, 0);
    int64_t nx = size_of(c, x, 1), ny = size_of(c, y, 1), px = nx / groups, py = ny / groups;
    int part = whole == wx ? wy : wx;
    bool blocks = groups > 1 && groups >= px;
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

static void window_rule(const rule_call *c)
{
    for (size_t i = 0; i < 2 && has(c, i); i++)
        fix_from(c, in(c, i), 2, eg__why_positions);
    fix_from(c, out(c, 0), 2, eg__why_positions);
    tie_dims(c, in(c, 0), 0, out(c, 0), 0);
}

static void conv_rule(const rule_call *c)
{
    window_rule(c);
    tie_groups(c, ((const eg__conv2d_attrs *)c->s->attrs)->window.groups, 1, 0, 0);
    if (has(c, 2))
        tie_dims(c, in(c, 2), 0, out(c, 0), 1);
}

static void conv_transpose_rule(const rule_call *c)
{
    window_rule(c);
    tie_groups(c, ((const eg__conv_transpose2d_attrs *)c->s->attrs)->window.groups, 0, 1, 0);
    if (has(c, 2))
        tie_dims(c, in(c, 2), 0, out(c, 0), 1);
}

static void linear_rule(const rule_call *c)
{
    uint32_t x = in(c, 0), w = in(c, 1), y = out(c, 0);
    int last = ndim_of(c, x) - 1;
    tie_first(c, x, y, 1);
    tie_dims(c, x, last, w, 1);
    tie_dims(c, y, last, w, 0);
    if (has(c, 2))
        tie_dims(c, in(c, 2), 0, y, last);
}

static void matmul_rule(const rule_call *c)
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

static void embedding_rule(const rule_call *c)
{
    uint32_t index = in(c, 0), w = in(c, 1), y = out(c, 0);
    fix_dim(c, w, 0, "entries of a vocabulary");
    tie_first(c, index, y, 0);
    tie_dims(c, w, 1, y, ndim_of(c, y) - 1);
}

static void attention_rule(const rule_call *c)
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
static void rnn_rule(const rule_call *c)
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

static void same_rule(const rule_call *c)
{
    for (size_t i = 0; i < c->s->n_in; i++) {
        if (has(c, i))
            tie_aligned(c, in(c, i), out(c, 0), 0);
    }
}

/* Vectors with a number for each channel. */
static void norm_rule(const rule_call *c)
{
    tie_first(c, in(c, 0), out(c, 0), 0);
    for (size_t i = 1; i < c->s->n_in; i++) {
        if (has(c, i))
            tie_dims(c, in(c, i), 0, in(c, 0), EG_MIN(1, ndim_of(c, in(c, 0)) - 1));
    }
}

static void group_norm_rule(const rule_call *c)
{
    uint32_t x = in(c, 0);
    int64_t groups = ((const eg__group_norm_attrs *)c->s->attrs)->groups, n = size_of(c, x, 1), part = n / groups;
    bool blocks = groups > 1 && groups >= part;
    norm_rule(c);
    for (int64_t i = 0; i < n; i++)
        tie(c, x, 1, i, x, 1, blocks ? i / part * part : i % part);
    if (!blocks)
        mix_dim(c, x, 1, "its normalization takes all channels of a group together");
}

static void instance_norm_rule(const rule_call *c)
{
    norm_rule(c);
    fix_from(c, in(c, 0), 2, eg__why_positions);
}

static void layer_norm_rule(const rule_call *c)
{
    uint32_t x = in(c, 0);
    int n = ((const eg__group_norm_attrs *)c->s->attrs)->normalized.ndim, first = ndim_of(c, x) - n;
    same_rule(c);
    for (int d = 0; d < n; d++)
        mix_dim(c, x, first + d, "its normalization takes them all together");
}

static void along_rule(const rule_call *c)
{
    int dim = wrap(((const eg__dim_attrs *)c->s->attrs)->dim, ndim_of(c, in(c, 0)));
    same_rule(c);
    fix_dim(c, in(c, 0), dim, "its softmax or sum runs over them");
}

static void weighted_sum_rule(const rule_call *c)
{
    for (size_t i = 0; i + 1 < c->s->n_in; i++)
        tie_first(c, in(c, i), out(c, 0), 0);
    fix_from(c, in(c, c->s->n_in - 1), 0, "weights of a sum");
}

/* ---- positions ---- */

static void pool_rule(const rule_call *c)
{
    window_rule(c);
    tie_dims(c, in(c, 0), 1, out(c, 0), 1);
}

/* Each channel of the one is several of the other. */
static void shuffle_rule(const rule_call *c)
{
    uint32_t x = in(c, 0), y = out(c, 0);
    bool up = size_of(c, x, 1) > size_of(c, y, 1);
    uint32_t many = up ? x : y, few = up ? y : x;
    int64_t each = size_of(c, many, 1) / size_of(c, few, 1);
    window_rule(c);
    for (int64_t i = 0; i < size_of(c, many, 1); i++)
        tie(c, many, 1, i, few, 1, i / each);
}

/* ---- what changes the shape ---- */

static void reduce_rule(const rule_call *c)
{
    const eg__reduce_attrs *attrs = c->s->attrs;
    uint32_t x = in(c, 0);
    bool reduced[EG_MAX_DIMS] = {false};
    for (int d = 0; d < ndim_of(c, x); d++)
        reduced[d] = attrs->dims.ndim == 0;
    for (int i = 0; i < attrs->dims.ndim; i++)
        reduced[wrap(attrs->dims.dims[i], ndim_of(c, x))] = true;
    for (int d = 0, to = 0; d < ndim_of(c, x); d++) {
        if (!reduced[d])
            tie_dims(c, x, d, out(c, 0), to);
        else if (strcmp(c->s->op->name, "sum") == 0)
            mix_dim(c, x, d, "it is a sum over them");
        else
            fix_dim(c, x, d, "it is a mean or a maximum over them");
        to += !reduced[d] || attrs->keepdim;
    }
}

/* Several dimensions in a row that are one in another tensor. */
typedef struct joined {
    uint32_t many, one;
    int dims[EG_MAX_DIMS], n, dim; /* of many; of one */
} joined;

/* Of index i of the one dimension, the index in dimension k of the many. */
static int64_t part_of(const rule_call *c, const joined *j, int k, int64_t i)
{
    for (int m = j->n - 1; m > k; m--)
        i /= size_of(c, j->many, j->dims[m]);
    return i % size_of(c, j->many, j->dims[k]);
}

/* Whether the one dimension can go by dimension k: that is not fixed, and what is tied already lies in one index of
 * it. */
static bool is_choice(const rule_call *c, const joined *j, int k, bool *free)
{
    eg__ties *t = c->t;
    *free = false;
    for (int64_t i = 0; i < size_of(c, j->many, j->dims[k]); i++)
        *free = *free || t->sets[eg__ties_find(t, eg__node_at(t, j->many, j->dims[k], i))].fixed == NULL;
    bool apart = true;
    for (int64_t i = 0; i < size_of(c, j->one, j->dim); i++) {
        uint32_t *mark = &t->marks[eg__ties_find(t, eg__node_at(t, j->one, j->dim, i))];
        uint32_t part = (uint32_t)part_of(c, j, k, i) + 1;
        apart = apart && (*mark == 0 || *mark == part);
        *mark = part;
    }
    for (int64_t i = 0; i < size_of(c, j->one, j->dim); i++)
        t->marks[eg__ties_find(t, eg__node_at(t, j->one, j->dim, i))] = 0;
    return *free && apart;
}

/* How good dimension k is to go by; 0 = not at all. A size of -1 follows by itself. */
static int worth(const rule_call *c, const joined *j, int k)
{
    bool free, choice = is_choice(c, j, k, &free);
    bool open = j->many == out(c, 0) && strcmp(c->s->op->name, "reshape") == 0 &&
                ((const eg__shape_attrs *)c->s->attrs)->shape.dims[j->dims[k]] == -1;
    return !free ? 0 : 1 + choice + 2 * open;
}

/* The best dimension, and of equally good ones the first; then those after it as often as it did not go well. */
static int choose_dim(const rule_call *c, const joined *j)
{
    bool seen[EG_MAX_DIMS] = {false};
    int chosen = -1;
    for (unsigned i = 0; i <= c->s->refused; i++) {
        int best = 0;
        chosen = -1;
        for (int k = 0; k < j->n; k++) {
            int now = seen[k] ? 0 : worth(c, j, k);
            if (now > best) {
                best = now;
                chosen = k;
            }
        }
        if (chosen >= 0)
            seen[chosen] = true;
    }
    return chosen;
}

static void tie_joined(const rule_call *c, const joined *j)
{
    int chosen = choose_dim(c, j);
    for (int k = 0; k < j->n; k++) {
        if (k != chosen)
            fix_dim(c, j->many, j->dims[k], "a reshape makes one dimension of these and of others");
    }
    if (chosen < 0)
        fix_dim(c, j->one, j->dim, "a reshape makes several dimensions of it, all of which are fixed");
    for (int64_t i = 0; chosen >= 0 && i < size_of(c, j->one, j->dim); i++)
        tie(c, j->one, j->dim, i, j->many, j->dims[chosen], part_of(c, j, chosen, i));
    int64_t again = 1; /* where the chosen dimension begins anew */
    for (int k = EG_MAX(chosen, 0); k < j->n; k++)
        again *= size_of(c, j->many, j->dims[k]);
    borders(c, j->one, j->dim, again);
}

/* Dimensions a.. of x that are dimensions b.. of y. */
static void tie_segment(const rule_call *c, const int *a, int na, const int *b, int nb)
{
    uint32_t x = in(c, 0), y = out(c, 0);
    if (na == 1 && nb == 1) {
        tie_dims(c, x, a[0], y, b[0]);
    } else if (na == 1 || nb == 1) {
        joined j = {.many = na == 1 ? y : x, .one = na == 1 ? x : y, .n = EG_MAX(na, nb), .dim = na == 1 ? a[0] : b[0]};
        memcpy(j.dims, na == 1 ? b : a, (size_t)j.n * sizeof(int));
        if (c->t->choosing)
            tie_joined(c, &j);
    } else {
        for (int k = 0; k < EG_MAX(na, nb); k++) {
            if (k < na)
                fix_dim(c, x, a[k], "a reshape mixes several dimensions");
            if (k < nb)
                fix_dim(c, y, b[k], "a reshape mixes several dimensions");
        }
    }
}

static void reshape_rule(const rule_call *c)
{
    eg_shape x = shape_of(c, in(c, 0)), y = shape_of(c, out(c, 0));
    int a[EG_MAX_DIMS], b[EG_MAX_DIMS], na = 0, nb = 0;
    int64_t pa = 1, pb = 1;
    for (int i = 0, k = 0; i < x.ndim || k < y.ndim;) {
        bool left = i < x.ndim && (pa <= pb || k == y.ndim);
        if (left && x.dims[i] > 1) {
            a[na++] = i;
            pa *= x.dims[i];
        } else if (!left && y.dims[k] > 1) {
            b[nb++] = k;
            pb *= y.dims[k];
        }
        i += left;
        k += !left;
        if (pa == pb && na > 0) {
            tie_segment(c, a, na, b, nb);
            na = nb = 0;
            pa = pb = 1;
        }
    }
}

static void permute_rule(const rule_call *c)
{
    const eg__shape_attrs *attrs = c->s->attrs;
    for (int d = 0; d < attrs->shape.ndim; d++)
        tie_dims(c, in(c, 0), wrap(attrs->shape.dims[d], attrs->shape.ndim), out(c, 0), d);
}

static void slice_rule(const rule_call *c)
{
    const eg__slice_attrs *attrs = c->s->attrs;
    uint32_t x = in(c, 0), y = out(c, 0);
    int dim = wrap(attrs->dim, ndim_of(c, x));
    int64_t start = attrs->start < 0 ? attrs->start + size_of(c, x, dim) : attrs->start;
    for (int d = 0; d < ndim_of(c, x); d++) {
        if (d != dim)
            tie_dims(c, x, d, y, d);
    }
    for (int64_t i = 0; i < size_of(c, y, dim); i++)
        tie(c, x, dim, start + i * attrs->step, y, dim, i);
    /* Code that takes a half, whatever that is, follows where all halves go on alike. */
    int64_t part = size_of(c, y, dim);
    for (int64_t i = part; c->s->refused == 1 && size_of(c, x, dim) % part == 0 && i < size_of(c, x, dim); i++)
        tie(c, x, dim, i, x, dim, i % part);
    border(c, x, dim, start);
    border(c, x, dim, start + part);
    if (attrs->step > 1 && size_of(c, y, dim) > 1)
        fix_dim(c, x, dim, "every so many of them are taken");
}

static void concat_rule(const rule_call *c)
{
    uint32_t y = out(c, 0);
    int dim = wrap(((const eg__dim_attrs *)c->s->attrs)->dim, ndim_of(c, y));
    int64_t at = 0;
    for (size_t i = 0; i < c->s->n_in; i++) {
        for (int d = 0; d < ndim_of(c, y); d++) {
            if (d != dim)
                tie_dims(c, in(c, i), d, y, d);
        }
        for (int64_t k = 0; k < size_of(c, in(c, i), dim); k++)
            tie(c, in(c, i), dim, k, y, dim, at++);
        border(c, y, dim, at);
    }
}

static void pad_rule(const rule_call *c)
{
    const eg__pad_attrs *attrs = c->s->attrs;
    uint32_t x = in(c, 0), y = out(c, 0);
    for (int d = 0; d < ndim_of(c, x); d++) {
        int pair = ndim_of(c, x) - 1 - d;
        int64_t before = 2 * pair < attrs->pads.ndim ? attrs->pads.dims[2 * pair] : 0;
        for (int64_t i = 0; i < size_of(c, y, d); i++) {
            if (i - before >= 0 && i - before < size_of(c, x, d))
                tie(c, x, d, i - before, y, d, i);
            else
                eg__ties_fix(c->t, eg__node_at(c->t, y, d, i), "padding", c->step);
        }
        if (before < 0 || size_of(c, y, d) - before < size_of(c, x, d))
            fix_dim(c, x, d, "it is cropped");
    }
}

static void no_rule(const rule_call *c)
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
    void (*apply)(const rule_call *c);
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
    {"sum", reduce_rule},
    {"mean", reduce_rule},
    {"max", reduce_rule},
    {"argmax", reduce_rule},
    {"reshape", reshape_rule},
    {"flatten", reshape_rule},
    {"permute", permute_rule},
    {"slice", slice_rule},
    {"concat", concat_rule},
    {"pad", pad_rule},
};

static void (*rule_of(const char *op))(const rule_call *c)
{
    for (size_t i = 0; i < EG_COUNT(rules); i++) {
        if (strcmp(rules[i].op, op) == 0)
            return rules[i].apply;
    }
    return no_rule;
}

/* Reshapes and slices have other ways to go first. */
static void fix_refused(const rule_call *c)
{
    void (*rule)(const rule_call *) = rule_of(c->s->op->name);
    unsigned ways = rule == reshape_rule ? EG_MAX_DIMS : rule == slice_rule ? 2 : 1;
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
        fix_refused(&(rule_call){ties, &ties->steps[i], i + 1});
    for (int pass = 0; pass < 3; pass++) {
        ties->choosing = pass >= 1;
        ties->bordering = pass == 2;
        for (size_t i = 0; i < ties->n_steps; i++)
            rule_of(ties->steps[i].op->name)(&(rule_call){ties, &ties->steps[i], i + 1});
    }
}

/* ---- whether a step of the changed model is what it was to become ---- */

static bool slice_follows(eg__ties *t, const eg__tied_step *was, const eg__slice_attrs *now, int64_t size,
                          const int32_t *copies)
{
    const eg__slice_attrs *old = was->attrs;
    uint32_t x = was->in[0] - 1;
    int dim = wrap(old->dim, t->tensors[x].shape.ndim);
    int64_t whole = t->tensors[x].shape.dims[dim], start = old->start < 0 ? old->start + whole : old->start;
    return (now->start < 0 ? now->start + size : now->start) == eg__copied(t, x, dim, start, copies);
}

static bool attrs_follow(eg__ties *t, const eg__tied_step *was, const eg__tied_step *now, int64_t size,
                         const int32_t *copies)
{
    const char *name = was->op->name;
    if (strcmp(name, "slice") == 0)
        return slice_follows(t, was, now->attrs, size, copies);
    if (strcmp(name, "scaled_dot_product_attention") == 0)
        return ((const eg__attention_attrs *)was->attrs)->scale == ((const eg__attention_attrs *)now->attrs)->scale;
    if (strcmp(name, "pad") == 0) {
        const eg__pad_attrs *a = was->attrs, *b = now->attrs;
        return eg_shape_equal(a->pads, b->pads);
    }
    if (strcmp(name, "group_norm") != 0)
        return true;
    const eg__group_norm_attrs *a = was->attrs, *b = now->attrs;
    int64_t channels = t->tensors[was->in[0] - 1].shape.dims[1], part = channels / a->groups;
    bool blocks = a->groups > 1 && a->groups >= part;
    return blocks ? b->groups * part == eg__copied(t, was->in[0] - 1, 1, channels, copies) : a->groups == b->groups;
}

static bool tensor_follows(eg__ties *t, uint32_t was, const eg__ties *other, uint32_t now, const int32_t *copies)
{
    if (was == 0 || now == 0)
        return was == now;
    eg_shape a = t->tensors[was - 1].shape, b = other->tensors[now - 1].shape;
    bool follows = a.ndim == b.ndim;
    for (int d = 0; follows && d < a.ndim; d++)
        follows = b.dims[d] == eg__copied(t, was - 1, d, a.dims[d], copies);
    return follows;
}

bool eg__step_follows(eg__ties *ties, size_t i, const eg__ties *other, const int32_t *copies)
{
    if (i >= other->n_steps || i >= ties->n_steps)
        return false;
    const eg__tied_step *was = &ties->steps[i], *now = &other->steps[i];
    bool follows = was->op == now->op && was->n_in == now->n_in && was->n_out == now->n_out;
    for (size_t k = 0; follows && k < was->n_in; k++)
        follows = tensor_follows(ties, was->in[k], other, now->in[k], copies);
    for (size_t k = 0; follows && k < was->n_out; k++)
        follows = tensor_follows(ties, was->out[k], other, now->out[k], copies);
    int64_t size = 0;
    if (follows && was->n_in > 0 && now->in[0] != 0 && strcmp(was->op->name, "slice") == 0) {
        eg_shape x = other->tensors[now->in[0] - 1].shape;
        size = x.dims[wrap(((const eg__slice_attrs *)was->attrs)->dim, x.ndim)];
    }
    return follows && attrs_follow(ties, was, now, size, copies);
}

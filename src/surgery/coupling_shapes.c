/*
 * What operations tie together that make other dimensions of those they get: reductions, reshapes, slices and their
 * like.
 */
#include "surgery/coupling_rules.h"

#include <string.h>

void eg__reduce_rule(const eg__rule_call *c)
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
static int64_t part_of(const eg__rule_call *c, const joined *j, int k, int64_t i)
{
    for (int m = j->n - 1; m > k; m--)
        i /= size_of(c, j->many, j->dims[m]);
    return i % size_of(c, j->many, j->dims[k]);
}

/* Whether the one dimension can go by dimension k: that is not fixed, and what is tied already lies in one index of
 * it. */
static bool is_choice(const eg__rule_call *c, const joined *j, int k, bool *free)
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
static int worth(const eg__rule_call *c, const joined *j, int k)
{
    bool free, choice = is_choice(c, j, k, &free);
    bool open = j->many == out(c, 0) && strcmp(c->s->op->name, "reshape") == 0 &&
                ((const eg__shape_attrs *)c->s->attrs)->shape.dims[j->dims[k]] == -1;
    return !free ? 0 : 1 + choice + 2 * open;
}

/* The best dimension, and of equally good ones the first; then those after it as often as it did not go well. */
static int choose_dim(const eg__rule_call *c, const joined *j)
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

static void tie_joined(const eg__rule_call *c, const joined *j)
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
static void tie_segment(const eg__rule_call *c, const int *a, int na, const int *b, int nb)
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

void eg__reshape_rule(const eg__rule_call *c)
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

void eg__permute_rule(const eg__rule_call *c)
{
    const eg__shape_attrs *attrs = c->s->attrs;
    for (int d = 0; d < attrs->shape.ndim; d++)
        tie_dims(c, in(c, 0), wrap(attrs->shape.dims[d], attrs->shape.ndim), out(c, 0), d);
}

void eg__slice_rule(const eg__rule_call *c)
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

void eg__concat_rule(const eg__rule_call *c)
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

void eg__pad_rule(const eg__rule_call *c)
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

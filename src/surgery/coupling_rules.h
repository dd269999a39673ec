/*
 * surgery/coupling_rules.h - the words that rules are written in: what a step ties together. Tensors are numbers; i and
 * o are numbers of inputs and outputs of the step. Only files of rules see them, so they have names as short as
 * statics.
 */
#ifndef EG_SURGERY_COUPLING_RULES_H
#define EG_SURGERY_COUPLING_RULES_H

#include "surgery/coupling.h"

/** A step that a rule is applied to. */
typedef struct eg__rule_call {
    eg__ties *t;
    const eg__tied_step *s;
    size_t step; /* number + 1 */
} eg__rule_call;

static inline bool has(const eg__rule_call *c, size_t i)
{
    return i < c->s->n_in && c->s->in[i] != 0;
}

static inline uint32_t in(const eg__rule_call *c, size_t i)
{
    return c->s->in[i] - 1;
}

static inline uint32_t out(const eg__rule_call *c, size_t i)
{
    return c->s->out[i] - 1;
}

static inline eg_shape shape_of(const eg__rule_call *c, uint32_t tensor)
{
    return c->t->tensors[tensor].shape;
}

static inline int64_t size_of(const eg__rule_call *c, uint32_t tensor, int dim)
{
    return c->t->tensors[tensor].shape.dims[dim];
}

static inline int ndim_of(const eg__rule_call *c, uint32_t tensor)
{
    return c->t->tensors[tensor].shape.ndim;
}

static inline void tie(const eg__rule_call *c, uint32_t a, int da, int64_t ia, uint32_t b, int db, int64_t ib)
{
    eg__ties_join(c->t, eg__node_at(c->t, a, da, ia), eg__node_at(c->t, b, db, ib));
}

/* Index by index; what is broadcast is not tied. */
static inline void tie_dims(const eg__rule_call *c, uint32_t a, int da, uint32_t b, int db)
{
    int64_t n = size_of(c, a, da);
    for (int64_t i = 0; i < n && n == size_of(c, b, db); i++)
        tie(c, a, da, i, b, db, i);
}

/* All but the last `but` dimensions, from the first. */
static inline void tie_first(const eg__rule_call *c, uint32_t a, uint32_t b, int but)
{
    for (int d = 0; d < ndim_of(c, a) - but && d < ndim_of(c, b); d++)
        tie_dims(c, a, d, b, d);
}

/* The dimensions of a, before its last `but`, with those of b, as broadcasting lines them up. */
static inline void tie_aligned(const eg__rule_call *c, uint32_t a, uint32_t b, int but)
{
    int shift = ndim_of(c, b) - ndim_of(c, a);
    for (int d = EG_MAX(0, -shift); d < ndim_of(c, a) - but; d++)
        tie_dims(c, a, d, b, d + shift);
}

static inline void fix_dim(const eg__rule_call *c, uint32_t tensor, int dim, const char *why)
{
    eg__ties_fix_dim(c->t, tensor, dim, why, c->step);
}

static inline void fix_from(const eg__rule_call *c, uint32_t tensor, int dim, const char *why)
{
    for (; dim < ndim_of(c, tensor); dim++)
        fix_dim(c, tensor, dim, why);
}

static inline void mix_dim(const eg__rule_call *c, uint32_t tensor, int dim, const char *why)
{
    for (int64_t i = 0; i < size_of(c, tensor, dim); i++) {
        eg__node_set *set = &c->t->sets[eg__ties_find(c->t, eg__node_at(c->t, tensor, dim, i))];
        if (set->mixed != NULL)
            continue;
        set->mixed = why;
        set->mixed_step = (uint32_t)c->step;
    }
}

/* Nodes of one set in a row are copied as a row, as channels are that become a block each in a flattened image. Before
 * this index something else begins (a group, a piece of a concatenation), and a row must not go on: [a b] copied is
 * [a b a b], where [a a b b] would be needed. Taking out is no matter. */
static inline void border(const eg__rule_call *c, uint32_t tensor, int dim, int64_t index)
{
    if (!c->t->bordering || index <= 0 || index >= size_of(c, tensor, dim))
        return;
    uint32_t set = eg__ties_find(c->t, eg__node_at(c->t, tensor, dim, index));
    if (set == eg__ties_find(c->t, eg__node_at(c->t, tensor, dim, index - 1)))
        c->t->sets[set].crossing = true;
}

/* One after every `part` indices. */
static inline void borders(const eg__rule_call *c, uint32_t tensor, int dim, int64_t part)
{
    for (int64_t i = part; i < size_of(c, tensor, dim); i += part)
        border(c, tensor, dim, i);
}

static inline int wrap(int64_t dim, int ndim)
{
    return (int)(dim < 0 ? dim + ndim : dim);
}

/* ---- rules of operations that change the shape (coupling_shapes.c) ---- */

void eg__reduce_rule(const eg__rule_call *c);
void eg__reshape_rule(const eg__rule_call *c);
void eg__permute_rule(const eg__rule_call *c);
void eg__slice_rule(const eg__rule_call *c);
void eg__concat_rule(const eg__rule_call *c);
void eg__pad_rule(const eg__rule_call *c);

#endif

/*
 * Whether a step of the changed model is what it was to become.
 */
#include "surgery/coupling_rules.h"

#include <string.h>

static int64_t start_of(const eg__slice_attrs *a, int64_t size)
{
    return a->start < 0 ? a->start + size : a->start;
}

static bool slice_follows(eg__ties *t, const eg__tied_step *was, const eg__ties *other, const eg__tied_step *now,
                          const int32_t *copies)
{
    const eg__slice_attrs *a = was->attrs, *b = now->attrs;
    uint32_t x = was->in[0] - 1;
    eg_shape before = t->tensors[x].shape, after = other->tensors[now->in[0] - 1].shape;
    int dim = wrap(a->dim, before.ndim);
    return start_of(b, after.dims[dim]) == eg__copied(t, x, dim, start_of(a, before.dims[dim]), copies);
}

static bool group_norm_follows(eg__ties *t, const eg__tied_step *was, const eg__tied_step *now, const int32_t *copies)
{
    const eg__group_norm_attrs *a = was->attrs, *b = now->attrs;
    uint32_t x = was->in[0] - 1;
    int64_t channels = t->tensors[x].shape.dims[1], part = channels / a->groups;
    if (!eg__goes_by_groups(a->groups, channels))
        return a->groups == b->groups;
    return b->groups * part == eg__copied(t, x, 1, channels, copies);
}

/* Of steps whose tensors follow. */
static bool attrs_follow(eg__ties *t, const eg__tied_step *was, const eg__ties *other, const eg__tied_step *now,
                         const int32_t *copies)
{
    const char *name = was->op->name;
    if (strcmp(name, "slice") == 0)
        return slice_follows(t, was, other, now, copies);
    if (strcmp(name, "group_norm") == 0)
        return group_norm_follows(t, was, now, copies);
    if (strcmp(name, "scaled_dot_product_attention") == 0)
        return ((const eg__attention_attrs *)was->attrs)->scale == ((const eg__attention_attrs *)now->attrs)->scale;
    if (strcmp(name, "pad") == 0)
        return eg_shape_equal(((const eg__pad_attrs *)was->attrs)->pads, ((const eg__pad_attrs *)now->attrs)->pads);
    return true;
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
    return follows && attrs_follow(ties, was, other, now, copies);
}

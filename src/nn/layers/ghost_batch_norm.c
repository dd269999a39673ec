/*
 * Batch norm over parts of the batch (Hoffer et al. 2017, "Train longer, generalize better").
 */
#include "nn/internal.h"

#include <inttypes.h>
#include <stdlib.h>

/* Each part with its share of the momentum, so that the statistics move as far a step as without. */
static eg_tensor *normalize_parts(eg_module *norm, eg_tensor *x, int64_t n_parts)
{
    int64_t n = eg_tensor_size(x, 0);
    eg_tensor *parts = eg_split(x, (n + n_parts - 1) / n_parts, 0);
    size_t n_out = eg_tuple_size(parts);
    eg_tensor **out = eg__calloc(n_out + 1, sizeof(eg_tensor *));
    if (out == NULL)
        return NULL;
    eg_batch_norm2d *b = (eg_batch_norm2d *)norm;
    double momentum = b->momentum.value;
    b->momentum.value = momentum / (double)n_parts;
    for (size_t i = 0; i < n_out; i++)
        out[i] = eg_call(norm, eg_tuple_get(parts, i));
    b->momentum.value = momentum;
    eg_tensor *y = parts != NULL ? eg_concat(out, n_out, 0) : NULL;
    free(out);
    return y;
}

static eg_tensor *forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    int64_t size = EG_CAST(self, eg_ghost_batch_norm2d)->ghost_batch_size, n = eg_tensor_size(in[0], 0);
    eg_module *norm = eg__child_at(self, 0);
    if (norm == NULL || !eg_is_a(norm, &eg_batch_norm2d_class) || n < 1) {
        if (n >= 1)
            eg_fail(EG_EINVAL, "GhostBatchNorm2d: has no batch norm");
        return NULL;
    }
    if (!self->training)
        return eg_call(norm, in[0]);
    if (n < size) {
        eg_fail(EG_EINVAL, "GhostBatchNorm2d: a batch of %" PRId64 " is smaller than ghost_batch_size, %" PRId64, n,
                size);
        return NULL;
    }
    return normalize_parts(norm, in[0], (n + size - 1) / size);
}

EG_NAMED_CLASS(eg_ghost_batch_norm2d, "GhostBatchNorm2d", .forward = forward,
               .fields = EG_FIELDS(EG_NAMED_FIELD(eg_ghost_batch_norm2d),
                                   EG_INT(eg_ghost_batch_norm2d, ghost_batch_size, EG_AT_LEAST(1), .def = 32,
                                          .help = "samples that are normalized together, at most")));

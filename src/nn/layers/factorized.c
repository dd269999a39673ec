/*
 * What surgery puts in the place of layers of large weights: a product of two, and a layer with a low-rank correction.
 */
#include "nn/internal.h"

EG_NAMED_CLASS(eg_factorized, "Factorized", .super = &eg_sequential_class,
               .fields = EG_FIELDS(EG_FLOAT(eg_factorized, error, EG_AT_LEAST(0),
                                            .help = "of the product, relative to the weight it stands for")));

/* base(x) + scale * B(A(x)) */
static eg_tensor *adapter_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_low_rank_adapter *a = EG_CAST(self, eg_low_rank_adapter);
    eg_module *base = eg__child_at(self, 0), *down = eg__child_at(self, 1), *up = eg__child_at(self, 2);
    if (base == NULL || down == NULL || up == NULL) {
        eg_fail(EG_EINVAL, "LowRankAdapter: expected three modules, the layer and the two of its correction");
        return NULL;
    }
    eg_tensor *y = eg_call(base, in[0]);
    if (a->merged)
        return y;
    eg_tensor *correction = eg_call(up, eg_call(down, in[0]));
    return eg_add(y, eg_affine(correction, a->scale, 0));
}

EG_NAMED_CLASS(eg_low_rank_adapter, "LowRankAdapter", .forward = adapter_forward,
               .fields = EG_FIELDS(EG_NAMED_FIELD(eg_low_rank_adapter),
                                   EG_FLOAT(eg_low_rank_adapter, scale, .def = 1, .help = "of the correction"),
                                   EG_BOOL(eg_low_rank_adapter, merged,
                                           .help = "the correction is in the weight, so it is not computed")));

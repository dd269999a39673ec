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

static eg_tensor *as_matrix(eg_tensor *t)
{
    return eg_reshape(eg_detach(t), EG_SHAPE(eg_tensor_size(t, 0), -1));
}

static eg_status add_correction(eg_tensor *weight, eg_tensor *down, eg_tensor *up, double scale)
{
    eg_tape *scope = eg_tape_begin(weight->ctx, EG_NO_GRAD);
    if (scope == NULL)
        return EG_ENOMEM;
    eg_tensor *product = eg_reshape(eg_matmul(as_matrix(up), as_matrix(down)), eg_tensor_shape(weight));
    eg_tensor *sum = eg_add(eg_detach(weight), eg_affine(product, scale, 0));
    eg_status status = sum != NULL ? eg_tensor_assign(weight, sum) : eg_error_last()->code;
    eg_tape_end(scope);
    return status;
}

eg_status eg_low_rank_adapter_set_merged(eg_module *m, bool merged)
{
    EG_CHECK(m != NULL && eg_is_a(m, &eg_low_rank_adapter_class), EG_EINVAL, "expected a LowRankAdapter");
    eg_low_rank_adapter *a = EG_CAST(m, eg_low_rank_adapter);
    eg_tensor *weight[3];
    for (size_t i = 0; i < EG_COUNT(weight); i++) {
        eg_module *part = eg__child_at(m, i);
        EG_CHECK(part != NULL, EG_EINVAL,
                 "LowRankAdapter: expected three modules, the layer and the two of its correction");
        weight[i] = eg_module_tensor(part, "weight");
        EG_CHECK(weight[i] != NULL && !eg_is_none(weight[i]), EG_EINVAL, "LowRankAdapter: module %zu has no weight", i);
    }
    if (a->merged == merged)
        return EG_OK;
    EG_TRY(add_correction(weight[0], weight[1], weight[2], merged ? a->scale : -a->scale));
    a->merged = merged;
    return EG_OK;
}

EG_NAMED_CLASS(eg_low_rank_adapter, "LowRankAdapter", .forward = adapter_forward,
               .fields = EG_FIELDS(EG_NAMED_FIELD(eg_low_rank_adapter),
                                   EG_FLOAT(eg_low_rank_adapter, scale, .def = 1, .help = "of the correction"),
                                   EG_BOOL(eg_low_rank_adapter, merged,
                                           .help = "the correction is in the weight, so it is not computed")));

/*
 * Multi-head attention (Vaswani et al., "Attention is all you need", NeurIPS 2017). Heads are views of the projections,
 * and the result of attention lies as they do, so that no numbers are moved between the products.
 */
#include "nn/internal.h"

#include <inttypes.h>
#include <math.h>

/* What all heads have together. */
static int64_t width(const eg_multihead_attention *a)
{
    return a->head_dim < 0 ? a->embed_dim : a->num_heads * a->head_dim;
}

static eg_status build(eg_module *self)
{
    eg_multihead_attention *a = EG_CAST(self, eg_multihead_attention);
    EG_CHECK(a->head_dim > 0 || a->embed_dim % a->num_heads == 0, EG_EINVAL,
             "%" PRId64 " heads do not divide embed_dim %" PRId64, a->num_heads, a->embed_dim);
    eg_shape shape = EG_SHAPE(3 * width(a), a->embed_dim);
    EG_TRY(EG_PARAM(a, in_proj_weight, eg_empty(self->ctx, EG_F32, shape, EG_LAYOUT_ROW_MAJOR)));
    double bound = sqrt(6 / (double)(4 * a->embed_dim)); /* Glorot and Bengio 2010 */
    EG_TRY(eg_init_uniform(a->in_proj_weight, -bound, bound));
    EG_TRY(EG_PARAM(a, in_proj_bias, a->no_bias ? eg_none : eg_zeros(self->ctx, EG_SHAPE(shape.dims[0]))));
    int64_t in_features = a->head_dim < 0 ? EG_OPEN(a, embed_dim) : width(a);
    EG_SLOT(a, out_proj, eg_linear(self->ctx, in_features, EG_OPEN(a, embed_dim), a->no_bias));
    if (a->out_proj != NULL && !a->no_bias)
        EG_TRY(eg_init_constant(eg_module_tensor(a->out_proj, "bias"), 0));
    return eg_module_status(self);
}

/* Input i through its third of in_proj, as (N, heads, length, features). */
static eg_tensor *heads_of(const eg_multihead_attention *a, eg_tensor *x, int i)
{
    int64_t from = i * width(a), to = from + width(a);
    eg_tensor *weight = eg_slice(a->in_proj_weight, 0, from, to, 1);
    eg_tensor *bias = a->no_bias ? eg_none : eg_slice(a->in_proj_bias, 0, from, to, 1);
    eg_tensor *y = eg_f_linear(x, weight, bias);
    if (y == NULL)
        return NULL;
    y = eg_reshape(y, EG_SHAPE(eg_tensor_size(y, 0), eg_tensor_size(y, 1), a->num_heads, width(a) / a->num_heads));
    return eg_permute(y, a->batch_first ? EG_SHAPE(0, 2, 1, 3) : EG_SHAPE(1, 2, 0, 3));
}

static eg_tensor *forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    const eg_multihead_attention *a = EG_CAST(self, eg_multihead_attention);
    if (n_in != 1 && n_in != 3 && n_in != 4) {
        eg_fail(EG_EINVAL, "%s: got %zu inputs, expected 1, 3 or 4", self->cls->name, n_in);
        return NULL;
    }
    eg_tensor *part[3];
    for (int i = 0; i < 3; i++) {
        eg_tensor *x = n_in == 1 ? in[0] : in[i];
        if (eg_tensor_ndim(x) != 3) {
            eg_fail(EG_ESHAPE, "%s: an input has %d dimensions, expected %s", self->cls->name, eg_tensor_ndim(x),
                    a->batch_first ? "(N, L, features)" : "(L, N, features)");
            return NULL;
        }
        part[i] = heads_of(a, x, i);
    }
    eg_tensor *y =
        eg_f_scaled_dot_product_attention(part[0], part[1], part[2], n_in == 4 ? in[3] : eg_none,
                                          .is_causal = a->is_causal, .dropout_p = self->training ? a->dropout : 0);
    y = eg_permute(y, a->batch_first ? EG_SHAPE(0, 2, 1, 3) : EG_SHAPE(2, 0, 1, 3));
    return eg_call(a->out_proj, eg_f_flatten(y, 2, 3));
}

EG_NAMED_CLASS(eg_multihead_attention, "MultiheadAttention", .build = build, .forward = forward,
               .n_inputs = EG_ANY_INPUTS,
               .fields = EG_FIELDS(
                   EG_INT(eg_multihead_attention, embed_dim, .min = 1, .max = EG__MAX_CHANNELS, .help = "features"),
                   EG_INT(eg_multihead_attention, num_heads, .min = 1, .max = EG__MAX_CHANNELS, .help = "heads"),
                   EG_INT(eg_multihead_attention, head_dim, .min = -1, .max = EG__MAX_CHANNELS, .def = -1,
                          .help = "features of a head; -1 = embed_dim / num_heads"),
                   EG_FLOAT(eg_multihead_attention, dropout, .max = 1,
                            .help = "probability of a weight's being dropped"),
                   EG_BOOL(eg_multihead_attention, no_bias, .help = "leave the biases out"),
                   EG_BOOL(eg_multihead_attention, batch_first, .help = "samples are dimension 0, not 1"),
                   EG_BOOL(eg_multihead_attention, is_causal, .help = "positions see only those before them")));

/*
 * ops/dropout.c - dropout of elements (Srivastava et al., "Dropout: a simple way to prevent neural networks from
 * overfitting", JMLR 2014) and of whole samples (drop path; Huang et al., "Deep networks with stochastic depth", ECCV
 * 2016; per sample as in Larsson et al., "FractalNet", ICLR 2017).
 *
 * Both multiply by a mask of 0 and 1 / (1 - p). Element i of the mask, in the default memory order, is decided by
 * number i of the context's stream from where it stands: the same for any number of threads and any strides of x.
 */
#include "ops/internal.h"
#include "tensor/cpu/cpu.h"

static eg_status drop_infer(const eg_op_call *call, eg_spec *out)
{
    double p = ((const eg__drop_attrs *)call->attrs)->p;
    EG_TRY(eg__check_input(call, 0, "input"));
    EG_CHECK(p >= 0.0 && p <= 1.0, EG_EINVAL, "probability is %g, expected 0 to 1", p);
    return eg__spec_set(out, call->in[0], call->in[0]->shape);
}

static eg_status drop_path_infer(const eg_op_call *call, eg_spec *out)
{
    EG_CHECK(call->in[0]->shape.ndim >= 1, EG_ESHAPE, "input is a single number, expected samples along dimension 0");
    return drop_infer(call, out);
}

enum { BLOCK = 1024 }; /* numbers drawn in one go */

typedef struct drawing {
    eg_tensor *mask;
    eg_rng start;
    uint64_t dropped; /* of the 2^32 numbers */
    double kept;
} drawing;

static void draw_blocks(void *arg, int64_t begin, int64_t end)
{
    const drawing *d = arg;
    int64_t n = eg_shape_numel(d->mask->shape);
    for (int64_t block = begin; block < end; block++) {
        int64_t first = block * BLOCK, count = EG_MIN(BLOCK, n - first);
        uint32_t words[BLOCK];
        eg_rng rng = d->start;
        rng.position += (uint64_t)first;
        eg__rng_take(&rng, words, (size_t)count);
        if (d->mask->dtype == EG_F64)
            for (int64_t i = 0; i < count; i++)
                eg__f64(d->mask)[first + i] = words[i] < d->dropped ? 0.0 : d->kept;
        else
            for (int64_t i = 0; i < count; i++)
                eg__f32(d->mask)[first + i] = words[i] < d->dropped ? 0.0F : (float)d->kept;
    }
}

void eg__draw_mask(eg_tensor *mask, double p)
{
    int64_t n = eg_shape_numel(mask->shape);
    eg_rng *rng = eg_context_rng(mask->ctx);
    drawing d = {
        .mask = mask, .start = *rng, .dropped = (uint64_t)(p * 4294967296.0), .kept = p < 1.0 ? 1.0 / (1.0 - p) : 0.0};
    eg__for_each(mask->ctx, (n + BLOCK - 1) / BLOCK, n, draw_blocks, &d);
    rng->position += (uint64_t)n;
}

static eg_status forward(eg_op_call *call, eg_shape mask_shape)
{
    eg_tensor *x = call->in[0];
    eg_tensor *mask = eg__tensor_new(call->ctx, eg__parameter_type(x->dtype), mask_shape, EG_LAYOUT_DEFAULT);
    if (!mask)
        return eg__pending();
    eg__draw_mask(mask, ((const eg__drop_attrs *)call->attrs)->p);
    eg_tensor factor = eg__operand_broadcast(mask, x->shape, false);
    eg_status status = eg__kernels(call->ctx, x->dtype)->binary(EG__MUL, x, &factor, call->out[0]);
    if (status == EG_OK && call->needs_grad[0])
        status = eg_op_save(call, mask);
    eg_tensor_release(mask);
    return status;
}

static eg_status dropout_forward(eg_op_call *call)
{
    return forward(call, call->in[0]->shape);
}

static eg_status drop_path_forward(eg_op_call *call)
{
    eg_shape shape = call->in[0]->shape;
    for (int d = 1; d < shape.ndim; d++)
        shape.dims[d] = 1;
    return forward(call, shape);
}

static eg_status drop_backward(eg_op_grad *grad)
{
    eg_tensor *dx = eg_op_grad_new(grad, 0);
    if (!dx)
        return eg__pending();
    eg_tensor factor = eg__operand_broadcast(grad->saved[0], dx->shape, false);
    return eg__kernels(grad->ctx, dx->dtype)->binary(EG__MUL, grad->grad_out[0], &factor, dx);
}

const eg_op eg__op_dropout = {
    .struct_size = sizeof(eg_op),
    .name = "dropout",
    .attrs_size = sizeof(eg__drop_attrs),
    .infer = drop_infer,
    .forward = dropout_forward,
    .backward = drop_backward,
};

const eg_op eg__op_drop_path = {
    .struct_size = sizeof(eg_op),
    .name = "drop_path",
    .attrs_size = sizeof(eg__drop_attrs),
    .infer = drop_path_infer,
    .forward = drop_path_forward,
    .backward = drop_backward,
};

/* x itself where nothing is dropped; whatever eg_apply() refuses (NULL, eg_none, p out of range) is left to it. */
static eg_tensor *drop(const eg_op *op, eg_tensor *x, double p, bool training)
{
    bool identity = p == 0.0 || (!training && p > 0.0 && p <= 1.0);
    if (identity && x && x->kind == EG__DENSE)
        return x;
    return eg_apply(op, &x, 1, &(eg__drop_attrs){.p = p});
}

eg_tensor *eg_f_dropout(eg_tensor *x, double p, bool training)
{
    return drop(&eg__op_dropout, x, p, training);
}

eg_tensor *eg_f_drop_path(eg_tensor *x, double p, bool training)
{
    return drop(&eg__op_drop_path, x, p, training);
}

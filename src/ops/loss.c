/*
 * ops/loss.c - cross entropy, mean squared error, and the accuracy of a classifier.
 */
#include "ops/internal.h"

#include <math.h>

/* ---- cross entropy, from logits; label smoothing as in Szegedy et al., "Rethinking the Inception architecture for
 * computer vision", CVPR 2016 ---- */

static eg_status check_labels(const eg_tensor *labels, int64_t rows, int64_t classes)
{
    EG_CHECK(eg_shape_equal(labels->shape, EG_SHAPE(rows)), EG_ESHAPE, "labels have shape %s, expected (%lld)",
             EG__TEXT(labels->shape), (long long)rows);
    for (int64_t i = 0; labels->storage && i < rows; i++) {
        int64_t label = eg__i64(labels)[i * labels->strides[0]];
        EG_CHECK(label >= 0 && label < classes, EG_EINVAL, "label %lld of sample %lld is out of range for %lld classes",
                 (long long)label, (long long)i, (long long)classes);
    }
    return EG_OK;
}

static eg_status cross_entropy_infer(const eg_op_call *call, eg_spec *out)
{
    const eg__cross_entropy_attrs *attrs = call->attrs;
    const eg_tensor *logits = call->in[0], *target = call->in[1];
    EG_TRY(eg__check_input(call, 0, "logits"));
    EG_TRY(eg__check_ndim(logits, "logits", 2, "(N, C)"));
    EG_CHECK(attrs->smoothing >= 0.0 && attrs->smoothing <= 1.0, EG_EINVAL, "label smoothing is %g, expected 0 to 1",
             attrs->smoothing);
    EG_CHECK(attrs->reduction == EG_REDUCTION_MEAN || attrs->reduction == EG_REDUCTION_SUM ||
                 attrs->reduction == EG_REDUCTION_NONE,
             EG_EINVAL, "reduction is %d, expected EG_REDUCTION_MEAN, _SUM or _NONE", (int)attrs->reduction);
    if (target->dtype == EG_I64) {
        EG_TRY(check_labels(target, logits->shape.dims[0], logits->shape.dims[1]));
    } else {
        EG_TRY(eg__check_input(call, 1, "target"));
        EG_CHECK(eg_shape_equal(target->shape, logits->shape), EG_ESHAPE,
                 "target has shape %s, expected probabilities %s as the logits or int64 labels",
                 EG__TEXT(target->shape), EG__TEXT(logits->shape));
    }
    return eg__spec_set(out, logits,
                        attrs->reduction == EG_REDUCTION_NONE ? EG_SHAPE(logits->shape.dims[0]) : EG_SCALAR);
}

/* out = the sum (or mean) of losses (N) */
static eg_status reduce_losses(const eg_kernels *k, const eg_tensor *losses, eg_tensor *out, eg_reduction reduction)
{
    eg_tensor sum = eg__operand(out, EG_SHAPE(1), (const int64_t[]){0}, 0);
    EG_TRY(k->reduce(EG__SUM, losses, &sum, NULL));
    return reduction == EG_REDUCTION_MEAN ? k->scale(1, &out, 1.0 / (double)losses->shape.dims[0]) : EG_OK;
}

static eg_status cross_entropy_forward(eg_op_call *call)
{
    const eg__cross_entropy_attrs *attrs = call->attrs;
    eg_tensor *logits = call->in[0], *target = call->in[1], *y = call->out[0];
    const eg_kernels *k = eg__kernels(call->ctx, logits->dtype);
    bool each = attrs->reduction == EG_REDUCTION_NONE;
    eg_tensor *probability = eg__tensor_new(call->ctx, logits->dtype, logits->shape, EG_LAYOUT_DEFAULT);
    eg_tensor *losses =
        each ? eg_tensor_keep(y)
             : eg__tensor_new(call->ctx, logits->dtype, EG_SHAPE(logits->shape.dims[0]), EG_LAYOUT_DEFAULT);
    eg_status status = probability && losses ? EG_OK : eg__pending();
    if (status == EG_OK)
        status = k->cross_entropy(attrs->smoothing, logits, target, probability, losses);
    if (status == EG_OK && !each)
        status = reduce_losses(k, losses, y, attrs->reduction);
    if (status == EG_OK && call->needs_grad[0])
        status = eg_op_save(call, probability);
    if (status == EG_OK && call->needs_grad[0])
        status = eg_op_save(call, target);
    eg_tensor_release(probability);
    eg_tensor_release(losses);
    return status;
}

/* Targets are data: no gradient flows to them. */
static eg_status cross_entropy_backward(eg_op_grad *grad)
{
    if (!grad->needs_grad[0])
        return EG_OK;
    const eg__cross_entropy_attrs *attrs = grad->attrs;
    eg_tensor *dlogits = eg_op_grad_new(grad, 0), *dy = grad->grad_out[0];
    if (!dlogits)
        return eg__pending();
    const eg_kernels *k = eg__kernels(grad->ctx, dlogits->dtype);
    int64_t rows = dlogits->shape.dims[0];
    if (attrs->reduction == EG_REDUCTION_NONE)
        return k->cross_entropy_backward(attrs->smoothing, grad->saved[0], grad->saved[1], dy, dlogits);
    eg_tensor *dlosses = eg__tensor_new(grad->ctx, dlogits->dtype, EG_SHAPE(rows), EG_LAYOUT_DEFAULT);
    if (!dlosses)
        return eg__pending();
    double share = attrs->reduction == EG_REDUCTION_MEAN ? 1.0 / (double)rows : 1.0;
    eg_status status = k->fill(dlosses, eg__scalar(dy) * share);
    if (status == EG_OK)
        status = k->cross_entropy_backward(attrs->smoothing, grad->saved[0], grad->saved[1], dlosses, dlogits);
    eg_tensor_release(dlosses);
    return status;
}

const eg_op eg__op_cross_entropy = {
    .struct_size = sizeof(eg_op),
    .name = "cross_entropy",
    .attrs_size = sizeof(eg__cross_entropy_attrs),
    .infer = cross_entropy_infer,
    .forward = cross_entropy_forward,
    .backward = cross_entropy_backward,
};

eg_tensor *eg_f_cross_entropy_with(const eg_cross_entropy_args *args)
{
    if (!args)
        return eg__null(__func__, "args");
    eg__cross_entropy_attrs attrs = {.smoothing = args->label_smoothing, .reduction = args->reduction};
    return eg_apply(&eg__op_cross_entropy, (eg_tensor *const[]){args->logits, args->target}, 2, &attrs);
}

/* ---- mean squared error ---- */

static eg_status mse_loss_infer(const eg_op_call *call, eg_spec *out)
{
    EG_TRY(eg__check_input(call, 0, "input"));
    EG_TRY(eg__check_input(call, 1, "target"));
    EG_CHECK(eg_shape_equal(call->in[0]->shape, call->in[1]->shape), EG_ESHAPE, "input has shape %s, target %s",
             EG__TEXT(call->in[0]->shape), EG__TEXT(call->in[1]->shape));
    return eg__spec_set(out, call->in[0], EG_SCALAR);
}

static eg_status mse_loss_forward(eg_op_call *call)
{
    eg_tensor *a = call->in[0];
    const eg_kernels *k = eg__kernels(call->ctx, a->dtype);
    eg_tensor *difference = eg__tensor_new(call->ctx, a->dtype, a->shape, eg__layout_of(a));
    if (!difference)
        return eg__pending();
    double squares = 0.0;
    eg_status status = k->binary(EG__SUB, a, call->in[1], difference);
    if (status == EG_OK)
        status = k->norm2(1, &difference, &squares);
    if (status == EG_OK)
        status = k->fill(call->out[0], squares / (double)eg_shape_numel(a->shape));
    if (status == EG_OK && (call->needs_grad[0] || call->needs_grad[1]))
        status = eg_op_save(call, difference);
    eg_tensor_release(difference);
    return status;
}

static eg_status mse_loss_backward(eg_op_grad *grad)
{
    eg_tensor *difference = grad->saved[0];
    double factor = 2.0 * eg__scalar(grad->grad_out[0]) / (double)eg_shape_numel(difference->shape);
    for (size_t i = 0; i < 2; i++) {
        if (!grad->needs_grad[i])
            continue;
        eg_tensor *d = eg_op_grad_new(grad, i);
        if (!d)
            return eg__pending();
        EG_TRY(eg__kernels(grad->ctx, d->dtype)->unary(EG__AFFINE, i == 0 ? factor : -factor, 0.0, difference, d));
    }
    return EG_OK;
}

const eg_op eg__op_mse_loss = {
    .struct_size = sizeof(eg_op),
    .name = "mse_loss",
    .infer = mse_loss_infer,
    .forward = mse_loss_forward,
    .backward = mse_loss_backward,
};

eg_tensor *eg_f_mse_loss(eg_tensor *a, eg_tensor *b)
{
    return eg_apply(&eg__op_mse_loss, (eg_tensor *const[]){a, b}, 2, NULL);
}

/* ---- accuracy ---- */

static eg_status check_accuracy(const eg_tensor *logits, const eg_tensor *labels)
{
    EG_CHECK(logits->kind == EG__DENSE && eg__is_float(logits->dtype), EG_EDTYPE,
             "accuracy: logits are not numbers of type float32 or float64");
    EG_CHECK(labels->kind == EG__DENSE && labels->dtype == EG_I64, EG_EDTYPE, "accuracy: labels are not of type int64");
    EG_CHECK(logits->storage && labels->storage, EG_EINVAL, "accuracy: the tensors have a shape but no numbers");
    EG_CHECK(logits->shape.ndim == 2 && eg_shape_numel(logits->shape) > 0, EG_ESHAPE,
             "accuracy: logits have shape %s, expected (N, C)", EG__TEXT(logits->shape));
    EG_CHECK(eg_shape_equal(labels->shape, EG_SHAPE(logits->shape.dims[0])), EG_ESHAPE,
             "accuracy: labels have shape %s, expected (%lld)", EG__TEXT(labels->shape),
             (long long)logits->shape.dims[0]);
    return EG_OK;
}

double eg_accuracy(const eg_tensor *logits, const eg_tensor *labels)
{
    if (!logits || !labels) {
        eg__null(__func__, logits ? "labels" : "logits");
        return NAN;
    }
    if (check_accuracy(logits, labels) != EG_OK)
        return NAN;
    int64_t rows = logits->shape.dims[0], right = 0;
    for (int64_t i = 0; i < rows; i++) {
        int64_t row = i * logits->strides[0], best = 0;
        for (int64_t c = 1; c < logits->shape.dims[1]; c++)
            if (eg__number(logits, row + c * logits->strides[1]) > eg__number(logits, row + best * logits->strides[1]))
                best = c;
        right += best == eg__i64(labels)[i * labels->strides[0]];
    }
    return (double)right / (double)rows;
}

/*
 * ops/losses.c - losses that are made of other operations, which also gives them their gradients.
 */
#include "autograd/internal.h"
#include "ops/internal.h"

#include <float.h>
#include <math.h>

/* ---- checks; each says what is wrong in the name of the loss ---- */

static eg_status check_pair(const eg_tensor *input, const eg_tensor *target, bool same_shape, eg_reduction reduction,
                            eg_reduction last)
{
    EG_CHECK(input->kind == EG__DENSE && target->kind == EG__DENSE, EG_EINVAL,
             "%s is none or a tuple, expected a tensor", input->kind == EG__DENSE ? "target" : "input");
    EG_CHECK(eg__is_float(input->dtype), EG_EDTYPE, "input has type %s, expected float32 or float64",
             eg_dtype_name(input->dtype));
    EG_CHECK(!same_shape || eg_shape_equal(input->shape, target->shape), EG_ESHAPE, "input has shape %s, target %s",
             EG__TEXT(input->shape), EG__TEXT(target->shape));
    EG_CHECK(reduction >= EG_REDUCTION_MEAN && reduction <= last, EG_EINVAL, "reduction is %d, expected one of %s",
             (int)reduction,
             last == EG_REDUCTION_NONE ? "EG_REDUCTION_MEAN, _SUM and _NONE"
                                       : "EG_REDUCTION_MEAN, _SUM, _NONE and _BATCHMEAN");
    return EG_OK;
}

static bool passes(const char *loss, const eg_tensor *input, eg_status status)
{
    if (status != EG_OK)
        eg__op_fail(status, loss, input->ctx ? eg__call_path(input->ctx) : "");
    return status == EG_OK;
}

/* What all losses of two tensors of one shape ask for. */
static bool pair_passes(const char *loss, const eg_loss_args *args, eg_reduction last)
{
    if (!args || !args->input || !args->target)
        return eg__null(loss, !args ? "args" : "an input") != NULL;
    return passes(loss, args->input, check_pair(args->input, args->target, true, args->reduction, last));
}

static eg_tensor *reduced(eg_tensor *losses, eg_reduction reduction)
{
    switch (reduction) {
    case EG_REDUCTION_MEAN:
        return eg_mean(losses);
    case EG_REDUCTION_SUM:
        return eg_sum(losses);
    case EG_REDUCTION_BATCHMEAN:
        return eg_affine(eg_sum(losses), losses ? 1.0 / (double)EG_MAX(losses->shape.dims[0], 1) : 1.0, 0.0);
    case EG_REDUCTION_NONE:
        break;
    }
    return losses;
}

/* ---- distances ---- */

eg_tensor *eg_f_l1_loss_with(const eg_loss_args *args)
{
    if (!pair_passes("l1_loss", args, EG_REDUCTION_NONE))
        return NULL;
    return reduced(eg_abs(eg_sub(args->input, args->target)), args->reduction);
}

static eg_status check_beta(double beta)
{
    EG_CHECK(beta >= 0.0 && isfinite(beta), EG_EINVAL, "beta is %g, expected 0 or more", beta);
    return EG_OK;
}

eg_tensor *eg_f_smooth_l1_loss_with(const eg_loss_args *args)
{
    if (!pair_passes("smooth_l1_loss", args, EG_REDUCTION_NONE))
        return NULL;
    double beta = args->beta.set ? args->beta.value : 1.0;
    if (!passes("smooth_l1_loss", args->input, check_beta(beta)))
        return NULL;
    eg_tensor *distance = eg_sub(args->input, args->target);
    distance = beta == 0.0
                   ? eg_abs(distance)
                   : eg_apply(&eg__op_smooth_l1, &distance, 1, &(eg__unary_attrs){.kind = EG__SMOOTH_L1, .a = beta});
    return reduced(distance, args->reduction);
}

/* Of t log t, the logarithm of 0 must be finite to give 0. */
eg_tensor *eg_f_kl_div_with(const eg_loss_args *args)
{
    if (!pair_passes("kl_div", args, EG_REDUCTION_BATCHMEAN))
        return NULL;
    eg_tensor *target = args->target, *probability = target, *log_probability = target;
    if (args->log_target)
        probability = eg_exp(target);
    else
        log_probability = eg_ln(eg_clamp(target, target->dtype == EG_F64 ? DBL_MIN : (double)FLT_MIN, INFINITY));
    return reduced(eg_mul(probability, eg_sub(log_probability, args->input)), args->reduction);
}

/* ---- classes ---- */

static eg_status check_nll(const eg_weighted_loss_args *args)
{
    const eg_tensor *input = args->input, *target = args->target, *weight = args->weight;
    EG_TRY(check_pair(input, target, false, args->reduction, EG_REDUCTION_NONE));
    EG_CHECK(input->shape.ndim >= 2, EG_ESHAPE, "input has shape %s, expected (N, C, ..)", EG__TEXT(input->shape));
    eg_shape without = input->shape;
    for (int d = 2; d < input->shape.ndim; d++)
        without.dims[d - 1] = input->shape.dims[d];
    without.dims[--without.ndim] = 0;
    EG_CHECK(eg_shape_equal(target->shape, without), EG_ESHAPE, "target has shape %s, expected %s",
             EG__TEXT(target->shape), EG__TEXT(without));
    EG_TRY(eg__check_index(target, "class", input->shape.dims[1]));
    EG_CHECK(eg_is_none(weight) || eg_shape_equal(weight->shape, EG_SHAPE(input->shape.dims[1])), EG_ESHAPE,
             "weight has shape %s, expected (%lld)", EG__TEXT(weight->shape), (long long)input->shape.dims[1]);
    return EG_OK;
}

static bool has_inputs(const char *loss, const eg_weighted_loss_args *args)
{
    if (!args || !args->input || !args->target || !args->weight)
        return eg__null(loss, !args ? "args" : "an input") != NULL;
    return true;
}

eg_tensor *eg_f_nll_loss_with(const eg_weighted_loss_args *args)
{
    if (!has_inputs("nll_loss", args) || !passes("nll_loss", args->input, check_nll(args)))
        return NULL;
    eg_shape shape = args->target->shape, index = args->input->shape;
    index.dims[1] = 1;
    eg_tensor *picked = eg_gather(args->input, 1, eg_reshape(args->target, index));
    eg_tensor *losses = eg_reshape(eg_neg(picked), shape);
    if (eg_is_none(args->weight))
        return reduced(losses, args->reduction);
    eg_tensor *classes = eg_reshape(args->target, EG_SHAPE(-1));
    eg_tensor *weights = eg_reshape(eg_index_select(args->weight, 0, classes), shape);
    losses = eg_mul(losses, weights);
    return args->reduction == EG_REDUCTION_MEAN ? eg_div(eg_sum(losses), eg_sum(weights))
                                                : reduced(losses, args->reduction);
}

/* (1 - t) x + (1 + (w - 1) t) log(1 + exp(-x)) */
eg_tensor *eg_f_bce_with_logits_with(const eg_weighted_loss_args *args)
{
    const char *name = "binary_cross_entropy_with_logits";
    if (!has_inputs(name, args) ||
        !passes(name, args->input, check_pair(args->input, args->target, true, args->reduction, EG_REDUCTION_NONE)))
        return NULL;
    eg_tensor *x = args->input, *t = args->target, *losses = eg_f_softplus(eg_neg(x), 1.0, INFINITY);
    if (!eg_is_none(args->weight))
        losses = eg_mul(eg_affine(eg_mul(eg_affine(args->weight, 1.0, -1.0), t), 1.0, 1.0), losses);
    return reduced(eg_add(eg_mul(eg_affine(t, -1.0, 1.0), x), losses), args->reduction);
}

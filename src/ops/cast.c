/*
 * ops/cast.c - the same numbers in another type.
 */
#include "ops/internal.h"

static eg_status cast_infer(const eg_op_call *call, eg_spec *out)
{
    eg_dtype dtype = ((const eg__cast_attrs *)call->attrs)->dtype;
    EG_CHECK(eg__is_float(dtype), EG_EDTYPE, "type is %s, expected float32, float64 or bfloat16", eg_dtype_name(dtype));
    EG_TRY(eg__check_input(call, 0, "input"));
    EG_TRY(eg__spec_set(out, call->in[0], call->in[0]->shape));
    out->dtype = dtype;
    return EG_OK;
}

static eg_status cast_forward(eg_op_call *call)
{
    return eg__tensor_copy_into(call->out[0], call->in[0]);
}

static eg_status cast_backward(eg_op_grad *grad)
{
    eg_tensor *dx = eg_op_grad_new(grad, 0);
    return dx ? eg__tensor_copy_into(dx, grad->grad_out[0]) : eg__pending();
}

const eg_op eg__op_cast = {
    .struct_size = sizeof(eg_op),
    .name = "cast",
    .attrs_size = sizeof(eg__cast_attrs),
    .stateless = true,
    .infer = cast_infer,
    .forward = cast_forward,
    .backward = cast_backward,
};

eg_tensor *eg_cast(eg_tensor *x, eg_dtype dtype)
{
    if (x && x->kind == EG__DENSE && x->dtype == dtype && eg__is_float(dtype))
        return x;
    return eg_apply(&eg__op_cast, &x, 1, &(eg__cast_attrs){.dtype = dtype});
}

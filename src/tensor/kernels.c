/*
 * tensor/kernels.c - which kernels compute for a tensor.
 */
#include "tensor/state.h"

#include <math.h>
#include <string.h>

const eg_kernels *eg__kernels_find(const char *name)
{
    if (strcmp(name, eg__dnnl_kernels.name) == 0)
        return &eg__dnnl_kernels;
    return strcmp(name, eg__ref_kernels.name) == 0 ? &eg__ref_kernels : NULL;
}

const eg_kernels *eg__kernels(const eg_context *ctx, eg_dtype dtype)
{
    const eg__tensor_state *state = eg__context_peek(ctx, EG__SLOT_TENSOR);
    if (dtype != EG_F32 && dtype != EG_BF16)
        return &eg__ref_kernels;
    return state && state->mixed ? state->mixed : eg__kernels_of_f32(ctx);
}

const eg_kernels *eg__kernels_of_f32(const eg_context *ctx)
{
    const eg_kernels *kernels = eg__kernels_find(eg__context_backend(ctx));
    return kernels ? kernels : &eg__ref_kernels;
}

bool eg__unary_saves_output(eg__unary op)
{
    return op == EG__RELU || op == EG__SIGMOID || op == EG__TANH || op == EG__EXP || op == EG__SQRT ||
           op == EG__RECIPROCAL;
}

eg_tensor *eg__add_begin(eg_tensor *dx, bool add)
{
    return add ? eg__tensor_new_like(dx) : dx;
}

eg_status eg__add_finish(const eg_kernels *k, eg_status status, eg_tensor *written, eg_tensor *dx)
{
    if (!written)
        return EG_ENOMEM;
    if (written == dx)
        return status;
    if (status == EG_OK)
        status = k->accumulate(written, dx);
    eg_tensor_release(written);
    return status;
}

eg__tap eg__interpolate_tap(const eg__interpolate *ip, eg_dtype dtype, int axis, int64_t out, int64_t input_size)
{
    double offset = ip->mode == EG__NEAREST || ip->align_corners ? 0.0 : 0.5, place;
    if (dtype == EG_F64)
        place = ip->ratio[axis] * ((double)out + offset) - offset;
    else
        place = (double)((float)ip->ratio[axis] * ((float)out + (float)offset) - (float)offset);
    place = EG_MAX(place, 0.0);
    int64_t at = EG_MIN((int64_t)floor(place), input_size - 1);
    if (ip->mode == EG__NEAREST || at == input_size - 1)
        return (eg__tap){.at = at, .next = at};
    return (eg__tap){.at = at, .next = at + 1, .weight = place - (double)at};
}

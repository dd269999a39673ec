/*
 * tensor/bf16/precision.c - whether a context computes in bfloat16, and who does so.
 */
#include "tensor/state.h"

void eg__mix_kernels(eg_context *ctx)
{
    eg__tensor_state *state = eg__tensor_state_of(ctx);
    if (state->mixed)
        return;
    bool native = eg__kernels_of_f32(ctx) == &eg__dnnl_kernels && eg__dnnl_has_bf16();
    state->mixed = native && !eg__context_emulates_bf16(ctx) ? &eg__native_kernels : &eg__mixed_kernels;
}

eg_status eg_context_set_precision(eg_context *ctx, eg_dtype precision)
{
    EG_CHECK(ctx, EG_EINVAL, "context is NULL");
    EG_CHECK(precision == EG_F32 || precision == EG_BF16, EG_EINVAL, "precision is %s, expected float32 or bfloat16",
             eg_dtype_name(precision));
    EG_CHECK(precision == EG_F32 || eg__dnnl_has_bf16() || eg__context_emulates_bf16(ctx), EG_EUNSUPPORTED,
             "bf16 needs a processor with AVX512-BF16 or AMX; this one has %s", eg__dnnl_isa());
    eg__tensor_state *state = eg__tensor_state_of(ctx);
    if (!state)
        return EG_ENOMEM;
    state->precision = precision;
    return EG_OK;
}

eg_dtype eg_context_precision(const eg_context *ctx)
{
    const eg__tensor_state *state = ctx ? eg__context_peek(ctx, EG__SLOT_TENSOR) : NULL;
    return state ? state->precision : EG_F32;
}

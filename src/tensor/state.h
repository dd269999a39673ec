/*
 * tensor/state.h - what the tensor layer keeps in the context; for this folder only.
 */
#ifndef EG_TENSOR_STATE_H
#define EG_TENSOR_STATE_H

#include "tensor/kernels.h"

typedef struct eg__free_item {
    struct eg__free_item *next;
} eg__free_item;

typedef struct eg__tensor_state {
    /* Tensors owned by scopes, innermost last. A NULL is where a scope begins. */
    eg_tensor **owned;
    size_t n_owned, owned_capacity;
    eg__free_item *free_handles, *free_storages;
    uint64_t last_storage_id;
    const eg_kernels *mixed; /* for float32 and bfloat16, once there is a tensor of bfloat16; NULL before */
    eg_dtype precision;
} eg__tensor_state;

/** NULL on ENOMEM; cannot fail once a tensor was made. */
eg__tensor_state *eg__tensor_state_of(eg_context *ctx);

/** From now on float32 kernels of this context take bfloat16 operands as well. */
void eg__mix_kernels(eg_context *ctx);

/** Strides of a dense tensor in the memory order of `like`. */
void eg__like_strides(const eg_tensor *like, int64_t *strides);

#endif

/*
 * tensor/dnnl/api.h - oneDNN's C interface as version 3 has it, over version 2 as well.
 *
 * The code of this folder is written for version 3. What that has and version 2 lacks is defined here under version 3's
 * names; the two things that both have, but in different forms, got names of ours:
 *
 * - a memory descriptor: an opaque object in version 3, a struct that the caller holds in version 2;
 * - adding to what is there.
 *
 * Version 2 describes an operation first and asks for its implementation then, version 3 does both in one call.
 */
#ifndef EG_TENSOR_DNNL_API_H
#define EG_TENSOR_DNNL_API_H

#include <oneapi/dnnl/dnnl.h>

#if DNNL_VERSION_MAJOR == 3

typedef dnnl_memory_desc_t eg__dnnl_md;

static inline dnnl_status_t eg__dnnl_append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0F, 0, dnnl_data_type_undef);
}

#elif DNNL_VERSION_MAJOR == 2

#include "base/internal.h"

typedef dnnl_memory_desc_t *eg__dnnl_md;
typedef const dnnl_memory_desc_t *const_dnnl_memory_desc_t;

static inline dnnl_status_t eg__dnnl_append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0F);
}

static inline dnnl_status_t dnnl_memory_desc_destroy(eg__dnnl_md md)
{
    eg_free(md);
    return dnnl_success;
}

static inline dnnl_status_t dnnl_memory_desc_clone(eg__dnnl_md *md, const_dnnl_memory_desc_t existing)
{
    *md = eg__calloc(1, sizeof **md);
    if (!*md)
        return dnnl_out_of_memory;
    **md = *existing;
    return dnnl_success;
}

static inline dnnl_status_t dnnl_memory_desc_create_with_tag(eg__dnnl_md *md, int ndims, const dnnl_dims_t dims,
                                                             dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t made;
    dnnl_status_t status = dnnl_memory_desc_init_by_tag(&made, ndims, dims, type, tag);
    return status == dnnl_success ? dnnl_memory_desc_clone(md, &made) : status;
}

static inline dnnl_status_t dnnl_memory_desc_create_with_strides(eg__dnnl_md *md, int ndims, const dnnl_dims_t dims,
                                                                 dnnl_data_type_t type, const dnnl_dims_t strides)
{
    dnnl_memory_desc_t made;
    dnnl_status_t status = dnnl_memory_desc_init_by_strides(&made, ndims, dims, type, strides);
    return status == dnnl_success ? dnnl_memory_desc_clone(md, &made) : status;
}

static inline dnnl_status_t
dnnl_matmul_primitive_desc_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const_dnnl_memory_desc_t src,
                                  const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t bias,
                                  const_dnnl_memory_desc_t dst, const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t desc;
    dnnl_status_t status = dnnl_matmul_desc_init(&desc, src, weights, bias, dst);
    return status == dnnl_success ? dnnl_primitive_desc_create(pd, &desc, attr, engine, NULL) : status;
}

static inline dnnl_status_t dnnl_convolution_forward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t prop, dnnl_alg_kind_t alg,
    const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t bias,
    const_dnnl_memory_desc_t dst, const dnnl_dims_t strides, const dnnl_dims_t dilates, const dnnl_dims_t padding_l,
    const dnnl_dims_t padding_r, const_dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t desc;
    dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(&desc, prop, alg, src, weights, bias, dst,
                                                                      strides, dilates, padding_l, padding_r);
    return status == dnnl_success ? dnnl_primitive_desc_create(pd, &desc, attr, engine, NULL) : status;
}

static inline dnnl_status_t dnnl_convolution_backward_data_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t alg, const_dnnl_memory_desc_t diff_src,
    const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t diff_dst, const dnnl_dims_t strides,
    const dnnl_dims_t dilates, const dnnl_dims_t padding_l, const dnnl_dims_t padding_r,
    const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t desc;
    dnnl_status_t status = dnnl_dilated_convolution_backward_data_desc_init(&desc, alg, diff_src, weights, diff_dst,
                                                                            strides, dilates, padding_l, padding_r);
    return status == dnnl_success ? dnnl_primitive_desc_create(pd, &desc, attr, engine, hint) : status;
}

static inline dnnl_status_t dnnl_convolution_backward_weights_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t alg, const_dnnl_memory_desc_t src,
    const_dnnl_memory_desc_t diff_weights, const_dnnl_memory_desc_t diff_bias, const_dnnl_memory_desc_t diff_dst,
    const dnnl_dims_t strides, const dnnl_dims_t dilates, const dnnl_dims_t padding_l, const dnnl_dims_t padding_r,
    const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t desc;
    dnnl_status_t status = dnnl_dilated_convolution_backward_weights_desc_init(
        &desc, alg, src, diff_weights, diff_bias, diff_dst, strides, dilates, padding_l, padding_r);
    return status == dnnl_success ? dnnl_primitive_desc_create(pd, &desc, attr, engine, hint) : status;
}

#else
#error "oneDNN of version 2 (2.6 or later) or 3 is needed"
#endif

#endif

/*
 * tensor/dnnl/matmul_bf16.c - matrix products of bfloat16 numbers, summed in float32, as oneDNN primitives: its sgemm
 * has no public brother for bfloat16.
 */
#include "tensor/dnnl/primitive.h"

#include <string.h>

enum { DIMS = 4 }; /* two of the batch, rows, columns */

/* Sizes of t, 1 where it has fewer dimensions; false where it has more. */
static bool sizes_of(const eg_tensor *t, int64_t *dims)
{
    int lacking = DIMS - t->shape.ndim;
    for (int d = 0; d < DIMS && lacking >= 0; d++)
        dims[d] = d < lacking ? 1 : t->shape.dims[d - lacking];
    return lacking >= 0;
}

/* Strides likewise. Where the size is 1 they say nothing, and become large enough to be those of an outer dimension. */
static void strides_of(const eg_tensor *t, const int64_t *dims, int64_t *strides)
{
    int lacking = DIMS - t->shape.ndim;
    int64_t extent = 1;
    for (int d = lacking; d < DIMS; d++)
        if (dims[d] > 1)
            extent = EG_MAX(extent, dims[d] * t->strides[d - lacking]);
    for (int d = 0; d < DIMS; d++)
        strides[d] = dims[d] > 1 ? t->strides[d - lacking] : extent;
}

/* No number serves several places, and rows or columns are contiguous. */
static bool is_addressable(const eg_tensor *t)
{
    int last = t->shape.ndim - 1;
    for (int d = 0; d <= last; d++)
        if (t->shape.dims[d] > 1 && t->strides[d] == 0)
            return false;
    for (int d = last - 1; d <= last; d++)
        if (t->strides[d] == 1 || t->shape.dims[d] == 1)
            return true;
    return false;
}

/* t itself, or a copy of the type and order wanted, in *owned. NULL on failure. */
static const eg_tensor *factor(const eg_tensor *t, eg_tensor **owned)
{
    if (t->dtype == EG_BF16 && is_addressable(t))
        return t;
    *owned = eg__tensor_new(t->ctx, EG_BF16, t->shape, EG_LAYOUT_ROW_MAJOR);
    return *owned && eg__bf16_copy(t, *owned, false) == EG_OK ? *owned : NULL;
}

/* ---- the primitive: sizes of the batch in key.stride, rows and columns of y in key.padding, their sums' length in
 * key.groups, strides in x, w, y ---- */

typedef struct product_descs {
    eg__dnnl_md a, b, bias, y;
} product_descs;

/* Without the dimensions of the batch where that is of one product. */
static eg_status describe_one(eg__dnnl_md *md, dnnl_data_type_t type, bool batch, const int64_t *dims,
                              const int64_t *strides)
{
    dnnl_dims_t own_dims = {0}, own_strides = {0};
    int ndim = batch ? DIMS : 2;
    for (int d = 0; d < ndim; d++) {
        own_dims[d] = dims[DIMS - ndim + d];
        own_strides[d] = strides[DIMS - ndim + d];
    }
    return eg__dnnl_check(dnnl_memory_desc_create_with_strides(md, ndim, own_dims, type, own_strides),
                          "describing a matrix");
}

static eg_status describe(const eg__dnnl_key *key, product_descs *d)
{
    int64_t b0 = key->stride[0], b1 = key->stride[1], m = key->padding[0], n = key->padding[1], k = key->groups;
    bool batch = b0 * b1 > 1;
    EG_TRY(describe_one(&d->a, dnnl_bf16, batch, (int64_t[]){b0, b1, m, k}, key->x));
    EG_TRY(describe_one(&d->b, dnnl_bf16, batch, (int64_t[]){b0, b1, k, n}, key->w));
    EG_TRY(describe_one(&d->y, key->bf16 ? dnnl_bf16 : dnnl_f32, batch, (int64_t[]){b0, b1, m, n}, key->y));
    return key->bias ? describe_one(&d->bias, dnnl_f32, batch, (int64_t[]){1, 1, 1, n}, (int64_t[]){n, n, n, 1})
                     : EG_OK;
}

static eg_status add_all(eg__dnnl_state *state, eg__dnnl_primitive *p, const_dnnl_primitive_desc_t pd)
{
    EG_TRY(eg__dnnl_create(state, p, pd));
    EG_TRY(eg__dnnl_add(state, p, pd, dnnl_query_src_md, 0, DNNL_ARG_SRC, NULL));
    EG_TRY(eg__dnnl_add(state, p, pd, dnnl_query_weights_md, 0, DNNL_ARG_WEIGHTS, NULL));
    EG_TRY(eg__dnnl_add(state, p, pd, dnnl_query_weights_md, 1, DNNL_ARG_BIAS, NULL));
    return eg__dnnl_add(state, p, pd, dnnl_query_dst_md, 0, DNNL_ARG_DST, NULL);
}

static eg_status build(eg__dnnl_state *state, eg__dnnl_primitive *p)
{
    product_descs d = {0};
    dnnl_primitive_desc_t pd = NULL;
    eg_status status = describe(&p->key, &d);
    if (status == EG_OK)
        status = eg__dnnl_described(
            p, dnnl_matmul_primitive_desc_create(&pd, state->engine, d.a, d.b, d.bias, d.y, eg__dnnl_attr(state, p)));
    if (status == EG_OK && pd)
        status = add_all(state, p, pd);
    dnnl_primitive_desc_destroy(pd);
    dnnl_memory_desc_destroy(d.a);
    dnnl_memory_desc_destroy(d.b);
    dnnl_memory_desc_destroy(d.bias);
    dnnl_memory_desc_destroy(d.y);
    return status;
}

/* ---- running it ---- */

static eg__dnnl_key key_of(const eg_tensor *a, const eg_tensor *b, const eg_tensor *bias, const eg_tensor *y)
{
    int64_t dims[DIMS];
    eg__dnnl_key key;
    memset(&key, 0, sizeof key);
    key.op = EG__DNNL_MATMUL;
    sizes_of(a, dims);
    strides_of(a, dims, key.x);
    key.groups = dims[3];
    sizes_of(b, dims);
    strides_of(b, dims, key.w);
    sizes_of(y, dims);
    strides_of(y, dims, key.y);
    memcpy(key.stride, dims, sizeof key.stride);
    memcpy(key.padding, dims + 2, sizeof key.padding);
    key.bias = bias != NULL;
    key.bf16 = y->dtype == EG_BF16;
    return key;
}

static eg_status multiply(const eg_tensor *a, const eg_tensor *b, const eg_tensor *bias, eg_tensor *y)
{
    eg__dnnl_primitive *p;
    eg__dnnl_key key = key_of(a, b, bias, y);
    EG_TRY(eg__dnnl_get(y->ctx, &key, build, &p));
    if (p->unsupported)
        return eg__mixed_kernels.matmul(a, b, bias, y);
    EG_TRY(eg__dnnl_set(p, DNNL_ARG_SRC, eg__data(a)));
    EG_TRY(eg__dnnl_set(p, DNNL_ARG_WEIGHTS, eg__data(b)));
    EG_TRY(bias ? eg__dnnl_set(p, DNNL_ARG_BIAS, eg__data(bias)) : EG_OK);
    EG_TRY(eg__dnnl_set(p, DNNL_ARG_DST, eg__data(y)));
    return eg__dnnl_run(y->ctx, p);
}

/* In *owned, what takes the place of y until eg__out_finish(). */
static eg_tensor *result(eg_tensor *y, eg_tensor **owned)
{
    if (is_addressable(y))
        return y;
    return *owned = eg__tensor_new(y->ctx, y->dtype, y->shape, EG_LAYOUT_ROW_MAJOR);
}

eg_status eg__dnnl_matmul_bf16(const eg_tensor *a, const eg_tensor *b, const eg_tensor *bias, eg_tensor *y)
{
    int64_t dims[DIMS];
    if (a->dtype != EG_BF16 && b->dtype != EG_BF16)
        return y->dtype == EG_BF16 ? eg__mixed_kernels.matmul(a, b, bias, y) : eg__dnnl_matmul(a, b, bias, y);
    bool usual = sizes_of(y, dims) && (!bias || (bias->dtype == EG_F32 && bias->strides[0] == 1));
    if (!usual || eg_shape_numel(y->shape) == 0 || eg_shape_numel(a->shape) == 0)
        return eg__mixed_kernels.matmul(a, b, bias, y);
    eg_tensor *owned[3] = {NULL, NULL, NULL};
    a = factor(a, &owned[0]);
    b = factor(b, &owned[1]);
    eg_tensor *out = result(y, &owned[2]);
    eg_status status = a && b && out ? multiply(a, b, bias, out) : EG_ENOMEM;
    eg_tensor_release(owned[0]);
    eg_tensor_release(owned[1]);
    return eg__out_finish(status, y, owned[2]);
}

/* ---- what the processor has ---- */

bool eg__dnnl_has_bf16(void)
{
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

const char *eg__dnnl_isa(void)
{
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core)
        return "AVX-512 without BF16";
    return (isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2 ? "AVX2" : "neither of AVX-512 and AVX2";
}

/*
 * tensor/dnnl/pool.c - maximum and average pooling.
 */
#include "tensor/dnnl/primitive.h"

#include <string.h>

typedef struct pool_descs {
    dnnl_memory_desc_t x, y;
    dnnl_dims_t kernel, stride, dilation, before, after;
    dnnl_alg_kind_t algorithm;
} pool_descs;

/* How far the last window reaches beyond the input: with ceil_mode further than the padding. */
static int64_t reach(const eg__dnnl_key *key, int i)
{
    int64_t last = (key->y[2 + i] - 1) * key->stride[i] - key->padding[i];
    return last + (key->kernel[i] - 1) * key->dilation[i] + 1 - key->x[2 + i];
}

static eg_status describe(const eg__dnnl_key *key, pool_descs *d)
{
    memset(d, 0, sizeof *d);
    EG_TRY(eg__dnnl_nhwc(&d->x, key->x));
    EG_TRY(eg__dnnl_nhwc(&d->y, key->y));
    for (int i = 0; i < 2; i++) {
        d->kernel[i] = key->kernel[i];
        d->stride[i] = key->stride[i];
        d->dilation[i] = key->dilation[i] - 1;
        d->before[i] = key->padding[i];
        d->after[i] = EG_MAX(key->padding[i], reach(key, i));
    }
    if (key->op == EG__DNNL_MAX_POOL || key->op == EG__DNNL_MAX_POOL_BACKWARD)
        d->algorithm = dnnl_pooling_max;
    else
        d->algorithm = key->flag ? dnnl_pooling_avg_exclude_padding : dnnl_pooling_avg_include_padding;
    return EG_OK;
}

static eg_status forward_desc(const eg__dnnl_key *key, const pool_descs *d, dnnl_pooling_v2_desc_t *desc)
{
    bool inference = key->op == EG__DNNL_MAX_POOL && !key->flag;
    return eg__dnnl_check(
        dnnl_pooling_v2_forward_desc_init(desc, inference ? dnnl_forward_inference : dnnl_forward_training, d->algorithm,
                                          &d->x, &d->y, d->stride, d->kernel, d->dilation, d->before, d->after),
        "describing a pooling");
}

static eg_status add_arguments(eg__dnnl_state *state, eg__dnnl_primitive *p, const_dnnl_primitive_desc_t pd, bool backward)
{
    EG_TRY(eg__dnnl_create(state, p, pd));
    if (backward) {
        EG_TRY(eg__dnnl_add(state, p, pd, dnnl_query_diff_dst_md, 0, DNNL_ARG_DIFF_DST, NULL));
        EG_TRY(eg__dnnl_add(state, p, pd, dnnl_query_diff_src_md, 0, DNNL_ARG_DIFF_SRC, NULL));
    } else {
        EG_TRY(eg__dnnl_add(state, p, pd, dnnl_query_src_md, 0, DNNL_ARG_SRC, NULL));
        EG_TRY(eg__dnnl_add(state, p, pd, dnnl_query_dst_md, 0, DNNL_ARG_DST, NULL));
    }
    return eg__dnnl_add(state, p, pd, dnnl_query_workspace_md, 0, DNNL_ARG_WORKSPACE, &p->workspace_bytes);
}

static eg_status build_forward(eg__dnnl_state *state, eg__dnnl_primitive *p)
{
    pool_descs d;
    dnnl_pooling_v2_desc_t desc;
    dnnl_primitive_desc_t pd;
    EG_TRY(describe(&p->key, &d));
    EG_TRY(forward_desc(&p->key, &d, &desc));
    EG_TRY(eg__dnnl_describe(state, p, &desc, NULL, &pd));
    if (p->unsupported)
        return EG_OK;
    eg_status status = add_arguments(state, p, pd, false);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

static eg_status build_backward(eg__dnnl_state *state, eg__dnnl_primitive *p)
{
    pool_descs d;
    dnnl_pooling_v2_desc_t desc;
    dnnl_primitive_desc_t hint, pd = NULL;
    EG_TRY(describe(&p->key, &d));
    EG_TRY(forward_desc(&p->key, &d, &desc));
    EG_TRY(eg__dnnl_describe(state, p, &desc, NULL, &hint));
    if (p->unsupported)
        return EG_OK;
    eg_status status = eg__dnnl_check(dnnl_pooling_v2_backward_desc_init(&desc, d.algorithm, &d.x, &d.y, d.stride, d.kernel,
                                                                         d.dilation, d.before, d.after),
                                      "describing a pooling");
    if (status == EG_OK)
        status = eg__dnnl_describe(state, p, &desc, hint, &pd);
    if (status == EG_OK && pd)
        status = add_arguments(state, p, pd, true);
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_desc_destroy(hint);
    return status;
}

static eg__dnnl_key key_of(eg__dnnl_op op, const eg__window *win, const eg_tensor *x, const eg_tensor *y, bool flag)
{
    eg__dnnl_key key;
    memset(&key, 0, sizeof key);
    key.op = op;
    memcpy(key.x, x->shape.dims, sizeof key.x);
    memcpy(key.y, y->shape.dims, sizeof key.y);
    memcpy(key.kernel, win->kernel, sizeof key.kernel);
    memcpy(key.stride, win->stride, sizeof key.stride);
    memcpy(key.padding, win->padding, sizeof key.padding);
    memcpy(key.dilation, win->dilation, sizeof key.dilation);
    key.flag = flag;
    return key;
}

static bool empty(const eg_tensor *x, const eg_tensor *y)
{
    return eg_shape_numel(x->shape) == 0 || eg_shape_numel(y->shape) == 0;
}

static eg_status run_forward(eg__dnnl_primitive *p, const eg_tensor *x, const eg_tensor *y, void *workspace)
{
    EG_TRY(eg__dnnl_set(p, DNNL_ARG_SRC, eg__f32(x)));
    EG_TRY(eg__dnnl_set(p, DNNL_ARG_DST, eg__f32(y)));
    EG_TRY(eg__dnnl_set(p, DNNL_ARG_WORKSPACE, workspace));
    return eg__dnnl_run(x->ctx, p);
}

static eg_status run_backward(eg__dnnl_primitive *p, const eg_tensor *dy, const eg_tensor *dx, void *workspace)
{
    EG_TRY(eg__dnnl_set(p, DNNL_ARG_DIFF_DST, eg__f32(dy)));
    EG_TRY(eg__dnnl_set(p, DNNL_ARG_DIFF_SRC, eg__f32(dx)));
    EG_TRY(eg__dnnl_set(p, DNNL_ARG_WORKSPACE, workspace));
    return eg__dnnl_run(dy->ctx, p);
}

/* ---- maximum ---- */

static eg_status max_forward(const eg__window *win, const eg_tensor *x, eg_tensor *y, eg_tensor **workspace)
{
    eg__dnnl_primitive *p;
    eg__dnnl_key key = key_of(EG__DNNL_MAX_POOL, win, x, y, workspace != NULL);
    EG_TRY(eg__dnnl_get(x->ctx, &key, build_forward, &p));
    if (p->unsupported)
        return eg__ref_kernels.max_pool2d(win, x, y, workspace);
    if (!workspace)
        return run_forward(p, x, y, NULL);
    *workspace = eg__tensor_new(x->ctx, EG_U8, EG_SHAPE((int64_t)p->workspace_bytes), EG_LAYOUT_ROW_MAJOR);
    return *workspace ? run_forward(p, x, y, eg__data(*workspace)) : EG_ENOMEM;
}

eg_status eg__dnnl_max_pool2d(const eg__window *win, const eg_tensor *x, eg_tensor *y, eg_tensor **workspace)
{
    if (workspace)
        *workspace = NULL;
    if (empty(x, y))
        return eg__ref_kernels.max_pool2d(win, x, y, workspace);
    eg_tensor *owned_x = NULL, *owned_y = NULL;
    x = eg__in_channels_last(x, &owned_x);
    eg_tensor *out = x ? eg__out_channels_last(y, &owned_y) : NULL;
    eg_status status = out ? max_forward(win, x, out, workspace) : EG_ENOMEM;
    eg_tensor_release(owned_x);
    return eg__out_finish(status, y, owned_y);
}

static eg_status max_backward(const eg__window *win, const eg_tensor *workspace, const eg_tensor *dy, eg_tensor *dx)
{
    eg__dnnl_primitive *p;
    eg__dnnl_key key = key_of(EG__DNNL_MAX_POOL_BACKWARD, win, dx, dy, true);
    EG_TRY(eg__dnnl_get(dx->ctx, &key, build_backward, &p));
    EG_ASSERT(!p->unsupported); /* or forward would have been too */
    return run_backward(p, dy, dx, eg__data(workspace));
}

eg_status eg__dnnl_max_pool2d_backward(const eg__window *win, const eg_tensor *workspace, const eg_tensor *dy, eg_tensor *dx)
{
    if (workspace->dtype != EG_U8) /* the reference's */
        return eg__ref_kernels.max_pool2d_backward(win, workspace, dy, dx);
    eg_tensor *owned_dy = NULL, *owned_dx = NULL;
    dy = eg__in_channels_last(dy, &owned_dy);
    eg_tensor *out = dy ? eg__out_channels_last(dx, &owned_dx) : NULL;
    eg_status status = out ? max_backward(win, workspace, dy, out) : EG_ENOMEM;
    eg_tensor_release(owned_dy);
    return eg__out_finish(status, dx, owned_dx);
}

/* ---- average ---- */

/* oneDNN divides by the whole window where padding counts; of a window that reaches beyond the padding only a part does. */
static bool counts_beyond_padding(const eg__window *win, const eg__dnnl_key *key)
{
    return !win->exclude_pad && (reach(key, 0) > key->padding[0] || reach(key, 1) > key->padding[1]);
}

static eg_status avg_forward(const eg__dnnl_key *key, const eg__window *win, const eg_tensor *x, eg_tensor *y)
{
    eg__dnnl_primitive *p;
    EG_TRY(eg__dnnl_get(x->ctx, key, build_forward, &p));
    return p->unsupported ? eg__ref_kernels.avg_pool2d(win, x, y) : run_forward(p, x, y, NULL);
}

eg_status eg__dnnl_avg_pool2d(const eg__window *win, const eg_tensor *x, eg_tensor *y)
{
    eg__dnnl_key key = key_of(EG__DNNL_AVG_POOL, win, x, y, win->exclude_pad);
    if (empty(x, y) || counts_beyond_padding(win, &key))
        return eg__ref_kernels.avg_pool2d(win, x, y);
    eg_tensor *owned_x = NULL, *owned_y = NULL;
    x = eg__in_channels_last(x, &owned_x);
    eg_tensor *out = x ? eg__out_channels_last(y, &owned_y) : NULL;
    eg_status status = out ? avg_forward(&key, win, x, out) : EG_ENOMEM;
    eg_tensor_release(owned_x);
    return eg__out_finish(status, y, owned_y);
}

static eg_status avg_backward(const eg__dnnl_key *key, const eg__window *win, const eg_tensor *dy, eg_tensor *dx)
{
    eg__dnnl_primitive *p;
    EG_TRY(eg__dnnl_get(dx->ctx, key, build_backward, &p));
    return p->unsupported ? eg__ref_kernels.avg_pool2d_backward(win, dy, dx) : run_backward(p, dy, dx, NULL);
}

eg_status eg__dnnl_avg_pool2d_backward(const eg__window *win, const eg_tensor *dy, eg_tensor *dx)
{
    eg__dnnl_key key = key_of(EG__DNNL_AVG_POOL_BACKWARD, win, dx, dy, win->exclude_pad);
    if (empty(dx, dy) || counts_beyond_padding(win, &key))
        return eg__ref_kernels.avg_pool2d_backward(win, dy, dx);
    eg_tensor *owned_dy = NULL, *owned_dx = NULL;
    dy = eg__in_channels_last(dy, &owned_dy);
    eg_tensor *out = dy ? eg__out_channels_last(dx, &owned_dx) : NULL;
    eg_status status = out ? avg_backward(&key, win, dy, out) : EG_ENOMEM;
    eg_tensor_release(owned_dy);
    return eg__out_finish(status, dx, owned_dx);
}

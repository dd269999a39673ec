/*
 * tensor/dnnl/conv.c - convolutions: NHWC activations, weights in whatever layout each direction prefers.
 */
#include "tensor/dnnl/primitive.h"

#include <string.h>

/* Filters with more numbers than this leave too little memory for our own sums of groups. */
#define OWN_FILTERS_MAX (1 << 20)
/* Input rows that do not fit in the second cache are left to oneDNN. */
#define ROWS_NUMBERS_MAX (1 << 16)

typedef struct conv_descs {
    eg__dnnl_md x, w, b, y; /* w: any layout; b: NULL without a bias */
    eg__dnnl_md plain;      /* row-major w, float32 */
    eg__dnnl_md dw;         /* the gradient of w, any layout, float32 */
    dnnl_dims_t stride, dilation, before, after;
} conv_descs;

static dnnl_data_type_t type_of(const eg__dnnl_key *key)
{
    return key->bf16 ? dnnl_bf16 : dnnl_f32;
}

static eg_status describe_weights(const eg__dnnl_key *key, conv_descs *d)
{
    dnnl_dims_t grouped = {key->groups, key->w[0] / key->groups, key->w[1], key->w[2], key->w[3]};
    bool groups = key->groups > 1;
    const int64_t *dims = groups ? grouped : key->w;
    int ndim = groups ? 5 : 4;
    EG_TRY(eg__dnnl_tensor(&d->w, type_of(key), ndim, dims, dnnl_format_tag_any));
    EG_TRY(eg__dnnl_tensor(&d->dw, dnnl_f32, ndim, dims, dnnl_format_tag_any));
    return eg__dnnl_tensor(&d->plain, dnnl_f32, ndim, dims, groups ? dnnl_goihw : dnnl_oihw);
}

static eg_status describe(const eg__dnnl_key *key, conv_descs *d)
{
    for (int i = 0; i < 2; i++) {
        d->stride[i] = key->stride[i];
        d->dilation[i] = key->dilation[i] - 1;
        d->before[i] = d->after[i] = key->padding[i];
    }
    EG_TRY(eg__dnnl_tensor(&d->x, type_of(key), 4, key->x, dnnl_nhwc));
    EG_TRY(eg__dnnl_tensor(&d->y, type_of(key), 4, key->y, dnnl_nhwc));
    if (key->bias)
        EG_TRY(eg__dnnl_tensor(&d->b, dnnl_f32, 1, key->w, dnnl_x));
    return describe_weights(key, d);
}

static void descs_free(conv_descs *d)
{
    dnnl_memory_desc_destroy(d->x);
    dnnl_memory_desc_destroy(d->w);
    dnnl_memory_desc_destroy(d->b);
    dnnl_memory_desc_destroy(d->y);
    dnnl_memory_desc_destroy(d->plain);
    dnnl_memory_desc_destroy(d->dw);
}

/* *pd stays NULL where oneDNN has no such convolution. */
static eg_status forward_desc(const eg__dnnl_state *state, eg__dnnl_primitive *p, const conv_descs *d,
                              dnnl_primitive_desc_t *pd)
{
    return eg__dnnl_described(p, dnnl_convolution_forward_primitive_desc_create(
                                     pd, state->engine, dnnl_forward_training, dnnl_convolution_direct, d->x, d->w,
                                     d->b, d->y, d->stride, d->dilation, d->before, d->after, eg__dnnl_attr(state, p)));
}

static eg_status add_forward(eg__dnnl_state *state, eg__dnnl_primitive *p, const conv_descs *d,
                             const_dnnl_primitive_desc_t pd)
{
    EG_TRY(eg__dnnl_create(state, p, pd));
    EG_TRY(eg__dnnl_add(state, p, pd, dnnl_query_src_md, 0, DNNL_ARG_SRC, NULL));
    EG_TRY(eg__dnnl_add(state, p, pd, dnnl_query_weights_md, 0, DNNL_ARG_WEIGHTS, NULL));
    EG_TRY(eg__dnnl_add(state, p, pd, dnnl_query_weights_md, 1, DNNL_ARG_BIAS, NULL));
    EG_TRY(eg__dnnl_add(state, p, pd, dnnl_query_dst_md, 0, DNNL_ARG_DST, NULL));
    return eg__dnnl_pack_with(state, p, pd, dnnl_query_weights_md, d->plain, false);
}

static eg_status build_forward(eg__dnnl_state *state, eg__dnnl_primitive *p)
{
    conv_descs d = {0};
    dnnl_primitive_desc_t pd = NULL;
    eg_status status = describe(&p->key, &d);
    if (status == EG_OK)
        status = forward_desc(state, p, &d, &pd);
    if (status == EG_OK && pd)
        status = add_forward(state, p, &d, pd);
    dnnl_primitive_desc_destroy(pd);
    descs_free(&d);
    return status;
}

static eg_status add_backward(eg__dnnl_state *state, eg__dnnl_primitive *p, const conv_descs *d,
                              const_dnnl_primitive_desc_t pd)
{
    EG_TRY(eg__dnnl_create(state, p, pd));
    EG_TRY(eg__dnnl_add(state, p, pd, dnnl_query_diff_dst_md, 0, DNNL_ARG_DIFF_DST, NULL));
    if (p->key.op == EG__DNNL_CONV_BACKWARD_INPUT) {
        EG_TRY(eg__dnnl_add(state, p, pd, dnnl_query_weights_md, 0, DNNL_ARG_WEIGHTS, NULL));
        EG_TRY(eg__dnnl_add(state, p, pd, dnnl_query_diff_src_md, 0, DNNL_ARG_DIFF_SRC, NULL));
        return eg__dnnl_pack_with(state, p, pd, dnnl_query_weights_md, d->plain, false);
    }
    EG_TRY(eg__dnnl_add(state, p, pd, dnnl_query_src_md, 0, DNNL_ARG_SRC, NULL));
    EG_TRY(eg__dnnl_add(state, p, pd, dnnl_query_diff_weights_md, 0, DNNL_ARG_DIFF_WEIGHTS, NULL));
    EG_TRY(eg__dnnl_add(state, p, pd, dnnl_query_diff_weights_md, 1, DNNL_ARG_DIFF_BIAS, NULL));
    return eg__dnnl_pack_with(state, p, pd, dnnl_query_diff_weights_md, d->plain, true);
}

static eg_status backward_desc(const eg__dnnl_state *state, eg__dnnl_primitive *p, const conv_descs *d,
                               const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd)
{
    dnnl_status_t status;
    if (p->key.op == EG__DNNL_CONV_BACKWARD_INPUT)
        status = dnnl_convolution_backward_data_primitive_desc_create(pd, state->engine, dnnl_convolution_direct, d->x,
                                                                      d->w, d->y, d->stride, d->dilation, d->before,
                                                                      d->after, hint, eg__dnnl_attr(state, p));
    else
        status = dnnl_convolution_backward_weights_primitive_desc_create(
            pd, state->engine, dnnl_convolution_direct, d->x, d->dw, d->b, d->y, d->stride, d->dilation, d->before,
            d->after, hint, eg__dnnl_attr(state, p));
    return eg__dnnl_described(p, status);
}

static eg_status build_backward(eg__dnnl_state *state, eg__dnnl_primitive *p)
{
    conv_descs d = {0};
    dnnl_primitive_desc_t hint = NULL, pd = NULL;
    eg_status status = describe(&p->key, &d);
    if (status == EG_OK)
        status = forward_desc(state, p, &d, &hint);
    if (status == EG_OK && hint)
        status = backward_desc(state, p, &d, hint, &pd);
    if (status == EG_OK && pd)
        status = add_backward(state, p, &d, pd);
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_desc_destroy(hint);
    descs_free(&d);
    return status;
}

static eg__dnnl_key key_of(eg__dnnl_op op, const eg__window *win, const eg_tensor *x, const eg_tensor *w,
                           const eg_tensor *y, bool bias)
{
    eg__dnnl_key key;
    memset(&key, 0, sizeof key);
    key.op = op;
    memcpy(key.x, x->shape.dims, sizeof key.x);
    memcpy(key.w, w->shape.dims, sizeof key.w);
    memcpy(key.y, y->shape.dims, sizeof key.y);
    memcpy(key.stride, win->stride, sizeof key.stride);
    memcpy(key.padding, win->padding, sizeof key.padding);
    memcpy(key.dilation, win->dilation, sizeof key.dilation);
    key.groups = win->groups;
    key.bias = bias;
    key.bf16 = x->dtype == EG_BF16;
    return key;
}

/* In *owned, a row-major copy of a tensor that is not so itself. */
static const eg_tensor *row_major(const eg_tensor *t, eg_tensor **owned)
{
    if (eg__is_row_major(t))
        return t;
    *owned = eg__tensor_new(t->ctx, EG_F32, t->shape, EG_LAYOUT_ROW_MAJOR);
    return *owned && eg__cpu_copy(t, *owned) == EG_OK ? *owned : NULL;
}

/* Who computes what oneDNN does not. */
static const eg_kernels *others(const eg_tensor *x)
{
    return x->dtype == EG_BF16 ? &eg__mixed_kernels : &eg__ref_kernels;
}

/* Activations of one type, weights of float32: what keys and packed weights are made for. */
static bool is_usual(const eg_tensor *x, const eg_tensor *y, const eg_tensor *w, const eg_tensor *b)
{
    return x->dtype == y->dtype && w->dtype == EG_F32 && (!b || b->dtype == EG_F32);
}

/* What oneDNN does not take: nothing to do, or sizes that no convolution has (transposed ones with an output padding of
 * a stride or more do). */
static bool is_odd(const eg__window *win, const eg_tensor *x, const eg_tensor *w, const eg_tensor *y)
{
    bool odd = eg_shape_numel(x->shape) == 0 || eg_shape_numel(w->shape) == 0 || eg_shape_numel(y->shape) == 0;
    for (int i = 0; i < 2; i++) {
        int64_t room = x->shape.dims[2 + i] + 2 * win->padding[i] - win->dilation[i] * (win->kernel[i] - 1) - 1;
        odd = odd || y->shape.dims[2 + i] != room / win->stride[i] + 1;
    }
    return odd;
}

/* A 1x1 kernel with a stride, without padding, sees a part of its input only. We take that part and leave the stride
 * away, for oneDNN's own way of doing so writes out of bounds in backward when channels do not fill a vector (its issue
 * 6035). */
static bool subsamples(const eg__window *win)
{
    return win->kernel[0] == 1 && win->kernel[1] == 1 && win->padding[0] == 0 && win->padding[1] == 0 &&
           (win->stride[0] != 1 || win->stride[1] != 1);
}

static eg__window without_stride(const eg__window *win)
{
    eg__window plain = *win;
    plain.stride[0] = plain.stride[1] = 1;
    return plain;
}

/* The part of x that outputs y are made from. */
static eg_tensor *subsampled(const eg__window *win, const eg_tensor *x, const eg_tensor *y)
{
    eg_shape shape = x->shape;
    int64_t strides[EG_MAX_DIMS];
    memcpy(strides, x->strides, sizeof strides);
    for (int i = 0; i < 2; i++) {
        shape.dims[2 + i] = y->shape.dims[2 + i];
        strides[2 + i] *= win->stride[i];
    }
    return eg__tensor_new_view((eg_tensor *)(uintptr_t)x, shape, strides, x->offset);
}

static bool is_depthwise(const eg__window *win, const eg_tensor *x, const eg_tensor *y)
{
    return win->groups > 1 && win->groups == x->shape.dims[1] && win->groups == y->shape.dims[1];
}

/* On AVX2 without AVX-512 our own sums of filters' gradients are up to twice as fast as oneDNN 2.6's, but for some
 * filters of 1x1. */
static bool prefers_own(void)
{
    return dnnl_get_effective_cpu_isa() == dnnl_cpu_isa_avx2;
}

/* Rows for which our own depthwise gradients are faster: long ones, and those for which oneDNN has no kernel but its
 * dense one, group by group. */
static bool fits_own(const eg_tensor *dy)
{
    return dy->shape.dims[3] >= 12 || dy->shape.dims[3] < 3;
}

static bool is_pointwise(const eg__window *win)
{
    for (int i = 0; i < 2; i++)
        if (win->kernel[i] != 1 || win->stride[i] != 1 || win->padding[i] != 0)
            return false;
    return win->groups == 1;
}

/* Convolutions that our own kernel (cpu/conv_rows.c) runs forward at least as fast as oneDNN 2.6 does on AVX2: 1.1 to
 * 1.4 times on one thread at 16 to 512 channels, on two threads 0.97 times at 16 channels and up to 1.4. Not those with
 * few inputs (0.6 to 0.8 times at 3), narrow images, or output channels of which the last vector is alone while there
 * are few: 0.8 to 0.95 times at 24, 1.3 at 40. */
static bool fits_rows(const eg__window *win, const eg_tensor *x, const eg_tensor *y)
{
    int64_t channels = x->shape.dims[1], out = y->shape.dims[1], width = y->shape.dims[3];
    bool pairs = out > 32 || (out - 1) / 8 % 2 == 1;
    if (!prefers_own() || win->groups != 1 || win->kernel[0] * win->kernel[1] == 1 || channels < 16 || out < 16 ||
        !pairs || width < 4)
        return false;
    int64_t rows = EG_MIN(x->shape.dims[2], (win->kernel[0] - 1) * win->dilation[0] + 1);
    int64_t columns = (width - 1) * win->stride[1] + (win->kernel[1] - 1) * win->dilation[1] + 1;
    return columns <= ROWS_NUMBERS_MAX / rows / channels;
}

static bool is_dilated(const eg__window *win)
{
    return win->dilation[0] != 1 || win->dilation[1] != 1;
}

/* Runs forward or backward to the input, which differ in the names of their arguments only. `keep`: w lives on, and
 * so may its packed copy. */
static eg_status run_with_weight(eg__dnnl_primitive *p, const eg_tensor *in, const eg_tensor *w, bool keep,
                                 const eg_tensor *b, const eg_tensor *out)
{
    bool backward = p->key.op == EG__DNNL_CONV_BACKWARD_INPUT;
    void *packed;
    eg_status status = eg__dnnl_pack(p, w, keep, &packed);
    if (status == EG_OK)
        status = eg__dnnl_set(p, DNNL_ARG_WEIGHTS, packed);
    if (status == EG_OK)
        status = eg__dnnl_set(p, backward ? DNNL_ARG_DIFF_DST : DNNL_ARG_SRC, eg__data(in));
    if (status == EG_OK && b)
        status = eg__dnnl_set(p, DNNL_ARG_BIAS, eg__f32(b));
    if (status == EG_OK)
        status = eg__dnnl_set(p, backward ? DNNL_ARG_DIFF_SRC : DNNL_ARG_DST, eg__data(out));
    if (status == EG_OK)
        status = eg__dnnl_run(in->ctx, p);
    eg__dnnl_unpack(p, w, keep, packed);
    return status;
}

/* The same by our own kernel. */
static eg_status run_rows(const eg__window *win, const eg_tensor *in, const eg_tensor *w, bool turned, bool keep,
                          const eg_tensor *b, eg_tensor *out, bool add)
{
    float *packed = NULL;
    eg_status status = eg__dnnl_pack_rows(w, turned, keep, &packed);
    if (status == EG_OK)
        status = eg__cpu_conv_rows(win, in, packed, b, out, add);
    eg__dnnl_unpack_rows(w, turned, keep, packed);
    return status;
}

static eg_status forward(const eg__window *win, const eg_tensor *x, const eg_tensor *w, bool keep, const eg_tensor *b,
                         eg_tensor *y)
{
    if (fits_rows(win, x, y))
        return run_rows(win, x, w, false, keep, b, y, false);
    eg__dnnl_primitive *p;
    eg__dnnl_key key = key_of(EG__DNNL_CONV, win, x, w, y, b != NULL);
    EG_TRY(eg__dnnl_get(x->ctx, &key, build_forward, &p));
    return p->unsupported ? others(x)->conv2d(win, x, w, b, y) : run_with_weight(p, x, w, keep, b, y);
}

eg_status eg__dnnl_conv2d(const eg__window *win, const eg_tensor *x, const eg_tensor *w, const eg_tensor *b,
                          eg_tensor *y)
{
    if (!is_usual(x, y, w, b))
        return eg__mixed_kernels.conv2d(win, x, w, b, y);
    if (is_odd(win, x, w, y))
        return others(x)->conv2d(win, x, w, b, y);
    if (subsamples(win)) {
        eg__window plain = without_stride(win);
        eg_tensor *part = subsampled(win, x, y);
        eg_status status = part ? eg__dnnl_conv2d(&plain, part, w, b, y) : EG_ENOMEM;
        eg_tensor_release(part);
        return status;
    }
    eg_tensor *owned[4] = {NULL, NULL, NULL, NULL};
    x = eg__in_channels_last(x, &owned[0]);
    w = row_major(w, &owned[1]);
    const eg_tensor *bias = b ? row_major(b, &owned[2]) : NULL;
    eg_tensor *out = eg__out_channels_last(y, &owned[3]);
    eg_status status = EG_ENOMEM;
    if (x && w && out && (bias || !b))
        status = forward(win, x, w, !owned[1] && w->storage->id > 0, bias, out);
    for (int i = 0; i < 3; i++)
        eg_tensor_release(owned[i]);
    return eg__out_finish(status, y, owned[3]);
}

/* Whether the gradient of the input is a convolution of dy with the filters turned around, and which. For depthwise
 * oneDNN has one kernel for all dilations, which is faster than its backward and can add to what is there. */
static bool turns(const eg__window *win, eg__window *turned)
{
    bool can = true;
    *turned = *win;
    for (int i = 0; i < 2; i++) {
        turned->padding[i] = win->dilation[i] * (win->kernel[i] - 1) - win->padding[i];
        can = can && win->stride[i] == 1 && turned->padding[i] >= 0;
    }
    return can;
}

static eg_status turned_filters(const eg__window *win, const eg_tensor *w, eg_tensor **turned)
{
    *turned = eg__tensor_new(w->ctx, EG_F32, w->shape, EG_LAYOUT_ROW_MAJOR);
    if (!*turned)
        return EG_ENOMEM;
    int64_t taps = win->kernel[0] * win->kernel[1], channels = w->shape.dims[0];
    const float *from = eg__f32(w);
    float *to = eg__f32(*turned);
    for (int64_t c = 0; c < channels; c++)
        for (int64_t t = 0; t < taps; t++)
            to[c * taps + t] = from[c * taps + taps - 1 - t];
    return EG_OK;
}

/* *done stays false where oneDNN has no such kernel. */
static eg_status backward_turned(const eg__window *turned, const eg_tensor *w, const eg_tensor *dy, eg_tensor *dx,
                                 bool add, bool *done)
{
    eg__dnnl_primitive *p;
    eg__dnnl_key key = key_of(EG__DNNL_CONV, turned, dy, w, dx, false);
    key.add = add;
    EG_TRY(eg__dnnl_get(dx->ctx, &key, build_forward, &p));
    *done = !p->unsupported;
    if (p->unsupported)
        return EG_OK;
    eg_tensor *filters;
    eg_status status = turned_filters(turned, w, &filters);
    if (status == EG_OK)
        status = run_with_weight(p, dy, filters, false, NULL, dx);
    eg_tensor_release(filters);
    return status;
}

static eg_status backward_plain(const eg__window *win, const eg_tensor *w, bool keep, const eg_tensor *dy,
                                eg_tensor *dx)
{
    eg__dnnl_primitive *p;
    eg__dnnl_key key = key_of(EG__DNNL_CONV_BACKWARD_INPUT, win, dx, w, dy, false);
    EG_TRY(eg__dnnl_get(dx->ctx, &key, build_backward, &p));
    return p->unsupported ? others(dy)->conv2d_backward_input(win, w, dy, dx, false)
                          : run_with_weight(p, dy, w, keep, NULL, dx);
}

/* All lies as oneDNN wants it. */
static eg_status backward_input(const eg__window *win, const eg_tensor *w, bool keep, const eg_tensor *dy,
                                eg_tensor *dx, bool add)
{
    bool done = false;
    eg__window turned;
    bool can_turn = turns(win, &turned);
    /* oneDNN's own backward is faster at 16 channels (1.1 times), but does not add. */
    bool many = EG_MIN(w->shape.dims[0], w->shape.dims[1]) >= 32;
    if (can_turn && (add || many) && fits_rows(&turned, dy, dx))
        return run_rows(&turned, dy, w, true, keep, NULL, dx, add);
    if (can_turn && is_depthwise(win, dx, dy))
        EG_TRY(backward_turned(&turned, w, dy, dx, add, &done));
    if (done)
        return EG_OK;
    if (is_depthwise(win, dx, dy) && (is_dilated(win) || (prefers_own() && dy->dtype == EG_F32)))
        return dy->dtype == EG_BF16 ? eg__mixed_kernels.conv2d_backward_input(win, w, dy, dx, add)
                                    : eg__cpu_depthwise_backward_input(win, w, dy, dx, add);
    eg_tensor *written = eg__add_begin(dx, add);
    eg_status status = written ? backward_plain(win, w, keep, dy, written) : EG_ENOMEM;
    return eg__add_finish(eg__kernels(dx->ctx, dx->dtype), status, written, dx);
}

/* A 1x1 kernel with a stride: what it does not see has no gradient. */
static eg_status backward_subsampled(const eg__window *win, const eg_tensor *w, const eg_tensor *dy, eg_tensor *dx,
                                     bool add)
{
    eg__window plain = without_stride(win);
    eg_tensor *part = subsampled(win, dx, dy);
    eg_status status = !part ? EG_ENOMEM : add ? EG_OK : eg__kernels(dx->ctx, dx->dtype)->fill(dx, 0);
    if (status == EG_OK)
        status = eg__dnnl_conv2d_backward_input(&plain, w, dy, part, add);
    eg_tensor_release(part);
    return status;
}

eg_status eg__dnnl_conv2d_backward_input(const eg__window *win, const eg_tensor *w, const eg_tensor *dy, eg_tensor *dx,
                                         bool add)
{
    if (!is_usual(dy, dx, w, NULL))
        return eg__mixed_kernels.conv2d_backward_input(win, w, dy, dx, add);
    if (is_odd(win, dx, w, dy))
        return others(dy)->conv2d_backward_input(win, w, dy, dx, add);
    if (subsamples(win))
        return backward_subsampled(win, w, dy, dx, add);
    if (add && !eg__is_channels_last(dx)) {
        eg_tensor *written = eg__add_begin(dx, add);
        eg_status status = written ? eg__dnnl_conv2d_backward_input(win, w, dy, written, false) : EG_ENOMEM;
        return eg__add_finish(eg__kernels(dx->ctx, dx->dtype), status, written, dx);
    }
    eg_tensor *owned[3] = {NULL, NULL, NULL};
    w = row_major(w, &owned[0]);
    dy = eg__in_channels_last(dy, &owned[1]);
    eg_tensor *out = eg__out_channels_last(dx, &owned[2]);
    bool keep = w && !owned[0] && w->storage->id > 0;
    eg_status status = w && dy && out ? backward_input(win, w, keep, dy, out, add) : EG_ENOMEM;
    eg_tensor_release(owned[0]);
    eg_tensor_release(owned[1]);
    return eg__out_finish(status, dx, owned[2]);
}

/* ---- backward to weight and bias ---- */

static eg_status run_weight(eg__dnnl_primitive *p, const eg_tensor *x, const eg_tensor *dy, float *packed, float *db)
{
    EG_TRY(eg__dnnl_set(p, DNNL_ARG_SRC, eg__data(x)));
    EG_TRY(eg__dnnl_set(p, DNNL_ARG_DIFF_DST, eg__data(dy)));
    EG_TRY(eg__dnnl_set(p, DNNL_ARG_DIFF_WEIGHTS, packed));
    EG_TRY(eg__dnnl_set(p, DNNL_ARG_DIFF_BIAS, db));
    return eg__dnnl_run(x->ctx, p);
}

/* The bias alone: the sum over samples and positions. */
static eg_status bias_gradient(const eg_tensor *dy, eg_tensor *db)
{
    int64_t channels = dy->shape.dims[1], strides[EG_MAX_DIMS] = {0, db->strides[0], 0, 0};
    eg_tensor *view = eg__tensor_new_view(db, EG_SHAPE(1, channels, 1, 1), strides, db->offset);
    if (!view)
        return EG_ENOMEM;
    eg_status status = eg__kernels(dy->ctx, dy->dtype)->reduce(EG__SUM, dy, view, NULL);
    eg_tensor_release(view);
    return status;
}

/* dw row-major, db dense or NULL */
static eg_status backward_weight(const eg__window *win, const eg_tensor *x, const eg_tensor *dy, eg_tensor *dw,
                                 eg_tensor *db)
{
    bool own = prefers_own() && x->dtype == EG_F32;
    if (is_depthwise(win, x, dy) && (is_dilated(win) || win->kernel[0] * win->kernel[1] > 9 || (own && fits_own(dy)))) {
        if (x->dtype == EG_BF16)
            return eg__mixed_kernels.conv2d_backward_weight(win, x, dy, dw, db);
        EG_TRY(eg__cpu_depthwise_backward_weight(win, x, dy, dw));
        return db ? bias_gradient(dy, db) : EG_OK;
    }
    if (own && win->groups == 1 && win->kernel[0] * win->kernel[1] > 1 &&
        eg_shape_numel(dw->shape) <= OWN_FILTERS_MAX) {
        EG_TRY(eg__cpu_conv_backward_weight(win, x, dy, dw));
        return db ? bias_gradient(dy, db) : EG_OK;
    }
    if (own && is_pointwise(win) && eg__pointwise_weight_fits(x, dy, db != NULL) &&
        eg_shape_numel(dw->shape) <= OWN_FILTERS_MAX) {
        EG_TRY(eg__cpu_pointwise_backward_weight(x, dy, dw));
        return db ? bias_gradient(dy, db) : EG_OK;
    }
    eg__dnnl_primitive *p;
    eg__dnnl_key key = key_of(EG__DNNL_CONV_BACKWARD_WEIGHT, win, x, dw, dy, db != NULL);
    EG_TRY(eg__dnnl_get(x->ctx, &key, build_backward, &p));
    if (p->unsupported)
        return others(x)->conv2d_backward_weight(win, x, dy, dw, db);
    float *bias = db ? eg__f32(db) : NULL;
    if (!p->reorder)
        return run_weight(p, x, dy, eg__f32(dw), bias);
    float *packed = eg__pool_take(x->ctx, p->weight_bytes);
    if (!packed)
        return EG_ENOMEM;
    eg_status status = run_weight(p, x, dy, packed, bias);
    if (status == EG_OK)
        status = eg__dnnl_reorder(x->ctx, p, packed, eg__f32(dw));
    eg__pool_give(x->ctx, packed, p->weight_bytes);
    return status;
}

eg_status eg__dnnl_conv2d_backward_weight(const eg__window *win, const eg_tensor *x, const eg_tensor *dy, eg_tensor *dw,
                                          eg_tensor *db)
{
    if (!dw)
        return db ? bias_gradient(dy, db) : EG_OK;
    if (!is_usual(x, dy, dw, db))
        return eg__mixed_kernels.conv2d_backward_weight(win, x, dy, dw, db);
    if (is_odd(win, x, dw, dy) || (db && !eg__is_dense(db)))
        return others(x)->conv2d_backward_weight(win, x, dy, dw, db);
    if (subsamples(win)) {
        eg__window plain = without_stride(win);
        eg_tensor *part = subsampled(win, x, dy);
        eg_status status = part ? eg__dnnl_conv2d_backward_weight(&plain, part, dy, dw, db) : EG_ENOMEM;
        eg_tensor_release(part);
        return status;
    }
    eg_tensor *owned[3] = {NULL, NULL, NULL};
    x = eg__in_channels_last(x, &owned[0]);
    dy = eg__in_channels_last(dy, &owned[1]);
    eg_tensor *out = dw;
    if (!eg__is_row_major(dw))
        out = owned[2] = eg__tensor_new(dw->ctx, EG_F32, dw->shape, EG_LAYOUT_ROW_MAJOR);
    eg_status status = x && dy && out ? backward_weight(win, x, dy, out, db) : EG_ENOMEM;
    eg_tensor_release(owned[0]);
    eg_tensor_release(owned[1]);
    return eg__out_finish(status, dw, owned[2]);
}

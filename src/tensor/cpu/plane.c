/*
 * tensor/cpu/plane.c - where the taps of a window meet a channels-last image.
 */
#include "tensor/cpu/plane.h"

static eg__span span_of(const eg__plane *p, int d, int64_t tap)
{
    int64_t shift = tap * p->win->dilation[d] - p->win->padding[d], stride = p->win->stride[d];
    eg__span s = {.first = shift};
    s.begin = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
    s.end = p->in[d] - 1 - shift < 0 ? 0 : EG_MIN(p->out[d], (p->in[d] - 1 - shift) / stride + 1);
    return s;
}

eg_status eg__plane_make(eg__plane *plane, const eg__window *win, const eg_tensor *x, const eg_tensor *y)
{
    const int64_t *in = x->shape.dims, *out = y->shape.dims;
    *plane = (eg__plane){.win = win,
                         .channels = in[1],
                         .in = {in[2], in[3]},
                         .out = {out[2], out[3]},
                         .ctx = x->ctx,
                         .bytes = (size_t)(win->kernel[0] + win->kernel[1]) * sizeof(eg__span)};
    plane->rows = eg__pool_take(x->ctx, plane->bytes);
    if (!plane->rows)
        return EG_ENOMEM;
    plane->columns = plane->rows + win->kernel[0];
    for (int64_t kh = 0; kh < win->kernel[0]; kh++)
        plane->rows[kh] = span_of(plane, 0, kh);
    for (int64_t kw = 0; kw < win->kernel[1]; kw++)
        plane->columns[kw] = span_of(plane, 1, kw);
    return EG_OK;
}

void eg__plane_free(eg__plane *plane)
{
    if (plane->rows)
        eg__pool_give(plane->ctx, plane->rows, plane->bytes);
}

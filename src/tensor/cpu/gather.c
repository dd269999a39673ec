/*
 * tensor/cpu/gather.c - which taps of a window meet a target, and in which sources.
 */
#include "tensor/cpu/gather.h"

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The source that `tap` meets at target i of dimension d, or -1. */
static int64_t source_of(const eg__gather *g, const eg__window *win, int d, bool backward, int64_t i, int64_t tap)
{
    int64_t shift = tap * win->dilation[d] - win->padding[d], at = i * win->stride[d] + shift;
    if (backward) {
        if (i < shift || (i - shift) % win->stride[d] != 0)
            return -1;
        at = (i - shift) / win->stride[d];
    }
    return at < g->from[d] ? at : -1;
}

static eg__run run_of(const eg__gather *g, const eg__window *win, int d, bool backward, int64_t i)
{
    eg__run run = {.begin = i, .n = 1};
    for (int64_t tap = 0; tap < win->kernel[d]; tap++) {
        int64_t source = source_of(g, win, d, backward, i, tap);
        if (source < 0)
            continue;
        if (run.count == 0) {
            run.tap = tap;
            run.first = source;
        }
        run.count++;
    }
    return run;
}

static bool same_shares(const eg__gather *g, bool backward, const eg__run *a, const eg__run *b, const float *share)
{
    if (!share || !backward)
        return !share || share[a->begin] == share[b->begin];
    for (int64_t t = 0; t < a->count; t++)
        if (share[a->first + t * g->step[1]] != share[b->first + t * g->step[1]])
            return false;
    return true;
}

static bool continues(const eg__gather *g, bool backward, const eg__run *a, const eg__run *b, const float *share)
{
    if (a->begin + a->n * g->to_step != b->begin || a->tap != b->tap || a->count != b->count)
        return false;
    return a->count == 0 || (a->first + a->n * g->from_step == b->first && same_shares(g, backward, a, b, share));
}

/* Adds column i to the run that it continues, or begins a new one. */
static void add_column(eg__gather *g, const eg__window *win, bool backward, int64_t i, const float *share)
{
    eg__run run = run_of(g, win, 1, backward, i);
    for (int64_t c = 0; c < g->n_columns; c++)
        if (continues(g, backward, &g->columns[c], &run, share)) {
            g->columns[c].n++;
            return;
        }
    g->columns[g->n_columns++] = run;
}

eg_status eg__gather_make(eg__gather *g, const eg__window *win, const eg_tensor *x, const eg_tensor *y, bool backward,
                          const float *share)
{
    const eg_tensor *to = backward ? x : y, *from = backward ? y : x;
    *g = (eg__gather){.channels = x->shape.dims[1], .ctx = x->ctx};
    for (int d = 0; d < 2; d++) {
        int64_t common = common_divisor(win->stride[d], win->dilation[d]);
        g->kernel[d] = win->kernel[d];
        g->to[d] = to->shape.dims[2 + d];
        g->from[d] = from->shape.dims[2 + d];
        g->tap_step[d] = backward ? win->stride[d] / common : 1;
        g->step[d] = backward ? -win->dilation[d] / common : win->dilation[d];
    }
    g->bytes = (size_t)(g->to[0] + g->to[1]) * sizeof(eg__run);
    g->rows = eg__pool_take(x->ctx, g->bytes);
    if (!g->rows)
        return EG_ENOMEM;
    g->columns = g->rows + g->to[0];
    for (int64_t i = 0; i < g->to[0]; i++)
        g->rows[i] = run_of(g, win, 0, backward, i);
    g->to_step = backward ? win->stride[1] : 1;
    g->from_step = backward ? 1 : win->stride[1];
    for (int64_t i = 0; i < g->to[1]; i++)
        add_column(g, win, backward, i, share);
    return EG_OK;
}

void eg__gather_free(eg__gather *g)
{
    if (g->rows)
        eg__pool_give(g->ctx, g->rows, g->bytes);
}

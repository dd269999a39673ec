/*
 * tensor/cpu/norm_add.c - a term of a mixed edge: y = sum + weight * norm(x), and back.
 *
 * What the norm gives is never stored. Both directions go twice over x, which is still in the cache the second time for
 * all but the largest tensors: forward for its statistics and for y; backward for the sums, per channel, that all
 * gradients are made of, and for dx, which may lie where x was.
 */
#include "tensor/cpu/norm.h"

#include <math.h>

static void set_factors(eg__norm_work *w, const eg__norm_term *t)
{
    for (int64_t c = 0; c < w->channels; c++) {
        double deviation = sqrt((double)eg__channel_of(t->var, c, 1) + t->eps);
        w->mean[c] = eg__channel_of(t->mean, c, 0);
        w->scale[c] = (float)(t->weight * (double)eg__channel_of(t->gamma, c, 1) / deviation);
        w->shift[c] = (float)(t->weight * (double)eg__channel_of(t->beta, c, 0));
    }
    eg__norm_repeat(w, w->mean);
    eg__norm_repeat(w, w->scale);
    eg__norm_repeat(w, w->shift);
}

static bool lie_alike(const eg_tensor *x, const eg_tensor *a, const eg_tensor *b)
{
    return eg_shape_numel(x->shape) > 0 && eg__in_rows(x) && (!a || eg__same_strides(a, x)) &&
           (!b || eg__same_strides(b, x));
}

eg_status eg__cpu_norm_add(const eg__norm_term *t, const eg_tensor *sum, eg_tensor *y)
{
    if (!lie_alike(t->x, sum, y))
        return eg__ref_kernels.norm_add(t, sum, y);
    eg__norm_work w;
    EG_TRY(eg__norm_work_make(&w, t->x, true));
    eg__norm_batch_statistics(&w, t->mean, t->var);
    set_factors(&w, t);
    w.sum = sum ? eg__f32(sum) : NULL;
    w.y = eg__f32(y);
    eg__for_each(w.ctx, w.blocks, w.rows * w.channels, eg__norm_normalize, &w);
    eg__norm_work_free(&w);
    return EG_OK;
}

/* Gradients of the weight (returned), gamma and beta; and the factors of dx. */
static double set_gradients(eg__norm_work *w, const eg__norm_term *t, eg_tensor *dgamma, eg_tensor *dbeta)
{
    double all_products[EG__NORM_JOINED], all_plain[EG__NORM_JOINED], dweight = 0, n = (double)w->rows;
    for (int64_t c = 0; c < w->channels; c++) {
        if (c % EG__NORM_JOINED == 0)
            eg__norm_gradient_sums(w, c, all_products, all_plain);
        double products = all_products[c % EG__NORM_JOINED], plain = all_plain[c % EG__NORM_JOINED];
        double variance = (double)eg__channel_of(t->var, c, 1) + t->eps;
        double normalized = products / sqrt(variance);
        dweight += (double)eg__channel_of(t->gamma, c, 1) * normalized + (double)eg__channel_of(t->beta, c, 0) * plain;
        if (dgamma)
            eg__f32(dgamma)[c * dgamma->strides[0]] = (float)(t->weight * normalized);
        if (dbeta)
            eg__f32(dbeta)[c * dbeta->strides[0]] = (float)(t->weight * plain);
        w->back[c] = (float)((double)w->scale[c] * products / (variance * n));
        w->lift[c] = (float)((double)w->scale[c] * plain / n);
    }
    eg__norm_repeat(w, w->back);
    eg__norm_repeat(w, w->lift);
    return dweight;
}

eg_status eg__cpu_norm_add_backward(const eg__norm_term *t, const eg_tensor *dy, eg_tensor *dx, eg_tensor *dgamma,
                                    eg_tensor *dbeta, double *dweight)
{
    if (!lie_alike(t->x, dy, dx))
        return eg__ref_kernels.norm_add_backward(t, dy, dx, dgamma, dbeta, dweight);
    eg__norm_work w;
    EG_TRY(eg__norm_work_make(&w, t->x, true));
    w.dy = eg__f32(dy);
    set_factors(&w, t);
    eg__for_each(w.ctx, w.blocks, w.rows * w.channels, eg__norm_gradients, &w);
    *dweight = set_gradients(&w, t, dgamma, dbeta);
    if (dx) {
        w.y = eg__f32(dx);
        eg__for_each(w.ctx, w.blocks, w.rows * w.channels, eg__norm_input_gradient, &w);
    }
    eg__norm_work_free(&w);
    return EG_OK;
}

/*
 * tensor/cpu/rnn.c - the gates of LSTM and GRU, all of a step in one pass forward and one backward.
 */
#include "tensor/cpu/cpu.h"
#include "tensor/cpu/vmath.h"

/* One sample's numbers; h units. Parts of gates and of recurrent follow one another, h apart. */
typedef struct step_row {
    int64_t h;
    float *gates;                       /* forward: in and out */
    const float *recurrent, *before;    /* forward */
    float *cell, *out;                  /* forward */
    const float *dy, *through;          /* backward; dy may be NULL */
    float *carry, *dgates, *drecurrent; /* backward */
} step_row;

EG__CLONES static void lstm_row(const step_row *w)
{
    int64_t h = w->h;
    float *restrict gates = w->gates, *restrict cell = w->cell, *restrict out = w->out;
    const float *restrict rec = w->recurrent, *restrict before = w->before;
#pragma omp simd
    for (int64_t j = 0; j < h; j++) {
        float i = eg__sigmoidf(gates[j] + rec[j]), f = eg__sigmoidf(gates[h + j] + rec[h + j]);
        float g = eg__tanhf(gates[2 * h + j] + rec[2 * h + j]), o = eg__sigmoidf(gates[3 * h + j] + rec[3 * h + j]);
        float c = f * before[j] + i * g;
        gates[j] = i;
        gates[h + j] = f;
        gates[2 * h + j] = g;
        gates[3 * h + j] = o;
        cell[j] = c;
        out[j] = o * eg__tanhf(c);
    }
}

EG__CLONES static void gru_row(const step_row *w)
{
    int64_t h = w->h;
    float *restrict gates = w->gates, *restrict out = w->out;
    const float *restrict rec = w->recurrent, *restrict before = w->before;
#pragma omp simd
    for (int64_t j = 0; j < h; j++) {
        float r = eg__sigmoidf(gates[j] + rec[j]), z = eg__sigmoidf(gates[h + j] + rec[h + j]), own = rec[2 * h + j];
        float n = eg__tanhf(gates[2 * h + j] + r * own);
        gates[j] = r;
        gates[h + j] = z;
        gates[2 * h + j] = n;
        gates[3 * h + j] = own;
        out[j] = (1.0f - z) * n + z * before[j];
    }
}

EG__CLONES static void lstm_row_backward(const step_row *w)
{
    int64_t h = w->h;
    const float *restrict gates = w->gates, *restrict cell = w->cell, *restrict before = w->before;
    const float *restrict through = w->through, *restrict dy = w->dy ? w->dy : w->through;
    float *restrict carry = w->carry, *restrict dgates = w->dgates, with_dy = w->dy ? 1.0f : 0.0f;
#pragma omp simd
    for (int64_t j = 0; j < h; j++) {
        float i = gates[j], f = gates[h + j], g = gates[2 * h + j], o = gates[3 * h + j], y = eg__tanhf(cell[j]);
        float d = through[j] + with_dy * dy[j], dc = carry[j] + d * o * (1.0f - y * y);
        dgates[j] = dc * g * i * (1.0f - i);
        dgates[h + j] = dc * before[j] * f * (1.0f - f);
        dgates[2 * h + j] = dc * i * (1.0f - g * g);
        dgates[3 * h + j] = d * y * o * (1.0f - o);
        carry[j] = dc * f;
    }
}

EG__CLONES static void gru_row_backward(const step_row *w)
{
    int64_t h = w->h;
    const float *restrict gates = w->gates, *restrict before = w->before;
    const float *restrict through = w->through, *restrict dy = w->dy ? w->dy : w->through;
    float *restrict carry = w->carry, *restrict dgates = w->dgates, *restrict drec = w->drecurrent;
    float with_dy = w->dy ? 1.0f : 0.0f;
#pragma omp simd
    for (int64_t j = 0; j < h; j++) {
        float r = gates[j], z = gates[h + j], n = gates[2 * h + j], own = gates[3 * h + j];
        float d = through[j] + carry[j] + with_dy * dy[j], dn = d * (1.0f - z) * (1.0f - n * n);
        float dr = dn * own * r * (1.0f - r), dz = d * (before[j] - n) * z * (1.0f - z);
        dgates[j] = dr;
        dgates[h + j] = dz;
        dgates[2 * h + j] = dn;
        drec[j] = dr;
        drec[h + j] = dz;
        drec[2 * h + j] = dn * r;
        carry[j] = d * z;
    }
}

/* ---- all samples ---- */

typedef struct step_work {
    void (*row)(const step_row *);
    int64_t h;
    /* absent ones are NULL */
    const eg_tensor *gates, *recurrent, *before, *cell, *out, *dy, *through, *carry, *dgates, *drecurrent;
} step_work;

static float *row_of(const eg_tensor *t, int64_t i)
{
    return t ? eg__f32(t) + i * t->strides[0] : NULL;
}

static void step_rows(void *arg, int64_t begin, int64_t end)
{
    const step_work *w = arg;
    for (int64_t i = begin; i < end; i++)
        w->row(&(step_row){.h = w->h,
                           .gates = row_of(w->gates, i),
                           .recurrent = row_of(w->recurrent, i),
                           .before = row_of(w->before, i),
                           .cell = row_of(w->cell, i),
                           .out = row_of(w->out, i),
                           .dy = row_of(w->dy, i),
                           .through = row_of(w->through, i),
                           .carry = row_of(w->carry, i),
                           .dgates = row_of(w->dgates, i),
                           .drecurrent = row_of(w->drecurrent, i)});
}

static bool has_plain_rows(const eg_tensor *t)
{
    return !t || t->strides[1] == 1 || t->shape.dims[1] == 1;
}

/* False when some operand's rows are not contiguous. */
static bool run_step(const step_work *w)
{
    if (!has_plain_rows(w->gates) || !has_plain_rows(w->recurrent) || !has_plain_rows(w->before) ||
        !has_plain_rows(w->cell) || !has_plain_rows(w->out) || !has_plain_rows(w->dy) || !has_plain_rows(w->through) ||
        !has_plain_rows(w->carry) || !has_plain_rows(w->dgates) || !has_plain_rows(w->drecurrent))
        return false;
    int64_t n = w->gates->shape.dims[0];
    eg__for_each(w->gates->ctx, n, n * w->h * 16, step_rows,
                 (void *)(uintptr_t)w); /* an exponential is some ten sums */
    return true;
}

eg_status eg__cpu_rnn_step(eg__rnn kind, const eg_tensor *recurrent, eg_tensor *gates, const eg_tensor *before,
                           eg_tensor *cell, eg_tensor *h)
{
    step_work w = {.row = kind == EG__LSTM ? lstm_row : gru_row,
                   .h = h->shape.dims[1],
                   .gates = gates,
                   .recurrent = recurrent,
                   .before = before,
                   .cell = cell,
                   .out = h};
    return run_step(&w) ? EG_OK : eg__ref_kernels.rnn_step(kind, recurrent, gates, before, cell, h);
}

eg_status eg__cpu_rnn_step_backward(eg__rnn kind, const eg_tensor *gates, const eg_tensor *before,
                                    const eg_tensor *cell, const eg_tensor *dy, const eg_tensor *through,
                                    eg_tensor *carry, eg_tensor *dgates, eg_tensor *drecurrent)
{
    step_work w = {.row = kind == EG__LSTM ? lstm_row_backward : gru_row_backward,
                   .h = carry->shape.dims[1],
                   .gates = gates,
                   .before = before,
                   .cell = cell,
                   .dy = dy,
                   .through = through,
                   .carry = carry,
                   .dgates = dgates,
                   .drecurrent = drecurrent};
    return run_step(&w)
               ? EG_OK
               : eg__ref_kernels.rnn_step_backward(kind, gates, before, cell, dy, through, carry, dgates, drecurrent);
}

/*
 * tensor/cpu/rows.h - tensors whose channels are innermost in memory, as rows of C numbers.
 *
 * With few channels a row is shorter than a vector register likes, so loops run over "long rows": as many rows side by
 * side as make at least 64 numbers, with per-channel factors repeated. Sums go over blocks of rows of a fixed size;
 * the blocks' results are joined in order, in double.
 */
#ifndef EG_TENSOR_CPU_ROWS_H
#define EG_TENSOR_CPU_ROWS_H

#include "tensor/cpu/cpu.h"

typedef struct eg__rows {
    eg_context *ctx;
    int64_t n, channels; /* n rows */
    int64_t width;         /* of a long row, a multiple of channels */
    int64_t block, blocks; /* rows a block (a multiple of those in a long row), number of blocks */
} eg__rows;

/** Of a tensor for which eg__in_rows() holds, with one element or more. */
eg__rows eg__rows_of(const eg_tensor *x);
/** Channels (dimension 1) are innermost, without gaps. */
bool eg__in_rows(const eg_tensor *x);

/** Rows in block b: the last one may have fewer. */
static inline int64_t eg__rows_in_block(const eg__rows *r, int64_t b)
{
    return EG_MIN(r->block, r->n - b * r->block);
}

/** Fills a line of `width` numbers from its first `channels`. */
static inline void eg__rows_repeat(const eg__rows *r, float *line)
{
    for (int64_t i = r->channels; i < r->width; i++)
        line[i] = line[i - r->channels];
}

/** A channel's sum over the repeats of a long row. */
static inline double eg__rows_fold(const eg__rows *r, const float *line, int64_t channel)
{
    double sum = 0;
    for (int64_t i = channel; i < r->width; i += r->channels)
        sum += (double)line[i];
    return sum;
}

/** Entry c of a vector of channels, `absent` where there is none. */
static inline float eg__channel_of(const eg_tensor *t, int64_t c, float absent)
{
    return t ? eg__f32(t)[c * t->strides[0]] : absent;
}

/** Mean and biased variance of each channel of what lies in rows. */
eg_status eg__cpu_batch_statistics(const eg_tensor *x, eg_tensor *mean, eg_tensor *var);

#endif

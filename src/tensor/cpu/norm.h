/*
 * tensor/cpu/norm.h - normalization of rows of channels, in pieces: batch normalization runs them over a whole tensor,
 * group normalization over each sample.
 */
#ifndef EG_TENSOR_CPU_NORM_H
#define EG_TENSOR_CPU_NORM_H

#include "tensor/cpu/cpu.h"

/** Per-channel factors, each repeated over a long row: y = (x - mean) * scale + shift. */
typedef struct eg__norm_work {
    int64_t rows, channels, repeat, width; /* width = channels * repeat */
    int64_t block, blocks;                 /* rows a block (a multiple of repeat), number of blocks */
    bool relu;
    float low, high; /* what is between passes the ReLU as it is; all, where there is none */
    const float *x, *dy;
    const float *sum;            /* what y is added to; NULL: nothing. It may be y */
    float *y;                    /* or dx */
    float *mean, *scale, *shift; /* [width] */
    float *back, *lift;          /* [width] backward: dx = scale dy - (x - mean) back - lift */
    float *partial;              /* [blocks][2][width] */
    void *memory;
    size_t bytes;
    eg_context *ctx;
} eg__norm_work;

/** Sets the sizes and returns how many numbers eg__norm_place() needs; `sums`: those of partial too. */
size_t eg__norm_plan(eg__norm_work *w, int64_t rows, int64_t channels, bool sums);
void eg__norm_place(eg__norm_work *w, float *memory);

/** Channels (dimension 1) are innermost in memory, without gaps. */
bool eg__in_rows(const eg_tensor *x);
/** Plans for all of x, which lies in rows, with memory for eg__norm_work_free(). */
eg_status eg__norm_work_make(eg__norm_work *w, const eg_tensor *x, bool sums);
void eg__norm_work_free(eg__norm_work *w);
/** Mean and biased variance of each channel; w has room for sums. */
void eg__norm_batch_statistics(eg__norm_work *w, eg_tensor *mean, eg_tensor *var);

/** Entry c of a vector of channels, `absent` where there is none. */
static inline float eg__channel_of(const eg_tensor *t, int64_t c, float absent)
{
    return t ? eg__f32(t)[c * t->strides[0]] : absent;
}

/** Repeats the numbers of the channels over the whole long row. */
void eg__norm_repeat(const eg__norm_work *w, float *line);
/** Adds up the repeats of a long row, and all that a shorter last long row left at zero. */
double eg__norm_fold(const eg__norm_work *w, const float *line, int64_t channel);
int64_t eg__norm_block_rows(const eg__norm_work *w, int64_t b);
/** The sums that eg__norm_gradients() left, of channels first .. over all blocks and repeats. */
#define EG__NORM_JOINED 16
void eg__norm_gradient_sums(const eg__norm_work *w, int64_t first, double scaled[EG__NORM_JOINED],
                            double plain[EG__NORM_JOINED]);

/* Bodies over blocks; `arg` is an eg__norm_work. */
/** partial[b] = {the block's mean, squares around it}; the mean is repeated, the squares are not folded yet. */
void eg__norm_statistics(void *arg, int64_t begin, int64_t end);
/** y from x and the factors. */
void eg__norm_normalize(void *arg, int64_t begin, int64_t end);
/** partial[b] = {sums of dy (x - mean), sums of dy}, not folded yet. */
void eg__norm_gradients(void *arg, int64_t begin, int64_t end);
/** dx (in y) from x, dy and the factors. */
void eg__norm_input_gradient(void *arg, int64_t begin, int64_t end);

/** Group normalization of (N, C, 1), row-major: as in the table. */
eg_status eg__cpu_layer_norm(const eg__group_norm *, const eg_tensor *x, const eg_tensor *gamma, const eg_tensor *beta,
                             eg_tensor *mean, eg_tensor *rstd, eg_tensor *y);
eg_status eg__cpu_layer_norm_backward(const eg__group_norm *, const eg_tensor *x, const eg_tensor *gamma,
                                      const eg_tensor *mean, const eg_tensor *rstd, const eg_tensor *dy, eg_tensor *dx,
                                      eg_tensor *dgamma, eg_tensor *dbeta);

#endif

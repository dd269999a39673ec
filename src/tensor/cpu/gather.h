/*
 * tensor/cpu/gather.h - windows on channels-last images, seen from the numbers they give: forward an output gathers
 * inputs, backward an input gathers outputs. Nothing is scattered, so sums stay in registers, each target is written
 * once, and all rows of all samples are work of their own.
 */
#ifndef EG_TENSOR_CPU_GATHER_H
#define EG_TENSOR_CPU_GATHER_H

#include "tensor/cpu/cpu.h"

/** n targets, the first one at `begin`, that the same taps meet: rows, or columns `to_step` apart, whose sources lie
 *  `from_step` apart. */
typedef struct eg__run {
    int64_t begin, n;
    int64_t tap, count, first; /* the first tap, how many there are, and the source the first meets at `begin` */
} eg__run;

typedef struct eg__gather {
    int64_t channels, kernel[2], to[2], from[2];
    int64_t tap_step[2], step[2]; /* from one tap to the next: among the taps, and in the source */
    int64_t n_columns, to_step, from_step;
    eg__run *rows, *columns; /* one for each target row; n_columns */
    eg_context *ctx;
    size_t bytes;
} eg__gather;

/** x is the window's large side, y the small one. `share` (may be NULL) has a number for each column of y that all
 *  targets of a run have in common; forward their own, backward those of the sources of each tap. */
eg_status eg__gather_make(eg__gather *g, const eg__window *win, const eg_tensor *x, const eg_tensor *y, bool backward,
                          const float *share);
void eg__gather_free(eg__gather *g);

/** What a line of targets is made from: the taps' sources lie row_step and column_step numbers apart. */
typedef struct eg__taps {
    int64_t rows, columns, row_step, column_step;
    int64_t first, row_tap, column_tap; /* numbers of the taps, as in the filters */
} eg__taps;

/** The taps of columns c in target row `row`, and where the first one's source lies in the sample. */
static inline int64_t eg__gather_taps(const eg__gather *g, int64_t row, const eg__run *c, eg__taps *taps)
{
    const eg__run *r = &g->rows[row];
    *taps = (eg__taps){.rows = r->count,
                       .columns = c->count,
                       .row_step = g->step[0] * g->from[1] * g->channels,
                       .column_step = g->step[1] * g->channels,
                       .first = r->tap * g->kernel[1] + c->tap,
                       .row_tap = g->tap_step[0] * g->kernel[1],
                       .column_tap = g->tap_step[1]};
    return (r->first * g->from[1] + c->first) * g->channels;
}

#endif

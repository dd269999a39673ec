/*
 * surgery/svd.h - the singular value decomposition of a weight.
 */
#ifndef EG_SURGERY_SVD_H
#define EG_SURGERY_SVD_H

#include "tensor/internal.h"

/** weight = u * diag(sigma) * v for a weight (rows, ..) read as a matrix (rows, columns): u (rows, n), v (n, columns)
 * and falling sigma, n = min(rows, columns). All-zero is empty. */
typedef struct eg__svd {
    size_t rows, columns, n;
    double *u, *sigma, *v; /* row-major */
} eg__svd;
/** By LAPACK's gesdd, in double precision. EINVAL for numbers that are not finite. */
eg_status eg__svd_make(eg__svd *svd, const eg_tensor *weight);
void eg__svd_free(eg__svd *svd);
/** The part of the weight that the largest `rank` values leave out: the square root of their sum of squares, relative
 *  to that of all. */
double eg__svd_error(const eg__svd *svd, size_t rank);

#endif

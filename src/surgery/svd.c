#include "surgery/svd.h"

#include "base/internal.h"

#include <lapacke.h>
#include <math.h>
#include <stdlib.h>

static eg_status read_matrix(const eg_tensor *weight, double *matrix, size_t n)
{
    float *numbers = eg__calloc(n, sizeof(*numbers));
    if (numbers == NULL)
        return EG_ENOMEM;
    eg_status status = eg_tensor_read(weight, numbers, n);
    for (size_t i = 0; i < n && status == EG_OK; i++) {
        matrix[i] = numbers[i];
        if (!isfinite(numbers[i]))
            status = eg_fail(EG_EINVAL, "the weight has numbers that are not finite");
    }
    free(numbers);
    return status;
}

static eg_status decompose(eg__svd *s, double *matrix)
{
    lapack_int info =
        LAPACKE_dgesdd(LAPACK_ROW_MAJOR, 'S', (lapack_int)s->rows, (lapack_int)s->columns, matrix,
                       (lapack_int)s->columns, s->sigma, s->u, (lapack_int)s->n, s->v, (lapack_int)s->columns);
    EG_CHECK(info != LAPACK_WORK_MEMORY_ERROR && info != LAPACK_TRANSPOSE_MEMORY_ERROR, EG_ENOMEM, "out of memory");
    EG_CHECK(info == 0, EG_EINVAL, "the singular values of a weight were not found (LAPACK says %d)", (int)info);
    return EG_OK;
}

eg_status eg__svd_make(eg__svd *svd, const eg_tensor *weight)
{
    *svd = (eg__svd){0};
    size_t total = (size_t)eg_tensor_numel(weight);
    svd->rows = (size_t)eg_tensor_size(weight, 0);
    svd->columns = total / svd->rows;
    svd->n = EG_MIN(svd->rows, svd->columns);
    EG_CHECK(total <= INT32_MAX, EG_EUNSUPPORTED, "the weight is too large to be decomposed");
    double *matrix = eg__calloc(total, sizeof(*matrix));
    svd->u = eg__calloc(svd->rows * svd->n, sizeof(*svd->u));
    svd->v = eg__calloc(svd->n * svd->columns, sizeof(*svd->v));
    svd->sigma = eg__calloc(svd->n, sizeof(*svd->sigma));
    bool has = matrix != NULL && svd->u != NULL && svd->v != NULL && svd->sigma != NULL;
    eg_status status = has ? read_matrix(weight, matrix, total) : EG_ENOMEM;
    if (status == EG_OK)
        status = decompose(svd, matrix);
    free(matrix);
    return status;
}

void eg__svd_free(eg__svd *svd)
{
    free(svd->u);
    free(svd->v);
    free(svd->sigma);
    *svd = (eg__svd){0};
}

double eg__svd_error(const eg__svd *svd, size_t rank)
{
    double all = 0, left_out = 0;
    for (size_t i = svd->n; i-- > 0;) { /* the small ones first */
        all += svd->sigma[i] * svd->sigma[i];
        if (i >= rank)
            left_out = all;
    }
    return all > 0 ? sqrt(left_out / all) : 0;
}

/*
 * data/subset.c - parts of data sets: chosen, drawn, divided.
 */
#include "data/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

eg_dataset *eg_dataset_subset(eg_dataset *dataset, const size_t *indices, size_t n)
{
    if (!dataset || (!indices && n > 0))
        return eg__null(__func__, dataset ? "indices" : "data set");
    for (size_t i = 0; i < n; i++)
        if (indices[i] >= dataset->n) {
            eg_fail(EG_EINVAL, "subset: sample %zu: the data set has %zu", indices[i], dataset->n);
            return NULL;
        }
    eg_dataset *subset = eg__dataset_new(dataset->ctx, dataset->shape, n, dataset->classes);
    if (!subset)
        return NULL;
    subset->root = eg_dataset_retain(dataset->root ? dataset->root : dataset);
    subset->indices = eg__calloc(EG_MAX(n, 1), sizeof *indices);
    if (!subset->indices) {
        eg_dataset_release(subset);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        subset->indices[i] = dataset->root ? dataset->indices[indices[i]] : indices[i];
    return subset;
}

/* How many samples each class has, and how many of them are to be drawn. */
typedef struct shares {
    size_t classes;
    size_t *count, *quota;
} shares;

static void shares_free(shares *s)
{
    free(s->count);
    free(s->quota);
}

static eg_status shares_make(const eg_dataset *dataset, shares *s)
{
    *s = (shares){.classes = (size_t)dataset->classes};
    s->count = eg__calloc(s->classes, sizeof *s->count);
    s->quota = eg__calloc(s->classes, sizeof *s->quota);
    if (!s->count || !s->quota) {
        shares_free(s);
        return EG_ENOMEM;
    }
    for (size_t i = 0; i < dataset->n; i++)
        s->count[eg_dataset_label(dataset, i)]++;
    return EG_OK;
}

/* Equal numbers of each class, as far as they go: one of each in turn. n is at most the number of samples. */
static void share_equally(shares *s, size_t n)
{
    while (n > 0)
        for (size_t c = 0; c < s->classes && n > 0; c++)
            if (s->quota[c] < s->count[c]) {
                s->quota[c]++;
                n--;
            }
}

/* The same fraction of each class: rounded down, then the largest remainders get the rest. */
static void share_in_proportion(shares *s, double fraction, size_t n)
{
    for (size_t c = 0; c < s->classes; c++) {
        s->quota[c] = (size_t)(fraction * (double)s->count[c]);
        n -= EG_MIN(n, s->quota[c]);
    }
    for (; n > 0; n--) {
        size_t best = s->classes;
        double most = -INFINITY;
        for (size_t c = 0; c < s->classes; c++) {
            double missing = fraction * (double)s->count[c] - (double)s->quota[c];
            if (s->quota[c] < s->count[c] && missing > most) {
                most = missing;
                best = c;
            }
        }
        if (best == s->classes)
            return;
        s->quota[best]++;
    }
}

/* Marks samples drawn at random, quota[c] of each class; uses the quotas up. */
static eg_status draw(const eg_dataset *dataset, shares *s, uint64_t seed, const char *purpose, bool *drawn)
{
    int64_t *order = eg__calloc(EG_MAX(dataset->n, 1), sizeof *order);
    if (!order)
        return EG_ENOMEM;
    for (size_t i = 0; i < dataset->n; i++)
        order[i] = (int64_t)i;
    eg_rng rng = eg_rng_make(seed, purpose, 0);
    eg_rng_shuffle(&rng, order, dataset->n);
    for (size_t i = 0; i < dataset->n; i++) {
        size_t *quota = &s->quota[eg_dataset_label(dataset, (size_t)order[i])];
        drawn[order[i]] = *quota > 0;
        *quota -= *quota > 0;
    }
    free(order);
    return EG_OK;
}

static eg_dataset *subset_marked(eg_dataset *dataset, const bool *drawn, bool mark)
{
    size_t *indices = eg__calloc(EG_MAX(dataset->n, 1), sizeof *indices), n = 0;
    if (!indices)
        return NULL;
    for (size_t i = 0; i < dataset->n; i++)
        if (drawn[i] == mark)
            indices[n++] = i;
    eg_dataset *subset = eg_dataset_subset(dataset, indices, n);
    free(indices);
    return subset;
}

eg_dataset *eg_dataset_sample(eg_dataset *dataset, size_t n, uint64_t seed)
{
    if (!dataset)
        return eg__null(__func__, "data set");
    if (n == 0 || n > dataset->n)
        n = dataset->n;
    shares s;
    if (shares_make(dataset, &s) != EG_OK)
        return NULL;
    share_equally(&s, n);
    eg_dataset *sample = NULL;
    bool *drawn = eg__calloc(EG_MAX(dataset->n, 1), sizeof *drawn);
    if (drawn && draw(dataset, &s, seed, "sample", drawn) == EG_OK)
        sample = subset_marked(dataset, drawn, true);
    free(drawn);
    shares_free(&s);
    return sample;
}

eg_status eg_dataset_divide(eg_dataset *dataset, double fraction, uint64_t seed, eg_dataset **first,
                            eg_dataset **second)
{
    EG_CHECK(first && second, EG_EINVAL, "divide: no place for the parts");
    *first = *second = NULL;
    if (!dataset) {
        eg__null(__func__, "data set");
        return eg_error_last()->code;
    }
    EG_CHECK(fraction >= 0 && fraction <= 1, EG_EINVAL, "divide: fraction %g, expected 0 .. 1", fraction);
    shares s;
    EG_TRY(shares_make(dataset, &s));
    share_in_proportion(&s, fraction, (size_t)llround(fraction * (double)dataset->n));
    bool *drawn = eg__calloc(EG_MAX(dataset->n, 1), sizeof *drawn);
    eg_status status = drawn ? draw(dataset, &s, seed, "divide", drawn) : EG_ENOMEM;
    shares_free(&s);
    if (status == EG_OK) {
        *first = subset_marked(dataset, drawn, true);
        *second = *first ? subset_marked(dataset, drawn, false) : NULL;
        if (!*second) {
            status = eg_error_last()->code;
            eg_dataset_release(*first);
            *first = NULL;
        }
    }
    free(drawn);
    return status;
}

/*
 * surgery/outputs.h - a model before and after a surgery, run in evaluation mode on the same inputs.
 */
#ifndef EG_SURGERY_OUTPUTS_H
#define EG_SURGERY_OUTPUTS_H

#include "engraft/surgery_report.h"
#include "surgery/internal.h"

/** Two models: those of a surgery, or two that were given. */
typedef struct eg__sides {
    eg_surgery *s;        /* NULL: the two below */
    eg_module *models[2]; /* before, after */
} eg__sides;
/** Runs `fn` on one of them. */
eg_status eg__side_run(const eg__sides *sides, bool after, eg_surgery_look_fn fn, void *payload);

/** What a model is run on: the given tensors, or made up ones of these shapes: normal numbers, or zeros where it takes
 *  whole numbers only. */
typedef struct eg__sample {
    eg_shapes shapes;
    eg_tensor *const *given; /* NULL: made up */
    size_t n_given;
    uint64_t seed;
    bool whole; /* integers; found out by the first run */
} eg__sample;
/** Runs the model once in evaluation mode, in a scope of its own, with its modes and the context's random numbers put
 *  back. *out (may be NULL) is kept for the caller; *seconds (may be NULL) is what the call took. */
eg_status eg__sample_run(eg__sample *sample, eg_module *m, eg_tensor **out, double *seconds);

#endif

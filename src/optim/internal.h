/*
 * optim/internal.h - what a kind of optimizer and a kind of schedule are: one const record each.
 *
 * A new optimizer is one file: a struct that begins with eg_optimizer and holds its constants, a record of this kind,
 * and the public function that makes it. Likewise for schedules.
 */
#ifndef EG_OPTIM_INTERNAL_H
#define EG_OPTIM_INTERNAL_H

#include "engraft/optim.h"
#include "tensor/kernels.h"

enum { EG__MAX_STATES = 2 };

/** One update of n parameters of one group and type that have been updated equally often. */
typedef struct eg__update {
    const eg_kernels *kernels;
    double lr, weight_decay;
    int64_t step; /* 1 for the first update */
    size_t n;
    eg_tensor **params, **grads, **states[EG__MAX_STATES];
} eg__update;

typedef struct eg__optimizer_kind {
    const char *name;
    const char *states[EG__MAX_STATES]; /* names in checkpoints, of tensors of the parameter's shape */
    eg_status (*update)(const eg_optimizer *optimizer, const eg__update *update);
} eg__optimizer_kind;

typedef struct eg__param {
    char *name;
    eg_tensor *tensor, *states[EG__MAX_STATES]; /* states are made by the first update */
    int64_t step;                               /* updates so far */
    size_t group;
} eg__param;

typedef struct eg__group {
    double initial_lr, lr, weight_decay;
} eg__group;

/** What a schedule says at one time: lr = slope * initial lr + offset. */
typedef struct eg__rate {
    double slope, offset;
} eg__rate;

struct eg_optimizer {
    const eg__optimizer_kind *kind;
    eg_context *ctx;
    size_t n_states; /* of each parameter: those of the kind, or fewer where its constants need none */
    eg__group defaults;
    eg__rate rate; /* of the schedule in force; 1, 0 without one */
    eg__group *groups;
    size_t n_groups, groups_capacity;
    eg__param *params;
    size_t n_params, params_capacity;
    /* room for the lists of an update, and what is still to be updated in this step */
    eg_tensor **gathered;
    size_t *chosen;
    bool *pending;
    size_t gathered_capacity, chosen_capacity, pending_capacity;
};

/** Zeroed memory of `size` bytes that begins with an optimizer; the model's parameters (if any) are its first group.
 * NULL on failure. */
eg_optimizer *eg__optimizer_new(const eg__optimizer_kind *kind, size_t size, size_t n_states, eg_module *model,
                                eg_context *ctx, double lr, double weight_decay);
/** Sets all learning rates by the schedule's word. */
void eg__optimizer_apply_rate(eg_optimizer *optimizer, eg__rate rate);

typedef struct eg__schedule_kind {
    const char *name;
    eg__rate (*rate)(const eg_scheduler *scheduler, int64_t t); /* a closed form: positions can be set */
    void (*finalize)(eg_scheduler *scheduler);                  /* may be NULL */
} eg__schedule_kind;

struct eg_scheduler {
    const eg__schedule_kind *kind;
    eg_optimizer *optimizer;
    int64_t t;
};

/** Zeroed memory of `size` bytes that begins with a scheduler. The caller fills it in and then sets position 0. */
eg_scheduler *eg__scheduler_new(const eg__schedule_kind *kind, size_t size, eg_optimizer *optimizer);

#endif

/*
 * surgery/exchange.h - what the files about optimizers share: the parameters of the model before the plan and after it,
 * and what the plan says of them.
 */
#ifndef EG_SURGERY_EXCHANGE_H
#define EG_SURGERY_EXCHANGE_H

#include "surgery/internal.h"

/** A parameter of a model, once. */
typedef struct eg__entry {
    eg_tensor *tensor;
    const eg_module *owner;
    const char *name; /* its slot's */
    char *path;
} eg__entry;

/** All of a model, in the order of the state dict. All-zero is empty. */
typedef struct eg__entries {
    eg__entry *items;
    size_t n, capacity;
    eg__ptr_map index; /* tensor -> number + 1 */
} eg__entries;

/** What a derivation goes back to, by way of those before it. */
typedef struct eg__lineage {
    const eg_tensor *held; /* the first parameter that an optimizer has; NULL = none */
    bool of_model;         /* parameters that the model has */
    bool thawed;           /* one that is trained since the plan says so */
} eg__lineage;

/** What is known of a plan, for all optimizers. */
typedef struct eg__exchange_plan {
    eg_surgery *s;
    eg__entries before, after;
    eg__ptr_map origins;   /* new module -> replacement + 1 */
    size_t *earlier;       /* of each replacement, the one that its old module came with; SIZE_MAX = the model had it */
    eg__ptr_map derived;   /* new parameter -> derivation + 1 */
    eg__ptr_map flagged;   /* parameters of which the plan says whether they are trained */
    eg__ptr_map holders;   /* parameter -> optimizer + 1 */
    bool all_frozen;       /* no optimizer has a parameter of the model */
    eg__lineage *lineages; /* of each derivation */
    eg__entries asked; /* the parameters of `asked_of`, a module that gave way: those of one are asked for in a row */
    const eg_module *asked_of;
} eg__exchange_plan;

/** Numbers in maps; SIZE_MAX where there is none. */
size_t eg__number_find(const eg__ptr_map *map, const void *key);
eg_status eg__number_put(eg__ptr_map *map, const void *key, size_t number);

/* ---- parameters, and where new ones come from (exchange_params.c) ---- */

/** Lists them before the plan, and what it says; then, with the plan in place, those after it. */
eg_status eg__exchange_plan_before(eg__exchange_plan *p);
eg_status eg__exchange_plan_after(eg__exchange_plan *p);
void eg__exchange_plan_free(eg__exchange_plan *p);
/** The parameter of an optimizer whose group a new one, number i of those after, joins; SIZE_MAX: this optimizer
 * has nothing to do with it, or, unless the plan says itself that it is trained (`flagged`), it comes from what was
 * frozen. `index`: of the optimizer, tensor -> number + 1. */
eg_status eg__donor_find(eg__exchange_plan *p, const eg__ptr_map *index, size_t i, bool flagged, size_t *donor);

/* ---- states of what is derived (exchange_states.c) ---- */

/** What an optimizer has for a parameter that is derived. */
typedef struct eg__heir {
    size_t donor; /* its parameter that this one comes from first; SIZE_MAX = none of those is in it */
    int64_t step;
    eg_tensor *states[EG__MAX_STATES]; /* kept */
} eg__heir;
/** One for each derivation of the surgery, also for those that others come from. To be freed in any case. */
eg_status eg__heirs_make(const eg__exchange_plan *p, const eg_optimizer *o, const eg__ptr_map *index, eg__heir **heirs);
void eg__heirs_free(const eg__exchange_plan *p, eg__heir *heirs);
/** Gradients that are there go along too. */
eg_status eg__derive_gradients(eg_surgery *s);

#endif

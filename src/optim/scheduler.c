/*
 * optim/scheduler.c - what all schedules do alike.
 */
#include "optim/internal.h"

#include <stdlib.h>

eg_scheduler *eg__scheduler_new(const eg__schedule_kind *kind, size_t size, eg_optimizer *optimizer)
{
    if (!optimizer)
        return eg__null(kind->name, "optimizer");
    eg_scheduler *scheduler = eg__calloc(1, size);
    if (scheduler) {
        scheduler->kind = kind;
        scheduler->optimizer = optimizer;
    }
    return scheduler;
}

void eg_scheduler_free(eg_scheduler *scheduler)
{
    if (scheduler && scheduler->kind->finalize)
        scheduler->kind->finalize(scheduler);
    free(scheduler);
}

eg_status eg_scheduler_set_position(eg_scheduler *scheduler, int64_t t)
{
    if (!scheduler) {
        eg__null(__func__, "scheduler");
        return eg_error_last()->code;
    }
    EG_CHECK(t >= 0, EG_EINVAL, "%s: position %lld, expected at least 0", scheduler->kind->name, (long long)t);
    scheduler->t = t;
    eg__optimizer_apply_rate(scheduler->optimizer, scheduler->kind->rate(scheduler, t));
    return EG_OK;
}

eg_status eg_scheduler_step(eg_scheduler *scheduler)
{
    if (!scheduler) {
        eg__null(__func__, "scheduler");
        return eg_error_last()->code;
    }
    EG_CHECK(scheduler->t < INT64_MAX, EG_EINVAL, "%s: too many steps", scheduler->kind->name);
    return eg_scheduler_set_position(scheduler, scheduler->t + 1);
}

int64_t eg_scheduler_position(const eg_scheduler *scheduler)
{
    return scheduler ? scheduler->t : 0;
}

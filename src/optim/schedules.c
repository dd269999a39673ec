/*
 * optim/schedules.c - the learning-rate schedules.
 */
#include "optim/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

/* Puts the schedule in force from its start. */
static eg_scheduler *started(eg_scheduler *scheduler)
{
    eg_scheduler_set_position(scheduler, 0);
    return scheduler;
}

/* ---- steps ---- */

typedef struct step_lr {
    eg_scheduler base;
    int64_t step_size;
    double gamma;
} step_lr;

static eg__rate step_rate(const eg_scheduler *scheduler, int64_t t)
{
    const step_lr *self = (const step_lr *)scheduler;
    return (eg__rate){.slope = pow(self->gamma, (double)(t / self->step_size))};
}

static const eg__schedule_kind step_kind = {.name = "step_lr", .rate = step_rate};

eg_scheduler *eg_step_lr(eg_optimizer *optimizer, int64_t step_size, double gamma)
{
    if (step_size < 1 || !(gamma >= 0 && isfinite(gamma))) {
        eg_fail(EG_EINVAL, "step_lr: step size %lld and gamma %g, expected at least 1 and 0", (long long)step_size,
                gamma);
        return NULL;
    }
    step_lr *self = (step_lr *)eg__scheduler_new(&step_kind, sizeof *self, optimizer);
    if (!self)
        return NULL;
    self->step_size = step_size;
    self->gamma = gamma;
    return started(&self->base);
}

/* ---- milestones ---- */

typedef struct multi_step_lr {
    eg_scheduler base;
    int64_t *milestones;
    size_t n;
    double gamma;
} multi_step_lr;

static eg__rate multi_step_rate(const eg_scheduler *scheduler, int64_t t)
{
    const multi_step_lr *self = (const multi_step_lr *)scheduler;
    size_t passed = 0;
    while (passed < self->n && self->milestones[passed] <= t)
        passed++;
    return (eg__rate){.slope = pow(self->gamma, (double)passed)};
}

static void multi_step_finalize(eg_scheduler *scheduler)
{
    free(((multi_step_lr *)scheduler)->milestones);
}

static const eg__schedule_kind multi_step_kind = {
    .name = "multi_step_lr", .rate = multi_step_rate, .finalize = multi_step_finalize};

eg_scheduler *eg_multi_step_lr(eg_optimizer *optimizer, const int64_t *milestones, size_t n, double gamma)
{
    if ((!milestones && n > 0) || !(gamma >= 0 && isfinite(gamma))) {
        eg_fail(EG_EINVAL, "multi_step_lr: %s",
                milestones || n == 0 ? "gamma is below 0 or not finite" : "milestones are NULL");
        return NULL;
    }
    for (size_t i = 1; i < n; i++)
        if (milestones[i] < milestones[i - 1]) {
            eg_fail(EG_EINVAL, "multi_step_lr: milestone %lld after %lld, expected rising ones",
                    (long long)milestones[i], (long long)milestones[i - 1]);
            return NULL;
        }
    multi_step_lr *self = (multi_step_lr *)eg__scheduler_new(&multi_step_kind, sizeof *self, optimizer);
    if (!self)
        return NULL;
    self->milestones = eg__calloc(EG_MAX(n, 1), sizeof *milestones);
    if (!self->milestones) {
        eg_scheduler_free(&self->base);
        return NULL;
    }
    if (n > 0)
        memcpy(self->milestones, milestones, n * sizeof *milestones);
    self->n = n;
    self->gamma = gamma;
    return started(&self->base);
}

/* ---- half a cosine ---- */

typedef struct cosine_lr {
    eg_scheduler base;
    int64_t t_max;
    double eta_min;
} cosine_lr;

/* eta_min + (initial - eta_min) * weight */
static eg__rate cosine_rate(const eg_scheduler *scheduler, int64_t t)
{
    const cosine_lr *self = (const cosine_lr *)scheduler;
    double weight = t >= self->t_max ? 0 : (1 + cos(pi * (double)t / (double)self->t_max)) / 2;
    return (eg__rate){.slope = weight, .offset = self->eta_min * (1 - weight)};
}

static const eg__schedule_kind cosine_kind = {.name = "cosine_lr", .rate = cosine_rate};

eg_scheduler *eg_cosine_lr(eg_optimizer *optimizer, int64_t t_max, double eta_min)
{
    if (t_max < 1 || !(eta_min >= 0 && isfinite(eta_min))) {
        eg_fail(EG_EINVAL, "cosine_lr: t_max %lld and eta_min %g, expected at least 1 and 0", (long long)t_max,
                eta_min);
        return NULL;
    }
    cosine_lr *self = (cosine_lr *)eg__scheduler_new(&cosine_kind, sizeof *self, optimizer);
    if (!self)
        return NULL;
    self->t_max = t_max;
    self->eta_min = eta_min;
    return started(&self->base);
}

/* ---- constant ---- */

static eg__rate constant_rate(const eg_scheduler *scheduler, int64_t t)
{
    (void)scheduler, (void)t;
    return (eg__rate){.slope = 1};
}

static const eg__schedule_kind constant_kind = {.name = "constant_lr", .rate = constant_rate};

eg_scheduler *eg_constant_lr(eg_optimizer *optimizer)
{
    eg_scheduler *self = eg__scheduler_new(&constant_kind, sizeof *self, optimizer);
    return self ? started(self) : NULL;
}

/* ---- warmup, then another ---- */

typedef struct warmup_lr {
    eg_scheduler base;
    int64_t warmup;
    double start;
    eg_scheduler *after;
} warmup_lr;

static eg__rate warmup_rate(const eg_scheduler *scheduler, int64_t t)
{
    const warmup_lr *self = (const warmup_lr *)scheduler;
    if (t < self->warmup)
        return (eg__rate){.slope = self->start + (1 - self->start) * (double)t / (double)self->warmup};
    return self->after->kind->rate(self->after, t - self->warmup);
}

static void warmup_finalize(eg_scheduler *scheduler)
{
    eg_scheduler_free(((warmup_lr *)scheduler)->after);
}

static const eg__schedule_kind warmup_kind = {
    .name = "linear_warmup_lr", .rate = warmup_rate, .finalize = warmup_finalize};

eg_scheduler *eg_linear_warmup_lr(eg_optimizer *optimizer, int64_t warmup, double start_factor, eg_scheduler *after)
{
    warmup_lr *self = NULL;
    if (!after)
        eg__null(__func__, "the schedule that follows");
    else if (warmup < 0 || !(start_factor >= 0 && start_factor <= 1))
        eg_fail(EG_EINVAL, "linear_warmup_lr: %lld steps from factor %g, expected at least 0 and 0 .. 1",
                (long long)warmup, start_factor);
    else if (after->optimizer != optimizer)
        eg_fail(EG_EINVAL, "linear_warmup_lr: the schedule that follows is of another optimizer");
    else
        self = (warmup_lr *)eg__scheduler_new(&warmup_kind, sizeof *self, optimizer);
    if (!self) {
        eg_scheduler_free(after);
        return NULL;
    }
    self->warmup = warmup;
    self->start = start_factor;
    self->after = after;
    return started(&self->base);
}

/* ---- one cycle ---- */

typedef struct one_cycle_lr {
    eg_scheduler base;
    double up_end, down_end; /* the steps of the top and of the end */
    double low, floor;       /* factors at the start and at the end; 1 at the top */
} one_cycle_lr;

static double anneal(double from, double to, double part)
{
    return to + (from - to) * (1 + cos(pi * part)) / 2;
}

static eg__rate one_cycle_rate(const eg_scheduler *scheduler, int64_t t)
{
    const one_cycle_lr *self = (const one_cycle_lr *)scheduler;
    double at = EG_MIN((double)t, self->down_end);
    if (at < self->up_end)
        return (eg__rate){.slope = anneal(self->low, 1, at / self->up_end)};
    double length = self->down_end - self->up_end;
    return (eg__rate){.slope = anneal(1, self->floor, length > 0 ? (at - self->up_end) / length : 1)};
}

static const eg__schedule_kind one_cycle_kind = {.name = "one_cycle_lr", .rate = one_cycle_rate};

eg_scheduler *eg_one_cycle_lr(eg_optimizer *optimizer, double max_lr, int64_t total_steps, double pct_start,
                              double div_factor, double final_div_factor)
{
    pct_start = pct_start == 0 ? 0.3 : pct_start;
    div_factor = div_factor == 0 ? 25 : div_factor;
    final_div_factor = final_div_factor == 0 ? 1e4 : final_div_factor;
    if (!(max_lr > 0 && isfinite(max_lr)) || total_steps < 1 || !(pct_start > 0 && pct_start < 1) ||
        !(div_factor >= 1) || !(final_div_factor > 0)) {
        eg_fail(EG_EINVAL,
                "one_cycle_lr: max_lr %g, %lld steps, pct_start %g, factors %g and %g, expected max_lr above 0, at "
                "least 1 step, "
                "pct_start between 0 and 1, div_factor of at least 1, final_div_factor above 0",
                max_lr, (long long)total_steps, pct_start, div_factor, final_div_factor);
        return NULL;
    }
    one_cycle_lr *self = (one_cycle_lr *)eg__scheduler_new(&one_cycle_kind, sizeof *self, optimizer);
    if (!self)
        return NULL;
    self->up_end = pct_start * (double)total_steps - 1;
    self->down_end = (double)(total_steps - 1);
    self->low = 1 / div_factor;
    self->floor = self->low / final_div_factor;
    for (size_t i = 0; i < optimizer->n_groups; i++)
        optimizer->groups[i].initial_lr = max_lr;
    optimizer->defaults.initial_lr = max_lr;
    return started(&self->base);
}

/** @file
 * engraft/optim.h - optimizers and learning-rate schedules, as torch.optim.
 */
#ifndef ENGRAFT_OPTIM_H
#define ENGRAFT_OPTIM_H

#include "nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Updates parameters from their gradients. It keeps the tensors it was given. Parameters without a gradient are left
 *  alone, state and all, as in PyTorch. */
typedef struct eg_optimizer eg_optimizer;

/** What eg_sgd() takes. */
typedef struct eg_sgd_options {
    size_t struct_size;
    eg_module *model; /**< its parameters make the first group; NULL = none yet, see eg_optimizer_add() */
    eg_context *ctx;  /**< needed only without a model */
    double lr;        /**< above 0 */
    double momentum, dampening, weight_decay;
    bool nesterov; /**< needs momentum and no dampening */
} eg_sgd_options;
/** eg_sgd(net, .lr = 0.025, .momentum = 0.9, .weight_decay = 3e-4). NULL on failure: EINVAL, naming the argument. */
#define eg_sgd(...) eg_sgd_with(&(eg_sgd_options){.struct_size = sizeof(eg_sgd_options), .model = __VA_ARGS__})
/** The same from a struct, whose struct_size must be set (else EINVAL). */
EG_API eg_optimizer *eg_sgd_with(const eg_sgd_options *options);

/** What eg_adam() and eg_adamw() take. */
typedef struct eg_adam_options {
    size_t struct_size;
    eg_module *model;
    eg_context *ctx;
    double lr;               /**< 0 = 1e-3 */
    eg_opt_f64 beta1, beta2; /**< default 0.9, 0.999 */
    double eps;              /**< 0 = 1e-8 */
    eg_opt_f64 weight_decay; /**< default 0 for Adam, 0.01 for AdamW */
} eg_adam_options;
/** Kingma and Ba 2015; weight decay is added to the gradient. */
#define eg_adam(...) eg_adam_with(&(eg_adam_options){.struct_size = sizeof(eg_adam_options), .model = __VA_ARGS__})
/** See eg_sgd_with(). */
EG_API eg_optimizer *eg_adam_with(const eg_adam_options *options);
/** Loshchilov and Hutter 2019: decoupled weight decay. */
#define eg_adamw(...) eg_adamw_with(&(eg_adam_options){.struct_size = sizeof(eg_adam_options), .model = __VA_ARGS__})
/** See eg_sgd_with(). */
EG_API eg_optimizer *eg_adamw_with(const eg_adam_options *options);

/** Frees it and lets go of its tensors. Before the context. */
EG_API void eg_optimizer_free(eg_optimizer *optimizer);

/** What a group has of its own; unset: the optimizer's. */
typedef struct eg_group_options {
    size_t struct_size;
    eg_opt_f64 lr, weight_decay;
} eg_group_options;
/** A further parameter group with its own learning rate and weight decay; `options` may be NULL. In checkpoints the
 *  parameters are called "<name>.0", "<name>.1", ... EINVAL for a tensor or a name that is in a group already; then
 *  nothing is added. */
EG_API eg_status eg_optimizer_add(eg_optimizer *optimizer, const char *name, eg_tensor *const *params, size_t n,
                                  const eg_group_options *options);
/** The same for the parameters of a module, called "<prefix><path>" (tensors shared inside the module once); `prefix`
 *  may be NULL. */
EG_API eg_status eg_optimizer_add_module(eg_optimizer *optimizer, const char *prefix, eg_module *m,
                                         const eg_group_options *options);

/** One update of all parameters that have a gradient. ENOMEM, before anything is changed. */
EG_API eg_status eg_optimizer_step(eg_optimizer *optimizer);
/** Drops the gradients of all its parameters. */
EG_API void eg_optimizer_zero_grad(eg_optimizer *optimizer);
/** Scales all gradients so that their common 2-norm is at most max_norm; *norm (may be NULL) receives it before. EINVAL
 *  when not finite. */
EG_API eg_status eg_optimizer_clip_grad_norm(eg_optimizer *optimizer, double max_norm, double *norm);
/** Number of groups. */
EG_API size_t eg_optimizer_n_groups(const eg_optimizer *optimizer);
/** The present learning rate of a group; NaN and EINVAL when there is none of that number. */
EG_API double eg_optimizer_lr(const eg_optimizer *optimizer, size_t group);
/** Sets a learning rate by hand, now. A schedule in force goes on from there: what it still does is scaled alike, so
 *  that the rate it would give at its present position is this one. Where the schedule has nothing of the initial rate
 *  left (the end of a cosine), `lr` holds until the schedule's next step. EINVAL unless finite and at least 0. */
EG_API eg_status eg_optimizer_set_lr(eg_optimizer *optimizer, size_t group, double lr);
/** State (momentum buffers, moments, step counts) under "<prefix><parameter>.<name>" and the groups' present and
 *  initial learning rates as "<prefix>lr" and "<prefix>initial_lr" (float64); buffers are not copied. `prefix` may be
 *  NULL. */
EG_API eg_status eg_optimizer_state(eg_optimizer *optimizer, const char *prefix, eg_state *state);
/** Takes copies; what follows is equal bit for bit to the run that was saved. To resume with a schedule, set its
 *  position first, then load. Nothing is changed on failure: ENOENT for what is missing or, with a prefix that is not
 *  empty, for names under it that are not this optimizer's; ESHAPE, EDTYPE. */
EG_API eg_status eg_optimizer_load_state(eg_optimizer *optimizer, const char *prefix, const eg_state *state);

/* ---- schedules: each sets lr = its factor at step t * the group's initial lr; t grows by eg_scheduler_step() ---- */

/** A schedule is in force from its making on (at t = 0); of several on one optimizer, the one that was made, stepped or
 *  positioned last. The functions below return NULL on failure (EINVAL, naming the argument). Not to be used after its
 *  optimizer was freed, except for eg_scheduler_free(). */
typedef struct eg_scheduler eg_scheduler;
/** factor = gamma^(t / step_size) (integer division). */
EG_API eg_scheduler *eg_step_lr(eg_optimizer *optimizer, int64_t step_size, double gamma);
/** gamma to the number of milestones (rising) that are <= t. */
EG_API eg_scheduler *eg_multi_step_lr(eg_optimizer *optimizer, const int64_t *milestones, size_t n, double gamma);
/** From the initial lr to eta_min over t_max steps along a half cosine (stays at eta_min after). Loshchilov and Hutter
 *  2017. */
EG_API eg_scheduler *eg_cosine_lr(eg_optimizer *optimizer, int64_t t_max, double eta_min);
/** The initial lr, always: what follows a warm-up when nothing else should. */
EG_API eg_scheduler *eg_constant_lr(eg_optimizer *optimizer);
/** From start_factor (0 .. 1) to 1 over warmup steps, then `after` (of the same optimizer; taken over, also on failure;
 *  its t starts at 0 there; NULL: the failure that made it, or EINVAL). */
EG_API eg_scheduler *eg_linear_warmup_lr(eg_optimizer *optimizer, int64_t warmup, double start_factor,
                                         eg_scheduler *after);
/** Smith's 1-cycle with cosine annealing, torch's defaults: up from max_lr / div_factor (0 = 25) over pct_start (0 =
 *  0.3) of total_steps, down to initial / final_div_factor (0 = 1e4), where it stays. Replaces the groups' lr; momentum
 *  is left alone. */
EG_API eg_scheduler *eg_one_cycle_lr(eg_optimizer *optimizer, double max_lr, int64_t total_steps, double pct_start,
                                     double div_factor, double final_div_factor);
/** t + 1. */
EG_API eg_status eg_scheduler_step(eg_scheduler *scheduler);
/** t. */
EG_API int64_t eg_scheduler_position(const eg_scheduler *scheduler);
/** Sets t and puts the learning rates where they were then (resume). EINVAL for a negative t. */
EG_API eg_status eg_scheduler_set_position(eg_scheduler *scheduler, int64_t t);
/** Frees it; the optimizer keeps its present rates. */
EG_API void eg_scheduler_free(eg_scheduler *scheduler);

#ifdef __cplusplus
}
#endif
#endif

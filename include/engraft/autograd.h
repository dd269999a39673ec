/** @file
 * engraft/autograd.h - tapes: the lifetime of tensors, and their differentiation.
 *
 * A tape is a scope. Tensors made while it is the innermost one belong to it and are freed by eg_tape_end(), except
 * those taken out with eg_tensor_keep(). A recording tape also remembers the operations, so that eg_backward() can
 * differentiate them. Tapes nest; outside any, tensors belong to the context and live as long as it. On a recording
 * tape inside another, results of the outer one are refused as inputs that need a gradient: eg_detach() makes
 * constants of them. A tensor that outlives its tape is a constant for later ones.
 *
 *     eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
 *     eg_tensor *loss = eg_f_cross_entropy(eg_call(net, x), y);
 *     eg_status status = eg_backward(loss);
 *     eg_tape_end(tape);
 *     eg_optimizer_step(optimizer);
 *
 * A call of a module (eg_call) is a scope of its own inside the tape: what its forward made and did not return is
 * freed when it returns, unless backward needs it.
 */
#ifndef ENGRAFT_AUTOGRAD_H
#define ENGRAFT_AUTOGRAD_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** An open scope, ended by eg_tape_end(). */
typedef struct eg_tape eg_tape;

/** What a tape does besides owning tensors. */
typedef enum eg_tape_mode {
    EG_NO_GRAD, /**< a scope only: nothing is recorded (inference) */
    EG_RECORD
} eg_tape_mode;

/** Opens a scope. NULL on failure (ENOMEM). A tape opened while a module runs must be ended before its forward returns:
 *  the call closes one left open and fails (EINVAL). */
EG_API eg_tape *eg_tape_begin(eg_context *ctx, eg_tape_mode mode);
/** Closes it and all scopes opened inside it; frees their tensors. NULL is allowed. */
EG_API void eg_tape_end(eg_tape *tape);
/** Whether operations are being recorded now. */
EG_API bool eg_is_recording(const eg_context *ctx);

/** Adds d loss / d leaf to the gradient of every leaf that requires one. `loss` has one element. What was recorded for
 *  this loss is used up: a second backward through any of it is EINVAL, and no gradient is touched; losses that share
 *  no operation may each have theirs. NULL loss: its failure is kept. EINVAL when nothing was recorded, and when a
 *  tensor that a gradient needs was changed in place since. After a failure in the middle some leaves have been added
 *  to. */
EG_API eg_status eg_backward(eg_tensor *loss);
/** The same from a tensor of any shape, with `grad` = d (something) / d `t` of its shape (else ESHAPE). */
EG_API eg_status eg_backward_from(eg_tensor *t, eg_tensor *grad);

/** A function of tensors: returns one tensor (or eg_none), NULL on failure. */
typedef eg_tensor *(*eg_recompute_fn)(void *payload, eg_tensor *const *in, size_t n_in);
/** fn(payload, in, n_in), of which a recording tape keeps nothing but the inputs: backward runs fn again to
 *  differentiate it (Chen et al., "Training deep nets with sublinear memory cost", 2016; torch.utils.checkpoint). The
 *  result and the gradients are those of a plain call.
 *
 *  What fn reads and what is to have a gradient: `in`, and leaves (a module's parameters). A result of the tape that is
 *  not among `in` is refused (EINVAL). For the second run the context's random numbers are put back to where they were
 *  before the first, and running statistics (batch norm, spectral norm) are left alone. Everything else that fn does it
 *  does twice: hooks are called again, so are the functions of modules of one's own. A leaf that was changed in place
 *  between the runs, another sequence of leaves, or other values of open fields, is EINVAL in backward; so is backward
 * inside fn through what fn made.
 *
 *  Where nothing is recorded, while a trace is made, for shape-only inputs, for a tuple among the inputs and for one as
 *  the result, fn is called as it is. A result that depends on no leaf or input with a gradient is a constant.
 *
 *  `release` (may be NULL) is called once with `payload` when it is not needed any more: after a failure or a plain
 *  call before this returns, else when the tape ends. NULL: fn's failure, ENOMEM, EINVAL for a NULL. */
EG_API eg_tensor *eg_recompute(eg_context *ctx, eg_recompute_fn fn, void *payload, void (*release)(void *payload),
                               eg_tensor *const *in, size_t n_in);

/** A function of tensors to be checked: returns one tensor, or NULL on failure. */
typedef eg_tensor *(*eg_gradcheck_fn)(void *payload, eg_tensor *const *in, size_t n_in);

/** How eg_gradcheck() compares: |a - b| <= atol + rtol * max(|a|, |b|), the difference taken over 2 * eps. */
typedef struct eg_gradcheck_options {
    size_t struct_size;
    double eps, atol, rtol; /**< 0 = 1e-6, 1e-6, 1e-5 (float64 inputs) */
    size_t max_entries;     /**< sampled entries of each input; 0 = 64 */
} eg_gradcheck_options;

/** Compares the gradients of fn (projected on a fixed random direction) with central differences, for every float64
 *  input that requires a gradient. The inputs' gradients are replaced; the context's random numbers start from the same
 *  place at each evaluation. EINTERNAL with input, entry and both numbers when they differ. `options` may be NULL. */
EG_API eg_status eg_gradcheck(eg_context *ctx, eg_gradcheck_fn fn, void *payload, eg_tensor *const *in, size_t n_in,
                              const eg_gradcheck_options *options);

#ifdef __cplusplus
}
#endif
#endif

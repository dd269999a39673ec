/** @file
 * engraft/sys/op.h - making operations of one's own. The built-in ones are made exactly so.
 *
 * An operation is a const record of functions; eg_apply() runs it: it checks the inputs, infers the shapes of the
 * outputs, computes them, and where a tape records keeps what backward needs. examples/custom_op.c is a whole one.
 * This part of the interface may change between minor versions.
 */
#ifndef ENGRAFT_SYS_OP_H
#define ENGRAFT_SYS_OP_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/** An operation. */
typedef struct eg_op eg_op;

/** Type and shape of a tensor. */
typedef struct eg_spec {
    eg_dtype dtype;
    eg_layout layout;
    eg_shape shape;
} eg_spec;

/** The most outputs that an operation has. */
#define EG_OP_MAX_OUTPUTS 4

/** One application of an operation, as its functions see it. */
typedef struct eg_op_call {
    eg_context *ctx;
    const eg_op *op;
    const void *attrs;    /**< op->attrs_size bytes */
    eg_tensor *const *in; /**< [n_in]; eg_none where an optional input is absent; never NULL */
    size_t n_in;
    eg_tensor **out; /**< [n_out]; allocated, not initialized, before forward is called */
    size_t n_out;
    bool recording;         /**< something will be differentiated: see needs_grad */
    const bool *needs_grad; /**< [n_in]: whether backward will be asked for this input's gradient */
    void *record;           /**< internal */
} eg_op_call;

/** One step of backward. */
typedef struct eg_op_grad {
    eg_context *ctx;
    const eg_op *op;
    const void *attrs;
    size_t n_in, n_out, n_saved;
    const eg_spec *in_spec;     /**< [n_in] types and shapes of the inputs; ndim 0 for eg_none */
    const bool *needs_grad;     /**< [n_in] */
    eg_tensor *const *saved;    /**< [n_saved] what forward gave to eg_op_save(), in that order */
    eg_tensor *const *grad_out; /**< [n_out]; NULL where no gradient arrived (never all) */
    eg_tensor **grad_in;        /**< [n_in] to fill where needed, by the eg_op_grad functions */
    void *record;               /**< internal */
} eg_op_grad;

/** The record of an operation, const and static: tapes point at it. */
struct eg_op {
    size_t struct_size;
    const char *name;   /**< in messages, traces and tests */
    size_t attrs_size;  /**< of the plain struct of attributes (no pointers in it); 0 = none */
    size_t n_out;       /**< 0 = 1 */
    uint32_t optional;  /**< bit i: input i may be eg_none */
    bool stateless;     /**< one input, one output, and equal attributes give equal results: while a tape records, equal
                           applications to one result of it share their output, and its gradient */
    bool makes_outputs; /**< forward sets out[] itself (views), to references that it hands over (eg_tensor_keep): not
                           allocated before. Also called for shape-only inputs */
    /** Sets out[0 .. n_out-1] from the inputs' shapes, or fails saying what does not fit (the name of the operation
     *  and of the module are put before the text). Not called when makes_outputs. */
    eg_status (*infer)(const eg_op_call *call, eg_spec *out);
    eg_status (*forward)(eg_op_call *call);
    /** Fills grad_in[i] wherever needs_grad[i]; one left NULL means zero. NULL: no gradient flows through this
     *  operation. What operations it calls is not recorded, except on a tape that it opens itself. */
    eg_status (*backward)(eg_op_grad *grad);
    /** Multiply-accumulates of one application; NULL = 0. Shapes only. */
    uint64_t (*macs)(const eg_op_call *call);
};

/** Runs an operation and returns its first output (as a tuple when it has several), NULL on failure. */
EG_API eg_tensor *eg_apply(const eg_op *op, eg_tensor *const *in, size_t n_in, const void *attrs);

/** In forward: keeps a tensor (an input, an output, or a new one) until backward has passed. A no-op when not
 *  recording. EINVAL for NULL. */
EG_API eg_status eg_op_save(eg_op_call *call, eg_tensor *t);

/** In backward: makes grad_in[i] a new tensor of the input's type and shape, not initialized, and returns it, lent;
 *  NULL on failure. */
EG_API eg_tensor *eg_op_grad_new(eg_op_grad *grad, size_t i);
/** In backward: where to put the gradient of input i, lent; NULL on failure. *add says whether it holds what arrived
 *  there before and is to be added to (NULL: that is not wanted). Else it is like that of eg_op_grad_new(), in the
 * memory of `reuse` (NULL, or a tensor of `saved` or `grad_out`) where nobody else holds that: its numbers are then
 * overwritten as the gradient is written. */
EG_API eg_tensor *eg_op_grad_into(eg_op_grad *grad, size_t i, eg_tensor *reuse, bool *add);
/** In backward: hands `t` (such as grad_out[0]) on as grad_in[i], without a copy where nobody else holds it. */
EG_API eg_status eg_op_grad_pass(eg_op_grad *grad, size_t i, eg_tensor *t);

#ifdef __cplusplus
}
#endif
#endif

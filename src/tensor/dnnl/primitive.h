/*
 * tensor/dnnl/primitive.h - oneDNN primitives, each made once for a context, and packed copies of weights.
 *
 * A primitive is found by a key that says everything that it depends on; `build` makes it from the key alone. What
 * changes from step to step (learning rates, mixing weights) must never be part of one: making a primitive costs a
 * thousand times as much as running a small one.
 */
#ifndef EG_TENSOR_DNNL_PRIMITIVE_H
#define EG_TENSOR_DNNL_PRIMITIVE_H

#include "tensor/cpu/cpu.h"
#include "tensor/dnnl/api.h"
#include "tensor/dnnl/lru.h"

typedef enum eg__dnnl_op {
    EG__DNNL_CONV,
    EG__DNNL_CONV_BACKWARD_INPUT,
    EG__DNNL_CONV_BACKWARD_WEIGHT,
    EG__DNNL_MATMUL /* bfloat16; dimensions are rows and columns, strides those of rows and columns */
} eg__dnnl_op;

/** All of eight bytes, so that there is no padding between them. x and y are the inputs and outputs of forward. */
typedef struct eg__dnnl_key {
    int64_t op;
    int64_t x[4], w[4], y[4];
    int64_t stride[2], padding[2], dilation[2], groups;
    int64_t bias; /* 1: has one */
    int64_t add;  /* 1: the result is added to what is there */
    int64_t bf16; /* 1: x, y and the weights are bfloat16; not the bias, and no gradient of a parameter */
} eg__dnnl_key;

#define EG__DNNL_ARGS 6

typedef struct eg__dnnl_primitive {
    eg__lru_node node;
    eg__dnnl_key key;
    bool unsupported; /* oneDNN has no implementation: the reference kernel is to be used */
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[EG__DNNL_ARGS]; /* memory objects, made once and pointed to the data of each call */
    int n_args;
    size_t scratch_bytes;
    /* Weights in the layout that the primitive asks for; no reorder where that is plain. Backward reorders from it. */
    size_t weight_layout, weight_bytes; /* number of the layout in the state; bytes of a packed weight */
    dnnl_primitive_t reorder;
    dnnl_memory_t reorder_from, reorder_to;
} eg__dnnl_primitive;

/** What the context's slot holds. */
typedef struct eg__dnnl_state {
    eg_context *ctx;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr, adding; /* plain; with the addition to what is there */
    eg__lru primitives, packs;
    size_t pack_bytes;    /* of all packed weights */
    eg__dnnl_md *layouts; /* distinct layouts of packed weights */
    size_t n_layouts, layouts_capacity;
} eg__dnnl_state;

/** Makes oneDNN use the context's number of threads for calls of this thread. */
void eg__dnnl_use_threads(const eg_context *ctx);

typedef eg_status (*eg__dnnl_build)(eg__dnnl_state *state, eg__dnnl_primitive *p);
/** The primitive for a key, made by `build` when it is not there. It stays valid until the next call. */
eg_status eg__dnnl_get(eg_context *ctx, const eg__dnnl_key *key, eg__dnnl_build build, eg__dnnl_primitive **out);
/** Points the memory object of an argument (DNNL_ARG_SRC, ..) to data. */
eg_status eg__dnnl_set(eg__dnnl_primitive *p, int arg, void *data);
/** Runs it. */
eg_status eg__dnnl_run(eg_context *ctx, eg__dnnl_primitive *p);

/** Row-major `w` in the layout of p, in *data: itself, or a packed copy. `keep`: the context keeps the copy, and makes
 *  it anew when w's version has changed; else it is the caller's. To be ended, before the next call, by
 * eg__dnnl_unpack(). */
eg_status eg__dnnl_pack(eg__dnnl_primitive *p, const eg_tensor *w, bool keep, void **data);
void eg__dnnl_unpack(eg__dnnl_primitive *p, const eg_tensor *w, bool keep, void *data);
/** The same for what eg__cpu_conv_rows() wants. */
eg_status eg__dnnl_pack_rows(const eg_tensor *w, bool turned, bool keep, float **packed);
void eg__dnnl_unpack_rows(const eg_tensor *w, bool turned, bool keep, float *packed);
/** Runs the reorder from one buffer to another. */
eg_status eg__dnnl_reorder(eg_context *ctx, eg__dnnl_primitive *p, void *from, void *to);

/* ---- for build functions ---- */

/** EG_OK, or the failure as ours. */
eg_status eg__dnnl_check(dnnl_status_t status, const char *what);
/** What the primitive is described with. */
const_dnnl_primitive_attr_t eg__dnnl_attr(const eg__dnnl_state *state, const eg__dnnl_primitive *p);
/** What came of describing the primitive: EG_OK and p->unsupported where oneDNN has no implementation. */
eg_status eg__dnnl_described(eg__dnnl_primitive *p, dnnl_status_t status);
/** Makes the primitive and its scratchpad. */
eg_status eg__dnnl_create(eg__dnnl_state *state, eg__dnnl_primitive *p, const_dnnl_primitive_desc_t pd);
/** Adds an argument of the layout that the descriptor answers to `what` (dnnl_query_src_md, ..); none where it is of no
 * bytes. */
eg_status eg__dnnl_add(eg__dnnl_state *state, eg__dnnl_primitive *p, const_dnnl_primitive_desc_t pd, dnnl_query_t what,
                       int index, int arg, size_t *bytes);
/** Sets up packing between `plain` and the layout of the weights `what` of the descriptor. `unpack`: from packed to
 * plain. */
eg_status eg__dnnl_pack_with(eg__dnnl_state *state, eg__dnnl_primitive *p, const_dnnl_primitive_desc_t pd,
                             dnnl_query_t what, const_dnnl_memory_desc_t plain, bool unpack);

/** A descriptor, to be ended by dnnl_memory_desc_destroy(). */
eg_status eg__dnnl_tensor(eg__dnnl_md *md, dnnl_data_type_t type, int ndim, const int64_t *dims, dnnl_format_tag_t tag);

/* ---- kernels of the table (see kernels.h) ---- */

eg_status eg__dnnl_matmul(const eg_tensor *, const eg_tensor *, const eg_tensor *, eg_tensor *);

#endif

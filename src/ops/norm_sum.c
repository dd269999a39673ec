/*
 * ops/norm_sum.c - the sum of w[i] batch_norm_i(x[i]) in one operation: the mixed edge of DARTS, whose branches end in
 * batch norms. What the norms give is never stored, which saves a third of the memory of a supernet's step.
 */
#include "autograd/internal.h"
#include "ops/internal.h"

/* Inputs: the weights (n), the n terms, then four for each term: running mean and variance, weight and bias of its norm,
 * all absent for a plain one. */
enum { W, FIRST_TERM };
enum { RUNNING_MEAN, RUNNING_VAR, WEIGHT, BIAS, PER_NORM };

static size_t n_terms(size_t n_in)
{
    return (n_in - FIRST_TERM) / (1 + PER_NORM);
}

static size_t norm_input(size_t n, size_t term, size_t which)
{
    return FIRST_TERM + n + term * PER_NORM + which;
}

static bool is_plain(const eg__norm_sum_attrs *attrs, size_t i)
{
    return attrs->plain >> i & 1;
}

static eg_status check_norm(const eg_op_call *call, size_t n, size_t i, int64_t channels)
{
    EG_TRY(eg__check_vector(call, norm_input(n, i, RUNNING_MEAN), "running mean", channels));
    EG_TRY(eg__check_vector(call, norm_input(n, i, RUNNING_VAR), "running variance", channels));
    EG_TRY(eg__check_vector(call, norm_input(n, i, WEIGHT), "weight", channels));
    return eg__check_vector(call, norm_input(n, i, BIAS), "bias", channels);
}

static eg_status norm_sum_infer(const eg_op_call *call, eg_spec *out)
{
    size_t n = n_terms(call->n_in);
    eg_shape shape = call->in[FIRST_TERM]->shape;
    EG_TRY(eg__check_vector(call, W, "weights", (int64_t)n));
    for (size_t i = 0; i < n; i++) {
        EG_TRY(eg__check_input(call, FIRST_TERM + i, "term"));
        EG_CHECK(eg_shape_equal(call->in[FIRST_TERM + i]->shape, shape), EG_ESHAPE,
                 "term %zu has shape %s, expected %s as the first", i, EG__TEXT(call->in[FIRST_TERM + i]->shape),
                 EG__TEXT(shape));
    }
    EG_CHECK(shape.ndim == 2 || shape.ndim == 4, EG_ESHAPE, "term %s has %d dimensions, expected (N, C, H, W) or (N, C)",
             EG__TEXT(shape), shape.ndim);
    EG_CHECK(eg_shape_numel(shape) > shape.dims[1], EG_EINVAL,
             "term %s has one value per channel, training needs more to take a variance", EG__TEXT(shape));
    for (size_t i = 0; i < n; i++)
        EG_TRY(check_norm(call, n, i, shape.dims[1]));
    return eg__spec_set(out, call->in[FIRST_TERM], shape);
}

/* The terms as kernels see them; mean and variance of those with a norm are new tensors. */
static eg_status make_terms(const eg_op_call *call, eg__norm_term *terms)
{
    size_t n = n_terms(call->n_in);
    for (size_t i = 0; i < n; i++) {
        const eg_tensor *x = call->in[FIRST_TERM + i];
        terms[i].x = x;
        if (is_plain(call->attrs, i))
            continue;
        terms[i].gamma = eg__optional(call->in[norm_input(n, i, WEIGHT)]);
        terms[i].beta = eg__optional(call->in[norm_input(n, i, BIAS)]);
        terms[i].mean = eg__tensor_new(call->ctx, x->dtype, EG_SHAPE(x->shape.dims[1]), EG_LAYOUT_DEFAULT);
        terms[i].var = eg__tensor_new(call->ctx, x->dtype, EG_SHAPE(x->shape.dims[1]), EG_LAYOUT_DEFAULT);
        if (!terms[i].mean || !terms[i].var)
            return eg__pending();
    }
    return EG_OK;
}

/* The weights, then of each term: x; of its norm mean, variance, and the weight and bias that are present. */
static eg_status save_terms(eg_op_call *call, const eg__norm_term *terms)
{
    if (!call->recording)
        return EG_OK;
    size_t n = n_terms(call->n_in);
    EG_TRY(eg_op_save(call, call->in[W]));
    for (size_t i = 0; i < n; i++) {
        EG_TRY(eg_op_save(call, call->in[FIRST_TERM + i]));
        if (is_plain(call->attrs, i))
            continue;
        EG_TRY(eg_op_save(call, terms[i].mean));
        EG_TRY(eg_op_save(call, terms[i].var));
        for (size_t which = WEIGHT; which <= BIAS; which++)
            if (!eg_is_none(call->in[norm_input(n, i, which)]))
                EG_TRY(eg_op_save(call, call->in[norm_input(n, i, which)]));
    }
    return EG_OK;
}

static eg_status compute(eg_op_call *call, eg__norm_term *terms)
{
    const eg__norm_sum_attrs *attrs = call->attrs;
    size_t n = n_terms(call->n_in);
    EG_TRY(make_terms(call, terms));
    EG_TRY(eg__kernels(call->ctx, call->out[0]->dtype)->norm_sum(attrs->eps, n, terms, call->in[W], call->out[0]));
    for (size_t i = 0; i < n; i++)
        if (terms[i].mean)
            eg__update_running(call->in[norm_input(n, i, RUNNING_MEAN)], call->in[norm_input(n, i, RUNNING_VAR)],
                               terms[i].x, terms[i].mean, terms[i].var, attrs->momentum);
    return save_terms(call, terms);
}

static eg_status norm_sum_forward(eg_op_call *call)
{
    size_t n = n_terms(call->n_in);
    eg__norm_term *terms = eg__calloc(n, sizeof *terms);
    eg_status status = terms ? compute(call, terms) : EG_ENOMEM;
    for (size_t i = 0; terms && i < n; i++) {
        eg_tensor_release(terms[i].mean);
        eg_tensor_release(terms[i].var);
    }
    eg_free(terms);
    return status;
}

/* ---- backward ---- */

static bool present(const eg_op_grad *grad, size_t input)
{
    return grad->in_spec[input].shape.ndim > 0;
}

static eg_status wanted(eg_op_grad *grad, size_t input, eg_tensor **d)
{
    if (!grad->needs_grad[input])
        return EG_OK;
    *d = eg_op_grad_new(grad, input);
    return *d ? EG_OK : eg__pending();
}

/* dx takes the place of x, unless somebody else needs x. */
static eg_status read_terms(eg_op_grad *grad, eg__norm_term *terms, eg__norm_term_grad *grads)
{
    size_t n = n_terms(grad->n_in), next = 1;
    for (size_t i = 0; i < n; i++) {
        eg_tensor *x = grad->saved[next++];
        terms[i].x = x;
        if (grad->needs_grad[FIRST_TERM + i] && !(grads[i].dx = eg_op_grad_reuse(grad, FIRST_TERM + i, x)))
            return eg__pending();
        if (is_plain(grad->attrs, i))
            continue;
        terms[i].mean = grad->saved[next++];
        terms[i].var = grad->saved[next++];
        terms[i].gamma = present(grad, norm_input(n, i, WEIGHT)) ? grad->saved[next++] : NULL;
        terms[i].beta = present(grad, norm_input(n, i, BIAS)) ? grad->saved[next++] : NULL;
        EG_TRY(wanted(grad, norm_input(n, i, WEIGHT), &grads[i].dgamma));
        EG_TRY(wanted(grad, norm_input(n, i, BIAS), &grads[i].dbeta));
    }
    return EG_OK;
}

static eg_status norm_sum_backward(eg_op_grad *grad)
{
    const eg__norm_sum_attrs *attrs = grad->attrs;
    size_t n = n_terms(grad->n_in);
    const eg_tensor *dy = grad->grad_out[0];
    eg__norm_term *terms = eg__calloc(n, sizeof *terms);
    eg__norm_term_grad *grads = eg__calloc(n, sizeof *grads);
    eg_tensor *dw = NULL;
    eg_status status = terms && grads ? wanted(grad, W, &dw) : EG_ENOMEM;
    if (status == EG_OK)
        status = read_terms(grad, terms, grads);
    if (status == EG_OK)
        status = eg__kernels(grad->ctx, dy->dtype)
                     ->norm_sum_backward(attrs->eps, n, terms, grad->saved[0], dy, grads, dw);
    eg_free(terms);
    eg_free(grads);
    return status;
}

const eg_op eg__op_norm_sum = {
    .struct_size = sizeof(eg_op),
    .name = "norm_sum",
    .attrs_size = sizeof(eg__norm_sum_attrs),
    .optional = UINT32_MAX ^ 1u << W ^ 1u << FIRST_TERM,
    .infer = norm_sum_infer,
    .forward = norm_sum_forward,
    .backward = norm_sum_backward,
};

/* ---- the call ---- */

/* Whether this norm can be a part of the sum whose first norm is `like`. */
static bool joins(const eg_batch_norm_args *norm, const eg_batch_norm_args *like)
{
    return norm->training && !norm->relu && norm->eps == like->eps && norm->momentum == like->momentum &&
           !eg_tensor_is_shape_only(norm->x);
}

static eg_tensor *apply(const eg__norm_sum_term *terms, size_t n, const eg_batch_norm_args *like, eg_tensor *weights,
                        eg_tensor **in)
{
    eg__norm_sum_attrs attrs = {.eps = like->eps, .momentum = like->momentum};
    in[W] = weights;
    for (size_t i = 0; i < n; i++) {
        const eg_batch_norm_args *norm = terms[i].norm;
        bool joined = norm && joins(norm, like);
        eg_tensor **own = in + norm_input(n, i, 0);
        attrs.plain |= (uint64_t)!joined << i;
        in[FIRST_TERM + i] = joined ? norm->x : norm ? eg_f_batch_norm_with(norm) : terms[i].x;
        if (!in[FIRST_TERM + i])
            return NULL;
        own[RUNNING_MEAN] = joined ? norm->running_mean : eg_none;
        own[RUNNING_VAR] = joined ? norm->running_var : eg_none;
        own[WEIGHT] = joined ? norm->weight : eg_none;
        own[BIAS] = joined ? norm->bias : eg_none;
    }
    return eg_apply(&eg__op_norm_sum, in, FIRST_TERM + n * (1 + PER_NORM), &attrs);
}

eg_tensor *eg__norm_sum(const eg__norm_sum_term *terms, size_t n, eg_tensor *weights)
{
    const eg_batch_norm_args *like = NULL;
    bool whole = n <= 64;
    for (size_t i = 0; i < n; i++) {
        like = like ? like : terms[i].norm;
        whole = whole && (terms[i].norm || !eg_is_none(terms[i].x));
    }
    eg_tensor **in = eg__calloc(FIRST_TERM + n * (1 + PER_NORM), sizeof *in), *sum = NULL;
    if (in && whole && like && joins(like, like)) {
        sum = apply(terms, n, like, weights, in);
    } else if (in) {
        size_t done = 0;
        for (; done < n; done++)
            if (!(in[done] = terms[done].norm ? eg_f_batch_norm_with(terms[done].norm) : terms[done].x))
                break;
        sum = done == n ? eg_weighted_sum(in, n, weights) : NULL;
    }
    eg_free(in);
    return sum;
}

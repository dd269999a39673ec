/*
 * nas/follow.c - the base mutator: runs what the current decisions say and joins the outputs.
 */
#include "nas/internal.h"
#include "ops/registry.h"

#include <stdlib.h>

/* One pass through a choice. */
typedef struct pass {
    const eg_module *choice;
    int reduction;
    const eg_decision *decision;
    eg_tensor *const *in;
    size_t n_in;
} pass;

/* Candidate i of a layer choice, which is chosen. NULL on failure. */
static eg_module *candidate_at(const pass *p, size_t i)
{
    eg_module *candidate = eg_layer_choice_at(p->choice, i);
    if (candidate == NULL)
        eg_fail(EG_EINVAL, "layer choice '%s': candidate '%s' is chosen, but was removed", eg_mutable_key(p->choice),
                eg_layer_choice_name(p->choice, i));
    return candidate;
}

/* Output i: of candidate i of a layer choice, or input i. NULL on failure. */
static eg_tensor *output_at(const pass *p, size_t i)
{
    if (!eg_is_a(p->choice, &eg_layer_choice_class))
        return p->in[i];
    eg_module *candidate = candidate_at(p, i);
    return candidate != NULL ? eg_module_call(candidate, p->in, p->n_in) : NULL;
}

/* Joins n outputs; takes eg_none out of them. */
static eg_tensor *reduce(const pass *p, eg_tensor **out, size_t n)
{
    if (p->reduction == EG_CHOICE_NONE)
        return eg_tuple(p->choice->ctx, out, n);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (!eg_is_none(out[i]))
            out[kept++] = out[i];
    }
    if (kept == 0)
        return eg_none;
    if (kept == 1)
        return out[0];
    if (p->reduction == EG_CHOICE_CONCAT)
        return eg_concat(out, kept, 1);
    eg_tensor *sum = eg_add_n(out, kept);
    return p->reduction == EG_CHOICE_MEAN ? eg_affine(sum, 1 / (double)kept, 0) : sum;
}

/* sum + weights[i] * output of candidate i. A candidate that ends in a batch norm stops before it, the sum takes it in.
 * `consume`: nobody else sees the sum. NULL on failure. */
static eg_tensor *add_candidate(const pass *p, size_t i, eg_tensor *sum, bool consume)
{
    eg_tensor *weights = p->decision->tensor;
    eg_module *candidate = eg_layer_choice_at(p->choice, i);
    if (candidate == NULL)
        return sum;
    eg_batch_norm2d *norm = eg__last_norm(candidate);
    if (norm != NULL) {
        eg_tensor *x = eg__call_before_norm(candidate, p->in, p->n_in);
        eg_batch_norm_args args = eg__batch_norm2d_args(norm, x);
        sum = eg__norm_add(sum, consume, &args, weights, (int64_t)i);
        if (sum != NULL)
            eg__batch_norm2d_count(norm);
        return sum;
    }
    eg_tensor *x = eg_module_call(candidate, p->in, p->n_in);
    return eg__weighted_add(sum, consume, x, weights, (int64_t)i);
}

static eg_tensor *weighted_candidates(const pass *p)
{
    eg_tensor *sum = eg_none;
    for (size_t i = 0; i < p->decision->n && sum != NULL; i++)
        sum = add_candidate(p, i, sum, i > 0);
    return sum;
}

/* A decision with gradients: every candidate that is there runs, times its weight; the others are like "none". */
static eg_tensor *follow_tensor(const pass *p, eg_tensor **out)
{
    eg_tensor *weights = p->decision->tensor;
    if (p->reduction == EG_CHOICE_SUM && eg_is_a(p->choice, &eg_layer_choice_class))
        return weighted_candidates(p);
    for (size_t i = 0; i < p->decision->n; i++) {
        out[i] = eg__candidate_there(p->choice, i) ? output_at(p, i) : eg_none;
        if (out[i] == NULL)
            return NULL;
    }
    if (p->reduction == EG_CHOICE_SUM)
        return eg_weighted_sum(out, p->decision->n, weights);
    for (size_t i = 0; i < p->decision->n; i++) {
        if (!eg_is_none(out[i]))
            out[i] = eg_mul(out[i], eg_slice(weights, 0, (int64_t)i, (int64_t)i + 1, 1));
        if (out[i] == NULL)
            return NULL;
    }
    return reduce(p, out, p->decision->n);
}

/* Only what is chosen runs; weights are multiplied in, a mask is not. */
static eg_tensor *follow_weights(const pass *p, eg_tensor **out)
{
    size_t n = 0;
    for (size_t i = 0; i < p->decision->n; i++) {
        double weight = p->decision->weights[i];
        if (weight == 0)
            continue;
        eg_tensor *t = output_at(p, i);
        out[n] = weight == 1 || eg_is_none(t) ? t : eg_affine(t, weight, 0);
        if (out[n++] == NULL)
            return NULL;
    }
    return reduce(p, out, n);
}

static eg_tensor *mask_tensor(const pass *p)
{
    const eg_decision *decision = p->decision;
    if (decision->tensor != NULL)
        return decision->tensor;
    float *values = eg__calloc(decision->n + 1, sizeof(*values));
    if (values == NULL)
        return NULL;
    for (size_t i = 0; i < decision->n; i++)
        values[i] = (float)decision->weights[i];
    eg_tensor *mask = eg_from_data(p->choice->ctx, EG_SHAPE((int64_t)decision->n), values);
    free(values);
    return mask;
}

static eg_tensor *follow(const pass *p)
{
    eg_tensor **out = eg__calloc(p->decision->n + 1, sizeof(*out));
    if (out == NULL)
        return NULL;
    eg_tensor *result = p->decision->tensor != NULL ? follow_tensor(p, out) : follow_weights(p, out);
    free(out);
    return result;
}

/* ---- a mixed edge of which nothing is kept for backward ---- */

static int reduction_of(const eg_module *choice)
{
    return eg_is_a(choice, &eg_layer_choice_class) ? ((const eg_layer_choice *)choice)->reduction
                                                   : ((const eg_input_choice *)choice)->reduction;
}

/* in[0]: the weights. The decision in force when backward comes here may be another one. */
static eg_tensor *run_mixed_edge(void *payload, eg_tensor *const *in, size_t n_in)
{
    const eg_module *choice = payload;
    const eg_decision decision = {.n = eg__choice_size(choice), .tensor = in[0]};
    return follow(&(pass){choice, reduction_of(choice), &decision, in + 1, n_in - 1});
}

static void release_choice(void *payload)
{
    eg_module_release(payload);
}

static eg_tensor *follow_recomputing(const pass *p)
{
    eg_tensor **in = eg__calloc(p->n_in + 1, sizeof(*in));
    if (in == NULL)
        return NULL;
    in[0] = p->decision->tensor;
    for (size_t i = 0; i < p->n_in; i++)
        in[i + 1] = p->in[i];
    eg_module *choice = eg_module_retain((eg_module *)(uintptr_t)p->choice);
    eg_tensor *out = eg__recompute(choice->ctx, run_mixed_edge, choice, release_choice, in, p->n_in + 1, true);
    free(in);
    return out;
}

/* Weights of choices inside this one would not be among the inputs: the innermost are those that recompute. */
static bool recomputes(const pass *p)
{
    const eg__binding *binding = eg__binding_of(p->choice);
    const eg_mutator *mutator = binding != NULL ? binding->mutator : NULL;
    return mutator != NULL && mutator->recompute && p->decision->tensor != NULL && p->reduction != EG_CHOICE_NONE &&
           eg_is_a(p->choice, &eg_layer_choice_class) && !eg__gates_holds(mutator->gates, p->choice);
}

eg_tensor *eg__decision_follow(const eg_decision *decision, const eg_module *choice, eg_tensor *const *in, size_t n_in,
                               eg_tensor **mask)
{
    pass p = {choice, reduction_of(choice), decision, in, n_in};
    size_t n = eg__choice_size(choice);
    if (decision->n != n) {
        eg_fail(EG_EINVAL, "%s choice '%s': the decision has %zu entries, expected %zu", eg__kind_word(choice),
                eg_mutable_key(choice), decision->n, n);
        return NULL;
    }
    eg_tensor *result = recomputes(&p) ? follow_recomputing(&p) : follow(&p);
    if (result == NULL || mask == NULL)
        return result;
    *mask = mask_tensor(&p);
    return *mask != NULL ? result : NULL;
}

static eg_tensor *follow_current(eg_mutator *self, eg_module *choice, eg_tensor *const *in, size_t n_in,
                                 eg_tensor **mask)
{
    (void)self;
    const eg_decision *decision = eg__choice_decision(choice);
    return decision != NULL ? eg__decision_follow(decision, choice, in, n_in, mask) : NULL;
}

/* ---- what a class that has nothing of its own does ---- */

static eg_status build_nothing(eg_mutator *self)
{
    (void)self;
    return EG_OK;
}

static void finalize_nothing(eg_mutator *self)
{
    (void)self;
}

static eg_status sample_current(eg_mutator *self, eg_decisions *out)
{
    return eg__decisions_copy(out, self->current);
}

static eg_status save_nothing(eg_mutator *self, const char *prefix, eg_state *state)
{
    (void)self, (void)prefix, (void)state;
    return EG_OK;
}

static eg_status load_nothing(eg_mutator *self, const char *prefix, const eg_state *state)
{
    (void)self, (void)prefix, (void)state;
    return EG_OK;
}

static eg_status pass_scope(eg_mutator *self, eg_module *scope)
{
    (void)self, (void)scope;
    return EG_OK;
}

const eg_mutator_class eg_mutator_base_class = {.struct_size = sizeof(eg_mutator_class),
                                                .name = "Mutator",
                                                .instance_size = sizeof(eg_mutator),
                                                .build = build_nothing,
                                                .finalize = finalize_nothing,
                                                .sample_search = sample_current,
                                                .sample_final = sample_current,
                                                .on_forward_layer_choice = follow_current,
                                                .on_forward_input_choice = follow_current,
                                                .enter_mutable_scope = pass_scope,
                                                .exit_mutable_scope = pass_scope,
                                                .save = save_nothing,
                                                .load = load_nothing};

/*
 * nas/darts_mutator.c - every candidate at once, weighted by a softmax that is learned.
 *
 * Liu, Simonyan, Yang: DARTS: differentiable architecture search, ICLR 2019. The vector of a key has one entry more
 * than there are candidates: the weight of "none of them", which takes part in the softmax and can never be exported.
 */
#include "nas/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct eg_darts_choice {
    eg_module *module; /* the first of its key, lent by the mutator */
    eg_tensor *alpha;  /* (candidates + 1) */
    /* for sample_final: */
    double *probabilities; /* (candidates + 1) */
    size_t best;           /* the strongest candidate and its probability */
    double strength;
};

static const double ALPHA_DEVIATION = 1e-3;

static eg_status make_choice(eg_mutator *self, eg_module *module, struct eg_darts_choice *choice)
{
    choice->module = module;
    choice->probabilities = eg__calloc(eg_layer_choice_size(module) + 1, sizeof(*choice->probabilities));
    if (choice->probabilities == NULL)
        return EG_ENOMEM;
    eg_tensor *alpha =
        eg_affine(eg_randn(self->ctx, EG_SHAPE((int64_t)eg_layer_choice_size(module) + 1)), ALPHA_DEVIATION, 0);
    choice->alpha = eg_tensor_keep(eg_tensor_copy(alpha));
    return choice->alpha != NULL ? eg_tensor_set_requires_grad(choice->alpha, true) : eg_error_last()->code;
}

static eg_status build(eg_mutator *self)
{
    eg_darts_mutator *darts = (eg_darts_mutator *)self;
    darts->choices = NULL;
    darts->n_choices = 0;
    for (size_t i = 0; i < self->n_mutables; i++)
        EG_CHECK(
            eg__kind_of(self->mutables[i]) != EG__VALUES, EG_EINVAL,
            "'%s' is a value choice, whose values cannot be mixed: darts is for layers, spos and random can choose "
            "values",
            eg_mutable_key(self->mutables[i]));
    darts->choices = eg__calloc(self->n_mutables + 1, sizeof(*darts->choices));
    if (darts->choices == NULL)
        return EG_ENOMEM;
    eg_tape *tape = eg_tape_begin(self->ctx, EG_NO_GRAD);
    eg_status status = tape != NULL ? EG_OK : EG_ENOMEM;
    for (size_t i = 0; i < self->n_mutables && status == EG_OK; i++) {
        if (eg_is_a(self->mutables[i], &eg_layer_choice_class))
            status = make_choice(self, self->mutables[i], &darts->choices[darts->n_choices++]);
    }
    eg_tape_end(tape);
    return status;
}

static void finalize(eg_mutator *self)
{
    eg_darts_mutator *darts = (eg_darts_mutator *)self;
    for (size_t i = 0; i < darts->n_choices; i++) {
        eg_tensor_release(darts->choices[i].alpha);
        free(darts->choices[i].probabilities);
    }
    free(darts->choices);
}

/* ---- while searching ---- */

static eg_status sample_search(eg_mutator *self, eg_decisions *out)
{
    eg_darts_mutator *darts = (eg_darts_mutator *)self;
    for (size_t i = 0; i < darts->n_choices; i++) {
        const struct eg_darts_choice *choice = &darts->choices[i];
        int64_t n = (int64_t)eg_layer_choice_size(choice->module);
        EG_TRY(eg_decisions_set_tensor(out, eg_mutable_key(choice->module),
                                       eg_slice(eg_f_softmax(choice->alpha, 0), 0, 0, n, 1)));
    }
    for (size_t i = 0; i < self->n_mutables; i++) {
        if (eg_is_a(self->mutables[i], &eg_input_choice_class))
            EG_TRY(eg__decide(self->mutables[i], EG__EVERY, out));
    }
    return EG_OK;
}

/* ---- at the end ---- */

/* The strongest candidate, and its part of the softmax over "none" and all candidates that are there. */
static eg_status find_best(struct eg_darts_choice *choice)
{
    size_t n = eg_layer_choice_size(choice->module), left;
    EG_TRY(eg__candidates_left(choice->module, &left));
    float *alpha = eg__calloc(n + 1, sizeof(*alpha));
    if (alpha == NULL)
        return EG_ENOMEM;
    eg_status status = eg_tensor_read(choice->alpha, alpha, n + 1);
    double highest = -INFINITY, sum = 0;
    choice->best = n;
    for (size_t i = 0; i <= n; i++) {
        if (i < n && !eg__candidate_there(choice->module, i))
            alpha[i] = -INFINITY;
        else if (i < n && (choice->best == n || alpha[i] > alpha[choice->best]))
            choice->best = i;
        highest = fmax(highest, alpha[i]);
    }
    for (size_t i = 0; i <= n; i++)
        sum += exp(alpha[i] - highest);
    for (size_t i = 0; i <= n; i++)
        choice->probabilities[i] = exp(alpha[i] - highest) / sum;
    choice->strength = choice->probabilities[choice->best];
    free(alpha);
    if (status == EG_OK && !isfinite(sum))
        status = eg_fail(EG_EINVAL, "the weights of '%s' are not finite", eg_mutable_key(choice->module));
    return status;
}

static const struct eg_darts_choice *find(const eg_darts_mutator *darts, const char *key)
{
    for (size_t i = 0; i < darts->n_choices; i++) {
        if (strcmp(eg_mutable_key(darts->choices[i].module), key) == 0)
            return &darts->choices[i];
    }
    return NULL;
}

/* Marks the k strongest sources, of equal ones the first. */
static void choose_strongest(const eg_darts_mutator *darts, const eg_module *choice, int64_t k, bool *mask)
{
    for (; k > 0; k--) {
        size_t best = 0;
        double highest = -1;
        for (size_t i = 0; i < eg_input_choice_size(choice); i++) {
            const struct eg_darts_choice *source = find(darts, eg_input_choice_source(choice, i));
            double strength = source != NULL ? source->strength : 0;
            if (!mask[i] && strength > highest) {
                highest = strength;
                best = i;
            }
        }
        mask[best] = true;
    }
}

static void warn_of_sources(const eg_darts_mutator *darts, const eg_module *choice)
{
    for (size_t i = 0; i < eg_input_choice_size(choice) && eg_input_choice_n_chosen(choice) >= 0; i++) {
        if (find(darts, eg_input_choice_source(choice, i)) == NULL)
            eg_log(choice->ctx, EG_LOG_WARNING,
                   "input choice '%s': source '%s' is no layer choice, its strength counts as 0",
                   eg_mutable_key(choice), eg_input_choice_source(choice, i));
    }
}

static eg_status decide_inputs(const eg_darts_mutator *darts, const eg_module *choice, eg_decisions *out)
{
    int64_t k = eg_input_choice_n_chosen(choice);
    if (k < 0)
        return eg__decide(choice, EG__EVERY, out);
    size_t n = eg_input_choice_size(choice);
    bool *mask = eg__calloc(n + 1, sizeof(*mask));
    if (mask == NULL)
        return EG_ENOMEM;
    choose_strongest(darts, choice, k, mask);
    eg_status status = eg_decisions_set_mask(out, eg_mutable_key(choice), mask, n);
    free(mask);
    return status;
}

static eg_status decide_layers(const struct eg_darts_choice *choice, eg_decisions *out)
{
    size_t n = eg_layer_choice_size(choice->module);
    bool *mask = eg__calloc(n, sizeof(*mask));
    if (mask == NULL)
        return EG_ENOMEM;
    mask[choice->best] = true;
    eg_status status = eg_decisions_set_mask(out, eg_mutable_key(choice->module), mask, n);
    free(mask);
    return status;
}

/* What `best` of each choice means for the whole. */
static eg_status decide(eg_mutator *self, eg_decisions *out)
{
    eg_darts_mutator *darts = (eg_darts_mutator *)self;
    for (size_t i = 0; i < darts->n_choices; i++)
        EG_TRY(decide_layers(&darts->choices[i], out));
    for (size_t i = 0; i < self->n_mutables; i++) {
        if (eg_is_a(self->mutables[i], &eg_input_choice_class))
            EG_TRY(decide_inputs(darts, self->mutables[i], out));
    }
    return eg__decisions_drop_unused(self, out);
}

/* ---- when the strongest do not satisfy the constraints ---- */

enum { FINAL_DRAWS = 1000 };

/* One candidate by the softmax over candidates, without "none". */
static void draw_candidate(struct eg_darts_choice *choice, eg_rng *rng)
{
    size_t n = eg_layer_choice_size(choice->module);
    double sum = 0, at = eg_rng_uniform(rng) * (1 - choice->probabilities[n]);
    for (size_t i = 0; i < n && at >= sum; i++) {
        sum += choice->probabilities[i];
        if (eg__candidate_there(choice->module, i))
            choice->best = i; /* the last, where rounding leads behind it */
    }
    choice->strength = choice->probabilities[choice->best];
}

/* The logarithm of the probability of what counts. */
static double log_probability(const eg_darts_mutator *darts, const eg_decisions *decisions)
{
    double sum = 0;
    for (size_t i = 0; i < darts->n_choices; i++) {
        const struct eg_darts_choice *choice = &darts->choices[i];
        if (eg_decisions_get(decisions, eg_mutable_key(choice->module)) != NULL)
            sum += log(choice->strength);
    }
    return sum;
}

/* A draw that is allowed and more probable takes the place of what `out` holds. */
static eg_status draw(eg_mutator *self, eg_decisions *drawn, double *highest, eg_decisions *out, bool *found)
{
    eg_darts_mutator *darts = (eg_darts_mutator *)self;
    for (size_t i = 0; i < darts->n_choices; i++)
        draw_candidate(&darts->choices[i], eg_context_rng(self->ctx));
    EG_TRY(decide(self, drawn));
    bool hold;
    EG_TRY(eg__constraints_hold(self, drawn, &hold));
    if (!hold)
        return EG_OK;
    double probability = log_probability(darts, drawn);
    if (*found && probability <= *highest)
        return EG_OK;
    *highest = probability;
    *found = true;
    eg__decisions_swap(out, drawn);
    return EG_OK;
}

static eg_status draw_allowed(eg_mutator *self, eg_decisions *out)
{
    bool found = false;
    double highest = 0;
    eg__constraints_count_anew(self);
    eg_status status = EG_OK;
    for (int i = 0; i < FINAL_DRAWS && status == EG_OK; i++) {
        eg_decisions *drawn = eg_decisions_new();
        status = drawn != NULL ? draw(self, drawn, &highest, out, &found) : EG_ENOMEM;
        eg_decisions_free(drawn);
    }
    if (status == EG_OK && !found)
        status = eg__constraints_fail(self, FINAL_DRAWS);
    return status;
}

static eg_status sample_final(eg_mutator *self, eg_decisions *out)
{
    eg_darts_mutator *darts = (eg_darts_mutator *)self;
    for (size_t i = 0; i < darts->n_choices; i++)
        EG_TRY(find_best(&darts->choices[i]));
    for (size_t i = 0; i < self->n_mutables; i++) {
        if (eg_is_a(self->mutables[i], &eg_input_choice_class))
            warn_of_sources(darts, self->mutables[i]);
    }
    EG_TRY(decide(self, out));
    bool hold;
    EG_TRY(eg__constraints_hold(self, out, &hold));
    return hold ? EG_OK : draw_allowed(self, out);
}

/* ---- in checkpoints ---- */

static eg_status put_alphas(const eg_darts_mutator *darts, const char *prefix, const char *part, eg_state *state)
{
    for (size_t i = 0; i < darts->n_choices; i++) {
        char *name = eg__format("%s%s%s", prefix, part, eg_mutable_key(darts->choices[i].module));
        eg_status status = name != NULL ? eg_state_put(state, name, darts->choices[i].alpha) : EG_ENOMEM;
        eg_free(name);
        EG_TRY(status);
    }
    return EG_OK;
}

static eg_status save(eg_mutator *self, const char *prefix, eg_state *state)
{
    return put_alphas((const eg_darts_mutator *)self, prefix, "alpha.", state);
}

static eg_status find_alpha(const struct eg_darts_choice *choice, const char *prefix, const eg_state *state,
                            const eg_tensor **saved)
{
    char *name = eg__format("%salpha.%s", prefix, eg_mutable_key(choice->module));
    if (name == NULL)
        return EG_ENOMEM;
    char have[EG_SHAPE_TEXT_SIZE], want[EG_SHAPE_TEXT_SIZE];
    const eg_tensor *t = *saved = eg_state_get(state, name);
    eg_status status = EG_OK;
    if (t == NULL)
        status = eg_fail(EG_ENOENT, "the state lacks '%s'", name);
    else if (t->storage == NULL || t->dtype != choice->alpha->dtype)
        status = eg_fail(EG_EDTYPE, "'%s' is %s, expected %s", name, eg_dtype_name(t->dtype),
                         eg_dtype_name(choice->alpha->dtype));
    else if (!eg_shape_equal(t->shape, choice->alpha->shape))
        status =
            eg_fail(EG_ESHAPE, "'%s' has shape %s, expected %s", name, eg_shape_format(t->shape, have, sizeof(have)),
                    eg_shape_format(choice->alpha->shape, want, sizeof(want)));
    eg_free(name);
    return status;
}

/* All is found and checked before anything changes. */
static eg_status load(eg_mutator *self, const char *prefix, const eg_state *state)
{
    const eg_darts_mutator *darts = (const eg_darts_mutator *)self;
    const eg_tensor **saved = eg__calloc(darts->n_choices + 1, sizeof(*saved));
    eg_status status = saved != NULL ? EG_OK : EG_ENOMEM;
    for (size_t i = 0; i < darts->n_choices && status == EG_OK; i++)
        status = find_alpha(&darts->choices[i], prefix, state, &saved[i]);
    for (size_t i = 0; i < darts->n_choices && status == EG_OK; i++)
        status = eg_tensor_assign(darts->choices[i].alpha, saved[i]);
    free(saved);
    return status;
}

const eg_mutator_class eg_darts_mutator_class = {.struct_size = sizeof(eg_mutator_class),
                                                 .name = "DartsMutator",
                                                 .instance_size = sizeof(eg_darts_mutator),
                                                 .build = build,
                                                 .finalize = finalize,
                                                 .sample_search = sample_search,
                                                 .sample_final = sample_final,
                                                 .save = save,
                                                 .load = load};

eg_mutator *eg_darts_mutator_new(eg_module *model)
{
    return eg_mutator_attach(&eg_darts_mutator_class, 0, NULL, model);
}

/* NULL and the failure recorded for another kind of mutator. */
static eg_darts_mutator *as_darts(eg_mutator *mutator)
{
    if (mutator == NULL)
        return eg__null(__func__, "mutator");
    for (const eg_mutator_class *cls = mutator->cls; cls != NULL; cls = cls->super) {
        if (cls == &eg_darts_mutator_class)
            return (eg_darts_mutator *)mutator;
    }
    eg_fail(EG_EINVAL, "mutator is a %s, expected a %s", mutator->cls->name, eg_darts_mutator_class.name);
    return NULL;
}

eg_tensor *eg_darts_mutator_alpha(eg_mutator *mutator, const char *key)
{
    eg_darts_mutator *darts = as_darts(mutator);
    if (darts == NULL || key == NULL)
        return darts == NULL ? NULL : eg__null(__func__, "key");
    const struct eg_darts_choice *choice = find(darts, key);
    if (choice == NULL)
        eg_fail(EG_ENOENT, "the model has no layer choice '%s'", key);
    return choice != NULL ? choice->alpha : NULL;
}

eg_status eg_darts_mutator_state(eg_mutator *mutator, const char *prefix, eg_state *state)
{
    eg_darts_mutator *darts = as_darts(mutator);
    if (darts == NULL)
        return eg_error_last()->code;
    EG_CHECK(state != NULL, EG_EINVAL, "no state was given");
    return put_alphas(darts, prefix != NULL ? prefix : "", "", state);
}

/*
 * nas/strategies/evolution.c - a search among architectures that are only evaluated, not trained.
 *
 * The first `population` candidates are uniform. After that each new one is, in turn, a mutation or a uniform
 * crossover of the best seen so far (Guo et al. 2020, section 3.4, without their rounds); where no new one is found
 * that way, a uniform one again. No candidate is evaluated twice, and a space that has no new ones (that the
 * constraints allow) ends the search.
 */
#include "nas/internal.h"

#include <stdlib.h>

enum { VARIATION_TRIES = 10, UNIFORM_TRIES = 500 };

typedef struct candidate {
    eg_decisions *genes; /* also of what is not used: a crossover may use it */
    double accuracy;
} candidate;

typedef struct evolution {
    eg_strategy *strategy;
    const eg__evolution_options *options;
    eg_rng rng;
    eg__map seen;          /* texts of architectures */
    candidate *candidates; /* best first */
    size_t n, capacity;
    bool exhausted; /* nothing more that the constraints allow was found */
} evolution;

/* ---- making candidates ---- */

static const eg_decisions *any_parent(evolution *e)
{
    return e->candidates[eg_rng_below(&e->rng, EG_MIN(e->n, e->options->parents))].genes;
}

static eg_status mutate(evolution *e, eg_decisions *out)
{
    const eg_mutator *mutator = e->strategy->mutator;
    const eg_decisions *parent = any_parent(e);
    for (size_t i = 0; i < mutator->n_mutables; i++) {
        const eg_module *choice = mutator->mutables[i];
        if (!eg__is_choice(choice))
            continue;
        const char *key = eg_mutable_key(choice);
        if (eg_rng_uniform(&e->rng) < e->options->mutation)
            EG_TRY(eg__sample_choice(choice, &e->rng, out));
        else
            EG_TRY(eg__decisions_copy_one(out, key, eg_decisions_get(parent, key)));
    }
    return EG_OK;
}

static eg_status cross(evolution *e, eg_decisions *out)
{
    const eg_decisions *parents[2] = {any_parent(e), any_parent(e)};
    for (size_t i = 0; i < eg__decisions_size(parents[0]); i++) {
        const char *key = eg__decisions_key(parents[0], i);
        EG_TRY(eg__decisions_copy_one(out, key, eg_decisions_get(parents[eg_rng_below(&e->rng, 2)], key)));
    }
    return EG_OK;
}

/* What the genes mean: nothing that is not used runs. */
static eg_decisions *express(const evolution *e, const eg_decisions *genes)
{
    eg_decisions *decisions = eg_decisions_new();
    if (decisions == NULL || eg__decisions_copy(decisions, genes) != EG_OK) {
        eg_decisions_free(decisions);
        return NULL;
    }
    if (eg__decisions_drop_unused(e->strategy->mutator, decisions) == EG_OK)
        return decisions;
    eg_decisions_free(decisions);
    return NULL;
}

/* Whether decisions were not seen before; remembers them then. */
static eg_status check_unseen(evolution *e, const eg_decisions *decisions, bool *fresh)
{
    eg_arch *arch = eg_mutator_export_decisions(e->strategy->mutator, decisions);
    char *text = arch != NULL ? eg_arch_text(arch) : NULL;
    *fresh = text != NULL && eg__map_find(&e->seen, text) == NULL;
    eg_status status = text == NULL ? eg_error_last()->code : *fresh ? eg__map_put(&e->seen, text, NULL) : EG_OK;
    eg_free(text);
    eg_arch_free(arch);
    return status;
}

/* Whether these genes mean something allowed that was not seen before. */
static eg_status check_new(evolution *e, const eg_decisions *genes, bool *fresh)
{
    eg_decisions *decisions = express(e, genes);
    if (decisions == NULL)
        return eg_error_last()->code;
    eg_status status = eg__constraints_hold(e->strategy->mutator, decisions, fresh);
    if (status == EG_OK && *fresh)
        status = check_unseen(e, decisions, fresh);
    eg_decisions_free(decisions);
    return status;
}

typedef eg_status (*make_fn)(evolution *e, eg_decisions *out);

/* Genes, not only what they mean; so draws are judged here. */
static eg_status make_uniform(evolution *e, eg_decisions *out)
{
    eg_mutator *mutator = e->strategy->mutator;
    eg__constraints_count_anew(mutator);
    for (int i = 0; i < EG__MAX_DRAWS; i++) {
        EG_TRY(eg__sample_genes(mutator, &e->rng, out));
        eg_decisions *decisions = express(e, out);
        if (decisions == NULL)
            return eg_error_last()->code;
        bool good;
        eg_status status = eg__constraints_hold(mutator, decisions, &good);
        eg_decisions_free(decisions);
        if (status != EG_OK || good)
            return status;
    }
    e->exhausted = e->n > 0;
    return e->exhausted ? EG_OK : eg__constraints_fail(mutator, EG__MAX_DRAWS);
}

/* Genes of a new candidate made by `make`; *out stays NULL when `tries` gave none. */
static eg_status try_make(evolution *e, make_fn make, int tries, eg_decisions **out)
{
    *out = NULL;
    for (int i = 0; i < tries && !e->exhausted; i++) {
        eg_decisions *genes = eg_decisions_new();
        bool fresh = false;
        eg_status status = genes != NULL ? make(e, genes) : EG_ENOMEM;
        if (status == EG_OK && !e->exhausted)
            status = check_new(e, genes, &fresh);
        if (status == EG_OK && fresh) {
            *out = genes;
            return EG_OK;
        }
        eg_decisions_free(genes);
        EG_TRY(status);
    }
    return EG_OK;
}

static eg_status make_next(evolution *e, eg_decisions **out)
{
    *out = NULL;
    if (e->options->parents > 0 && e->n >= e->options->population)
        EG_TRY(try_make(e, e->n % 2 == 0 ? mutate : cross, VARIATION_TRIES, out));
    return *out != NULL ? EG_OK : try_make(e, make_uniform, UNIFORM_TRIES, out);
}

/* ---- judging them ---- */

static eg_status follow(evolution *e, const eg_decisions *genes)
{
    eg_decisions *decisions = express(e, genes);
    if (decisions == NULL)
        return EG_ENOMEM;
    eg__mutator_follow(e->strategy->mutator, decisions);
    return EG_OK;
}

/* Puts a candidate into its place; of equal ones the earlier stays in front. Takes genes over. */
static eg_status insert(evolution *e, eg_decisions *genes, double accuracy)
{
    eg_status status = eg__grow(&e->candidates, &e->capacity, e->n + 1, sizeof(*e->candidates));
    if (status != EG_OK) {
        eg_decisions_free(genes);
        return status;
    }
    size_t at = e->n++;
    for (; at > 0 && e->candidates[at - 1].accuracy < accuracy; at--)
        e->candidates[at] = e->candidates[at - 1];
    e->candidates[at] = (candidate){genes, accuracy};
    return EG_OK;
}

static eg_status evaluate(evolution *e, eg_decisions *genes)
{
    const eg_strategy_host *host = e->strategy->host;
    double accuracy = 0;
    eg_status status = follow(e, genes);
    if (status == EG_OK && e->options->evaluations > 1)
        status = host->evaluate(host->payload, &accuracy);
    if (status == EG_OK)
        return insert(e, genes, accuracy);
    eg_decisions_free(genes);
    return status;
}

/* After each candidate; at the end all that there are have been done. */
static eg_status tell(const evolution *e, size_t total)
{
    const eg_strategy_host *host = e->strategy->host;
    return host != NULL && host->progress != NULL ? host->progress(host->payload, "candidates", e->n, total) : EG_OK;
}

static eg_status run(evolution *e)
{
    while (e->n < e->options->evaluations) {
        eg_decisions *genes;
        EG_TRY(make_next(e, &genes));
        if (genes == NULL) {
            eg_log(e->strategy->ctx, EG_LOG_INFO,
                   "%s: no new architecture found after %zu, the search space seems to have no more",
                   e->strategy->cls->name, e->n);
            EG_TRY(tell(e, e->n));
            break;
        }
        EG_TRY(evaluate(e, genes));
        EG_TRY(tell(e, e->options->evaluations));
    }
    return e->n > 0 ? follow(e, e->candidates[0].genes)
                    : eg_fail(EG_EINVAL, "%s: no candidate to choose", e->strategy->cls->name);
}

eg_arch *eg__evolve(eg_strategy *self, const eg__evolution_options *options)
{
    evolution e = {.strategy = self, .options = options, .rng = eg_rng_make(options->seed, "choose", 0)};
    eg_arch *arch = NULL;
    if (run(&e) == EG_OK)
        arch = eg_mutator_export_decisions(self->mutator, self->mutator->current);
    for (size_t i = 0; i < e.n; i++)
        eg_decisions_free(e.candidates[i].genes);
    free(e.candidates);
    eg__map_free(&e.seen);
    return arch;
}

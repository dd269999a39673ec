/*
 * Which units matter least, and pruning them.
 */
#include "surgery/coupling.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- scores ---- */

/* A unit that can go. */
typedef struct candidate {
    size_t group, unit;
    double score;
    bool gone;
} candidate;

typedef struct pruning {
    eg_surgery *s;
    const eg_prune_options *o;
    eg_coupling *c;
    candidate *items; /* the units of a group stand together */
    size_t n, capacity;
    bool any; /* a group that matches, whether it can change or not */
} pruning;

/* The numbers of a tensor, row-major; for free(). NULL on failure. */
static float *read_numbers(const eg_tensor *t)
{
    size_t n = (size_t)eg_tensor_numel(t);
    float *numbers = eg__calloc(n + 1, sizeof(*numbers));
    if (numbers == NULL || eg_tensor_read(t, numbers, n) == EG_OK)
        return numbers;
    free(numbers);
    return NULL;
}

/* Adds to sums[i] what the entries with index i of a dimension are worth: their magnitudes or squares, or their
 * products with those of g. */
static void add_worth(const eg_tensor *t, int dim, const float *w, const float *g, eg_importance score, double *sums)
{
    int64_t n = eg_tensor_numel(t), inner = 1, size = t->shape.dims[dim];
    for (int d = dim + 1; d < t->shape.ndim; d++)
        inner *= t->shape.dims[d];
    for (int64_t i = 0; i < n; i++) {
        double x = w[i];
        sums[i / inner % size] += g != NULL ? x * (double)g[i] : score == EG_IMPORTANCE_L1 ? fabs(x) : x * x;
    }
}

static eg_status score_part(const pruning *p, const eg_coupled_part *part, candidate *units, size_t n_units)
{
    const eg_tensor *t = part->tensor, *grad = NULL;
    if (p->o->score == EG_IMPORTANCE_TAYLOR) {
        grad = t->grad;
        EG_CHECK(grad != NULL || !t->requires_grad, EG_EINVAL,
                 "the taylor score needs gradients, and '%s' has none: run a backward pass first", part->path);
        if (grad == NULL)
            return EG_OK;
    }
    float *w = read_numbers(t), *g = grad != NULL ? read_numbers(grad) : NULL;
    double *sums = eg__calloc((size_t)t->shape.dims[part->dim], sizeof(*sums));
    bool has = w != NULL && sums != NULL && (g != NULL || grad == NULL);
    if (has) {
        add_worth(t, part->dim, w, g, p->o->score, sums);
        for (size_t i = 0; i < n_units * part->per_unit; i++)
            units[i / part->per_unit].score += sums[part->indices[i]];
    }
    free(w);
    free(g);
    free(sums);
    return has ? EG_OK : eg_error_last()->code;
}

static bool is_trained(const eg_coupling *c, const eg_coupled_part *part)
{
    for (size_t i = 0; i < c->n_owners; i++) {
        if (c->ties.tensors[c->owners[i].tensor].leaf == part->tensor)
            return c->owners[i].trained;
    }
    return false;
}

static eg_status score_group(pruning *p, const eg_coupled_group *g, candidate *units)
{
    eg_importance score = p->o->score;
    eg_rng *stream = p->s->is_apart ? eg_context_rng(p->s->ctx) : &p->s->rng; /* the surgery's, wherever it is now */
    for (size_t k = 0; k < g->n_parts && score != EG_IMPORTANCE_RANDOM; k++) {
        if (is_trained(p->c, &g->parts[k]))
            EG_TRY(score_part(p, &g->parts[k], units, g->n_units));
    }
    double mean = 0;
    for (size_t i = 0; i < g->n_units; i++) {
        candidate *u = &units[i];
        if (score == EG_IMPORTANCE_RANDOM)
            u->score = eg_rng_uniform(stream);
        else
            u->score = score == EG_IMPORTANCE_L2 ? sqrt(u->score) : fabs(u->score);
        u->score = isnan(u->score) ? INFINITY : u->score; /* what is broken is not what matters least */
        mean += u->score / (double)g->n_units;
    }
    bool compared = p->o->global && (score == EG_IMPORTANCE_L1 || score == EG_IMPORTANCE_L2);
    for (size_t i = 0; i < g->n_units && compared && mean > 0; i++)
        units[i].score /= mean;
    return EG_OK;
}

/* ---- which groups take part ---- */

eg_status eg__part_is_at(const eg_coupled_part *part, const char *patterns, bool *at)
{
    char *path = eg__strdup(part->path);
    *at = false;
    for (char *dot; path != NULL && !*at && (dot = strrchr(path, '.')) != NULL;) {
        *dot = '\0';
        *at = eg__path_matches(patterns, path);
    }
    free(path);
    return path != NULL ? EG_OK : EG_ENOMEM;
}

static eg_status takes_part(const pruning *p, const eg_coupled_group *g, bool *does)
{
    bool made = p->o->at == NULL, ignored = false, makes = false;
    for (size_t k = 0; k < g->n_parts && g->heads == p->o->heads; k++) {
        const eg_coupled_part *part = &g->parts[k];
        makes = makes || part->makes;
        if (!made && part->makes)
            EG_TRY(eg__part_is_at(part, p->o->at, &made));
        if (!ignored && p->o->ignore != NULL)
            EG_TRY(eg__part_is_at(part, p->o->ignore, &ignored));
    }
    *does = makes && made && !ignored;
    return EG_OK;
}

static eg_status list_candidates(pruning *p)
{
    for (size_t i = 0; i < p->c->n_groups; i++) {
        const eg_coupled_group *g = &p->c->groups[i];
        bool does;
        EG_TRY(takes_part(p, g, &does));
        if (!does)
            continue;
        p->any = true;
        if (g->fixed != NULL)
            continue;
        EG_TRY(eg__grow(&p->items, &p->capacity, p->n + g->n_units, sizeof(*p->items)));
        for (size_t k = 0; k < g->n_units; k++)
            p->items[p->n + k] = (candidate){.group = i, .unit = k};
        p->n += g->n_units;
        EG_TRY(score_group(p, g, &p->items[p->n - g->n_units]));
    }
    return EG_OK;
}

/* ---- choosing ---- */

static int compare_scores(const void *a, const void *b)
{
    const candidate *x = *(candidate *const *)a, *y = *(candidate *const *)b;
    if (x->score != y->score)
        return x->score < y->score ? -1 : 1;
    return (x > y) - (x < y); /* of one array */
}

/* How many of n units have to stay. */
static size_t least(const eg_prune_options *o, size_t n)
{
    size_t step = (size_t)EG_MAX(o->round_to, 1), min = (size_t)EG_MAX(o->min_units, 1);
    min = (min + step - 1) / step * step;
    return EG_MIN(min, n);
}

/* Marks `wanted` of these, the lowest first, as gone, where their group still has more than must stay. */
static void mark_gone(const pruning *p, candidate **sorted, size_t n, size_t wanted, size_t *left)
{
    for (size_t i = 0; i < n && wanted > 0; i++) {
        size_t group = sorted[i]->group;
        if (left[group] <= least(p->o, p->c->groups[group].n_units))
            continue;
        sorted[i]->gone = true;
        left[group]--;
        wanted--;
    }
}

/* Takes units back, the best first, until what is left is a multiple. */
static void round_up(const pruning *p, candidate **sorted, size_t n, size_t *left)
{
    size_t step = (size_t)EG_MAX(p->o->round_to, 1);
    for (size_t i = n; i-- > 0;) {
        size_t group = sorted[i]->group;
        if (!sorted[i]->gone || left[group] % step == 0)
            continue;
        sorted[i]->gone = false;
        left[group]++;
    }
}

static size_t portion(double ratio, size_t n)
{
    return (size_t)floor(ratio * (double)n + 1e-9);
}

static eg_status choose(pruning *p)
{
    candidate **sorted = eg__calloc(p->n + 1, sizeof(*sorted));
    size_t *left = eg__calloc(p->c->n_groups + 1, sizeof(*left));
    bool has = sorted != NULL && left != NULL;
    for (size_t i = 0; i < p->n && has; i++) {
        sorted[i] = &p->items[i];
        left[p->items[i].group]++;
    }
    for (size_t i = 0, n; i < p->n && has; i += n) {
        n = p->o->global ? p->n : left[p->items[i].group];
        qsort(&sorted[i], n, sizeof(*sorted), compare_scores);
        mark_gone(p, &sorted[i], n, portion(p->o->ratio, n), left);
        round_up(p, &sorted[i], n, left);
    }
    free(sorted);
    free(left);
    return has ? EG_OK : EG_ENOMEM;
}

static eg_status mark(pruning *p, size_t *n_gone)
{
    *n_gone = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (p->items[i].gone)
            EG_TRY(eg_coupling_set(p->c, p->items[i].group, p->items[i].unit, 0));
        *n_gone += p->items[i].gone;
    }
    return EG_OK;
}

/* ---- trying ---- */

/* Steps that did not follow, as often as it was seen. */
typedef struct refusals {
    size_t *steps, n, capacity;
} refusals;

typedef struct look {
    const eg_surgery *s;
    const refusals *refused;
    eg_coupling *c;
} look;

static eg_status look_coupling(void *payload, eg_module *root)
{
    look *l = payload;
    l->c = eg__coupling_new(root, l->s->inputs, l->s->n_inputs, l->refused->steps, l->refused->n);
    return l->c != NULL ? EG_OK : eg_error_last()->code;
}

static eg_status note_fixed(const pruning *p)
{
    for (size_t i = 0; i < p->c->n_groups; i++) {
        const eg_coupled_group *g = &p->c->groups[i];
        bool does = false;
        if (g->fixed != NULL)
            EG_TRY(takes_part(p, g, &does));
        if (does)
            EG_TRY(eg_surgery_note(p->s, "'%s' stays as it is: %s", g->parts[0].path, g->fixed));
    }
    return EG_OK;
}

/* Plans one choice; *follows: the model does what it was to do. */
static eg_status attempt(pruning *p, size_t *step, bool *follows)
{
    size_t n_gone;
    p->n = 0;
    *follows = true;
    EG_TRY(list_candidates(p));
    if (!p->any)
        return eg_surgery_note(p->s, "pruning found no %s to take out",
                               p->o->heads ? "heads of attention" : "channels");
    EG_TRY(choose(p));
    EG_TRY(mark(p, &n_gone));
    if (n_gone == 0)
        return EG_OK;
    EG_TRY(eg__surgery_resize(p->s, p->c));
    return eg__surgery_verify(p->s, p->c, step, follows);
}

/* One more refusal of a step: each makes more of it fixed, which ends. */
static eg_status refuse(refusals *r, size_t step)
{
    size_t before = 0;
    for (size_t i = 0; i < r->n; i++)
        before += r->steps[i] == step;
    EG_CHECK(before <= EG_MAX_DIMS, EG_EUNSUPPORTED, "the model does not follow its parameters when channels go");
    EG_TRY(eg__grow(&r->steps, &r->capacity, r->n + 1, sizeof(*r->steps)));
    r->steps[r->n++] = step;
    return EG_OK;
}

static eg_status prune(eg_surgery *s, const eg_prune_options *o)
{
    size_t n_edits = s->n_edits, n_replacements = s->n_replacements, n_derivations = s->n_derivations, step = 0;
    refusals refused = {0};
    pruning p = {.s = s, .o = o};
    eg_status status = EG_OK;
    for (bool follows = false; status == EG_OK && !follows;) {
        look l = {.s = s, .refused = &refused};
        status = eg_surgery_look(s, look_coupling, &l);
        p.c = l.c;
        if (status == EG_OK)
            status = attempt(&p, &step, &follows);
        if (status == EG_OK && follows)
            status = note_fixed(&p);
        else if (status == EG_OK)
            status = refuse(&refused, step);
        if (status != EG_OK || !follows)
            eg__surgery_cut(s, n_edits, n_replacements, n_derivations);
        eg_coupling_free(l.c);
    }
    free(p.items);
    free(refused.steps);
    return status;
}

eg_status eg_surgery_prune_with(eg_surgery *s, const eg_prune_options *options)
{
    eg_prune_options own;
    EG_TRY(eg__options_copy(&own, sizeof(own), options));
    if (s == NULL) {
        eg__null("eg_surgery_prune", "surgery");
        return eg_error_last()->code;
    }
    EG_CHECK(own.ratio >= 0 && own.ratio <= 1, EG_EINVAL, "ratio is %g, expected 0 to 1", own.ratio);
    EG_CHECK(s->n_inputs > 0, EG_EINVAL, "pruning has to run the model: give the surgery .inputs");
    EG_TRY(eg__path_check(own.at));
    EG_TRY(eg__path_check(own.ignore));
    return prune(s, &own);
}

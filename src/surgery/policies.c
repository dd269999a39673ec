/*
 * Policies asked about the modules of a model: which of them match, in what order, and what they answer.
 *
 * Each wave goes over the model as it is planned then, and plans what the policies answer. With recursion another wave
 * follows for what the last one has made, until one makes nothing.
 */
#include "surgery/internal.h"

#include <stdlib.h>
#include <string.h>

/* Chains of replacements of replacements longer than this are taken for endless, as are more of them than that. */
enum { MAX_CHAIN = 64, MAX_RECURSIONS = 1 << 20 };

enum { UNSEEN, SEEN, REPLACED };

/* Modules come from all over the memory: the processor is told of them so many before they are read. */
enum { AHEAD = 8 };

typedef struct pass {
    eg_surgery *s;
    eg_policies policies;
    size_t first_name; /* of the policies, in the surgery */
    size_t *n_matched; /* of each policy */
    eg__ranks ranks;   /* of the policies */
    bool recurse;
    eg__ptr_map offered; /* modules, with recursion */
    eg__ptr_map makers;  /* new modules -> replacement + 1, with recursion */
    size_t first;        /* replacement of this pass */
    /* of a wave */
    eg__model_graph graph;
    unsigned char *state; /* of each vertex */
    uint32_t *maker;      /* of each vertex: the replacement that made it, + 1 */
    uint32_t *ways;       /* of each vertex: the number of its path in the surgery, + 1 */
    uint32_t *runs;       /* of each vertex: when it first runs, where that is the order; else NULL */
    eg__buf path;
} pass;

/* ---- asking ---- */

static const char *name_of(const pass *p, size_t policy)
{
    return p->s->names[p->first_name + policy];
}

static const char *path_of(pass *p, uint32_t vertex)
{
    return eg__model_graph_path(&p->graph, vertex, &p->path) == EG_OK ? eg__path_text(&p->path) : NULL;
}

static bool is_spared(const pass *p, const eg_policy *policy, uint32_t vertex)
{
    for (uint32_t v = vertex; policy->spare != NULL; v = p->graph.links[p->graph.vertices[v].way].parent) {
        for (size_t i = 0; policy->spare[i] != NULL; i++) {
            if (eg_is_a(p->graph.vertices[v].module, policy->spare[i]))
                return true;
        }
        if (p->graph.vertices[v].way == EG__NO_VERTEX)
            break;
    }
    return false;
}

static eg_status matches(pass *p, const eg_policy *policy, uint32_t vertex, bool *result)
{
    *result = !is_spared(p, policy, vertex);
    if (!*result || (policy->at == NULL && policy->when == NULL))
        return EG_OK;
    const char *path = path_of(p, vertex);
    if (path == NULL)
        return EG_ENOMEM;
    *result = eg__path_matches(policy->at, path) &&
              (policy->when == NULL || policy->when(policy->payload, p->graph.vertices[vertex].module, path));
    return EG_OK;
}

/* What the policy puts in the place of the vertex; NULL where it leaves it. */
static eg_status ask(pass *p, size_t i, uint32_t vertex, eg_module **fresh)
{
    eg_policy *policy = &p->policies.items[i];
    eg_module *m = p->graph.vertices[vertex].module;
    eg_error_clear(); /* what predicates and other policies tried in vain */
    *fresh = policy->replace(policy->payload, m, policy->index++);
    p->n_matched[i]++;
    if (*fresh == NULL && eg_error_last()->code != EG_OK) {
        const char *path = path_of(p, vertex);
        return eg__fail_prefix(eg_error_last()->code, "policy '%s' at '%s'", name_of(p, i), path != NULL ? path : "");
    }
    if (*fresh == NULL || (*fresh)->ctx == p->s->ctx)
        return EG_OK;
    eg_module_release(*fresh);
    *fresh = NULL;
    return eg_fail(EG_EINVAL, "policy '%s': what it puts in was made in another context than the model", name_of(p, i));
}

static eg_status fail_conflict(pass *p, uint32_t vertex, size_t a, size_t b)
{
    const char *path = path_of(p, vertex);
    return eg_fail(EG_EINVAL, "policies '%s' and '%s' both replace '%s', a %s, and neither is more specific",
                   name_of(p, a), name_of(p, b), path != NULL ? path : "", p->graph.vertices[vertex].module->cls->name);
}

/* Asks the policies of one rank after the other, until one answers. */
static eg_status ask_all(pass *p, uint32_t vertex, size_t *policy, eg_module **fresh)
{
    const eg__class_policies *list = eg__ranks_of(&p->ranks, p->graph.vertices[vertex].module->cls);
    if (list == NULL)
        return EG_ENOMEM;
    *fresh = NULL;
    for (size_t i = 0; i < list->n; i++) {
        if (*fresh != NULL && list->items[i].rank > list->items[i - 1].rank)
            break;
        bool does;
        eg_module *answer = NULL;
        eg_status status = matches(p, &p->policies.items[list->items[i].policy], vertex, &does);
        if (status == EG_OK && does)
            status = ask(p, list->items[i].policy, vertex, &answer);
        if (status == EG_OK && answer != NULL && *fresh != NULL) {
            eg_module_release(answer);
            status = fail_conflict(p, vertex, *policy, list->items[i].policy);
        }
        if (status != EG_OK) {
            eg_module_release(*fresh);
            return status;
        }
        if (answer != NULL) {
            *fresh = answer;
            *policy = list->items[i].policy;
        }
    }
    return EG_OK;
}

/* ---- planning an answer ---- */

static eg_status fail_chain(pass *p, const eg__replacement *last)
{
    eg__buf text = {0};
    const eg__replacement *chain[4];
    size_t n = 0;
    for (const eg__replacement *r = last; n < EG_COUNT(chain); r = &p->s->replacements[r->maker - 1]) {
        chain[n++] = r;
        if (r->maker == 0)
            break;
    }
    eg__buf_printf(&text, "%s", chain[n - 1]->maker != 0 ? ".. -> " : "");
    while (n > 0) {
        eg__buf_printf(&text, "%s -> ", chain[--n]->old->cls->name);
    }
    eg__buf_printf(&text, "%s", last->fresh->cls->name);
    eg_status status = eg_fail(EG_EINVAL,
                               "policy '%s' goes on replacing what was put in: %s, %u deep after %zu "
                               "replacements; let it answer NULL for what it has made, or do not recurse",
                               p->s->names[last->policy - 1], text.data != NULL ? text.data : "", last->depth,
                               p->s->n_replacements - p->first);
    eg__buf_free(&text);
    return status;
}

static eg_status check_chain(pass *p, const eg__replacement *r)
{
    if (r->depth >= MAX_CHAIN || (r->depth > 0 && p->s->n_replacements - p->first >= MAX_RECURSIONS))
        return fail_chain(p, r);
    return EG_OK;
}

static eg_status plan_answer(pass *p, uint32_t vertex, size_t policy, eg_module *fresh)
{
    eg_policy *by = &p->policies.items[policy];
    eg__replacement r = {.old = p->graph.vertices[vertex].module,
                         .fresh = fresh,
                         .index = by->index - 1,
                         .policy = (uint32_t)(p->first_name + policy + 1),
                         .maker = p->recurse ? p->maker[vertex] : 0,
                         .without = (uint16_t)(by->without | p->s->without)};
    if (r.maker != 0)
        r.depth = (uint16_t)(p->s->replacements[r.maker - 1].depth + 1);
    EG_TRY(check_chain(p, &r));
    EG_TRY(eg__way_find(p->s, &p->graph, p->ways, vertex, &r.way));
    EG_TRY(eg__surgery_replace_vertex(p->s, &p->graph, vertex, &r));
    by->n_replaced++;
    return p->recurse ? eg__ptr_map_put(&p->makers, fresh, (void *)(uintptr_t)p->s->n_replacements) : EG_OK;
}

/* ---- going over the model ---- */

/* Whether policies are asked about a vertex: the model itself only where the caller can be given another. */
static eg_status is_offered(pass *p, uint32_t vertex, bool *offered)
{
    *offered = vertex != 0 || p->s->root_is_held;
    if (p->recurse && *offered)
        EG_TRY(eg__ptr_map_add(&p->offered, p->graph.vertices[vertex].module, offered));
    return EG_OK;
}

/* What stands in a new module was made with it, except for what the model had before. */
static void note_maker(pass *p, uint32_t vertex, bool is_new)
{
    const eg__vertex *v = &p->graph.vertices[vertex];
    void **maker = eg__ptr_map_find(&p->makers, v->module);
    if (maker != NULL)
        p->maker[vertex] = (uint32_t)(uintptr_t)*maker;
    else if (is_new && v->way != EG__NO_VERTEX)
        p->maker[vertex] = p->maker[p->graph.links[v->way].parent];
}

static eg_status offer(pass *p, uint32_t vertex)
{
    bool offered;
    EG_TRY(is_offered(p, vertex, &offered));
    if (p->recurse)
        note_maker(p, vertex, offered);
    eg_module *fresh = NULL;
    size_t policy = 0;
    if (offered)
        EG_TRY(ask_all(p, vertex, &policy, &fresh));
    if (fresh == NULL)
        return EG_OK;
    p->state[vertex] = REPLACED;
    eg_status status = plan_answer(p, vertex, policy, fresh);
    eg_module_release(fresh);
    return status;
}

/* Turns the links of a vertex, which are on the stack with the first on top, into the order in which they run. */
static void order_by_runs(const pass *p, uint32_t *top, size_t n)
{
    for (size_t i = 1; i < n; i++) { /* they mostly are in order already */
        uint32_t vertex = top[i], when = p->runs[vertex] - 1;
        size_t k = i;
        for (; k > 0 && p->runs[top[k - 1]] - 1 < when; k--)
            top[k] = top[k - 1];
        top[k] = vertex;
    }
}

/* Depth first, without what is below a module that was replaced. */
static eg_status walk(pass *p, uint32_t *stack)
{
    size_t depth = 0;
    stack[depth++] = 0;
    while (depth > 0) {
        uint32_t vertex = stack[--depth];
        if (depth > AHEAD)
            __builtin_prefetch(p->graph.vertices[stack[depth - AHEAD]].module);
        if (p->state[vertex] != UNSEEN)
            continue;
        p->state[vertex] = SEEN;
        EG_TRY(offer(p, vertex));
        const eg__vertex *v = &p->graph.vertices[vertex];
        for (uint32_t i = p->state[vertex] == REPLACED ? 0 : v->n_links; i > 0; i--)
            stack[depth++] = p->graph.links[v->first_link + i - 1].child;
        if (p->runs != NULL && p->state[vertex] != REPLACED)
            order_by_runs(p, stack + depth - v->n_links, v->n_links);
    }
    return EG_OK;
}

/* Whether something that was replaced also stands below something else that was. */
static bool has_hidden_places(const pass *p)
{
    if (p->graph.is_tree)
        return false;
    for (size_t i = 0; i < p->graph.n_vertices; i++) {
        const eg__vertex *v = &p->graph.vertices[i];
        for (uint32_t k = 0; p->state[i] == REPLACED && k < v->n_places; k++) {
            if (p->state[eg__model_graph_place(&p->graph, (uint32_t)i, k)->parent] != SEEN)
                return true;
        }
    }
    return false;
}

/* What is no longer part of the model stays as it was; what a new module wraps still is. */
static eg_status spare_old_modules(pass *p, size_t first_edit)
{
    eg__model_graph now = {0};
    eg_surgery *s = p->s;
    EG_TRY(eg__surgery_enter(s));
    eg_status status = eg__model_graph_build(&now, s->root);
    eg__surgery_leave(s);
    size_t kept = first_edit;
    for (size_t i = first_edit; i < s->n_edits && status == EG_OK; i++) {
        uint32_t vertex = 0;
        if (s->edits[i].kind == EG__EDIT_CHILD)
            status = eg__model_graph_find(&now, s->edits[i].owner, &vertex);
        eg__edit edit = s->edits[i];
        s->edits[i] = s->edits[kept];
        s->edits[kept] = edit;
        kept += vertex != EG__NO_VERTEX;
    }
    if (status == EG_OK)
        eg__surgery_cut(s, kept, s->n_replacements, s->n_derivations);
    eg__model_graph_free(&now);
    return status;
}

static void end_wave(pass *p)
{
    eg__model_graph_free(&p->graph);
    free(p->state);
    free(p->maker);
    free(p->ways);
    free(p->runs);
    p->runs = NULL;
    p->state = NULL;
    p->maker = NULL;
    p->ways = NULL;
}

static eg_status begin_wave(pass *p)
{
    EG_TRY(eg__model_graph_build(&p->graph, p->s->root));
    size_t n = p->graph.n_vertices;
    p->state = eg__calloc(n, sizeof(*p->state));
    p->maker = p->recurse ? eg__calloc(n, sizeof(*p->maker)) : NULL;
    p->ways = eg__calloc(n, sizeof(*p->ways));
    if (p->state == NULL || p->ways == NULL || (p->recurse && p->maker == NULL))
        return EG_ENOMEM;
    if (p->s->in_order_of_execution) {
        p->runs = eg__first_runs(p->s, &p->graph);
        return p->runs != NULL ? EG_OK : eg_error_last()->code;
    }
    return EG_OK;
}

static eg_status go_over(pass *p)
{
    EG_TRY(begin_wave(p));
    uint32_t *stack = eg__calloc(p->graph.n_links + 1, sizeof(*stack));
    eg_status status = stack != NULL ? walk(p, stack) : EG_ENOMEM;
    free(stack);
    return status;
}

static eg_status wave(pass *p)
{
    size_t first_edit = p->s->n_edits;
    EG_TRY(eg__surgery_enter(p->s));
    eg_status status = go_over(p);
    eg__surgery_leave(p->s);
    if (status == EG_OK && has_hidden_places(p))
        status = spare_old_modules(p, first_edit);
    end_wave(p);
    return status;
}

eg_status eg__surgery_check_acyclic(eg_surgery *s)
{
    if (!s->has_wrapped)
        return EG_OK;
    eg__model_graph graph = {0};
    EG_TRY(eg__surgery_enter(s));
    eg_status status = eg__model_graph_build(&graph, s->root);
    eg__surgery_leave(s);
    eg__model_graph_free(&graph);
    return status;
}

static eg_status run(pass *p)
{
    size_t before;
    do {
        before = p->s->n_replacements;
        EG_TRY(wave(p));
    } while (p->recurse && p->s->n_replacements > before);
    return eg__surgery_check_acyclic(p->s);
}

/* ---- around it ---- */

static eg_status check_policy(const eg_policy *policy)
{
    EG_CHECK(policy->replace != NULL, EG_EINVAL, "policy '%s' has no function 'replace'",
             policy->name != NULL  ? policy->name
             : policy->cls != NULL ? policy->cls->name
                                   : "");
    return eg__path_check(policy->at);
}

static char *name_policy(const eg_policy *policy)
{
    if (policy->name != NULL)
        return eg__strdup(policy->name);
    const char *cls = policy->cls != NULL ? policy->cls->name : "Module";
    return policy->at != NULL ? eg__format("%s at %s", cls, policy->at) : eg__strdup(cls);
}

static eg_status name_policies(pass *p)
{
    eg_surgery *s = p->s;
    p->first_name = s->n_names;
    EG_TRY(eg__grow(&s->names, &s->names_capacity, s->n_names + p->policies.n + 1, sizeof(*s->names)));
    for (size_t i = 0; i < p->policies.n; i++) {
        EG_TRY(check_policy(&p->policies.items[i]));
        char *name = name_policy(&p->policies.items[i]);
        if (name == NULL)
            return EG_ENOMEM;
        s->names[s->n_names++] = name;
    }
    return EG_OK;
}

static eg_status note_idle(const pass *p, const size_t *n_replaced)
{
    for (size_t i = 0; i < p->policies.n; i++) {
        if (p->n_matched[i] == 0)
            EG_TRY(eg_surgery_note(p->s, "policy '%s' matched no module", name_of(p, i)));
        else if (p->policies.items[i].n_replaced == n_replaced[i])
            EG_TRY(eg_surgery_note(p->s, "policy '%s' was asked for %zu module%s and replaced none", name_of(p, i),
                                   p->n_matched[i], p->n_matched[i] == 1 ? "" : "s"));
    }
    return EG_OK;
}

/* The counters of the policies, as they were before a plan that failed. */
static void count(eg_policies policies, size_t *counters, bool back)
{
    for (size_t i = 0; i < policies.n; i++) {
        size_t *mine[] = {&policies.items[i].index, &policies.items[i].n_replaced};
        for (size_t k = 0; k < EG_COUNT(mine); k++) {
            size_t *kept = &counters[k * policies.n + i];
            *(back ? mine[k] : kept) = *(back ? kept : mine[k]);
        }
    }
}

/* Failures recorded before are not those of policies. */
static eg_status run_apart(pass *p, const size_t *n_replaced)
{
    eg__error_mark mark;
    eg__error_save(&mark);
    eg_error_clear();
    eg__apart apart;
    eg_status status = eg__apart_begin(p->s, &apart);
    if (status == EG_OK) {
        status = run(p);
        eg__apart_end(p->s, &apart);
    }
    if (status == EG_OK)
        status = note_idle(p, n_replaced);
    if (status == EG_OK)
        eg__error_restore(&mark);
    return status;
}

eg_status eg_surgery_replace(eg_surgery *s, eg_policies policies, bool recurse_on_replacements)
{
    if (s == NULL || (policies.items == NULL && policies.n > 0)) {
        eg__null(__func__, s == NULL ? "surgery" : "list of policies");
        return eg_error_last()->code;
    }
    pass p = {.s = s,
              .policies = policies,
              .ranks = {.policies = policies},
              .recurse = recurse_on_replacements,
              .first = s->n_replacements};
    size_t n_edits = s->n_edits, n_derivations = s->n_derivations, n_notes = s->n_notes;
    size_t *counters = eg__calloc(2 * policies.n + 1, sizeof(*counters));
    p.n_matched = eg__calloc(policies.n + 1, sizeof(*p.n_matched));
    eg_status status = counters != NULL && p.n_matched != NULL ? name_policies(&p) : EG_ENOMEM;
    if (status == EG_OK) {
        count(policies, counters, false);
        status = run_apart(&p, counters + policies.n);
        if (status != EG_OK) {
            count(policies, counters, true);
            eg__surgery_cut(s, n_edits, p.first, n_derivations);
            eg__notes_cut(s, n_notes);
        }
    }
    eg__ranks_free(&p.ranks);
    eg__ptr_map_free(&p.offered);
    eg__ptr_map_free(&p.makers);
    eg__buf_free(&p.path);
    free(p.n_matched);
    free(counters);
    return status;
}

/*
 * Chains of modules in the traced graph: which module takes what another has computed.
 *
 * A run is a stretch of operations of one module. Of the modules around an operation the innermost counts whose class
 * is looked for.
 */
#include "surgery/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct run {
    eg_module *module;
    char *path;
    size_t first_op, n_ops;
    bool is_chained; /* it is part of a chain already */
} run;

struct eg_chains {
    eg_chain *items;
    size_t n, capacity;
};

typedef struct finder {
    eg_module *model;
    const eg_trace *trace;
    eg_class_list classes;
    run *runs; /* in the order of the trace */
    size_t n_runs, capacity;
    eg__ptr_map times;          /* module -> how many runs it has */
    size_t *run_of;             /* of each operation, + 1; 0 = none */
    size_t *first_user, *users; /* operations that take what operation i has computed: users[first_user[i] ..] */
    eg_chains *chains;
} finder;

/* ---- runs ---- */

static bool is_wanted(const finder *f, const eg_module *m)
{
    for (size_t i = 0; i < f->classes.n; i++) {
        if (eg_is_a(m, f->classes.items[i]))
            return true;
    }
    return false;
}

/* The innermost module on the path whose class is looked for; its path is cut there. NULL when there is none. */
static eg_module *find_module(const finder *f, char *path)
{
    for (size_t len = strlen(path); len > 0;) {
        path[len] = '\0';
        eg_module *m = eg__module_below(f->model, path);
        if (m == NULL || is_wanted(f, m))
            return m;
        const char *dot = strrchr(path, '.');
        len = dot != NULL ? (size_t)(dot - path) : 0;
    }
    return NULL;
}

static eg_status add_run(finder *f, size_t op)
{
    char *path = eg__strdup(eg_trace_at(f->trace, op)->path);
    if (path == NULL)
        return EG_ENOMEM;
    eg_module *m = find_module(f, path);
    run *last = f->n_runs > 0 ? &f->runs[f->n_runs - 1] : NULL;
    eg_status status = EG_OK;
    if (m != NULL && last != NULL && last->module == m && last->first_op + last->n_ops == op) {
        last->n_ops++;
    } else if (m != NULL) {
        status = eg__grow(&f->runs, &f->capacity, f->n_runs + 1, sizeof(*f->runs));
        if (status == EG_OK) {
            f->runs[f->n_runs++] = (run){.module = m, .path = path, .first_op = op, .n_ops = 1};
            return EG_OK;
        }
    }
    free(path);
    return status;
}

static const eg_trace_op *last_op(const finder *f, const run *r)
{
    return eg_trace_at(f->trace, r->first_op + r->n_ops - 1);
}

/* ---- who uses what a run has computed ---- */

/* The operation that has computed each tensor, + 1. NULL on failure. */
static size_t *list_makers(const eg_trace *trace, size_t *n)
{
    *n = 1;
    for (size_t i = 0; i < eg_trace_size(trace); i++) {
        const eg_trace_op *op = eg_trace_at(trace, i);
        *n = EG_MAX(*n, (size_t)op->output + op->n_outputs);
    }
    size_t *makers = eg__calloc(*n, sizeof(*makers));
    for (size_t i = 0; i < eg_trace_size(trace) && makers != NULL; i++) {
        const eg_trace_op *op = eg_trace_at(trace, i);
        for (size_t k = 0; k < op->n_outputs; k++)
            makers[op->output + k] = i + 1;
    }
    return makers;
}

/* For each operation and each that it takes something from, once: counts, or fills the lists. */
static void note_users(finder *f, const size_t *makers, size_t n_tensors, bool fill)
{
    for (size_t i = 0; i < eg_trace_size(f->trace); i++) {
        const eg_trace_op *op = eg_trace_at(f->trace, i);
        for (size_t k = 0; k < op->n_inputs; k++) {
            size_t maker = op->inputs[k] < n_tensors ? makers[op->inputs[k]] : 0;
            bool again = false;
            for (size_t j = 0; j < k && !again; j++)
                again = op->inputs[j] < n_tensors && makers[op->inputs[j]] == maker;
            if (maker == 0 || again)
                continue;
            if (fill)
                f->users[f->first_user[maker - 1]++] = i;
            else
                f->first_user[maker]++;
        }
    }
}

static eg_status list_users(finder *f)
{
    size_t n = eg_trace_size(f->trace), n_tensors, *makers = list_makers(f->trace, &n_tensors);
    f->first_user = makers != NULL ? eg__calloc(n + 1, sizeof(*f->first_user)) : NULL;
    if (f->first_user != NULL) {
        note_users(f, makers, n_tensors, false);
        for (size_t i = 0; i < n; i++)
            f->first_user[i + 1] += f->first_user[i];
        f->users = eg__calloc(f->first_user[n] + 1, sizeof(*f->users));
    }
    if (f->users != NULL) {
        note_users(f, makers, n_tensors, true); /* which moves the begin of each list to its end */
        memmove(f->first_user + 1, f->first_user, n * sizeof(*f->first_user));
        f->first_user[0] = 0;
    }
    free(makers);
    return f->users != NULL ? EG_OK : EG_ENOMEM;
}

static eg_status list_runs(finder *f)
{
    f->run_of = eg__calloc(eg_trace_size(f->trace) + 1, sizeof(*f->run_of));
    if (f->run_of == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < eg_trace_size(f->trace); i++)
        EG_TRY(add_run(f, i));
    for (size_t i = 0; i < f->n_runs; i++) {
        const run *r = &f->runs[i];
        for (size_t k = 0; k < r->n_ops; k++)
            f->run_of[r->first_op + k] = i + 1;
        void **known = eg__ptr_map_find(&f->times, r->module);
        uintptr_t times = known != NULL ? (uintptr_t)*known : 0;
        EG_TRY(eg__ptr_map_put(&f->times, r->module, (void *)(times + 1)));
    }
    return EG_OK;
}

static run *find_run(const finder *f, size_t op)
{
    return f->run_of[op] > 0 ? &f->runs[f->run_of[op] - 1] : NULL;
}

typedef struct users {
    run *next;     /* of the wanted class, among them; NULL = none */
    size_t others; /* operations elsewhere, and outputs of the model */
} users;

static users find_users(const finder *f, const run *r, size_t wanted)
{
    users u = {0};
    const eg_trace_op *from = last_op(f, r);
    size_t last = r->first_op + r->n_ops - 1;
    for (size_t i = f->first_user[last]; i < f->first_user[last + 1]; i++) {
        run *user = find_run(f, f->users[i]);
        if (user != NULL && u.next == NULL && eg_is_a(user->module, f->classes.items[wanted]))
            u.next = user;
        else if (user == NULL || user != u.next)
            u.others++;
    }
    for (size_t i = 0; eg_trace_output_id(f->trace, i) != 0; i++) {
        uint64_t id = eg_trace_output_id(f->trace, i);
        u.others += id >= from->output && id < from->output + from->n_outputs;
    }
    return u;
}

static bool runs_once(const finder *f, const eg_module *m)
{
    void **times = eg__ptr_map_find(&f->times, m);
    return times != NULL && (uintptr_t)*times == 1;
}

/* ---- chains ---- */

static void free_chain(eg_chain *c)
{
    for (size_t i = 0; i < c->n; i++)
        free((char *)(uintptr_t)c->paths[i]);
    free((void *)(uintptr_t)c->paths);
    free((void *)(uintptr_t)c->modules);
    free((char *)(uintptr_t)c->refused);
}

/* Why these runs must not be joined; NULL where they may, or when memory is short (*failed). */
static char *find_reason(const finder *f, run *const *steps, const size_t *others, bool *failed)
{
    char *reason = NULL;
    for (size_t i = 0; i < f->classes.n && reason == NULL && !*failed; i++) {
        const run *r = steps[i];
        bool refused = true;
        if (!runs_once(f, r->module))
            reason = eg__format("'%s' runs more than once", r->path);
        else if (r->module->n_hooks > 0)
            reason = eg__format("'%s' has hooks", r->path);
        else if (i + 1 < f->classes.n && others[i] > 0)
            reason = eg__format("the result of '%s' is used elsewhere too", r->path);
        else
            refused = false;
        *failed = refused && reason == NULL;
    }
    return reason;
}

static eg_status add_chain(finder *f, run *const *steps, const size_t *others)
{
    eg_chains *chains = f->chains;
    size_t n = f->classes.n;
    EG_TRY(eg__grow(&chains->items, &chains->capacity, chains->n + 1, sizeof(*chains->items)));
    eg_module **modules = eg__calloc(n, sizeof(eg_module *));
    char **paths = eg__calloc(n, sizeof(char *));
    eg_chain *c = &chains->items[chains->n++];
    *c = (eg_chain){.modules = modules, .paths = (const char *const *)paths};
    if (modules == NULL || paths == NULL)
        return EG_ENOMEM;
    bool failed = false;
    c->refused = find_reason(f, steps, others, &failed);
    for (; c->n < n && !failed; c->n++) {
        modules[c->n] = steps[c->n]->module;
        paths[c->n] = eg__strdup(steps[c->n]->path);
        steps[c->n]->is_chained = true;
        failed = paths[c->n] == NULL;
    }
    return failed ? EG_ENOMEM : EG_OK;
}

/* The chain that begins with a run, if there is one. */
static eg_status follow(finder *f, run *first, run **steps, size_t *others)
{
    size_t n = 0;
    for (run *r = first; r != NULL && !r->is_chained && n < f->classes.n;) {
        steps[n] = r;
        others[n] = 0;
        if (++n == f->classes.n)
            return add_chain(f, steps, others);
        users u = find_users(f, r, n);
        others[n - 1] = u.others;
        r = u.next;
    }
    return EG_OK;
}

static eg_status find_chains(finder *f)
{
    EG_TRY(list_runs(f));
    EG_TRY(list_users(f));
    run **steps = eg__calloc(f->classes.n, sizeof(*steps));
    size_t *others = eg__calloc(f->classes.n, sizeof(*others));
    eg_status status = steps != NULL && others != NULL ? EG_OK : EG_ENOMEM;
    for (size_t i = 0; i < f->n_runs && status == EG_OK; i++) {
        if (eg_is_a(f->runs[i].module, f->classes.items[0]))
            status = follow(f, &f->runs[i], steps, others);
    }
    free(steps);
    free(others);
    return status;
}

eg_chains *eg_chains_find(eg_module *model, eg_shapes inputs, eg_class_list classes)
{
    if (model == NULL || classes.items == NULL || classes.n < 2) {
        eg_fail(EG_EINVAL, "chains: %s", model == NULL ? "the model is NULL" : "expected two classes or more");
        return NULL;
    }
    eg_trace *trace = eg_trace_new(model, inputs.items, inputs.n);
    if (trace == NULL)
        return NULL;
    finder f = {.model = model, .trace = trace, .classes = classes, .chains = eg__calloc(1, sizeof(eg_chains))};
    eg_status status = f.chains != NULL ? find_chains(&f) : EG_ENOMEM;
    for (size_t i = 0; i < f.n_runs; i++)
        free(f.runs[i].path);
    free(f.runs);
    free(f.run_of);
    free(f.first_user);
    free(f.users);
    eg__ptr_map_free(&f.times);
    eg_trace_free(trace);
    if (status == EG_OK)
        return f.chains;
    eg_chains_free(f.chains);
    return NULL;
}

void eg_chains_free(eg_chains *chains)
{
    for (size_t i = 0; chains != NULL && i < chains->n; i++)
        free_chain(&chains->items[i]);
    if (chains != NULL)
        free(chains->items);
    free(chains);
}

size_t eg_chains_size(const eg_chains *chains)
{
    return chains != NULL ? chains->n : 0;
}

const eg_chain *eg_chains_at(const eg_chains *chains, size_t i)
{
    if (chains == NULL)
        return eg__null(__func__, "chains");
    if (i >= chains->n) {
        eg_fail(EG_EINVAL, "there is no chain %zu, there are %zu", i, chains->n);
        return NULL;
    }
    return &chains->items[i];
}

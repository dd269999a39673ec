/*
 * bench/surgery.c - modules replaced by policy: a tree of Sequentials with a hundred modules each, every other leaf
 * replaced. kind=commit: plan and commit; kind=undo: undo.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

enum { LEAVES = 100 }; /* in a container */

static eg_module *to_identity(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_identity(m->ctx);
}

typedef struct operation {
    eg_module *model;
    eg_surgery *s;
    eg_policy policy;
} operation;

static eg_status plan_and_commit(bench *b, void *payload)
{
    operation *o = payload;
    (void)b;
    o->policy = (eg_policy){.cls = &eg_relu_class, .replace = to_identity};
    o->s = eg_surgery_new(o->model);
    EG_TRY(o->s != NULL ? EG_OK : EG_ENOMEM);
    EG_TRY(eg_surgery_replace(o->s, (eg_policies){&o->policy, 1}, false));
    return eg_surgery_commit(o->s);
}

static eg_status undo_and_free(bench *b, void *payload)
{
    operation *o = payload;
    (void)b;
    eg_status status = eg_surgery_undo(o->s);
    eg_surgery_free(o->s);
    return status;
}

static eg_status undo(bench *b, void *payload)
{
    (void)b;
    return eg_surgery_undo(((operation *)payload)->s);
}

static eg_status commit(bench *b, void *payload)
{
    (void)b;
    return eg_surgery_commit(((operation *)payload)->s);
}

static eg_module *make_tree(eg_context *ctx, int64_t containers)
{
    eg_module *leaves[LEAVES], *root = eg_sequential(ctx), **all = calloc((size_t)containers, sizeof(*all));
    for (int64_t i = 0; all != NULL && i < containers; i++) {
        for (int k = 0; k < LEAVES; k++)
            leaves[k] = k % 2 == 0 ? eg_relu(ctx) : eg_sigmoid(ctx);
        all[i] = eg_sequential(ctx, leaves, LEAVES);
    }
    eg_module_release(root);
    root = all != NULL ? eg_sequential(ctx, all, (size_t)containers) : NULL;
    free(all);
    return root;
}

eg_status bench_surgery(bench *b)
{
    operation o = {.model = make_tree(b->ctx, bench_int(b, "containers", 1000))};
    if (o.model == NULL)
        return eg_error_last()->code;
    eg_status status;
    if (strcmp(bench_text(b, "kind", "commit"), "commit") == 0) {
        status = bench_measure(b, plan_and_commit, undo_and_free, &o);
    } else {
        status = plan_and_commit(b, &o);
        if (status == EG_OK)
            status = bench_measure(b, undo, commit, &o);
        eg_surgery_free(o.s);
    }
    eg_module_release(o.model);
    return status;
}

/*
 * Random graphs of modules, with modules that stand in several places, against a naive engine that works on a picture
 * of the graph: plans touch nothing, commits do what the naive engine does, undoing is the identity, redoing is
 * committing.
 */
#include "support.h"

#include "engraft/layers.h"
#include "engraft/surgery.h"
#include "optim/internal.h"

enum { LEAVES = 5, SEQUENCE = LEAVES, LIST, MAX_NODES = 600, MAX_KIDS = 4, GRAPHS = 10000 };

static const eg_class *const classes[] = {&eg_prelu_class,      &eg_relu_class, &eg_tanh_class,
                                          &eg_sigmoid_class,    &eg_gelu_class, &eg_sequential_class,
                                          &eg_module_list_class};

static uint64_t trial_number; /* for the debugger */

/* ---- the picture ---- */

typedef struct node {
    int cls;
    int kids[MAX_KIDS], n_kids;
    eg_module *module; /* once there is one */
} node;

typedef struct picture {
    node nodes[MAX_NODES];
    int n; /* nodes[0] is the root */
} picture;

static uint64_t draw(eg_rng *rng, uint64_t n)
{
    return eg_rng_below(rng, n);
}

/* Children are made after their parents, so edges to later nodes cannot close a circle. */
static void draw_picture(picture *p, eg_rng *rng)
{
    p->n = 2 + (int)draw(rng, 60);
    for (int i = 0; i < p->n; i++) {
        bool container = i == 0 || (i + 1 < p->n && draw(rng, 2) == 0);
        p->nodes[i] = (node){.cls = container ? SEQUENCE : (int)draw(rng, LEAVES)};
        int n_kids = i == 0 ? MAX_KIDS : 1 + (int)draw(rng, MAX_KIDS);
        for (int k = 0; container && k < n_kids; k++)
            p->nodes[i].kids[p->nodes[i].n_kids++] =
                i + 1 + (int)draw(rng, (uint64_t)(p->n - i - 1 < 8 ? p->n - i - 1 : 8));
    }
}

static eg_module *make_leaf(eg_context *ctx, int cls)
{
    return cls == 0   ? eg_prelu(ctx)
           : cls == 1 ? eg_relu(ctx)
           : cls == 2 ? eg_tanh(ctx)
           : cls == 3 ? eg_sigmoid(ctx)
                      : eg_gelu(ctx);
}

static void mark(const picture *p, int i, bool *reached)
{
    if (reached[i])
        return;
    reached[i] = true;
    for (int k = 0; k < p->nodes[i].n_kids; k++)
        mark(p, p->nodes[i].kids[k], reached);
}

static void make_modules(picture *p, eg_context *ctx)
{
    for (int i = p->n - 1; i >= 0; i--) {
        node *at = &p->nodes[i];
        at->module = at->cls < LEAVES ? make_leaf(ctx, at->cls) : eg_sequential(ctx);
        assert_made(at->module);
        for (int k = 0; k < at->n_kids; k++)
            assert_ok(eg_append(at->module, eg_module_retain(p->nodes[at->kids[k]].module)));
    }
    static bool reached[MAX_NODES];
    memset(reached, 0, sizeof(reached));
    mark(p, 0, reached);
    for (int i = 1; i < p->n; i++) {
        eg_module_release(p->nodes[i].module); /* only slots hold it now */
        if (!reached[i])
            p->nodes[i].module = NULL;
    }
}

/* ---- the rules: what the policy of a class answers when it is asked with an index ---- */

typedef enum answer { LEAVE, LEAF, WRAP, PAIR, SAME, FAIL } answer;

typedef struct rule {
    uint64_t seed;
    int cls;
    int64_t fails_at; /* the index at which it fails; -1 = never */
    size_t index;     /* of the naive engine */
} rule;

static answer answer_of(const rule *r, size_t index, int *first, int *second)
{
    eg_rng rng = eg_rng_make(r->seed, "answer", index);
    if (r->fails_at >= 0 && index == (size_t)r->fails_at)
        return FAIL;
    answer a = (answer)draw(&rng, 5);
    if (r->cls == SEQUENCE)
        return a == LEAF || a == PAIR ? LEAVE : a;
    /* later classes only, so that replacements of replacements end */
    *first = r->cls + 1 + (int)draw(&rng, (uint64_t)(LEAVES - r->cls));
    *second = r->cls + 1 + (int)draw(&rng, (uint64_t)(LEAVES - r->cls));
    if (*first >= LEAVES || *second >= LEAVES)
        return a == LEAF || a == PAIR ? LEAVE : a;
    return a;
}

/* The policy of the engine. */
static eg_module *policy(void *payload, eg_module *m, size_t index)
{
    const rule *r = payload;
    int first = 0, second = 0;
    switch (answer_of(r, index, &first, &second)) {
    case LEAF:
        return make_leaf(m->ctx, first);
    case WRAP:
        return eg_module_list(m->ctx, EG_MODULES(eg_module_retain(m)));
    case PAIR:
        return eg_module_list(m->ctx, EG_MODULES(make_leaf(m->ctx, first), make_leaf(m->ctx, second)));
    case SAME:
        return eg_module_retain(m);
    case FAIL:
        eg_fail(EG_EINVAL, "this policy fails here");
        return NULL;
    default:
        return NULL;
    }
}

/* ---- the naive engine ---- */

static int add_node(picture *p, int cls)
{
    assert_true(p->n < MAX_NODES);
    p->nodes[p->n] = (node){.cls = cls};
    return p->n++;
}

/* What the rule puts in the place of node i; -1 = nothing. */
static int naive_answer(picture *p, rule *r, int i)
{
    int first = 0, second = 0, made;
    switch (answer_of(r, r->index++, &first, &second)) {
    case LEAF:
        return add_node(p, first);
    case WRAP:
        made = add_node(p, LIST);
        p->nodes[made].kids[p->nodes[made].n_kids++] = i;
        return made;
    case PAIR:
        made = add_node(p, LIST);
        for (int k = 0; k < 2; k++) {
            int leaf = add_node(p, k == 0 ? first : second);
            p->nodes[made].kids[p->nodes[made].n_kids++] = leaf;
        }
        return made;
    case SAME:
        return i;
    default:
        return -1;
    }
}

typedef struct wave {
    picture *p;
    rule *rules;
    int n_rules;
    bool offered[MAX_NODES], seen[MAX_NODES];
    int fresh[MAX_NODES]; /* of each node; -1 = it stays */
    bool recurse;
    int n_replaced;
} wave;

static void naive_visit(wave *w, int i)
{
    if (w->seen[i])
        return;
    w->seen[i] = true;
    bool is_offered = i != 0 && !(w->recurse && w->offered[i]);
    w->offered[i] = true;
    w->fresh[i] = -1;
    for (int r = 0; r < w->n_rules && is_offered; r++)
        if (w->rules[r].cls == w->p->nodes[i].cls)
            w->fresh[i] = naive_answer(w->p, &w->rules[r], i);
    if (w->fresh[i] >= 0) {
        w->n_replaced++;
        return;
    }
    for (int k = 0; k < w->p->nodes[i].n_kids; k++)
        naive_visit(w, w->p->nodes[i].kids[k]);
}

/* All places in what was there before; those that are no longer part of the model are put back. */
static void naive_exchange(wave *w, int n_before)
{
    static picture old;
    static bool reached[MAX_NODES];
    old = *w->p;
    for (int i = 0; i < n_before; i++)
        for (int k = 0; k < w->p->nodes[i].n_kids; k++) {
            int kid = w->p->nodes[i].kids[k];
            if (w->seen[kid] && w->fresh[kid] >= 0)
                w->p->nodes[i].kids[k] = w->fresh[kid];
        }
    memset(reached, 0, sizeof(reached));
    mark(w->p, 0, reached);
    for (int i = 0; i < n_before; i++)
        if (!reached[i])
            w->p->nodes[i] = old.nodes[i];
}

static int naive_replace(picture *p, rule *rules, int n_rules, bool recurse)
{
    static wave w;
    w = (wave){.p = p, .rules = rules, .n_rules = n_rules, .recurse = recurse};
    int before, total = 0;
    do {
        int n_before = p->n;
        before = w.n_replaced;
        memset(w.seen, 0, sizeof(w.seen));
        naive_visit(&w, 0);
        naive_exchange(&w, n_before);
        total = w.n_replaced;
    } while (recurse && w.n_replaced > before);
    return total;
}

/* ---- comparing ---- */

/* The same classes and children, and each node one module; what has no module yet gets the one that stands there. */
static void assert_same(picture *p, int i, eg_module *m, bool *done)
{
    node *at = &p->nodes[i];
    assert_true(m->cls == classes[at->cls]);
    if (at->module == NULL) {
        for (int k = 0; k < p->n; k++)
            assert_ptr_not_equal(p->nodes[k].module, m);
        at->module = m;
    }
    assert_ptr_equal(at->module, m);
    if (done[i])
        return;
    done[i] = true;
    assert_int_equal(eg_module_n_children(m), at->n_kids);
    for (int k = 0; k < at->n_kids; k++)
        assert_same(p, at->kids[k], eg_module_child_at(m, (size_t)k, NULL), done);
}

static void assert_is(picture *p, eg_module *root)
{
    static bool done[MAX_NODES];
    memset(done, 0, sizeof(done));
    assert_same(p, 0, root, done);
}

/* Each parameter of the model is in the optimizer, once, and nothing else is. */
static void assert_optimizes(eg_optimizer *o, const picture *p)
{
    static bool reached[MAX_NODES];
    memset(reached, 0, sizeof(reached));
    mark(p, 0, reached);
    size_t live = 0;
    for (int i = 0; i < p->n; i++)
        live += reached[i] && p->nodes[i].cls == 0;
    assert_int_equal(o->n_params, live);
    for (size_t i = 0; i < o->n_params; i++) {
        size_t found = 0;
        for (int k = 0; k < p->n; k++)
            found += reached[k] && p->nodes[k].cls == 0 &&
                     eg_module_tensor(p->nodes[k].module, "weight") == o->params[i].tensor;
        assert_int_equal(found, 1);
    }
}

/* ---- a trial ---- */

typedef struct trial {
    eg_rng rng;
    rule rules[LEAVES + 1];
    eg_policy policies[LEAVES + 1];
    int n_rules;
    bool recurse;
} trial;

static void draw_rules(trial *t, bool fails)
{
    t->n_rules = 0;
    for (int cls = 0; cls <= SEQUENCE; cls++) {
        if (draw(&t->rng, 4) == 0)
            continue;
        rule *r = &t->rules[t->n_rules];
        *r = (rule){.seed = draw(&t->rng, UINT64_MAX), .cls = cls, .fails_at = fails ? (int64_t)draw(&t->rng, 4) : -1};
        t->policies[t->n_rules++] = (eg_policy){.cls = classes[cls], .replace = policy, .payload = r, .exact = true};
    }
    t->recurse = draw(&t->rng, 2) == 0;
}

static void run_trial(uint64_t number)
{
    static picture before, after;
    trial t = {.rng = eg_rng_make(number, "graph", 0)};
    eg_context *ctx = eg_context_new(.threads = 1, .backend = "ref");
    draw_picture(&before, &t.rng);
    make_modules(&before, ctx);
    eg_module *root = before.nodes[0].module;
    eg_optimizer *o = eg_adam(root, .lr = 0.1);
    assert_made(o);
    bool fails = draw(&t.rng, 8) == 0;
    draw_rules(&t, fails);
    eg_surgery *s = eg_surgery_new(root, .optimizers = EG_OPTIMIZERS(o));
    assert_made(s);
    eg_status status = eg_surgery_replace(s, (eg_policies){t.policies, (size_t)t.n_rules}, t.recurse);
    assert_is(&before, root); /* a plan touches nothing */
    if (status != EG_OK) {
        assert_true(fails);
        assert_recorded(EG_EINVAL, "this policy fails here");
        assert_int_equal(eg_surgery_size(s), 0);
    } else {
        after = before;
        int n = naive_replace(&after, t.rules, t.n_rules, t.recurse);
        assert_int_equal(eg_surgery_size(s), n);
        for (int r = 0; r < t.n_rules; r++)
            assert_int_equal(t.policies[r].index, t.rules[r].index);
        assert_ok(eg_surgery_commit(s));
        assert_is(&after, root);
        assert_optimizes(o, &after);
        if (n > 0)
            assert_ok(eg_surgery_undo(s));
        assert_is(n > 0 ? &before : &after, root);
        assert_ok(eg_surgery_commit(s));
        assert_is(&after, root);
        if (n > 0 && draw(&t.rng, 2) == 0)
            assert_ok(eg_surgery_undo(s));
    }
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(root);
    assert_int_equal(eg_context_get_stats(ctx).bytes_in_use, 0);
    eg_context_free(ctx);
}

static void many_graphs(void **state)
{
    (void)state;
    const char *number = getenv("EG_GRAPHS");
    uint64_t n = number != NULL ? strtoull(number, NULL, 10) : GRAPHS;
    for (uint64_t i = 0; i < n; i++) {
        trial_number = i;
        run_trial(i);
    }
}

/* ---- circles ---- */

typedef struct holder {
    eg_module base;
    eg_module *inner;
} holder;

static eg_status holder_build(eg_module *self)
{
    return EG_SLOT((holder *)self, inner, eg_sequential(self->ctx, EG_MODULES(eg_relu(self->ctx))));
}

static EG_CLASS(holder, .build = holder_build);

static void circles_are_refused(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    eg_module *m = eg_new(holder, ctx), *inner = ((holder *)m)->inner;
    ((holder *)m)->inner = eg_module_retain(m); /* only a program that writes past the interface can do this */
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_relu_class)), -1);
    assert_recorded(EG_EINVAL, "contains itself, by its child 'inner'");
    eg_surgery *s = eg_surgery_new(m);
    assert_fails(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_relu_class, .replace = policy}), false), EG_EINVAL,
                 "contains itself");
    ((holder *)m)->inner = inner;
    eg_module_release(m);
    eg_surgery_free(s);
    eg_module_release(m);
    eg_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_graphs),
        cmocka_unit_test(circles_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

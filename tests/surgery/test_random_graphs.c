/*
 * Random graphs of modules, with modules shared by parents and under two names of one, and random policies: what the
 * transaction does against a naive reference on plain arrays, recursive and without any of its care for speed.
 */
#include "surgery_support.h"

enum { MAX_NODES = 600, MAX_CHILDREN = 5, MAX_POLICIES = 3, BOUND = 12 };

/* ---- classes: Blue is a Red is a Sequential ---- */

static const eg_class red_class = {.struct_size = sizeof(eg_class),
                                   .name = "Red",
                                   .super = &eg_sequential_class,
                                   .instance_size = sizeof(eg_sequential)};
static const eg_class blue_class = {
    .struct_size = sizeof(eg_class), .name = "Blue", .super = &red_class, .instance_size = sizeof(eg_sequential)};
static const eg_class *const classes[] = {&eg_sequential_class, &red_class,        &blue_class,
                                          &eg_relu_class,       &eg_sigmoid_class, &eg_linear_class};
enum { N_CONTAINERS = 3, N_CLASSES = 6, LINEAR = 5, ANY = -1 };

/* How many classes lie between two; -1: it is no subclass. */
static int how_far(int cls, int super)
{
    if (super == ANY)
        return 1000;
    if (cls < N_CONTAINERS && super < N_CONTAINERS)
        return cls >= super ? cls - super : -1;
    return cls == super ? 0 : -1;
}

static eg_module *make(int cls, eg_module *const *children, size_t n)
{
    if (cls >= N_CONTAINERS)
        return cls == LINEAR ? eg_linear(ctx, 2, 2)
                             : eg_module_new(classes[cls], sizeof(eg_relu), &(eg_relu){.base.ctx = ctx});
    eg_sequential prototype = {.base.ctx = ctx, .modules = children, .n_modules = n};
    return eg_module_new(classes[cls], sizeof(prototype), &prototype);
}

/* ---- what a policy answers: a pure function of its seed and the index ---- */

typedef enum action { LEAVE, LEAF, TREE, WRAP, SAME, FAIL } action;

typedef struct rule {
    int cls;
    bool exact, when;
    const char *at;
    uint64_t seed;
    size_t fails_at;
} rule;

static const char *const patterns[] = {NULL, NULL, "**", "*", "0.**", "*.1", "**.0", "1.*, 2", "?.?.?", "**.1.**"};

static uint64_t mix(uint64_t seed, uint64_t index)
{
    return print_bytes(UINT64_C(14695981039346656037) ^ seed, &index, sizeof(index)) >> 7;
}

static action answer_of(const rule *r, size_t index, int *leaf)
{
    static const action actions[] = {LEAVE, LEAVE, LEAF, LEAF, TREE, TREE, WRAP, SAME};
    uint64_t random = mix(r->seed, index);
    *leaf = N_CONTAINERS + (int)(random / 64 % (N_CLASSES - N_CONTAINERS));
    if (index == r->fails_at)
        return FAIL;
    return index < BOUND ? actions[random % 8] : LEAVE;
}

static bool is_long_enough(const char *path)
{
    return strlen(path) % 4 != 0;
}

static bool engine_when(void *payload, eg_module *m, const char *path)
{
    (void)payload;
    (void)m;
    return is_long_enough(path);
}

static eg_module *engine_answer(void *payload, eg_module *m, size_t index)
{
    int leaf;
    switch (answer_of(payload, index, &leaf)) {
    case LEAVE:
        return NULL;
    case LEAF:
        return make(leaf, NULL, 0);
    case TREE: {
        eg_module *twice = make(leaf, NULL, 0);
        return make(1, (eg_module *const[]){twice, make(3, NULL, 0), eg_module_retain(twice)}, 3);
    }
    case WRAP:
        return make(1, (eg_module *const[]){eg_module_retain(m)}, 1);
    case SAME:
        return eg_module_retain(m);
    case FAIL:
        break;
    }
    return eg_linear(m->ctx, -1, 2);
}

/* ---- the naive reference ---- */

typedef struct node {
    int cls;
    size_t n;
    int children[MAX_CHILDREN];
    eg_module *module; /* NULL: it is new */
    bool offered, seen, pathed, replaced;
    int by; /* what replaces it */
    char path[512];
} node;

typedef struct naive {
    node nodes[MAX_NODES];
    int n, root;
    rule rules[MAX_POLICIES];
    size_t n_rules, index[MAX_POLICIES], n_replaced;
    bool failed, root_held;
} naive;

static naive reference;

static int add_node(naive *g, int cls)
{
    assert_true(g->n < MAX_NODES);
    g->nodes[g->n] = (node){.cls = cls, .by = -1};
    return g->n++;
}

static bool segment_fits(const char *pattern, const char *text)
{
    if (*pattern == '\0' || *pattern == '.' || *pattern == ',')
        return *text == '\0' || *text == '.';
    if (*pattern == '*')
        return segment_fits(pattern + 1, text) || (*text != '\0' && *text != '.' && segment_fits(pattern, text + 1));
    return *text != '\0' && *text != '.' && (*pattern == '?' || *pattern == *text) &&
           segment_fits(pattern + 1, text + 1);
}

static const char *after_segment(const char *text)
{
    text += strcspn(text, ".,");
    return *text == '.' ? text + 1 : text;
}

static bool fits(const char *pattern, const char *path)
{
    if (*pattern == '\0' || *pattern == ',')
        return *path == '\0';
    if (strncmp(pattern, "**", 2) == 0)
        return fits(after_segment(pattern), path) || (*path != '\0' && fits(pattern, after_segment(path)));
    return *path != '\0' && segment_fits(pattern, path) && fits(after_segment(pattern), after_segment(path));
}

static bool fits_any(const char *patterns_, const char *path)
{
    for (const char *at = patterns_; at != NULL; at = strchr(at, ',')) {
        at += strspn(at, ", ");
        if (fits(at, path))
            return true;
    }
    return patterns_ == NULL;
}

static int rank(const rule *r, int cls)
{
    int far = how_far(cls, r->cls);
    return far < 0 || (r->exact && far > 0) ? -1 : 2 * far + (r->at == NULL && !r->when);
}

static int make_answer(naive *g, const rule *r, size_t index, int of)
{
    int leaf, made = -1, first, second;
    switch (answer_of(r, index, &leaf)) {
    case LEAVE:
        break;
    case LEAF:
        made = add_node(g, leaf);
        break;
    case TREE:
        first = add_node(g, leaf);
        second = add_node(g, 3);
        made = add_node(g, 1);
        g->nodes[made].n = 3;
        memcpy(g->nodes[made].children, (int[]){first, second, first}, 3 * sizeof(int));
        break;
    case WRAP:
        made = add_node(g, 1);
        g->nodes[made].n = 1;
        g->nodes[made].children[0] = of;
        break;
    case SAME:
        return of;
    case FAIL:
        g->failed = true;
    }
    return made;
}

/* Each rank from the best to the worst, all rules of it. */
static void ask_rules(naive *g, int v)
{
    for (int at = 0; at < 4096 && !g->failed && g->nodes[v].by < 0; at++) {
        for (size_t i = 0; i < g->n_rules && !g->failed; i++) {
            const rule *r = &g->rules[i];
            if (rank(r, g->nodes[v].cls) != at || !fits_any(r->at, g->nodes[v].path) ||
                (r->when && !is_long_enough(g->nodes[v].path)))
                continue;
            int made = make_answer(g, r, g->index[i]++, v);
            g->failed = g->failed || (made >= 0 && g->nodes[v].by >= 0);
            if (made >= 0)
                g->nodes[v].by = made;
        }
    }
}

static void visit(naive *g, int v)
{
    node *at = &g->nodes[v];
    if (at->seen || g->failed)
        return;
    at->seen = true;
    if (!at->offered && (v != g->root || g->root_held))
        ask_rules(g, v);
    at->offered = at->offered || v != g->root || g->root_held;
    at->replaced = at->by >= 0;
    g->n_replaced += at->replaced;
    for (size_t i = 0; i < at->n && !at->replaced; i++)
        visit(g, at->children[i]);
}

static void find_paths(naive *g, int v)
{
    const node *at = &g->nodes[v];
    for (size_t i = 0; i < at->n; i++) {
        node *child = &g->nodes[at->children[i]];
        if (child->pathed)
            continue;
        child->pathed = true;
        size_t len = strlen(at->path);
        assert_true(len + 3 < sizeof(child->path));
        memcpy(child->path, at->path, len);
        memcpy(child->path + len, (char[]){'.', (char)('0' + i), '\0'} + (len == 0), 3 - (size_t)(len == 0));
        find_paths(g, at->children[i]);
    }
}

static void naive_wave(naive *g)
{
    int n = g->n;
    for (int i = 0; i < n; i++) {
        g->nodes[i].seen = g->nodes[i].pathed = g->nodes[i].replaced = false;
        g->nodes[i].by = -1;
    }
    g->nodes[g->root].pathed = true;
    g->nodes[g->root].path[0] = '\0';
    find_paths(g, g->root);
    visit(g, g->root);
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < g->nodes[i].n; k++) {
            int *child = &g->nodes[i].children[k];
            *child = *child < n && g->nodes[*child].replaced ? g->nodes[*child].by : *child;
        }
    }
    if (g->nodes[g->root].replaced)
        g->root = g->nodes[g->root].by;
}

static void naive_run(naive *g, bool recurse)
{
    size_t before;
    do {
        before = g->n_replaced;
        naive_wave(g);
    } while (recurse && !g->failed && g->n_replaced > before);
}

/* ---- comparing ---- */

static void assert_same_graph(naive *g, int v, eg_module *m, eg_module **twins)
{
    node *at = &g->nodes[v];
    if (twins[v] != NULL) {
        assert_ptr_equal(twins[v], m);
        return;
    }
    for (int i = 0; i < g->n; i++)
        assert_ptr_not_equal(twins[i], m);
    twins[v] = m;
    assert_ptr_equal(m->cls, classes[at->cls]);
    if (at->module != NULL)
        assert_ptr_equal(m, at->module);
    size_t n = 0;
    for (size_t i = 0; i < m->n_slots; i++) {
        if (m->slots[i].kind == EG_SLOT_CHILD) {
            assert_true(n < at->n);
            assert_same_graph(g, at->children[n++], *eg__slot_child(&m->slots[i]), twins);
        }
    }
    assert_int_equal(n, at->n);
}

static void assert_same(naive *g, eg_module *root)
{
    eg_module *twins[MAX_NODES] = {NULL};
    assert_same_graph(g, g->root, root, twins);
}

static eg_status count_in(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    (void)path;
    (void)kind;
    eg_optimizer *o = payload;
    size_t before = times_in(o, t);
    assert_true(before <= 1);
    return EG_OK;
}

/* ---- making ---- */

/* The children of a node are made before it, and may be taken by many. */
static eg_module *random_graph(naive *g, eg_rng *rng)
{
    int n = 2 + (int)eg_rng_below(rng, 12);
    for (int i = 0; i < n; i++) {
        bool holds = i == n - 1 || (i > 1 && eg_rng_below(rng, 2) == 0);
        int v = add_node(g, (int)eg_rng_below(rng, N_CONTAINERS) + (holds ? 0 : N_CONTAINERS));
        node *at = &g->nodes[v];
        eg_module *children[MAX_CHILDREN];
        at->n = holds ? 1 + eg_rng_below(rng, MAX_CHILDREN - 1) : 0;
        for (size_t k = 0; k < at->n; k++) {
            at->children[k] = (int)eg_rng_below(rng, (uint64_t)i);
            children[k] = eg_module_retain(g->nodes[at->children[k]].module);
        }
        at->module = make(at->cls, children, at->n);
        assert_made(at->module);
    }
    for (int i = 0; i < n - 1; i++)
        eg_module_release(g->nodes[i].module);
    g->root = n - 1;
    /* what the root does not reach is gone: nothing may be compared with it */
    return g->nodes[n - 1].module;
}

static size_t random_policies(naive *g, eg_rng *rng, eg_policy *policies)
{
    g->n_rules = 1 + eg_rng_below(rng, MAX_POLICIES);
    for (size_t i = 0; i < g->n_rules; i++) {
        rule *r = &g->rules[i];
        *r = (rule){.cls = (int)eg_rng_below(rng, N_CLASSES + 1) - 1,
                    .exact = eg_rng_below(rng, 4) == 0,
                    .when = eg_rng_below(rng, 4) == 0,
                    .at = patterns[eg_rng_below(rng, EG_COUNT(patterns))],
                    .seed = eg_rng_u32(rng),
                    .fails_at = eg_rng_below(rng, 40) == 0 ? eg_rng_below(rng, 4) : SIZE_MAX};
        r->exact = r->exact && r->cls != ANY;
        policies[i] = (eg_policy){.cls = r->cls == ANY ? NULL : classes[r->cls],
                                  .replace = engine_answer,
                                  .payload = r,
                                  .at = r->at,
                                  .when = r->when ? engine_when : NULL,
                                  .exact = r->exact};
    }
    return g->n_rules;
}

static void check_committed(naive *g, eg_surgery *s, eg_module **root, eg_optimizer *o, uint64_t before)
{
    assert_int_equal(eg_surgery_size(s), g->n_replaced);
    assert_ok(eg_surgery_commit(s));
    assert_same(g, *root);
    assert_ok(eg_module_walk_tensors(*root, count_in, o));
    uint64_t after = fingerprint(*root, o);
    if (g->n_replaced == 0) {
        assert_true(after == before);
        return;
    }
    assert_ok(eg_surgery_undo(s));
    assert_true(fingerprint(*root, o) == before);
    assert_ok(eg_surgery_commit(s));
    assert_true(fingerprint(*root, o) == after);
    assert_same(g, *root);
    if (eg_rng_below(eg_context_rng(ctx), 2) == 0) {
        assert_ok(eg_surgery_undo(s));
        assert_true(fingerprint(*root, o) == before);
    }
}

static bool try_graph(uint64_t number)
{
    naive *g = &reference;
    memset(g, 0, sizeof(*g));
    eg_rng rng = eg_rng_make(20261201, "graph", number);
    eg_module *root = random_graph(g, &rng);
    eg_policy policies[MAX_POLICIES];
    size_t n = random_policies(g, &rng, policies);
    bool recurse = eg_rng_below(&rng, 2) == 0;
    g->root_held = eg_rng_below(&rng, 2) == 0;
    eg_optimizer *o = eg_sgd(root, .lr = 0.1);
    assert_made(o);
    uint64_t before = fingerprint(root, o);
    eg_surgery *s = eg_surgery_new(root, .root = g->root_held ? &root : NULL, .optimizers = EG_OPTIMIZERS(o));
    assert_made(s);
    naive_run(g, recurse);
    eg_status status = eg_surgery_replace(s, (eg_policies){policies, n}, recurse);
    assert_true(fingerprint(root, o) == before);
    if ((status != EG_OK) != g->failed)
        fail_msg("graph %llu: the reference %s, the engine says %s", (unsigned long long)number,
                 g->failed ? "fails" : "does not fail", status == EG_OK ? "nothing" : eg_error_last()->message);
    for (size_t i = 0; i < n && !g->failed; i++)
        assert_int_equal(policies[i].index, g->index[i]);
    if (g->failed)
        assert_int_equal(eg_surgery_size(s), 0);
    else
        check_committed(g, s, &root, o, before);
    eg_error_clear();
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(root);
    return !g->failed;
}

/* EG_TEST_GRAPHS says how many; under a sanitizer fewer do. */
static size_t how_many(void)
{
    const char *text = getenv("EG_TEST_GRAPHS");
#ifdef __SANITIZE_ADDRESS__
    size_t usual = 1500;
#else
    size_t usual = 10000;
#endif
    return text != NULL ? strtoul(text, NULL, 10) : usual;
}

static void agrees_with_the_reference(void **state)
{
    (void)state;
    size_t worked = 0, n = how_many();
    for (size_t i = 0; i < n; i++)
        worked += try_graph(i);
    assert_true(worked > n / 3 && worked < n);
}

/* A child that holds its parent. */
static void refuses_cycles(void **state)
{
    (void)state;
    eg_module *inner = eg_sequential(ctx, EG_MODULES(eg_relu(ctx)));
    eg_module *outer = eg_sequential(ctx, EG_MODULES(eg_module_retain(inner)));
    eg_module **slot = eg__slot_child(&inner->slots[0]), *relu = *slot;
    *slot = outer;
    assert_int_equal(eg_count_module_instances(outer, EG_CLASSES(&eg_relu_class)), -1);
    assert_recorded(EG_EINVAL, "contains itself");
    eg_surgery *s = eg_surgery_new(outer);
    assert_made(s);
    assert_fails(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_relu_class, .replace = to_gelu}), false), EG_EINVAL,
                 "contains itself");
    eg_surgery_free(s);
    *slot = relu;
    eg_module_release(inner);
    eg_module_release(outer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {SURGERY_TEST(agrees_with_the_reference), SURGERY_TEST(refuses_cycles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Functions that are run again in backward: the same results, gradients and statistics as of plain calls. */
#include "support.h"

#include "engraft/layers.h"
#include "engraft/sys/op.h"

#include "autograd/internal.h"

enum { N = 4, C = 3, SIDE = 5 };

typedef struct world {
    eg_context *ctx;
    eg_module *net;
    eg_tensor *x, *factor;
    bool recompute, lift;
    int calls, fail_at, released;
} world;

static eg_module *make_net(eg_context *ctx)
{
    return eg_sequential(ctx, EG_MODULES(eg_relu(ctx), eg_conv2d(ctx, C, C, 3, .padding = 1), eg_batch_norm2d(ctx, C),
                                         eg_dropout(ctx, 0.3), eg_conv2d(ctx, C, C, 1), eg_batch_norm2d(ctx, C)));
}

static world make_world(bool recompute)
{
    world w = {.ctx = eg_context_new(.seed = 3, .threads = 2), .recompute = recompute};
    w.net = make_net(w.ctx);
    assert_made(w.net);
    w.x = eg_randn(w.ctx, EG_SHAPE(N, C, SIDE, SIDE));
    w.factor = eg_full(w.ctx, EG_SHAPE(1), 0.5);
    assert_ok(eg_tensor_set_requires_grad(w.x, true));
    assert_ok(eg_tensor_set_requires_grad(w.factor, true));
    return w;
}

static void free_world(world *w)
{
    eg_module_release(w->net);
    eg_context_free(w->ctx);
}

/* factor * (net(x) + net(x)); in[1] may be missing. */
static eg_tensor *fn(void *payload, eg_tensor *const *in, size_t n_in)
{
    world *w = payload;
    if (++w->calls == w->fail_at) {
        eg_tape_begin(w->ctx, EG_RECORD); /* left open */
        eg_fail(EG_EINVAL, "no more");
        return NULL;
    }
    eg_tensor *y = eg_add(eg_call(w->net, in[0]), eg_call(w->net, in[0]));
    return n_in > 1 ? eg_mul(y, in[1]) : y;
}

static void release(void *payload)
{
    ((world *)payload)->released++;
}

static eg_tensor *apply(world *w, eg_tensor *const *in, size_t n)
{
    return w->recompute ? eg__recompute(w->ctx, fn, w, release, in, n, w->lift) : fn(w, in, n);
}

static eg_status step(world *w)
{
    eg_tensor *h = eg_mul(w->x, w->x);
    eg_tensor *y = apply(w, (eg_tensor *const[]){h, w->factor}, 2);
    return eg_backward(eg_sum(eg_mul(eg_add(y, h), y)));
}

static void expect_equal(const eg_tensor *a, const eg_tensor *b)
{
    size_t n = (size_t)eg_tensor_numel(a);
    float *u = calloc(n, sizeof *u), *v = calloc(n, sizeof *v);
    assert_ok(eg_tensor_read(a, u, n));
    assert_ok(eg_tensor_read(b, v, n));
    assert_memory_equal(u, v, n * sizeof *u);
    free(u);
    free(v);
}

static void expect_equal_state(const world *a, const world *b)
{
    eg_state *s = eg_state_new(), *t = eg_state_new();
    assert_ok(eg_module_state(a->net, "", s));
    assert_ok(eg_module_state(b->net, "", t));
    for (size_t i = 0; i < eg_state_size(s); i++) {
        const eg_tensor *u = eg_state_at(s, i, NULL), *v = eg_state_at(t, i, NULL);
        if (eg_tensor_dtype(u) == EG_F32)
            expect_equal(u, v);
        else
            assert_int_equal(*eg__i64(u), *eg__i64(v));
        if (eg_tensor_grad(u))
            expect_equal(eg_tensor_grad(u), eg_tensor_grad(v));
    }
    eg_state_free(s);
    eg_state_free(t);
}

/* Gradients, running statistics and counters, and what the random stream gives next: bit for bit. */
static void test_equal(void **state)
{
    (void)state;
    world plain = make_world(false), again = make_world(true);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 2; k++) {
            world *w = k ? &again : &plain;
            eg_tape *tape = eg_tape_begin(w->ctx, EG_RECORD);
            assert_ok(step(w));
            assert_int_equal(w->released, k ? i : 0);
            eg_tape_end(tape);
        }
        expect_equal(eg_tensor_grad(plain.x), eg_tensor_grad(again.x));
        expect_equal(eg_tensor_grad(plain.factor), eg_tensor_grad(again.factor));
        expect_equal_state(&plain, &again);
        assert_int_equal(eg_context_rng(plain.ctx)->position, eg_context_rng(again.ctx)->position);
    }
    assert_int_equal(plain.calls, 3);
    assert_int_equal(again.calls, 6);
    assert_int_equal(again.released, 3);
    free_world(&plain);
    free_world(&again);
}

static int count_relus(const eg_tape *tape)
{
    int n = 0;
    for (size_t i = 0; i < tape->n_nodes; i++)
        n += strcmp(tape->nodes[i]->op->name, "relu") == 0;
    return n;
}

/* What functions begin with is done once on the tape outside, for all of them. */
static void test_lifted(void **state)
{
    (void)state;
    world plain = make_world(false), again = make_world(true);
    again.lift = true;
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 2; k++) {
            world *w = k ? &again : &plain;
            eg_tape *tape = eg_tape_begin(w->ctx, EG_RECORD);
            eg_tensor *in[] = {eg_mul(w->x, w->x), w->factor};
            eg_tensor *y = apply(w, in, 2), *z = apply(w, in, i == 2 ? 1 : 2);
            assert_int_equal(count_relus(tape), 1);
            assert_ok(eg_backward(eg_sum(eg_mul(y, z))));
            eg_tape_end(tape);
        }
        expect_equal(eg_tensor_grad(plain.x), eg_tensor_grad(again.x));
        expect_equal(eg_tensor_grad(plain.factor), eg_tensor_grad(again.factor));
        expect_equal_state(&plain, &again);
    }
    assert_int_equal(again.calls, 2 * plain.calls);
    free_world(&plain);
    free_world(&again);
}

/* A function with parameters of its own, on inputs that need no gradient. */
static void test_constant_input(void **state)
{
    (void)state;
    world plain = make_world(false), again = make_world(true);
    for (int k = 0; k < 2; k++) {
        world *w = k ? &again : &plain;
        assert_ok(eg_tensor_set_requires_grad(w->x, false));
        eg_tape *tape = eg_tape_begin(w->ctx, EG_RECORD);
        assert_ok(eg_backward(eg_sum(eg_f_sigmoid(apply(w, &w->x, 1)))));
        eg_tape_end(tape);
    }
    expect_equal_state(&plain, &again);
    free_world(&plain);
    free_world(&again);
}

static eg_tensor *first(void *payload, eg_tensor *const *in, size_t n_in)
{
    (void)payload, (void)n_in;
    return in[0];
}

static eg_tensor *leaf(void *payload, eg_tensor *const *in, size_t n_in)
{
    (void)in, (void)n_in;
    return ((world *)payload)->factor;
}

static eg_tensor *nothing(void *payload, eg_tensor *const *in, size_t n_in)
{
    (void)payload, (void)in, (void)n_in;
    return eg_none;
}

static eg_tensor *nested(void *payload, eg_tensor *const *in, size_t n_in)
{
    world *w = payload;
    eg_tensor *y = eg_recompute(w->ctx, fn, w, NULL, in, n_in);
    return eg_recompute(w->ctx, fn, w, NULL, (eg_tensor *const[]){y, in[1]}, n_in);
}

/* Results that are inputs, leaves, or nothing; inputs that are eg_none, or used for nothing; one inside another. */
static void test_odd_functions(void **state)
{
    (void)state;
    world w = make_world(true);
    eg_tape *tape = eg_tape_begin(w.ctx, EG_RECORD);
    eg_tensor *in[] = {eg_mul(w.x, w.x), eg_none, w.factor};
    eg_tensor *y = eg_recompute(w.ctx, first, NULL, NULL, in, 3);
    eg_tensor *z = eg_recompute(w.ctx, leaf, &w, NULL, in, 3);
    assert_true(eg_is_none(eg_recompute(w.ctx, nothing, NULL, NULL, in, 3)));
    assert_ok(eg_backward(eg_sum(eg_mul(y, z))));
    eg_tape_end(tape);
    float grad[N * C * SIDE * SIDE], x[N * C * SIDE * SIDE], sum = 0;
    assert_ok(eg_tensor_read(eg_tensor_grad(w.x), grad, N * C * SIDE * SIDE));
    assert_ok(eg_tensor_read(w.x, x, N * C * SIDE * SIDE));
    for (size_t i = 0; i < N * C * SIDE * SIDE; i++) {
        assert_float_equal(grad[i], x[i], 1e-6);
        sum += x[i] * x[i];
    }
    assert_ok(eg_tensor_read(eg_tensor_grad(w.factor), grad, 1));
    assert_float_equal(grad[0], sum, 1e-3);

    world other = make_world(false);
    for (int k = 0; k < 2; k++) {
        world *v = k ? &w : &other;
        eg_tensor_zero_grad(v->x);
        *eg_context_rng(v->ctx) = eg_rng_make(1, "nested", 0);
        tape = eg_tape_begin(v->ctx, EG_RECORD);
        eg_tensor *const both[] = {v->x, v->factor};
        y = k ? eg_recompute(v->ctx, nested, v, NULL, both, 2)
              : fn(v, (eg_tensor *const[]){fn(v, both, 2), v->factor}, 2);
        assert_ok(eg_backward(eg_sum(eg_mul(y, y))));
        eg_tape_end(tape);
    }
    expect_equal(eg_tensor_grad(w.x), eg_tensor_grad(other.x));
    assert_int_equal(w.calls, 2 + 2 + 2);
    free_world(&w);
    free_world(&other);
}

/* A failure in either run is the function's; what it left behind is gone, and a step after it works. */
static void test_failures(void **state)
{
    (void)state;
    for (int at = 1; at <= 2; at++) {
        world w = make_world(true);
        w.fail_at = at;
        eg_tape *tape = eg_tape_begin(w.ctx, EG_RECORD);
        assert_fails(step(&w), EG_EINVAL, "no more");
        assert_false(eg__is_repeating(w.ctx));
        eg_tape_end(tape);
        assert_int_equal(w.released, 1);
        tape = eg_tape_begin(w.ctx, EG_RECORD);
        assert_ok(step(&w));
        eg_tape_end(tape);
        free_world(&w);
    }
}

static eg_tensor *reads_outer(void *payload, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_mul(in[0], payload);
}

static eg_tensor *goes_back(void *payload, eg_tensor *const *in, size_t n_in)
{
    (void)payload, (void)n_in;
    eg_tensor *y = eg_sum(in[0]);
    return eg_backward(y) == EG_OK ? y : NULL;
}

static void test_refusals(void **state)
{
    (void)state;
    world w = make_world(true);
    eg_tape *tape = eg_tape_begin(w.ctx, EG_RECORD);
    eg_tensor *h = eg_mul(w.x, w.x);
    assert_null(eg_recompute(w.ctx, reads_outer, h, NULL, &w.x, 1));
    assert_recorded(EG_EINVAL, "outer tape");
    assert_null(eg_recompute(w.ctx, goes_back, NULL, NULL, &h, 1));
    assert_recorded(EG_EINVAL, "backward comes after");
    assert_null(eg_recompute(NULL, fn, &w, release, &h, 1));
    assert_recorded(EG_EINVAL, "context is NULL");
    assert_null(eg_recompute(w.ctx, NULL, &w, release, &h, 1));
    assert_recorded(EG_EINVAL, "function is NULL");
    assert_null(eg_recompute(w.ctx, fn, &w, release, NULL, 1));
    assert_recorded(EG_EINVAL, "list of inputs is NULL");
    assert_null(eg_recompute(w.ctx, fn, &w, release, &(eg_tensor *){NULL}, 1));
    assert_recorded(EG_EINVAL, "input is NULL");
    assert_int_equal(w.released, 4);
    eg_tape_end(tape);

    /* a parameter that changes in between, which no saved tensor tells of */
    tape = eg_tape_begin(w.ctx, EG_RECORD);
    eg_tensor *y = eg_recompute(w.ctx, fn, &w, NULL, &w.x, 1);
    assert_made(y);
    eg_tensor_touch(((eg_conv2d *)eg_module_child_at(w.net, 1, NULL))->weight);
    assert_fails(eg_backward(eg_sum(y)), EG_EINVAL, "changed in place");
    eg_tape_end(tape);
    free_world(&w);
}

/* Without a recording tape, and on shapes only, the function is called as it is. */
static void test_plain_calls(void **state)
{
    (void)state;
    world w = make_world(true);
    eg_tape *tape = eg_tape_begin(w.ctx, EG_NO_GRAD);
    eg_tensor *y = eg_recompute(w.ctx, fn, &w, release, &w.x, 1);
    assert_made(y);
    assert_false(eg_tensor_requires_grad(y));
    assert_int_equal(w.released, 1);
    eg_tape_end(tape);
    tape = eg_tape_begin(w.ctx, EG_RECORD);
    eg_tensor *shape = eg_shape_only(w.ctx, EG_SHAPE(N, C, SIDE, SIDE));
    y = eg_recompute(w.ctx, fn, &w, release, &shape, 1);
    assert_made(y);
    assert_true(eg_tensor_is_shape_only(y));
    assert_int_equal(w.released, 2);
    eg_tape_end(tape);
    free_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equal),         cmocka_unit_test(test_constant_input),
                                       cmocka_unit_test(test_odd_functions), cmocka_unit_test(test_failures),
                                       cmocka_unit_test(test_refusals),      cmocka_unit_test(test_plain_calls),
                                       cmocka_unit_test(test_lifted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

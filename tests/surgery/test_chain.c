/*
 * Chains of modules in the traced graph, and what keeps them from being joined.
 */
#include "surgery_support.h"

#include "engraft/methods.h"

static eg_module *conv(void)
{
    return eg_conv2d(ctx, 4, 4, 3, .padding = 1);
}

static eg_chains *find(eg_module *m)
{
    eg_chains *chains = eg_chains_find(m, EG_SHAPES(EG_SHAPE(1, 4, 6, 6)),
                                       EG_CLASSES(&eg_conv2d_class, &eg_batch_norm2d_class, &eg_relu_class));
    assert_made(chains);
    return chains;
}

/* Containers lie between the modules of the first chain; the second lacks its norm. */
static void containers_do_not_matter(void **state)
{
    (void)state;
    eg_module *inner =
        eg_sequential(ctx, EG_MODULES(eg_sequential(ctx, EG_MODULES(eg_batch_norm2d(ctx, 4))), eg_relu(ctx)));
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_sequential(ctx, EG_MODULES(conv())), inner, conv(), eg_relu(ctx)));
    eg_chains *chains = find(m);
    assert_int_equal(eg_chains_size(chains), 1);
    const eg_chain *c = eg_chains_at(chains, 0);
    assert_null(c->refused);
    assert_int_equal(c->n, 3);
    assert_string_equal(c->paths[0], "0.0");
    assert_string_equal(c->paths[1], "1.0.0");
    assert_string_equal(c->paths[2], "1.1");
    assert_ptr_equal(c->modules[1], eg_module_find(m, "1.0.0"));
    assert_null(eg_chains_at(chains, 1));
    assert_recorded(EG_EINVAL, "there is no chain 1");
    eg_chains_free(chains);
    eg_module_release(m);
}

/* Uses the result of its norm twice, or gives it away. */
typedef struct forked {
    eg_module base;
    bool gives; /* else it adds */
    eg_module *conv, *norm, *relu;
} forked;

static eg_status forked_build(eg_module *self)
{
    forked *f = (forked *)self;
    EG_SLOT(f, conv, eg_conv2d(self->ctx, 4, 4, 1));
    EG_SLOT(f, norm, eg_batch_norm2d(self->ctx, 4));
    EG_SLOT(f, relu, eg_relu(self->ctx));
    return eg_module_status(self);
}

static eg_tensor *forked_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    forked *f = (forked *)self;
    (void)n_in;
    eg_tensor *y = eg_call(f->norm, eg_call(f->conv, in[0]));
    eg_tensor *z = eg_call(f->relu, y);
    return f->gives ? eg_tuple(self->ctx, (eg_tensor *const[]){z, y}, 2) : eg_add(z, y);
}

static EG_CLASS(forked, .build = forked_build, .forward = forked_forward,
                .fields = EG_FIELDS(EG_BOOL(forked, gives, .help = "both results")));

static void assert_refused_chain(eg_module *m, const char *why)
{
    assert_made(m);
    eg_chains *chains = find(m);
    assert_true(eg_chains_size(chains) >= 1);
    const eg_chain *c = eg_chains_at(chains, 0);
    assert_non_null(c->refused);
    if (strstr(c->refused, why) == NULL)
        fail_msg("refused because %s, expected %s", c->refused, why);
    eg_chains_free(chains);
    eg_module_release(m);
}

static eg_tensor *leave(void *payload, eg_module *m, eg_tensor *t, bool *failed)
{
    (void)payload;
    (void)m;
    (void)t;
    (void)failed;
    return NULL;
}

static void what_others_use_is_refused(void **state)
{
    (void)state;
    assert_refused_chain(eg_new(forked, ctx, .gives = false), "'norm' is used elsewhere too");
    assert_refused_chain(eg_new(forked, ctx, .gives = true), "'norm' is used elsewhere too");
    eg_module *shared = conv();
    assert_refused_chain(
        eg_sequential(ctx, EG_MODULES(eg_module_retain(shared), eg_batch_norm2d(ctx, 4), eg_relu(ctx), shared)),
        "runs more than once");
    eg_module *hooked = eg_sequential(ctx, EG_MODULES(conv(), eg_batch_norm2d(ctx, 4), eg_relu(ctx)));
    assert_ok(eg_module_add_hook(eg_module_find(hooked, "1"), leave, NULL, NULL));
    assert_refused_chain(hooked, "has hooks");
}

/* Folding leaves them, and says so. */
static void folding_says_what_it_leaves(void **state)
{
    (void)state;
    eg_module *m = eg_new(forked, ctx, .gives = false);
    eg_surgery *s = eg_surgery_new(m, .inputs = EG_SHAPES(EG_SHAPE(1, 4, 6, 6)));
    assert_ok(eg_surgery_apply(s, eg_fold_batch_norm(ctx), NULL)); /* nobody else uses the convolution's result */
    assert_int_equal(eg_surgery_size(s), 2);
    eg_surgery_drop(s);
    assert_ok(eg_module_add_hook(((forked *)m)->conv, leave, NULL, NULL));
    assert_ok(eg_surgery_apply(s, eg_fold_batch_norm(ctx), NULL));
    assert_int_equal(eg_surgery_size(s), 0);
    assert_string_equal(eg_surgery_note_at(s, 0), "fold_batch_norm leaves 'norm': 'conv' has hooks");
    eg_surgery_free(s);
    s = eg_surgery_new(m);
    assert_fails(eg_surgery_apply(s, eg_fold_batch_norm(ctx), NULL), EG_EINVAL, "give the surgery .inputs");
    eg_surgery_free(s);
    eg_module_release(m);
}

static void wrong_questions_fail(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(conv()));
    assert_null(eg_chains_find(m, EG_SHAPES(EG_SHAPE(1, 4, 6, 6)), EG_CLASSES(&eg_conv2d_class)));
    assert_recorded(EG_EINVAL, "two classes or more");
    assert_null(eg_chains_find(NULL, EG_SHAPES(EG_SHAPE(1, 4, 6, 6)), EG_CLASSES(&eg_conv2d_class, &eg_relu_class)));
    assert_recorded(EG_EINVAL, "the model is NULL");
    assert_null(eg_chains_find(m, EG_SHAPES(EG_SHAPE(1, 3, 6, 6)), EG_CLASSES(&eg_conv2d_class, &eg_relu_class)));
    assert_recorded(EG_ESHAPE, "3 channels");
    eg_module_release(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SURGERY_TEST(containers_do_not_matter),
        SURGERY_TEST(what_others_use_is_refused),
        SURGERY_TEST(folding_says_what_it_leaves),
        SURGERY_TEST(wrong_questions_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Residual blocks, x + f(x), and those that leave f out at random (Huang et al. 2016, "Deep networks with stochastic
 * depth").
 */
#include "nn/internal.h"

static eg_tensor *shortcut(const eg_module *self, eg_tensor *x)
{
    eg_module *m = eg__child_at(self, 1);
    return m != NULL ? eg_call(m, x) : x;
}

static eg_tensor *body(const eg_module *self, eg_tensor *x)
{
    eg_module *m = eg__child_at(self, 0);
    if (m == NULL)
        eg_fail(EG_EINVAL, "%s: has no body", self->cls->name);
    return m != NULL ? eg_call(m, x) : NULL;
}

static eg_tensor *residual_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    eg_tensor *y = body(self, in[0]);
    return eg_add(y, shortcut(self, in[0]));
}

EG_NAMED_CLASS(eg_residual_block, "ResidualBlock", .forward = residual_forward, .fields = EG_FIELDS(EG_NAMED_FIELD(eg_residual_block)));

/* The whole batch: in training all or nothing, in evaluation as much as it is there on average. */
static eg_tensor *by_block(const eg_module *self, double rate, eg_tensor *x)
{
    if (self->training && rate > 0 && eg_rng_uniform(eg_context_rng(self->ctx)) < rate)
        return shortcut(self, x);
    eg_tensor *y = body(self, x);
    if (!self->training && rate > 0)
        y = eg_affine(y, 1 - rate, 0);
    return eg_add(y, shortcut(self, x));
}

static eg_tensor *by_sample(const eg_module *self, double rate, eg_tensor *x)
{
    eg_tensor *y = eg_f_drop_path(body(self, x), rate, self->training);
    return eg_add(y, shortcut(self, x));
}

static eg_tensor *stochastic_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_stochastic_residual *r = EG_CAST(self, eg_stochastic_residual);
    return r->by_sample ? by_sample(self, r->drop_rate, in[0]) : by_block(self, r->drop_rate, in[0]);
}

EG_NAMED_CLASS(eg_stochastic_residual, "StochasticResidual", .super = &eg_residual_block_class, .forward = stochastic_forward,
               .fields = EG_FIELDS(EG_FLOAT(eg_stochastic_residual, drop_rate, .max = 1,
                                            .help = "probability that the body is left out"),
                                   EG_BOOL(eg_stochastic_residual, by_sample,
                                           .help = "each sample by itself, not the whole batch")));

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

EG_NAMED_CLASS(eg_residual_block, "ResidualBlock", .forward = residual_forward,
               .fields = EG_FIELDS(EG_NAMED_FIELD(eg_residual_block)));

/* In training all or nothing, of the whole batch or of each sample; in evaluation as much as it is there on average. */
static eg_tensor *stochastic_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_stochastic_residual *r = EG_CAST(self, eg_stochastic_residual);
    double rate = r->drop_rate * (1 - r->held_back);
    bool by_block = self->training && !r->by_sample;
    if (by_block && rate > 0 && eg_rng_uniform(eg_context_rng(self->ctx)) < rate)
        return shortcut(self, in[0]);
    eg_tensor *y = body(self, in[0]);
    if (!by_block && rate > 0) /* eg_f_drop_path() has scaled by 1 / (1 - rate) what it left */
        y = eg_affine(eg_f_drop_path(y, rate, self->training), 1 - rate, 0);
    return eg_add(y, shortcut(self, in[0]));
}

static eg_status hold_back(void *payload, const char *path, eg_module *m)
{
    (void)path;
    if (eg_is_a(m, &eg_stochastic_residual_class))
        ((eg_stochastic_residual *)m)->held_back = *(const double *)payload;
    return EG_OK;
}

eg_status eg_stochastic_depth_warm_up(eg_module *model, double share)
{
    EG_CHECK(model != NULL, EG_EINVAL, "model is NULL");
    EG_CHECK(share >= 0 && share <= 1, EG_EINVAL, "share is %g, expected 0 to 1", share);
    double rest = 1 - share;
    return eg_module_walk(model, hold_back, &rest);
}

EG_NAMED_CLASS(eg_stochastic_residual, "StochasticResidual", .super = &eg_residual_block_class,
               .forward = stochastic_forward,
               .fields = EG_FIELDS(EG_FLOAT(eg_stochastic_residual, drop_rate, .max = 1,
                                            .help = "probability that the body is left out"),
                                   EG_BOOL(eg_stochastic_residual, by_sample,
                                           .help = "each sample by itself, not the whole batch"),
                                   EG_FLOAT(eg_stochastic_residual, held_back, .max = 1,
                                            .help = "share of drop_rate that does not count yet")));

/*
 * Residual blocks that are left out at random (Huang et al. 2016).
 */
#include "engraft/methods.h"
#include "surgery/internal.h"

typedef struct count {
    const char *at;
    size_t n;
} count;

static eg_status count_block(void *payload, const char *path, eg_module *m)
{
    count *c = payload;
    c->n += m->cls == &eg_residual_block_class && eg__path_matches(c->at, path);
    return EG_OK;
}

static eg_status count_blocks(void *payload, eg_module *root)
{
    return eg_module_walk(root, count_block, payload);
}

typedef struct application {
    const eg_stochastic_depth *options;
    size_t n;
} application;

static eg_module *replace(void *payload, eg_module *module, size_t index)
{
    const application *a = payload;
    const eg_stochastic_depth *o = a->options;
    double share = o->distribution == EG_STOCHASTIC_DEPTH_LINEAR ? (double)(index + 1) / (double)a->n : 1;
    eg_module *body = eg__child_at(module, 0), *shortcut = eg__child_at(module, 1);
    if (body == NULL)
        return NULL;
    if (shortcut == NULL)
        return eg_stochastic_residual(module->ctx, EG_NAMED({"body", eg_module_retain(body)}),
                                      .drop_rate = o->drop_rate * share, .by_sample = o->method == EG_BY_SAMPLE);
    return eg_stochastic_residual(module->ctx,
                                  EG_NAMED({"body", eg_module_retain(body)}, {"shortcut", eg_module_retain(shortcut)}),
                                  .drop_rate = o->drop_rate * share, .by_sample = o->method == EG_BY_SAMPLE);
}

static eg_status plan(eg_module *options, eg_surgery *s, const char *at)
{
    count blocks = {.at = at};
    EG_TRY(eg_surgery_look(s, count_blocks, &blocks));
    application a = {(const eg_stochastic_depth *)options, blocks.n};
    return eg_surgery_replace(s,
                              EG_POLICIES({.cls = &eg_residual_block_class,
                                           .replace = replace,
                                           .payload = &a,
                                           .at = at,
                                           .exact = true,
                                           .name = "stochastic_depth",
                                           .without = EG_CARRY_WEIGHTS | EG_CARRY_BUFFERS}),
                              false);
}

EG_METHOD(eg_stochastic_depth, "stochastic_depth",
          EG_FIELDS(EG_FLOAT(eg_stochastic_depth, drop_rate, .max = 1, .def = 0.2, .help = "of the last block"),
                    EG_ENUM(eg_stochastic_depth, method, .values = (const char *const[]){"block", "sample", NULL},
                            .help = "what is left out at a time"),
                    EG_ENUM(eg_stochastic_depth, distribution,
                            .values = (const char *const[]){"linear", "uniform", NULL},
                            .help = "of the rate over the blocks: growing with depth, or the same")),
          .help = "residual blocks are left out at random in training",
          .source = "Huang et al. 2016; block: 5 to 10 % faster at the same accuracy, sample: +0.4 % (Composer)",
          .promise = EG_PROMISE_TRAINED, .plan = plan);

/*
 * Residual blocks that are left out at random (Huang et al. 2016).
 */
#include "engraft/methods.h"
#include "surgery/internal.h"

/* Blocks of the model, in its order. */
typedef struct blocks {
    const eg_stochastic_depth *options;
    const char *at;
    eg__ptr_map numbers; /* block -> its number + 1 */
} blocks;

static eg_status add_block(void *payload, const char *path, eg_module *m)
{
    blocks *b = payload;
    if (m->cls != &eg_residual_block_class || !eg__path_matches(b->at, path))
        return EG_OK;
    return eg__ptr_map_put(&b->numbers, m, (void *)(b->numbers.n + 1));
}

static eg_status find_blocks(void *payload, eg_module *root)
{
    return eg_module_walk(root, add_block, payload);
}

static eg_module *replace(void *payload, eg_module *module, size_t index)
{
    const blocks *b = payload;
    const eg_stochastic_depth *o = b->options;
    void **number = eg__ptr_map_find(&b->numbers, module);
    eg_module *body = eg__child_at(module, 0), *shortcut = eg__child_at(module, 1);
    (void)index; /* blocks within blocks are offered last */
    if (body == NULL || number == NULL)
        return NULL;
    double share =
        o->distribution == EG_STOCHASTIC_DEPTH_LINEAR ? (double)(uintptr_t)*number / (double)b->numbers.n : 1;
    const eg_named_module parts[] = {{"body", eg_module_retain(body)}, {"shortcut", eg_module_retain(shortcut)}};
    return eg_stochastic_residual(module->ctx, .named = parts, .n_named = shortcut != NULL ? 2 : 1,
                                  .drop_rate = o->drop_rate * share, .by_sample = o->method == EG_BY_SAMPLE);
}

static eg_status plan(eg_module *options, eg_surgery *s, const char *at)
{
    blocks b = {.options = (const eg_stochastic_depth *)options, .at = at};
    eg_status status = eg_surgery_look(s, find_blocks, &b);
    if (status == EG_OK)
        status = eg_surgery_replace(s,
                                    EG_POLICIES({.cls = &eg_residual_block_class,
                                                 .replace = replace,
                                                 .payload = &b,
                                                 .at = at,
                                                 .exact = true,
                                                 .name = "stochastic_depth",
                                                 .without = EG_CARRY_WEIGHTS | EG_CARRY_BUFFERS}),
                                    true);
    eg__ptr_map_free(&b.numbers);
    return status;
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
          .promise = EG_PROMISE_TRAINED, .plan = plan, .inverse = "unwrap");

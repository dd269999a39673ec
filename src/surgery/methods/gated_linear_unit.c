/*
 * Feed-forward layers with a gate (Shazeer 2020): the first of Linear, activation, Linear gets one.
 */
#include "engraft/methods.h"
#include "surgery/internal.h"

static eg_module *make_gated(const eg_gated_linear *o, eg_module *linear, eg_module *act)
{
    const eg_linear *l = (const eg_linear *)linear;
    eg_module *gate = eg_linear(linear->ctx, l->in_features, l->out_features, .no_bias = !o->gate_bias);
    if (gate == NULL)
        return NULL;
    return eg_gated_linear_unit(
        linear->ctx, EG_NAMED({"linear", eg_module_retain(linear)}, {"gate", gate}, {"act", eg_module_retain(act)}));
}

static eg_status gate_chain(eg_surgery *s, const eg_gated_linear *o, const eg_chain *chain)
{
    eg_module *gated = make_gated(o, chain->modules[0], chain->modules[1]);
    EG_TRY(gated != NULL ? eg_surgery_put(s, chain->modules[0], gated, "gated_linear_unit") : eg_error_last()->code);
    eg_module *rest = eg_identity(s->ctx);
    return rest != NULL ? eg_surgery_put(s, chain->modules[1], rest, "gated_linear_unit") : eg_error_last()->code;
}

/* The chains by one class of activations. */
typedef struct search {
    eg_surgery *s;
    const eg_gated_linear *o;
    const eg_class *act;
    const char *at;
    size_t n; /* that got a gate */
} search;

/* While the plan is in place. */
static eg_status gate_all(void *payload, eg_module *root)
{
    search *f = payload;
    eg_shapes inputs = {f->s->inputs, f->s->n_inputs};
    eg_chains *chains = eg_chains_find(root, inputs, EG_CLASSES(&eg_linear_class, f->act, &eg_linear_class));
    eg_status status = chains != NULL ? EG_OK : eg_error_last()->code;
    for (size_t i = 0; i < eg_chains_size(chains) && status == EG_OK; i++) {
        const eg_chain *chain = eg_chains_at(chains, i);
        bool plain = chain->modules[0]->cls == &eg_linear_class && chain->modules[0]->open == NULL;
        if (!plain || !eg__path_matches(f->at, chain->paths[0]))
            continue;
        status = chain->refused != NULL
                     ? eg_surgery_note(f->s, "gated_linear_unit leaves '%s': %s", chain->paths[0], chain->refused)
                     : gate_chain(f->s, f->o, chain);
        f->n += chain->refused == NULL;
    }
    eg_chains_free(chains);
    return status;
}

static eg_status plan(eg_module *options, eg_surgery *s, const char *at)
{
    static const eg_class *const activations[] = {&eg_relu_class, &eg_gelu_class, &eg_silu_class, &eg_tanh_class,
                                                  &eg_sigmoid_class};
    search f = {.s = s, .o = (const eg_gated_linear *)options, .at = at};
    for (size_t i = 0; i < EG_COUNT(activations); i++) {
        f.act = activations[i];
        EG_TRY(eg_surgery_look(s, gate_all, &f));
    }
    return f.n > 0 ? EG_OK : eg_surgery_note(s, "gated_linear_unit found no Linear, activation, Linear");
}

EG_METHOD(eg_gated_linear, "gated_linear_unit",
          EG_FIELDS(EG_BOOL(eg_gated_linear, gate_bias, .help = "gates have a bias")),
          .help = "the first of Linear, activation, Linear gets a gate, which takes the activation",
          .source = "Shazeer 2020; better at the same time in BERT (Composer, no figure)",
          .promise = EG_PROMISE_TRAINED, .runs = true, .plan = plan);

/*
 * tests/nas/toy.h - modules so small that what they give can be told beforehand.
 */
#ifndef EG_TESTS_NAS_TOY_H
#define EG_TESTS_NAS_TOY_H

#include "support.h"

#include "engraft/nas.h"

/* y = factor * x, where the factor is a parameter. */
typedef struct gain {
    eg_module base;
    double factor;
    eg_tensor *weight;
} gain;

static inline eg_status gain_build(eg_module *self)
{
    gain *g = (gain *)self;
    return EG_PARAM(g, weight, eg_full(self->ctx, EG_SHAPE(1), g->factor));
}

static inline eg_tensor *gain_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_mul(in[0], ((gain *)self)->weight);
}

static EG_CLASS(gain, .build = gain_build, .forward = gain_forward,
                .fields = EG_FIELDS(EG_FLOAT(gain, factor, .help = "of x")));

static inline eg_module *make_gain(eg_context *ctx, double factor)
{
    return eg_new(gain, ctx, factor);
}

/* Named a, b, c: 1, 10 and 100 times the input. */
#define GAINS_ABC(ctx) EG_CHOICES({"a", make_gain((ctx), 1)}, {"b", make_gain((ctx), 10)}, {"c", make_gain((ctx), 100)})
/* The same, numbered. */
#define GAINS_012(ctx) EG_MODULES(make_gain((ctx), 1), make_gain((ctx), 10), make_gain((ctx), 100))

/* A scope that runs its one part. */
typedef struct part {
    eg_module base;
    const char *key;
    eg_module *const *modules;
    size_t n_modules;
} part;

static inline eg_tensor *part_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    eg_tensor *x = in[0];
    for (size_t i = 0; i < eg_module_n_children(self); i++)
        x = eg_call(eg_module_child_at(self, i, NULL), x);
    return x;
}

static EG_CLASS(part, .super = &eg_mutable_scope_class, .forward = part_forward,
                .fields = EG_FIELDS(EG_TEXT(part, key, .help = "key"), EG_MODULES_FIELD(part)));

/* Two named layers, then a choice among their outputs and the input. */
typedef struct pick {
    eg_module base;
    bool any;
    eg_module *left, *right, *merge;
} pick;

static inline eg_status pick_build(eg_module *self)
{
    pick *p = (pick *)self;
    EG_SLOT(p, left, eg_layer_choice(self->ctx, GAINS_ABC(self->ctx), .key = "left"));
    EG_SLOT(p, right, eg_layer_choice(self->ctx, GAINS_012(self->ctx), .key = "right"));
    EG_SLOT(p, merge,
            eg_input_choice(self->ctx, .choose_from = EG_KEYS("left", "right", EG_NO_KEY), .key = "merge",
                            .n_chosen = p->any ? EG_N(-1) : EG_N(2)));
    return eg_module_status(self);
}

static inline eg_tensor *pick_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    pick *p = (pick *)self;
    return eg_call(p->merge, eg_call(p->left, in[0]), eg_call(p->right, in[0]), in[0]);
}

static EG_CLASS(pick, .build = pick_build, .forward = pick_forward,
                .fields = EG_FIELDS(EG_BOOL(pick, any, .help = "any number")));

/* The number that a model makes of one. */
static inline double run_on_one(eg_module *m)
{
    eg_tape *tape = eg_tape_begin(m->ctx, EG_NO_GRAD);
    eg_tensor *y = eg_call(m, eg_ones(m->ctx, EG_SHAPE(1, 1)));
    double value = eg_is_none(y) ? -1 : eg_tensor_item(y);
    eg_tape_end(tape);
    return value;
}

static inline eg_arch *parse_arch(const char *text)
{
    eg_arch *arch = eg_arch_parse(text);
    assert_made(arch);
    return arch;
}

/* A line that the library logged, the last one. */
typedef struct log_record {
    size_t lines;
    char last[400];
} log_record;

static inline void record_log(void *payload, eg_log_level level, const char *text)
{
    (void)level;
    log_record *record = payload;
    record->lines++;
    snprintf(record->last, sizeof record->last, "%s", text);
}

#endif

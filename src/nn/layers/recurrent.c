/*
 * Recurrent layers: several of eg_f_lstm() or eg_f_gru() above and beside each other, and single steps.
 *
 * Sequences run time first inside; with batch_first the first layer's input and the last one's output are views.
 */
#include "nn/internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { WEIGHT_IH, WEIGHT_HH, BIAS_IH, BIAS_HH, PARAMETERS };

static const char *const parameter_names[PARAMETERS] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};

/* What tells LSTM and GRU apart here. */
typedef struct kind {
    int gates;
    size_t n_states; /* of a layer: h, or h and c */
} kind;

static const kind lstm = {4, 2}, gru = {3, 1};

static eg_status add_parameters(eg_module *m, const kind *k, const char *suffix, eg_tensor **const *fields,
                                int64_t input_size, int64_t hidden_size, bool no_bias)
{
    int64_t rows = k->gates * hidden_size;
    double bound = 1 / sqrt((double)hidden_size);
    for (int i = 0; i < PARAMETERS; i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s%s", parameter_names[i], suffix);
        bool absent = i >= BIAS_IH && no_bias;
        eg_shape shape = i >= BIAS_IH ? EG_SHAPE(rows) : EG_SHAPE(rows, i == WEIGHT_IH ? input_size : hidden_size);
        eg_tensor *t = absent ? eg_none : eg_empty(m->ctx, EG_F32, shape, EG_LAYOUT_ROW_MAJOR);
        EG_TRY(eg_module_add_parameter(m, name, fields != NULL ? fields[i] : NULL, t));
        if (!absent)
            EG_TRY(eg_init_uniform(t, -bound, bound));
    }
    return EG_OK;
}

/* One layer in one direction. states: h, c before in, after out. */
static eg_tensor *run(const kind *k, eg_tensor *x, eg_tensor *const *p, eg_tensor **states, bool reverse)
{
    eg_tensor *all =
        k == &lstm
            ? eg_f_lstm(x, p[WEIGHT_IH], p[WEIGHT_HH], p[BIAS_IH], p[BIAS_HH], states[0], states[1], .reverse = reverse)
            : eg_f_gru(x, p[WEIGHT_IH], p[WEIGHT_HH], p[BIAS_IH], p[BIAS_HH], states[0], .reverse = reverse);
    if (all == NULL)
        return NULL;
    for (size_t i = 0; i < k->n_states; i++)
        states[i] = eg_tuple_get(all, i + 1);
    return eg_tuple_get(all, 0);
}

static eg_status check_inputs(const eg_module *m, const kind *k, size_t n_in)
{
    EG_CHECK(n_in == 1 || n_in == 1 + k->n_states, EG_EINVAL, "%s: got %zu inputs, expected 1 or %zu", m->cls->name,
             n_in, 1 + k->n_states);
    return EG_OK;
}

/* ---- sequences ---- */

enum { MAX_LAYERS = 64 }; /* with two directions and PARAMETERS of each well below what a module holds */

static eg_status build(eg_module *self, const kind *k)
{
    const eg_recurrent *r = (const eg_recurrent *)self;
    int64_t directions = r->bidirectional ? 2 : 1, input_size = r->input_size;
    for (int64_t i = 0; i < r->num_layers; i++, input_size = directions * r->hidden_size)
        for (int64_t d = 0; d < directions; d++) {
            char suffix[32];
            snprintf(suffix, sizeof(suffix), "_l%" PRId64 "%s", i, d ? "_reverse" : "");
            EG_TRY(add_parameters(self, k, suffix, NULL, input_size, r->hidden_size, r->no_bias));
        }
    return EG_OK;
}

/* Layer i in direction d: parameters are the first slots but for those of open fields. */
static eg_tensor *run_layer(eg_module *self, const kind *k, eg_tensor *x, int64_t i, int64_t d, eg_tensor **states)
{
    int64_t directions = ((const eg_recurrent *)self)->bidirectional ? 2 : 1;
    eg_tensor *p[PARAMETERS];
    eg_slot *first = self->slots;
    while (first->kind == EG_SLOT_CHILD)
        first++;
    for (int n = 0; n < PARAMETERS; n++)
        p[n] = *eg__slot_tensor(&first[(i * directions + d) * PARAMETERS + n]);
    return run(k, x, p, states, d == 1);
}

/* The states of one layer in one direction, (N, hidden_size), from those of all. */
static void initial_states(const kind *k, eg_tensor *const *in, size_t n_in, int64_t at, eg_tensor **states)
{
    for (size_t s = 0; s < k->n_states; s++) {
        states[s] = eg_none;
        if (n_in > 1 && !eg_is_none(in[1 + s]))
            states[s] = eg_f_flatten(eg_slice(in[1 + s], 0, at, at + 1, 1), 0, 1);
    }
}

/* Final states (N, hidden_size) of all layers as one (n, N, hidden_size). */
static eg_tensor *stack_states(eg_tensor **states, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        eg_shape shape = eg_tensor_shape(states[i]);
        states[i] = eg_reshape(states[i], EG_SHAPE(1, shape.dims[0], shape.dims[1]));
    }
    return n == 1 ? states[0] : eg_concat(states, n, 0);
}

/* All layers over x, time first. last: final states of kind s begin at s * layers. */
static eg_tensor *run_layers(eg_module *self, const kind *k, eg_tensor *x, eg_tensor *const *in, size_t n_in,
                             eg_tensor **last)
{
    const eg_recurrent *r = (const eg_recurrent *)self;
    int64_t directions = r->bidirectional ? 2 : 1, total = r->num_layers * directions;
    for (int64_t i = 0; i < r->num_layers; i++) {
        eg_tensor *y[2] = {NULL, NULL};
        for (int64_t d = 0; d < directions; d++) {
            int64_t at = i * directions + d;
            eg_tensor *states[2];
            initial_states(k, in, n_in, at, states);
            y[d] = run_layer(self, k, x, i, d, states);
            for (size_t s = 0; s < k->n_states; s++)
                last[(int64_t)s * total + at] = states[s];
        }
        x = directions == 1 ? y[0] : eg_concat(y, 2, 2);
        if (x == NULL)
            return NULL;
        if (i < r->num_layers - 1)
            x = eg_f_dropout(x, r->dropout, self->training);
    }
    return x;
}

/* States that the user gives are for all layers; sizes of the rest are the operation's to check. */
static eg_status check_states(const eg_module *m, eg_tensor *const *in, size_t n_in, int64_t total)
{
    for (size_t i = 1; i < n_in; i++)
        EG_CHECK(eg_is_none(in[i]) || (eg_tensor_ndim(in[i]) == 3 && in[i]->shape.dims[0] == total), EG_ESHAPE,
                 "%s: a state has another shape than (%" PRId64 ", N, hidden_size)", m->cls->name, total);
    return EG_OK;
}

static eg_tensor *forward(eg_module *self, const kind *k, eg_tensor *const *in, size_t n_in)
{
    const eg_recurrent *r = (const eg_recurrent *)self;
    int64_t total = r->num_layers * (r->bidirectional ? 2 : 1);
    eg_tensor *last[2 * 2 * MAX_LAYERS], *out[3], *x = in[0];
    if (check_inputs(self, k, n_in) != EG_OK || check_states(self, in, n_in, total) != EG_OK)
        return NULL;
    if (r->batch_first)
        x = eg_permute(x, EG_SHAPE(1, 0, 2));
    x = run_layers(self, k, x, in, n_in, last);
    if (x == NULL)
        return NULL;
    out[0] = r->batch_first ? eg_permute(x, EG_SHAPE(1, 0, 2)) : x;
    for (size_t s = 0; s < k->n_states; s++)
        out[1 + s] = stack_states(last + (int64_t)s * total, (size_t)total);
    return eg_tuple(self->ctx, out, 1 + k->n_states);
}

static void describe(const eg_module *self, char *data, size_t size)
{
    const eg_recurrent *r = (const eg_recurrent *)self;
    eg__text text = {data, size};
    char number[EG__NUMBER_TEXT_SIZE];
    eg__text_add(&text, "%" PRId64 ", %" PRId64, r->input_size, r->hidden_size);
    if (r->num_layers != 1)
        eg__text_add(&text, ", num_layers=%" PRId64, r->num_layers);
    if (r->no_bias)
        eg__text_add(&text, ", bias=False");
    if (r->batch_first)
        eg__text_add(&text, ", batch_first=True");
    if (r->dropout != 0)
        eg__text_add(&text, ", dropout=%s", eg__number_text(r->dropout, number));
    if (r->bidirectional)
        eg__text_add(&text, ", bidirectional=True");
}

static eg_status lstm_build(eg_module *self)
{
    return build(self, &lstm);
}
static eg_status gru_build(eg_module *self)
{
    return build(self, &gru);
}
static eg_tensor *lstm_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    return forward(self, &lstm, in, n_in);
}
static eg_tensor *gru_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    return forward(self, &gru, in, n_in);
}

#define SEQUENCE_FIELDS                                                                                                \
    EG_FIELDS(EG_INT(eg_recurrent, input_size, .min = 1, .max = EG__MAX_CHANNELS, .help = "features in"),              \
              EG_INT(eg_recurrent, hidden_size, .min = 1, .max = EG__MAX_CHANNELS, .help = "units of a layer"),        \
              EG_INT(eg_recurrent, num_layers, .min = 1, .max = MAX_LAYERS, .def = 1, .help = "layers"),               \
              EG_BOOL(eg_recurrent, no_bias, .help = "leave the biases out"),                                          \
              EG_BOOL(eg_recurrent, batch_first, .help = "samples are dimension 0, not 1"),                            \
              EG_FLOAT(eg_recurrent, dropout, .max = 1, .help = "probability of being dropped, between layers"),       \
              EG_BOOL(eg_recurrent, bidirectional, .help = "a second direction, from the end"))

EG_NAMED_CLASS(eg_lstm, "LSTM", .build = lstm_build, .forward = lstm_forward, .n_inputs = EG_ANY_INPUTS,
               .describe = describe, .fields = SEQUENCE_FIELDS);
EG_NAMED_CLASS(eg_gru, "GRU", .build = gru_build, .forward = gru_forward, .n_inputs = EG_ANY_INPUTS,
               .describe = describe, .fields = SEQUENCE_FIELDS);

/* ---- single steps: sequences of one ---- */

static eg_status cell_build(eg_module *self, const kind *k)
{
    eg_recurrent_cell *c = (eg_recurrent_cell *)self;
    eg_tensor **const fields[PARAMETERS] = {&c->weight_ih, &c->weight_hh, &c->bias_ih, &c->bias_hh};
    return add_parameters(self, k, "", fields, c->input_size, c->hidden_size, c->no_bias);
}

static eg_tensor *cell_forward(eg_module *self, const kind *k, eg_tensor *const *in, size_t n_in)
{
    const eg_recurrent_cell *c = (const eg_recurrent_cell *)self;
    eg_tensor *const p[PARAMETERS] = {c->weight_ih, c->weight_hh, c->bias_ih, c->bias_hh};
    eg_tensor *states[2] = {n_in > 1 ? in[1] : eg_none, n_in > 2 ? in[2] : eg_none};
    if (check_inputs(self, k, n_in) != EG_OK)
        return NULL;
    if (eg_tensor_ndim(in[0]) != 2) {
        eg_fail(EG_ESHAPE, "%s: input has %d dimensions, expected (N, input_size)", self->cls->name,
                eg_tensor_ndim(in[0]));
        return NULL;
    }
    eg_tensor *x = eg_reshape(in[0], EG_SHAPE(1, in[0]->shape.dims[0], in[0]->shape.dims[1]));
    if (run(k, x, p, states, false) == NULL)
        return NULL;
    return k->n_states == 1 ? states[0] : eg_tuple(self->ctx, states, k->n_states);
}

static void cell_describe(const eg_module *self, char *data, size_t size)
{
    const eg_recurrent_cell *c = (const eg_recurrent_cell *)self;
    snprintf(data, size, "%" PRId64 ", %" PRId64 "%s", c->input_size, c->hidden_size, c->no_bias ? ", bias=False" : "");
}

static eg_status lstm_cell_build(eg_module *self)
{
    return cell_build(self, &lstm);
}
static eg_status gru_cell_build(eg_module *self)
{
    return cell_build(self, &gru);
}
static eg_tensor *lstm_cell_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    return cell_forward(self, &lstm, in, n_in);
}
static eg_tensor *gru_cell_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    return cell_forward(self, &gru, in, n_in);
}

#define CELL_FIELDS                                                                                                    \
    EG_FIELDS(EG_INT(eg_recurrent_cell, input_size, .min = 1, .max = EG__MAX_CHANNELS, .help = "features in"),         \
              EG_INT(eg_recurrent_cell, hidden_size, .min = 1, .max = EG__MAX_CHANNELS, .help = "units"),              \
              EG_BOOL(eg_recurrent_cell, no_bias, .help = "leave the biases out"))

EG_NAMED_CLASS(eg_lstm_cell, "LSTMCell", .build = lstm_cell_build, .forward = lstm_cell_forward,
               .n_inputs = EG_ANY_INPUTS, .describe = cell_describe, .fields = CELL_FIELDS);
EG_NAMED_CLASS(eg_gru_cell, "GRUCell", .build = gru_cell_build, .forward = gru_cell_forward, .n_inputs = EG_ANY_INPUTS,
               .describe = cell_describe, .fields = CELL_FIELDS);

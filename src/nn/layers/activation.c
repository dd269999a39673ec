#include "nn/internal.h"

#include <inttypes.h>

/* An activation without arguments: a function of in[0], and its class. */
#define ACTIVATION(type, printed, expression, ...)                                                                     \
    static eg_tensor *type##_forward(eg_module *self, eg_tensor *const *in, size_t n_in)                               \
    {                                                                                                                  \
        (void)self;                                                                                                    \
        (void)n_in;                                                                                                    \
        return expression;                                                                                             \
    }                                                                                                                  \
    EG_NAMED_CLASS(type, printed, .forward = type##_forward, __VA_ARGS__)

/* PyTorch names the form of GELU. */
static void describe_gelu(const eg_module *self, char *text, size_t size)
{
    (void)self;
    snprintf(text, size, "approximate='none'");
}

ACTIVATION(eg_relu, "ReLU", eg_f_relu(in[0]), .n_inputs = 1);
ACTIVATION(eg_relu6, "ReLU6", eg_f_relu6(in[0]), .n_inputs = 1);
ACTIVATION(eg_sigmoid, "Sigmoid", eg_f_sigmoid(in[0]), .n_inputs = 1);
ACTIVATION(eg_tanh, "Tanh", eg_f_tanh(in[0]), .n_inputs = 1);
ACTIVATION(eg_gelu, "GELU", eg_f_gelu(in[0]), .describe = describe_gelu);
ACTIVATION(eg_silu, "SiLU", eg_f_silu(in[0]), .n_inputs = 1);
ACTIVATION(eg_hardswish, "Hardswish", eg_f_hardswish(in[0]), .n_inputs = 1);
ACTIVATION(eg_hardsigmoid, "Hardsigmoid", eg_f_hardsigmoid(in[0]), .n_inputs = 1);
ACTIVATION(eg_mish, "Mish", eg_f_mish(in[0]), .n_inputs = 1);
ACTIVATION(eg_identity, "Identity", in[0], .n_inputs = 1);

static eg_tensor *leaky_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_f_leaky_relu(in[0], EG_CAST(self, eg_leaky_relu)->negative_slope.value);
}

static void leaky_describe(const eg_module *self, char *text, size_t size)
{
    char slope[EG__NUMBER_TEXT_SIZE];
    snprintf(text, size, "negative_slope=%s",
             eg__number_text(((const eg_leaky_relu *)self)->negative_slope.value, slope));
}

EG_NAMED_CLASS(eg_leaky_relu, "LeakyReLU", .forward = leaky_forward, .describe = leaky_describe,
               .fields = EG_FIELDS(EG_OPT_FLOAT(eg_leaky_relu, negative_slope, .def = 0.01, .help = "factor below 0")));

static eg_tensor *elu_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_f_elu(in[0], EG_CAST(self, eg_elu)->alpha.value);
}

static void elu_describe(const eg_module *self, char *text, size_t size)
{
    char alpha[EG__NUMBER_TEXT_SIZE];
    snprintf(text, size, "alpha=%s", eg__number_text(((const eg_elu *)self)->alpha.value, alpha));
}

EG_NAMED_CLASS(eg_elu, "ELU", .forward = elu_forward, .describe = elu_describe,
               .fields = EG_FIELDS(EG_OPT_FLOAT(eg_elu, alpha, .def = 1, .help = "minus the limit below 0")));

static eg_tensor *softplus_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_softplus *s = EG_CAST(self, eg_softplus);
    return eg_f_softplus(in[0], s->beta, s->threshold.value);
}

static void softplus_describe(const eg_module *self, char *text, size_t size)
{
    const eg_softplus *s = (const eg_softplus *)self;
    char beta[EG__NUMBER_TEXT_SIZE], threshold[EG__NUMBER_TEXT_SIZE];
    snprintf(text, size, "beta=%s, threshold=%s", eg__number_text(s->beta, beta),
             eg__number_text(s->threshold.value, threshold));
}

EG_NAMED_CLASS(eg_softplus, "Softplus", .forward = softplus_forward, .describe = softplus_describe,
               .fields = EG_FIELDS(EG_FLOAT(eg_softplus, beta, .def = 1, .help = "sharpness"),
                                   EG_OPT_FLOAT(eg_softplus, threshold, .def = 20,
                                                .help = "beta x from which on the result is x")));

/* ---- with a parameter ---- */

static eg_status prelu_build(eg_module *self)
{
    eg_prelu *p = EG_CAST(self, eg_prelu);
    eg_tensor *weight = eg_full(self->ctx, EG_SHAPE(p->num_parameters), p->init.value);
    return eg_module_add_parameter(self, "weight", &p->weight, weight);
}

static eg_tensor *prelu_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_f_prelu(in[0], EG_CAST(self, eg_prelu)->weight);
}

static void prelu_describe(const eg_module *self, char *text, size_t size)
{
    snprintf(text, size, "num_parameters=%" PRId64, ((const eg_prelu *)self)->num_parameters);
}

EG_NAMED_CLASS(eg_prelu, "PReLU", .build = prelu_build, .forward = prelu_forward, .describe = prelu_describe,
               .fields = EG_FIELDS(EG_INT(eg_prelu, num_parameters, .min = 1, .max = EG__MAX_CHANNELS, .def = 1,
                                          .help = "slopes: 1, or one a channel"),
                                   EG_OPT_FLOAT(eg_prelu, init, .def = 0.25, .help = "slope at first")));

/* ---- over a dimension ---- */

static eg_tensor *softmax_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_f_softmax(in[0], (int)EG_CAST(self, eg_softmax)->dim);
}

static eg_tensor *log_softmax_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_f_log_softmax(in[0], (int)EG_CAST(self, eg_log_softmax)->dim);
}

static void softmax_describe(const eg_module *self, char *text, size_t size)
{
    snprintf(text, size, "dim=%d", (int)((const eg_softmax *)self)->dim);
}

#define DIM_FIELDS EG_FIELDS(EG_INT(eg_softmax, dim, .min = -EG_MAX_DIMS, .max = EG_MAX_DIMS - 1, .help = "dimension"))

EG_NAMED_CLASS(eg_softmax, "Softmax", .forward = softmax_forward, .describe = softmax_describe, .fields = DIM_FIELDS);
EG_NAMED_CLASS(eg_log_softmax, "LogSoftmax", .forward = log_softmax_forward, .describe = softmax_describe,
               .fields = DIM_FIELDS);

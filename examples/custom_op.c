/*
 * An operation of one's own: swish with a learned slope (Ramachandran et al. 2017), y = x * sigmoid(beta * x), used in
 * a module, and its gradients for x and for beta checked against differences.
 *
 *     cc custom_op.c $(pkg-config --cflags --libs engraft) -lm -o custom_op && ./custom_op
 */
#include <engraft/engraft.h>
#include <engraft/sys/op.h>
#include <math.h>

/* The operation is a shape rule, forward and backward. Inputs: x of any shape, beta (1). */
static eg_status swish_infer(const eg_op_call *call, eg_spec *out)
{
    eg_tensor *x = call->in[0], *beta = call->in[1];
    EG_CHECK(eg_tensor_dtype(x) == EG_F64 && eg_tensor_dtype(beta) == EG_F64, EG_EDTYPE, "expected float64");
    EG_CHECK(eg_tensor_numel(beta) == 1, EG_ESHAPE, "beta is not a single number");
    *out = (eg_spec){.dtype = EG_F64, .shape = eg_tensor_shape(x)};
    return EG_OK;
}

/* A copy in the default memory order: t may be a view with gaps. It lives until forward or backward returns. */
static eg_tensor *plain(eg_tensor *t)
{
    eg_tensor *copy = eg_empty(eg_tensor_context(t), EG_F64, eg_tensor_shape(t), EG_LAYOUT_DEFAULT);
    return copy != NULL && eg_tensor_assign(copy, t) == EG_OK ? copy : NULL;
}

static eg_status swish_forward(eg_op_call *call)
{
    eg_tensor *input = plain(call->in[0]);
    const double *x = eg_tensor_data(input), beta = eg_tensor_item(call->in[1]);
    double *y = eg_tensor_data(call->out[0]);
    if (x == NULL)
        return EG_ENOMEM;
    for (int64_t i = 0, n = eg_tensor_numel(input); i < n; i++)
        y[i] = x[i] / (1 + exp(-beta * x[i]));
    EG_TRY(eg_op_save(call, input)); /* what backward will read, in this order */
    return eg_op_save(call, call->in[1]);
}

static eg_status swish_backward(eg_op_grad *grad)
{
    eg_tensor *to_x = plain(grad->saved[0]), *from_y = plain(grad->grad_out[0]);
    eg_tensor *to_beta = grad->needs_grad[1] ? eg_op_grad_new(grad, 1) : eg_none;
    if (to_x == NULL || from_y == NULL || to_beta == NULL)
        return EG_ENOMEM;
    double *x = eg_tensor_data(to_x), beta = eg_tensor_item(grad->saved[1]), sum = 0; /* x becomes its own gradient */
    const double *dy = eg_tensor_data(from_y);
    for (int64_t i = 0, n = eg_tensor_numel(to_x); i < n; i++) {
        double s = 1 / (1 + exp(-beta * x[i])), slope = x[i] * s * (1 - s);
        sum += dy[i] * x[i] * slope;
        x[i] = dy[i] * (s + beta * slope);
    }
    if (grad->needs_grad[1])
        *(double *)eg_tensor_data(to_beta) = sum;
    return grad->needs_grad[0] ? eg_op_grad_pass(grad, 0, to_x) : EG_OK;
}

static const eg_op swish_op = {.struct_size = sizeof(eg_op),
                               .name = "swish",
                               .infer = swish_infer,
                               .forward = swish_forward,
                               .backward = swish_backward};

/* A module that owns the slope. */
typedef struct swish {
    eg_module base;
    eg_tensor *beta;
} swish;
static eg_status swish_build(eg_module *self)
{
    eg_tensor *beta = eg_empty(self->ctx, EG_F64, EG_SHAPE(1), EG_LAYOUT_DEFAULT);
    EG_TRY(EG_PARAM((swish *)self, beta, beta));
    return eg_init_constant(beta, 1.5);
}

static eg_tensor *swish_run(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    return eg_apply(&swish_op, (eg_tensor *const[]){in[0], ((swish *)self)->beta}, n_in + 1, NULL);
}
static EG_CLASS(swish, .build = swish_build, .forward = swish_run);

static eg_tensor *call_with(void *module, eg_tensor *const *in, size_t n_in)
{
    return eg_module_call(module, in, n_in - 1); /* the last input is the module's own beta, to be varied too */
}

int main(void)
{
    eg_context *ctx = eg_context_new(.seed = 1);
    eg_module *m = eg_new(swish, ctx);
    eg_tensor *x = eg_empty(ctx, EG_F64, EG_SHAPE(2, 3, 4, 5), EG_LAYOUT_DEFAULT);
    eg_init_normal(x, 0, 1);
    eg_tensor_set_requires_grad(x, true);
    eg_tensor *inputs[] = {x, eg_module_tensor(m, "beta")};
    if (eg_gradcheck(ctx, call_with, m, inputs, 2, NULL) == EG_OK)
        printf("swish: its gradients agree with differences\n");
    eg_module_release(m);
    return eg_exit_status(ctx);
}

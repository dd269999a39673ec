/*
 * An operation of one's own: swish with a learned slope (Ramachandran et al. 2017), y = x * sigmoid(beta * x), with its
 * gradients for x and for beta. It is checked against differences, then used in a module like any built-in operation.
 *
 *     cc custom_op.c $(pkg-config --cflags --libs engraft) -lm -o custom_op && ./custom_op
 */
#include <engraft/engraft.h>
#include <engraft/sys/op.h>
#include <math.h>

/* ---- the operation: a shape rule, forward and backward. Inputs: x of any shape, beta (1) ---- */

static eg_status swish_infer(const eg_op_call *call, eg_spec *out)
{
    eg_tensor *x = call->in[0], *beta = call->in[1];
    EG_CHECK(eg_tensor_dtype(x) == EG_F64 && eg_tensor_dtype(beta) == EG_F64, EG_EDTYPE, "expected float64");
    EG_CHECK(eg_tensor_numel(beta) == 1, EG_ESHAPE, "beta has %lld elements, expected 1",
             (long long)eg_tensor_numel(beta));
    *out = (eg_spec){.dtype = EG_F64, .shape = eg_tensor_shape(x)};
    return EG_OK;
}

/* Element by element, and all three tensors have the same memory order: any order will do. */
static eg_status swish_forward(eg_op_call *call)
{
    const double *x = eg_tensor_data(call->in[0]), *beta = eg_tensor_data(call->in[1]);
    double *y = eg_tensor_data(call->out[0]);
    for (int64_t i = 0, n = eg_tensor_numel(call->in[0]); i < n; i++)
        y[i] = x[i] / (1 + exp(-*beta * x[i]));
    EG_TRY(eg_op_save(call, call->in[0])); /* what backward will read, in this order */
    return eg_op_save(call, call->in[1]);
}

static eg_status swish_backward(eg_op_grad *grad)
{
    const double *x = eg_tensor_data(grad->saved[0]), *beta = eg_tensor_data(grad->saved[1]);
    const double *dy = eg_tensor_data(grad->grad_out[0]);
    eg_tensor *to_x = grad->needs_grad[0] ? eg_op_grad_new(grad, 0) : NULL;
    eg_tensor *to_beta = grad->needs_grad[1] ? eg_op_grad_new(grad, 1) : NULL;
    if ((grad->needs_grad[0] && to_x == NULL) || (grad->needs_grad[1] && to_beta == NULL))
        return EG_ENOMEM;
    double *dx = eg_tensor_data(to_x), *dbeta = eg_tensor_data(to_beta), sum = 0; /* NULL for NULL */
    for (int64_t i = 0, n = eg_tensor_numel(grad->saved[0]); i < n; i++) {
        double s = 1 / (1 + exp(-*beta * x[i])), slope = x[i] * s * (1 - s);
        if (dx != NULL)
            dx[i] = dy[i] * (s + *beta * slope);
        sum += dy[i] * x[i] * slope;
    }
    if (dbeta != NULL)
        *dbeta = sum;
    return EG_OK;
}

static const eg_op swish_op = {.struct_size = sizeof(eg_op),
                               .name = "swish",
                               .infer = swish_infer,
                               .forward = swish_forward,
                               .backward = swish_backward};

/* ---- a module that owns the slope ---- */

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

static eg_tensor *swish_call(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    return eg_apply(&swish_op, (eg_tensor *const[]){in[0], ((swish *)self)->beta}, n_in + 1, NULL);
}

static EG_CLASS(swish, .build = swish_build, .forward = swish_call);

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

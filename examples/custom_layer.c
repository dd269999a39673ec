/*
 * A layer of one's own: squeeze and excitation (Hu et al., CVPR 2018), which scales each channel by a factor computed
 * from all of them. Its parameters have names, it prints, copies, saves and traces like a built-in layer.
 *
 *     cc custom_layer.c $(pkg-config --cflags --libs engraft) -o custom_layer && ./custom_layer
 */
#include <engraft/layers.h>

/* ---- the layer ---- */

typedef struct squeeze_excite {
    eg_module base;            /* first */
    int64_t channels, squeeze; /* fields: set by eg_new(), listed below */
    eg_module *fc1, *fc2;      /* slots: filled by build */
} squeeze_excite;

static eg_status squeeze_excite_build(eg_module *self)
{
    squeeze_excite *s = (squeeze_excite *)self;
    EG_SLOT(s, fc1, eg_conv2d(self->ctx, s->channels, s->channels / s->squeeze, 1));
    EG_SLOT(s, fc2, eg_conv2d(self->ctx, s->channels / s->squeeze, s->channels, 1));
    return eg_module_status(self); /* the first failure of a slot */
}

/* (N, C, H, W) -> the same. A failure on the way arrives at the end as NULL, so nothing is checked in between. */
static eg_tensor *squeeze_excite_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    squeeze_excite *s = (squeeze_excite *)self;
    (void)n_in;
    eg_tensor *mean = eg_f_adaptive_avg_pool2d(in[0], 1);
    eg_tensor *factor = eg_call(s->fc2, eg_f_relu(eg_call(s->fc1, mean)));
    return eg_mul(in[0], eg_f_sigmoid(factor));
}

static EG_CLASS(squeeze_excite, .build = squeeze_excite_build, .forward = squeeze_excite_forward,
                .fields = EG_FIELDS(EG_INT(squeeze_excite, channels, EG_AT_LEAST(1), .help = "channels in and out"),
                                    EG_INT(squeeze_excite, squeeze, EG_AT_LEAST(1), .def = 4,
                                           .help = "reduction inside")));

/* ---- its use ---- */

int main(void)
{
    eg_context *ctx = eg_context_new(.seed = 1);
    eg_module *net =
        eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 3, 16, 3, .padding = 1, .no_bias = true), eg_batch_norm2d(ctx, 16),
                                      eg_relu(ctx), eg_new(squeeze_excite, ctx, .channels = 16),
                                      eg_global_avg_pool2d(ctx), eg_linear(ctx, 16, 10)));
    eg_module_print(net, stdout);

    /* What it costs, from shapes alone. */
    eg_trace *trace = eg_trace_new(net, &EG_SHAPE(1, 3, 32, 32), 1);
    char *table = eg_trace_text(trace);
    if (table != NULL)
        printf("\n%s\n", table);
    eg_free(table);
    eg_trace_free(trace);

    /* One step of training: gradients reach the layer's weights. */
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *logits = eg_call(net, eg_randn(ctx, EG_SHAPE(8, 3, 32, 32)));
    eg_tensor *labels = eg_from_labels(ctx, 8, (const int64_t[]){0, 1, 2, 3, 4, 5, 6, 7});
    eg_tensor *loss = eg_f_cross_entropy(logits, labels);
    if (eg_backward(loss) == EG_OK)
        printf("loss %.3f, gradient of 3.fc1.weight: ", eg_tensor_item(loss));
    eg_tensor *gradient = eg_tensor_grad(eg_module_tensor(net, "3.fc1.weight"));
    if (gradient != NULL)
        printf("%lld numbers\n", (long long)eg_tensor_numel(gradient));
    eg_tape_end(tape);

    eg_module_release(net);
    return eg_exit_status(ctx); /* 0, or prints the first failure and gives 1 */
}

/*
 * nas/spaces/nasbench101.c - the cell and the network of NAS-Bench-101: any graph of up to seven vertices.
 *
 * The channels of a vertex depend on the graph: those that the output is made of share its channels, others are as wide
 * as the widest that takes them. So that all graphs can share weights, each layer of an open cell is as wide as it can
 * be, and takes the first channels of its weights. A fixed cell has no choices and just the weights that it needs, and
 * so the benchmark's parameters.
 */
#include "nas/spaces/nasbench101.h"

#include "engraft/zoo.h"

enum { VERTICES = EG__NB101_VERTICES, LAST = VERTICES - 1, CHANNELS = 128, CELLS = 3, STACKS = 3 };

/* The first n of a dimension. */
static eg_tensor *first(eg_tensor *t, int dim, int64_t n)
{
    return t == NULL || eg_is_none(t) || eg_tensor_size(t, dim) <= n ? t : eg_slice(t, dim, 0, n, 1);
}

/* ---- convolution, batch norm and ReLU: x, or x and a tensor of as many dimensions as there are to be channels ---- */

typedef struct conv_norm {
    eg_module base;
    int64_t in_channels, out_channels, kernel_size;
    eg_module *conv, *norm;
} conv_norm;

static eg_status conv_norm_build(eg_module *self)
{
    conv_norm *c = (conv_norm *)self;
    EG_SLOT(c, conv,
            eg_conv2d(self->ctx, c->in_channels, c->out_channels, c->kernel_size, .padding = c->kernel_size / 2,
                      .no_bias = true));
    EG_SLOT(c, norm, eg_batch_norm2d(self->ctx, c->out_channels, .relu = true));
    return eg_module_status(self);
}

/* The layers that the weights are taken from: they may have been replaced. */
static eg_status check_layer(const eg_module *self, const char *role, const eg_module *layer, const eg_class *expected)
{
    if (layer != NULL && eg_is_a(layer, expected))
        return EG_OK;
    eg_status status = eg_fail(EG_EINVAL, "'%s' is %s, expected a %s", role, layer != NULL ? layer->cls->name : "empty",
                               expected->name);
    return eg__op_fail(status, self->cls->name, eg__call_path(self->ctx));
}

static eg_tensor *conv_norm_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    conv_norm *c = (conv_norm *)self;
    int64_t n = eg_tensor_size(in[0], 1), out = n_in > 1 ? eg_tensor_size(in[1], 0) : n;
    if (n == c->in_channels && out == c->out_channels)
        return eg_call(c->norm, eg_call(c->conv, in[0]));
    if (check_layer(self, "conv", c->conv, &eg_conv2d_class) != EG_OK ||
        check_layer(self, "norm", c->norm, &eg_batch_norm2d_class) != EG_OK)
        return NULL;
    eg_conv2d *conv = EG_CAST(c->conv, eg_conv2d);
    eg_batch_norm2d *norm = EG_CAST(c->norm, eg_batch_norm2d);
    eg_tensor *weight = first(first(conv->weight, 0, out), 1, n);
    eg_tensor *x = eg_f_conv2d(in[0], weight, eg_none, .padding = c->kernel_size / 2);
    eg_batch_norm_args args = eg__batch_norm2d_args(norm, x);
    args.running_mean = first(args.running_mean, 0, out);
    args.running_var = first(args.running_var, 0, out);
    args.weight = first(args.weight, 0, out);
    args.bias = first(args.bias, 0, out);
    eg_tensor *y = eg_f_batch_norm_with(&args);
    if (y != NULL && !eg_tensor_is_shape_only(y))
        eg__batch_norm2d_count(norm);
    return y;
}

static EG_NAMED_CLASS(conv_norm, "ConvNormReLU", .build = conv_norm_build, .forward = conv_norm_forward,
                      .n_inputs = EG_ANY_INPUTS,
                      .fields = EG_FIELDS(EG_INT(conv_norm, in_channels, EG_AT_LEAST(1), .help = "channels in"),
                                          EG_INT(conv_norm, out_channels, EG_AT_LEAST(1), .help = "channels out"),
                                          EG_INT(conv_norm, kernel_size, EG_AT_LEAST(1), .help = "odd")));

/* ---- the cell ---- */

static eg_module *make_op(eg_context *ctx, size_t op, int64_t c)
{
    return op == 2 ? eg_max_pool2d(ctx, 3, .stride = 1, .padding = 1) : eg_new(conv_norm, ctx, c, c, op == 0 ? 3 : 1);
}

static eg_status add_child(eg_nasbench101_cell *cell, const char *role, size_t v, eg_module **field, eg_module *child)
{
    char name[32];
    snprintf(name, sizeof(name), "%s%zu", role, v);
    return eg_module_add_child(&cell->base, name, field, child);
}

/* Vertex v and what leads to it, every choice of it open. */
static eg_status build_open(eg_nasbench101_cell *cell, size_t v)
{
    eg_context *ctx = cell->base.ctx;
    char key[32];
    int64_t c = cell->out_channels;
    EG_TRY(
        add_child(cell, "projection", v, &cell->projections[v - 1], eg_new(conv_norm, ctx, cell->in_channels, c, 1)));
    snprintf(key, sizeof(key), "input%zu", v);
    EG_TRY(add_child(cell, "input", v, &cell->inputs[v - 1],
                     eg_input_choice(ctx, (int64_t)v, .return_mask = true, .key = key)));
    if (v == LAST)
        return EG_OK;
    snprintf(key, sizeof(key), "op%zu", v);
    eg_module *ops[EG__NB101_OPS];
    for (size_t i = 0; i < EG__NB101_OPS; i++)
        ops[i] = make_op(ctx, i, c);
    return add_child(
        cell, "op", v, &cell->ops[v - 1],
        eg_layer_choice(ctx,
                        EG_CHOICES({eg__nb101_ops[0], ops[0]}, {eg__nb101_ops[1], ops[1]}, {eg__nb101_ops[2], ops[2]}),
                        .key = key));
}

/* What is fixed, with all of its vertices. */
static eg_status read_fixed(const eg_nasbench101_cell *cell, eg__nb101_graph *out)
{
    eg_arch *arch = eg_arch_parse(cell->fixed);
    eg_status status = arch != NULL ? eg__nb101_read(arch, out) : eg_error_last()->code;
    eg_arch_free(arch);
    return status;
}

static eg_status build_fixed(eg_nasbench101_cell *cell)
{
    eg__nb101_graph g;
    int64_t channels[VERTICES];
    EG_TRY(read_fixed(cell, &g));
    EG_CHECK(eg__nb101_prune(&g), EG_EINVAL, "NAS-Bench-101 cell: no path leads from the input to the output");
    eg__nb101_channels(&g, cell->in_channels, cell->out_channels, channels);
    for (size_t v = 1; v < g.n; v++) {
        if (channels[v] == 0)
            continue;
        if (g.edge[0][v])
            EG_TRY(add_child(cell, "projection", v, &cell->projections[v - 1],
                             eg_new(conv_norm, cell->base.ctx, cell->in_channels, channels[v], 1)));
        if (v + 1 < g.n)
            EG_TRY(add_child(cell, "op", v, &cell->ops[v - 1], make_op(cell->base.ctx, g.op[v], channels[v])));
    }
    return EG_OK;
}

static eg_status cell_build(eg_module *self)
{
    eg_nasbench101_cell *cell = (eg_nasbench101_cell *)self;
    if (cell->fixed != NULL)
        return build_fixed(cell);
    for (size_t v = 1; v < VERTICES; v++)
        EG_TRY(build_open(cell, v));
    return EG_OK;
}

/* Which edges are chosen: the choices are asked for their masks, on no inputs at all. */
static eg_status read_choices(const eg_nasbench101_cell *cell, eg__nb101_graph *out)
{
    eg_tensor *nothing[VERTICES];
    float mask[VERTICES];
    *out = (eg__nb101_graph){.n = VERTICES};
    for (size_t v = 1; v < VERTICES; v++) {
        nothing[v - 1] = eg_none;
        eg_tensor *chosen = eg_module_call(cell->inputs[v - 1], nothing, v);
        EG_TRY(chosen != NULL ? eg_tensor_read(eg_tuple_get(chosen, 1), mask, v) : eg_error_last()->code);
        for (size_t w = 0; w < v; w++)
            out->edge[w][v] = mask[w] != 0;
    }
    return EG_OK;
}

/* The sum of what leads to vertex v, by the weights of its choice where it has any. */
static eg_tensor *choose(const eg_nasbench101_cell *cell, size_t v, eg_tensor *const *x)
{
    if (cell->inputs[v - 1] == NULL)
        return eg_add_n(x, v);
    eg_tensor *chosen = eg_module_call(cell->inputs[v - 1], x, v);
    return chosen != NULL ? eg_tuple_get(chosen, 0) : NULL;
}

/* The output: vertices side by side, each chosen alone, and the projected input added. */
static eg_tensor *join(const eg_nasbench101_cell *cell, size_t last, eg_tensor *const *x)
{
    eg_tensor *parts[VERTICES];
    for (size_t w = 0; w < last; w++) {
        eg_tensor *alone[VERTICES];
        for (size_t i = 0; i < last; i++)
            alone[i] = i == w ? x[w] : eg_none;
        parts[w] = choose(cell, last, alone);
    }
    parts[last] = eg_none; /* so that there is one */
    return eg_add(eg_concat(parts + 1, last, 1), parts[0]);
}

/* What leads to vertex v from vertex w. */
static eg_tensor *follow_edge(const eg_nasbench101_cell *cell, size_t w, size_t v, eg_tensor *value, int64_t channels)
{
    if (w > 0)
        return first(value, 1, channels);
    eg_tensor *like = eg_shape_only(cell->base.ctx, EG_SHAPE(channels));
    return eg_call(cell->projections[v - 1], value, like);
}

static eg_tensor *cell_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_nasbench101_cell *cell = (eg_nasbench101_cell *)self;
    eg__nb101_graph g;
    int64_t channels[VERTICES];
    if ((cell->fixed != NULL ? read_fixed(cell, &g) : read_choices(cell, &g)) != EG_OK)
        return NULL;
    if (!eg__nb101_prune(&g))
        return eg__zero_image(in[0], cell->out_channels, 1);
    eg__nb101_channels(&g, cell->in_channels, cell->out_channels, channels);
    eg_tensor *values[VERTICES] = {in[0]}, *x[VERTICES];
    for (size_t v = 1; v < g.n; v++) {
        for (size_t w = 0; w < v; w++)
            x[w] = g.edge[w][v] && channels[v] > 0 ? follow_edge(cell, w, v, values[w], channels[v]) : eg_none;
        if (v + 1 == g.n)
            values[v] = join(cell, v, x);
        else
            values[v] =
                channels[v] == 0 ? eg_none : eg__run_edge(self, cell->ops[v - 1], choose(cell, v, x), cell->drop_path);
    }
    return values[g.n - 1];
}

EG_NAMED_CLASS(eg_nasbench101_cell, "NASBench101Cell", .build = cell_build, .forward = cell_forward,
               .fields = EG_FIELDS(EG_INT(eg_nasbench101_cell, in_channels, EG_AT_LEAST(1), .help = "channels in"),
                                   EG_INT(eg_nasbench101_cell, out_channels, EG_AT_LEAST(1), .help = "channels out"),
                                   EG_TEXT(eg_nasbench101_cell, fixed,
                                           .help = "an architecture: the cell has no choices"),
                                   EG_FLOAT(eg_nasbench101_cell, drop_path, .min = 0, .max = 1,
                                            .help = "vertices dropped in training")));

/* ---- the network ---- */

static eg_status add_stacks(const eg_nasbench101 *net)
{
    eg_context *ctx = net->base.ctx;
    int64_t in = net->channels, c = net->channels;
    for (int stack = 0; stack < STACKS; stack++) {
        if (stack > 0) {
            EG_TRY(eg_append(net->body, eg_max_pool2d(ctx, 2, .ceil_mode = true)));
            c *= 2;
        }
        for (int64_t i = 0; i < net->cells; i++) {
            EG_TRY(eg_append(net->body, eg_nasbench101_cell(ctx, in, c, net->fixed, net->drop_path)));
            in = c;
        }
    }
    EG_TRY(eg_append(net->body, eg_global_avg_pool2d(ctx)));
    return eg_append(net->body, eg_linear(ctx, c, net->num_classes));
}

static eg_status network_build(eg_module *self)
{
    eg_nasbench101 *net = (eg_nasbench101 *)self;
    EG_SLOT(net, stem, eg_new(conv_norm, self->ctx, net->in_channels, net->channels, 3));
    EG_TRY(EG_SLOT(net, body, eg_sequential(self->ctx)));
    return add_stacks(net);
}

static eg_tensor *network_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    eg_nasbench101 *net = (eg_nasbench101 *)self;
    eg_tensor *like = eg_shape_only(self->ctx, EG_SHAPE(net->channels));
    return eg_call(net->body, eg_call(net->stem, in[0], like));
}

EG_NAMED_CLASS(eg_nasbench101, "NASBench101", .build = network_build, .forward = network_forward,
               .fields = EG_FIELDS(
                   EG_INT(eg_nasbench101, in_channels, EG_AT_LEAST(1), .def = 3, .help = "channels of the image"),
                   EG_INT(eg_nasbench101, num_classes, EG_AT_LEAST(1), .def = 10, .help = "classes"),
                   EG_INT(eg_nasbench101, channels, .min = 1, .max = EG__SPACE_MAX_CHANNELS, .def = CHANNELS,
                          .help = "of the first cells"),
                   EG_INT(eg_nasbench101, cells, .min = 1, .max = EG__SPACE_MAX_LAYERS, .def = CELLS,
                          .help = "in each of the three stacks"),
                   EG_TEXT(eg_nasbench101, fixed, .help = "an architecture: the network has no choices"),
                   EG_FLOAT(eg_nasbench101, drop_path, .min = 0, .max = 1, .help = "vertices dropped in training")));

static eg_module *build(eg_context *ctx, const eg_space_options *o)
{
    return eg_nasbench101(ctx, o->input.dims[0], o->classes, o->channels, o->layers, .drop_path = o->drop_path);
}

static const eg_class *const classes[] = {&eg_nasbench101_class, &eg_nasbench101_cell_class, &conv_norm_class, NULL};

const eg_space eg__nasbench101_space = {
    .name = "nasbench101",
    .help = "9 equal cells, any graph of 5 vertices of 3 kinds; those of up to 9 edges are in the benchmark",
    .source = "Ying et al., NAS-Bench-101, ICML 2019",
    .classes = classes,
    .constraint = &eg__nb101_constraint,
    .build = build};

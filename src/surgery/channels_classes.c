/*
 * Classes whose modules can be made in other sizes: how their fields follow from the shapes of their tensors.
 *
 * A class takes one line in the table, and a function of a few.
 */
#include "surgery/coupling.h"

#include <string.h>

/* The size of a dimension of the new tensor in a slot; 0 where there is none. */
static int64_t size(eg_slot *slots, size_t n, const char *name, int dim)
{
    for (size_t i = 0; i < n; i++) {
        if (slots[i].kind == EG_SLOT_CHILD || strcmp(slots[i].name, name) != 0)
            continue;
        const eg_tensor *t = *eg__slot_tensor(&slots[i]);
        return dim < t->shape.ndim ? t->shape.dims[dim] : 0;
    }
    return 0;
}

/* Sets a number that is as large as a dimension. Where there is no tensor it stays. */
static void follow(int64_t *field, eg_slot *slots, size_t n, const char *name, int dim)
{
    int64_t now = size(slots, n, name, dim);
    if (now > 0)
        *field = now;
}

/* Where whole groups go, their number follows. */
static int64_t groups_of(int64_t groups, int64_t in_channels, int64_t whole, int64_t now)
{
    return eg__goes_by_groups(groups, in_channels) ? now / (whole / groups) : groups;
}

static void fit_conv2d(eg_module *m, eg_slot *slots, size_t n)
{
    eg_conv2d *c = (eg_conv2d *)m;
    int64_t now = size(slots, n, "weight", 0);
    c->groups = groups_of(c->groups, c->in_channels, c->out_channels, now);
    c->out_channels = now;
    c->in_channels = size(slots, n, "weight", 1) * c->groups;
}

static void fit_conv1d(eg_module *m, eg_slot *slots, size_t n)
{
    eg_conv1d *c = (eg_conv1d *)m;
    int64_t now = size(slots, n, "weight", 0);
    c->groups = groups_of(c->groups, c->in_channels, c->out_channels, now);
    c->out_channels = now;
    c->in_channels = size(slots, n, "weight", 1) * c->groups;
}

static void fit_conv_transpose2d(eg_module *m, eg_slot *slots, size_t n)
{
    eg_conv_transpose2d *c = (eg_conv_transpose2d *)m;
    int64_t now = size(slots, n, "weight", 0);
    c->groups = groups_of(c->groups, c->in_channels, c->in_channels, now);
    c->in_channels = now;
    c->out_channels = size(slots, n, "weight", 1) * c->groups;
}

static void fit_linear(eg_module *m, eg_slot *slots, size_t n)
{
    follow(&((eg_linear *)m)->out_features, slots, n, "weight", 0);
    follow(&((eg_linear *)m)->in_features, slots, n, "weight", 1);
}

static void fit_embedding(eg_module *m, eg_slot *slots, size_t n)
{
    follow(&((eg_embedding *)m)->embedding_dim, slots, n, "weight", 1);
}

static void fit_attention(eg_module *m, eg_slot *slots, size_t n)
{
    eg_multihead_attention *a = (eg_multihead_attention *)m;
    if (a->head_dim < 0)
        a->head_dim = a->embed_dim / a->num_heads;
    a->num_heads = size(slots, n, "in_proj_weight", 0) / 3 / a->head_dim;
    a->embed_dim = size(slots, n, "in_proj_weight", 1);
    if (a->num_heads * a->head_dim == a->embed_dim)
        a->head_dim = -1;
}

static void fit_recurrent(eg_module *m, eg_slot *slots, size_t n)
{
    follow(&((eg_recurrent *)m)->input_size, slots, n, "weight_ih_l0", 1);
    follow(&((eg_recurrent *)m)->hidden_size, slots, n, "weight_hh_l0", 1);
}

static void fit_recurrent_cell(eg_module *m, eg_slot *slots, size_t n)
{
    follow(&((eg_recurrent_cell *)m)->input_size, slots, n, "weight_ih", 1);
    follow(&((eg_recurrent_cell *)m)->hidden_size, slots, n, "weight_hh", 1);
}

static void fit_batch_norm2d(eg_module *m, eg_slot *slots, size_t n)
{
    follow(&((eg_batch_norm2d *)m)->num_features, slots, n, "running_mean", 0);
    follow(&((eg_batch_norm2d *)m)->num_features, slots, n, "weight", 0);
}

static void fit_group_norm(eg_module *m, eg_slot *slots, size_t n)
{
    eg_group_norm *g = (eg_group_norm *)m;
    int64_t now = size(slots, n, "weight", 0);
    g->num_groups = groups_of(g->num_groups, g->num_channels, g->num_channels, now);
    g->num_channels = now;
}

static void fit_layer_norm(eg_module *m, eg_slot *slots, size_t n)
{
    eg_shape *shape = &((eg_layer_norm *)m)->normalized_shape;
    for (int d = 0; d < shape->ndim; d++)
        follow(&shape->dims[d], slots, n, "weight", d);
}

static void fit_instance_norm2d(eg_module *m, eg_slot *slots, size_t n)
{
    follow(&((eg_instance_norm2d *)m)->num_features, slots, n, "weight", 0);
}

static void fit_prelu(eg_module *m, eg_slot *slots, size_t n)
{
    follow(&((eg_prelu *)m)->num_parameters, slots, n, "weight", 0);
}

static const eg__resizable table[] = {
    {&eg_conv2d_class, fit_conv2d, "weight", 0, 1, false, false},
    {&eg_conv1d_class, fit_conv1d, "weight", 0, 1, false, false},
    {&eg_conv_transpose2d_class, fit_conv_transpose2d, "weight", 1, 0, false, false},
    {&eg_linear_class, fit_linear, "weight", 0, 1, false, false},
    {&eg_embedding_class, fit_embedding, "weight", 1, -1, false, false},
    {&eg_multihead_attention_class, fit_attention, "in_proj_weight", 0, 1, true, false},
    {&eg_lstm_class, fit_recurrent, "weight", 0, 1, false, true},
    {&eg_gru_class, fit_recurrent, "weight", 0, 1, false, true},
    {&eg_lstm_cell_class, fit_recurrent_cell, "weight", 0, 1, false, false},
    {&eg_gru_cell_class, fit_recurrent_cell, "weight", 0, 1, false, false},
    {&eg_batch_norm2d_class, fit_batch_norm2d, "", -1, -1, false, false},
    {&eg_group_norm_class, fit_group_norm, "", -1, -1, false, false},
    {&eg_layer_norm_class, fit_layer_norm, "", -1, -1, false, false},
    {&eg_instance_norm2d_class, fit_instance_norm2d, "", -1, -1, false, false},
    {&eg_prelu_class, fit_prelu, "", -1, -1, false, false},
};

const eg__resizable *eg__resizable_of(const eg_module *m)
{
    for (const eg_class *cls = m->cls; cls != NULL; cls = cls->super) {
        for (size_t i = 0; i < EG_COUNT(table); i++) {
            if (table[i].cls == cls)
                return m->open == NULL && m->n_reparams == 0 ? &table[i] : NULL;
        }
    }
    return NULL;
}

void eg__features_of(const eg_module *m, const char *name, int *makes, int *takes)
{
    const eg__resizable *kind = eg__resizable_of(m);
    bool weight = kind != NULL && *kind->weight != '\0' && strncmp(name, kind->weight, strlen(kind->weight)) == 0;
    *makes = weight ? kind->makes : -1;
    *takes = weight ? kind->takes : -1;
    if (!weight || !eg_is_a(m, &eg_conv_transpose2d_class))
        return;
    const eg_conv_transpose2d *c = (const eg_conv_transpose2d *)m;
    if (eg__goes_by_groups(c->groups,
                           c->in_channels)) /* each group has an input of its own, nothing is summed over them */
        *takes = -1;
}

/*
 * Low-rank adapters (Hu et al. 2022, "LoRA"): a frozen layer and a correction of few parameters, and their merging.
 */
#include "engraft/methods.h"
#include "surgery/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- putting adapters in ---- */

static eg_status make_sides(const eg_low_rank *o, const eg_module *m, eg_module **down, eg_module **up)
{
    if (m->cls == &eg_linear_class) {
        const eg_linear *l = (const eg_linear *)m;
        *down = eg_linear(m->ctx, l->in_features, o->rank, .no_bias = true);
        *up = eg_linear(m->ctx, o->rank, l->out_features, .no_bias = true);
    } else {
        const eg_conv2d *c = (const eg_conv2d *)m;
        *down = eg_conv2d(m->ctx, c->in_channels, o->rank, c->kernel_size, .stride = c->stride, .padding = c->padding,
                          .dilation = c->dilation, .no_bias = true);
        *up = eg_conv2d(m->ctx, o->rank, c->out_channels, 1, .no_bias = true);
    }
    if (*down == NULL || *up == NULL)
        return eg_error_last()->code;
    return eg_init_constant(eg_module_tensor(*up, "weight"), 0); /* so that nothing changes at first */
}

static eg_status freeze(eg_surgery *s, eg_module *m)
{
    for (size_t i = 0; i < m->n_slots; i++) {
        eg_tensor *t = m->slots[i].kind == EG_SLOT_PARAMETER ? *eg__slot_tensor(&m->slots[i]) : NULL;
        if (t != NULL && !eg_is_none(t))
            EG_TRY(eg_surgery_set_trained(s, t, false));
    }
    return EG_OK;
}

static eg_module *adapt(eg_module *options, eg_surgery *s, eg_module *module, size_t index)
{
    const eg_low_rank *o = (const eg_low_rank *)options;
    (void)index;
    bool plain = module->cls == &eg_linear_class ||
                 (module->cls == &eg_conv2d_class && ((const eg_conv2d *)module)->groups == 1);
    if (!plain || module->open != NULL || module->n_reparams > 0)
        return NULL;
    eg_module *down = NULL, *up = NULL;
    if (make_sides(o, module, &down, &up) != EG_OK || freeze(s, module) != EG_OK) {
        eg_module_release(down);
        eg_module_release(up);
        return NULL;
    }
    return eg_low_rank_adapter(module->ctx,
                               EG_NAMED({"base_layer", eg_module_retain(module)}, {"lora_A", down}, {"lora_B", up}),
                               .scale = o->alpha / (double)o->rank);
}

EG_METHOD(eg_low_rank, "low_rank_adapter",
          EG_FIELDS(EG_INT(eg_low_rank, rank, EG_AT_LEAST(1), .def = 8, .help = "of the correction"),
                    EG_FLOAT(eg_low_rank, alpha, EG_AT_LEAST(0), .def = 16,
                             .help = "the correction counts alpha / rank times")),
          .help = "layers are frozen and get a trained correction of low rank, zero at first",
          .source = "Hu et al. 2022 (rank 8, alpha 16 as in PEFT)", .promise = EG_PROMISE_EXACT, .replace = adapt,
          .targets = (const eg_class *const[]){&eg_conv2d_class, &eg_linear_class, NULL},
          .makes = (const eg_class *const[]){&eg_low_rank_adapter_class, NULL}, .inverse = "merge_adapter");

/* ---- merging them ---- */

/* weight + scale * B A, in the weight's shape. */
static eg_tensor *merged_weight(const eg_low_rank_adapter *a, eg_tensor *weight, eg_tensor *down, eg_tensor *up)
{
    eg_tensor *left = eg_reshape(eg_detach(up), EG_SHAPE(eg_tensor_size(up, 0), -1));
    eg_tensor *right = eg_reshape(eg_detach(down), EG_SHAPE(eg_tensor_size(down, 0), -1));
    eg_tensor *product = eg_reshape(eg_matmul(left, right), eg_tensor_shape(weight));
    return eg_tensor_copy(eg_add(eg_detach(weight), eg_affine(product, a->scale, 0)));
}

static bool has_plain_weight(const eg_module *m)
{
    bool linear = m->cls == &eg_linear_class, conv = m->cls == &eg_conv2d_class;
    bool one_group = linear || (conv && ((const eg_conv2d *)m)->groups == 1);
    return one_group && m->open == NULL && m->n_reparams == 0 && m->n_hooks == 0;
}

/* Whether the sum of the weights is all that the three layers do. */
static bool can_merge(eg_module *layer, eg_module *down, eg_module *up)
{
    eg_slot *biases[] = {eg__slot_find(down, "bias", strlen("bias")), eg__slot_find(up, "bias", strlen("bias"))};
    for (size_t i = 0; i < EG_COUNT(biases); i++) {
        if (biases[i] == NULL || biases[i]->kind == EG_SLOT_CHILD || !eg_is_none(*eg__slot_tensor(biases[i])))
            return false;
    }
    return layer->cls == down->cls && down->cls == up->cls && has_plain_weight(layer) && has_plain_weight(down) &&
           has_plain_weight(up);
}

static eg_module *merge(eg_module *options, eg_surgery *s, eg_module *module, size_t index)
{
    (void)options;
    const eg_low_rank_adapter *a = (const eg_low_rank_adapter *)module;
    eg_module *layer = eg__child_at(module, 0), *down = eg__child_at(module, 1), *up = eg__child_at(module, 2);
    if (!eg_is_a(module, &eg_low_rank_adapter_class) || layer == NULL || down == NULL || up == NULL)
        return NULL;
    if (a->merged)
        return eg_module_retain(layer);
    if (!can_merge(layer, down, up)) {
        eg_surgery_note(s, "merge_adapter leaves adapter %zu: its layers have hooks, biases or classes of their own",
                        index);
        return NULL;
    }
    eg_module *plain = eg_module_clone(layer);
    eg_tensor *weight = eg_module_tensor(layer, "weight");
    if (plain == NULL)
        return NULL;
    size_t mark = eg__scope_enter(s->ctx);
    eg_tensor *sum = merged_weight(a, weight, eg_module_tensor(down, "weight"), eg_module_tensor(up, "weight"));
    eg_status status = sum != NULL && mark != SIZE_MAX ? eg_tensor_assign(eg_module_tensor(plain, "weight"), sum)
                                                       : eg_error_last()->code;
    eg__scope_leave(s->ctx, mark, NULL);
    if (status != EG_OK) {
        eg_module_release(plain);
        return NULL;
    }
    return plain;
}

EG_METHOD(eg_merge_adapter, "merge_adapter", NULL, .help = "low-rank adapters become the plain layers that do the same",
          .source = "Hu et al. 2022, section 4.1", .promise = EG_PROMISE_EXACT, .replace = merge,
          .targets = (const eg_class *const[]){&eg_low_rank_adapter_class, NULL});

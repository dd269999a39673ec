/*
 * Linear layers with a gate (Dauphin et al. 2017; Shazeer 2020, "GLU variants improve transformer").
 */
#include "nn/internal.h"

/* act(gate(x)) * linear(x) */
static eg_tensor *forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    eg_module *linear = eg__child_at(self, 0), *gate = eg__child_at(self, 1), *act = eg__child_at(self, 2);
    if (linear == NULL || gate == NULL) {
        eg_fail(EG_EINVAL, "GatedLinearUnit: expected two or three modules: linear, gate and act");
        return NULL;
    }
    eg_tensor *g = eg_call(gate, in[0]);
    g = act != NULL ? eg_call(act, g) : eg_f_sigmoid(g);
    return eg_mul(g, eg_call(linear, in[0]));
}

EG_NAMED_CLASS(eg_gated_linear_unit, "GatedLinearUnit", .forward = forward,
               .fields = EG_FIELDS(EG_NAMED_FIELD(eg_gated_linear_unit)));

/*
 * Architecture files: any text is refused, or applied to a small model that then runs.
 */
#include "engraft/nas.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static eg_module *make_model(eg_context *ctx)
{
    return eg_sequential(
        ctx, EG_MODULES(
                 eg_layer_choice(ctx, EG_CHOICES({"a", eg_relu(ctx)}, {"b", eg_identity(ctx)}, {"c", eg_sigmoid(ctx)}),
                                 .key = "op"),
                 eg_layer_choice(ctx, EG_MODULES(eg_tanh(ctx), eg_relu(ctx)), .key = "act"),
                 eg_input_choice(ctx, .n_candidates = 1, .key = "in")));
}

static void apply(eg_context *ctx, const eg_arch *arch)
{
    eg_module *model = make_model(ctx);
    eg_fixed_options options = {.struct_size = sizeof options, .not_strict = true};
    if (eg_fixed_architecture(model, arch, &options) == EG_OK) {
        eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
        eg_call(model, eg_ones(ctx, EG_SHAPE(1, 2))); /* may fail: nothing chosen, where a layer needs an input */
        eg_tape_end(tape);
        eg_module *copy = eg_module_clone(model);
        if (copy == NULL || eg_fixed_architecture(copy, arch, &options) != EG_OK)
            abort(); /* what was decided can be decided again */
        eg_module_release(copy);
    }
    eg_module_release(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    eg_arch *arch = eg_arch_parse(text);
    free(text);
    if (arch != NULL) {
        eg_context *ctx = eg_context_new(.threads = 1, .backend = "ref");
        apply(ctx, arch);
        eg_context_free(ctx);
    }
    eg_arch_free(arch);
    eg_error_clear();
    return 0;
}

/*
 * Parameters of a trial: any text is refused, leaving the decisions as they were, or becomes decisions that export and
 * can be applied.
 */
#include "engraft/nas.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static eg_module *make_model(eg_context *ctx)
{
    return eg_sequential(
        ctx, EG_MODULES(eg_layer_choice(ctx, EG_CHOICES({"a", eg_relu(ctx)}, {"b", eg_identity(ctx)}), .key = "op"),
                        eg_layer_choice(ctx, EG_MODULES(eg_tanh(ctx), eg_relu(ctx)), .key = "act"),
                        eg_input_choice(ctx, .n_candidates = 3, .n_chosen = EG_N(2), .key = "two"),
                        eg_input_choice(ctx, .choose_from = EG_KEYS("op", "act"), .key = "any")));
}

static char *export_text(eg_mutator *mutator)
{
    eg_arch *arch = eg_mutator_export(mutator);
    char *text = eg_arch_text(arch);
    if (text == NULL || eg_mutator_set_arch(mutator, arch) != EG_OK)
        abort(); /* decisions that are in force can always be written, and read again */
    eg_arch_free(arch);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    eg_context *ctx = eg_context_new(.threads = 1, .backend = "ref");
    eg_module *model = make_model(ctx);
    eg_mutator *mutator = eg_classic_mutator_new(model);
    if (mutator == NULL)
        abort();
    char *before = export_text(mutator);
    eg_status status = eg_classic_mutator_set(mutator, text);
    char *after = export_text(mutator);
    if (status != EG_OK && strcmp(before, after) != 0)
        abort();
    if (status == EG_OK &&
        (eg_classic_mutator_set(mutator, text) != EG_OK || eg_report_final_result(mutator, 1) != EG_OK))
        abort();
    eg_free(before);
    eg_free(after);
    eg_mutator_detach(mutator);
    eg_module_release(model);
    eg_context_free(ctx);
    eg_error_clear();
    free(text);
    return 0;
}

/*
 * Models and spaces as files: any text is refused, or gives a model that is the same after another way there and back,
 * and whose walks end. The context's limit of memory stands between a small text and a large model.
 */
#include "engraft/nas.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Writing may be refused (a class has no room for what the model holds); what is written must read back, equal. */
static void write_and_read(eg_context *ctx, eg_module *m)
{
    char *json = eg_module_json(m), *expanded = eg_module_json_expanded(m);
    eg_module *again = json != NULL ? eg_module_from_json(ctx, json) : NULL;
    char *json2 = again != NULL ? eg_module_json(again) : NULL;
    bool no_memory = eg_error_last()->code == EG_ENOMEM;
    if (json != NULL && !no_memory && (json2 == NULL || strcmp(json, json2) != 0))
        abort();
    eg_module_release(again);
    eg_free(json);
    eg_free(json2);
    eg_free(expanded);
    eg_free(eg_module_text(m));
    if (eg_module_n_parameters(m) < 0 && eg_error_last()->code != EG_ENOMEM)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    eg_context *ctx = eg_context_new(.threads = 1, .backend = "ref", .max_memory = (size_t)1 << 22);
    eg_error_clear();
    eg_module *m = eg_space_from_json(ctx, text, NULL);
    if (m == NULL && eg_nas_register(ctx) == EG_OK) {
        eg_error_clear();
        m = eg_module_from_json(ctx, text);
    }
    eg_error_clear();
    if (m != NULL)
        write_and_read(ctx, m);
    eg_module_release(m);
    eg_context_free(ctx);
    free(text);
    eg_error_clear();
    return 0;
}

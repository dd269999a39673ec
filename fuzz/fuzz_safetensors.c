/*
 * fuzz/fuzz_safetensors.c - any bytes as a safetensors file. What loads must be saved and loaded again alike.
 */
#include "engraft/io.h"
#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64], copy[] = "/tmp/engraft-fuzz-copy-XXXXXX";
    int descriptor;
    eg_context *ctx = eg_context_new(.seed = 1, .threads = 1, .backend = "ref");
    if (!ctx)
        abort();
    eg_error_clear();
    eg_state *state = eg_safetensors_load(ctx, scratch_file(data, size, path, &descriptor), NULL);
    close(descriptor);
    if (!state && eg_error_last()->code == EG_OK)
        abort(); /* a failure without a reason */
    if (state) {
        descriptor = mkstemp(copy);
        if (descriptor < 0 || close(descriptor) != 0 || eg_safetensors_save(state, copy, NULL) != EG_OK)
            abort();
        eg_state *again = eg_safetensors_load(ctx, copy, NULL);
        if (!again || eg_state_size(again) != eg_state_size(state))
            abort();
        eg_state_free(again);
        unlink(copy);
    }
    eg_state_free(state);
    eg_context_free(ctx);
    return 0;
}

/*
 * io/module.c - the state of a model, to and from a file.
 */
#include "base/internal.h"
#include "engraft/io.h"

eg_status eg_module_save(eg_module *m, const char *path)
{
    if (!m || !path) {
        eg__null(__func__, m ? "path" : "module");
        return eg_error_last()->code;
    }
    eg_state *state = eg_state_new();
    if (!state)
        return EG_ENOMEM;
    eg_status status = eg_module_state(m, NULL, state);
    if (status == EG_OK)
        status = eg_safetensors_save(state, path, NULL);
    eg_state_free(state);
    return status;
}

eg_status eg_module_load(eg_module *m, const char *path)
{
    if (!m || !path) {
        eg__null(__func__, m ? "path" : "module");
        return eg_error_last()->code;
    }
    eg_state *state = eg_safetensors_load(m->ctx, path, NULL);
    if (!state)
        return eg_error_last()->code;
    eg_status status = eg_module_load_state(m, NULL, state, true);
    eg_state_free(state);
    return status == EG_OK ? EG_OK : eg__fail_prefix(status, "'%s'", path);
}

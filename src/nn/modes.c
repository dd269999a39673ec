/*
 * Training flags of a model's modules, kept while the model runs in another mode. Each module has its own: a user may
 * have put a part of a model into evaluation mode.
 */
#include "nn/internal.h"

#include <stdlib.h>

static eg_status note(void *payload, const char *path, eg_module *m)
{
    eg__modes *modes = payload;
    (void)path;
    EG_TRY(eg__grow(&modes->items, &modes->capacity, modes->n + 1, sizeof(*modes->items)));
    modes->items[modes->n++] = (struct eg__mode){.module = eg_module_retain(m), .training = m->training};
    return EG_OK;
}

eg_status eg__modes_save(eg__modes *modes, eg_module *m)
{
    *modes = (eg__modes){0};
    return eg_module_walk(m, note, modes);
}

void eg__modes_restore(eg__modes *modes)
{
    for (size_t i = 0; i < modes->n; i++) {
        modes->items[i].module->training = modes->items[i].training;
        eg_module_release(modes->items[i].module);
    }
    free(modes->items);
    *modes = (eg__modes){0};
}

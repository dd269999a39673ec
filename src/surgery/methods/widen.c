/*
 * More channels that compute the same (Chen et al. 2016, "Net2Net"): units are doubled, and what reads them divides.
 */
#include "engraft/methods.h"
#include "surgery/coupling.h"

typedef struct look {
    const eg_surgery *s;
    eg_coupling *c;
} look;

static eg_status look_coupling(void *payload, eg_module *root)
{
    look *l = payload;
    l->c = eg_coupling_new(root, (eg_shapes){l->s->inputs, l->s->n_inputs});
    return l->c != NULL ? EG_OK : eg_error_last()->code;
}

/* Whether a group can have more units, and a module at these paths makes its features. */
static eg_status is_meant(const eg_coupled_group *g, const char *at, bool *meant)
{
    bool can = g->fixed == NULL && g->mixed == NULL && !g->single;
    *meant = can && at == NULL;
    for (size_t i = 0; i < g->n_parts && can && !*meant; i++) {
        if (g->parts[i].makes)
            EG_TRY(eg__part_is_at(&g->parts[i], at, meant));
    }
    return EG_OK;
}

static eg_status plan(eg_module *options, eg_surgery *s, const char *at)
{
    const eg_widen *o = (const eg_widen *)options;
    look l = {.s = s};
    size_t n = 0;
    eg_status status = eg_surgery_look(s, look_coupling, &l);
    for (size_t i = 0; i < eg_coupling_size(l.c) && status == EG_OK; i++) {
        const eg_coupled_group *g = eg_coupling_at(l.c, i);
        bool meant = false;
        status = is_meant(g, at, &meant);
        size_t doubled = meant ? (size_t)(o->ratio * (double)g->n_units) : 0;
        for (size_t u = 0; u < doubled && status == EG_OK; u++, n++)
            status = eg_coupling_set(l.c, i, u, 2);
    }
    if (status == EG_OK)
        status = n > 0 ? eg_surgery_resize(s, l.c) : eg_surgery_note(s, "widen found no group of channels to widen");
    eg_coupling_free(l.c);
    return status;
}

EG_METHOD(eg_widen, "widen",
          EG_FIELDS(EG_FLOAT(eg_widen, ratio, .max = 1, .def = 0.5, .help = "share of the channels that is doubled")),
          .help = "channels are doubled so that the model computes the same", .source = "Chen et al. 2016 (Net2Wider)",
          .promise = EG_PROMISE_EXACT, .runs = true, .plan = plan, .inverse = "prune_channels");

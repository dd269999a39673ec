/*
 * Another number of classes: the last linear layer begins anew.
 */
#include "engraft/methods.h"
#include "surgery/internal.h"

typedef struct last {
    const eg_surgery *s;
    const char *at;
    eg_module *linear;
} last;

static eg_status note_linear(void *payload, const char *path, eg_module *m)
{
    last *l = payload;
    if (m->cls == &eg_linear_class && eg__path_matches(l->at, path))
        l->linear = m;
    return EG_OK;
}

/* The last that runs, where that is known; else the last in the order of the model. */
static eg_status find_last(void *payload, eg_module *root)
{
    last *l = payload;
    if (l->s->n_inputs == 0)
        return eg_module_walk(root, note_linear, l);
    eg_trace *trace = eg_trace_new(root, l->s->inputs, l->s->n_inputs);
    eg_status status = trace != NULL ? EG_OK : eg_error_last()->code;
    for (size_t i = 0; status == EG_OK && i < eg_trace_size(trace); i++) {
        const char *path = eg_trace_at(trace, i)->path;
        eg_module *m = eg__module_below(root, path);
        status = m != NULL ? note_linear(l, path, m) : EG_OK;
    }
    eg_trace_free(trace);
    return status == EG_OK && l->linear == NULL ? eg_module_walk(root, note_linear, l) : status;
}

static eg_status plan(eg_module *options, eg_surgery *s, const char *at)
{
    const eg_new_head *o = (const eg_new_head *)options;
    last found = {.s = s, .at = at};
    EG_TRY(eg_surgery_look(s, find_last, &found));
    EG_CHECK(found.linear != NULL, EG_ENOENT, "there is no Linear%s%s", at != NULL ? " at " : "", at != NULL ? at : "");
    const eg_linear *l = (const eg_linear *)found.linear;
    eg_module *head = eg_linear(s->ctx, l->in_features, o->classes, .no_bias = l->no_bias);
    return head != NULL ? eg_surgery_put(s, found.linear, head, "new_head") : eg_error_last()->code;
}

EG_METHOD(eg_new_head, "new_head",
          EG_FIELDS(EG_INT(eg_new_head, classes, EG_AT_LEAST(1), .help = "outputs of the new layer")),
          .help = "the linear layer that runs last (or the one at the path) gets other outputs and new weights",
          .source = "Yosinski et al. 2014", .promise = EG_PROMISE_TRAINED, .plan = plan);

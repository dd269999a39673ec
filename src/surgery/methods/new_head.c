/*
 * Another number of classes: the last linear layer begins anew.
 */
#include "engraft/methods.h"
#include "surgery/internal.h"

typedef struct last {
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

static eg_status find_last(void *payload, eg_module *root)
{
    return eg_module_walk(root, note_linear, payload);
}

static eg_status plan(eg_module *options, eg_surgery *s, const char *at)
{
    const eg_new_head *o = (const eg_new_head *)options;
    last found = {.at = at};
    EG_TRY(eg_surgery_look(s, find_last, &found));
    EG_CHECK(found.linear != NULL, EG_ENOENT, "there is no Linear%s%s", at != NULL ? " at " : "", at != NULL ? at : "");
    const eg_linear *l = (const eg_linear *)found.linear;
    eg_module *head = eg_linear(s->ctx, l->in_features, o->classes, .no_bias = l->no_bias);
    return head != NULL ? eg_surgery_put(s, found.linear, head, "new_head") : eg_error_last()->code;
}

EG_METHOD(eg_new_head, "new_head",
          EG_FIELDS(EG_INT(eg_new_head, classes, EG_AT_LEAST(1), .help = "outputs of the new layer")),
          .help = "the last linear layer (or the one at the path) gets other outputs and new weights",
          .source = "Yosinski et al. 2014", .promise = EG_PROMISE_TRAINED, .plan = plan);

/*
 * Layers of Sequentials dropped, duplicated, and cleaned of those that do nothing. Each makes a new Sequential of the
 * very layers, since slots of the old one must not move.
 */
#include "engraft/methods.h"
#include "surgery/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Of layers alone: what else somebody has put into one would be lost. */
static bool is_plain_sequence(const eg_module *m)
{
    bool plain = m->cls == &eg_sequential_class && m->open == NULL;
    for (size_t i = 0; i < m->n_slots && plain; i++)
        plain = m->slots[i].kind == EG_SLOT_CHILD;
    return plain;
}

/* A layer and its name, NULL for the next free number. */
typedef struct layer {
    eg_module *module;
    const char *name;
} layer;

/* Names stay, so that weights keep theirs; numbers count anew, as in PyTorch. */
static eg_status add_layer(eg_module *sequence, const layer *l)
{
    bool is_number = l->name == NULL || strspn(l->name, "0123456789") == strlen(l->name);
    eg_module *child = eg_module_retain(l->module);
    return is_number ? eg_append(sequence, child) : eg_module_add_child(sequence, l->name, NULL, child);
}

/* A Sequential of these layers, which are retained here. NULL on failure. */
static eg_module *make_sequence(eg_context *ctx, const layer *layers, size_t n)
{
    eg_module *m = eg_sequential(ctx);
    for (size_t i = 0; i < n && m != NULL; i++) {
        if (add_layer(m, &layers[i]) == EG_OK)
            continue;
        eg_module_release(m);
        m = NULL;
    }
    return m;
}

/* Room for the layers of a Sequential, up to twice as many; *n receives how many it has. For free(). */
static layer *list_layers(const eg_module *sequence, size_t *n)
{
    layer *layers = eg__calloc(2 * sequence->n_slots + 1, sizeof(layer));
    *n = 0;
    for (size_t i = 0, slot; layers != NULL && (slot = eg__child_slot(sequence, i)) < sequence->n_slots; i++) {
        eg_module *m = *eg__slot_child(&sequence->slots[slot]);
        if (m != NULL)
            layers[(*n)++] = (layer){m, sequence->slots[slot].name};
    }
    return layers;
}

/* ---- drop_layers and duplicate_layers ---- */

static eg_status check_range(int64_t first, int64_t count, size_t n, const char *path)
{
    EG_CHECK(first <= (int64_t)n && count <= (int64_t)n - first, EG_EINVAL,
             "'%s' has %zu layers, expected enough for %" PRId64 " from number %" PRId64 " on", path, n, count, first);
    return EG_OK;
}

typedef struct edit {
    eg_surgery *s;
    const eg_layer_range *range;
    bool duplicate;
    const char *at;
    eg_module *found;
    char *path;
    size_t n_found;
} edit;

static eg_status find_sequence(void *payload, const char *path, eg_module *m)
{
    edit *e = payload;
    if (!is_plain_sequence(m) || !eg__path_matches(e->at, path) || (e->at == NULL && *path != '\0'))
        return EG_OK;
    if (e->n_found++ > 0)
        return EG_OK;
    e->found = m;
    e->path = eg__strdup(path);
    return e->path != NULL ? EG_OK : EG_ENOMEM;
}

/* Copies have weights of their own. */
static eg_status copy_layers(layer *layers, size_t *n, size_t first, size_t count)
{
    memmove(layers + first + 2 * count, layers + first + count, (*n - first - count) * sizeof(layer));
    for (size_t i = 0; i < count; i++) {
        layers[first + count + i] = (layer){.module = eg_module_clone(layers[first + i].module)};
        if (layers[first + count + i].module == NULL) {
            while (i-- > 0)
                eg_module_release(layers[first + count + i].module);
            return eg_error_last()->code;
        }
    }
    *n += count;
    return EG_OK;
}

static eg_status change_range(const edit *e)
{
    size_t n, first = (size_t)e->range->first, count = (size_t)e->range->count;
    layer *layers = list_layers(e->found, &n);
    eg_status status = layers != NULL ? check_range(e->range->first, e->range->count, n, e->path) : EG_ENOMEM;
    if (status == EG_OK && e->duplicate) {
        status = copy_layers(layers, &n, first, count);
    } else if (status == EG_OK) {
        memmove(layers + first, layers + first + count, (n - first - count) * sizeof(layer));
        n -= count;
    }
    eg_module *made = status == EG_OK ? make_sequence(e->s->ctx, layers, n) : NULL;
    for (size_t i = 0; status == EG_OK && e->duplicate && i < count; i++)
        eg_module_release(layers[first + count + i].module);
    if (status == EG_OK)
        status = made != NULL ? eg_surgery_put(e->s, e->found, made, e->duplicate ? "duplicate_layers" : "drop_layers")
                              : eg_error_last()->code;
    free(layers);
    return status;
}

/* While the plan is in place: its layers are those that count. */
static eg_status look_for_sequence(void *payload, eg_module *root)
{
    edit *e = payload;
    EG_TRY(eg_module_walk(root, find_sequence, e));
    EG_CHECK(e->n_found == 1, EG_EINVAL, "%zu Sequentials at '%s', expected the path of one", e->n_found,
             e->at != NULL ? e->at : "");
    return change_range(e);
}

static eg_status plan_range(eg_module *options, eg_surgery *s, const char *at, bool duplicate)
{
    edit e = {.s = s, .range = (const eg_layer_range *)options, .duplicate = duplicate, .at = at};
    eg_status status = eg_surgery_look(s, look_for_sequence, &e);
    free(e.path);
    return status;
}

static eg_status plan_drop(eg_module *options, eg_surgery *s, const char *at)
{
    return plan_range(options, s, at, false);
}

static eg_status plan_duplicate(eg_module *options, eg_surgery *s, const char *at)
{
    return plan_range(options, s, at, true);
}

#define RANGE_FIELDS                                                                                                   \
    EG_FIELDS(EG_INT(eg_layer_range, first, EG_AT_LEAST(0), .help = "number of the first of them"),                    \
              EG_INT(eg_layer_range, count, EG_AT_LEAST(1), .def = 1, .help = "how many"))

EG_METHOD(eg_drop_layers, "drop_layers", RANGE_FIELDS, .help = "layers are taken out of the Sequential at the path",
          .source = "Fan et al. 2020 (LayerDrop)", .promise = EG_PROMISE_TRAINED, .plan = plan_drop,
          .inverse = "duplicate_layers");
EG_METHOD(eg_duplicate_layers, "duplicate_layers", RANGE_FIELDS,
          .help = "layers of the Sequential at the path stand there twice, with weights of their own",
          .source = "Kim et al. 2023 (depth up-scaling)", .promise = EG_PROMISE_TRAINED, .plan = plan_duplicate,
          .inverse = "drop_layers");

/* ---- identity_elimination ---- */

/* Whether it gives back what it is given, in every mode. */
static bool is_idle(const eg_module *m)
{
    bool is_dropout = m->cls == &eg_dropout_class || m->cls == &eg_drop_path_class;
    bool idle = m->cls == &eg_identity_class || (is_dropout && ((const eg_dropout *)m)->p == 0);
    return idle && m->n_hooks == 0 && m->open == NULL;
}

static eg_module *without_idle(eg_module *options, eg_surgery *s, eg_module *module, size_t index)
{
    (void)options;
    (void)s;
    (void)index;
    if (!is_plain_sequence(module))
        return NULL;
    size_t n, kept = 0;
    layer *layers = list_layers(module, &n);
    for (size_t i = 0; layers != NULL && i < n; i++) {
        if (!is_idle(layers[i].module))
            layers[kept++] = layers[i];
    }
    eg_module *made = layers != NULL && kept < n ? make_sequence(module->ctx, layers, kept) : NULL;
    free(layers);
    return made;
}

EG_METHOD(eg_identity_elimination, "identity_elimination", NULL,
          .help = "Sequentials lose the layers that do nothing: identities, and dropout with p = 0",
          .source = "paths of later layers change: see the key renames of the diff", .promise = EG_PROMISE_EXACT,
          .replace = without_idle, .recurses = true, .targets = (const eg_class *const[]){&eg_sequential_class, NULL});

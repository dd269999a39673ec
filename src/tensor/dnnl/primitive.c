/*
 * tensor/dnnl/primitive.c - the context's oneDNN state: engine, primitives, packed weights.
 */
#include "tensor/dnnl/primitive.h"

#include <omp.h>
#include <string.h>

/* A supernet has operations times shapes times three directions of them. */
#define MAX_PRIMITIVES 4096
/* Packed weights of parameters that are gone are only found out by age. */
#define MAX_PACKS 4096
#define MAX_PACK_BYTES ((size_t)256 << 20)

/* Layouts that are not oneDNN's. */
#define ROWS_LAYOUT UINT64_MAX
#define TURNED_ROWS_LAYOUT (UINT64_MAX - 1)

/* A weight (by its storage and where in it) in one layout. */
typedef struct pack_key {
    uint64_t storage;
    int64_t offset;
    uint64_t layout;
    int64_t dims[4]; /* of the weight where the layout is not oneDNN's, which has them itself; else 0 */
} pack_key;

typedef struct pack {
    eg__lru_node node;
    pack_key key;
    uint64_t version;
    void *data;
    size_t bytes;
} pack;

eg_status eg__dnnl_check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return EG_OK;
    if (status == dnnl_out_of_memory)
        return eg_fail(EG_ENOMEM, "oneDNN: %s: out of memory", what);
    return eg_fail(EG_EINTERNAL, "oneDNN: %s failed with status %d", what, (int)status);
}

static void primitive_free(eg__dnnl_primitive *p)
{
    for (int i = 0; i < p->n_args; i++)
        dnnl_memory_destroy(p->args[i].memory);
    dnnl_memory_destroy(p->reorder_from);
    dnnl_memory_destroy(p->reorder_to);
    dnnl_primitive_destroy(p->reorder);
    dnnl_primitive_destroy(p->primitive);
    eg_free(p);
}

static void primitive_destroy(void *payload, eg__lru_node *entry)
{
    (void)payload;
    primitive_free((eg__dnnl_primitive *)entry);
}

static void pack_destroy(void *payload, eg__lru_node *entry)
{
    eg__dnnl_state *state = payload;
    pack *k = (pack *)entry;
    state->pack_bytes -= k->bytes;
    eg__pool_give(state->ctx, k->data, k->bytes);
    eg_free(k);
}

static void state_destroy(eg_context *ctx, void *memory)
{
    (void)ctx;
    eg__dnnl_state *state = memory;
    eg__lru_free(&state->primitives);
    eg__lru_free(&state->packs);
    for (size_t i = 0; i < state->n_layouts; i++)
        dnnl_memory_desc_destroy(state->layouts[i]);
    eg_free(state->layouts);
    dnnl_primitive_attr_destroy(state->attr);
    dnnl_primitive_attr_destroy(state->adding);
    dnnl_stream_destroy(state->stream);
    dnnl_engine_destroy(state->engine);
}

/* The scratchpad is the caller's; `sum`: the result is added to what is there. */
static eg_status attr_make(dnnl_primitive_attr_t *attr, bool sum)
{
    EG_TRY(eg__dnnl_check(dnnl_primitive_attr_create(attr), "making attributes"));
    EG_TRY(eg__dnnl_check(dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user),
                          "choosing the scratchpad"));
    if (!sum)
        return EG_OK;
    dnnl_post_ops_t ops;
    EG_TRY(eg__dnnl_check(dnnl_post_ops_create(&ops), "making attributes"));
    eg_status status = eg__dnnl_check(eg__dnnl_append_sum(ops), "choosing a sum");
    if (status == EG_OK)
        status = eg__dnnl_check(dnnl_primitive_attr_set_post_ops(*attr, ops), "choosing a sum");
    dnnl_post_ops_destroy(ops);
    return status;
}

static eg_status state_make(eg_context *ctx, eg__dnnl_state *state)
{
    state->ctx = ctx;
    state->primitives = (eg__lru){.capacity = MAX_PRIMITIVES,
                                  .key_offset = offsetof(eg__dnnl_primitive, key),
                                  .key_size = sizeof(eg__dnnl_key),
                                  .destroy = primitive_destroy};
    state->packs = (eg__lru){.capacity = MAX_PACKS,
                             .key_offset = offsetof(pack, key),
                             .key_size = sizeof(pack_key),
                             .payload = state,
                             .destroy = pack_destroy};
    if (!state->engine)
        EG_TRY(eg__dnnl_check(dnnl_engine_create(&state->engine, dnnl_cpu, 0), "making an engine"));
    if (!state->attr)
        EG_TRY(attr_make(&state->attr, false));
    if (!state->adding)
        EG_TRY(attr_make(&state->adding, true));
    /* Last: a state with a stream is complete. */
    return eg__dnnl_check(dnnl_stream_create(&state->stream, state->engine, dnnl_stream_default_flags),
                          "making a stream");
}

static eg__dnnl_state *state_of(eg_context *ctx)
{
    eg__dnnl_state *state = eg__context_slot(ctx, EG__SLOT_DNNL, sizeof *state, state_destroy);
    if (state && !state->stream && state_make(ctx, state) != EG_OK)
        return NULL;
    return state;
}

void eg__dnnl_use_threads(const eg_context *ctx)
{
    if (omp_get_max_threads() != eg_context_threads(ctx))
        omp_set_num_threads(eg_context_threads(ctx));
}

eg_status eg__dnnl_get(eg_context *ctx, const eg__dnnl_key *key, eg__dnnl_build build, eg__dnnl_primitive **out)
{
    eg__dnnl_state *state = state_of(ctx);
    if (!state)
        return EG_ENOMEM;
    eg__dnnl_use_threads(ctx);
    *out = (eg__dnnl_primitive *)eg__lru_find(&state->primitives, key);
    if (*out) {
        eg__context_stats(ctx)->primitive_hits++;
        return EG_OK;
    }
    eg__context_stats(ctx)->primitive_misses++;
    eg__dnnl_primitive *p = eg__calloc(1, sizeof *p);
    if (!p)
        return EG_ENOMEM;
    p->key = *key;
    eg_status status = build(state, p);
    if (status == EG_OK)
        status = eg__lru_add(&state->primitives, &p->node);
    if (status != EG_OK) {
        primitive_free(p);
        return status;
    }
    *out = p;
    return EG_OK;
}

eg_status eg__dnnl_set(eg__dnnl_primitive *p, int arg, void *data)
{
    for (int i = 0; i < p->n_args; i++)
        if (p->args[i].arg == arg)
            return eg__dnnl_check(dnnl_memory_set_data_handle(p->args[i].memory, data), "setting an argument");
    return EG_OK; /* an argument of no bytes */
}

eg_status eg__dnnl_run(eg_context *ctx, eg__dnnl_primitive *p)
{
    const eg__dnnl_state *state = eg__context_peek(ctx, EG__SLOT_DNNL); /* made with p */
    void *scratch = NULL;
    if (p->scratch_bytes > 0) {
        scratch = eg__pool_take(ctx, p->scratch_bytes);
        if (!scratch)
            return EG_ENOMEM;
    }
    eg_status status = eg__dnnl_set(p, DNNL_ARG_SCRATCHPAD, scratch);
    if (status == EG_OK && !eg__is_dry(ctx))
        status = eg__dnnl_check(dnnl_primitive_execute(p->primitive, state->stream, p->n_args, p->args), "a primitive");
    if (scratch)
        eg__pool_give(ctx, scratch, p->scratch_bytes);
    return status;
}

/* ---- packed weights ---- */

eg_status eg__dnnl_reorder(eg_context *ctx, eg__dnnl_primitive *p, void *from, void *to)
{
    if (eg__is_dry(ctx))
        return EG_OK;
    const eg__dnnl_state *state = eg__context_peek(ctx, EG__SLOT_DNNL); /* made with p */
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, p->reorder_from}, {DNNL_ARG_TO, p->reorder_to}};
    EG_TRY(eg__dnnl_check(dnnl_memory_set_data_handle(p->reorder_from, from), "setting an argument"));
    EG_TRY(eg__dnnl_check(dnnl_memory_set_data_handle(p->reorder_to, to), "setting an argument"));
    return eg__dnnl_check(dnnl_primitive_execute(p->reorder, state->stream, 2, args), "a reorder");
}

static pack *pack_new(eg__dnnl_state *state, const pack_key *key, uint64_t version, size_t bytes)
{
    while (state->packs.n > 0 && state->pack_bytes + bytes > MAX_PACK_BYTES)
        eg__lru_drop(&state->packs);
    pack *k = eg__calloc(1, sizeof *k);
    if (!k)
        return NULL;
    bool before = eg__pool_lasting(state->ctx, true);
    *k = (pack){.key = *key, .version = version - 1, .bytes = bytes, .data = eg__pool_take(state->ctx, bytes)};
    eg__pool_lasting(state->ctx, before);
    if (k->data && eg__lru_add(&state->packs, &k->node) == EG_OK) {
        state->pack_bytes += bytes;
        return k;
    }
    if (k->data)
        eg__pool_give(state->ctx, k->data, bytes);
    eg_free(k);
    return NULL;
}

void eg__dnnl_forget_packs(eg_context *ctx)
{
    eg__dnnl_state *state = eg__context_peek(ctx, EG__SLOT_DNNL);
    while (state && state->packs.n > 0)
        eg__lru_drop(&state->packs);
}

/* The kept copy, NULL without memory. One of another version is no longer valid, or not yet. */
static pack *pack_of(eg__dnnl_state *state, const pack_key *key, uint64_t version, size_t bytes)
{
    pack *k = (pack *)eg__lru_find(&state->packs, key);
    if (!k)
        k = pack_new(state, key, version, bytes);
    if (k && k->version != version)
        k->version = version - 1; /* should the packing fail */
    return k;
}

static eg_status pack_kept(eg__dnnl_state *state, eg__dnnl_primitive *p, const eg_tensor *w, void **data)
{
    pack_key key = {.storage = w->storage->id, .offset = w->offset, .layout = p->weight_layout};
    pack *k = pack_of(state, &key, w->storage->version, p->weight_bytes);
    if (!k)
        return EG_ENOMEM;
    if (k->version != w->storage->version)
        EG_TRY(eg__dnnl_reorder(w->ctx, p, eg__f32(w), k->data));
    k->version = w->storage->version;
    *data = k->data;
    return EG_OK;
}

eg_status eg__dnnl_pack(eg__dnnl_primitive *p, const eg_tensor *w, bool keep, void **data)
{
    *data = NULL;
    if (!p->reorder) {
        *data = eg__f32(w);
        return EG_OK;
    }
    if (keep)
        return pack_kept(eg__context_peek(w->ctx, EG__SLOT_DNNL), p, w, data);
    *data = eg__pool_take(w->ctx, p->weight_bytes);
    return *data ? eg__dnnl_reorder(w->ctx, p, eg__f32(w), *data) : EG_ENOMEM;
}

void eg__dnnl_unpack(eg__dnnl_primitive *p, const eg_tensor *w, bool keep, void *data)
{
    if (p->reorder && !keep && data)
        eg__pool_give(w->ctx, data, p->weight_bytes);
}

static eg_status rows_kept(const eg_tensor *w, bool turned, size_t bytes, float **packed)
{
    eg__dnnl_state *state = state_of(w->ctx);
    if (!state)
        return EG_ENOMEM;
    pack_key key = {
        .storage = w->storage->id, .offset = w->offset, .layout = turned ? TURNED_ROWS_LAYOUT : ROWS_LAYOUT};
    memcpy(key.dims, w->shape.dims, sizeof key.dims);
    pack *k = pack_of(state, &key, w->storage->version, bytes);
    if (!k)
        return EG_ENOMEM;
    if (k->version != w->storage->version)
        eg__cpu_conv_rows_pack(w, turned, k->data);
    k->version = w->storage->version;
    *packed = k->data;
    return EG_OK;
}

static size_t rows_bytes(const eg_tensor *w, bool turned)
{
    return (size_t)eg__cpu_conv_rows_packed(w, turned) * sizeof(float);
}

eg_status eg__dnnl_pack_rows(const eg_tensor *w, bool turned, bool keep, float **packed)
{
    size_t bytes = rows_bytes(w, turned);
    if (keep)
        return rows_kept(w, turned, bytes, packed);
    *packed = eg__pool_take(w->ctx, bytes);
    if (!*packed)
        return EG_ENOMEM;
    eg__cpu_conv_rows_pack(w, turned, *packed);
    return EG_OK;
}

void eg__dnnl_unpack_rows(const eg_tensor *w, bool turned, bool keep, float *packed)
{
    if (!keep && packed)
        eg__pool_give(w->ctx, packed, rows_bytes(w, turned));
}

/* ---- building ---- */

const_dnnl_primitive_attr_t eg__dnnl_attr(const eg__dnnl_state *state, const eg__dnnl_primitive *p)
{
    return p->key.add ? state->adding : state->attr;
}

eg_status eg__dnnl_described(eg__dnnl_primitive *p, dnnl_status_t status)
{
    p->unsupported = status == dnnl_unimplemented;
    return p->unsupported ? EG_OK : eg__dnnl_check(status, "describing a primitive");
}

static eg_status add_memory(eg__dnnl_state *state, eg__dnnl_primitive *p, int arg, const_dnnl_memory_desc_t md)
{
    EG_ASSERT(p->n_args < EG__DNNL_ARGS);
    EG_TRY(eg__dnnl_check(dnnl_memory_create(&p->args[p->n_args].memory, md, state->engine, DNNL_MEMORY_NONE),
                          "making a memory object"));
    p->args[p->n_args++].arg = arg;
    return EG_OK;
}

eg_status eg__dnnl_add(eg__dnnl_state *state, eg__dnnl_primitive *p, const_dnnl_primitive_desc_t pd, dnnl_query_t what,
                       int index, int arg, size_t *bytes)
{
    const_dnnl_memory_desc_t md = dnnl_primitive_desc_query_md(pd, what, index);
    size_t size = md ? dnnl_memory_desc_get_size(md) : 0;
    if (bytes)
        *bytes = size;
    return size > 0 ? add_memory(state, p, arg, md) : EG_OK;
}

eg_status eg__dnnl_create(eg__dnnl_state *state, eg__dnnl_primitive *p, const_dnnl_primitive_desc_t pd)
{
    EG_TRY(eg__dnnl_check(dnnl_primitive_create(&p->primitive, pd), "making a primitive"));
    return eg__dnnl_add(state, p, pd, dnnl_query_scratchpad_md, 0, DNNL_ARG_SCRATCHPAD, &p->scratch_bytes);
}

/* The number of a layout among the distinct ones of this context, of which there are few. */
static eg_status layout_number(eg__dnnl_state *state, const_dnnl_memory_desc_t md, size_t *number)
{
    for (*number = 0; *number < state->n_layouts; ++*number)
        if (dnnl_memory_desc_equal(state->layouts[*number], md))
            return EG_OK;
    EG_TRY(eg__grow(&state->layouts, &state->layouts_capacity, state->n_layouts + 1, sizeof *state->layouts));
    EG_TRY(eg__dnnl_check(dnnl_memory_desc_clone(&state->layouts[state->n_layouts], md), "keeping a layout"));
    state->n_layouts++;
    return EG_OK;
}

eg_status eg__dnnl_pack_with(eg__dnnl_state *state, eg__dnnl_primitive *p, const_dnnl_primitive_desc_t pd,
                             dnnl_query_t what, const_dnnl_memory_desc_t plain, bool unpack)
{
    const_dnnl_memory_desc_t packed = dnnl_primitive_desc_query_md(pd, what, 0);
    EG_ASSERT(packed != NULL);
    if (dnnl_memory_desc_equal(plain, packed))
        return EG_OK;
    const_dnnl_memory_desc_t from = unpack ? packed : plain, to = unpack ? plain : packed;
    p->weight_bytes = dnnl_memory_desc_get_size(packed);
    EG_TRY(layout_number(state, packed, &p->weight_layout));
    dnnl_primitive_desc_t reorder = NULL;
    EG_TRY(eg__dnnl_check(dnnl_reorder_primitive_desc_create(&reorder, from, state->engine, to, state->engine, NULL),
                          "describing a reorder"));
    eg_status status = eg__dnnl_check(dnnl_primitive_create(&p->reorder, reorder), "making a reorder");
    dnnl_primitive_desc_destroy(reorder);
    EG_TRY(status);
    EG_TRY(eg__dnnl_check(dnnl_memory_create(&p->reorder_from, from, state->engine, DNNL_MEMORY_NONE),
                          "making a memory object"));
    return eg__dnnl_check(dnnl_memory_create(&p->reorder_to, to, state->engine, DNNL_MEMORY_NONE),
                          "making a memory object");
}

eg_status eg__dnnl_tensor(eg__dnnl_md *md, dnnl_data_type_t type, int ndim, const int64_t *dims, dnnl_format_tag_t tag)
{
    return eg__dnnl_check(dnnl_memory_desc_create_with_tag(md, ndim, dims, type, tag), "describing a tensor");
}

/*
 * tensor/tensor.c - handles and storages: making them, sharing them, letting them go.
 */
#include "tensor/state.h"

#include <stdlib.h>
#include <string.h>

/* In read-only memory: a stray write through it is a bug that shows at once. */
static const eg_tensor none = {.refs = 1, .kind = EG__NONE};
eg_tensor *const eg_none = (eg_tensor *)&none;

bool eg_is_none(const eg_tensor *t)
{
    return t && t->kind == EG__NONE;
}

/* ---- state in the context ---- */

static void destroy_state(eg_context *ctx, void *memory)
{
    (void)ctx;
    eg__tensor_state *state = memory;
    while (state->n_owned > 0)
        eg_tensor_release(state->owned[--state->n_owned]);
    free(state->owned);
    while (state->free_handles) {
        eg__free_item *item = state->free_handles;
        state->free_handles = item->next;
        free(item);
    }
    while (state->free_storages) {
        eg__free_item *item = state->free_storages;
        state->free_storages = item->next;
        free(item);
    }
}

eg__tensor_state *eg__tensor_state_of(eg_context *ctx)
{
    return eg__context_slot(ctx, EG__SLOT_TENSOR, sizeof(eg__tensor_state), destroy_state);
}

/* Handles are small and made at every operation: returned ones are reused, unless a sanitizer is to see them go. */
static void *take_item(eg__free_item **list, size_t size)
{
    eg__free_item *item = *list;
    if (!item)
        return eg__calloc(1, size);
    *list = item->next;
    return memset(item, 0, size);
}

static void give_item(eg_context *ctx, eg__free_item **list, void *memory)
{
    if (!eg__pool_enabled(ctx)) {
        free(memory);
        return;
    }
    eg__free_item *item = memory;
    item->next = *list;
    *list = item;
}

/* ---- storages ---- */

static eg__storage *storage_new(eg_context *ctx, eg__tensor_state *state, size_t bytes)
{
    eg__storage *storage = take_item(&state->free_storages, sizeof *storage);
    if (!storage)
        return NULL;
    storage->data = eg__pool_take(ctx, bytes);
    if (!storage->data) {
        give_item(ctx, &state->free_storages, storage);
        return NULL;
    }
    storage->refs = 1;
    storage->ctx = ctx;
    storage->bytes = bytes;
    storage->id = ++state->last_storage_id;
    return storage;
}

static void storage_release(eg__storage *storage)
{
    if (!storage || --storage->refs > 0)
        return;
    eg_context *ctx = storage->ctx;
    eg__pool_give(ctx, storage->data, storage->bytes);
    give_item(ctx, &eg__tensor_state_of(ctx)->free_storages, storage);
}

/* ---- handles ---- */

static eg_tensor *handle_new(eg_context *ctx, eg_dtype dtype, eg_shape shape)
{
    eg__tensor_state *state = eg__tensor_state_of(ctx);
    eg_tensor *t = state ? take_item(&state->free_handles, sizeof *t) : NULL;
    if (!t)
        return NULL;
    t->refs = 1;
    t->ctx = ctx;
    t->dtype = dtype;
    t->shape.ndim = shape.ndim;
    for (int i = 0; i < shape.ndim; i++)
        t->shape.dims[i] = shape.dims[i];
    return t;
}

static eg_status check_spec(eg_dtype dtype, eg_shape shape)
{
    EG_CHECK((unsigned)dtype <= EG_BF16, EG_EDTYPE, "%d is no data type", (int)dtype);
    int64_t numel = eg_shape_numel(shape);
    if (numel >= 0 && numel <= INT64_MAX / 8) /* 8: the largest type */
        return EG_OK;
    char text[EG_SHAPE_TEXT_SIZE];
    return eg_fail(EG_EINVAL, "shape %s is not one of 0 to %d dimensions with sizes of 0 or more, or is too large",
                   eg_shape_format(shape, text, sizeof text), EG_MAX_DIMS);
}

/* Type and shape have been checked. */
static eg_tensor *new_with_strides(eg_context *ctx, eg_dtype dtype, eg_shape shape, const int64_t *strides,
                                   bool with_storage)
{
    eg_tensor *t = handle_new(ctx, dtype, shape);
    if (!t)
        return NULL;
    memcpy(t->strides, strides, sizeof t->strides);
    if (!with_storage)
        return t;
    if (dtype == EG_BF16)
        eg__mix_kernels(ctx);
    size_t bytes = (size_t)eg_shape_numel(shape) * eg_dtype_size(dtype);
    t->storage = storage_new(ctx, eg__tensor_state_of(ctx), bytes);
    if (!t->storage) {
        eg_tensor_release(t);
        return NULL;
    }
    return t;
}

static eg_tensor *new_with_layout(eg_context *ctx, eg_dtype dtype, eg_shape shape, eg_layout layout, bool with_storage)
{
    if (!ctx)
        return eg__null("tensor", "context");
    if (check_spec(dtype, shape) != EG_OK)
        return NULL;
    int64_t strides[EG_MAX_DIMS];
    eg__layout_strides(shape, layout, strides);
    return new_with_strides(ctx, dtype, shape, strides, with_storage);
}

eg_tensor *eg__tensor_new(eg_context *ctx, eg_dtype dtype, eg_shape shape, eg_layout layout)
{
    return new_with_layout(ctx, dtype, shape, layout, true);
}

eg_tensor *eg__tensor_new_shape_only(eg_context *ctx, eg_dtype dtype, eg_shape shape, eg_layout layout)
{
    return new_with_layout(ctx, dtype, shape, layout, false);
}

eg_tensor *eg__tensor_new_like_as(const eg_tensor *like, eg_dtype dtype)
{
    int64_t strides[EG_MAX_DIMS];
    eg__like_strides(like, strides);
    return new_with_strides(like->ctx, dtype, like->shape, strides, like->storage != NULL);
}

eg_tensor *eg__tensor_new_like(const eg_tensor *like)
{
    return eg__tensor_new_like_as(like, like->dtype);
}

/* Whether all elements of the view lie inside the storage. */
static bool fits(const eg__storage *storage, size_t item, eg_shape shape, const int64_t *strides, int64_t offset)
{
    int64_t last = offset;
    for (int i = 0; i < shape.ndim; i++) {
        if (shape.dims[i] == 0)
            return true;
        if (strides[i] < 0 || (strides[i] > 0 && shape.dims[i] - 1 > (INT64_MAX - last) / strides[i]))
            return false;
        last += (shape.dims[i] - 1) * strides[i];
    }
    return last < (int64_t)(storage->bytes / item);
}

eg_tensor *eg__tensor_new_view(eg_tensor *t, eg_shape shape, const int64_t *strides, int64_t offset)
{
    if (check_spec(t->dtype, shape) != EG_OK)
        return NULL;
    if (offset < 0 || (t->storage && !fits(t->storage, eg_dtype_size(t->dtype), shape, strides, offset))) {
        eg_fail(EG_EINTERNAL, "a view reaches outside its tensor");
        return NULL;
    }
    eg_tensor *v = handle_new(t->ctx, t->dtype, shape);
    if (!v)
        return NULL;
    for (int i = 0; i < shape.ndim; i++)
        v->strides[i] = strides[i];
    v->offset = offset;
    v->storage = t->storage;
    if (v->storage)
        v->storage->refs++;
    return v;
}

eg_tensor *eg__borrow(eg__borrowed *b, const eg_tensor *like, eg_dtype dtype, void *data)
{
    size_t bytes = (size_t)eg_shape_numel(like->shape) * eg_dtype_size(dtype);
    b->storage = (eg__storage){.refs = 1, .ctx = like->ctx, .data = data, .bytes = bytes};
    b->tensor = (eg_tensor){.refs = 1, .ctx = like->ctx, .dtype = dtype, .shape = like->shape, .storage = &b->storage};
    eg__layout_strides(like->shape, EG_LAYOUT_ROW_MAJOR, b->tensor.strides);
    return &b->tensor;
}

eg_tensor *eg_tensor_keep(eg_tensor *t)
{
    if (t && t->ctx)
        t->refs++;
    return t;
}

void eg_tensor_release(eg_tensor *t)
{
    if (!t || !t->ctx || --t->refs > 0)
        return;
    eg_context *ctx = t->ctx;
    eg_tensor_release(t->grad);
    for (size_t i = 0; i < t->n_items; i++)
        eg_tensor_release(t->items[i]);
    free(t->items);
    storage_release(t->storage);
    give_item(ctx, &eg__tensor_state_of(ctx)->free_handles, t);
}

static eg_status fill_tuple(eg_tensor *tuple, eg_tensor *const *items, size_t n)
{
    tuple->kind = EG__TUPLE;
    tuple->items = eg__calloc(n, sizeof(eg_tensor *));
    if (!tuple->items)
        return EG_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        EG_CHECK(items[i]->kind != EG__TUPLE, EG_EINVAL, "tuple: item %zu is a tuple itself", i);
        EG_CHECK(!items[i]->ctx || items[i]->ctx == tuple->ctx, EG_EINVAL, "tuple: item %zu is of another context", i);
        tuple->items[tuple->n_items++] = eg_tensor_keep(items[i]);
    }
    return EG_OK;
}

eg_tensor *eg_tuple(eg_context *ctx, eg_tensor *const *items, size_t n)
{
    if (!ctx)
        return eg__null(__func__, "context");
    if (n > EG__MAX_ITEMS) {
        eg_fail(EG_EINVAL, "tuple: %zu items, expected at most %d", n, EG__MAX_ITEMS);
        return NULL;
    }
    if (!items && n > 0)
        return eg__null(__func__, "the list of items");
    for (size_t i = 0; i < n; i++)
        if (!items[i])
            return eg__null(__func__, "an item");
    eg_tensor *tuple = handle_new(ctx, EG_F32, EG_SCALAR);
    if (tuple && fill_tuple(tuple, items, n) != EG_OK) {
        eg_tensor_release(tuple);
        return NULL;
    }
    return eg__scope_add(tuple);
}

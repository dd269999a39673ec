/*
 * io/save.c - writing safetensors.
 */
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

typedef struct item {
    const char *name;
    eg_tensor *tensor;
    const eg__file_type *type;
} item;

/* Wide numbers first, so that each tensor is aligned in a mapped file. */
static int compare_items(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->type->size != y->type->size)
        return x->type->size > y->type->size ? -1 : 1;
    return strcmp(x->name, y->name);
}

static eg_status list_items(const eg_state *state, item *items)
{
    for (size_t i = 0; i < eg_state_size(state); i++) {
        item *it = &items[i];
        it->tensor = eg_state_at(state, i, &it->name);
        EG_CHECK(it->tensor && it->tensor->kind == EG__DENSE && it->tensor->storage, EG_EINVAL,
                 "tensor '%s' has no numbers to save", it->name);
        EG_CHECK(strcmp(it->name, "__metadata__") != 0, EG_EINVAL, "a tensor cannot be named '__metadata__'");
        it->type = eg__file_type_of(it->tensor->dtype);
        EG_CHECK(it->type, EG_EDTYPE, "tensor '%s' has a type that is not saved", it->name);
    }
    if (eg_state_size(state) > 0)
        qsort(items, eg_state_size(state), sizeof *items, compare_items);
    return EG_OK;
}

/* ---- the header ---- */

static json_t *describe(const item *it, uint64_t *at)
{
    uint64_t begin = *at;
    *at += (uint64_t)eg_shape_numel(it->tensor->shape) * it->type->size;
    json_t *shape = json_array();
    for (int d = 0; d < it->tensor->shape.ndim; d++)
        if (json_array_append_new(shape, json_integer(it->tensor->shape.dims[d])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", it->type->name, "shape", shape, "data_offsets", (json_int_t)begin,
                     (json_int_t)*at);
}

static eg_status parse_metadata(const char *text, json_t **metadata)
{
    *metadata = eg__json_parse(text, strlen(text), "metadata");
    if (!*metadata)
        return eg_error_last()->code == EG_ENOMEM ? EG_ENOMEM : eg__fail_prefix(EG_EINVAL, "metadata is not JSON");
    EG_CHECK(json_is_object(*metadata), EG_EINVAL, "metadata is not a JSON object");
    const char *key;
    json_t *value;
    json_object_foreach(*metadata, key, value)
        EG_CHECK(json_is_string(value), EG_EINVAL, "metadata: '%s' is not text", key);
    return EG_OK;
}

static int append(const char *data, size_t size, void *payload)
{
    eg__buf *buf = payload;
    eg__buf_append(buf, data, size);
    return buf->failed ? -1 : 0;
}

static eg_status fill_header(json_t *header, const item *items, size_t n, json_t *metadata, eg__buf *buf)
{
    bool failed = metadata && json_object_set(header, "__metadata__", metadata) != 0;
    uint64_t at = 0;
    for (size_t i = 0; i < n && !failed; i++) {
        EG_CHECK(eg__is_utf8(items[i].name), EG_EINVAL, "tensor '%s': the name is no valid UTF-8", items[i].name);
        failed = json_object_set_new(header, items[i].name, describe(&items[i], &at)) != 0;
    }
    failed = failed || json_dump_callback(header, append, buf, JSON_COMPACT) != 0;
    EG_CHECK(!failed, EG_ENOMEM, "out of memory for the header");
    while ((EG__SAFETENSORS_LENGTH + buf->len) % 8 != 0) /* the numbers begin aligned */
        eg__buf_append(buf, " ", 1);
    EG_CHECK(!buf->failed, EG_ENOMEM, "out of memory for the header");
    EG_CHECK(buf->len <= EG__SAFETENSORS_MAX_HEADER, EG_EINVAL,
             "names and metadata need a header of %zu bytes, allowed are %zu", buf->len, EG__SAFETENSORS_MAX_HEADER);
    return EG_OK;
}

static eg_status make_header(const item *items, size_t n, const char *metadata_text, eg__buf *buf)
{
    json_t *metadata = NULL, *header = json_object();
    eg_status status = header ? EG_OK : eg_fail(EG_ENOMEM, "out of memory");
    if (status == EG_OK && metadata_text)
        status = parse_metadata(metadata_text, &metadata);
    if (status == EG_OK)
        status = fill_header(header, items, n, metadata, buf);
    json_decref(metadata);
    json_decref(header);
    return status;
}

/* ---- the numbers ---- */

static eg_status write_numbers(eg__writer *writer, const item *it)
{
    size_t left = (size_t)eg_shape_numel(it->tensor->shape), size = it->type->size;
    if (left == 0)
        return EG_OK;
    eg_tensor *plain = it->tensor;
    if (!eg__is_row_major(plain)) {
        plain = eg__tensor_new(it->tensor->ctx, it->tensor->dtype, it->tensor->shape, EG_LAYOUT_ROW_MAJOR);
        if (!plain)
            return EG_ENOMEM;
    }
    eg_status status = plain == it->tensor ? EG_OK : eg_tensor_assign(plain, it->tensor);
    uint8_t chunk[16384];
    for (const uint8_t *from = eg__data(plain); left > 0 && status == EG_OK;) {
        size_t n = EG_MIN(left, sizeof chunk / size);
        eg__encode(from, chunk, n, size);
        status = eg__writer_put(writer, chunk, n * size);
        from += n * size;
        left -= n;
    }
    if (plain != it->tensor)
        eg_tensor_release(plain);
    return status;
}

static eg_status write_file(const char *path, const item *items, size_t n, const eg__buf *header)
{
    eg__writer writer;
    EG_TRY(eg__writer_open(&writer, path));
    uint64_t length = header->len;
    uint8_t bytes[EG__SAFETENSORS_LENGTH];
    eg__encode(&length, bytes, 1, sizeof bytes);
    eg_status status = eg__writer_put(&writer, bytes, sizeof bytes);
    if (status == EG_OK)
        status = eg__writer_put(&writer, header->data, header->len);
    for (size_t i = 0; i < n && status == EG_OK; i++)
        status = write_numbers(&writer, &items[i]);
    if (status == EG_OK)
        return eg__writer_close(&writer);
    eg__writer_abort(&writer);
    return status;
}

eg_status eg_safetensors_save(const eg_state *state, const char *path, const char *metadata)
{
    if (!state || !path) {
        eg__null(__func__, state ? "path" : "state");
        return eg_error_last()->code;
    }
    size_t n = eg_state_size(state);
    item *items = eg__calloc(n + 1, sizeof *items);
    if (!items)
        return EG_ENOMEM;
    eg__buf header = {0};
    eg_status status = list_items(state, items);
    if (status == EG_OK)
        status = make_header(items, n, metadata, &header);
    if (status != EG_OK)
        eg__fail_prefix(status, "'%s'", path);
    else
        status = write_file(path, items, n, &header);
    eg__buf_free(&header);
    free(items);
    return status;
}

/*
 * io/load.c - reading safetensors. Nothing in the file is believed: header and length must agree exactly before memory
 * for the numbers is taken, so a file never costs more than a few times its size.
 */
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct entry {
    const char *name; /* of the JSON object */
    const eg__file_type *type;
    eg_shape shape;
    uint64_t begin, end; /* in the data part */
    size_t order;        /* in the header */
} entry;

typedef struct file {
    const char *path;
    FILE *stream;
    uint64_t data_size; /* what follows the header */
    json_t *header;
    entry *entries;
    size_t n;
} file;

static eg_status open_file(file *f, uint64_t *size)
{
    int descriptor = -1;
    EG_TRY(eg__open_regular(f->path, &descriptor, size));
    f->stream = fdopen(descriptor, "rb");
    if (!f->stream) {
        close(descriptor);
        return eg_fail(EG_ENOMEM, "cannot open '%s': out of memory", f->path);
    }
    return EG_OK;
}

static eg_status read_bytes(file *f, void *to, size_t n)
{
    size_t got = fread(to, 1, n, f->stream);
    if (got != n && ferror(f->stream))
        return eg__fail_errno("read", f->path);
    EG_CHECK(got == n, EG_EFORMAT, "'%s' became shorter while it was read", f->path);
    return EG_OK;
}

/* ---- the header ---- */

static eg_status read_header(file *f)
{
    uint64_t size = 0;
    EG_TRY(open_file(f, &size));
    EG_CHECK(size >= EG__SAFETENSORS_LENGTH, EG_EFORMAT, "'%s': %llu bytes are too short for a safetensors file",
             f->path, (unsigned long long)size);
    uint8_t bytes[EG__SAFETENSORS_LENGTH];
    EG_TRY(read_bytes(f, bytes, sizeof bytes));
    uint64_t length = eg__little_endian(bytes, sizeof bytes), left = size - EG__SAFETENSORS_LENGTH;
    EG_CHECK(length >= 2 && length <= EG__SAFETENSORS_MAX_HEADER && length <= left, EG_EFORMAT,
             "'%s': header of %llu bytes, expected 2 .. %llu", f->path, (unsigned long long)length,
             (unsigned long long)EG_MIN(left, EG__SAFETENSORS_MAX_HEADER));
    f->data_size = left - length;
    char *text = eg__calloc((size_t)length + 1, 1);
    if (!text)
        return EG_ENOMEM;
    eg_status status = read_bytes(f, text, (size_t)length);
    if (status == EG_OK && text[0] != '{')
        status = eg_fail(EG_EFORMAT, "'%s': the header does not begin with '{'", f->path);
    if (status == EG_OK) {
        f->header = eg__json_parse(text, (size_t)length, f->path);
        if (!f->header)
            status = eg_error_last()->code;
    }
    eg_free(text);
    return status;
}

static eg_status parse_shape(const json_t *json, const char *name, eg_shape *shape)
{
    EG_CHECK(json_is_array(json) && json_array_size(json) <= EG_MAX_DIMS, EG_EFORMAT,
             "tensor '%s': shape is not a list of at most %d sizes", name, EG_MAX_DIMS);
    *shape = (eg_shape){.ndim = (int)json_array_size(json)};
    for (int d = 0; d < shape->ndim; d++) {
        const json_t *size = json_array_get(json, (size_t)d);
        EG_CHECK(json_is_integer(size) && json_integer_value(size) >= 0, EG_EFORMAT,
                 "tensor '%s': dimension %d is not a size", name, d);
        shape->dims[d] = json_integer_value(size);
    }
    EG_CHECK(eg_shape_numel(*shape) >= 0, EG_EFORMAT, "tensor '%s': the product of its sizes is too large", name);
    return EG_OK;
}

static eg_status parse_entry(const file *f, const char *name, json_t *json, entry *e)
{
    const char *dtype = json_string_value(json_object_get(json, "dtype"));
    const json_t *offsets = json_object_get(json, "data_offsets");
    EG_CHECK(json_object_size(json) == 3 && dtype && json_array_size(offsets) == 2, EG_EFORMAT,
             "tensor '%s': expected \"dtype\", \"shape\" and two \"data_offsets\"", name);
    e->type = eg__file_type_find(dtype);
    EG_CHECK(e->type, EG_EFORMAT, "tensor '%s': unknown dtype '%.32s', expected %s", name, dtype, eg__file_type_names);
    EG_TRY(parse_shape(json_object_get(json, "shape"), name, &e->shape));
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    EG_CHECK(json_is_integer(begin) && json_is_integer(end) && json_integer_value(begin) >= 0 &&
                 json_integer_value(begin) <= json_integer_value(end) &&
                 (uint64_t)json_integer_value(end) <= f->data_size,
             EG_EFORMAT, "tensor '%s': data_offsets are not within the %llu bytes of data", name,
             (unsigned long long)f->data_size);
    e->begin = (uint64_t)json_integer_value(begin);
    e->end = (uint64_t)json_integer_value(end);
    uint64_t bytes = e->end - e->begin, numel = (uint64_t)eg_shape_numel(e->shape);
    EG_CHECK(bytes % e->type->size == 0 && bytes / e->type->size == numel, EG_EFORMAT,
             "tensor '%s': %llu bytes for %llu numbers of type %s", name, (unsigned long long)bytes,
             (unsigned long long)numel, e->type->name);
    e->name = name;
    return EG_OK;
}

static int compare_entries(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

static eg_status parse_header(file *f)
{
    f->entries = eg__calloc(json_object_size(f->header) + 1, sizeof *f->entries);
    if (!f->entries)
        return EG_ENOMEM;
    const char *name;
    json_t *value;
    json_object_foreach(f->header, name, value)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        f->entries[f->n].order = f->n;
        EG_TRY(parse_entry(f, name, value, &f->entries[f->n]));
        f->n++;
    }
    qsort(f->entries, f->n, sizeof *f->entries, compare_entries);
    uint64_t at = 0;
    for (size_t i = 0; i < f->n; i++) {
        EG_CHECK(f->entries[i].begin == at, EG_EFORMAT,
                 "tensor '%s' begins at %llu, expected %llu: data must have no gaps and not overlap",
                 f->entries[i].name, (unsigned long long)f->entries[i].begin, (unsigned long long)at);
        at = f->entries[i].end;
    }
    EG_CHECK(at == f->data_size, EG_EFORMAT, "%llu bytes of data, expected %llu", (unsigned long long)f->data_size,
             (unsigned long long)at);
    return EG_OK;
}

static eg_status take_metadata(const file *f, char **metadata)
{
    json_t *json = json_object_get(f->header, "__metadata__"), *value;
    const char *key;
    EG_CHECK(!json || json_is_object(json), EG_EFORMAT, "'__metadata__' is not an object");
    json_object_foreach(json, key, value)
        EG_CHECK(json_is_string(value), EG_EFORMAT, "'__metadata__': '%s' is not text", key);
    if (!metadata)
        return EG_OK;
    *metadata = json ? eg__json_text(json) : eg__strdup("{}");
    return *metadata ? EG_OK : EG_ENOMEM;
}

/* ---- the numbers ---- */

static eg_status read_numbers(file *f, const entry *e, eg_tensor *t)
{
    uint8_t chunk[16384];
    size_t left = (size_t)eg_shape_numel(e->shape), step = sizeof chunk / e->type->size;
    for (uint8_t *to = left > 0 ? eg__data(t) : NULL; left > 0;) {
        size_t n = EG_MIN(left, step);
        EG_TRY(read_bytes(f, chunk, n * e->type->size));
        eg_status status = e->type->decode(chunk, to, n);
        if (status != EG_OK)
            return eg__fail_prefix(status, "tensor '%s'", e->name);
        to += n * eg_dtype_size(e->type->dtype);
        left -= n;
    }
    return EG_OK;
}

static eg_status read_tensors(file *f, eg_context *ctx, eg_state *state)
{
    for (size_t i = 0; i < f->n; i++) {
        const entry *e = &f->entries[i];
        eg_tensor *t = eg__tensor_new(ctx, e->type->dtype, e->shape, EG_LAYOUT_ROW_MAJOR);
        if (!t)
            return EG_ENOMEM;
        eg_status status = read_numbers(f, e, t);
        if (status == EG_OK)
            status = eg_state_put(state, e->name, t);
        eg_tensor_release(t);
        EG_TRY(status);
    }
    return EG_OK;
}

static eg_status load(file *f, eg_context *ctx, eg_state *state, char **metadata)
{
    EG_TRY(read_header(f));
    eg_status status = parse_header(f);
    if (status == EG_OK)
        status = read_tensors(f, ctx, state);
    if (status == EG_OK)
        status = take_metadata(f, metadata);
    return status == EG_OK ? EG_OK : eg__fail_prefix(status, "'%s'", f->path);
}

eg_state *eg_safetensors_load(eg_context *ctx, const char *path, char **metadata)
{
    if (metadata)
        *metadata = NULL;
    if (!ctx || !path)
        return eg__null(__func__, ctx ? "path" : "context");
    eg_state *state = eg_state_new();
    if (!state)
        return NULL;
    file f = {.path = path};
    eg_status status = load(&f, ctx, state, metadata);
    if (f.stream)
        fclose(f.stream);
    json_decref(f.header);
    free(f.entries);
    if (status != EG_OK) {
        eg_state_free(state);
        return NULL;
    }
    return state;
}

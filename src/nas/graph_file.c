/*
 * nas/graph_file.c - graphs as TensorBoard reads them: a GraphDef, and an event file that holds one.
 */
#include "nas/graph.h"

#include "graph.pb-c.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- protocol buffers: structs of pointers to others, which are packed at once ---- */

/* All that one node needs. */
typedef struct message {
    Eg__NodeDef node;
    Eg__AttrEntry entry[2], *entries[2];
    Eg__AttrValue value[2];
    Eg__AttrValue__ListValue list;
    Eg__TensorShape shape, *shapes[1];
    Eg__TensorShape__Dim dim[EG_MAX_DIMS], *dims[EG_MAX_DIMS];
} message;

static const char shapes_key[] = "_output_shapes", attributes_key[] = "attr";

static void fill_shape(message *m, eg_shape shape)
{
    eg__tensor_shape__init(&m->shape);
    for (int i = 0; i < shape.ndim; i++) {
        eg__tensor_shape__dim__init(&m->dim[i]);
        m->dim[i].size = shape.dims[i];
        m->dims[i] = &m->dim[i];
    }
    m->shape.n_dim = (size_t)shape.ndim;
    m->shape.dim = m->dims;
    m->shapes[0] = &m->shape;
    eg__attr_value__list_value__init(&m->list);
    m->list.n_shape = 1;
    m->list.shape = m->shapes;
}

static void fill_node(message *m, const eg__graph_node *node)
{
    fill_shape(m, node->shape);
    for (int i = 0; i < 2; i++) {
        eg__attr_entry__init(&m->entry[i]);
        eg__attr_value__init(&m->value[i]);
        m->entry[i].value = &m->value[i];
        m->entries[i] = &m->entry[i];
    }
    m->entry[0].key = (char *)(uintptr_t)shapes_key;
    m->value[0].value_case = EG__ATTR_VALUE__VALUE_LIST;
    m->value[0].list = &m->list;
    m->entry[1].key = (char *)(uintptr_t)attributes_key;
    m->value[1].value_case = EG__ATTR_VALUE__VALUE_S;
    if (node->attributes != NULL)
        m->value[1].s = (ProtobufCBinaryData){strlen(node->attributes), (uint8_t *)node->attributes};
    eg__node_def__init(&m->node);
    m->node.name = node->name;
    m->node.op = node->op;
    m->node.n_input = node->n_inputs;
    m->node.input = node->inputs;
    m->node.n_attr = node->attributes != NULL ? 2 : 1;
    m->node.attr = m->entries;
}

/* The bytes of a GraphDef, for free(). NULL on failure. */
static uint8_t *pack_graph(const eg_graph *graph, size_t *size)
{
    message *messages = eg__calloc(graph->n_nodes + 1, sizeof(*messages));
    Eg__NodeDef **nodes = eg__calloc(graph->n_nodes + 1, sizeof(*nodes));
    uint8_t *bytes = NULL;
    if (messages != NULL && nodes != NULL) {
        for (size_t i = 0; i < graph->n_nodes; i++) {
            fill_node(&messages[i], &graph->nodes[i]);
            nodes[i] = &messages[i].node;
        }
        Eg__VersionDef versions;
        Eg__GraphDef def;
        eg__version_def__init(&versions);
        eg__graph_def__init(&def);
        versions.producer = EG__GRAPH_PRODUCER;
        def.versions = &versions;
        def.n_node = graph->n_nodes;
        def.node = nodes;
        *size = eg__graph_def__get_packed_size(&def);
        bytes = eg__calloc(*size + 1, 1);
        if (bytes != NULL)
            eg__graph_def__pack(&def, bytes);
    }
    free(messages);
    free(nodes);
    return bytes;
}

eg_status eg_graph_save_binary(const eg_graph *graph, const char *path)
{
    EG_CHECK(graph != NULL && path != NULL, EG_EINVAL, "no graph or path was given");
    size_t size = 0;
    uint8_t *bytes = pack_graph(graph, &size);
    eg_status status = bytes != NULL ? eg__file_write(path, bytes, size) : EG_ENOMEM;
    free(bytes);
    return status;
}

/* ---- event files: records of length, checksum, bytes, checksum, all numbers little-endian ---- */

/* CRC-32C (Castagnoli), bit by bit, turned and shifted as the format wants it, so that checksums of checksums differ.
 */
static uint32_t masked_crc(const uint8_t *bytes, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (UINT32_C(0x82f63b78) & (0 - (crc & 1)));
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

static void put_number(uint8_t *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> 8 * i);
}

static eg_status put_event(eg__writer *writer, const Eg__Event *event)
{
    size_t size = eg__event__get_packed_size(event);
    uint8_t *bytes = eg__calloc(size + 1, 1), head[12], tail[4];
    if (bytes == NULL)
        return EG_ENOMEM;
    eg__event__pack(event, bytes);
    put_number(head, size, 8);
    put_number(head + 8, masked_crc(head, 8), 4);
    put_number(tail, masked_crc(bytes, size), 4);
    eg_status status = eg__writer_put(writer, head, sizeof(head));
    if (status == EG_OK)
        status = eg__writer_put(writer, bytes, size);
    if (status == EG_OK)
        status = eg__writer_put(writer, tail, sizeof(tail));
    free(bytes);
    return status;
}

static eg_status put_events(eg__writer *writer, double now, uint8_t *bytes, size_t size)
{
    char version[] = "brain.Event:2";
    Eg__Event event;
    eg__event__init(&event);
    event.wall_time = now;
    event.what_case = EG__EVENT__WHAT_FILE_VERSION;
    event.file_version = version;
    EG_TRY(put_event(writer, &event));
    event.what_case = EG__EVENT__WHAT_GRAPH_DEF;
    event.graph_def = (ProtobufCBinaryData){size, bytes};
    return put_event(writer, &event);
}

eg_status eg_graph_save_event(const eg_graph *graph, const char *directory)
{
    EG_CHECK(graph != NULL && directory != NULL, EG_EINVAL, "no graph or directory was given");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    size_t size = 0;
    uint8_t *bytes = pack_graph(graph, &size);
    char *path =
        eg__format("%s/events.out.tfevents.%010lld.engraft.%ld", directory, (long long)now.tv_sec, (long)getpid());
    eg_status status = bytes != NULL && path != NULL ? eg__make_directory(directory) : EG_ENOMEM;
    eg__writer writer;
    if (status == EG_OK)
        status = eg__writer_open(&writer, path);
    if (status == EG_OK) {
        status = put_events(&writer, (double)now.tv_sec + (double)now.tv_nsec / 1e9, bytes, size);
        if (status == EG_OK)
            status = eg__writer_close(&writer);
        else
            eg__writer_abort(&writer);
    }
    free(path);
    free(bytes);
    return status;
}

/*
 * Graphs of supernets: nodes, where the mutables are, and the files of TensorBoard.
 */
#include "nas/toy.h"

#include "graph.pb-c.h"

#include <jansson.h>
#include <unistd.h>

static int setup(void **state)
{
    *state = eg_context_new(.seed = 1, .threads = 1);
    return *state == NULL;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    return 0;
}

typedef struct works {
    eg_module *net;
    eg_mutator *mutator;
    eg_graph *graph;
} works;

/* pick, inside a scope that stands twice in a sequence. */
static works make(eg_context *ctx)
{
    works w = {.net = eg_sequential(ctx, EG_MODULES(eg_new(part, ctx, "s", EG_MODULES(eg_new(pick, ctx, true))),
                                                    eg_new(part, ctx, "s", EG_MODULES(eg_new(pick, ctx, true)))))};
    assert_made(w.net);
    w.mutator = eg_random_mutator_new(w.net);
    assert_made(w.mutator);
    w.graph = eg_mutator_graph(w.mutator, &EG_SHAPE(2, 1), 1);
    assert_made(w.graph);
    return w;
}

static void end(works *w)
{
    eg_graph_free(w->graph);
    eg_mutator_detach(w->mutator);
    eg_module_release(w->net);
}

static json_t *parse(const eg_graph *graph)
{
    char *text = eg_graph_text(graph);
    assert_made(text);
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    eg_free(text);
    return json;
}

static const json_t *node_named(const json_t *json, const char *name)
{
    const json_t *nodes = json_object_get(json, "node");
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        if (strcmp(json_string_value(json_object_get(json_array_get(nodes, i), "name")), name) == 0)
            return json_array_get(nodes, i);
    }
    fail_msg("no node '%s'", name);
    return NULL;
}

static const char *input_of(const json_t *node, size_t i)
{
    return json_string_value(json_array_get(json_object_get(node, "input"), i));
}

static void every_candidate_is_a_node(void **state)
{
    works w = make(*state);
    json_t *json = parse(w.graph);
    /* an input; in each of two: six gains, their two sums, the sum of the input choice */
    assert_int_equal(eg_graph_size(w.graph), 1 + 2 * 9);
    assert_int_equal(json_array_size(json_object_get(json, "node")), 1 + 2 * 9);
    const json_t *input = node_named(json, "input/input");
    assert_string_equal(json_string_value(json_object_get(input, "op")), "IO Node");
    const json_t *a = node_named(json, "Sequential/part[0]/pick[0]/LayerChoice[left]/gain[a]/mul");
    assert_string_equal(input_of(a, 0), "input/input");
    assert_int_equal(json_array_size(json_object_get(a, "input")), 1); /* its weight is no node */
    const json_t *sum = node_named(json, "Sequential/part[0]/pick[0]/LayerChoice[right]/add_n");
    assert_int_equal(json_array_size(json_object_get(sum, "input")), 3);
    assert_string_equal(input_of(sum, 2), "Sequential/part[0]/pick[0]/LayerChoice[right]/gain[2]/mul");
    const json_t *merge = node_named(json, "Sequential/part[0]/pick[0]/InputChoice[merge]/add_n");
    assert_string_equal(input_of(merge, 2), "input/input");
    assert_string_equal(input_of(node_named(json, "Sequential/part[1]/pick[0]/LayerChoice[left]/gain[b]/mul"), 0),
                        "Sequential/part[0]/pick[0]/InputChoice[merge]/add_n");
    json_t *shape = json_object_get(json_object_get(sum, "attr"), "_output_shapes");
    char *text = json_dumps(shape, JSON_COMPACT);
    assert_string_equal(text, "{\"list\":{\"shape\":[{\"dim\":[{\"size\":\"2\"},{\"size\":\"1\"}]}]}}");
    free(text);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(json, "versions"), "producer")), 22);
    json_decref(json);
    end(&w);
}

static void the_paths_of_mutables(void **state)
{
    works w = make(*state);
    json_t *json = parse(w.graph), *mutables = json_object_get(json, "mutable");
    assert_int_equal(json_object_size(mutables), 4); /* s, left, right, merge */
    assert_int_equal(json_array_size(json_object_get(mutables, "left")), 2);
    char *text = json_dumps(json_array_get(json_object_get(mutables, "left"), 1), JSON_COMPACT);
    assert_string_equal(text, "[{\"name\":\"\",\"type\":\"Sequential\"},{\"name\":\"1\",\"type\":\"part\"},{\"name\":"
                              "\"0\",\"type\":\"pick\"},{\"name\":\"left\",\"type\":\"LayerChoice\"}]");
    free(text);
    json_decref(json);
    end(&w);
}

static void decisions_stay(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_new(pick, ctx, false);
    eg_mutator *mutator = eg_random_mutator_new(net);
    eg_arch *arch = parse_arch("{\"left\": \"b\", \"right\": 2, \"merge\": [0, 1]}");
    assert_ok(eg_mutator_set_arch(mutator, arch));
    eg_graph *graph = eg_mutator_graph(mutator, &EG_SHAPE(1, 1), 1);
    assert_made(graph);
    assert_close(run_on_one(net), 110, 0);
    assert_ptr_equal(mutator->cls, &eg_random_mutator_class);
    eg_graph_free(graph);
    assert_ok(eg_module_empty_child(((pick *)net)->left, "a")); /* candidates that are gone are left out */
    graph = eg_mutator_graph(mutator, &EG_SHAPE(1, 1), 1);
    assert_int_equal(eg_graph_size(graph), 9);
    eg_graph_free(graph);
    assert_refused(eg_mutator_graph(NULL, NULL, 0), EG_EINVAL, "mutator");
    assert_refused(eg_mutator_graph(mutator, NULL, 1), EG_EINVAL, "shapes");
    eg_arch_free(arch);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void joins_that_cannot_be_are_failures(void **state)
{
    eg_context *ctx = *state;
    eg_module *net =
        eg_layer_choice(ctx, EG_CHOICES({"a", eg_linear(ctx, 3, 4)}, {"b", eg_linear(ctx, 3, 5)}), .key = "k");
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_refused(eg_mutator_graph(mutator, &EG_SHAPE(1, 3), 1), EG_ESHAPE, "");
    assert_null(eg_decisions_get(mutator->current, "k"));
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void attributes_tell_of_cost(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_layer_choice(ctx, EG_CHOICES({"a", eg_linear(ctx, 3, 4)}), .key = "k");
    eg_mutator *mutator = eg_random_mutator_new(net);
    eg_graph *graph = eg_mutator_graph(mutator, &EG_SHAPE(1, 3), 1);
    json_t *json = parse(graph);
    const json_t *node = node_named(json, "LayerChoice/Linear[a]/linear");
    const json_t *text = json_object_get(json_object_get(json_object_get(node, "attr"), "attr"), "s");
    assert_string_equal(json_string_value(text), "eyBtYWNzOiAxMiB9"); /* { macs: 12 } */
    json_decref(json);
    eg_graph_free(graph);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* ---- files ---- */

static uint8_t *read_bytes(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint8_t *bytes = calloc(1, 1 << 20);
    assert_non_null(bytes);
    *size = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    return bytes;
}

static void check_def(const uint8_t *bytes, size_t size, const eg_graph *graph)
{
    Eg__GraphDef *def = eg__graph_def__unpack(NULL, size, bytes);
    assert_non_null(def);
    assert_int_equal(def->n_node, eg_graph_size(graph));
    assert_int_equal(def->versions->producer, 22);
    assert_string_equal(def->node[0]->name, "input/input");
    const Eg__NodeDef *last = def->node[def->n_node - 1];
    assert_string_equal(last->name, "Sequential/part[1]/pick[0]/InputChoice[merge]/add_n");
    assert_string_equal(last->op, "add_n");
    assert_int_equal(last->n_input, 3);
    assert_string_equal(last->attr[0]->key, "_output_shapes");
    assert_int_equal(last->attr[0]->value->list->shape[0]->dim[0]->size, 2);
    eg__graph_def__free_unpacked(def, NULL);
}

static void a_binary_file(void **state)
{
    works w = make(*state);
    char *directory = temporary_make(), path[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "graph.pb", path);
    assert_ok(eg_graph_save_binary(w.graph, path));
    size_t size;
    uint8_t *bytes = read_bytes(path, &size);
    check_def(bytes, size, w.graph);
    free(bytes);
    if (system("protoc --version >/dev/null 2>&1") == 0) { /* another reader, where there is one */
        char command[2 * TEMPORARY_PATH_SIZE + 200];
        snprintf(command, sizeof command,
                 "protoc --decode=eg.GraphDef --proto_path=" EG_SOURCE_DIR
                 "/src/nas graph.proto <'%s' | grep -c 'name: "
                 "\"Sequential/part' | grep -qx 18",
                 path);
        assert_int_equal(system(command), 0);
    }
    assert_ok(eg_graph_save(w.graph, temporary_path(directory, "graph.json", path)));
    json_t *json = json_load_file(path, 0, NULL);
    assert_non_null(json_object_get(json, "mutable"));
    json_decref(json);
    assert_fails(eg_graph_save(w.graph, "/nowhere/at/all"), EG_ENOENT, "/nowhere");
    temporary_remove(directory);
    end(&w);
}

static uint64_t number_at(const uint8_t *bytes, int n)
{
    uint64_t value = 0;
    for (int i = n - 1; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

/* CRC-32C by its definition on whole words: the remainder of a division of polynomials. */
static uint32_t crc32c(const uint8_t *bytes, size_t n)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < 8 * n; i++) {
        uint32_t bit = (crc ^ (uint32_t)(bytes[i / 8] >> (i % 8))) & 1;
        crc = (crc >> 1) ^ (bit ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static uint32_t unmask(uint64_t masked)
{
    uint32_t rotated = (uint32_t)masked - 0xa282ead8u;
    return rotated >> 17 | rotated << 15;
}

static const uint8_t *check_record(const uint8_t *at, const uint8_t *bytes, size_t size, size_t *length)
{
    *length = (size_t)number_at(at, 8);
    assert_true((size_t)(at - bytes) + *length + 16 <= size);
    assert_int_equal(unmask(number_at(at + 8, 4)), crc32c(at, 8));
    assert_int_equal(unmask(number_at(at + 12 + *length, 4)), crc32c(at + 12, *length));
    return at + 12;
}

static void an_event_file(void **state)
{
    works w = make(*state);
    assert_int_equal(crc32c((const uint8_t *)"123456789", 9), 0xe3069283); /* the check value of the catalogue */
    char *directory = temporary_make(), inside[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "made", inside);
    assert_ok(eg_graph_save_event(w.graph, inside));
    assert_int_equal(directory_count(inside), 1);
    DIR *list = opendir(inside);
    struct dirent *entry = readdir(list);
    while (entry->d_name[0] == '.')
        entry = readdir(list);
    assert_non_null(strstr(entry->d_name, "events.out.tfevents."));
    char path[2 * TEMPORARY_PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", inside, entry->d_name);
    closedir(list);
    size_t size, length;
    uint8_t *bytes = read_bytes(path, &size);
    const uint8_t *record = check_record(bytes, bytes, size, &length);
    Eg__Event *event = eg__event__unpack(NULL, length, record);
    assert_string_equal(event->file_version, "brain.Event:2");
    assert_true(event->wall_time > 1e9);
    eg__event__free_unpacked(event, NULL);
    record = check_record(record + length + 4, bytes, size, &length);
    event = eg__event__unpack(NULL, length, record);
    assert_int_equal(event->what_case, EG__EVENT__WHAT_GRAPH_DEF);
    check_def(event->graph_def.data, event->graph_def.len, w.graph);
    eg__event__free_unpacked(event, NULL);
    assert_int_equal((size_t)(record - bytes) + length + 4, size);
    free(bytes);
    temporary_remove(directory);
    end(&w);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_candidate_is_a_node),
        TEST(the_paths_of_mutables),
        TEST(decisions_stay),
        TEST(joins_that_cannot_be_are_failures),
        TEST(attributes_tell_of_cost),
        TEST(a_binary_file),
        TEST(an_event_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Models as JSON: every class there and back, composite classes, shared modules, and what is refused. */
#include "support.h"

#include "engraft/nas.h"
#include "nn/json_rows.h"

#include <jansson.h>

static eg_context *ctx;

static int setup(void **state)
{
    (void)state;
    eg_error_clear();
    ctx = eg_context_new(.seed = 1, .threads = 1, .backend = "ref", .max_memory = (size_t)1 << 26);
    return ctx == NULL || eg_nas_register(ctx) != EG_OK;
}

static int teardown(void **state)
{
    (void)state;
    size_t left = eg_context_get_stats(ctx).bytes_in_use;
    eg_context_free(ctx);
    return left != 0;
}

/* ---- every class ---- */

/* With the quotes that JSON wants. */
static const char *quoted(const char *text, char out[4096])
{
    size_t n = 0;
    for (const char *p = text; *p != '\0'; p++) {
        assert_true(n + 2 < 4096);
        if (*p == '`')
            out[n++] = '\\';
        out[n++] = *p == '\'' || *p == '`' ? '"' : *p;
    }
    out[n] = '\0';
    return out;
}

static eg_module *from(const char *text)
{
    char json[4096];
    return eg_module_from_json(ctx, quoted(text, json));
}

static eg_module *made(const char *text)
{
    eg_module *m = from(text);
    if (m == NULL)
        fail_msg("%s: %s", text, eg_error_last()->message);
    return m;
}

static void assert_same_state(eg_module *a, eg_module *b)
{
    eg_state *s = eg_state_new(), *t = eg_state_new();
    assert_ok(eg_module_state(a, NULL, s));
    assert_ok(eg_module_state(b, NULL, t));
    assert_int_equal(eg_state_size(s), eg_state_size(t));
    for (size_t i = 0; i < eg_state_size(s); i++) {
        const char *x, *y;
        assert_true(eg_shape_equal(eg_tensor_shape(eg_state_at(s, i, &x)), eg_tensor_shape(eg_state_at(t, i, &y))));
        assert_string_equal(x, y);
    }
    eg_state_free(s);
    eg_state_free(t);
}

/* To JSON and back: the same text, tree, and tensors. Returns the text. */
static char *there_and_back(eg_module *m)
{
    char *json = eg_module_json(m);
    assert_made(json);
    eg_module *again = eg_module_from_json(ctx, json);
    if (again == NULL)
        fail_msg("%s: %s", json, eg_error_last()->message);
    char *json2 = eg_module_json(again), *text = eg_module_text(m), *text2 = eg_module_text(again);
    assert_true(json2 && text && text2);
    assert_string_equal(json, json2);
    assert_string_equal(text, text2);
    assert_same_state(m, again);
    eg_free(json2);
    eg_free(text);
    eg_free(text2);
    eg_module_release(again);
    return json;
}

static void test_every_row(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ROWS; i++) {
        eg_module *m = made(rows[i]);
        char *json = there_and_back(m), quotes[4096];
        json_t *wanted = json_loads(quoted(rows[i], quotes), 0, NULL), *got = json_loads(json, 0, NULL);
        if (!json_equal(wanted, got))
            fail_msg("%s became %s", rows[i], json);
        json_decref(wanted);
        json_decref(got);
        eg_free(json);
        eg_module_release(m);
    }
}

static bool row_has(const char *cls, const char *field)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        char quotes[4096];
        json_t *row = json_loads(quoted(rows[i], quotes), 0, NULL);
        assert_non_null(row);
        bool has = strcmp(json_string_value(json_object_get(row, "class")), cls) == 0 &&
                   (field == NULL || json_object_get(row, field) != NULL);
        json_decref(row);
        if (has)
            return true;
    }
    return false;
}

/* Every class that a context knows has a row, and every field of it is in one. */
static void test_rows_are_complete(void **state)
{
    (void)state;
    const eg_class *cls;
    for (size_t i = 0; (cls = eg_context_class_at(ctx, i)) != NULL; i++) {
        if (!row_has(cls->name, NULL))
            fail_msg("no row for class %s", cls->name);
        for (const eg_field *field = cls->fields; field != NULL && field->name != NULL; field++)
            if (!row_has(cls->name, field->name))
                fail_msg("no row for %s.%s", cls->name, field->name);
    }
}

/* Every class that layers.h declares is known by its name. */
static void test_registry_is_complete(void **state)
{
    (void)state;
    FILE *file = fopen(EG_SOURCE_DIR "/include/engraft/layers.h", "rb");
    assert_non_null(file);
    char *text = calloc(1, 1 << 18);
    assert_true(fread(text, 1, (1 << 18) - 1, file) > 0);
    fclose(file);
    size_t declared = 0, known = 0;
    for (char *at = text; (at = strstr(at, "extern const eg_class ")) != NULL; at++)
        for (char *end = strchr(at, ';'), *name = at; (name = strstr(name, "_class")) != NULL && name < end; name++)
            declared += name[6] == ',' || name[6] == ';';
    free(text);
    eg_context *fresh = eg_context_new(.threads = 1);
    while (eg_context_class_at(fresh, known) != NULL)
        known++;
    eg_context_free(fresh);
    assert_true(known > 40);
    assert_int_equal(declared, known);
}

/* ---- classes of one's own ---- */

typedef struct block {
    eg_module base;
    int64_t width;
    eg_module *first, *second, *list;
} block;

static eg_status block_build(eg_module *self)
{
    block *b = (block *)self;
    EG_SLOT(b, first,
            eg_sequential(self->ctx, EG_MODULES(eg_linear(self->ctx, b->width, b->width), eg_relu(self->ctx))));
    EG_SLOT(b, second, eg_module_retain(b->first));
    EG_SLOT(b, list, eg_module_list(self->ctx, EG_NAMED({"a", eg_tanh(self->ctx)}, {"b", eg_relu(self->ctx)})));
    return eg_module_status(self);
}

static EG_NAMED_CLASS(block, "Block", .build = block_build,
                      .fields = EG_FIELDS(EG_INT(block, width, EG_AT_LEAST(1), .help = "units")));

static void test_register(void **state)
{
    (void)state;
    assert_refused(from("{'class': 'Block', 'width': 3}"), EG_ENOENT, "model: there is no class 'Block'");
    assert_ok(eg_context_register_class(ctx, &block_class));
    assert_ok(eg_context_register_class(ctx, &block_class));
    assert_ptr_equal(eg_context_find_class(ctx, "Block"), &block_class);
    assert_refused((void *)(uintptr_t)eg_context_find_class(ctx, "Conv3d"), EG_ENOENT, "did you mean 'Conv2d'");
    assert_fails(eg_context_register_class(NULL, &block_class), EG_EINVAL, "NULL");
    eg_module *m = made("{'class': 'Block', 'width': 3}");
    assert_ptr_equal(((block *)m)->first, ((block *)m)->second);
    eg_module_release(m);
}

static const eg_class impostor = {.struct_size = sizeof(eg_class), .name = "ReLU", .instance_size = sizeof(eg_module)};

static const eg_class own_cell = {.struct_size = sizeof(eg_class), .name = "Cell", .instance_size = sizeof(eg_module)};

static void test_names_are_unique(void **state)
{
    (void)state;
    assert_fails(eg_context_register_class(ctx, &impostor), EG_EINVAL, "another class 'ReLU'");
    assert_fails(eg_context_register_class(ctx, &own_cell), EG_EINVAL, "another class 'Cell'");
    /* that of a space gives way to a program's own */
    eg_context *other = eg_context_new(.threads = 1);
    assert_ok(eg_context_register_class(other, &own_cell));
    eg_module *choice = eg_layer_choice(other, EG_MODULES(eg_relu(other)));
    assert_made(choice);
    assert_ptr_equal(eg_context_find_class(other, "LayerChoice"), &eg_layer_choice_class);
    assert_ok(eg_nas_register(other));
    assert_ptr_equal(eg_context_find_class(other, "Cell"), &own_cell);
    eg_module_release(choice);
    eg_context_free(other);
}

/* Of what a class makes only the difference is written, under the shortest path. */
static void test_children(void **state)
{
    (void)state;
    eg_module *m = made("{'class': 'Cell', 'channels': 4}");
    assert_ok(eg_module_set_child(eg_module_find(m, "op1.sep5x5"), "0",
                                  eg_conv2d(ctx, 4, 4, 7, .padding = 3, .groups = 4, .no_bias = true)));
    assert_ok(eg_module_remove_child(eg_module_find(m, "op2"), "maxpool"));
    assert_ok(eg_module_empty_child(m, "norm"));
    char *json = there_and_back(m);
    json_t *parsed = json_loads(json, 0, NULL), *children = json_object_get(parsed, "children");
    assert_int_equal(json_object_size(children), 3);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(children, "op1.sep5x5.0"), "kernel_size")), 7);
    assert_int_equal(json_object_size(json_object_get(json_object_get(children, "op2"), "named")), 4);
    assert_true(json_is_null(json_object_get(children, "norm")));
    json_decref(parsed);
    eg_free(json);
    eg_module_release(m);
}

static void test_expanded(void **state)
{
    (void)state;
    eg_module *m = made("{'class': 'DartsNetwork', 'in_channels': 3, 'classes': 5, 'channels': 4, 'layers': 3}");
    char *expanded = eg_module_json_expanded(m), *json = eg_module_json(m);
    assert_true(strlen(expanded) > 50 * strlen(json));
    eg_module *again = eg_module_from_json(ctx, expanded);
    assert_made(again);
    char *json2 = eg_module_json(again);
    assert_string_equal(json, json2);
    eg_free(expanded);
    eg_free(json);
    eg_free(json2);
    eg_module_release(m);
    eg_module_release(again);
}

/* Writing leaves no trace in the random numbers and keys of the context. */
static void test_writing_changes_nothing(void **state)
{
    (void)state;
    eg_module *m = made("{'class': 'Cell', 'channels': 4}");
    eg_rng before = *eg_context_rng(ctx);
    eg_free(eg_module_json(m));
    assert_memory_equal(&before, eg_context_rng(ctx), sizeof before);
    eg_module_release(m);
}

/* ---- shared modules ---- */

static void test_shared(void **state)
{
    (void)state;
    eg_module *relu = eg_relu(ctx), *inner = eg_sequential(ctx, EG_MODULES(eg_module_retain(relu), relu));
    eg_module *m = eg_sequential(ctx, EG_NAMED({"a", eg_module_retain(inner)}, {"b", eg_tanh(ctx)}, {"c", inner}));
    char *json = there_and_back(m);
    eg_module *again = eg_module_from_json(ctx, json);
    assert_ptr_equal(eg_module_find(again, "a"), eg_module_find(again, "c"));
    assert_ptr_equal(eg_module_find(again, "a.0"), eg_module_find(again, "c.1"));
    eg_module_release(again);
    eg_module_release(m);
    eg_free(json);
}

/* Sharing across the children of a class that shares children itself. */
static void test_shared_in_built(void **state)
{
    (void)state;
    assert_ok(eg_context_register_class(ctx, &block_class));
    eg_module *m =
        made("{'class': 'Sequential', 'modules': [{'class': 'ReLU', 'id': 'r'}, {'class': 'Block', 'width': 3,"
             " 'children': {'first': {'ref': 'r'}, 'list.b': {'ref': 'r'}}}, {'ref': 'r'}]}");
    const block *b = (block *)eg_module_find(m, "1");
    assert_ptr_equal(b->first, eg_module_find(m, "0"));
    assert_true(b->second != b->first);
    assert_ptr_equal(eg_module_find(b->list, "b"), b->first);
    eg_free(there_and_back(m));
    eg_module_release(m);
}

/* ---- files ---- */

static void test_files(void **state)
{
    (void)state;
    char *directory = temporary_make(), path[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "m.json", path);
    eg_module *m = made("{'class': 'Linear', 'in_features': 3, 'out_features': 4}");
    assert_ok(eg_module_save_json(m, path));
    assert_int_equal(directory_count(directory), 1);
    eg_module *again = eg_module_load_json(ctx, path);
    assert_made(again);
    assert_same_state(m, again);
    eg_module_release(m);
    eg_module_release(again);
    FILE *file = fopen(path, "wb");
    fputs("{\"class\": \"Linear\"}", file);
    fclose(file);
    assert_refused(eg_module_load_json(ctx, path), EG_EINVAL, "m.json': model: Linear: 'in_features' is 0, expected");
    assert_refused(eg_module_load_json(ctx, directory), EG_EIO, directory);
    temporary_remove(directory);
}

/* ---- what is refused ---- */

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        eg_status status;
        const char *part;
    } cases[] = {
        {"{", EG_EFORMAT, "'model' line 1"},
        {"[]", EG_EFORMAT, "model: expected a module, an object with a 'class'"},
        {"null", EG_EFORMAT, "model: expected a module"},
        {"{'klass': 'ReLU'}", EG_EFORMAT, "model: names no 'class'"},
        {"{'class': 7}", EG_EFORMAT, "names no 'class'"},
        {"{'class': 'Relu'}", EG_ENOENT, "model: there is no class 'Relu' (did you mean 'ReLU'"},
        {"{'class': 'ReLU', 'class': 'ReLU'}", EG_EFORMAT, "duplicate"},
        {"{'class': 'Linear', 'in_features': 3, 'out_feature': 4}", EG_EFORMAT,
         "model: Linear has no field 'out_feature' (did you mean 'out_features'"},
        {"{'class': 'Sequential', 'modules': [{'class': 'ReLU'}, {'class': 'Conv2d', 'in_channels': 1,"
         " 'out_channels': 1, 'kernel_size': 3, 'padding': -1}]}",
         EG_EINVAL, "model.modules[1]: Conv2d: 'padding' is -1, expected at least 0"},
        {"{'class': 'Linear', 'in_features': '3'}", EG_EFORMAT, "model.in_features: is \"3\", expected a whole number"},
        {"{'class': 'Linear', 'in_features': 1e15, 'out_features': 1}", EG_EFORMAT,
         "model.in_features: is 1e15, expected a whole number"},
        {"{'class': 'Linear', 'in_features': 100000000000, 'out_features': 1}", EG_EINVAL, "'in_features' is 1"},
        {"{'class': 'Linear', 'in_features': 1000000000, 'out_features': 1000000000}", EG_ENOMEM, "model: "},
        {"{'class': 'Linear', 'in_features': 100000, 'out_features': 100000}", EG_ENOMEM, "context may take"},
        {"{'class': 'Conv2d', 'kernel_size': [1, 2, 3]}", EG_EFORMAT, "model.kernel_size: is a list, expected a whole"},
        {"{'class': 'Conv2d', 'in_channels': 1, 'out_channels': 1, 'kernel_size': [1, 9999999999]}", EG_EINVAL,
         "'kernel_size' has a size out of range"},
        {"{'class': 'Conv2d', 'in_channels': 1, 'out_channels': 1, 'kernel_size': 4611686018427387905}", EG_EINVAL,
         "'kernel_size' is 1073741824, expected at most"},
        {"{'class': 'Conv2d', 'in_channels': 1, 'out_channels': 1, 'kernel_size': 1, 'stride': 0}", EG_EFORMAT,
         "model.stride: is 0, which cannot be asked for (left out, it is 1)"},
        {"{'class': 'LayerNorm', 'normalized_shape': []}", EG_EFORMAT, "normalized_shape: is a list, expected a list"},
        {"{'class': 'LayerNorm', 'normalized_shape': [3, -4]}", EG_EINVAL, "has a size of -4"},
        {"{'class': 'Dropout', 'p': 'x'}", EG_EFORMAT, "model.p: is \"x\", expected a number"},
        {"{'class': 'Dropout', 'p': 2}", EG_EINVAL, "'p' is 2"},
        {"{'class': 'Linear', 'no_bias': 1}", EG_EFORMAT, "model.no_bias: is 1, expected true or false"},
        {"{'class': 'Upsample', 'size': 3, 'mode': 'cubic'}", EG_EFORMAT,
         "model.mode: is \"cubic\", expected one of 'nearest', 'bilinear'"},
        {"{'class': 'LayerChoice', 'modules': []}", EG_EINVAL, "no candidates"},
        {"{'class': 'LayerChoice', 'modules': [{'class': 'ReLU'}], 'key': 3}", EG_EFORMAT, "model.key: is 3"},
        {"{'class': 'InputChoice', 'choose_from': ['a', 1]}", EG_EFORMAT, "model.choose_from: is a list"},
        {"{'class': 'InputChoice', 'n_candidates': 2, 'choose_from': ['a']}", EG_EINVAL, "choose_from names 1"},
        {"{'class': 'Sequential', 'modules': {}}", EG_EFORMAT, "model.modules: expected a list"},
        {"{'class': 'Sequential', 'named': []}", EG_EFORMAT, "model.named: expected an object"},
        {"{'class': 'Sequential', 'named': {'a.b': {'class': 'ReLU'}}}", EG_EINVAL, "'a.b' is no name"},
        {"{'class': 'Sequential', 'named': {'a': {'class': 'Sequential', 'modules': [3]}}}", EG_EFORMAT,
         "model.named.a.modules[0]: expected a module"},
        {"{'class': 'Sequential', 'modules': [], 'children': {}}", EG_EFORMAT, "beside a list"},
        {"{'class': 'Cell', 'channels': 4, 'children': {'op3': null}}", EG_ENOENT,
         "model.children.op3: Cell has no child 'op3'"},
        {"{'class': 'Cell', 'channels': 4, 'children': {'op1.pool.0': null}}", EG_ENOENT, "no child 'pool'"},
        {"{'class': 'Cell', 'channels': 4, 'children': {'op1': {'class': 'Sequential'}, 'op1.x': null}}", EG_EFORMAT,
         "'op1' is in the file itself"},
        {"{'class': 'Cell', 'channels': 4, 'children': []}", EG_EFORMAT, "model.children: expected an object"},
        {"{'ref': 'x'}", EG_EFORMAT, "no module before this one has the id 'x'"},
        {"{'ref': 'x', 'class': 'ReLU'}", EG_EFORMAT, "'ref' is a text, and alone"},
        {"{'class': 'Sequential', 'id': 's', 'modules': [{'ref': 's'}]}", EG_EFORMAT, "has the id 's'"},
        {"{'class': 'Sequential', 'modules': [{'class': 'ReLU', 'id': 'a'}, {'class': 'ReLU', 'id': 'a'}]}", EG_EFORMAT,
         "model.modules[1]: id 'a' is taken"},
        {"{'class': 'ReLU', 'id': ''}", EG_EFORMAT, "'id' is no text"},
        {"{'class': 'DartsNetwork', 'in_channels': 1, 'classes': 1, 'layers': 1000000000}", EG_EINVAL, "'layers' is"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        eg_module *m = from(cases[i].json);
        const eg_error *error = eg_error_last();
        if (m != NULL || error->code != cases[i].status || !strstr(error->message, cases[i].part))
            fail_msg("%s: \"%s\" (%s), expected \"%s\"", cases[i].json, error->message, eg_status_name(error->code),
                     cases[i].part);
        eg_error_clear();
    }
    assert_refused(eg_module_from_json(NULL, "{}"), EG_EINVAL, "context is NULL");
    assert_refused(eg_module_from_json(ctx, NULL), EG_EINVAL, "text is NULL");
    assert_refused(eg_module_json(NULL), EG_EINVAL, "module is NULL");
}

/* A text of n parts: "before" n times, "middle", "after" n times. */
static char *repeated(const char *before, const char *middle, const char *after, size_t n)
{
    char *text = calloc(1, n * (strlen(before) + strlen(after)) + strlen(middle) + 1), *at = text;
    for (size_t i = 0; i < n; i++)
        at += sprintf(at, "%s", before);
    at += sprintf(at, "%s", middle);
    for (size_t i = 0; i < n; i++)
        at += sprintf(at, "%s", after);
    return text;
}

static void test_depth(void **state)
{
    (void)state;
    const char *open = "{\"class\": \"Sequential\", \"modules\": [", *relu = "{\"class\": \"ReLU\"}";
    char *deepest = repeated(open, relu, "]}", 63), *deeper = repeated(open, relu, "]}", 64);
    eg_module *m = eg_module_from_json(ctx, deepest);
    assert_made(m);
    eg_module_release(m);
    assert_refused(eg_module_from_json(ctx, deeper), EG_EFORMAT, "nest deeper than 64");
    free(deepest);
    free(deeper);
}

/* Modules that hold the one before twice: 2^n places, or n levels, in a text of n lines. */
static void test_bombs(void **state)
{
    (void)state;
    for (int deep = 0; deep < 2; deep++) {
        char *text = calloc(1, 1 << 16), *at = text, ref[64] = "";
        at += sprintf(at, "{\"class\": \"Sequential\", \"modules\": [{\"class\": \"ReLU\", \"id\": \"m0\"}");
        for (int i = 1; i <= (deep ? 100 : 40); i++) {
            snprintf(ref, sizeof ref, "{\"ref\": \"m%d\"}", i - 1);
            at += sprintf(at, ", {\"class\": \"Sequential\", \"id\": \"m%d\", \"modules\": [%s%s%s]}", i, ref,
                          deep ? "" : ", ", deep ? "" : ref);
        }
        sprintf(at, "]}");
        assert_refused(eg_module_from_json(ctx, text), EG_EFORMAT,
                       deep ? "nest deeper than 64" : "more than 1048576 modules");
        free(text);
    }
}

static void test_not_written(void **state)
{
    (void)state;
    eg_module *m = eg_conv2d(ctx, 1, 2, 3);
    assert_ok(eg_weight_norm(m, "weight", 0));
    assert_refused(eg_module_json(m), EG_EUNSUPPORTED, "normalized parameter");
    eg_module_release(m);
    m = eg_leaky_relu(ctx, .negative_slope = EG_F64(INFINITY));
    if (m != NULL) /* where its range lets it be made */
        assert_refused(eg_module_json(m), EG_EINVAL, "not finite");
    eg_error_clear();
    eg_module_release(m);
    m = made("{'class': 'Cell', 'channels': 4}");
    assert_ok(eg_module_add_child(m, "more", NULL, eg_relu(ctx)));
    assert_refused(eg_module_json(m), EG_EUNSUPPORTED, "other children");
    eg_module_release(m);
    m = eg_layer_choice(ctx, EG_MODULES(eg_relu(ctx)), .key = "\xff");
    assert_made(m);
    assert_refused(eg_module_json(m), EG_EINVAL, "'key' is no UTF-8");
    eg_module_release(m);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_every_row),
        TEST(test_rows_are_complete),
        TEST(test_registry_is_complete),
        TEST(test_register),
        TEST(test_names_are_unique),
        TEST(test_children),
        TEST(test_expanded),
        TEST(test_writing_changes_nothing),
        TEST(test_shared),
        TEST(test_shared_in_built),
        TEST(test_files),
        TEST(test_refused),
        TEST(test_depth),
        TEST(test_bombs),
        TEST(test_not_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

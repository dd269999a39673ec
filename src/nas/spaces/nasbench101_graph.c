/*
 * nas/spaces/nasbench101_graph.c - cells of NAS-Bench-101 as graphs: which vertices count, how wide they are, and the
 * name that the benchmark gives to all cells of one shape.
 */
#include "engraft/zoo.h"
#include "nas/spaces/nasbench101.h"

#include <md5.h>
#include <string.h>

const char *const eg__nb101_ops[EG__NB101_OPS] = {"conv3x3-bn-relu", "conv1x1-bn-relu", "maxpool3x3"};

enum { MAX_EDGES = 9, KEY_SIZE = 32 };

/* ---- from an architecture ---- */

/* One of `names` (NULL: none has a name) or a number below n; n when it is neither. */
static size_t read_one(const json_t *value, const char *const *names, size_t n)
{
    size_t i = 0;
    if (json_is_string(value) && names != NULL) {
        while (i < n && strcmp(names[i], json_string_value(value)) != 0)
            i++;
        return i;
    }
    if (json_is_string(value) && n == 1 && *json_string_value(value) == '\0')
        return 0; /* so a choice of the one input there is, which has no name, is exported */
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    return number >= 0 && (size_t)number < n ? (size_t)number : n;
}

static eg_status read_op(const json_t *object, size_t v, eg__nb101_graph *out)
{
    char key[KEY_SIZE];
    snprintf(key, sizeof(key), "op%zu", v);
    out->op[v] = read_one(json_object_get(object, key), eg__nb101_ops, EG__NB101_OPS);
    EG_CHECK(out->op[v] < EG__NB101_OPS, EG_EINVAL, "architecture: '%s' is none of %s, %s and %s", key,
             eg__nb101_ops[0], eg__nb101_ops[1], eg__nb101_ops[2]);
    return EG_OK;
}

static eg_status read_inputs(const json_t *object, size_t v, eg__nb101_graph *out)
{
    char key[KEY_SIZE];
    snprintf(key, sizeof(key), "input%zu", v);
    const json_t *value = json_object_get(object, key);
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    EG_CHECK(value != NULL, EG_EINVAL, "architecture: '%s' is missing", key);
    for (size_t i = 0; i < n && !json_is_null(value); i++) {
        size_t from = read_one(json_is_array(value) ? json_array_get(value, i) : value, NULL, v);
        EG_CHECK(from < v, EG_EINVAL, "architecture: '%s' is no vertex before %zu, nor a list of such", key, v);
        out->edge[from][v] = true;
    }
    return EG_OK;
}

eg_status eg__nb101_read(const eg_arch *arch, eg__nb101_graph *out)
{
    EG_CHECK(arch != NULL, EG_EINVAL, "architecture is NULL");
    size_t keys = eg_arch_size(arch);
    *out = (eg__nb101_graph){.n = (keys + 3) / 2};
    EG_CHECK(keys % 2 == 1 && out->n <= EG__NB101_VERTICES, EG_EINVAL,
             "architecture: %zu keys, expected op1 to op5 and input1 to input6, or those of fewer vertices", keys);
    for (size_t v = 1; v < out->n; v++) {
        EG_TRY(read_inputs(eg__arch_json(arch), v, out));
        if (v + 1 < out->n)
            EG_TRY(read_op(eg__arch_json(arch), v, out));
    }
    return EG_OK;
}

/* ---- what counts ---- */

bool eg__nb101_prune(eg__nb101_graph *g)
{
    bool from_input[EG__NB101_VERTICES] = {true}, to_output[EG__NB101_VERTICES] = {false};
    size_t last = g->n - 1;
    to_output[last] = true;
    for (size_t v = 1; v <= last; v++) {
        for (size_t w = 0; w < v; w++) {
            from_input[v] = from_input[v] || (g->edge[w][v] && from_input[w]);
            to_output[last - v] = to_output[last - v] || (g->edge[last - v][last - w] && to_output[last - w]);
        }
    }
    for (size_t v = 0; v <= last; v++)
        g->dead[v] = !from_input[v] || !to_output[v];
    for (size_t v = 0; v <= last; v++) {
        for (size_t w = 0; w <= last; w++)
            g->edge[v][w] = g->edge[v][w] && !g->dead[v] && !g->dead[w];
    }
    return !g->dead[0];
}

/* Of the vertices that the output is made of, side by side: the first ones have one more where it does not come out. */
static void share_output(const eg__nb101_graph *g, int64_t *channels)
{
    size_t last = g->n - 1;
    int64_t n = 0;
    for (size_t v = 1; v < last; v++)
        n += g->edge[v][last];
    for (size_t v = 1, i = 0; v < last; v++) {
        if (g->edge[v][last])
            channels[v] = channels[last] / n + ((int64_t)i++ < channels[last] % n);
    }
}

void eg__nb101_channels(const eg__nb101_graph *g, int64_t in, int64_t out, int64_t channels[EG__NB101_VERTICES])
{
    size_t last = g->n - 1;
    memset(channels, 0, EG__NB101_VERTICES * sizeof(*channels));
    channels[0] = in;
    channels[last] = out;
    share_output(g, channels);
    for (size_t v = last; v-- > 1;) {
        for (size_t w = v + 1; w < last && !g->edge[v][last]; w++)
            channels[v] = g->edge[v][w] ? EG_MAX(channels[v], channels[w]) : channels[v];
    }
}

/* ---- the benchmark's own words ---- */

static size_t count_edges(const eg__nb101_graph *g)
{
    size_t n = 0;
    for (size_t v = 0; v < g->n; v++) {
        for (size_t w = 0; w < g->n; w++)
            n += g->edge[v][w];
    }
    return n;
}

static eg_status read_pruned(const eg_arch *arch, eg__nb101_graph *out)
{
    EG_TRY(eg__nb101_read(arch, out));
    EG_CHECK(eg__nb101_prune(out), EG_EINVAL, "architecture: no path leads from the input to the output");
    size_t edges = count_edges(out);
    EG_CHECK(edges <= MAX_EDGES, EG_EINVAL, "architecture: %zu edges, expected at most %d", edges, MAX_EDGES);
    return EG_OK;
}

eg_status eg_nasbench101_check(const eg_arch *arch)
{
    eg__nb101_graph g;
    return read_pruned(arch, &g);
}

/* As eg_nasbench101_check(), of all that a sampler draws: nothing is said about what does not pass. */
static eg_status is_in_benchmark(void *payload, eg_mutator *mutator, const eg_decisions *decisions, bool *holds)
{
    (void)payload, (void)mutator;
    eg__nb101_graph g = {.n = EG__NB101_VERTICES};
    for (size_t v = 1; v < g.n; v++) {
        char key[KEY_SIZE];
        double taken[EG__NB101_VERTICES];
        snprintf(key, sizeof(key), "input%zu", v);
        const eg_decision *inputs = eg_decisions_get(decisions, key);
        EG_CHECK(inputs != NULL && inputs->n == v, EG_EINVAL, "'%s' is no choice of NAS-Bench-101's cell", key);
        EG_TRY(eg__decision_read(inputs, taken));
        for (size_t w = 0; w < v; w++)
            g.edge[w][v] = taken[w] != 0;
    }
    *holds = eg__nb101_prune(&g) && count_edges(&g) <= MAX_EDGES;
    return EG_OK;
}

const eg_constraint eg__nb101_constraint = {"NAS-Bench-101", is_in_benchmark, NULL};

enum { HASH_SIZE = MD5_DIGEST_STRING_LENGTH, TEXT_SIZE = (EG__NB101_VERTICES + 1) * (HASH_SIZE + 4) };

typedef char hash[HASH_SIZE];

static void md5(const char *text, hash out)
{
    MD5Data((const uint8_t *)text, strlen(text), out);
}

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Joins hashes, which are sorted by it, behind what is in `text`. */
static void append_sorted(char *text, hash *hashes, size_t n, const char *quote, const char *between)
{
    qsort(hashes, n, sizeof(*hashes), compare);
    for (size_t i = 0; i < n; i++) {
        size_t used = strlen(text);
        snprintf(text + used, TEXT_SIZE - used, "%s%s%s%s", i > 0 ? between : "", quote, hashes[i], quote);
    }
}

/* The hashes of the vertices before v, or after it. */
static void append_neighbours(char *text, const eg__nb101_graph *g, const hash *hashes, size_t v, bool before)
{
    hash near[EG__NB101_VERTICES];
    size_t n = 0;
    for (size_t w = 0; w < g->n; w++) {
        if (before ? g->edge[w][v] : g->edge[v][w])
            memcpy(near[n++], hashes[w], HASH_SIZE);
    }
    append_sorted(text, near, n, "", "");
    strncat(text, "|", 2);
}

/* What a vertex is called at first: degrees and operation. */
static void name_vertex(const eg__nb101_graph *g, size_t v, hash out)
{
    char text[64];
    int in = 0, after = 0, op = v == 0 ? -1 : v == g->n - 1 ? -2 : (int)g->op[v];
    for (size_t w = 0; w < g->n; w++) {
        in += g->edge[w][v];
        after += g->edge[v][w];
    }
    snprintf(text, sizeof(text), "(%d, %d, %d)", after, in, op);
    md5(text, out);
}

/* Each vertex is called anew by its neighbours and itself, as often as there are vertices. */
static void spread(const eg__nb101_graph *g, hash *hashes)
{
    hash next[EG__NB101_VERTICES] = {""};
    for (size_t v = 0; v < g->n; v++) {
        char text[TEXT_SIZE] = "";
        if (g->dead[v])
            continue;
        append_neighbours(text, g, (const hash *)hashes, v, true);
        append_neighbours(text, g, (const hash *)hashes, v, false);
        append_sorted(text, &hashes[v], 1, "", "");
        md5(text, next[v]);
    }
    memcpy(hashes, next, sizeof(next));
}

char *eg_nasbench101_hash(const eg_arch *arch)
{
    eg__nb101_graph g;
    if (read_pruned(arch, &g) != EG_OK)
        return NULL;
    hash hashes[EG__NB101_VERTICES], alive[EG__NB101_VERTICES];
    size_t n = 0;
    for (size_t v = 0; v < g.n; v++) {
        name_vertex(&g, v, hashes[v]);
        n += !g.dead[v];
    }
    for (size_t i = 0; i < n; i++)
        spread(&g, hashes);
    n = 0;
    for (size_t v = 0; v < g.n; v++) {
        if (!g.dead[v])
            memcpy(alive[n++], hashes[v], HASH_SIZE);
    }
    char text[TEXT_SIZE] = "[";
    append_sorted(text, alive, n, "'", ", ");
    strncat(text, "]", 2);
    hash out;
    md5(text, out);
    return eg__strdup(out);
}

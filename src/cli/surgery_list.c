/*
 * engraft surgery ls: what a model is made of, and where its parameters and its work are.
 */
#include "cli/surgery.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct line {
    char *path;
    const char *cls;
    int depth;
    bool last; /* of its parent's children */
    int64_t parameters;
    uint64_t macs;
    eg_shape output; /* ndim 0 = not known */
} line;

typedef struct listing {
    line *items;
    size_t n, capacity;
    bool ran;
    uint64_t macs;
    int64_t parameters;
} listing;

static eg_status add_line(void *payload, const char *path, eg_module *m)
{
    listing *l = payload;
    if (l->n == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 64;
        line *more = realloc(l->items, capacity * sizeof(*more));
        if (!more)
            return eg_fail(EG_ENOMEM, "out of memory");
        l->items = more;
        l->capacity = capacity;
    }
    line *at = &l->items[l->n++];
    *at = (line){.path = strdup(path), .cls = m->cls->name, .parameters = eg_module_n_parameters(m)};
    for (const char *p = path; *p; p++)
        at->depth += *p == '.';
    at->depth += *path != '\0';
    return at->path ? EG_OK : eg_fail(EG_ENOMEM, "out of memory");
}

/* What an operation costs, the modules that it lies in cost, and what it gives, they give unless more runs there. */
static void add_operation(listing *l, const json_t *lines, const eg_trace_op *op)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s", op->path);
    l->macs += op->macs;
    for (bool more = true; more;) {
        const json_t *number = json_object_get(lines, path);
        if (number) {
            line *at = &l->items[json_integer_value(number)];
            at->macs += op->macs;
            at->output = op->output_shape;
        }
        char *dot = strrchr(path, '.');
        more = *path != '\0';
        *(dot ? dot : path) = '\0';
    }
}

static void mark_last(listing *l)
{
    for (size_t i = 0; i < l->n; i++) {
        size_t k = i + 1;
        while (k < l->n && l->items[k].depth > l->items[i].depth)
            k++;
        l->items[i].last = k == l->n || l->items[k].depth < l->items[i].depth;
    }
}

/* ---- for people ---- */

static void shape_text(eg_shape shape, char *text, size_t size)
{
    if (shape.ndim == 0)
        snprintf(text, size, "-");
    else
        eg_shape_format(shape, text, size);
}

/* "├─ " before a name, with the bars of the branches that go on below. */
static void tree_text(const listing *l, size_t i, char *text, size_t size)
{
    bool goes_on[64] = {false};
    for (size_t k = 0; k <= i; k++)
        if (l->items[k].depth < 64)
            goes_on[l->items[k].depth] = !l->items[k].last;
    const line *at = &l->items[i];
    size_t n = 0;
    text[0] = '\0';
    for (int d = 1; d < at->depth && d < 64 && n + 16 < size; d++)
        n += (size_t)snprintf(text + n, size - n, "%s", goes_on[d] ? "│  " : "   ");
    const char *dot = strrchr(at->path, '.');
    const char *name = dot ? dot + 1 : at->path;
    if (at->depth == 0)
        snprintf(text, size, "%s", at->cls);
    else
        snprintf(text + n, size - n, "%s%s", at->last ? "└─ " : "├─ ", name);
}

/* Columns of text that are not ASCII: bytes that continue a character take no place. */
static int width_of(const char *text)
{
    int n = 0;
    for (const char *p = text; *p; p++)
        n += ((unsigned char)*p & 0xc0) != 0x80;
    return n;
}

static void print_cell(const char *text, int width)
{
    printf("%s%*s", text, width > width_of(text) ? width - width_of(text) : 0, "");
}

static void name_text(const listing *l, size_t i, bool tree, char *text, size_t size)
{
    if (tree)
        tree_text(l, i, text, size);
    else
        snprintf(text, size, "%s", *l->items[i].path ? l->items[i].path : "(model)");
}

static void print_listing(const listing *l, bool tree)
{
    int name = 6, cls = 5, shape = 6;
    char text[512];
    for (size_t i = 0; i < l->n; i++) {
        name_text(l, i, tree, text, sizeof(text));
        name = name > width_of(text) ? name : width_of(text);
        cls = cls > (int)strlen(l->items[i].cls) ? cls : (int)strlen(l->items[i].cls);
        shape_text(l->items[i].output, text, sizeof(text));
        shape = shape > width_of(text) ? shape : width_of(text);
    }
    print_cell("module", name + 2);
    print_cell("class", cls + 2);
    print_cell("output", shape + 2);
    printf("%12s%s\n", "parameters", l->macs > 0 ? "    MACs" : "");
    for (size_t i = 0; i < l->n; i++) {
        const line *at = &l->items[i];
        name_text(l, i, tree, text, sizeof(text));
        print_cell(text, name + 2);
        print_cell(at->cls, cls + 2);
        shape_text(at->output, text, sizeof(text));
        print_cell(text, shape + 2);
        printf("%12" PRId64, at->parameters);
        if (l->macs > 0)
            printf(" %5.1f %%", 100 * (double)at->macs / (double)l->macs);
        putchar('\n');
    }
    printf("\n%" PRId64 " parameters", l->parameters);
    if (l->macs > 0)
        printf(", %" PRIu64 " multiply-accumulates", l->macs);
    putchar('\n');
}

/* ---- for programs ---- */

static json_t *shape_json(eg_shape shape)
{
    json_t *list = shape.ndim > 0 ? json_array() : json_null();
    for (int i = 0; i < shape.ndim; i++)
        json_array_append_new(list, json_integer(shape.dims[i]));
    return list;
}

/* null where the model was not run. */
static json_t *macs_json(const listing *l, uint64_t macs)
{
    return l->ran ? json_integer((json_int_t)macs) : json_null();
}

static json_t *listing_json(const listing *l)
{
    json_t *modules = json_array();
    for (size_t i = 0; i < l->n; i++) {
        const line *at = &l->items[i];
        json_array_append_new(modules, json_pack("{s:s, s:s, s:o, s:I, s:o}", "path", at->path, "class", at->cls,
                                                 "output", shape_json(at->output), "parameters",
                                                 (json_int_t)at->parameters, "macs", macs_json(l, at->macs)));
    }
    return json_pack("{s:o, s:I, s:o}", "modules", modules, "parameters", (json_int_t)l->parameters, "macs",
                     macs_json(l, l->macs));
}

/* Without the shape of an input: without work. */
static eg_status add_costs_of(listing *l, const named_model *named)
{
    if (named->input.ndim == 0)
        return EG_OK;
    eg_trace *trace = eg_trace_new(named->model, &named->input, 1);
    if (!trace)
        return eg_error_last()->code;
    json_t *lines = json_object();
    for (size_t i = 0; i < l->n; i++)
        json_object_set_new(lines, l->items[i].path, json_integer((json_int_t)i));
    for (size_t i = 0; i < eg_trace_size(trace); i++)
        add_operation(l, lines, eg_trace_at(trace, i));
    l->ran = true;
    json_decref(lines);
    eg_trace_free(trace);
    return EG_OK;
}

int list_model(const command *self, const named_model *named, bool tree, bool json)
{
    listing l = {.parameters = eg_module_n_parameters(named->model)};
    int result = EXIT_OK;
    if (eg_module_walk(named->model, add_line, &l) != EG_OK || add_costs_of(&l, named) != EG_OK) {
        result = report_failure(self->name);
    } else {
        mark_last(&l);
        if (json)
            result = print_json(listing_json(&l));
        else
            print_listing(&l, tree);
    }
    for (size_t i = 0; i < l.n; i++)
        free(l.items[i].path);
    free(l.items);
    return result;
}

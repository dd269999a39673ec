/*
 * What a model costs: parameters, multiply-accumulates layer by layer, memory that a run takes, time that it takes.
 */
#include "surgery/diff.h"
#include "surgery/outputs.h"

#include <math.h>
#include <stdlib.h>

enum { REPEATS = 20, WARMUP = 3, LEAST_RUNS = 3, MOST_RUNS = 100000 };
#define SECONDS 2.0

/* ---- counting ---- */

/* The layer of a module, added if it is new. */
static eg_layer_cost *layer_of(eg_cost *cost, eg__ptr_map *known, size_t *capacity, const eg__inventory *all,
                               const eg_module *m)
{
    void **at = eg__ptr_map_find(known, m);
    if (at != NULL)
        return &cost->layers[(uintptr_t)*at];
    const eg__item *item = eg__inventory_of(all, m);
    if (eg__grow(&cost->layers, capacity, cost->n_layers + 1, sizeof(*cost->layers)) != EG_OK ||
        eg__ptr_map_put(known, m, (void *)(uintptr_t)cost->n_layers) != EG_OK)
        return NULL;
    char *path = eg__strdup(item != NULL ? item->path : "");
    if (path == NULL)
        return NULL;
    cost->layers[cost->n_layers] =
        (eg_layer_cost){.path = path, .cls = m->cls->name, .parameters = item != NULL ? item->parameters : 0};
    return &cost->layers[cost->n_layers++];
}

static eg_status add_layers(eg_cost *cost, const eg__inventory *all, const eg_trace *trace)
{
    eg__ptr_map known = {0};
    size_t capacity = 0;
    eg_status status = EG_OK;
    for (size_t i = 0; i < eg_trace_size(trace) && status == EG_OK; i++) {
        const eg_trace_op *op = eg_trace_at(trace, i);
        eg_layer_cost *layer = layer_of(cost, &known, &capacity, all, eg__trace_module(trace, i));
        if (layer == NULL) {
            status = EG_ENOMEM;
            continue;
        }
        layer->macs += op->macs;
        layer->output = op->output_shape;
    }
    eg__ptr_map_free(&known);
    return status;
}

static eg_status count(eg_module *m, eg_shapes inputs, eg_cost *cost)
{
    eg__inventory all;
    eg_trace *trace = NULL;
    eg_status status = eg__inventory_take(&all, m);
    if (status == EG_OK && (trace = eg_trace_new(m, inputs.items, inputs.n)) == NULL)
        status = eg_error_last()->code;
    if (status == EG_OK) {
        cost->parameters = all.parameters;
        cost->buffers = all.buffers;
        cost->parameter_bytes = all.parameter_bytes;
        cost->buffer_bytes = all.buffer_bytes;
        cost->macs = eg_trace_macs(trace);
        status = add_layers(cost, &all, trace);
    }
    eg_trace_free(trace);
    eg__inventory_free(&all);
    return status;
}

/* ---- memory ---- */

/* A run with nothing behind the addresses: what it takes at once, beside what is there already. */
static eg_status predict_memory(eg_module *m, eg__sample *sample, eg_cost *cost)
{
    size_t before = eg_context_get_stats(m->ctx).bytes_in_use;
    eg__dnnl_forget_packs(m->ctx); /* as it will be afterwards */
    before = EG_MIN(before, eg_context_get_stats(m->ctx).bytes_in_use);
    EG_TRY(eg__dry_begin(m->ctx));
    eg_status status = eg__repeat(m->ctx, 1);
    if (status == EG_OK) {
        status = eg__sample_run(sample, m, NULL, NULL);
        eg__repeat(m->ctx, -1);
    }
    eg__dnnl_forget_packs(m->ctx);
    size_t most = eg__dry_end(m->ctx).in_use;
    cost->peak_bytes = cost->parameter_bytes + cost->buffer_bytes + (most - before);
    return status;
}

/* ---- time ---- */

typedef struct timing {
    eg__sample sample;
    double *seconds; /* of each run */
    size_t n;
} timing;

static eg_status time_run(void *payload, eg_module *root)
{
    timing *t = payload;
    EG_TRY(eg__sample_run(&t->sample, root, NULL, &t->seconds[t->n]));
    t->n++;
    return EG_OK;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void set_latency(eg_cost *cost, timing *t)
{
    qsort(t->seconds, t->n, sizeof(*t->seconds), by_size);
    cost->latency = t->n % 2 == 1 ? t->seconds[t->n / 2] : (t->seconds[t->n / 2 - 1] + t->seconds[t->n / 2]) / 2;
    cost->latency_low = t->seconds[t->n / 10];
    cost->latency_high = t->seconds[t->n - 1 - t->n / 10];
    cost->runs = (int)t->n;
}

/* Models are timed in turns, so that what the machine does meanwhile happens to both. */
static eg_status time_sides(const eg__sides *sides, size_t n, timing timings[2], const eg_cost_options *o)
{
    for (int i = 0; i < o->warmup; i++) {
        for (size_t k = 0; k < n; k++) {
            EG_TRY(eg__side_run(sides, k == 1, time_run, &timings[k]));
            timings[k].n = 0;
        }
    }
    double begin = eg__now();
    for (int i = 0; i < o->repeats && (i < LEAST_RUNS || eg__now() - begin < o->seconds); i++) {
        for (size_t k = 0; k < n; k++)
            EG_TRY(eg__side_run(sides, k == 1, time_run, &timings[k]));
    }
    return EG_OK;
}

static eg_status measure(const eg__sides *sides, size_t n, eg_shapes inputs, eg_cost *costs[2],
                         const eg_cost_options *o)
{
    timing timings[2] = {{.sample = {.shapes = inputs}}, {.sample = {.shapes = inputs}}};
    eg_status status = EG_OK;
    for (size_t k = 0; k < n && status == EG_OK; k++) {
        timings[k].seconds = eg__calloc((size_t)o->repeats + 1, sizeof(double));
        status = timings[k].seconds != NULL ? EG_OK : EG_ENOMEM;
    }
    if (status == EG_OK)
        status = time_sides(sides, n, timings, o);
    for (size_t k = 0; k < n; k++) {
        if (status == EG_OK)
            set_latency(costs[k], &timings[k]);
        free(timings[k].seconds);
    }
    return status;
}

/* ---- both ---- */

typedef struct costing {
    eg_shapes inputs;
    eg_cost *cost;
} costing;

static eg_status cost_of(void *payload, eg_module *root)
{
    const costing *c = payload;
    eg__sample sample = {.shapes = c->inputs};
    EG_TRY(count(root, c->inputs, c->cost));
    c->cost->threads = eg_context_threads(root->ctx);
    return predict_memory(root, &sample, c->cost);
}

static eg_status read_options(const eg_cost_options *given, eg_cost_options *own)
{
    EG_TRY(eg__options_copy(own, sizeof(*own), given));
    own->repeats = own->repeats == 0 ? REPEATS : own->repeats;
    own->warmup = own->warmup == 0 ? WARMUP : own->warmup;
    own->seconds = own->seconds == 0 ? SECONDS : own->seconds;
    EG_CHECK(own->repeats <= MOST_RUNS && own->warmup <= MOST_RUNS, EG_EINVAL,
             "%d runs and %d before them, expected at most %d", own->repeats, own->warmup, MOST_RUNS);
    EG_CHECK(own->seconds > 0, EG_EINVAL, "timing for %g seconds", own->seconds);
    return EG_OK;
}

/* The first n sides. */
static eg_status find_costs(const eg__sides *sides, size_t n, eg_shapes inputs, eg_cost *costs[2],
                            const eg_cost_options *given)
{
    eg_cost_options o;
    EG_TRY(read_options(given, &o));
    EG_CHECK(inputs.items != NULL && inputs.n > 0, EG_EINVAL, "costs need the shapes of the model's inputs");
    for (size_t k = 0; k < n; k++) {
        *costs[k] = (eg_cost){.latency = NAN, .latency_low = NAN, .latency_high = NAN};
        costs[k]->warmup = o.repeats > 0 ? o.warmup : 0;
    }
    for (size_t k = 0; k < n; k++)
        EG_TRY(eg__side_run(sides, k == 1, cost_of, &(costing){inputs, costs[k]}));
    return o.repeats > 0 ? measure(sides, n, inputs, costs, &o) : EG_OK;
}

eg_status eg_model_cost_with(eg_module *model, eg_shapes inputs, eg_cost *out, const eg_cost_options *options)
{
    EG_CHECK(out != NULL, EG_EINVAL, "no place for the result was given");
    *out = (eg_cost){0};
    EG_CHECK(model != NULL, EG_EINVAL, "model is NULL");
    eg_status status = find_costs(&(eg__sides){.models = {model}}, 1, inputs, (eg_cost *[2]){out}, options);
    if (status != EG_OK)
        eg_cost_free(out);
    return status;
}

void eg_cost_free(eg_cost *cost)
{
    if (cost == NULL)
        return;
    for (size_t i = 0; i < cost->n_layers; i++)
        free((char *)(uintptr_t)cost->layers[i].path);
    free(cost->layers);
    *cost = (eg_cost){0};
}

static eg_status compare_sides(const eg__sides *sides, eg_shapes inputs, eg_cost_change *out,
                               const eg_cost_options *options)
{
    eg_status status = find_costs(sides, 2, inputs, (eg_cost *[2]){&out->before, &out->after}, options);
    if (status == EG_OK)
        status = eg__cost_judge(out);
    if (status != EG_OK)
        eg_cost_change_free(out);
    return status;
}

eg_status eg_compare_cost(eg_module *before, eg_module *after, eg_shapes inputs, eg_cost_change *out,
                          const eg_cost_options *options)
{
    EG_CHECK(out != NULL, EG_EINVAL, "no place for the result was given");
    *out = (eg_cost_change){.warning = false};
    EG_CHECK(before != NULL && after != NULL, EG_EINVAL, "a model is NULL");
    return compare_sides(&(eg__sides){.models = {before, after}}, inputs, out, options);
}

eg_status eg_surgery_cost_with(eg_surgery *s, eg_cost_change *out, const eg_cost_options *options)
{
    EG_CHECK(out != NULL, EG_EINVAL, "no place for the result was given");
    *out = (eg_cost_change){.warning = false};
    EG_CHECK(s != NULL, EG_EINVAL, "surgery is NULL");
    EG_CHECK(s->n_inputs > 0, EG_EINVAL, "the surgery was given no shapes of the model's inputs");
    return compare_sides(&(eg__sides){.s = s}, (eg_shapes){s->inputs, s->n_inputs}, out, options);
}

void eg_cost_change_free(eg_cost_change *change)
{
    if (change == NULL)
        return;
    eg_cost_free(&change->before);
    eg_cost_free(&change->after);
    eg_free((char *)(uintptr_t)change->verdict);
    *change = (eg_cost_change){.warning = false};
}

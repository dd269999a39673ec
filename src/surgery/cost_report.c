/*
 * Costs as text and as JSON.
 */
#include "surgery/diff.h"

#include <inttypes.h>
#include <math.h>

/* ---- the verdict ---- */

/* "-43.0 %"; from nothing to something has no number. */
static const char *change_text(double before, double after, char text[32])
{
    if (before == after)
        snprintf(text, 32, "the same");
    else if (before == 0)
        snprintf(text, 32, "from none");
    else
        snprintf(text, 32, "%+.1f %%", 100 * (after / before - 1));
    return text;
}

static const char *time_text(double seconds, char text[32])
{
    if (isnan(seconds))
        snprintf(text, 32, "-");
    else if (seconds < 1e-3)
        snprintf(text, 32, "%.1f us", seconds * 1e6);
    else if (seconds < 1)
        snprintf(text, 32, "%.3f ms", seconds * 1e3);
    else
        snprintf(text, 32, "%.3f s", seconds);
    return text;
}

/* Fewer by two in a hundred at least are worth a word; faster is what is below the fastest tenth of the runs before. */
eg_status eg__cost_judge(eg_cost_change *change)
{
    const eg_cost *a = &change->before, *b = &change->after;
    char macs[32], time[32], before[32], after[32];
    bool fewer = (double)b->macs < 0.98 * (double)a->macs, timed = !isnan(a->latency);
    bool faster = timed && b->latency < a->latency_low;
    change_text((double)a->macs, (double)b->macs, macs);
    change_text(a->latency, b->latency, time);
    time_text(a->latency, before);
    time_text(b->latency, after);
    change->warning = timed && fewer && !faster;
    if (!timed)
        change->verdict = eg__format("multiply-accumulates %s, time not measured", macs);
    else if (change->warning)
        change->verdict = eg__format("multiply-accumulates fall (%s) but time does not: %s before, %s after, %s", macs,
                                     before, after, b->latency > a->latency_high ? "slower" : "within the spread");
    else
        change->verdict = eg__format("multiply-accumulates %s, time %s", macs, time);
    return change->verdict != NULL ? EG_OK : EG_ENOMEM;
}

/* ---- text ---- */

static const char *bytes_text(uint64_t bytes, char text[32])
{
    if (bytes < 1024)
        snprintf(text, 32, "%" PRIu64 " B", bytes);
    else if (bytes < 1 << 20)
        snprintf(text, 32, "%.1f KiB", (double)bytes / 1024);
    else if (bytes < 1 << 30)
        snprintf(text, 32, "%.2f MiB", (double)bytes / (1 << 20));
    else
        snprintf(text, 32, "%.2f GiB", (double)bytes / (1 << 30));
    return text;
}

static void write_layers(const eg_cost *cost, eg__buf *out)
{
    static const char *const heads[] = {"module", "class", "output", "parameters", "MACs", "share"};
    eg__table t = {.numbers = 7u << 3};
    for (size_t i = 0; i < EG_COUNT(heads); i++)
        eg__table_cell(&t, "%s", heads[i]);
    eg__table_end(&t);
    for (size_t i = 0; i < cost->n_layers; i++) {
        const eg_layer_cost *layer = &cost->layers[i];
        char shape[EG_SHAPE_TEXT_SIZE];
        eg__table_cell(&t, "%s", *layer->path != '\0' ? layer->path : "(model)");
        eg__table_cell(&t, "%s", layer->cls);
        eg__table_cell(&t, "%s", eg_shape_format(layer->output, shape, sizeof(shape)));
        eg__table_cell(&t, "%" PRId64, layer->parameters);
        eg__table_cell(&t, "%" PRIu64, layer->macs);
        eg__table_cell(&t, "%.1f %%", cost->macs > 0 ? 100 * (double)layer->macs / (double)cost->macs : 0);
        eg__table_end(&t);
    }
    eg__table_write(&t, out);
}

static void write_runs(const eg_cost *cost, eg__buf *out)
{
    char low[32], high[32];
    if (isnan(cost->latency))
        return;
    eg__buf_printf(out, "%d runs after %d, %d thread%s; first to ninth tenth %s to %s\n", cost->runs, cost->warmup,
                   cost->threads, cost->threads == 1 ? "" : "s", time_text(cost->latency_low, low),
                   time_text(cost->latency_high, high));
}

char *eg_cost_text(const eg_cost *cost)
{
    if (cost == NULL)
        return eg__null(__func__, "cost");
    eg__buf out = {0};
    char text[32];
    write_layers(cost, &out);
    eg__buf_printf(&out, "\nparameters  %" PRId64 " (%s)\n", cost->parameters, bytes_text(cost->parameter_bytes, text));
    eg__buf_printf(&out, "buffers     %" PRId64 " (%s)\n", cost->buffers, bytes_text(cost->buffer_bytes, text));
    eg__buf_printf(&out, "MACs        %" PRIu64 "\n", cost->macs);
    eg__buf_printf(&out, "peak        %s\n", bytes_text(cost->peak_bytes, text));
    if (!isnan(cost->latency))
        eg__buf_printf(&out, "time        %s, ", time_text(cost->latency, text));
    write_runs(cost, &out);
    return eg__buf_take(&out);
}

static void write_row(eg__table *t, const char *what, const char *before, const char *after, double a, double b)
{
    char change[32];
    eg__table_cell(t, "%s", what);
    eg__table_cell(t, "%s", before);
    eg__table_cell(t, "%s", after);
    eg__table_cell(t, "%s", isnan(a) ? "" : change_text(a, b, change));
    eg__table_end(t);
}

static void write_count(eg__table *t, const char *what, uint64_t a, uint64_t b)
{
    char before[32], after[32];
    snprintf(before, sizeof(before), "%" PRIu64, a);
    snprintf(after, sizeof(after), "%" PRIu64, b);
    write_row(t, what, before, after, (double)a, (double)b);
}

static void write_bytes(eg__table *t, const char *what, uint64_t a, uint64_t b)
{
    char before[32], after[32];
    write_row(t, what, bytes_text(a, before), bytes_text(b, after), (double)a, (double)b);
}

char *eg_cost_change_text(const eg_cost_change *change)
{
    if (change == NULL)
        return eg__null(__func__, "change of costs");
    const eg_cost *a = &change->before, *b = &change->after;
    char before[32], after[32];
    eg__buf out = {0};
    eg__table t = {.numbers = 7u << 1};
    write_row(&t, "", "before", "after", NAN, NAN);
    write_count(&t, "parameters", (uint64_t)a->parameters, (uint64_t)b->parameters);
    write_bytes(&t, "their bytes", a->parameter_bytes + a->buffer_bytes, b->parameter_bytes + b->buffer_bytes);
    write_count(&t, "MACs", a->macs, b->macs);
    write_bytes(&t, "peak", a->peak_bytes, b->peak_bytes);
    if (!isnan(a->latency))
        write_row(&t, "time", time_text(a->latency, before), time_text(b->latency, after), a->latency, b->latency);
    eg__table_write(&t, &out);
    write_runs(a, &out);
    eg__buf_printf(&out, "%s%s\n", change->warning ? "warning: " : "", change->verdict != NULL ? change->verdict : "");
    return eg__buf_take(&out);
}

/* ---- JSON ---- */

static eg_status put_count(json_t *o, const char *key, uint64_t value)
{
    return eg__json_put(o, key, json_integer((json_int_t)value));
}

static eg_status put_seconds(json_t *o, const char *key, double value)
{
    return eg__json_put(o, key, isnan(value) ? json_null() : json_real(value));
}

static eg_status fill_layer(json_t *o, const eg_layer_cost *layer)
{
    EG_TRY(eg__json_put(o, "path", eg__json_text_of(layer->path)));
    EG_TRY(eg__json_put(o, "class", eg__json_text_of(layer->cls)));
    EG_TRY(eg__json_put(o, "output", eg__shape_json(&layer->output)));
    EG_TRY(put_count(o, "parameters", (uint64_t)layer->parameters));
    return put_count(o, "macs", layer->macs);
}

static eg_status fill_cost(json_t *o, const eg_cost *cost)
{
    EG_TRY(put_count(o, "parameters", (uint64_t)cost->parameters));
    EG_TRY(put_count(o, "buffers", (uint64_t)cost->buffers));
    EG_TRY(put_count(o, "parameter_bytes", cost->parameter_bytes));
    EG_TRY(put_count(o, "buffer_bytes", cost->buffer_bytes));
    EG_TRY(put_count(o, "macs", cost->macs));
    EG_TRY(put_count(o, "peak_bytes", cost->peak_bytes));
    EG_TRY(put_seconds(o, "latency", cost->latency));
    EG_TRY(put_seconds(o, "latency_low", cost->latency_low));
    EG_TRY(put_seconds(o, "latency_high", cost->latency_high));
    EG_TRY(put_count(o, "runs", (uint64_t)cost->runs));
    EG_TRY(put_count(o, "warmup", (uint64_t)cost->warmup));
    EG_TRY(put_count(o, "threads", (uint64_t)cost->threads));
    json_t *layers = json_array();
    EG_TRY(eg__json_put(o, "layers", layers));
    for (size_t i = 0; i < cost->n_layers; i++) {
        json_t *layer = json_object();
        EG_CHECK(layer != NULL && json_array_append_new(layers, layer) == 0, EG_ENOMEM, "out of memory: costs as JSON");
        EG_TRY(fill_layer(layer, &cost->layers[i]));
    }
    return EG_OK;
}

char *eg_cost_json(const eg_cost *cost)
{
    if (cost == NULL)
        return eg__null(__func__, "cost");
    json_t *o = json_object();
    return eg__json_finish(o, o != NULL ? fill_cost(o, cost) : eg_fail(EG_ENOMEM, "out of memory: costs as JSON"));
}

static eg_status fill_change(json_t *o, const eg_cost_change *change)
{
    json_t *before = json_object(), *after = json_object();
    eg_status status = eg__json_put(o, "before", before);
    if (status != EG_OK) {
        json_decref(after);
        return status;
    }
    EG_TRY(eg__json_put(o, "after", after));
    EG_TRY(fill_cost(before, &change->before));
    EG_TRY(fill_cost(after, &change->after));
    EG_TRY(eg__json_put(o, "verdict", eg__json_text_of(change->verdict)));
    return eg__json_put(o, "warning", json_boolean(change->warning));
}

char *eg_cost_change_json(const eg_cost_change *change)
{
    if (change == NULL)
        return eg__null(__func__, "change of costs");
    json_t *o = json_object();
    return eg__json_finish(o, o != NULL ? fill_change(o, change) : eg_fail(EG_ENOMEM, "out of memory: costs as JSON"));
}

/*
 * The guard of the numbers: outputs before and after, and whether they are as near as was promised.
 */
#include "surgery/diff.h"
#include "surgery/outputs.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

static double number_in(const eg_tensor *t, int64_t at)
{
    const void *data = eg_tensor_data(t);
    switch (t->dtype) {
    case EG_F32:
        return (double)((const float *)data)[at];
    case EG_F64:
        return ((const double *)data)[at];
    case EG_I64:
        return (double)((const int64_t *)data)[at];
    case EG_U8:
        return ((const uint8_t *)data)[at];
    case EG_BF16:
        break;
    }
    uint32_t bits = (uint32_t)((const uint16_t *)data)[at] << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

/* All numbers in logical row-major order. */
static double *numbers_of(const eg_tensor *t)
{
    int64_t n = eg_tensor_numel(t), index[EG_MAX_DIMS] = {0}, at = 0;
    const int64_t *strides = eg_tensor_strides(t);
    double *out = eg__calloc((size_t)n + 1, sizeof(*out));
    for (int64_t i = 0; i < n && out != NULL; i++) {
        out[i] = number_in(t, at);
        for (int d = t->shape.ndim - 1; d >= 0; d--) {
            at += strides[d];
            if (++index[d] < t->shape.dims[d])
                break;
            at -= strides[d] * index[d];
            index[d] = 0;
        }
    }
    return out;
}

/* Floating-point numbers in their order as whole numbers. */
static int64_t rank_of(double value, eg_dtype dtype)
{
    if (dtype == EG_F64) {
        int64_t bits;
        memcpy(&bits, &value, sizeof(bits));
        return bits >= 0 ? bits : INT64_MIN - bits;
    }
    float narrow = (float)value;
    int32_t bits;
    memcpy(&bits, &narrow, sizeof(bits));
    int64_t rank = bits >= 0 ? bits : (int64_t)INT32_MIN - bits;
    return dtype == EG_BF16 ? rank / (1 << 16) : rank;
}

static uint64_t ulps_between(double a, double b, eg_dtype dtype)
{
    int64_t x = rank_of(a, dtype), y = rank_of(b, dtype);
    return x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x;
}

/* ---- comparing ---- */

/* The numbers of one output. */
typedef struct output {
    const double *before, *after;
    size_t n, which;
    eg_dtype dtype;
} output;

static void compare_number(const output *o, size_t i, eg_guard_report *report)
{
    double a = o->before[i], b = o->after[i], difference = fabs(a - b);
    if (a == b || (isnan(a) && isnan(b)))
        return;
    report->n_different++;
    if (!isfinite(a) || !isfinite(b))
        difference = INFINITY;
    else
        report->max_ulps = EG_MAX(report->max_ulps, ulps_between(a, b, o->dtype));
    if (difference > report->max_absolute) {
        report->max_absolute = difference;
        report->worst_output = o->which;
        report->worst_index = i;
    }
}

static void compare_output(const output *o, eg_guard_report *report, bool *finite)
{
    double largest = 0, most = report->max_absolute;
    report->max_absolute = 0;
    for (size_t i = 0; i < o->n; i++) {
        largest = isfinite(o->before[i]) ? fmax(largest, fabs(o->before[i])) : largest;
        *finite = *finite && isfinite(o->after[i]);
    }
    size_t worst[] = {report->worst_output, report->worst_index};
    for (size_t i = 0; i < o->n; i++)
        compare_number(o, i, report);
    double relative = report->max_absolute == 0 ? 0 : largest == 0 ? INFINITY : report->max_absolute / largest;
    report->max_relative = fmax(report->max_relative, relative);
    report->largest = fmax(report->largest, largest);
    if (report->max_absolute <= most) {
        report->max_absolute = most;
        report->worst_output = worst[0];
        report->worst_index = worst[1];
    }
    report->n_numbers += o->n;
}

static size_t largest_in(const double *row, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        best = row[i] > row[best] ? i : best;
    return best;
}

static void compare_decisions(const output *o, const eg_shape *shape, eg_guard_report *report)
{
    size_t columns = (size_t)shape->dims[1];
    if (o->which > 0 || shape->ndim != 2 || columns == 0)
        return;
    report->decisions_changed = 0;
    for (size_t row = 0; row < (size_t)shape->dims[0]; row++)
        report->decisions_changed +=
            largest_in(o->before + row * columns, columns) != largest_in(o->after + row * columns, columns);
}

static eg_status check_shapes(const eg_tensor *a, const eg_tensor *b, size_t i)
{
    char before[EG_SHAPE_TEXT_SIZE], after[EG_SHAPE_TEXT_SIZE];
    eg_shape x = eg_tensor_shape(a), y = eg_tensor_shape(b);
    EG_CHECK(eg_shape_equal(x, y) && eg_is_none(a) == eg_is_none(b), EG_ESHAPE, "output %zu had shape %s, and now %s",
             i, eg_shape_format(x, before, sizeof(before)), eg_shape_format(y, after, sizeof(after)));
    EG_CHECK(eg_tensor_dtype(a) == eg_tensor_dtype(b), EG_EDTYPE, "output %zu had type %s, and now %s", i,
             eg_dtype_name(eg_tensor_dtype(a)), eg_dtype_name(eg_tensor_dtype(b)));
    return EG_OK;
}

static eg_status compare_tensors(const eg_tensor *a, const eg_tensor *b, size_t i, eg_guard_report *report,
                                 bool *finite)
{
    EG_TRY(check_shapes(a, b, i));
    if (eg_is_none(a))
        return EG_OK;
    double *before = numbers_of(a), *after = numbers_of(b);
    output o = {before, after, (size_t)eg_tensor_numel(a), i, a->dtype};
    if (before != NULL && after != NULL) {
        compare_output(&o, report, finite);
        compare_decisions(&o, &a->shape, report);
    }
    eg_status status = before != NULL && after != NULL ? EG_OK : EG_ENOMEM;
    free(before);
    free(after);
    return status;
}

static eg_status compare(const eg_tensor *a, const eg_tensor *b, eg_guard_report *report, bool *finite)
{
    EG_CHECK(eg_tuple_size(b) == report->n_outputs, EG_ESHAPE, "the model had %zu outputs, and now %zu",
             report->n_outputs, eg_tuple_size(b));
    for (size_t i = 0; i < report->n_outputs; i++)
        EG_TRY(compare_tensors(eg_tuple_get(a, i), eg_tuple_get(b, i), i, report, finite));
    return EG_OK;
}

/* ---- running both ---- */

typedef struct guarding {
    eg__sample sample;
    eg_tensor *out;
} guarding;

static eg_status run_side(void *payload, eg_module *root)
{
    guarding *g = payload;
    return eg__sample_run(&g->sample, root, &g->out, NULL);
}

static double default_tolerance(const eg_tensor *out)
{
    return eg_tensor_dtype(eg_tuple_size(out) > 0 ? eg_tuple_get(out, 0) : out) == EG_F64 ? 1e-12 : 1e-5;
}

static void judge(const eg_guard_options *o, const eg_tensor *before, bool finite, eg_guard_report *report)
{
    report->tolerance = o->tolerance != 0 || o->promise == EG_PROMISE_CLOSE ? o->tolerance : default_tolerance(before);
    if (o->promise == EG_PROMISE_TRAINED)
        report->tolerance = INFINITY;
    bool near = report->tolerance < 0 ? report->n_different == 0 : report->max_relative <= report->tolerance;
    report->kept = o->promise == EG_PROMISE_TRAINED ? finite : near;
}

static eg_status fail_broken(const eg_guard_report *r)
{
    if (r->promise == EG_PROMISE_TRAINED)
        return eg_fail(EG_EINVAL, "the outputs after the surgery are not finite");
    return eg_fail(EG_EINVAL,
                   "outputs differ by up to %.3g, %.3g of the largest number, %g was promised: output %zu, number %zu",
                   r->max_absolute, r->max_relative, EG_MAX(r->tolerance, 0), r->worst_output, r->worst_index);
}

static eg_status run_both(const eg__sides *sides, const eg_guard_options *o, eg_shapes shapes, eg_guard_report *report)
{
    guarding g[2];
    eg_status status = EG_OK;
    for (int i = 0; i < 2; i++)
        g[i] = (guarding){.sample = {.shapes = shapes, .given = o->inputs, .n_given = o->n_inputs, .seed = o->seed}};
    for (int i = 0; i < 2 && status == EG_OK; i++) {
        status = eg__side_run(sides, i == 1, run_side, &g[i]);
        report->n_outputs = eg_tuple_size(g[0].out); /* from here on a failure is one of the model after */
    }
    bool finite = true;
    if (status == EG_OK)
        status = compare(g[0].out, g[1].out, report, &finite);
    if (status == EG_OK) {
        judge(o, g[0].out, finite, report);
        status = report->kept ? EG_OK : fail_broken(report);
    }
    eg_tensor_release(g[0].out);
    eg_tensor_release(g[1].out);
    return status;
}

static eg_status guard(const eg__sides *sides, eg_shapes shapes, eg_guard_report *report,
                       const eg_guard_options *options)
{
    eg_guard_options own;
    eg_guard_report unused;
    report = report != NULL ? report : &unused;
    *report = (eg_guard_report){.decisions_changed = -1};
    EG_TRY(eg__options_copy(&own, sizeof(own), options));
    report->promise = own.promise;
    EG_CHECK(own.promise <= EG_PROMISE_TRAINED && !isnan(own.tolerance), EG_EINVAL, "no such promise or tolerance");
    EG_CHECK(own.promise != EG_PROMISE_CLOSE || own.tolerance > 0, EG_EINVAL,
             "tolerance %g: EG_PROMISE_CLOSE has to say how close", own.tolerance);
    EG_CHECK(own.inputs != NULL || (shapes.items != NULL && shapes.n > 0), EG_EINVAL,
             "there is nothing to run the model on: neither inputs nor their shapes were given");
    return run_both(sides, &own, shapes, report);
}

eg_status eg_compare_outputs(eg_module *before, eg_module *after, eg_shapes inputs, eg_guard_report *report,
                             const eg_guard_options *options)
{
    EG_CHECK(before != NULL && after != NULL, EG_EINVAL, "a model is NULL");
    return guard(&(eg__sides){.models = {before, after}}, inputs, report, options);
}

eg_status eg_surgery_guard_with(eg_surgery *s, eg_guard_report *report, const eg_guard_options *options)
{
    EG_CHECK(s != NULL, EG_EINVAL, "surgery is NULL");
    eg_guard_report own;
    report = report != NULL ? report : &own;
    eg_status status = guard(&(eg__sides){.s = s}, (eg_shapes){s->inputs, s->n_inputs}, report, options);
    bool broken = status != EG_OK && report->n_outputs > 0 && !report->kept;
    if (!broken || s->n_batches == 0 || s->n_edits > eg__committed_edits(s))
        return status;
    eg__error_mark mark;
    eg__error_save(&mark);
    if (eg_surgery_undo(s) != EG_OK)
        return eg__fail_prefix(eg_error_last()->code, "a promise was broken, and the surgery cannot be undone");
    eg__error_restore(&mark);
    return status;
}

/* ---- reports ---- */

static const char *promise_name(eg_promise promise)
{
    static const char *const names[] = {"exact", "close", "trained"};
    return (size_t)promise < EG_COUNT(names) ? names[promise] : "unknown";
}

char *eg_guard_text(const eg_guard_report *report)
{
    if (report == NULL)
        return eg__null(__func__, "report");
    const eg_guard_report *r = report;
    eg__buf out = {0};
    eg__buf_printf(&out, "promise '%s' %s: %zu of %zu numbers differ", promise_name(r->promise),
                   r->kept ? "kept" : "broken", r->n_different, r->n_numbers);
    if (r->n_different > 0)
        eg__buf_printf(&out, ", by up to %.3g (%.3g of the largest, %.3g; %" PRIu64 " ulp)", r->max_absolute,
                       r->max_relative, r->largest, r->max_ulps);
    if (isfinite(r->tolerance))
        eg__buf_printf(&out, ", %.3g is allowed", EG_MAX(r->tolerance, 0));
    if (r->decisions_changed >= 0)
        eg__buf_printf(&out, "; %" PRId64 " decision%s changed", r->decisions_changed,
                       r->decisions_changed == 1 ? "" : "s");
    eg__buf_printf(&out, "\n");
    return eg__buf_take(&out);
}

static json_t *number_json(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static eg_status fill_report(json_t *o, const eg_guard_report *r)
{
    EG_TRY(eg__json_put(o, "promise", json_string(promise_name(r->promise))));
    EG_TRY(eg__json_put(o, "kept", json_boolean(r->kept)));
    EG_TRY(eg__json_put(o, "tolerance", number_json(r->tolerance)));
    EG_TRY(eg__json_put(o, "max_absolute", number_json(r->max_absolute)));
    EG_TRY(eg__json_put(o, "max_relative", number_json(r->max_relative)));
    EG_TRY(eg__json_put(o, "max_ulps", json_integer((json_int_t)EG_MIN(r->max_ulps, (uint64_t)INT64_MAX))));
    EG_TRY(eg__json_put(o, "largest", number_json(r->largest)));
    EG_TRY(eg__json_put(o, "outputs", json_integer((json_int_t)r->n_outputs)));
    EG_TRY(eg__json_put(o, "numbers", json_integer((json_int_t)r->n_numbers)));
    EG_TRY(eg__json_put(o, "different", json_integer((json_int_t)r->n_different)));
    return eg__json_put(o, "decisions_changed",
                        r->decisions_changed >= 0 ? json_integer((json_int_t)r->decisions_changed) : json_null());
}

char *eg_guard_json(const eg_guard_report *report)
{
    if (report == NULL)
        return eg__null(__func__, "report");
    json_t *o = json_object();
    return eg__json_finish(o,
                           o != NULL ? fill_report(o, report) : eg_fail(EG_ENOMEM, "out of memory: a report as JSON"));
}

/*
 * Memory: sizes in options, and what training steps will take.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

eg_status check_memory(const char *name)
{
    EG_CHECK(strcmp(name, "normal") == 0 || strcmp(name, "low") == 0, EG_EINVAL,
             "unknown memory '%s', expected 'normal' or 'low'", name);
    return EG_OK;
}

eg_memory memory_of(const char *name)
{
    return strcmp(name, "low") == 0 ? EG_MEMORY_LOW : EG_MEMORY_NORMAL;
}

/* 0 for what is no size. */
static double parse_size(const char *text)
{
    char *end;
    errno = 0;
    double number = strtod(text, &end), unit = 1;
    if (*end == 'K' || *end == 'k')
        unit = 1024;
    else if (*end == 'M' || *end == 'm')
        unit = 1024 * 1024;
    else if (*end == 'G' || *end == 'g')
        unit = 1024 * 1024 * 1024;
    end += unit > 1;
    double size = number * unit;
    return end != text && !*end && errno == 0 && size >= 1 && size < 1e18 ? size : 0;
}

eg_status check_memory_size(const char *text)
{
    EG_CHECK(parse_size(text) > 0, EG_EINVAL,
             "'%s' is no size of memory, expected a number above 0 with K, M or G behind it", text);
    return EG_OK;
}

size_t memory_size(const char *text)
{
    return text ? (size_t)parse_size(text) : 0;
}

/* ---------------------------------------------------------------------------------------------- predictions */

static eg_status add_row(json_t *list, const char *step, const char *memory, size_t batch, const eg_memory_estimate *e)
{
    json_t *row = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "step", step, "memory", memory, "batch",
                            (json_int_t)batch, "parameters", (json_int_t)e->parameters, "gradients",
                            (json_int_t)e->gradients, "optimizer", (json_int_t)e->optimizer, "activations",
                            (json_int_t)e->activations, "total", (json_int_t)e->total);
    return json_array_append_new(list, row) == 0 ? EG_OK : eg_fail(EG_ENOMEM, "no memory for the result");
}

/* n samples of zeros. */
static eg_dataset *make_data(eg_context *ctx, const network_options *network, size_t n)
{
    size_t numel = (size_t)eg_shape_numel(network->input);
    float *data = calloc(n, numel * sizeof *data);
    int64_t *labels = calloc(n, sizeof *labels);
    eg_dataset *set = NULL;
    if (data && labels)
        set = eg_dataset_from_arrays(ctx, data, network->input, labels, n, network->classes);
    else
        eg_fail(EG_ENOMEM, "no memory for %zu samples", n);
    free(data);
    free(labels);
    return set;
}

eg_status predict_search(eg_module *model, const network_options *network, const char *strategy, size_t batch,
                         json_t *list)
{
    eg_dataset *data = make_data(model->ctx, network, 2 * batch);
    eg_search *search =
        data ? eg_search_new(model->ctx, model, data, .strategy = strategy, .epochs = 1, .batch_size = batch) : NULL;
    eg_status status = search ? EG_OK : eg_error_last()->code;
    static const char *const names[] = {"normal", "low"};
    for (size_t i = 0; i < 2 && status == EG_OK; i++) {
        eg_memory_estimate estimate;
        status = eg_search_memory(search, memory_of(names[i]), &estimate);
        if (status == EG_OK)
            status = add_row(list, strategy, names[i], batch, &estimate);
    }
    eg_search_free(search);
    eg_dataset_release(data);
    return status;
}

eg_status predict_retraining(eg_module *model, const network_options *network, size_t batch, json_t *list)
{
    eg_dataset *data = make_data(model->ctx, network, batch);
    eg_trainer *trainer = data ? eg_trainer_new(model->ctx, model, data, .epochs = 1, .batch_size = batch) : NULL;
    eg_memory_estimate estimate;
    eg_status status = trainer ? eg_trainer_memory(trainer, EG_MEMORY_NORMAL, &estimate) : eg_error_last()->code;
    if (status == EG_OK)
        status = add_row(list, "retrain", "normal", batch, &estimate);
    eg_trainer_free(trainer);
    eg_dataset_release(data);
    return status;
}

/* Whether a row is that of '--memory low' where there is nothing to save. */
static bool same_as_normal(const json_t *list, size_t k)
{
    const json_t *row = json_array_get(list, k), *before = k > 0 ? json_array_get(list, k - 1) : NULL;
    return json_equal(json_object_get(row, "step"), json_object_get(before, "step")) &&
           json_equal(json_object_get(row, "total"), json_object_get(before, "total"));
}

void print_memory(const json_t *list)
{
    static const char *const columns[] = {"parameters", "gradients", "optimizer", "activations", "total"};
    printf("%-10s %-8s %6s", "step", "memory", "batch");
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        printf(" %12s", columns[i]);
    putchar('\n');
    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *row = json_array_get(list, k);
        if (same_as_normal(list, k))
            continue;
        printf("%-10s %-8s %6lld", json_string_value(json_object_get(row, "step")),
               json_string_value(json_object_get(row, "memory")),
               (long long)json_integer_value(json_object_get(row, "batch")));
        for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
            printf(" %8.1f MiB", (double)json_integer_value(json_object_get(row, columns[i])) / (1 << 20));
        putchar('\n');
    }
}

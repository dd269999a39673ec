/*
 * Evaluation: a model over a data set, and batch-norm statistics made anew for one path of a supernet.
 */
#include "train/internal.h"

#include <math.h>

/* ---------------------------------------------------------------------------------------------- running over data */

static eg_status run_batch(eg_module *model, eg_loader *loader, size_t batch, eg__output_fn each, void *payload,
                           bool *end)
{
    EG_CHECK(!eg_context_canceled(model->ctx), EG_ECANCELED, "evaluation was canceled");
    eg_batch data;
    EG_TRY(eg_loader_next(loader, &data));
    *end = data.size == 0;
    if (*end)
        return EG_OK;
    eg_tensor *output = eg_call(model, data.x);
    return output ? each(payload, batch, output, &data) : eg_error_last()->code;
}

/* The loop over batches, in whatever modes the modules are. */
static eg_status run_all(eg_module *model, eg_loader *loader, eg__output_fn each, void *payload)
{
    EG_TRY(eg_loader_start(loader, 0, 0));
    eg_status status = EG_OK;
    bool end = false;
    for (size_t batch = 0; status == EG_OK && !end; batch++) {
        eg_tape *scope = eg_tape_begin(model->ctx, EG_NO_GRAD);
        status = scope ? run_batch(model, loader, batch, each, payload, &end) : EG_ENOMEM;
        eg_tape_end(scope);
    }
    return status;
}

eg_status eg__run_over(eg_module *model, eg_loader *loader, eg__output_fn each, void *payload)
{
    eg__modes modes;
    eg_status status = eg__modes_save(&modes, model);
    if (status == EG_OK) {
        eg_module_train(model, false);
        status = run_all(model, loader, each, payload);
    }
    eg__modes_restore(&modes);
    return status;
}

typedef struct hits {
    double sum, n;
} hits;

static eg_status count_hits(void *payload, size_t batch, eg_tensor *output, const eg_batch *data)
{
    (void)batch;
    hits *h = payload;
    double accuracy = eg_accuracy(output, data->y);
    if (isnan(accuracy))
        return eg_error_last()->code;
    h->sum += accuracy * (double)data->size;
    h->n += (double)data->size;
    return EG_OK;
}

eg_status eg__accuracy_over(eg_module *model, eg_loader *loader, double *accuracy)
{
    hits h = {0};
    EG_TRY(eg__run_over(model, loader, count_hits, &h));
    EG_CHECK(h.n > 0, EG_EINVAL, "the data set is empty");
    *accuracy = h.sum / h.n;
    return EG_OK;
}

double eg_evaluate(eg_module *model, eg_dataset *dataset, size_t batch_size)
{
    if (!model || !dataset) {
        eg__null(__func__, model ? "dataset" : "model");
        return (double)NAN;
    }
    eg_loader *loader = eg_loader_new(dataset, batch_size > 0 ? batch_size : 64);
    double accuracy = (double)NAN;
    if (loader && eg__accuracy_over(model, loader, &accuracy) != EG_OK)
        accuracy = (double)NAN;
    eg_loader_free(loader);
    return accuracy;
}

/* ---------------------------------------------------------------------------------------------- batch-norm statistics
 */

typedef struct kept_norm {
    eg_batch_norm2d *norm;
    eg_tensor *mean, *var, *batches; /* copies, kept */
    eg_opt_f64 momentum;
    bool cumulative;
} kept_norm;

struct eg__norm_stats {
    kept_norm *norms;
    size_t n, capacity;
};

static eg_tensor *kept_copy(const eg_tensor *t)
{
    eg_tensor *copy = eg_tensor_copy(t);
    return copy ? eg_tensor_keep(copy) : NULL;
}

static eg_status collect_norm(void *payload, const char *path, eg_module *m)
{
    (void)path;
    eg__norm_stats *stats = payload;
    eg_batch_norm2d *norm = (eg_batch_norm2d *)m;
    if (!eg_is_a(m, &eg_batch_norm2d_class) || norm->no_track_running_stats)
        return EG_OK;
    EG_TRY(eg__grow(&stats->norms, &stats->capacity, stats->n + 1, sizeof *stats->norms));
    kept_norm *kept = &stats->norms[stats->n++];
    *kept = (kept_norm){.norm = norm,
                        .mean = kept_copy(norm->running_mean),
                        .var = kept_copy(norm->running_var),
                        .batches = kept_copy(norm->num_batches_tracked),
                        .momentum = norm->momentum,
                        .cumulative = norm->cumulative};
    return kept->mean && kept->var && kept->batches ? EG_OK : eg_error_last()->code;
}

static void free_stats(eg__norm_stats *stats)
{
    for (size_t i = 0; i < stats->n; i++) {
        eg_tensor_release(stats->norms[i].mean);
        eg_tensor_release(stats->norms[i].var);
        eg_tensor_release(stats->norms[i].batches);
    }
    eg_free(stats->norms);
    eg_free(stats);
}

eg__norm_stats *eg__norm_stats_save(eg_module *model)
{
    eg__norm_stats *stats = eg__calloc(1, sizeof *stats);
    if (stats && eg_module_walk(model, collect_norm, stats) != EG_OK) {
        free_stats(stats);
        return NULL;
    }
    return stats;
}

eg_status eg__norm_stats_restore(eg__norm_stats *stats)
{
    eg_status status = EG_OK;
    for (size_t i = 0; stats && i < stats->n; i++) {
        kept_norm *kept = &stats->norms[i];
        kept->norm->momentum = kept->momentum;
        kept->norm->cumulative = kept->cumulative;
        const eg_tensor *from[] = {kept->mean, kept->var, kept->batches};
        eg_tensor *to[] = {kept->norm->running_mean, kept->norm->running_var, kept->norm->num_batches_tracked};
        for (size_t k = 0; k < EG_COUNT(to); k++) {
            eg_status assigned = eg_tensor_assign(to[k], from[k]);
            status = status == EG_OK ? assigned : status;
        }
    }
    if (stats)
        free_stats(stats);
    return status;
}

/* With momentum 1/n at the n-th batch the running average is the plain one, and whatever was there before is gone. */
static void set_momentum(eg__norm_stats *stats, size_t batch)
{
    for (size_t i = 0; i < stats->n; i++) {
        stats->norms[i].norm->momentum = EG_F64(1.0 / (double)(batch + 1));
        stats->norms[i].norm->cumulative = false;
    }
}

static eg_status next_momentum(void *payload, size_t batch, eg_tensor *output, const eg_batch *data)
{
    (void)output, (void)data;
    set_momentum(payload, batch + 1);
    return EG_OK;
}

eg_status eg__norm_stats_recompute(eg__norm_stats *stats, eg_module *model, eg_loader *loader)
{
    /* only the normalizations run in training mode: dropout would draw random numbers */
    eg__modes modes;
    eg_status status = eg__modes_save(&modes, model);
    if (status == EG_OK) {
        eg_module_train(model, false);
        for (size_t i = 0; i < stats->n; i++)
            eg_module_train(&stats->norms[i].norm->base, true);
        set_momentum(stats, 0);
        status = run_all(model, loader, next_momentum, stats);
    }
    eg__modes_restore(&modes);
    return status;
}

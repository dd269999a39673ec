/*
 * data/loader.c - batches, made in the caller or ahead of time by threads.
 *
 * Threads fill plain buffers in a ring, batch b in slot b mod slots; only the consumer makes tensors. `made`, `taken`
 * and the flags of the slots change under the lock; a slot's buffer belongs to the thread that makes it until it is
 * ready, then to the consumer.
 */
#include "data/internal.h"
#include "tensor/internal.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

typedef struct slot {
    float *x;
    int64_t *y;
    bool ready;
} slot;

typedef struct worker {
    eg_loader *loader;
    pthread_t thread;
    float *sample; /* two samples: one being transformed, one for the transform's use */
} worker;

struct eg_loader {
    eg_dataset *dataset;
    size_t batch_size, n_batches;
    bool shuffle, drop_last;
    uint64_t seed, epoch;
    eg_transform *transforms;
    size_t n_transforms;
    int64_t *order; /* of the epoch's samples */

    worker *workers; /* without threads one, the caller's own */
    size_t n_workers, n_threads;
    slot *slots;
    size_t n_slots;

    pthread_mutex_t lock;
    pthread_cond_t work, progress; /* there is something to make or to stop for; a batch is ready or a thread at rest */
    size_t next, taken;            /* the batches to be made and to be taken next */
    size_t busy;                   /* threads that are making a batch */
    bool started, stop;
};

static size_t batch_length(const eg_loader *l, size_t batch)
{
    return EG_MIN(l->batch_size, l->dataset->n - batch * l->batch_size);
}

static bool is_image(const eg_loader *l)
{
    return l->dataset->shape.ndim == 3;
}

/* ---- making a batch ---- */

static void make_sample(const eg_loader *l, size_t i, float *out, float *sample)
{
    const eg_dataset *dataset = l->dataset;
    if (l->n_transforms == 0) {
        eg__dataset_fill(dataset, i, out, is_image(l));
        return;
    }
    eg_rng rng = eg_rng_make(l->seed, "augment", l->epoch * dataset->n + i);
    eg__dataset_fill(dataset, i, sample, false);
    for (size_t k = 0; k < l->n_transforms; k++) {
        const eg_transform *t = &l->transforms[k];
        t->apply(t->payload ? t->payload : t, sample, dataset->shape, sample + dataset->numel, &rng);
    }
    size_t channels = eg__dataset_channels(dataset);
    eg__to_channels_last(sample, out, channels, dataset->numel / channels);
}

static void make_batch(const eg_loader *l, size_t batch, float *x, int64_t *y, float *sample)
{
    size_t length = batch_length(l, batch);
    for (size_t k = 0; k < length; k++) {
        size_t i = (size_t)l->order[batch * l->batch_size + k];
        make_sample(l, i, x + k * l->dataset->numel, sample);
        y[k] = eg_dataset_label(l->dataset, i);
    }
}

static void *work(void *payload)
{
    worker *w = payload;
    eg_loader *l = w->loader;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->stop && (l->next >= l->n_batches || l->next >= l->taken + l->n_slots))
            pthread_cond_wait(&l->work, &l->lock);
        if (l->stop)
            break;
        size_t batch = l->next++;
        slot *s = &l->slots[batch % l->n_slots];
        l->busy++;
        pthread_mutex_unlock(&l->lock);
        make_batch(l, batch, s->x, s->y, w->sample);
        pthread_mutex_lock(&l->lock);
        l->busy--;
        s->ready = true;
        pthread_cond_signal(&l->progress);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- making and freeing the loader ---- */

static void stop_threads(eg_loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (size_t i = 0; i < l->n_threads; i++)
        pthread_join(l->workers[i].thread, NULL);
}

/* Signals are for the program's own threads. */
static eg_status start_threads(eg_loader *l, size_t n)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = 0;
    while (l->n_threads < n && !failed) {
        failed = pthread_create(&l->workers[l->n_threads].thread, NULL, work, &l->workers[l->n_threads]);
        l->n_threads += !failed;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    char text[EG__ERRNO_TEXT_SIZE];
    EG_CHECK(!failed, EG_ENOMEM, "loader: cannot start a thread: %s", eg__errno_text(failed, text));
    return EG_OK;
}

void eg_loader_free(eg_loader *loader)
{
    if (!loader)
        return;
    stop_threads(loader);
    pthread_mutex_destroy(&loader->lock);
    pthread_cond_destroy(&loader->work);
    pthread_cond_destroy(&loader->progress);
    for (size_t i = 0; loader->workers && i < loader->n_workers; i++)
        free(loader->workers[i].sample);
    for (size_t i = 0; loader->slots && i < loader->n_slots; i++) {
        free(loader->slots[i].x);
        free(loader->slots[i].y);
    }
    free(loader->workers);
    free(loader->slots);
    free(loader->order);
    free(loader->transforms);
    eg_dataset_release(loader->dataset);
    free(loader);
}

static eg_status check_options(const eg_loader_options *o)
{
    EG_CHECK(o->batch_size >= 1, EG_EINVAL, "loader: batch size 0, expected at least 1");
    EG_CHECK(o->workers >= 0 && o->workers <= 1024, EG_EINVAL, "loader: %d workers, expected 0 .. 1024", o->workers);
    EG_CHECK(o->transforms || o->n_transforms == 0, EG_EINVAL, "loader: %zu transforms at NULL", o->n_transforms);
    for (size_t i = 0; i < o->n_transforms; i++)
        EG_TRY(eg__transform_check(&o->transforms[i], o->dataset->shape));
    return EG_OK;
}

static eg_status make_buffers(eg_loader *l, const eg_loader_options *o)
{
    size_t numel = l->dataset->numel, length = EG_MIN(l->batch_size, l->dataset->n);
    l->order = eg__calloc(EG_MAX(l->dataset->n, 1), sizeof *l->order);
    l->transforms = eg__calloc(EG_MAX(l->n_transforms, 1), sizeof *l->transforms);
    l->workers = eg__calloc(l->n_workers, sizeof *l->workers);
    l->slots = eg__calloc(EG_MAX(l->n_slots, 1), sizeof *l->slots);
    if (!l->order || !l->transforms || !l->workers || !l->slots)
        return EG_ENOMEM;
    if (l->n_transforms > 0)
        memcpy(l->transforms, o->transforms, l->n_transforms * sizeof *l->transforms);
    for (size_t i = 0; i < l->n_workers; i++) {
        l->workers[i].loader = l;
        l->workers[i].sample = eg__calloc(numel, 2 * sizeof(float));
        if (!l->workers[i].sample)
            return EG_ENOMEM;
    }
    EG_CHECK(length == 0 || numel <= SIZE_MAX / sizeof(float) / length, EG_EINVAL,
             "loader: a batch of %zu is too large", length);
    for (size_t i = 0; i < l->n_slots; i++) {
        l->slots[i].x = eg__calloc(EG_MAX(length, 1) * numel, sizeof(float));
        l->slots[i].y = eg__calloc(EG_MAX(length, 1), sizeof(int64_t));
        if (!l->slots[i].x || !l->slots[i].y)
            return EG_ENOMEM;
    }
    return EG_OK;
}

static eg_loader *make(const eg_loader_options *options)
{
    if (check_options(options) != EG_OK)
        return NULL;
    eg_loader *l = eg__calloc(1, sizeof *l);
    if (!l)
        return NULL;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->progress, NULL);
    l->dataset = eg_dataset_retain(options->dataset);
    l->batch_size = options->batch_size;
    l->shuffle = options->shuffle;
    l->drop_last = options->drop_last;
    l->seed = options->seed;
    l->n_transforms = options->n_transforms;
    size_t n = l->dataset->n, whole = n / l->batch_size;
    l->n_batches = whole + (!l->drop_last && n % l->batch_size != 0);
    l->next = l->taken = l->n_batches; /* nothing to do until eg_loader_start() */
    l->n_workers = EG_MAX((size_t)options->workers, 1);
    l->n_slots = options->workers > 0 ? (size_t)options->workers + 1 : 0;
    if (make_buffers(l, options) != EG_OK || start_threads(l, (size_t)options->workers) != EG_OK) {
        eg_loader_free(l);
        return NULL;
    }
    return l;
}

eg_loader *eg_loader_new_with(const eg_loader_options *options)
{
    if (!options)
        return eg__null(__func__, "options");
    eg_loader_options own;
    if (eg__options_copy(&own, sizeof own, options) != EG_OK)
        return NULL;
    return own.dataset ? make(&own) : eg__null(__func__, "data set");
}

size_t eg_loader_size(const eg_loader *loader)
{
    return loader ? loader->n_batches : 0;
}

/* ---- using it ---- */

eg_status eg_loader_start(eg_loader *loader, uint64_t epoch, size_t batch)
{
    eg_loader *l = loader;
    if (!l) {
        eg__null(__func__, "loader");
        return eg_error_last()->code;
    }
    EG_CHECK(batch <= l->n_batches, EG_EINVAL, "loader: batch %zu of an epoch of %zu", batch, l->n_batches);
    pthread_mutex_lock(&l->lock);
    l->next = l->n_batches; /* no new work while the old is finished */
    while (l->busy > 0)
        pthread_cond_wait(&l->progress, &l->lock);
    l->epoch = epoch;
    for (size_t i = 0; i < l->dataset->n; i++)
        l->order[i] = (int64_t)i;
    if (l->shuffle) {
        eg_rng rng = eg_rng_make(l->seed, "shuffle", epoch);
        eg_rng_shuffle(&rng, l->order, l->dataset->n);
    }
    for (size_t i = 0; i < l->n_slots; i++)
        l->slots[i].ready = false;
    l->next = l->taken = batch;
    l->started = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    return EG_OK;
}

static slot *wait_for_batch(eg_loader *l)
{
    slot *s = &l->slots[l->taken % l->n_slots];
    pthread_mutex_lock(&l->lock);
    while (!s->ready)
        pthread_cond_wait(&l->progress, &l->lock);
    pthread_mutex_unlock(&l->lock);
    return s;
}

static void finish_batch(eg_loader *l, slot *s)
{
    pthread_mutex_lock(&l->lock);
    if (s)
        s->ready = false;
    l->taken++;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
}

eg_status eg_loader_next(eg_loader *loader, eg_batch *batch)
{
    if (!loader || !batch) {
        eg__null(__func__, loader ? "batch" : "loader");
        return eg_error_last()->code;
    }
    eg_loader *l = loader;
    *batch = (eg_batch){0};
    if (!l->started)
        EG_TRY(eg_loader_start(l, 0, 0));
    if (l->taken >= l->n_batches)
        return EG_OK;
    size_t length = batch_length(l, l->taken);
    eg_shape shape = eg__batch_shape(l->dataset->shape, (int64_t)length);
    eg_tensor *x = eg_empty(l->dataset->ctx, EG_F32, shape, EG_LAYOUT_DEFAULT);
    eg_tensor *y = eg_empty(l->dataset->ctx, EG_I64, EG_SHAPE((int64_t)length), EG_LAYOUT_DEFAULT);
    if (!x || !y)
        return eg_error_last()->code;
    slot *s = NULL;
    if (l->n_threads > 0) {
        s = wait_for_batch(l);
        memcpy(eg__f32(x), s->x, length * l->dataset->numel * sizeof(float));
        memcpy(eg__i64(y), s->y, length * sizeof(int64_t));
    } else {
        make_batch(l, l->taken, eg__f32(x), eg__i64(y), l->workers[0].sample);
    }
    finish_batch(l, s);
    *batch = (eg_batch){.x = x, .y = y, .size = length};
    return EG_OK;
}

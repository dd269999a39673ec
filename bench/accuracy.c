/*
 * bench/accuracy.c - the numbers of one training step, saved for accuracy.py, which holds them against float64.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

typedef struct watcher {
    struct watcher *next;
    eg_state *seen;
    char name[]; /* "output.<path>" */
} watcher;

struct bench_watch {
    eg_state *seen;
    watcher *watchers;
};

static eg_tensor *note_output(void *payload, eg_module *m, eg_tensor *t, bool *failed)
{
    (void)m;
    watcher *w = payload;
    *failed = !eg_is_none(t) && !eg_tensor_is_tuple(t) && eg_state_put(w->seen, w->name, t) != EG_OK;
    return NULL;
}

static eg_status watch_module(void *payload, const char *path, eg_module *m)
{
    bench_watch *watch = payload;
    size_t size = strlen("output.") + strlen(path) + 1;
    watcher *w = malloc(sizeof(*w) + size);
    if (w == NULL)
        return eg_fail(EG_ENOMEM, "no memory to watch '%s'", path);
    w->next = watch->watchers;
    w->seen = watch->seen;
    watch->watchers = w;
    snprintf(w->name, size, "output.%s", path);
    return eg_module_add_hook(m, note_output, w, NULL);
}

bench_watch *bench_watch_begin(eg_module *net)
{
    bench_watch *watch = calloc(1, sizeof(*watch));
    if (watch == NULL)
        return NULL;
    watch->seen = eg_state_new();
    if (watch->seen != NULL && eg_module_walk(net, watch_module, watch) == EG_OK)
        return watch;
    bench_watch_end(watch);
    return NULL;
}

static eg_status note_tensor(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    bench_watch *watch = payload;
    const char *what = kind == EG_SLOT_BUFFER ? "buffer" : "gradient";
    eg_tensor *value = kind == EG_SLOT_BUFFER ? t : eg_tensor_grad(t);
    char name[256];
    snprintf(name, sizeof(name), "%s.%s", what, path);
    return value != NULL ? eg_state_put(watch->seen, name, value) : EG_OK;
}

eg_status bench_watch_save(bench_watch *watch, eg_module *net, const char *path)
{
    EG_TRY(eg_module_walk_tensors(net, note_tensor, watch));
    return eg_safetensors_save(watch->seen, path, NULL);
}

void bench_watch_end(bench_watch *watch)
{
    if (watch == NULL)
        return;
    eg_state_free(watch->seen);
    for (watcher *w = watch->watchers, *next; w != NULL; w = next) {
        next = w->next;
        free(w);
    }
    free(watch);
}

/*
 * What a search looks like while it runs: the graph of the supernet, and the decisions of each step.
 */
#include "train/internal.h"

#include <string.h>
#include <time.h>

/* "logs/<seconds>", new for every training. NULL on failure. */
static char *log_directory(const char *run, const char *directory)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (directory || run)
        return eg__strdup(directory ? directory : run);
    return eg__format("logs/%lld.%06ld", (long long)now.tv_sec, now.tv_nsec / 1000);
}

static eg_status write_graph(const eg__visual *v, eg_mutator *mutator, eg_shape sample)
{
    EG_CHECK(sample.ndim < EG_MAX_DIMS, EG_ESHAPE, "samples have too many dimensions for a batch");
    eg_shape batch = eg__batch_shape(sample, 2);
    char *path = eg__format("%s/graph.json", v->directory);
    eg_graph *graph = path ? eg_mutator_graph(mutator, &batch, 1) : NULL;
    eg_status status = graph ? eg_graph_save(graph, path) : eg_error_last()->code;
    if (status == EG_OK)
        status = eg_graph_save_event(graph, v->directory);
    eg_graph_free(graph);
    eg_free(path);
    return status;
}

eg_status eg__visual_start(eg__visual *v, eg_mutator *mutator, eg_shape sample, const char *run, const char *directory)
{
    EG_CHECK(mutator, EG_EINVAL, "the model has no mutator, so there are no decisions to be shown");
    eg__visual made = {.directory = log_directory(run, directory)};
    made.log = made.directory ? eg__format("%s/log", made.directory) : NULL;
    eg_status status = made.log ? eg__make_directory(made.directory) : EG_ENOMEM;
    if (status == EG_OK)
        status = write_graph(&made, mutator, sample);
    if (status == EG_OK) {
        eg__visual old = *v;
        *v = made;
        made = old;
    }
    eg__visual_free(&made);
    return status;
}

eg_status eg__visual_step(const eg__visual *v, eg_mutator *mutator)
{
    if (!v->log || !mutator)
        return EG_OK;
    char *text = eg_mutator_status(mutator);
    json_t *json = text ? eg__json_parse(text, strlen(text), "status of a mutator") : NULL;
    char *line = json ? json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(9)) : NULL;
    eg_status status = EG_OK;
    if (line)
        status = eg__append_line(v->log, line);
    else
        status = json ? eg_fail(EG_ENOMEM, "no memory for a line of '%s'", v->log) : eg_error_last()->code;
    free(line);
    json_decref(json);
    eg_free(text);
    return status;
}

void eg__visual_free(eg__visual *v)
{
    eg_free(v->directory);
    eg_free(v->log);
    *v = (eg__visual){0};
}

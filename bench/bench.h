/*
 * bench/bench.h - what the benchmark program's families share: arguments, timing, costs.
 *
 *     bench_engraft FAMILY [key=value ...]
 *
 * A family builds what it measures and hands one step of it to bench_measure(). The program prints one JSON line, for
 * run.py, which puts it beside that of the same family in peers/. Keys that all know: threads, steps, warmup.
 */
#ifndef BENCH_H
#define BENCH_H

#include "engraft/engraft.h"

#include <stdio.h>

typedef struct bench {
    int argc; /* key=value */
    char **argv;
    eg_context *ctx;
    int64_t threads;
    double *seconds; /* of each measured step */
    size_t steps;
    double macs, bytes;    /* of the steps whose costs were added */
    double touched;        /* bytes of different memory among those */
    size_t costs;          /* how many */
    int64_t params;        /* of what is trained, to be compared with the peer's */
    char *extra;           /* further members of the JSON line, or NULL; malloc'd */
    eg_context_stats warm; /* the counters after warming up, and at the end */
    eg_context_stats done;
} bench;

/* The value of a key, or `otherwise`. */
int64_t bench_int(const bench *b, const char *key, int64_t otherwise);
const char *bench_text(const bench *b, const char *key, const char *otherwise);

/* Runs `step` warmup + steps times and measures the later ones; `after` (may be NULL) follows each, unmeasured. */
typedef eg_status (*bench_step_fn)(bench *b, void *payload);
eg_status bench_measure(bench *b, bench_step_fn step, bench_step_fn after, void *payload);

/* Times that numbers of a parameter are read or written: in a forward pass; in a training step (read forward and
 * backward, gradient written), with SGD and momentum (parameter, gradient, momentum read, two of them written). */
enum { BENCH_INFERENCE = 1, BENCH_GRADIENTS = 3, BENCH_SGD = 8 };
/* Adds what one step of a network costs at least; see bench.c. */
eg_status bench_add_cost(bench *b, eg_module *net, eg_shape input, int param_passes);

/* The network that `net=` names (mlp, resnet20, mobilenet, lstm), and the shape of its input at `batch=`. */
eg_module *bench_net(bench *b, eg_shape *input);
/* engraft's space "darts" at layers=, channels=, size=. */
eg_module *bench_darts_space(bench *b);
/* A chain of layers with a choice of inverted residuals each, after MobileNetV2. */
eg_module *bench_mobile_space(eg_context *ctx);
/* Replaces each batch norm of a network of bench_net() by scaled weights and biases of the convolution before it. */
eg_status bench_fold(eg_module *net);
/* Keeps the output of every module of a network from now on; NULL on failure. End it after the last call. */
typedef struct bench_watch bench_watch;
bench_watch *bench_watch_begin(eg_module *net);
/* Writes those of the last call as "output.<path>", buffers as "buffer.<name>", gradients as "gradient.<name>". */
eg_status bench_watch_save(bench_watch *watch, eg_module *net, const char *path);
void bench_watch_end(bench_watch *watch);
/* Labels 0, 1, .., classes - 1, 0, .. */
eg_tensor *bench_labels(eg_context *ctx, int64_t batch, int64_t classes);
/* Adds the weights of an architecture to b->params. */
eg_status bench_count_alphas(bench *b, eg_mutator *mutator);

eg_status bench_train(bench *b);
eg_status bench_infer(bench *b);
eg_status bench_darts(bench *b);
eg_status bench_spos(bench *b);
eg_status bench_optimizer(bench *b);
eg_status bench_surgery(bench *b);
eg_status bench_curve(bench *b);

#endif

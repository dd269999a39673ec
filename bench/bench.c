/*
 * bench/bench.c - the driver of the families: arguments, timing, the machine's rates, the JSON line.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *bench_text(const bench *b, const char *key, const char *otherwise)
{
    size_t n = strlen(key);
    for (int i = 0; i < b->argc; i++)
        if (strncmp(b->argv[i], key, n) == 0 && b->argv[i][n] == '=')
            return b->argv[i] + n + 1;
    return otherwise;
}

int64_t bench_int(const bench *b, const char *key, int64_t otherwise)
{
    const char *text = bench_text(b, key, NULL);
    return text != NULL ? strtoll(text, NULL, 10) : otherwise;
}

eg_status bench_measure(bench *b, bench_step_fn step, bench_step_fn after, void *payload)
{
    size_t warmup = (size_t)bench_int(b, "warmup", 2), steps = (size_t)bench_int(b, "steps", 5);
    b->seconds = calloc(steps, sizeof(*b->seconds));
    if (b->seconds == NULL)
        return eg_fail(EG_ENOMEM, "no memory for %zu steps", steps);
    for (size_t i = 0; i < warmup + steps; i++) {
        if (i == warmup)
            b->warm = eg_context_get_stats(b->ctx);
        double start = now();
        EG_TRY(step(b, payload));
        if (i >= warmup)
            b->seconds[b->steps++] = now() - start;
        if (after != NULL)
            EG_TRY(after(b, payload));
    }
    b->done = eg_context_get_stats(b->ctx);
    return EG_OK;
}

/* ---- the least that a step costs ---- */

static bool moves_nothing(const char *op)
{
    /* Views, and what a good engine computes while it writes the operation's input or reads its output. */
    static const char *const free_ops[] = {"reshape", "flatten", "permute", "slice", "relu", "relu6"};
    for (size_t i = 0; i < sizeof(free_ops) / sizeof(*free_ops); i++)
        if (strcmp(op, free_ops[i]) == 0)
            return true;
    return false;
}

/*
 * The model. Operations: the multiply-accumulates of the trace, three times of them in training (forward, the gradient
 * of the input, that of the weight), twice where the input is the batch, which needs no gradient. Bytes: each operation
 * reads its inputs and writes its output once, and twice as much moves backward (it reads inputs and the gradient of
 * the output, and writes the gradients of the inputs); parameters are moved `param_passes` times. What several
 * operations of one pass over memory could share counts as often as it is used, so this is no strict bound; what
 * operations do besides (normalizations need two passes, gradients that meet are added) is not in it.
 */
eg_status bench_add_cost(bench *b, eg_module *net, eg_shape input, int param_passes)
{
    eg_trace *trace = eg_trace_new(net, &input, 1);
    size_t n = eg_trace_size(trace), last = 1;
    for (size_t i = 0; i < n; i++)
        last = eg_trace_at(trace, i)->output > last ? eg_trace_at(trace, i)->output : last;
    double *numel = calloc(last + 1, sizeof(*numel)), moved = 0, written = 0;
    const int passes = param_passes == BENCH_INFERENCE ? 1 : 3;
    if (trace == NULL || numel == NULL) {
        free(numel);
        eg_trace_free(trace);
        return trace == NULL ? eg_error_last()->code : eg_fail(EG_ENOMEM, "no memory for a trace");
    }
    numel[1] = (double)eg_shape_numel(input);
    for (size_t i = 0; i < n; i++) {
        const eg_trace_op *op = eg_trace_at(trace, i);
        numel[op->output] = (double)eg_shape_numel(op->output_shape);
        bool reads_batch = op->n_inputs > 0 && op->inputs[0] == 1;
        b->macs += (passes == 3 && reads_batch ? 2 : passes) * (double)op->macs;
        if (moves_nothing(op->op))
            continue;
        moved += numel[op->output];
        written += numel[op->output];
        for (size_t k = 0; k < op->n_inputs; k++)
            moved += op->inputs[k] <= last ? numel[op->inputs[k]] : 0;
    }
    double params = (double)eg_trace_params(trace);
    b->bytes += sizeof(float) * (passes * moved + (double)param_passes * params);
    b->touched += sizeof(float) * (written + passes * params);
    b->costs++;
    free(numel);
    eg_trace_free(trace);
    return EG_OK;
}

/* ---- what the machine can do: the best of some tries ---- */

enum { TRIES = 5 };
static const double SECONDS = 0.3; /* no further try after so long */

/* Multiply-accumulates a second of a large matrix product. */
static double matrix_rate(eg_context *ctx)
{
    const int64_t n = 1024;
    double best = 1e30, start = now();
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *a = eg_rand(ctx, EG_SHAPE(n, n)), *b = eg_rand(ctx, EG_SHAPE(n, n));
    for (int i = 0; i < TRIES && (i < 2 || now() - start < SECONDS); i++) {
        double begin = now();
        if (eg_matmul(a, b) == NULL)
            break;
        best = now() - begin < best ? now() - begin : best;
    }
    eg_tape_end(tape);
    return (double)(n * n * n) / best;
}

static double triad(float *a, const float *b, const float *c, int64_t n, int threads)
{
    (void)threads;
    double begin = now();
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        a[i] = b[i] + 3.0F * c[i];
    return now() - begin;
}

/* Bytes a second that a = b + 3 c moves, with arrays of `bytes` together, as many as a step touches: one that fits the
 * caches is held against the caches. */
static double copy_rate(double bytes, int threads)
{
    const double smallest = 96 << 10, largest = 384 << 20;
    bytes = bytes < smallest ? smallest : bytes > largest ? largest : bytes;
    int64_t n = (int64_t)(bytes / (3 * sizeof(float)));
    float *memory = calloc(3 * (size_t)n, sizeof(float));
    double best = 1e30, start = now();
    if (memory == NULL)
        return 0;
    for (int i = 0; i < 1000 && (i < 4 || now() - start < SECONDS); i++) {
        /* each array once written by the threads that use it, so that its pages are near them */
        float *a = memory + i % 3 * n, *b = memory + (i + 1) % 3 * n, *c = memory + (i + 2) % 3 * n;
        double seconds = triad(a, b, c, n, threads);
        best = i >= 3 && seconds < best ? seconds : best;
    }
    free(memory);
    return 3.0 * sizeof(float) * (double)n / best;
}

/* ---- the program ---- */

/* The largest resident size since the process started its program. (ru_maxrss begins with that of the parent.) */
static long peak_mb(void)
{
    char line[256];
    long kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    if (f == NULL)
        return 0;
    while (fgets(line, sizeof(line), f) != NULL)
        if (strncmp(line, "VmHWM:", 6) == 0)
            kb = strtol(line + 6, NULL, 10);
    fclose(f);
    return kb / 1024;
}

static void print_result(const bench *b)
{
    long peak = peak_mb(); /* before the rates take memory of their own */
    double costs = b->costs > 0 ? (double)b->costs : 1, bytes = b->bytes / costs, touched = b->touched / costs;
    printf("{\"seconds\": [");
    for (size_t i = 0; i < b->steps; i++)
        printf("%s%.9f", i > 0 ? ", " : "", b->seconds[i]);
    printf("], \"peak_mb\": %ld, \"params\": %lld, \"macs\": %.0f, \"bytes\": %.0f", peak, (long long)b->params,
           b->macs / costs, bytes);
    double one = copy_rate(touched, 1), all = b->threads > 1 ? copy_rate(touched, (int)b->threads) : one;
    printf(", \"macs_rate\": %.4g, \"bytes_rate\": %.4g", matrix_rate(b->ctx), one > all ? one : all);
    printf(", \"primitive_misses\": %llu, \"system_allocations\": %llu",
           (unsigned long long)(b->done.primitive_misses - b->warm.primitive_misses),
           (unsigned long long)(b->done.system_allocations - b->warm.system_allocations));
    printf("%s%s}\n", b->extra != NULL ? ", " : "", b->extra != NULL ? b->extra : "");
}

static const struct family {
    const char *name;
    eg_status (*run)(bench *b);
} families[] = {{"train", bench_train}, {"infer", bench_infer},         {"darts", bench_darts},
                {"spos", bench_spos},   {"optimizer", bench_optimizer}, {"surgery", bench_surgery},
                {"curve", bench_curve}};

int main(int argc, char **argv)
{
    const struct family *family = NULL;
    for (size_t i = 0; argc > 1 && i < sizeof(families) / sizeof(*families); i++)
        if (strcmp(argv[1], families[i].name) == 0)
            family = &families[i];
    if (family == NULL) {
        fprintf(stderr, "usage: %s FAMILY [key=value ...]; see bench/run.py for what there is\n", argv[0]);
        return 2;
    }
    bench b = {.argc = argc - 2, .argv = argv + 2};
    b.threads = bench_int(&b, "threads", 1);
    b.ctx = eg_context_new(.seed = 1, .threads = (int)b.threads);
    bool bf16 = strcmp(bench_text(&b, "precision", "f32"), "bf16") == 0;
    eg_status precision = eg_context_set_precision(b.ctx, bf16 ? EG_BF16 : EG_F32);
    if (precision == EG_EUNSUPPORTED) /* a case that this machine does not have, no failure */
        printf("{\"unsupported\": \"%s\"}\n", eg_error_last()->message), eg_error_clear();
    else if (precision == EG_OK && family->run(&b) == EG_OK && b.steps > 0)
        print_result(&b);
    free(b.seconds);
    free(b.extra);
    return eg_exit_status(b.ctx);
}

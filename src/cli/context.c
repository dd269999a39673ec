/*
 * The context of a command: signals, threads that do not spin, and reports of failures.
 */
#include "cli/cli.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char **program_argv;
static eg_context *volatile running; /* what a signal cancels */

void remember_program(char **argv)
{
    program_argv = argv;
}

int usage_error(const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, name ? "engraft %s: " : "engraft%s: ", name ? name : "");
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return EXIT_USAGE;
}

int report_failure(const char *name)
{
    const eg_error *error = eg_error_first();
    fprintf(stderr, "engraft %s: %s\n", name, *error->message ? error->message : eg_status_name(error->code));
    return EXIT_FAILED;
}

int report_run_failure(const char *name, eg_status status, const char *directory)
{
    if (status != EG_ECANCELED)
        return report_failure(name);
    fprintf(stderr, "engraft %s: stopped; to go on: engraft %s --resume --out %s\n", name, name, directory);
    return EXIT_FAILED;
}

/* OpenMP reads its variables when the program is loaded, so setting one takes a new start. */
static void make_threads_passive(void)
{
    if (getenv("OMP_WAIT_POLICY") || getenv("ENGRAFT_NO_REEXEC") || !program_argv)
        return;
    if (setenv("OMP_WAIT_POLICY", "passive", 1) == 0 && setenv("ENGRAFT_NO_REEXEC", "1", 1) == 0)
        execv("/proc/self/exe", program_argv); /* where it does not work, we go on as we are */
}

static void on_signal(int number)
{
    (void)number;
    eg_context *ctx = running;
    if (ctx)
        eg_context_cancel(ctx);
}

static void on_log(void *payload, eg_log_level level, const char *text)
{
    (void)payload;
    if (level == EG_LOG_WARNING)
        fprintf(stderr, "engraft: warning: %s\n", text);
}

eg_status check_precision(const char *name)
{
    EG_CHECK(strcmp(name, "f32") == 0 || strcmp(name, "bf16") == 0, EG_EINVAL,
             "unknown precision '%s', expected 'f32' or 'bf16'", name);
    return EG_OK;
}

/* Where the processor lacks it, with what to do about that. */
static eg_status set_precision(eg_context *ctx, const char *precision)
{
    eg_dtype dtype = precision && strcmp(precision, "bf16") == 0 ? EG_BF16 : EG_F32;
    eg_status status = eg_context_set_precision(ctx, dtype);
    if (status != EG_EUNSUPPORTED)
        return status;
    char reason[256];
    snprintf(reason, sizeof reason, "%s", eg_error_last()->message);
    eg_error_clear();
    return eg_fail(status, "%s: use --precision f32", reason);
}

eg_context *open_context(int64_t threads, int64_t seed, const char *precision)
{
    make_threads_passive();
    eg_context *ctx = eg_context_new(.seed = (uint64_t)seed, .threads = (int)threads, .log = on_log,
                                     .max_memory = machine_memory("/proc/self/cgroup", "/sys/fs/cgroup"));
    if (!ctx)
        return NULL;
    if (set_precision(ctx, precision) != EG_OK) {
        eg_context_free(ctx);
        return NULL;
    }
    running = ctx;
    /* the second signal has its usual effect: it ends what does not stop by itself */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return ctx;
}

void close_context(eg_context *ctx)
{
    running = NULL;
    eg_context_free(ctx);
}

/*
 * Progress on standard error: a bar on a terminal, a plain line about every five seconds elsewhere.
 */
#include "cli/cli.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BAR_WIDTH 24
#define TERMINAL_SECONDS 0.1
#define PLAIN_SECONDS 5.0

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

double whole_milliseconds(double seconds)
{
    return round(seconds * 1e3) / 1e3;
}

progress progress_start(void)
{
    return (progress){.terminal = isatty(STDERR_FILENO) == 1, .last = seconds_now()};
}

void progress_end(progress *p)
{
    if (p->terminal && p->started)
        fputc('\n', stderr);
    p->started = false;
}

static void print_line(const progress *p, const eg_progress *state, double now)
{
    if (p->terminal)
        fputs("\r\033[K", stderr);
    if (state->epoch >= 0 && state->epoch < state->epochs)
        fprintf(stderr, "epoch %" PRId64 "/%" PRId64 "  ", state->epoch + 1, state->epochs);
    fprintf(stderr, "%s ", state->phase);
    if (p->terminal) {
        char bar[BAR_WIDTH + 1];
        size_t full = state->done * BAR_WIDTH / state->total;
        memset(bar, '.', BAR_WIDTH);
        memset(bar, '#', full);
        bar[BAR_WIDTH] = '\0';
        fprintf(stderr, "[%s] ", bar);
    }
    fprintf(stderr, "%zu/%zu", state->done, state->total);
    for (size_t i = 0; state->meters && i < eg_meter_group_size(state->meters); i++) {
        const char *name;
        const eg_meter *meter = eg_meter_group_at(state->meters, i, &name);
        fprintf(stderr, "  %s %.4f", name, meter->avg);
    }
    if (state->done < state->total && state->done > p->first_done)
        fprintf(stderr, "  %.0f s left",
                (now - p->first) / (double)(state->done - p->first_done) * (double)(state->total - state->done));
    if (!p->terminal)
        fputc('\n', stderr);
    fflush(stderr);
}

void progress_show(void *payload, const eg_progress *state)
{
    progress *p = payload;
    double now = seconds_now();
    if (state->total == 0 || state->done > state->total)
        return;
    if (!p->started || strncmp(p->phase, state->phase, sizeof p->phase - 1) != 0 || p->epoch != state->epoch) {
        progress_end(p);
        p->started = true;
        p->epoch = state->epoch;
        p->first = now;
        p->first_done = state->done;
        snprintf(p->phase, sizeof p->phase, "%s", state->phase);
    }
    bool whole = state->done == state->total;
    bool last = whole && state->epoch + 1 >= state->epochs;
    double pause = p->terminal ? TERMINAL_SECONDS : PLAIN_SECONDS;
    if (now - p->last < pause && !(p->terminal ? whole : last))
        return;
    p->last = now;
    print_line(p, state, now);
}

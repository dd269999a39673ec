/*
 * Progress on standard error: a bar on a terminal, a plain line about every five seconds elsewhere.
 */
#include "cli/cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define BAR_WIDTH 24
#define MIN_BAR_WIDTH 4
#define BAR_FRAME 3 /* brackets and a space */
#define DEFAULT_WIDTH 80
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

static size_t terminal_width(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : DEFAULT_WIDTH;
}

static bool in_epoch(const eg_progress *state)
{
    return state->epoch >= 0 && state->epoch < state->epochs;
}

/* Pieces done in all epochs of the phase. */
static double done_of(const eg_progress *state)
{
    return (double)state->done + (in_epoch(state) ? (double)state->epoch * (double)state->total : 0);
}

static double seconds_left(const progress *p, const eg_progress *state, double now)
{
    double all = (double)state->total * (in_epoch(state) ? (double)state->epochs : 1), done = done_of(state);
    return (now - p->first) / (done - p->first_done) * (all - done);
}

typedef struct line {
    char text[512];
    size_t used;
} line;

static EG_PRINTF(2, 3) void add(line *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(l->text + l->used, sizeof l->text - l->used, format, args);
    va_end(args);
    l->used = n < 0 ? l->used : l->used + (size_t)n < sizeof l->text ? l->used + (size_t)n : sizeof l->text - 1;
}

/* What stands before the bar, and after it. */
static void describe(const progress *p, const eg_progress *state, double now, line *head, line *tail)
{
    if (in_epoch(state))
        add(head, "epoch %" PRId64 "/%" PRId64 "  ", state->epoch + 1, state->epochs);
    add(head, "%s ", state->phase);
    add(tail, "%zu/%zu", state->done, state->total);
    for (size_t i = 0; state->meters && i < eg_meter_group_size(state->meters); i++) {
        const char *name;
        const eg_meter *meter = eg_meter_group_at(state->meters, i, &name);
        add(tail, "  %s %.4f", name, meter->avg);
    }
    double left = done_of(state) > p->first_done ? seconds_left(p, state, now) : 0;
    if (left > 0)
        add(tail, "  %.0f s left", left);
}

/* At most `room` columns with its frame; nothing where that is too narrow. */
static void add_bar(line *l, const eg_progress *state, size_t room)
{
    if (room < MIN_BAR_WIDTH + BAR_FRAME)
        return;
    char bar[BAR_WIDTH + 1];
    size_t length = room - BAR_FRAME < BAR_WIDTH ? room - BAR_FRAME : BAR_WIDTH;
    memset(bar, '.', length);
    memset(bar, '#', state->done * length / state->total);
    bar[length] = '\0';
    add(l, "[%s] ", bar);
}

static void print_line(const progress *p, const eg_progress *state, double now)
{
    line head = {.used = 0}, tail = {.used = 0};
    describe(p, state, now, &head, &tail);
    if (p->terminal) { /* a line that wraps could not be drawn over; in the last column it may wrap too */
        size_t width = terminal_width() - 1, used = head.used + tail.used;
        add_bar(&head, state, width > used ? width - used : 0);
        add(&head, "%s", tail.text);
        fprintf(stderr, "\r\033[K%.*s", (int)width, head.text);
    } else {
        fprintf(stderr, "%s%s\n", head.text, tail.text);
    }
    fflush(stderr);
}

void progress_show(void *payload, const eg_progress *state)
{
    progress *p = payload;
    double now = seconds_now();
    if (state->total == 0 || state->done > state->total)
        return;
    bool same_phase = p->phase[0] && strncmp(p->phase, state->phase, sizeof p->phase - 1) == 0;
    if (!p->started || !same_phase || p->epoch != state->epoch) {
        progress_end(p);
        p->started = true;
        p->epoch = state->epoch;
    }
    if (!same_phase) {
        p->first = now;
        p->first_done = done_of(state);
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

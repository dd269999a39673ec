/*
 * tests/nas/semantics.h - tables that hold the library against the classic interface, row by row. Each row is a test:
 * it does something with its input and writes down what came out.
 */
#ifndef EG_TESTS_NAS_SEMANTICS_H
#define EG_TESTS_NAS_SEMANTICS_H

#include "nas/toy.h"

typedef struct outcome {
    char text[2000];
    size_t len;
} outcome;

static inline void say(outcome *o, const char *format, ...) EG_PRINTF(2, 3);
static inline void say(outcome *o, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(o->text + o->len, sizeof o->text - o->len, format, args);
    va_end(args);
    assert_true(n >= 0 && o->len + (size_t)n < sizeof o->text);
    o->len += (size_t)n;
}

/* What failed last, or `good`. Clears the record. */
static inline void say_status(outcome *o, eg_status status, const char *good)
{
    if (status == EG_OK)
        say(o, "%s", good);
    else
        say(o, "!%s: %s", eg_status_name(status), eg_error_first()->message);
    eg_error_clear();
}

/* SAME: as in the reference, where an exception is a failure here. BETTER: docs/design/nas.md says what differs. */
typedef enum verdict { SAME, BETTER } verdict;

/* `expected` is the outcome; with "!" at its start the outcome is a failure of which that is a part. */
typedef struct row {
    const char *topic, *what;
    verdict verdict;
    void (*run)(eg_context *ctx, const char *input, outcome *o);
    const char *input, *expected;
} row;

static inline void run_row(void **state)
{
    const row *r = *state;
    eg_context *ctx = eg_context_new(.seed = 1, .threads = 1);
    assert_made(ctx);
    outcome o = {.len = 0};
    r->run(ctx, r->input, &o);
    eg_context_free(ctx);
    bool good = r->expected[0] == '!' ? o.text[0] == '!' && strstr(o.text, r->expected + 1) != NULL
                                      : strcmp(o.text, r->expected) == 0;
    if (!good)
        fail_msg("%s %s (%s): \"%s\", expected \"%s\"", r->topic, r->what, r->verdict == SAME ? "same" : "better",
                 o.text, r->expected);
}

static inline int run_rows(const char *name, const row *rows, size_t n)
{
    struct CMUnitTest *tests = calloc(n, sizeof *tests);
    char(*names)[160] = calloc(n, sizeof *names);
    if (tests == NULL || names == NULL)
        return 1;
    for (size_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "%s %s", rows[i].topic, rows[i].what);
        tests[i] =
            (struct CMUnitTest){.name = names[i], .test_func = run_row, .initial_state = (void *)(uintptr_t)&rows[i]};
    }
    int failed = _cmocka_run_group_tests(name, tests, n, NULL, NULL);
    free(tests);
    free(names);
    return failed;
}

/* ---- what rows write ---- */

/* A tensor, a tuple or nothing: "1 10", "(1, 10)", "none". */
static inline void say_tensor(outcome *o, const eg_tensor *t)
{
    if (t == NULL) {
        say_status(o, eg_error_first()->code, "");
        return;
    }
    if (eg_is_none(t)) {
        say(o, "none");
        return;
    }
    if (eg_tensor_is_tuple(t)) {
        say(o, "(");
        for (size_t i = 0; i < eg_tuple_size(t); i++) {
            say(o, "%s", i > 0 ? ", " : "");
            say_tensor(o, eg_tuple_get(t, i));
        }
        say(o, ")");
        return;
    }
    float values[64];
    size_t n = (size_t)eg_tensor_numel(t);
    assert_true(n <= 64);
    assert_ok(eg_tensor_read(t, values, n));
    for (size_t i = 0; i < n; i++)
        say(o, "%s%g", i > 0 ? " " : "", (double)values[i]);
}

static inline void say_names(outcome *o, const eg_module *choice)
{
    for (size_t i = 0; i < eg_layer_choice_size(choice); i++)
        say(o, "%s%s", i > 0 ? "," : "", eg_layer_choice_name(choice, i));
}

/* JSON without its line breaks and spaces. */
static inline void say_json(outcome *o, char *text)
{
    assert_made(text);
    for (const char *c = text; *c != '\0'; c++) {
        if (*c != ' ' && *c != '\n')
            say(o, "%c", *c);
    }
    eg_free(text);
}

static inline void say_arch(outcome *o, eg_arch *arch)
{
    if (arch == NULL)
        say_status(o, eg_error_first()->code, "");
    else
        say_json(o, eg_arch_text(arch));
    eg_arch_free(arch);
}

/* What a module makes of ones of shape (1, 2). */
static inline void say_run(outcome *o, eg_module *m)
{
    eg_tape *tape = eg_tape_begin(m->ctx, EG_NO_GRAD);
    say_tensor(o, eg_call(m, eg_ones(m->ctx, EG_SHAPE(1, 2))));
    eg_tape_end(tape);
}

#endif

/*
 * data/csv.c - tables of numbers in text: one sample a line, label last.
 */
#include "data/internal.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEST_EVERY = 5, MOST_CLASSES = 65536 };

/* One walk over the text: where we are, and what has been read. */
typedef struct reader {
    const char *at, *end, *path;
    size_t line;
    size_t values_capacity, labels_capacity;
    eg__csv *csv;
} reader;

static bool at_line_end(const char *at, const char *end)
{
    return at == end || *at == '\n' || (*at == '\r' && (at + 1 == end || at[1] == '\n'));
}

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    return at;
}

/* The number at `at`, perhaps in quotes, and what follows it; false when the field is not a number and nothing else.
 * strtod() reads more than decimal numbers: "0x10", "nan". */
static bool read_number(const char **at, const char *end, double *value, bool *decimal)
{
    const char *start = skip_blanks(*at, end);
    bool quoted = start < end && *start == '"';
    start = skip_blanks(start + quoted, end);
    if (at_line_end(start, end))
        return false;
    char *stop;
    *value = strtod(start, &stop);
    if (stop == start)
        return false;
    *decimal = strspn(start, "0123456789+-.eE") == (size_t)(stop - start);
    const char *next = skip_blanks(stop, end);
    if (quoted) {
        if (next == end || *next != '"')
            return false;
        next = skip_blanks(next + 1, end);
    }
    *at = next;
    return at_line_end(next, end) || *next == ',';
}

static void next_line(reader *r)
{
    const char *newline = memchr(r->at, '\n', (size_t)(r->end - r->at));
    r->at = newline ? newline + 1 : r->end;
    r->line++;
}

/* A line without any number is a header. */
static bool is_header(const reader *r)
{
    const char *at = r->at;
    for (;;) {
        double value;
        bool decimal;
        const char *field = at;
        if (read_number(&field, r->end, &value, &decimal))
            return false;
        while (!at_line_end(at, r->end) && *at != ',')
            at++;
        if (at_line_end(at, r->end))
            return true;
        at++;
    }
}

static eg_status add_value(reader *r, size_t field, double value)
{
    eg__csv *csv = r->csv;
    EG_CHECK(fabs(value) <= 3.4028234663852886e38, EG_EFORMAT, "'%s': line %zu, field %zu: %g is outside of float32",
             r->path, r->line, field, value);
    size_t used = csv->rows * csv->columns + field - 1;
    EG_TRY(eg__grow(&csv->values, &r->values_capacity, used + 1, sizeof *csv->values));
    csv->values[used] = (float)value;
    return EG_OK;
}

static eg_status add_label(reader *r, double value)
{
    eg__csv *csv = r->csv;
    EG_CHECK(value >= 0 && value < MOST_CLASSES && value == floor(value), EG_EFORMAT,
             "'%s': line %zu: label %g, expected a class 0 .. %d", r->path, r->line, value, MOST_CLASSES - 1);
    EG_TRY(eg__grow(&csv->labels, &r->labels_capacity, csv->rows + 1, sizeof *csv->labels));
    csv->labels[csv->rows] = (int64_t)value;
    csv->classes = EG_MAX(csv->classes, (int64_t)value + 1);
    return EG_OK;
}

static eg_status read_row(reader *r)
{
    eg__csv *csv = r->csv;
    for (size_t field = 1;; field++) {
        double value;
        bool decimal;
        const char *start = skip_blanks(r->at, r->end);
        int length = 0;
        while (length < 40 && !at_line_end(start + length, r->end) && start[length] != ',')
            length++;
        EG_CHECK(read_number(&r->at, r->end, &value, &decimal) && decimal, EG_EFORMAT,
                 "'%s': line %zu, field %zu: '%.*s' is not a decimal number", r->path, r->line, field, length, start);
        bool last = at_line_end(r->at, r->end);
        if (last && csv->rows == 0)
            csv->columns = field - 1;
        EG_CHECK(!last || (field > 1 && field - 1 == csv->columns), EG_EFORMAT,
                 "'%s': line %zu has %zu fields, expected %zu", r->path, r->line, field,
                 csv->rows == 0 ? 2 : csv->columns + 1);
        EG_CHECK(last || csv->rows == 0 || field <= csv->columns, EG_EFORMAT, "'%s': line %zu has more than %zu fields",
                 r->path, r->line, csv->columns + 1);
        if (last) {
            EG_TRY(add_label(r, value));
            csv->rows++;
            return EG_OK;
        }
        EG_TRY(add_value(r, field, value));
        r->at++; /* the comma */
    }
}

static eg_status read_rows(reader *r)
{
    if (r->end - r->at >= 3 && memcmp(r->at, "\xef\xbb\xbf", 3) == 0) /* byte order mark */
        r->at += 3;
    for (bool first = true; r->at < r->end; next_line(r)) {
        if (at_line_end(skip_blanks(r->at, r->end), r->end))
            continue;
        if (!first || !is_header(r))
            EG_TRY(read_row(r));
        first = false;
    }
    EG_CHECK(r->csv->rows > 0, EG_EFORMAT, "'%s': has no rows, expected numbers separated by commas, label last",
             r->path);
    return EG_OK;
}

eg_status eg__csv_parse(const char *text, size_t size, const char *path, eg__csv *csv)
{
    *csv = (eg__csv){0};
    /* strtod() reads the decimal point of the locale; ours is a point wherever the program runs. */
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    EG_CHECK(plain != (locale_t)0, EG_ENOMEM, "'%s': cannot make a locale", path);
    locale_t before = uselocale(plain);
    eg_status status = read_rows(&(reader){.at = text, .end = text + size, .path = path, .line = 1, .csv = csv});
    uselocale(before);
    freelocale(plain);
    if (status != EG_OK)
        eg__csv_free(csv);
    return status;
}

void eg__csv_free(eg__csv *csv)
{
    free(csv->values);
    free(csv->labels);
    *csv = (eg__csv){0};
}

/* ---- the data set ---- */

static bool is_test(size_t row)
{
    return row % TEST_EVERY == TEST_EVERY - 1;
}

/* Each column minus its mean, over its deviation, both of the training rows. */
static void normalize(eg__csv *csv)
{
    for (size_t c = 0; c < csv->columns; c++) {
        double n = 0, sum = 0, squares = 0;
        for (size_t i = 0; i < csv->rows; i++)
            if (!is_test(i)) {
                sum += csv->values[i * csv->columns + c];
                n++;
            }
        double mean = sum / n;
        for (size_t i = 0; i < csv->rows; i++)
            if (!is_test(i))
                squares += pow(csv->values[i * csv->columns + c] - mean, 2);
        double deviation = sqrt(squares / n);
        for (size_t i = 0; i < csv->rows; i++) {
            float *value = &csv->values[i * csv->columns + c];
            *value = (float)((*value - mean) / (deviation > 0 ? deviation : 1));
        }
    }
}

static eg_dataset *take_split(const eg_dataset_options *options, const eg__csv *csv)
{
    bool test = options->split == EG_TEST;
    size_t n_test = csv->rows / TEST_EVERY, n = test ? n_test : csv->rows - n_test;
    eg_dataset *dataset = eg__dataset_new(options->ctx, EG_SHAPE((int64_t)csv->columns), n, csv->classes);
    if (!dataset)
        return NULL;
    dataset->values = eg__calloc(n * csv->columns, sizeof *dataset->values);
    dataset->labels = eg__calloc(n, sizeof *dataset->labels);
    if (!dataset->values || !dataset->labels) {
        eg_dataset_release(dataset);
        return NULL;
    }
    for (size_t i = 0, k = 0; i < csv->rows; i++)
        if (is_test(i) == test) {
            memcpy(dataset->values + k * csv->columns, csv->values + i * csv->columns,
                   csv->columns * sizeof *dataset->values);
            dataset->labels[k++] = csv->labels[i];
        }
    return dataset;
}

eg_dataset *eg__open_csv(const eg_dataset_options *options, const char *path)
{
    char *text;
    size_t size;
    eg__csv csv;
    if (eg__file_read(path, 0, &text, &size) != EG_OK)
        return NULL;
    eg_status status = eg__csv_parse(text, size, path, &csv);
    eg_free(text);
    if (status != EG_OK)
        return NULL;
    eg_dataset *dataset = NULL;
    if (csv.rows < TEST_EVERY)
        eg_fail(EG_EFORMAT, "'%s': has %zu rows, expected at least %d: each fifth is for testing", path, csv.rows,
                TEST_EVERY);
    else {
        if (!options->normalize_off)
            normalize(&csv);
        dataset = take_split(options, &csv);
    }
    eg__csv_free(&csv);
    return dataset;
}

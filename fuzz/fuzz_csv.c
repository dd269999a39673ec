/*
 * fuzz/fuzz_csv.c - any text as a table.
 */
#include "data/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        abort();
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    eg__csv csv;
    eg_error_clear();
    eg_status status = eg__csv_parse(text, size, "fuzz", &csv);
    if (status != eg_error_last()->code)
        abort();
    for (size_t i = 0; status == EG_OK && i < csv.rows; i++) {
        if (csv.labels[i] < 0 || csv.labels[i] >= csv.classes)
            abort();
        for (size_t c = 0; c < csv.columns; c++)
            if (!isfinite(csv.values[i * csv.columns + c]))
                abort();
    }
    if (status == EG_OK)
        eg__csv_free(&csv);
    free(text);
    return 0;
}

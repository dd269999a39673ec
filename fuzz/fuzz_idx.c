/*
 * fuzz/fuzz_idx.c - any bytes as an idx file, plain or compressed; the first byte says whether of images or of labels.
 */
#include "data/internal.h"
#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    char path[64];
    int descriptor, ndim = data[0] & 1 ? 1 : 3;
    eg__input input;
    eg__idx idx = {0};
    eg_error_clear();
    eg_status status = eg__input_open(&input, scratch_file(data + 1, size - 1, path, &descriptor));
    if (status == EG_OK)
        status = eg__idx_read(&input, ndim, &idx);
    if (status != eg_error_last()->code || (status == EG_OK) != (idx.data != NULL))
        abort();
    unsigned sum = 0; /* every byte that the sizes promise is there */
    for (size_t i = 0; idx.data && i < idx.dims[0] * (ndim == 3 ? idx.dims[1] * idx.dims[2] : 1); i++)
        sum += idx.data[i];
    volatile unsigned used = sum;
    (void)used;
    free(idx.data);
    eg__input_close(&input);
    close(descriptor);
    return 0;
}

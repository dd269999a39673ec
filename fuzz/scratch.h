/*
 * fuzz/scratch.h - the fuzzer's bytes as a file: the readers under test take paths, so that reading itself is tested
 * too.
 */
#ifndef EG_FUZZ_SCRATCH_H
#define EG_FUZZ_SCRATCH_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/** The path of a file, removed already, that holds the bytes; it lives as long as *descriptor is open. */
static inline const char *scratch_file(const uint8_t *data, size_t size, char path[64], int *descriptor)
{
    char name[] = "/tmp/engraft-fuzz-XXXXXX";
    *descriptor = mkstemp(name);
    if (*descriptor < 0 || write(*descriptor, data, size) != (ssize_t)size)
        abort();
    unlink(name);
    snprintf(path, 64, "/proc/self/fd/%d", *descriptor);
    return path;
}

#endif

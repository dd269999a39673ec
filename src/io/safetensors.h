/*
 * io/safetensors.h - the parts of the format that reading and writing share.
 *
 * 8 bytes: length of the header, little-endian; the header: a JSON object {name: {"dtype", "shape", "data_offsets"}};
 * the numbers, little-endian and row-major, without gaps.
 */
#ifndef EG_IO_SAFETENSORS_H
#define EG_IO_SAFETENSORS_H

#include "base/internal.h"
#include "engraft/io.h"
#include "tensor/internal.h"

enum { EG__SAFETENSORS_LENGTH = 8 };
/** The reference implementation's limit. */
#define EG__SAFETENSORS_MAX_HEADER ((size_t)100000000)

/** A number type in files: how many bytes it has, which type it becomes, and how n of them are converted to that. */
typedef struct eg__file_type {
    const char *name;
    size_t size;
    eg_dtype dtype;
    bool written; /* the type that is written for dtype */
    eg_status (*decode)(const uint8_t *from, void *to, size_t n);
} eg__file_type;

/** NULL when there is none (no failure). */
const eg__file_type *eg__file_type_find(const char *name);
const eg__file_type *eg__file_type_of(eg_dtype dtype);
/** The names of all types, in one text. */
extern const char eg__file_type_names[];
/** n numbers of `size` bytes each, between memory and little-endian. */
void eg__encode(const void *from, uint8_t *to, size_t n, size_t size);

uint64_t eg__little_endian(const uint8_t *bytes, size_t size);

#endif

/*
 * io/types.c - number types of files, byte by byte, so that the order of the machine does not matter.
 */
#include "io/safetensors.h"

#include <string.h>

uint64_t eg__little_endian(const uint8_t *bytes, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

void eg__encode(const void *from, uint8_t *to, size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t value = 0;
        if (size == 8) {
            memcpy(&value, (const uint8_t *)from + 8 * i, 8);
        } else if (size == 4) {
            uint32_t word;
            memcpy(&word, (const uint8_t *)from + 4 * i, 4);
            value = word;
        } else if (size == 2) {
            value = ((const uint16_t *)from)[i];
        } else {
            value = ((const uint8_t *)from)[i];
        }
        for (size_t b = 0; b < size; b++)
            to[i * size + b] = (uint8_t)(value >> (8 * b));
    }
}

static eg_status decode_8(const uint8_t *from, void *to, size_t n)
{
    memcpy(to, from, n);
    return EG_OK;
}

static eg_status decode_32(const uint8_t *from, void *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t value = (uint32_t)eg__little_endian(from + 4 * i, 4);
        memcpy((uint8_t *)to + 4 * i, &value, 4);
    }
    return EG_OK;
}

static eg_status decode_64(const uint8_t *from, void *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t value = eg__little_endian(from + 8 * i, 8);
        memcpy((uint8_t *)to + 8 * i, &value, 8);
    }
    return EG_OK;
}

static eg_status decode_bf16(const uint8_t *from, void *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)eg__little_endian(from + 2 * i, 2) << 16;
        memcpy((uint8_t *)to + 4 * i, &bits, 4);
    }
    return EG_OK;
}

/* IEEE 754 half precision to single: exact. */
static uint32_t half_to_single(uint32_t half)
{
    uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
    if (exponent == 0x1f) /* infinity, not a number */
        return sign | 0x7f800000u | fraction << 13;
    if (exponent == 0) {
        if (fraction == 0)
            return sign;
        exponent = 1;
        while (!(fraction & 0x400)) { /* subnormal: the single has room to normalize it */
            fraction <<= 1;
            exponent--; /* may wrap below 0: the sum below is modulo 2^32 and comes out right */
        }
        fraction &= 0x3ff;
    }
    return sign | (exponent + 127 - 15) << 23 | fraction << 13;
}

static eg_status decode_f16(const uint8_t *from, void *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = half_to_single((uint32_t)eg__little_endian(from + 2 * i, 2));
        memcpy((uint8_t *)to + 4 * i, &bits, 4);
    }
    return EG_OK;
}

/* Unsigned numbers of any size; with `sign`, the top bit counts negative. */
static eg_status decode_integers(const uint8_t *from, void *to, size_t n, size_t size, bool is_signed)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t value = eg__little_endian(from + size * i, size), top = (uint64_t)1 << (8 * size - 1);
        EG_CHECK(size < 8 || is_signed || value <= INT64_MAX, EG_EFORMAT, "holds %llu, expected at most %lld",
                 (unsigned long long)value, (long long)INT64_MAX);
        int64_t number =
            is_signed && (value & top) ? (int64_t)(value & (top - 1)) - (int64_t)(top - 1) - 1 : (int64_t)value;
        ((int64_t *)to)[i] = number;
    }
    return EG_OK;
}

#define INTEGER_DECODER(name, size, is_signed)                                                                         \
    static eg_status decode_##name(const uint8_t *from, void *to, size_t n)                                            \
    {                                                                                                                  \
        return decode_integers(from, to, n, size, is_signed);                                                          \
    }
INTEGER_DECODER(i8, 1, true)
INTEGER_DECODER(i16, 2, true)
INTEGER_DECODER(i32, 4, true)
INTEGER_DECODER(u16, 2, false)
INTEGER_DECODER(u32, 4, false)
INTEGER_DECODER(u64, 8, false)
INTEGER_DECODER(bool, 1, false)

static const eg__file_type types[] = {{"F32", 4, EG_F32, true, decode_32},    {"F64", 8, EG_F64, true, decode_64},
                                      {"I64", 8, EG_I64, true, decode_64},    {"U8", 1, EG_U8, true, decode_8},
                                      {"F16", 2, EG_F32, false, decode_f16},  {"BF16", 2, EG_F32, false, decode_bf16},
                                      {"BF16", 2, EG_BF16, true, NULL}, /* written as it is, read as float32 */
                                      {"I32", 4, EG_I64, false, decode_i32},  {"I16", 2, EG_I64, false, decode_i16},
                                      {"I8", 1, EG_I64, false, decode_i8},    {"U64", 8, EG_I64, false, decode_u64},
                                      {"U32", 4, EG_I64, false, decode_u32},  {"U16", 2, EG_I64, false, decode_u16},
                                      {"BOOL", 1, EG_I64, false, decode_bool}};

const char eg__file_type_names[] = "F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8 or BOOL";

const eg__file_type *eg__file_type_find(const char *name)
{
    for (size_t i = 0; i < EG_COUNT(types); i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

const eg__file_type *eg__file_type_of(eg_dtype dtype)
{
    for (size_t i = 0; i < EG_COUNT(types); i++)
        if (types[i].dtype == dtype && types[i].written)
            return &types[i];
    return NULL;
}

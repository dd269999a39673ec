/*
 * base/rng.c - counter-based random numbers: Philox 4x32-10 (Salmon et al., SC 2011).
 *
 * Counter = (block, stream), key = seed; a block gives the four words 4 * block .. 4 * block + 3 of the stream.
 */
#include "base/internal.h"

#include <math.h>
#include <string.h>

void eg__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = UINT64_C(0xD2511F53) * c0, p1 = UINT64_C(0xCD9E8D57) * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += UINT32_C(0x9E3779B9);
        k1 += UINT32_C(0xBB67AE85);
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

eg_rng eg_rng_make(uint64_t seed, const char *purpose, uint64_t index)
{
    uint64_t stream = eg__hash(purpose ? purpose : "", purpose ? strlen(purpose) : 0, index);
    return (eg_rng){.seed = seed, .stream = stream, .position = 0};
}

void eg__rng_take(eg_rng *rng, uint32_t *words, size_t n)
{
    uint32_t key[2] = {(uint32_t)rng->seed, (uint32_t)(rng->seed >> 32)}, block[4];
    bool fresh = true;
    for (size_t i = 0; i < n; i++, rng->position++) {
        if (fresh || (rng->position & 3) == 0) {
            uint64_t at = rng->position >> 2;
            uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), (uint32_t)rng->stream,
                                   (uint32_t)(rng->stream >> 32)};
            eg__philox(counter, key, block);
            fresh = false;
        }
        words[i] = block[rng->position & 3];
    }
}

uint32_t eg_rng_u32(eg_rng *rng)
{
    uint32_t word;
    eg__rng_take(rng, &word, 1);
    return word;
}

static double to_uniform(uint32_t high, uint32_t low)
{
    return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}

double eg_rng_uniform(eg_rng *rng)
{
    uint32_t word[2];
    eg__rng_take(rng, word, 2);
    return to_uniform(word[0], word[1]);
}

double eg_rng_normal(eg_rng *rng)
{
    /* Always four words, and the second number of the pair is not kept: position alone is the state. */
    uint32_t word[4];
    eg__rng_take(rng, word, 4);
    double radius = sqrt(-2.0 * log(1.0 - to_uniform(word[0], word[1])));
    return radius * cos(6.283185307179586476925 * to_uniform(word[2], word[3]));
}

uint64_t eg_rng_below(eg_rng *rng, uint64_t n)
{
    if (n <= 1)
        return 0;
    uint64_t excess = (UINT64_MAX % n + 1) % n; /* 2^64 mod n: the numbers above the last whole multiple of n */
    for (;;) {
        uint32_t word[2];
        eg__rng_take(rng, word, 2);
        uint64_t x = (uint64_t)word[0] << 32 | word[1];
        if (x <= UINT64_MAX - excess)
            return x % n;
    }
}

void eg_rng_shuffle(eg_rng *rng, int64_t *items, size_t n)
{
    if (n > 0 && (!rng || !items)) {
        eg__null(__func__, rng ? "items" : "generator");
        return;
    }
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)eg_rng_below(rng, i);
        int64_t item = items[i - 1];
        items[i - 1] = items[j];
        items[j] = item;
    }
}

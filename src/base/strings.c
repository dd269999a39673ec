/*
 * base/strings.c - hashing, UTF-8, and "did you mean".
 */
#include "base/internal.h"

#include <string.h>

static uint64_t mix(uint64_t h)
{
    /* the finalizer of SplitMix64 (Steele, Lea, Flood 2014) */
    h = (h ^ (h >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ (h >> 27)) * UINT64_C(0x94d049bb133111eb);
    return h ^ (h >> 31);
}

/* Little-endian, so that hashes that reach files and random streams do not depend on the machine. */
static uint64_t load(const unsigned char *p, size_t n)
{
    uint64_t word = 0;
    for (size_t i = 0; i < n; i++)
        word |= (uint64_t)p[i] << (8 * i);
    return word;
}

uint64_t eg__hash(const void *data, size_t size, uint64_t seed)
{
    const unsigned char *p = data;
    uint64_t h = mix(seed ^ ((uint64_t)size * UINT64_C(0x9e3779b97f4a7c15)));
    for (; size >= 8; size -= 8, p += 8)
        h = (h ^ load(p, 8)) * UINT64_C(0x9e3779b97f4a7c15), h ^= h >> 32;
    if (size > 0)
        h = (h ^ load(p, size)) * UINT64_C(0x9e3779b97f4a7c15);
    return mix(h);
}

bool eg__is_utf8(const char *text)
{
    static const uint32_t smallest[] = {0, 0x80, 0x800, 0x10000};
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        unsigned lead = *p++; /* how many bytes follow: */
        unsigned more = lead < 0x80 ? 0 : lead >> 5 == 6 ? 1 : lead >> 4 == 14 ? 2 : lead >> 3 == 30 ? 3 : 4;
        if (more == 4)
            return false;
        uint32_t point = more == 0 ? lead : lead & (0x3fu >> more);
        for (unsigned i = 0; i < more; i++, p++) {
            if (*p >> 6 != 2) /* the end of the text too */
                return false;
            point = point << 6 | (*p & 0x3fu);
        }
        if (point < smallest[more] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
            return false;
    }
    return true;
}

enum { MAX_NAME = 63, MAX_HINTS = 3 };

/* Levenshtein distance over one row; names are at most MAX_NAME long. */
static size_t edit_distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t row[MAX_NAME + 1];
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = EG_MIN(replaced, EG_MIN(row[j], row[j - 1]) + 1);
        }
    }
    return row[m];
}

const char *eg_closest_name(const char *name, const char *const *names, size_t n, char *text, size_t size)
{
    struct {
        const char *name;
        size_t distance;
    } best[MAX_HINTS + 1];
    size_t found = 0, length = name ? strlen(name) : MAX_NAME + 1;
    if (!text)
        return eg__null(__func__, "text");
    if (size > 0)
        text[0] = '\0';
    if (!names && n > 0)
        eg__null(__func__, "names");
    if (!names || length > MAX_NAME)
        return text;
    for (size_t i = 0; i < n; i++) {
        size_t other = names[i] ? strlen(names[i]) : MAX_NAME + 1;
        if (other > MAX_NAME)
            continue;
        size_t distance = edit_distance(name, length, names[i], other);
        if (distance > EG_MAX(1, (length + 2) / 3))
            continue;
        size_t at = found;
        for (; at > 0 && best[at - 1].distance > distance; at--)
            best[at] = best[at - 1];
        best[at].name = names[i];
        best[at].distance = distance;
        found = EG_MIN(found + 1, (size_t)MAX_HINTS);
    }
    size_t used = 0;
    for (size_t i = 0; i < found && used < size; i++) {
        const char *before = i == 0 ? "" : i + 1 == found ? " or " : ", ";
        used += (size_t)snprintf(text + used, size - used, "%s'%s'", before, best[i].name);
    }
    return text;
}

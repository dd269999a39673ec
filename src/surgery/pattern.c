/*
 * Patterns of paths: whole segments, with * and ? inside of one and ** for any number of them.
 */
#include "surgery/internal.h"

#include <string.h>

/* A piece of text. */
typedef struct piece {
    const char *start, *end;
} piece;

/* The part of `rest` up to a separator, which is taken off with it. */
static piece take(piece *rest, char separator)
{
    piece first = *rest;
    const char *at = memchr(rest->start, separator, (size_t)(rest->end - rest->start));
    if (at != NULL)
        first.end = at;
    rest->start = at != NULL ? at + 1 : rest->end;
    return first;
}

static piece trim(piece p)
{
    while (p.start < p.end && *p.start == ' ')
        p.start++;
    while (p.start < p.end && p.end[-1] == ' ')
        p.end--;
    return p;
}

/* A segment against a pattern with * and ?. The last star takes one character more each time what follows it fails. */
static bool segment_matches(piece pattern, piece text)
{
    const char *star = NULL, *taken = text.start;
    while (text.start < text.end) {
        bool more = pattern.start < pattern.end;
        if (more && *pattern.start == '*') {
            star = ++pattern.start;
            taken = text.start;
        } else if (more && (*pattern.start == '?' || *pattern.start == *text.start)) {
            pattern.start++;
            text.start++;
        } else if (star != NULL) {
            pattern.start = star;
            text.start = ++taken;
        } else {
            return false;
        }
    }
    while (pattern.start < pattern.end && *pattern.start == '*')
        pattern.start++;
    return pattern.start == pattern.end;
}

static bool is_any_number(piece segment)
{
    return segment.end - segment.start == 2 && memcmp(segment.start, "**", 2) == 0;
}

/* The same idea one level up: segments for characters, ** for the star. */
static bool path_matches(piece pattern, piece path)
{
    bool starred = false;
    piece after_star = pattern, taken = path;
    while (path.start < path.end) {
        piece rest = pattern, path_rest = path;
        bool more = pattern.start < pattern.end;
        piece wanted = take(&rest, '.'), segment = take(&path_rest, '.');
        if (more && is_any_number(wanted)) {
            starred = true;
            pattern = after_star = rest;
            taken = path;
        } else if (more && segment_matches(wanted, segment)) {
            pattern = rest;
            path = path_rest;
        } else if (starred) {
            take(&taken, '.');
            pattern = after_star;
            path = taken;
        } else {
            return false;
        }
    }
    while (pattern.start < pattern.end) {
        if (!is_any_number(take(&pattern, '.')))
            return false;
    }
    return true;
}

bool eg__path_matches(const char *patterns, const char *path)
{
    if (patterns == NULL)
        return true;
    piece all = {patterns, patterns + strlen(patterns)}, whole = {path, path + strlen(path)};
    while (all.start < all.end) {
        if (path_matches(trim(take(&all, ',')), whole))
            return true;
    }
    return false;
}

static eg_status check_pattern(piece pattern, const char *patterns)
{
    EG_CHECK(pattern.start < pattern.end, EG_EINVAL, "'%s': a pattern of paths is empty", patterns);
    EG_CHECK(pattern.end[-1] != '.', EG_EINVAL, "'%s': a pattern ends in '.'", patterns);
    while (pattern.start < pattern.end) {
        piece segment = take(&pattern, '.');
        EG_CHECK(segment.start < segment.end, EG_EINVAL, "'%s': a segment between two '.' is empty", patterns);
    }
    return EG_OK;
}

eg_status eg__path_check(const char *patterns)
{
    if (patterns == NULL)
        return EG_OK;
    piece all = {patterns, patterns + strlen(patterns)};
    EG_CHECK(all.start < all.end && all.end[-1] != ',', EG_EINVAL, "'%s': a pattern of paths is empty", patterns);
    while (all.start < all.end)
        EG_TRY(check_pattern(trim(take(&all, ',')), patterns));
    return EG_OK;
}

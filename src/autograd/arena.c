/*
 * autograd/arena.c - memory of a tape's record: taken piece by piece, given back all at once, kept for the next tape.
 */
#include "autograd/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct eg__arena_chunk chunk;

enum { ALIGNMENT = _Alignof(max_align_t), FIRST_CHUNK = 16384 };

static size_t round_up(size_t size)
{
    return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Makes the next chunk that has `size` bytes the current one. */
static bool next_chunk(eg__arena *arena, size_t size)
{
    chunk **link = arena->current ? &arena->current->next : &arena->first;
    while (*link && (*link)->size < size)
        link = &(*link)->next;
    if (!*link) {
        size_t wanted = arena->current ? arena->current->size * 2 : FIRST_CHUNK;
        wanted = EG_MAX(wanted, size);
        chunk *made = eg__calloc(1, round_up(sizeof(chunk)) + wanted);
        if (!made)
            return false;
        made->size = wanted;
        *link = made;
    }
    arena->current = *link;
    arena->used = 0;
    return true;
}

void *eg__arena_take(eg__arena *arena, size_t n, size_t size)
{
    if (size > 0 && n > PTRDIFF_MAX / 4 / size) {
        eg_fail(EG_ENOMEM, "out of memory: %zu items of %zu bytes", n, size);
        return NULL;
    }
    size_t bytes = round_up(n * size);
    if ((!arena->current || bytes > arena->current->size - arena->used) && !next_chunk(arena, bytes))
        return NULL;
    char *memory = (char *)arena->current + round_up(sizeof(chunk)) + arena->used;
    arena->used += bytes;
    return memset(memory, 0, bytes);
}

void eg__arena_reset(eg__arena *arena)
{
    arena->current = arena->first;
    arena->used = 0;
}

void eg__arena_free(eg__arena *arena)
{
    while (arena->first) {
        chunk *next = arena->first->next;
        free(arena->first);
        arena->first = next;
    }
    *arena = (eg__arena){0};
}

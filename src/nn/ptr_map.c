#include "nn/internal.h"

#include <stdlib.h>

static size_t home(const eg__ptr_map *map, const void *key)
{
    uint64_t hash = (uint64_t)(uintptr_t)key * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(hash >> 32) & (map->size - 1);
}

/* The entry of the key, or the free one where it belongs. There is always a free one. */
static struct eg__ptr_entry *probe(const eg__ptr_map *map, const void *key)
{
    size_t i = home(map, key);
    while (map->entries[i].key != NULL && map->entries[i].key != key)
        i = (i + 1) & (map->size - 1);
    return &map->entries[i];
}

static eg_status rehash(eg__ptr_map *map, size_t size)
{
    eg__ptr_map bigger = {.n = map->n, .size = size};
    bigger.entries = eg__calloc(size, sizeof(*bigger.entries));
    if (bigger.entries == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < map->size; i++) {
        if (map->entries[i].key != NULL)
            *probe(&bigger, map->entries[i].key) = map->entries[i];
    }
    free(map->entries);
    *map = bigger;
    return EG_OK;
}

eg_status eg__ptr_map_put(eg__ptr_map *map, const void *key, void *value)
{
    if (2 * (map->n + 1) > map->size)
        EG_TRY(rehash(map, map->size == 0 ? 32 : 2 * map->size));
    struct eg__ptr_entry *entry = probe(map, key);
    if (entry->key == NULL)
        map->n++;
    *entry = (struct eg__ptr_entry){key, value};
    return EG_OK;
}

void **eg__ptr_map_find(const eg__ptr_map *map, const void *key)
{
    if (map->size == 0)
        return NULL;
    struct eg__ptr_entry *entry = probe(map, key);
    return entry->key == NULL ? NULL : &entry->value;
}

eg_status eg__ptr_map_add(eg__ptr_map *map, const void *key, bool *added)
{
    *added = eg__ptr_map_find(map, key) == NULL;
    return *added ? eg__ptr_map_put(map, key, NULL) : EG_OK;
}

void eg__ptr_map_free(eg__ptr_map *map)
{
    free(map->entries);
    *map = (eg__ptr_map){0};
}

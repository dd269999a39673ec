/*
 * base/map.c - text to pointer, in insertion order.
 */
#include "base/internal.h"

#include <stdlib.h>
#include <string.h>

/* The slot of the key, or the free slot where it belongs. */
static size_t slot_of(const eg__map *map, const char *key, uint64_t hash)
{
    size_t slot = (size_t)hash & (map->index_size - 1);
    while (map->index[slot] != 0) {
        const struct eg__map_entry *entry = &map->entries[map->index[slot] - 1];
        if (entry->hash == hash && strcmp(entry->key, key) == 0)
            break;
        slot = (slot + 1) & (map->index_size - 1);
    }
    return slot;
}

/* Keeps the index at most half full. */
static eg_status reserve(eg__map *map)
{
    EG_TRY(eg__grow(&map->entries, &map->capacity, map->n + 1, sizeof *map->entries));
    if ((map->n + 1) * 2 <= map->index_size)
        return EG_OK;
    size_t size = map->index_size ? map->index_size * 2 : 16;
    size_t *index = eg__calloc(size, sizeof *index);
    if (!index)
        return EG_ENOMEM;
    free(map->index);
    map->index = index;
    map->index_size = size;
    for (size_t i = 0; i < map->n; i++)
        index[slot_of(map, map->entries[i].key, map->entries[i].hash)] = i + 1;
    return EG_OK;
}

static uint64_t hash_key(const char *key)
{
    return eg__hash(key, strlen(key), 0);
}

void **eg__map_find(const eg__map *map, const char *key)
{
    if (map->n == 0)
        return NULL;
    size_t at = map->index[slot_of(map, key, hash_key(key))];
    return at ? &map->entries[at - 1].value : NULL;
}

void *eg__map_get(const eg__map *map, const char *key)
{
    void **value = eg__map_find(map, key);
    return value ? *value : NULL;
}

eg_status eg__map_put(eg__map *map, const char *key, void *value)
{
    void **existing = eg__map_find(map, key);
    if (existing) {
        *existing = value;
        return EG_OK;
    }
    EG_TRY(reserve(map));
    char *copy = eg__strdup(key);
    if (!copy)
        return EG_ENOMEM;
    uint64_t hash = hash_key(key);
    map->index[slot_of(map, key, hash)] = map->n + 1;
    map->entries[map->n++] = (struct eg__map_entry){.key = copy, .value = value, .hash = hash};
    return EG_OK;
}

void eg__map_free(eg__map *map)
{
    for (size_t i = 0; i < map->n; i++)
        free(map->entries[i].key);
    free(map->entries);
    free(map->index);
    *map = (eg__map){0};
}

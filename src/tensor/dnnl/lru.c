/*
 * tensor/dnnl/lru.c - see lru.h. The number of buckets is fixed: the capacity bounds the number of entries.
 */
#include "tensor/dnnl/lru.h"

#include <string.h>

static const void *key_of(const eg__lru *lru, const eg__lru_node *entry)
{
    return (const char *)entry + lru->key_offset;
}

static void unlink_age(eg__lru *lru, eg__lru_node *entry)
{
    *(entry->older ? &entry->older->newer : &lru->oldest) = entry->newer;
    *(entry->newer ? &entry->newer->older : &lru->newest) = entry->older;
}

static void link_newest(eg__lru *lru, eg__lru_node *entry)
{
    entry->newer = NULL;
    entry->older = lru->newest;
    *(lru->newest ? &lru->newest->newer : &lru->oldest) = entry;
    lru->newest = entry;
}

eg__lru_node *eg__lru_find(eg__lru *lru, const void *key)
{
    if (!lru->buckets)
        return NULL;
    uint64_t hash = eg__hash(key, lru->key_size, 0);
    eg__lru_node *entry = lru->buckets[hash % lru->capacity];
    while (entry && (entry->hash != hash || memcmp(key_of(lru, entry), key, lru->key_size) != 0))
        entry = entry->chain;
    if (entry && entry != lru->newest) {
        unlink_age(lru, entry);
        link_newest(lru, entry);
    }
    return entry;
}

eg_status eg__lru_add(eg__lru *lru, eg__lru_node *entry)
{
    if (!lru->buckets) {
        lru->buckets = eg__calloc(lru->capacity, sizeof *lru->buckets);
        if (!lru->buckets)
            return EG_ENOMEM;
    }
    if (lru->n == lru->capacity)
        eg__lru_drop(lru);
    entry->hash = eg__hash(key_of(lru, entry), lru->key_size, 0);
    eg__lru_node **bucket = &lru->buckets[entry->hash % lru->capacity];
    entry->chain = *bucket;
    *bucket = entry;
    link_newest(lru, entry);
    lru->n++;
    return EG_OK;
}

void eg__lru_drop(eg__lru *lru)
{
    eg__lru_node *entry = lru->oldest, **at = &lru->buckets[entry->hash % lru->capacity];
    while (*at != entry)
        at = &(*at)->chain;
    *at = entry->chain;
    unlink_age(lru, entry);
    lru->n--;
    lru->destroy(lru->payload, entry);
}

void eg__lru_free(eg__lru *lru)
{
    while (lru->oldest)
        eg__lru_drop(lru);
    eg_free(lru->buckets);
    lru->buckets = NULL;
}

/*
 * tensor/dnnl/lru.h - hash table that forgets what was not used for longest. Intrusive: an entry starts with its node,
 * and its key is a zeroed struct compared as a whole.
 */
#ifndef EG_TENSOR_DNNL_LRU_H
#define EG_TENSOR_DNNL_LRU_H

#include "base/internal.h"

typedef struct eg__lru_node {
    struct eg__lru_node *chain, *older, *newer;
    uint64_t hash;
} eg__lru_node;

typedef struct eg__lru {
    eg__lru_node **buckets;
    eg__lru_node *oldest, *newest;
    size_t n, capacity;
    size_t key_offset, key_size; /* of the key in an entry */
    void *payload;
    void (*destroy)(void *payload, eg__lru_node *entry);
} eg__lru;

/** The entry with this key, now the newest; NULL when absent. */
eg__lru_node *eg__lru_find(eg__lru *lru, const void *key);
/** Adds an entry whose key is set and absent, and destroys the oldest where the table was full. On ENOMEM the entry
 *  remains the caller's. */
eg_status eg__lru_add(eg__lru *lru, eg__lru_node *entry);
/** Destroys the oldest entry. */
void eg__lru_drop(eg__lru *lru);
/** Destroys all entries. */
void eg__lru_free(eg__lru *lru);

#endif

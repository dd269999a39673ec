/*
 * Which policies match a class, the most specific first.
 */
#include "surgery/internal.h"

#include <stdlib.h>

/* How many classes lie between them; -1 when it is no subclass. */
static int distance(const eg_class *cls, const eg_class *super)
{
    int n = 0;
    for (const eg_class *c = cls; c != NULL; c = c->super, n++) {
        if (c == super)
            return n;
    }
    return super == &eg_module_class ? n : -1;
}

static int rank_of(const eg_policy *policy, const eg_class *cls)
{
    int from = policy->cls == NULL ? 1 << 16 : distance(cls, policy->cls);
    if (from < 0 || (policy->exact && from > 0))
        return -1;
    return 2 * from + (policy->at == NULL && policy->when == NULL);
}

static int compare_ranks(const void *a, const void *b)
{
    const eg__candidate *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->policy < y->policy ? -1 : 1;
}

const eg__class_policies *eg__ranks_of(eg__ranks *ranks, const eg_class *cls)
{
    if (cls == ranks->last_class)
        return ranks->last;
    void **known = eg__ptr_map_find(&ranks->by_class, cls);
    eg__class_policies *list = known != NULL ? *known : NULL;
    if (list == NULL) {
        list = eg__calloc(1, sizeof(*list) + ranks->policies.n * sizeof(list->items[0]));
        if (list == NULL || eg__ptr_map_put(&ranks->by_class, cls, list) != EG_OK) {
            free(list);
            return NULL;
        }
        for (size_t i = 0; i < ranks->policies.n; i++) {
            int rank = rank_of(&ranks->policies.items[i], cls);
            if (rank >= 0)
                list->items[list->n++] = (eg__candidate){i, rank};
        }
        qsort(list->items, list->n, sizeof(list->items[0]), compare_ranks);
    }
    ranks->last_class = cls;
    ranks->last = list;
    return list;
}

void eg__ranks_free(eg__ranks *ranks)
{
    for (size_t i = 0; i < ranks->by_class.size; i++)
        free(ranks->by_class.entries[i].value);
    eg__ptr_map_free(&ranks->by_class);
}

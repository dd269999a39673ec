/*
 * nas/strategies/table.c - the list of strategies.
 */
#include "nas/internal.h"

#include <string.h>

static const eg_strategy_class *const strategies[] = {&eg__darts_strategy_class, &eg__spos_strategy_class,
                                                      &eg__random_strategy_class, NULL};

const eg_strategy_class *const *eg_strategies(void)
{
    return strategies;
}

const eg_strategy_class *eg_strategy_find(const char *name)
{
    if (name == NULL)
        return eg__null(__func__, "name");
    const char *names[EG_COUNT(strategies)];
    size_t n = 0;
    for (; strategies[n] != NULL; n++) {
        names[n] = strategies[n]->name;
        if (strcmp(names[n], name) == 0)
            return strategies[n];
    }
    char near[200];
    eg_closest_name(name, names, n, near, sizeof(near));
    eg_fail(EG_ENOENT, *near != '\0' ? "there is no strategy '%s', did you mean %s?" : "there is no strategy '%s'%s",
            name, near);
    return NULL;
}

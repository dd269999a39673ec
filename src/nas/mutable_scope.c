/*
 * nas/mutable_scope.c - parts of a model that are sub-spaces: their mutator is told when their forward begins and ends.
 */
#include "nas/internal.h"

eg_status eg__scope_check_key(eg_module *scope)
{
    /* an automatic one would hide that it was forgotten */
    return eg_mutable_key(scope) != NULL ? EG_OK : eg_error_last()->code;
}

static eg_status scope_enter(eg_module *self)
{
    eg_mutator *mutator = eg_mutable_mutator(self);
    return mutator != NULL ? EG__MUTATOR_FN(mutator, enter_mutable_scope)(mutator, self) : EG_OK;
}

static eg_status scope_leave(eg_module *self)
{
    eg_mutator *mutator = eg_mutable_mutator(self);
    return mutator != NULL ? EG__MUTATOR_FN(mutator, exit_mutable_scope)(mutator, self) : EG_OK;
}

const eg_class eg_mutable_scope_class = {.struct_size = sizeof(eg_class),
                                         .name = "MutableScope",
                                         .super = &eg_mutable_class,
                                         .instance_size = sizeof(eg_module),
                                         .build = eg__scope_check_key,
                                         .enter = scope_enter,
                                         .leave = scope_leave};

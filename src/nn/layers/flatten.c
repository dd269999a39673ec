#include "nn/internal.h"

static eg_tensor *forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_flatten *f = EG_CAST(self, eg_flatten);
    return eg_f_flatten(in[0], (int)f->start_dim, (int)f->end_dim);
}

static void describe(const eg_module *self, char *text, size_t size)
{
    const eg_flatten *f = (const eg_flatten *)self;
    snprintf(text, size, "start_dim=%d, end_dim=%d", (int)f->start_dim, (int)f->end_dim);
}

EG_NAMED_CLASS(eg_flatten, "Flatten", .forward = forward, .describe = describe,
               .fields = EG_FIELDS(EG_INT(eg_flatten, start_dim, .min = -EG_MAX_DIMS, .max = EG_MAX_DIMS - 1, .def = 1,
                                          .help = "first dimension joined"),
                                   EG_INT(eg_flatten, end_dim, .min = -EG_MAX_DIMS, .max = EG_MAX_DIMS - 1, .def = -1,
                                          .help = "last dimension joined")));

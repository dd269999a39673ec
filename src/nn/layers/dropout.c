#include "nn/internal.h"

static eg_tensor *dropout_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_f_dropout(in[0], EG_CAST(self, eg_dropout)->p, self->training);
}

static eg_tensor *drop_path_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return eg_f_drop_path(in[0], EG_CAST(self, eg_drop_path)->p, self->training);
}

static void dropout_describe(const eg_module *self, char *text, size_t size)
{
    char p[EG__NUMBER_TEXT_SIZE];
    snprintf(text, size, "p=%s, inplace=False", eg__number_text(((const eg_dropout *)self)->p, p));
}

static void drop_path_describe(const eg_module *self, char *text, size_t size)
{
    char p[EG__NUMBER_TEXT_SIZE];
    snprintf(text, size, "p=%s", eg__number_text(((const eg_drop_path *)self)->p, p));
}

#define P_FIELDS EG_FIELDS(EG_FLOAT(eg_dropout, p, .max = 1, .help = "probability of being dropped"))

EG_NAMED_CLASS(eg_dropout, "Dropout", .forward = dropout_forward, .describe = dropout_describe, .fields = P_FIELDS);
EG_NAMED_CLASS(eg_drop_path, "DropPath", .forward = drop_path_forward, .describe = drop_path_describe,
               .fields = P_FIELDS);

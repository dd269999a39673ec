#include "nn/internal.h"

#include <inttypes.h>
#include <math.h>

/* What a field that was not given becomes: past the end of any table. */
#define NO_PADDING EG__MAX_CHANNELS

/* The row of padding, counted from the start; -1: none. */
static int64_t padding_row(const eg_embedding *e)
{
    if (e->padding_idx.value == NO_PADDING)
        return -1;
    int64_t row = (int64_t)e->padding_idx.value;
    return row < 0 ? row + e->num_embeddings : row;
}

static eg_status build(eg_module *self)
{
    eg_embedding *e = EG_CAST(self, eg_embedding);
    double given = e->padding_idx.value, rows = (double)e->num_embeddings;
    EG_CHECK(given == NO_PADDING || (given == floor(given) && given >= -rows && given < rows), EG_EINVAL,
             "padding_idx is %g, expected a row of %" PRId64, given, e->num_embeddings);
    EG_TRY(EG_PARAM(e, weight,
                    eg_empty(self->ctx, EG_F32, EG_SHAPE(e->num_embeddings, e->embedding_dim), EG_LAYOUT_ROW_MAJOR)));
    EG_TRY(eg_init_normal(e->weight, 0, 1));
    int64_t padding = padding_row(e);
    for (int64_t i = 0; padding >= 0 && i < e->embedding_dim; i++)
        eg__f32(e->weight)[padding * e->embedding_dim + i] = 0;
    return EG_OK;
}

static eg_tensor *forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg_embedding *e = EG_CAST(self, eg_embedding);
    int64_t padding = padding_row(e);
    eg_tensor *y = eg_f_embedding(in[0], e->weight, .padding_idx = {.set = padding >= 0, .value = (double)padding});
    bool begins = y != NULL && y->storage != NULL && y->dtype == EG_F32; /* activations, which the call has not cast */
    return begins ? eg_cast(y, eg_context_precision(self->ctx)) : y;
}

static void describe(const eg_module *self, char *data, size_t size)
{
    const eg_embedding *e = (const eg_embedding *)self;
    eg__text text = {data, size};
    eg__text_add(&text, "%" PRId64 ", %" PRId64, e->num_embeddings, e->embedding_dim);
    if (padding_row(e) >= 0)
        eg__text_add(&text, ", padding_idx=%" PRId64, padding_row(e));
}

EG_NAMED_CLASS(eg_embedding, "Embedding", .build = build, .forward = forward, .describe = describe,
               .fields = EG_FIELDS(
                   EG_INT(eg_embedding, num_embeddings, .min = 1, .max = EG__MAX_CHANNELS, .help = "rows of the table"),
                   EG_INT(eg_embedding, embedding_dim, .min = 1, .max = EG__MAX_CHANNELS, .help = "numbers in a row"),
                   EG_OPT_FLOAT(eg_embedding, padding_idx, .def = NO_PADDING, .help = "the row that is not trained")));

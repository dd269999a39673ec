/*
 * nas/input_choice.c - some of several tensors.
 */
#include "nas/internal.h"

#include <inttypes.h>
#include <math.h>

enum { MAX_CANDIDATES = 1024 }; /* what a tuple holds */

static eg_status input_choice_build(eg_module *self)
{
    eg_input_choice *choice = (eg_input_choice *)self;
    const char *const *given = choice->choose_from;
    EG_TRY(eg__mutable_take_key(self));
    int64_t n = 0;
    while (given != NULL && given[n] != NULL)
        n++;
    EG_CHECK(given != NULL || choice->n_candidates > 0, EG_EINVAL,
             "input choice '%s': neither n_candidates nor choose_from is given", choice->key);
    EG_CHECK(given == NULL || n > 0, EG_EINVAL, "input choice '%s': choose_from is empty", choice->key);
    EG_CHECK(given == NULL || choice->n_candidates == 0 || choice->n_candidates == n, EG_EINVAL,
             "input choice '%s': n_candidates is %" PRId64 ", but choose_from names %" PRId64, choice->key,
             choice->n_candidates, n);
    if (given != NULL)
        choice->n_candidates = n;
    EG_CHECK(choice->n_candidates <= MAX_CANDIDATES, EG_EINVAL,
             "input choice '%s': %" PRId64 " candidates, expected at most %d", choice->key, choice->n_candidates,
             MAX_CANDIDATES);
    double chosen = choice->n_chosen.value;
    EG_CHECK(chosen == floor(chosen) && chosen <= (double)choice->n_candidates, EG_EINVAL,
             "input choice '%s': n_chosen is %g, expected 0 to %" PRId64, choice->key, chosen, choice->n_candidates);
    return eg__choice_take_fixed(self);
}

static eg_tensor *input_choice_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    const eg_input_choice *choice = (eg_input_choice *)self;
    if (n_in == (size_t)choice->n_candidates)
        return eg__choice_forward(self, in, n_in);
    eg_fail(EG_EINVAL, "input choice '%s' was given %zu inputs, expected %" PRId64, choice->key, n_in,
            choice->n_candidates);
    return NULL;
}

static const char *const reductions[] = {"sum", "mean", "concat", "none", NULL};

const eg_class eg_input_choice_class = {
    .struct_size = sizeof(eg_class),
    .name = "InputChoice",
    .super = &eg_mutable_class,
    .instance_size = sizeof(eg_input_choice),
    .build = input_choice_build,
    .forward = input_choice_forward,
    .finalize = eg__choice_forget,
    .n_inputs = EG_ANY_INPUTS,
    .fields = EG_FIELDS(
        EG_INT(eg_input_choice, n_candidates, EG_AT_LEAST(0), .help = "number of inputs"),
        EG_TEXTS(eg_input_choice, choose_from, .help = "keys of the choices that inputs come from, \"\" for none"),
        EG_OPT_FLOAT(eg_input_choice, n_chosen, .min = -1, .max = -2, .def = -1,
                     .help = "recommended number of inputs, -1 = any"),
        EG_TEXT(eg_input_choice, key, .help = "what decisions call it"),
        EG_ENUM(eg_input_choice, reduction, .values = reductions, .help = "how several inputs become one"),
        EG_BOOL(eg_input_choice, return_mask, .help = "return the decision as well"),
        EG_TEXT(eg_input_choice, fixed, .help = "what is chosen without a mutator, as in an architecture"))};

size_t eg_input_choice_size(const eg_module *choice)
{
    return eg_is_a(choice, &eg_input_choice_class) ? (size_t)((const eg_input_choice *)choice)->n_candidates : 0;
}

const char *eg_input_choice_source(const eg_module *choice, size_t i)
{
    if (!eg_is_a(choice, &eg_input_choice_class))
        return eg__null(__func__, "no input choice was given");
    size_t n = eg_input_choice_size(choice);
    if (i >= n) {
        eg_fail(EG_EINVAL, "input choice '%s' has no candidate %zu, expected 0 to %zu", eg_mutable_key(choice), i,
                n - 1);
        return NULL;
    }
    const char *const *sources = ((const eg_input_choice *)choice)->choose_from;
    return sources != NULL ? sources[i] : EG_NO_KEY;
}

int64_t eg_input_choice_n_chosen(const eg_module *choice)
{
    if (!eg_is_a(choice, &eg_input_choice_class)) {
        eg__null(__func__, "no input choice was given");
        return -1;
    }
    return (int64_t)((const eg_input_choice *)choice)->n_chosen.value;
}

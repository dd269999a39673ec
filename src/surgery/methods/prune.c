/*
 * Channels and heads that matter least, taken out of everything that is coupled with them: see channels_prune.c.
 */
#include "engraft/methods.h"
#include "surgery/internal.h"

static eg_status prune(const eg_prune_channels *o, eg_surgery *s, const char *at, bool heads)
{
    return eg_surgery_prune(s, .ratio = o->ratio, .score = (eg_importance)o->score, .global = o->global,
                            .round_to = o->round_to, .min_units = o->min_units, .heads = heads, .at = at,
                            .ignore = o->ignore);
}

static eg_status plan_channels(eg_module *options, eg_surgery *s, const char *at)
{
    return prune((const eg_prune_channels *)options, s, at, false);
}

static eg_status plan_heads(eg_module *options, eg_surgery *s, const char *at)
{
    return prune((const eg_prune_channels *)options, s, at, true);
}

static const char *const scores[] = {"l2", "l1", "taylor", "random", NULL};

#define PRUNE_FIELDS                                                                                                   \
    EG_FIELDS(EG_FLOAT(eg_prune_channels, ratio, .max = 1, .def = 0.3, .help = "share of the units that goes"),        \
              EG_ENUM(eg_prune_channels, score, .values = scores, .help = "what says which matter least"),             \
              EG_BOOL(eg_prune_channels, global, .help = "all groups together, not the share of each"),                \
              EG_INT(eg_prune_channels, round_to, EG_AT_LEAST(1), .def = 1, .help = "what stays is a multiple of it"), \
              EG_INT(eg_prune_channels, min_units, EG_AT_LEAST(1), .def = 1, .help = "that stay in each group"),       \
              EG_TEXT(eg_prune_channels, ignore, .help = "groups with parameters at these paths stay whole"))

EG_METHOD(eg_prune_channels, "prune_channels", PRUNE_FIELDS,
          .help = "the channels that matter least go, with all that is coupled with them",
          .source =
              "Li et al. 2017 (l1), Molchanov et al. 2019 (taylor), Fang et al. 2023 (coupling); accuracy falls until "
              "the model is trained on",
          .promise = EG_PROMISE_TRAINED, .runs = true, .plan = plan_channels);
EG_METHOD(eg_prune_heads, "prune_heads", PRUNE_FIELDS, .help = "the heads of attention that matter least go",
          .source = "Michel et al. 2019", .promise = EG_PROMISE_TRAINED, .runs = true, .plan = plan_heads);

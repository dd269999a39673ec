/*
 * train/search.h - what the files of a search share: the loop (search.c), its checkpoints (search_state.c).
 */
#ifndef EG_TRAIN_SEARCH_H
#define EG_TRAIN_SEARCH_H

#include "train/internal.h"

struct eg_search {
    eg_search_options options; /* as given, with defaults filled in; the pointers below are ours */
    const eg_strategy_class *cls;
    eg_dataset *weights_half, *choices_half;
    eg_loader *train;       /* of the half that trains weights */
    eg_loader *valid;       /* of the half that trains choices; NULL when the strategy does not ask for it */
    eg_loader *calibration; /* a fixed sample of the first half, for batch-norm statistics */
    eg_loader *evaluation;  /* a fixed sample of the second half, for comparing candidates */
    eg_optimizer *optimizer;
    eg_scheduler *scheduler;
    eg_strategy_host host;
    eg_strategy *strategy;
    eg_meter_group *meters;
    eg__position position;
    eg__clock clock;
    json_t *settings; /* that a checkpoint must share */
    /* Accuracies of the candidates evaluated so far in the choice. The choice is repeated from its start after a
     * resume; it asks the same questions in the same order, and the first n_known of them are answered from here. */
    double *known;
    size_t n_known, known_capacity;
    size_t n_asked;
    bool choosing;
    bool started; /* eg_search_run() was called */
    eg_rng rng_before_choice;
    eg_arch *arch;
    char *run, *checkpoint_path; /* NULL = none */
    double saved_at;
    eg__visual visual;
};

/** Fills in `settings`. */
eg_status eg__search_settings(eg_search *search);
/** Writes the checkpoint of its run; does nothing without a run. */
eg_status eg__search_save(eg_search *search);
/** The same when the last one is old enough. */
eg_status eg__search_save_when_due(eg_search *search);
eg_status eg__search_restore(eg_search *search, const char *path);

#endif

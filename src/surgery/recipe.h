/*
 * surgery/recipe.h - what writing and reading recipes share.
 */
#ifndef EG_SURGERY_RECIPE_H
#define EG_SURGERY_RECIPE_H

#include "surgery/diff.h"

#define EG__RECIPE_FORMAT "engraft surgery"
enum { EG__RECIPE_VERSION = 1, EG__RECIPE_MAX_STEPS = 1 << 16 };

/** A number for the structure of a model, as a text: classes, fields, names, shapes, types, and what is shared. */
enum { EG__STRUCTURE_SIZE = 17 };
eg_status eg__structure_text(const eg__inventory *inventory, char text[EG__STRUCTURE_SIZE]);

/** Plans what the steps say, in order (replay_steps.c). What they have planned when one fails is for the caller to
 * forget. */
eg_status eg__replay_steps(eg_surgery *s, const json_t *steps);

#endif

/*
 * surgery/diff.h - what reports on surgeries are made from: lists of all that a model consists of, and what is
 * different between two of them.
 */
#ifndef EG_SURGERY_DIFF_H
#define EG_SURGERY_DIFF_H

#include "engraft/surgery_report.h"
#include "nn/json.h"
#include "surgery/internal.h"

/** Texts that live as long as what they describe. All-zero is empty. */
typedef struct eg__texts {
    char **items;
    size_t n, capacity;
} eg__texts;
/** Takes a text over, also on failure; NULL stays NULL. */
const char *eg__texts_add(eg__texts *texts, char *text);
void eg__texts_free(eg__texts *texts);

/* ---- inventories (inventory.c) ---- */

/** A place for a module. */
typedef struct eg__item {
    const char *path;
    eg_module *module;   /* kept */
    const char *text;    /* "Conv2d(3, 16, ..)"; of other places "= path" */
    const char *same_as; /* the first place of the same module; NULL: this is it */
    size_t parent;       /* item; SIZE_MAX for the root */
    int64_t parameters;  /* elements of its own, in its first place */
} eg__item;

/** A name in the state dict. */
typedef struct eg__tensor_item {
    const char *key;
    eg_slot_kind kind;
    eg_tensor *tensor; /* kept */
    bool trained;
} eg__tensor_item;

/** All that a model consists of, at one moment. All-zero is empty. */
typedef struct eg__inventory {
    eg__item *items; /* parents first, in the order of registration */
    size_t n, capacity;
    eg__tensor_item *tensors; /* in the order of the state dict */
    size_t n_tensors, tensors_capacity;
    eg__map by_path, by_key;          /* -> number + 1 */
    eg__ptr_map by_module, by_tensor; /* -> number of the first + 1 */
    int64_t parameters, buffers;      /* elements, shared ones once */
    uint64_t parameter_bytes, buffer_bytes;
    eg__texts texts;
} eg__inventory;
/** EINVAL, EUNSUPPORTED (too deep). What is made so far is to be freed also after a failure. */
eg_status eg__inventory_take(eg__inventory *inventory, eg_module *root);
void eg__inventory_free(eg__inventory *inventory);
/** NULL when there is none. */
eg__item *eg__inventory_at(const eg__inventory *inventory, const char *path);
eg__item *eg__inventory_of(const eg__inventory *inventory, const eg_module *m);
eg__tensor_item *eg__inventory_key(const eg__inventory *inventory, const char *key);
/** The first name of a tensor. */
eg__tensor_item *eg__inventory_tensor(const eg__inventory *inventory, const eg_tensor *t);

/* ---- differences (diff.c) ---- */

/** What became of what a replaced module had (fates.c). */
typedef struct eg__fates {
    eg_replaced replaced; /* its texts are lent by the diff, its modules by the surgery */
    const char *old_text, *fresh_text;
    eg_carried *items;
    size_t n, capacity;
} eg__fates;

typedef struct eg__change {
    eg_model_change shown;
    size_t position, rank, number; /* in the order of the model after; at one position; of finding */
} eg__change;

struct eg_model_diff {
    eg__inventory before, after;
    bool by_name; /* tensors are the same that have the same name */
    eg__change *changes;
    size_t n_changes, changes_capacity;
    eg_key_change *keys;
    size_t n_keys, keys_capacity;
    eg__ptr_map origins; /* tensor after -> the one before that it was made from, by any number of steps */
    eg__ptr_map targets; /* and the other way round */
    eg__fates *fates;
    size_t n_fates, fates_capacity;
    eg__texts texts;
};
/** Fills `fates` while the surgery is as planned. */
eg_status eg__diff_find_fates(eg_model_diff *diff, eg_surgery *s);

/* ---- costs (cost_report.c) ---- */

/** Fills in the verdict. */
eg_status eg__cost_judge(eg_cost_change *change);

/* ---- writing (table.c) ---- */

/** A table: cells are texts, columns as wide as their widest, the last as it is. All-zero is empty. */
enum { EG__TABLE_COLUMNS = 7 };
typedef struct eg__table {
    struct eg__table_line {
        const char *cells[EG__TABLE_COLUMNS]; /* NULL: none */
    } * lines;
    size_t n, capacity, column; /* of the line that is being filled */
    unsigned numbers;           /* bit i: the texts of column i end one below the other */
    bool failed;
    eg__texts texts;
} eg__table;
/** The next cell of a line, then its end. */
void eg__table_cell(eg__table *table, const char *format, ...) EG_PRINTF(2, 3);
void eg__table_end(eg__table *table);
/** Appends the lines to a text and empties the table. */
void eg__table_write(eg__table *table, eg__buf *out);

/** A text, or null; what is no UTF-8 has '?' for its bytes. NULL for want of memory. */
json_t *eg__json_text_of(const char *text);
/** Puts a value that may be NULL for want of memory. */
eg_status eg__json_put(json_t *object, const char *key, json_t *value);
/** Ends a JSON value: its text for people if `status` is EG_OK, else NULL. */
char *eg__json_finish(json_t *json, eg_status status);

#endif

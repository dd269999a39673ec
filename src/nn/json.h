/*
 * nn/json.h - what the files that read and write models as JSON share.
 */
#ifndef EG_NN_JSON_H
#define EG_NN_JSON_H

#include "nn/internal.h"

/** Limits of what is read: of one list, of all modules of a file, of their depth, of the file's bytes. A model may
 * count as more modules than its file has, where some stand in several places: as many as its walks would meet. */
enum { EG__JSON_MAX_LIST = 4096, EG__JSON_MAX_MODULES = 1 << 20, EG__JSON_MAX_DEPTH = 64, EG__JSON_MAX_FILE = 1 << 26 };

/** A whole number without a point: 2, not 2.0. NULL for want of memory, and for what JSON has no number for; no failure
 *  is recorded, here and below. */
json_t *eg__number_json(double value);
/** [3, 32, 32]. */
json_t *eg__shape_json(const eg_shape *shape);
/** Of a NULL-ended list. */
json_t *eg__texts_json(const char *const *texts);
/** Adds the fields that have not their defaults to an object. */
eg_status eg__fields_to_json(const eg_module *m, json_t *object);
/** Puts a value into a field of a prototype: texts stay those of the JSON value, a list of texts is to be freed. `path`
 *  is for messages. Ranges are checked when the module is made. */
eg_status eg__field_from_json(void *instance, const eg_field *field, const json_t *value, const char *path);

/** The model as a JSON value; NULL on failure. `expand`: with all children of its modules. */
json_t *eg__module_to_json(eg_module *m, bool expand);
/** The model of a JSON value; NULL on failure. `root` is what messages call it. */
eg_module *eg__module_from_json(eg_context *ctx, const json_t *json, const char *root);
/** The same of a class that is known, to this context or not: the value names none. */
eg_module *eg__module_of_class_from_json(eg_context *ctx, const eg_class *cls, const json_t *json, const char *root);

/** "Name(field=value, ..)" as the object of a model's JSON that says the same. NULL: EINVAL, ENOMEM. */
json_t *eg__call_json(const char *text);

#endif

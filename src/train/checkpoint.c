/*
 * Checkpoints: a safetensors file with the tensors of everything that was trained, and one JSON object in its metadata
 * with the rest. One file, so that the two can never be of different moments.
 */
#include "train/internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define CHECKPOINT_FORMAT 1

/* ---------------------------------------------------------------------------------------------- exact numbers */

json_t *eg__json_u64(uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return json_string(text);
}

json_t *eg__json_double(double value)
{
    uint64_t bits;
    char text[32];
    memcpy(&bits, &value, sizeof bits);
    snprintf(text, sizeof text, "%016" PRIx64, bits);
    return json_string(text);
}

/* The number that a text consists of, in `base`. */
static eg_status read_digits(const json_t *json, const char *key, int base, uint64_t *value)
{
    const char *text = json_string_value(json);
    const char *digits = base == 16 ? "0123456789abcdef" : "0123456789";
    EG_CHECK(text && *text && strspn(text, digits) == strlen(text) && strlen(text) <= (base == 16 ? 16u : 20u),
             EG_EFORMAT, "'%s' is missing or no number", key);
    *value = strtoull(text, NULL, base);
    return EG_OK;
}

eg_status eg__json_get_u64(const json_t *object, const char *key, uint64_t *value)
{
    return read_digits(json_object_get(object, key), key, 10, value);
}

eg_status eg__json_read_double(const json_t *json, const char *key, double *value)
{
    uint64_t bits;
    EG_TRY(read_digits(json, key, 16, &bits));
    memcpy(value, &bits, sizeof bits);
    return EG_OK;
}

eg_status eg__json_get_double(const json_t *object, const char *key, double *value)
{
    return eg__json_read_double(json_object_get(object, key), key, value);
}

eg_status eg__json_get_i64(const json_t *object, const char *key, int64_t *value)
{
    const json_t *member = json_object_get(object, key);
    EG_CHECK(json_is_integer(member), EG_EFORMAT, "'%s' is missing or no whole number", key);
    *value = json_integer_value(member);
    return EG_OK;
}

/* ---------------------------------------------------------------------------------------------- writing */

json_t *eg__checkpoint_scalars(const eg__moment *moment, json_t *settings)
{
    const eg_rng *rng = &moment->rng;
    json_t *scalars = json_pack("{s:i, s:I, s:I, s:{s:o, s:o, s:o}, s:f, s:O}", "format", CHECKPOINT_FORMAT, "epoch",
                                (json_int_t)moment->position.epoch, "batch", (json_int_t)moment->position.batch, "rng",
                                "seed", eg__json_u64(rng->seed), "stream", eg__json_u64(rng->stream), "position",
                                eg__json_u64(rng->position), "seconds", moment->seconds, "settings", settings);
    json_decref(settings);
    if (!scalars)
        eg_fail(EG_ENOMEM, "no memory for a checkpoint");
    return scalars;
}

json_t *eg__transforms_json(const eg_transform *transforms, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) {
        double amount = transforms[i].amount;
        if (json_array_append_new(list, isfinite(amount) ? json_real(amount) : json_null()) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

eg_status eg__checkpoint_write(const char *path, const eg_state *state, json_t *scalars)
{
    /* metadata of safetensors are texts, so the object goes in as one */
    json_t *recipe = json_incref(json_object_get(scalars, "surgery")); /* beside it, where any reader finds it */
    json_object_del(scalars, "surgery");
    char *text = scalars ? json_dumps(scalars, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_t *metadata = text ? json_pack("{s:s}", "engraft", text) : NULL;
    if (metadata && recipe && json_object_set(metadata, "surgery", recipe) != 0) {
        json_decref(metadata);
        metadata = NULL;
    }
    json_decref(recipe);
    char *metadata_text = metadata ? json_dumps(metadata, JSON_COMPACT) : NULL;
    eg_status status = metadata_text ? eg_safetensors_save(state, path, metadata_text)
                                     : eg_fail(EG_ENOMEM, "no memory for a checkpoint");
    free(metadata_text);
    json_decref(metadata);
    free(text);
    json_decref(scalars);
    return status;
}

/* ---------------------------------------------------------------------------------------------- reading */

/* The object inside the metadata of a file. */
static json_t *scalars_of(const char *metadata, const char *path)
{
    json_t *outer = eg__json_parse(metadata, strlen(metadata), path);
    if (!outer)
        return NULL;
    const char *text = json_string_value(json_object_get(outer, "engraft"));
    json_t *scalars = NULL;
    if (!text)
        eg_fail(EG_EFORMAT, "'%s' is no checkpoint of a training or search", path);
    else
        scalars = eg__json_parse(text, strlen(text), path);
    json_t *recipe = json_object_get(outer, "surgery");
    if (recipe && json_is_object(scalars) && json_object_set(scalars, "surgery", recipe) != 0) {
        json_decref(scalars);
        scalars = NULL;
        eg_fail(EG_ENOMEM, "no memory for a checkpoint");
    }
    json_decref(outer);
    return scalars;
}

static eg_status check_settings(const char *path, const json_t *settings, const json_t *stored)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)settings, key, value)
    {
        const json_t *was = json_object_get(stored, key);
        if (json_equal(was, value))
            continue;
        size_t flags = JSON_ENCODE_ANY | JSON_REAL_PRECISION(15);
        char *old = was ? json_dumps(was, flags) : NULL, *new = json_dumps(value, flags);
        eg_status status = eg_fail(EG_EINVAL, "checkpoint '%s' was made with %s %s, not %s", path, key,
                                   old ? old : "unset", new ? new : "?");
        free(old);
        free(new);
        return status;
    }
    return EG_OK;
}

static eg_status check_scalars(const char *path, const json_t *settings, const json_t *scalars)
{
    int64_t format = 0;
    eg_status status = eg__json_get_i64(scalars, "format", &format);
    if (status != EG_OK)
        return eg__fail_prefix(status, "checkpoint '%s'", path);
    EG_CHECK(format == CHECKPOINT_FORMAT, EG_EFORMAT, "checkpoint '%s' is of format %" PRId64 ", not %d", path, format,
             CHECKPOINT_FORMAT);
    return check_settings(path, settings, json_object_get(scalars, "settings"));
}

static eg_status read_checkpoint(eg_context *ctx, const char *path, json_t *settings, eg_state **state,
                                 json_t **scalars)
{
    char *metadata = NULL;
    *scalars = NULL;
    *state = settings ? eg_safetensors_load(ctx, path, &metadata) : NULL;
    eg_status status = settings ? EG_OK : eg_fail(EG_ENOMEM, "no memory for a checkpoint");
    if (status == EG_OK && !*state)
        status = eg_error_last()->code;
    if (status == EG_OK) {
        *scalars = scalars_of(metadata, path);
        status = *scalars ? check_scalars(path, settings, *scalars) : eg_error_last()->code;
    }
    if (status != EG_OK) {
        eg_state_free(*state);
        json_decref(*scalars);
        *state = NULL;
        *scalars = NULL;
    }
    eg_free(metadata);
    json_decref(settings);
    return status;
}

eg_status eg__checkpoint_restore(eg_context *ctx, const char *path, json_t *settings, eg__restore_fn restore,
                                 void *owner)
{
    eg_state *state = NULL;
    json_t *scalars = NULL;
    eg_tape *scope = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_status status = EG_ENOMEM;
    if (scope)
        status = read_checkpoint(ctx, path, settings, &state, &scalars);
    else
        json_decref(settings);
    if (status == EG_OK) {
        status = restore(owner, state, scalars);
        if (status != EG_OK)
            status = eg__fail_prefix(status, "checkpoint '%s'", path);
    }
    eg_state_free(state);
    json_decref(scalars);
    eg_tape_end(scope);
    return status;
}

static eg_status read_seconds(const json_t *scalars, double *seconds)
{
    const json_t *member = json_object_get(scalars, "seconds");
    EG_CHECK(json_is_number(member), EG_EFORMAT, "'seconds' is missing or no number");
    *seconds = json_number_value(member);
    EG_CHECK(isfinite(*seconds) && *seconds >= 0, EG_EFORMAT, "'seconds' is %g, expected 0 or more", *seconds);
    return EG_OK;
}

eg_status eg__checkpoint_moment(const json_t *scalars, int64_t epochs, eg__moment *moment)
{
    const json_t *numbers = json_object_get(scalars, "rng");
    int64_t epoch = 0, batch = 0;
    eg_rng *rng = &moment->rng;
    EG_TRY(eg__json_get_i64(scalars, "epoch", &epoch));
    EG_TRY(eg__json_get_i64(scalars, "batch", &batch));
    EG_CHECK(epoch >= 0 && epoch <= epochs, EG_EFORMAT, "'epoch' is %" PRId64 ", expected 0 to %" PRId64, epoch,
             epochs);
    EG_CHECK(batch >= 0 && (batch == 0 || epoch < epochs), EG_EFORMAT,
             "'batch' is %" PRId64 " in epoch %" PRId64 " of %" PRId64, batch, epoch, epochs);
    EG_TRY(eg__json_get_u64(numbers, "seed", &rng->seed));
    EG_TRY(eg__json_get_u64(numbers, "stream", &rng->stream));
    EG_TRY(eg__json_get_u64(numbers, "position", &rng->position));
    EG_TRY(read_seconds(scalars, &moment->seconds));
    moment->position = (eg__position){.epoch = epoch, .batch = (size_t)batch};
    return EG_OK;
}

char *eg_checkpoint_recipe(eg_context *ctx, const char *path)
{
    if (!ctx || !path)
        return eg__null(__func__, ctx ? "path" : "context");
    char *metadata = NULL, *recipe = NULL;
    eg_tape *scope = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_state *state = scope ? eg_safetensors_load(ctx, path, &metadata) : NULL;
    json_t *outer = state ? eg__json_parse(metadata, strlen(metadata), path) : NULL;
    if (outer)
        recipe = eg__strdup(json_string_value(json_object_get(outer, "surgery")));
    json_decref(outer);
    eg_state_free(state);
    eg_free(metadata);
    eg_tape_end(scope);
    return recipe;
}

/* ---------------------------------------------------------------------------------------------- all or nothing */

static eg_status copy_state(const eg_state *state, eg_state *copy)
{
    for (size_t i = 0; i < eg_state_size(state); i++) {
        const char *name;
        eg_tensor *t = eg_state_at(state, i, &name);
        EG_TRY(eg_state_put(copy, name, eg_tensor_copy(t)));
    }
    return EG_OK;
}

static eg_status load_or_restore(const eg__parts *parts, const eg_state *state, const json_t *scalars,
                                 const eg_state *before, const json_t *before_scalars)
{
    eg_status status = parts->load(parts->owner, state, scalars);
    if (status == EG_OK)
        return EG_OK;
    eg__error_mark mark;
    eg__error_save(&mark);
    parts->load(parts->owner, before, before_scalars); /* of the very objects that it came from: it fits */
    eg__error_restore(&mark);
    return status;
}

eg_status eg__parts_load(const eg__parts *parts, const eg_state *state, const json_t *scalars)
{
    eg_state *now = eg_state_new(), *before = now ? eg_state_new() : NULL;
    json_t *now_scalars = json_object();
    eg_status status = EG_ENOMEM;
    if (before)
        status = now_scalars ? EG_OK : eg_fail(EG_ENOMEM, "no memory for a checkpoint");
    if (status == EG_OK)
        status = parts->save(parts->owner, now, now_scalars);
    if (status == EG_OK)
        status = copy_state(now, before);
    if (status == EG_OK)
        status = load_or_restore(parts, state, scalars, before, now_scalars);
    json_decref(now_scalars);
    eg_state_free(before);
    eg_state_free(now);
    return status;
}

char *eg__checkpoint_path(const char *run)
{
    char *folder = eg__format("%s/checkpoint", run);
    if (!folder)
        return NULL;
    char *path = eg__make_directory(folder) == EG_OK ? eg__format("%s/last.safetensors", folder) : NULL;
    eg_free(folder);
    return path;
}

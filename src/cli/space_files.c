/*
 * Spaces that are files. A run has a copy of its own, space.json, so that it goes on, and is looked at, without the
 * file that it was started with; run.json says which text that was.
 */
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char copy_name[] = "space.json";

enum { MAX_FILE = 1 << 26 }; /* as much as the library reads */

/* All of a file that is open. */
static char *read_all(FILE *file, const char *path)
{
    size_t size = 0, room = 1 << 14;
    char *text = malloc(room);
    while (text && (size += fread(text + size, 1, room - size - 1, file)) == room - 1 && room < MAX_FILE) {
        char *more = realloc(text, room *= 2);
        if (!more)
            free(text);
        text = more;
    }
    if (!text)
        eg_fail(EG_ENOMEM, "no memory for '%s'", path);
    else if (ferror(file))
        eg_fail(EG_EIO, "cannot read '%s': %s", path, strerror(errno));
    else if (size == room - 1)
        eg_fail(EG_EFORMAT, "'%s' has %d bytes or more, too many for a space", path, MAX_FILE);
    else {
        text[size] = '\0';
        return text;
    }
    free(text);
    return NULL;
}

char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        eg_fail(errno == ENOENT ? EG_ENOENT : EG_EIO, "cannot open '%s': %s", path, strerror(errno));
        return NULL;
    }
    char *text = read_all(file, path);
    fclose(file);
    return text;
}

/* FNV-1a: two texts that differ by an edit do not share it. */
void fingerprint(const char *text, char out[FINGERPRINT_SIZE])
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *p = text; *p; p++)
        hash = (hash ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
    snprintf(out, FINGERPRINT_SIZE, "%016" PRIx64, hash);
}

/* The space of a run, checked to be still the one that it was started with. */
static char *read_copy(const json_t *run, const char *directory)
{
    char *path = path_join(directory, copy_name), *text = path ? read_text(path) : NULL;
    const char *recorded = json_string_value(json_object_get(run, "space_fingerprint"));
    char found[FINGERPRINT_SIZE];
    fingerprint(text ? text : "", found);
    if (text && (!recorded || strcmp(recorded, found) != 0)) {
        eg_fail(EG_EINVAL, "'%s' is not the space that this run was started with", path);
        free(text);
        text = NULL;
    }
    free(path);
    return text;
}

eg_status run_space(const json_t *run, const char *directory, const char *space, char **text)
{
    *text = eg_space_is_file(space) ? read_copy(run, directory) : NULL;
    return *text || !eg_space_is_file(space) ? EG_OK : eg_error_last()->code;
}

eg_status take_space(const char **space, bool given, const json_t *run, const char *directory, char **text)
{
    if (!given)
        return run_space(run, directory, *space, text);
    *text = eg_space_is_file(*space) ? read_text(*space) : NULL;
    if (!*text)
        return eg_space_is_file(*space) ? eg_error_last()->code : EG_OK;
    const char *recorded = json_string_value(json_object_get(run, "space"));
    char *copy = recorded && eg_space_is_file(recorded) ? read_copy(run, directory) : NULL;
    eg_status status = copy || !recorded || !eg_space_is_file(recorded) ? EG_OK : eg_error_last()->code;
    if (copy && strcmp(copy, *text) != 0)
        status = eg_fail(EG_EINVAL, "'%s' is not the space that the run in '%s' was started with", *space, directory);
    free(copy);
    *space = copy_name;
    return status;
}

eg_status keep_space(const char *text, const char *directory)
{
    char *path = path_join(directory, copy_name), *temporary = path_join(directory, "space.json.tmp");
    eg_status status = path && temporary ? EG_OK : EG_ENOMEM;
    if (status == EG_OK && text && !file_exists(path)) {
        FILE *file = fopen(temporary, "wb");
        bool good = file && fputs(text, file) >= 0;
        good = (!file || fclose(file) == 0) && good;
        if (!good || rename(temporary, path) != 0)
            status = eg_fail(EG_EIO, "cannot write '%s': %s", path, strerror(errno));
    }
    free(path);
    free(temporary);
    return status;
}

char *space_title(const char *space, const char *text)
{
    json_t *json = text ? json_loads(text, 0, NULL) : NULL;
    const char *name = json_string_value(json_object_get(json, "name"));
    char *title = strdup(name ? name : space);
    json_decref(json);
    return title;
}

bool space_data(const char *text, eg_shape *input, int64_t *classes)
{
    json_t *json = json_loads(text, 0, NULL);
    const json_t *dims = json_object_get(json, "input");
    size_t n = json_array_size(dims);
    eg_shape shape = {.ndim = n <= EG_MAX_DIMS ? (int)n : 0};
    for (int i = 0; i < shape.ndim; i++)
        shape.dims[i] = json_integer_value(json_array_get(dims, (size_t)i));
    bool found = shape.ndim > 0;
    if (found)
        *input = shape;
    *classes = json_integer_value(json_object_get(json, "classes"));
    json_decref(json);
    return found;
}

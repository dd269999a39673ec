/*
 * Run directories: run.json says what was asked for, events.jsonl what happened.
 */
#include "train/internal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Who wrote a run.json; not part of what was asked for. */
static const char version_key[] = "engraft";

/* The first difference between what a run was started with and what is asked of it now. */
static eg_status compare_options(const char *path, const json_t *stored, const json_t *options)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)options, key, value)
    {
        const json_t *was = json_object_get(stored, key);
        if (strcmp(key, version_key) == 0 || json_equal(was, value))
            continue;
        size_t flags = JSON_ENCODE_ANY | JSON_REAL_PRECISION(15);
        char *old = was ? json_dumps(was, flags) : NULL, *new = json_dumps(value, flags);
        eg_status status =
            eg_fail(EG_EINVAL, "'%s' is of a run with %s %s, not %s", path, key, old ? old : "unset", new ? new : "?");
        free(old);
        free(new);
        return status;
    }
    json_object_foreach((json_t *)stored, key, value)
    {
        EG_CHECK(strcmp(key, version_key) == 0 || json_object_get(options, key), EG_EINVAL,
                 "'%s' is of a run with %s, which is not set now", path, key);
    }
    return EG_OK;
}

static eg_status resume_run(const char *path, const json_t *options)
{
    json_t *stored = eg__json_read(path, 0);
    if (!stored)
        return eg_error_last()->code;
    eg_status status = compare_options(path, stored, options);
    json_decref(stored);
    return status;
}

static eg_status start_run(const char *directory, const char *path, json_t *options)
{
    EG_TRY(eg__make_directory(directory));
    EG_CHECK(json_object_set_new(options, version_key, json_string(eg_version())) == 0, EG_ENOMEM, "no memory for '%s'",
             path);
    return eg__json_write(options, path);
}

eg_status eg_run_create(const char *directory, const char *options_json, bool resume)
{
    EG_CHECK(directory && *directory && options_json, EG_EINVAL, "a run needs a directory and options");
    json_t *options = eg__json_parse(options_json, strlen(options_json), "options of a run");
    if (!options)
        return eg_error_last()->code;
    char *path = eg__format("%s/run.json", directory);
    eg_status status = EG_ENOMEM;
    if (!path)
        ;
    else if (!json_is_object(options))
        status = eg_fail(EG_EINVAL, "options of a run are no JSON object");
    else if (!eg__file_exists(path))
        status = start_run(directory, path, options);
    else if (!resume)
        status = eg_fail(EG_EINVAL, "'%s' holds a run already: name another directory, or resume it", directory);
    else
        status = resume_run(path, options);
    eg_free(path);
    json_decref(options);
    return status;
}

char *eg_run_load(const char *directory)
{
    if (!directory)
        return eg__null(__func__, "directory");
    char *path = eg__format("%s/run.json", directory);
    if (!path)
        return NULL;
    json_t *json = NULL;
    char *text = NULL;
    if (!eg__file_exists(path))
        eg_fail(EG_ENOENT, "'%s' is no run: it has no run.json", directory);
    else if ((json = eg__json_read(path, 0)) && !json_is_object(json))
        eg_fail(EG_EFORMAT, "'%s' is no JSON object", path);
    else if (json)
        text = eg__json_text(json);
    json_decref(json);
    eg_free(path);
    return text;
}

/* ---------------------------------------------------------------------------------------------- events */

/* {"time": .., "event": ..} and the fields, as one line, for free(). */
static char *event_line(const char *event, const json_t *fields)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    json_t *line =
        json_pack("{s:f, s:s}", "time", (double)now.tv_sec + (double)(now.tv_nsec / 1000000) / 1e3, "event", event);
    char *text = NULL;
    if (line && json_object_update_missing(line, (json_t *)fields) == 0)
        text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(line);
    return text;
}

/* Whether a file ends inside a line, as it does when its writer was killed. */
static bool ends_inside_line(int file)
{
    char last;
    off_t end = lseek(file, 0, SEEK_END);
    return end > 0 && pread(file, &last, 1, end - 1) == 1 && last != '\n';
}

eg_status eg__append_line(const char *path, const char *line)
{
    int file = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        return eg__fail_errno("open", path);
    eg__buf buf = {0};
    eg__buf_printf(&buf, "%s%s\n", ends_inside_line(file) ? "\n" : "", line);
    eg_status status = EG_OK;
    if (buf.failed) {
        status = eg_fail(EG_ENOMEM, "no memory for a line of '%s'", path);
    } else {
        ssize_t written = write(file, buf.data, buf.len);
        if (written < 0)
            status = eg__fail_errno("write", path);
        else if ((size_t)written < buf.len)
            status = eg_fail(EG_EIO, "cannot write '%s': no room", path);
    }
    if (close(file) != 0 && status == EG_OK)
        status = eg__fail_errno("write", path);
    eg__buf_free(&buf);
    return status;
}

static eg_status write_event(const char *directory, const char *event, const json_t *fields)
{
    EG_CHECK(json_is_object(fields), EG_EINVAL, "fields of event '%s' are no JSON object", event);
    char *path = eg__format("%s/events.jsonl", directory);
    char *line = event_line(event, fields);
    eg_status status =
        path && line ? eg__append_line(path, line) : eg_fail(EG_ENOMEM, "no memory for event '%s'", event);
    free(line);
    eg_free(path);
    return status;
}

eg_status eg_run_event(const char *directory, const char *event, const char *fields_json)
{
    EG_CHECK(directory && event, EG_EINVAL, "an event needs a directory and a name");
    const char *text = fields_json ? fields_json : "{}";
    json_t *fields = eg__json_parse(text, strlen(text), "fields of an event");
    if (!fields)
        return eg_error_last()->code;
    eg_status status = write_event(directory, event, fields);
    json_decref(fields);
    return status;
}

eg_status eg__event(const char *run, const char *event, json_t *fields)
{
    eg_status status = EG_OK;
    if (!run)
        ;
    else if (!fields)
        status = eg_fail(EG_ENOMEM, "no memory for event '%s'", event);
    else
        status = write_event(run, event, fields);
    json_decref(fields);
    return status;
}

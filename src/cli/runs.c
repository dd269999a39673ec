/*
 * Run directories as the commands use them, and paths.
 */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

char *absolute_path(const char *path)
{
    char *absolute = realpath(path, NULL);
    return absolute ? absolute : strdup(path);
}

char *absolute_spec(const char *spec)
{
    const char *colon = strchr(spec, ':');
    char *path = colon ? absolute_path(colon + 1) : NULL;
    if (!path)
        return strdup(spec);
    size_t scheme = (size_t)(colon - spec) + 1, size = scheme + strlen(path) + 1;
    char *absolute = malloc(size);
    if (absolute)
        snprintf(absolute, size, "%.*s%s", (int)scheme, spec, path);
    free(path);
    return absolute;
}

char *path_join(const char *directory, const char *name)
{
    size_t size = strlen(directory) + strlen(name) + 2;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s/%s", directory, name);
    else
        eg_fail(EG_ENOMEM, "no memory for a path");
    return path;
}

bool file_exists(const char *path)
{
    return path && access(path, F_OK) == 0;
}

json_t *load_run(const char *directory)
{
    char *text = eg_run_load(directory);
    json_t *run = text ? json_loads(text, 0, NULL) : NULL;
    eg_free(text);
    return run;
}

json_t *load_run_to_resume(const char *directory, bool resume)
{
    char *path = directory && resume ? path_join(directory, "run.json") : NULL;
    json_t *run = file_exists(path) ? load_run(directory) : NULL;
    free(path);
    return run;
}

bool is_search(const json_t *run)
{
    const char *name = json_string_value(json_object_get(run, "command"));
    return name && strcmp(name, "search") == 0;
}

eg_status no_run_to_resume(const char *directory)
{
    return eg_fail(EG_ENOENT, "'%s' holds no run to resume", directory);
}

/* The same failure as the library's, in the program's words. */
static eg_status check_no_run(const char *directory)
{
    char *path = path_join(directory, "run.json");
    bool there = file_exists(path);
    free(path);
    EG_CHECK(!there, EG_EINVAL, "'%s' holds a run already: add --resume or name another --out", directory);
    return EG_OK;
}

static json_t *dims_json(eg_shape shape)
{
    json_t *dims = json_array();
    for (int i = 0; i < shape.ndim; i++)
        json_array_append_new(dims, json_integer((json_int_t)shape.dims[i]));
    return dims;
}

/* An architecture as a member of run.json, in its canonical form. */
static eg_status record_arch(json_t *options, const eg_arch *arch)
{
    char *text = eg_arch_text(arch);
    json_t *value = text ? json_loads(text, 0, NULL) : NULL;
    eg_free(text);
    EG_CHECK(json_object_set_new(options, "architecture", value) == 0, EG_ENOMEM, "no memory for run.json");
    return EG_OK;
}

eg_status create_run(const command *c, const void *args, const char *directory, const eg_dataset *data,
                     const eg_arch *arch, const char *space_text, bool resume)
{
    EG_TRY(resume ? EG_OK : check_no_run(directory));
    json_t *options = options_record(c, args);
    if (!options)
        return eg_error_last()->code;
    json_object_set_new(options, "input", dims_json(eg_dataset_shape(data)));
    json_object_set_new(options, "classes", json_integer((json_int_t)eg_dataset_classes(data)));
    if (space_text) {
        char text[FINGERPRINT_SIZE];
        fingerprint(space_text, text);
        json_object_set_new(options, "space_fingerprint", json_string(text));
    }
    eg_status status = arch ? record_arch(options, arch) : EG_OK;
    char *text = status == EG_OK ? json_dumps(options, JSON_REAL_PRECISION(17)) : NULL;
    if (text)
        status = eg_run_create(directory, text, resume);
    else if (status == EG_OK)
        status = eg_fail(EG_ENOMEM, "no memory for run.json");
    free(text);
    json_decref(options);
    return status;
}

eg_status lock_run(const char *directory, int *lock)
{
    char *path = path_join(directory, "lock");
    EG_CHECK(path, EG_ENOMEM, "no memory for a path");
    *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    free(path);
    /* where no lock can be made (a read-only directory, a file system without them), a run goes on without */
    if (*lock < 0 || flock(*lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return EG_OK;
    unlock_run(lock);
    return eg_fail(EG_EIO, "'%s' is in use by another process", directory);
}

void unlock_run(int *lock)
{
    if (*lock >= 0)
        close(*lock);
    *lock = -1;
}

static eg_status check_result(const char *path, const json_t *result, bool of_search)
{
    const char *const of_retraining[] = {"test_accuracy", "params", "macs", "seconds", NULL};
    const char *const *numbers = of_search ? &of_retraining[3] : of_retraining;
    EG_CHECK(json_is_object(result), EG_EFORMAT, "'%s' is no JSON object: delete it to measure again", path);
    for (size_t i = 0; numbers[i]; i++)
        EG_CHECK(json_is_number(json_object_get(result, numbers[i])), EG_EFORMAT,
                 "'%s' lacks the number '%s': delete it to measure again", path, numbers[i]);
    EG_CHECK(!of_search || json_is_object(json_object_get(result, "arch")), EG_EFORMAT,
             "'%s' lacks the object 'arch': delete it to measure again", path);
    return EG_OK;
}

eg_status load_result(const char *directory, bool of_search, json_t **result)
{
    *result = NULL;
    char *path = path_join(directory, "result.json");
    EG_CHECK(path, EG_ENOMEM, "no memory for a path");
    eg_status status = EG_OK;
    if (file_exists(path)) {
        *result = json_load_file(path, 0, NULL);
        status = check_result(path, *result, of_search);
    }
    if (status != EG_OK) {
        json_decref(*result);
        *result = NULL;
    }
    free(path);
    return status;
}

/* The temporary name first: a result that is there is whole. Fifteen digits are all that reads back as it was written.
 */
eg_status save_result(const char *directory, const json_t *result)
{
    char *path = path_join(directory, "result.json"), *temporary = path_join(directory, "result.json.tmp");
    eg_status status = EG_OK;
    if (!path || !temporary)
        status = EG_ENOMEM;
    else if (json_dump_file(result, temporary, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) != 0 ||
             rename(temporary, path) != 0)
        status = eg_fail(EG_EIO, "cannot write '%s': %s", path, strerror(errno));
    free(path);
    free(temporary);
    return status;
}

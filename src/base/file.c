/*
 * base/file.c - whole files in, whole files out.
 */
#include "base/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

eg_status eg__open_regular(const char *path, int *descriptor, uint64_t *size)
{
    *descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*descriptor < 0)
        return eg__fail_errno("open", path);
    struct stat info;
    if (fstat(*descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(*descriptor);
        *descriptor = -1;
        return eg_fail(EG_EIO, "'%s' is not a regular file", path);
    }
    *size = (uint64_t)info.st_size;
    return EG_OK;
}

static eg_status read_all(FILE *file, const char *path, size_t max, eg__buf *buf)
{
    size_t chunk = 16384;
    for (;;) {
        if (chunk >= SIZE_MAX - buf->len || eg__grow(&buf->data, &buf->capacity, buf->len + chunk + 1, 1) != EG_OK)
            return eg_fail(EG_ENOMEM, "cannot read '%s': out of memory", path);
        size_t got = fread(buf->data + buf->len, 1, chunk, file);
        buf->len += got;
        if (got < chunk && ferror(file))
            return eg__fail_errno("read", path);
        EG_CHECK(max == 0 || buf->len <= max, EG_EFORMAT, "'%s' is larger than %zu bytes", path, max);
        if (got < chunk)
            return EG_OK;
        chunk = buf->capacity;
    }
}

eg_status eg__file_read(const char *path, size_t max, char **data, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return eg__fail_errno("open", path);
    eg__buf buf = {0};
    eg_status status = read_all(file, path, max, &buf);
    fclose(file);
    if (status != EG_OK) {
        eg__buf_free(&buf);
        return status;
    }
    *size = buf.len;
    *data = eg__buf_take(&buf);
    return *data ? EG_OK : EG_ENOMEM;
}

/* A file of that name that was not there before; -1 with errno otherwise. */
static int create_beside(const char *path, char **name)
{
    for (int attempt = 0; attempt < 1000; attempt++) {
        char *candidate = eg__format("%s.%ld-%d.tmp", path, (long)getpid(), attempt);
        if (!candidate) {
            errno = ENOMEM;
            return -1;
        }
        int descriptor = open(candidate, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (descriptor >= 0) {
            *name = candidate;
            return descriptor;
        }
        int error = errno;
        free(candidate);
        errno = error;
        if (error != EEXIST)
            return -1;
    }
    return -1;
}

eg_status eg__writer_open(eg__writer *writer, const char *path)
{
    *writer = (eg__writer){0};
    writer->path = eg__strdup(path);
    if (!writer->path)
        return EG_ENOMEM;
    struct stat info;
    /* A device or a pipe cannot be replaced by renaming: written directly, `temporary` stays NULL. */
    bool direct = stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
    int descriptor = direct ? open(path, O_WRONLY | O_CLOEXEC) : create_beside(path, &writer->temporary);
    if (descriptor >= 0)
        writer->file = fdopen(descriptor, "wb");
    if (writer->file)
        return EG_OK;
    eg_status status = eg__fail_errno("create", path);
    if (descriptor >= 0)
        close(descriptor);
    eg__writer_abort(writer);
    return status;
}

eg_status eg__writer_put(eg__writer *writer, const void *data, size_t size)
{
    if (writer->status == EG_OK && size > 0 && fwrite(data, 1, size, writer->file) != size)
        writer->status = eg__fail_errno("write", writer->path);
    return writer->status;
}

static void sync_directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *directory = slash ? eg__format("%.*s", (int)EG_MAX(slash - path, 1), path) : eg__strdup(".");
    if (!directory)
        return; /* the new content is in place already */
    int descriptor = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor >= 0) {
        (void)fsync(descriptor); /* not every file system can */
        close(descriptor);
    }
    free(directory);
}

eg_status eg__writer_close(eg__writer *writer)
{
    if (writer->status == EG_OK &&
        (fflush(writer->file) != 0 || (writer->temporary && fsync(fileno(writer->file)) != 0)))
        writer->status = eg__fail_errno("write", writer->path);
    FILE *file = writer->file;
    writer->file = NULL;
    if (fclose(file) != 0 && writer->status == EG_OK)
        writer->status = eg__fail_errno("write", writer->path);
    if (writer->status == EG_OK && writer->temporary) {
        if (rename(writer->temporary, writer->path) != 0) {
            writer->status = eg__fail_errno("replace", writer->path);
        } else {
            free(writer->temporary);
            writer->temporary = NULL;
            eg__error_mark mark;
            eg__error_save(&mark);
            sync_directory_of(writer->path);
            eg__error_restore(&mark);
        }
    }
    eg_status status = writer->status;
    eg__writer_abort(writer);
    return status;
}

void eg__writer_abort(eg__writer *writer)
{
    if (writer->file)
        fclose(writer->file);
    if (writer->temporary)
        remove(writer->temporary);
    free(writer->temporary);
    free(writer->path);
    *writer = (eg__writer){.status = writer->status};
}

eg_status eg__file_write(const char *path, const void *data, size_t size)
{
    eg__writer writer;
    EG_TRY(eg__writer_open(&writer, path));
    eg__writer_put(&writer, data, size);
    return eg__writer_close(&writer);
}

static eg_status make_one(const char *path)
{
    if (mkdir(path, 0777) == 0)
        return EG_OK;
    int error = errno;
    struct stat info;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return EG_OK;
    errno = error;
    return eg__fail_errno("make directory", path);
}

eg_status eg__make_directory(const char *path)
{
    EG_CHECK(path[0], EG_EINVAL, "cannot make directory '': the name is empty");
    char *copy = eg__strdup(path);
    if (!copy)
        return EG_ENOMEM;
    eg_status status = EG_OK;
    for (char *p = copy + 1; status == EG_OK && (p = strchr(p, '/')); p++) {
        *p = '\0';
        status = make_one(copy);
        *p = '/';
    }
    if (status == EG_OK)
        status = make_one(copy);
    free(copy);
    return status;
}

bool eg__file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

double eg__now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

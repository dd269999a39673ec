/*
 * data/input.c - reading files that may be compressed by gzip.
 */
#include "data/internal.h"

#include <unistd.h>
#include <zlib.h>

/* Deflate cannot make more than this out of a byte. */
#define MOST_EXPANSION 1032

eg_status eg__input_open(eg__input *input, const char *path)
{
    *input = (eg__input){0};
    int fd = -1;
    uint64_t size = 0;
    EG_TRY(eg__open_regular(path, &fd, &size));
    input->limit = size > UINT64_MAX / MOST_EXPANSION ? UINT64_MAX : size * MOST_EXPANSION;
    input->path = eg__strdup(path);
    if (!input->path) {
        close(fd);
        return EG_ENOMEM;
    }
    input->file = gzdopen(fd, "rb");
    if (!input->file) {
        close(fd);
        eg__input_close(input);
        return eg_fail(EG_ENOMEM, "cannot open '%s': out of memory", path);
    }
    return EG_OK;
}

eg_status eg__input_open_in(eg__input *input, const char *directory, const char *name)
{
    *input = (eg__input){0};
    char *plain = eg__format("%s/%s", directory, name), *packed = eg__format("%s/%s.gz", directory, name);
    eg_status status = plain && packed ? EG_OK : EG_ENOMEM;
    if (status == EG_OK) {
        bool any = eg__file_exists(plain) || eg__file_exists(packed);
        status = any ? eg__input_open(input, eg__file_exists(plain) ? plain : packed)
                     : eg_fail(EG_ENOENT, "there is neither '%s' nor '%s.gz'", plain, name);
    }
    eg_free(plain);
    eg_free(packed);
    return status;
}

eg_status eg__input_read(eg__input *input, void *out, size_t n, size_t *got)
{
    *got = 0;
    while (*got < n) {
        unsigned chunk = (unsigned)EG_MIN(n - *got, (size_t)1 << 24);
        int count = gzread(input->file, (char *)out + *got, chunk);
        if (count > 0)
            *got += (size_t)count;
        if (count == (int)chunk)
            continue;
        int code = Z_OK;
        const char *text = gzerror(input->file, &code);
        if (code == Z_ERRNO)
            return eg__fail_errno("read", input->path);
        EG_CHECK(code != Z_MEM_ERROR, EG_ENOMEM, "cannot read '%s': out of memory", input->path);
        EG_CHECK(code == Z_OK || code == Z_STREAM_END, EG_EFORMAT, "'%s': compressed data is broken: %s", input->path,
                 text);
        if (count <= 0)
            break;
    }
    return EG_OK;
}

void eg__input_close(eg__input *input)
{
    if (input->file)
        gzclose(input->file);
    eg_free(input->path);
    *input = (eg__input){0};
}

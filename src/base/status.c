/*
 * base/status.c - the record of failures: one last and one first per thread, in fixed buffers, so that reporting a
 * failure cannot fail itself.
 */
#include "base/internal.h"

#include <errno.h>
#include <string.h>

enum { TEXT_SIZE = sizeof(((eg__error_mark *)NULL)->text[0]), WHERE_SIZE = sizeof(((eg__error_mark *)NULL)->where[0]) };

typedef struct failure {
    eg_error view;
    char text[TEXT_SIZE];
    char where[WHERE_SIZE];
} failure;

/* The one piece of state that belongs to a thread and not to a context. */
static _Thread_local struct {
    failure last, first;
    bool same; /* last and first are one failure: prefixes go to both */
} errors;

const char *eg_version(void)
{
    return EG_VERSION_STRING;
}

const char *eg_status_name(eg_status status)
{
#define STATUS_TEXT(name, text) text,
    static const char *const names[] = {EG_STATUS_LIST(STATUS_TEXT)};
#undef STATUS_TEXT
    return (unsigned)status < EG_COUNT(names) ? names[status] : "unknown status";
}

static const eg_error *view(failure *f)
{
    f->view.message = f->text;
    f->view.where = f->where;
    return &f->view;
}

const eg_error *eg_error_last(void)
{
    return view(&errors.last);
}

const eg_error *eg_error_first(void)
{
    return view(&errors.first);
}

static void forget(failure *f)
{
    f->view.code = EG_OK;
    f->text[0] = f->where[0] = '\0';
}

void eg_error_clear(void)
{
    forget(&errors.last);
    forget(&errors.first);
    errors.same = false;
}

/* Messages quote what files hold: a name in one of them must start no line and command no terminal. */
static void replace_controls(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        bool wide = c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0; /* U+0080 .. U+009F in UTF-8 */
        if (wide)
            *c++ = '?';
        if (wide || *c < 0x20 || *c == 0x7f)
            *c = '?';
    }
}

static void set_text(char *to, size_t size, const char *from)
{
    size_t len = strlen(from);
    memcpy(to, from, EG_MIN(len + 1, size));
    if (len >= size) {
        to[size - 1] = '\0';
        memcpy(to + size - 4, "...", 3);
    }
    replace_controls(to);
}

static eg_status record(const char *where, eg_status status, const char *text)
{
    failure *last = &errors.last;
    last->view.code = status;
    set_text(last->text, sizeof last->text, text);
    set_text(last->where, sizeof last->where, where ? where : "");
    errors.same = errors.first.view.code == EG_OK;
    if (errors.same)
        errors.first = *last;
    return status;
}

eg_status eg_fail_at(const char *where, eg_status status, const char *format, ...)
{
    /* An argument may be the recorded message itself: format into a buffer of our own first. */
    char text[TEXT_SIZE + 1];
    va_list args;
    va_start(args, format);
    if (vsnprintf(text, sizeof text, format, args) < 0)
        set_text(text, sizeof text, format);
    va_end(args);
    return record(where, status, text);
}

eg_status eg__fail_prefix(eg_status status, const char *format, ...)
{
    failure *last = &errors.last;
    char text[2 * TEXT_SIZE + 2];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, TEXT_SIZE, format, args);
    va_end(args);
    if (length < 0)
        return status;
    bool recorded = last->view.code == status;
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, ": %s", recorded ? last->text : eg_status_name(status));
    if (!recorded)
        return record(__func__, status, text);
    set_text(last->text, sizeof last->text, text);
    if (errors.same)
        errors.first = *last;
    return status;
}

eg_status eg__fail_silent(eg_status status, const char *function, const char *owner)
{
    bool recorded = status == EG_OK || errors.last.view.code == status;
    return recorded ? status : eg_fail(status, "%s of '%s' failed without a message", function, owner ? owner : "?");
}

const char *eg__errno_text(int error, char text[EG__ERRNO_TEXT_SIZE])
{
    if (strerror_r(error, text, EG__ERRNO_TEXT_SIZE) != 0)
        snprintf(text, EG__ERRNO_TEXT_SIZE, "error %d", error);
    return text;
}

eg_status eg__fail_errno(const char *what, const char *path)
{
    int error = errno;
    char text[EG__ERRNO_TEXT_SIZE];
    eg_status status = error == ENOENT || error == ENOTDIR ? EG_ENOENT : error == ENOMEM ? EG_ENOMEM : EG_EIO;
    return eg_fail(status, "cannot %s '%s': %s", what, path, eg__errno_text(error, text));
}

void *eg__null(const char *where, const char *what)
{
    if (errors.last.view.code == EG_OK)
        eg_fail_at(where, EG_EINVAL, "%s: %s is NULL", where, what);
    return NULL;
}

static void save_one(const failure *f, char *text, char *where)
{
    memcpy(text, f->text, TEXT_SIZE);
    memcpy(where, f->where, WHERE_SIZE);
}

static void restore_one(failure *f, eg_status code, const char *text, const char *where)
{
    f->view.code = code;
    memcpy(f->text, text, TEXT_SIZE);
    memcpy(f->where, where, WHERE_SIZE);
}

void eg__error_save(eg__error_mark *mark)
{
    mark->last = errors.last.view.code;
    mark->first = errors.first.view.code;
    mark->same = errors.same;
    save_one(&errors.last, mark->text[0], mark->where[0]);
    save_one(&errors.first, mark->text[1], mark->where[1]);
}

void eg__error_restore(const eg__error_mark *mark)
{
    restore_one(&errors.last, mark->last, mark->text[0], mark->where[0]);
    restore_one(&errors.first, mark->first, mark->text[1], mark->where[1]);
    errors.same = mark->same;
}

eg_status eg__options_copy(void *own, size_t size, const void *given)
{
    memset(own, 0, size);
    if (!given)
        return EG_OK;
    size_t given_size;
    memcpy(&given_size, given, sizeof given_size);
    EG_CHECK(given_size >= sizeof given_size, EG_EINVAL,
             "the options' struct_size is not set: write .struct_size = sizeof(...) or use the macro");
    memcpy(own, given, EG_MIN(size, given_size));
    return EG_OK;
}

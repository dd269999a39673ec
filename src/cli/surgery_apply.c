/*
 * engraft surgery apply and undo: what a surgery makes, written into folders.
 */
#include "cli/surgery.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder is written under another name and gets its own when it is whole. Returns that name, for end_folder(); NULL
 * on failure. */
static char *begin_folder(const char *name)
{
    if (file_exists(name)) {
        eg_fail(EG_EINVAL, "'%s' is there already: a surgery writes into a new folder", name);
        return NULL;
    }
    size_t length = strlen(name), size = length + sizeof ".partial";
    while (length > 1 && name[length - 1] == '/')
        length--;
    char *partial = malloc(size);
    if (!partial) {
        eg_fail(EG_ENOMEM, "out of memory");
        return NULL;
    }
    snprintf(partial, size, "%.*s.partial", (int)length, name);
    if (mkdir(partial, 0777) == 0)
        return partial;
    eg_fail(EG_EIO, "cannot make the folder '%s': %s", partial,
            errno == EEXIST ? "it is there, of a surgery that runs or was killed" : strerror(errno));
    free(partial);
    return NULL;
}

static void remove_folder(const char *directory)
{
    static const char *const names[] = {"model.json", "model.safetensors", "space.json", "surgery.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = path_join(directory, names[i]);
        if (path)
            unlink(path);
        free(path);
    }
    rmdir(directory);
}

/* So that the new name is there after a crash too; not every file system can. */
static void sync_parent(const char *name)
{
    char *parent = path_join(name, "..");
    int descriptor = parent ? open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (descriptor >= 0) {
        (void)fsync(descriptor);
        close(descriptor);
    }
    free(parent);
}

/* Passes the status of the writing on. */
static eg_status end_folder(char *partial, const char *name, eg_status status)
{
    char *before = path_join(partial, "before");
    if (status == EG_OK && rename(partial, name) != 0)
        status = eg_fail(EG_EIO, "cannot write '%s': %s", name, strerror(errno));
    if (status == EG_OK)
        sync_parent(name);
    if (status != EG_OK && before)
        remove_folder(before);
    if (status != EG_OK)
        remove_folder(partial);
    free(before);
    free(partial);
    return status;
}

/* The model before stays in a folder of its own: that is what undo reads. */
static eg_status write_model_before(work *w, const char *out)
{
    char *before = path_join(out, "before");
    EG_CHECK(before, EG_ENOMEM, "out of memory");
    eg_status status = mkdir(before, 0777) == 0
                           ? save_named_model(&w->first, before)
                           : eg_fail(EG_EIO, "cannot make the folder '%s': %s", before, strerror(errno));
    free(before);
    return status;
}

static eg_status write_all(work *w, const char *out)
{
    char *recipe = path_join(out, "surgery.json");
    eg_status status = recipe ? write_model_before(w, out) : eg_fail(EG_ENOMEM, "out of memory");
    if (status == EG_OK)
        status = eg_surgery_commit(w->s);
    if (status == EG_OK)
        status = eg_surgery_save_recipe(w->s, recipe);
    if (status == EG_OK)
        status = save_named_model(&w->first, out);
    free(recipe);
    return status;
}

static eg_status write_result(work *w, const char *out)
{
    EG_TRY(eg_surgery_check(w->s));
    char *partial = begin_folder(out);
    return partial ? end_folder(partial, out, write_all(w, partial)) : eg_error_last()->code;
}

static int apply_part(const command *self, work *w, const surgery_args *a)
{
    if (!has_plan(self, w, a))
        return EXIT_NOTHING;
    if (write_result(w, a->out) != EG_OK)
        return report_failure(self->name);
    if (w->first.is_random)
        fprintf(stderr, "engraft: '%s' has no weights beside it (.safetensors): those that were written are random\n",
                a->words[0]);
    if (a->json)
        return print_text(self, eg_surgery_json(w->s), true);
    printf("%zu module%s replaced; the %s is in '%s', and as it was in '%s/before'\n", eg_surgery_size(w->s),
           eg_surgery_size(w->s) == 1 ? "" : "s", w->first.space ? "space" : "model", a->out, a->out);
    return EXIT_OK;
}

static int run_apply(const command *self, void *args, bool *given)
{
    return options_complete(self, given) ? run_surgery(self, args, apply_part) : EXIT_USAGE;
}

static const option_spec apply_options[] = {
    RULE_ROWS,
    ROW(TEXT, out, "out", "DIR",
        "new folder for model.json, model.safetensors (of a space: space.json), surgery.json, before/",
        .flags = OPTION_REQUIRED),
    INPUT_ROW, JSON_ROW, END_ROW};
const command surgery_apply = {
    .name = "surgery apply",
    .synopsis = "MODEL --method CALL.. | --replace CLASS=CALL.. --out DIR",
    .summary = "change a model, and write what it is then into a new folder",
    .details = about_models,
    .options = apply_options,
    .args_size = sizeof(surgery_args),
    .run = run_apply,
    .min_words = 1,
    .max_words = 1,
    .words_offset = offsetof(surgery_args, words),
};

static eg_status open_before(work *w, const surgery_args *a)
{
    char *before = path_join(a->words[0], "before");
    if (!before)
        return eg_fail(EG_ENOMEM, "out of memory");
    surgery_args from = *a;
    from.words[0] = before;
    eg_status status = file_exists(before) ? open_work(w, &from) : EG_ENOENT;
    if (!file_exists(before)) {
        *w = (work){0};
        eg_fail(EG_ENOENT, "'%s' is not what 'engraft surgery apply' has written: it has no folder 'before'",
                a->words[0]);
    }
    free(before);
    return status;
}

static int undo_part(const command *self, work *w, const surgery_args *a)
{
    char *partial = begin_folder(a->out);
    if (!partial || end_folder(partial, a->out, save_named_model(&w->first, partial)) != EG_OK)
        return report_failure(self->name);
    if (a->json)
        return print_json(json_pack("{s:s}", "model", a->out));
    printf("the model before is in '%s'\n", a->out);
    return EXIT_OK;
}

static int run_undo(const command *self, void *args, bool *given)
{
    return options_complete(self, given) ? run_with(self, args, open_before, undo_part) : EXIT_USAGE;
}

static const option_spec undo_options[] = {
    ROW(TEXT, out, "out", "DIR", "new folder for the model as it was", .flags = OPTION_REQUIRED), JSON_ROW, END_ROW};
const command surgery_undo = {
    .name = "surgery undo",
    .synopsis = "DIR --out DIR",
    .summary = "the model as it was before 'surgery apply' wrote a folder",
    .options = undo_options,
    .args_size = sizeof(surgery_args),
    .run = run_undo,
    .min_words = 1,
    .max_words = 1,
    .words_offset = offsetof(surgery_args, words),
};

/*
 * Recipes of surgeries: any text is refused, or plans a surgery that can be committed, said again and undone.
 */
#include "engraft/surgery_report.h"

#include "engraft/layers.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static eg_module *make_model(eg_context *ctx)
{
    eg_module *shared = eg_relu(ctx);
    return eg_sequential(
        ctx, EG_NAMED({"conv", eg_conv2d(ctx, 2, 4, 3, .padding = 1)}, {"relu", shared},
                      {"body", eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 4, 4, 1), eg_batch_norm2d(ctx, 4),
                                                             eg_module_retain(shared)))},
                      {"pool", eg_global_avg_pool2d(ctx)}, {"head", eg_linear(ctx, 4, 3)}));
}

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* A recipe of a model that came from one may be unsayable, but nothing that is said may do something else. */
static void say_again(eg_context *ctx, eg_surgery *s, eg_module *model)
{
    char *recipe = eg_surgery_recipe(s);
    if (recipe == NULL)
        return;
    eg_module *fresh = make_model(ctx);
    eg_surgery *again = eg_surgery_new(fresh, .root = &fresh);
    must(again != NULL && eg_surgery_replay(again, recipe, false) == EG_OK && eg_surgery_commit(again) == EG_OK);
    eg_model_diff *d = eg_model_diff_new(model, fresh);
    must(d != NULL && eg_model_diff_size(d) == 0);
    eg_model_diff_free(d);
    eg_surgery_free(again);
    eg_module_release(fresh);
    eg_free(recipe);
}

static void replay(eg_context *ctx, const char *text)
{
    eg_module *model = make_model(ctx);
    char *before = eg_module_text(model);
    eg_surgery *s = eg_surgery_new(model, .root = &model);
    if (eg_surgery_replay(s, text, true) == EG_OK && eg_surgery_commit(s) == EG_OK) {
        eg_free(eg_surgery_text(s));
        eg_free(eg_surgery_json(s));
        say_again(ctx, s, model);
        if (eg_surgery_size(s) > 0)
            must(eg_surgery_undo(s) == EG_OK);
    }
    char *after = eg_module_text(model);
    must(before != NULL && after != NULL && strcmp(before, after) == 0);
    eg_free(before);
    eg_free(after);
    eg_surgery_free(s);
    eg_module_release(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    eg_context *ctx = eg_context_new(.threads = 1, .backend = "ref", .max_memory = 1 << 24);
    if (ctx != NULL)
        replay(ctx, text);
    eg_context_free(ctx);
    free(text);
    eg_error_clear();
    return 0;
}

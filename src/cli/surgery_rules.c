/*
 * What the options of `engraft surgery` say is to be done: checked, planned, and what it promises.
 */
#include "cli/surgery.h"

#include <stdlib.h>
#include <string.h>

/* ---- rules ---- */

/* The method that a call names ("factorize(rank=0.25)", spaces as eg_method_from_text() allows them), or NULL. */
static const eg_method *method_called(const char *call)
{
    call += strspn(call, " \t\n");
    size_t len = strcspn(call, "( \t\n");
    for (size_t i = 0; eg_method_at(i); i++)
        if (strlen(eg_method_at(i)->options.name) == len && strncmp(eg_method_at(i)->options.name, call, len) == 0)
            return eg_method_at(i);
    return NULL;
}

/* The payload is what stands after '=' in --replace. */
static eg_module *make_again(void *payload, eg_module *module, size_t index)
{
    (void)index;
    return eg_module_from_text(module->ctx, payload);
}

/* Rules in turn: one, and the '--at' that limits it. */
typedef struct limited_rule {
    const char *option, *value, *at;
} limited_rule;

static bool next_rule(const rule_list *rules, size_t *i, limited_rule *out)
{
    if (*i == rules->n)
        return false;
    const struct rule *rule = &rules->items[(*i)++];
    bool limited = *i < rules->n && strcmp(rules->items[*i].option, "at") == 0;
    *out = (limited_rule){rule->option, rule->value, limited ? rules->items[(*i)++].value : NULL};
    return true;
}

eg_status check_rules(const rule_list *rules)
{
    limited_rule rule;
    for (size_t i = 0; next_rule(rules, &i, &rule);) {
        EG_CHECK(strcmp(rule.option, "at") != 0, EG_EINVAL,
                 "'--at %s' stands behind the --method or --replace that it limits", rule.value);
        EG_CHECK(!rule.at || strcmp(rule.option, "recipe") != 0, EG_EINVAL,
                 "'--at %s' limits no recipe: its steps say where they act", rule.at);
        const char *equals = strchr(rule.value, '=');
        EG_CHECK(strcmp(rule.option, "replace") != 0 || (equals && equals > rule.value && equals[1]), EG_EINVAL,
                 "option '--replace' takes CLASS=METHOD(..) or CLASS=CLASS(..), not '%s'", rule.value);
    }
    return EG_OK;
}

/* "BatchNorm2d=ghost_batch_norm(ghost_batch_size=16)", "ReLU=SiLU". */
static eg_status plan_replace(eg_surgery *s, eg_context *ctx, const char *rule, const char *at)
{
    char cls_name[128];
    const char *equals = strchr(rule, '=');
    snprintf(cls_name, sizeof(cls_name), "%.*s", (int)(equals - rule), rule);
    const eg_class *cls = eg_context_find_class(ctx, cls_name);
    if (!cls)
        return eg_error_last()->code;
    const char *call = equals + 1;
    if (method_called(call)) {
        eg_module *options = eg_method_from_text(ctx, call);
        return options ? eg_surgery_apply_to(s, options, cls, at) : eg_error_last()->code;
    }
    return eg_surgery_replace(
        s, EG_POLICIES({.cls = cls, .replace = make_again, .payload = (char *)(uintptr_t)call, .at = at, .name = rule}),
        false);
}

static eg_status plan_method(eg_surgery *s, eg_context *ctx, const char *call, const char *at)
{
    eg_module *options = eg_method_from_text(ctx, call);
    return options ? eg_surgery_apply(s, options, at) : eg_error_last()->code;
}

eg_status plan_rules(eg_surgery *s, eg_context *ctx, const rule_list *rules, bool any_model)
{
    limited_rule rule;
    for (size_t i = 0; next_rule(rules, &i, &rule);) {
        if (strcmp(rule.option, "recipe") == 0)
            EG_TRY(eg_surgery_load_recipe(s, rule.value, any_model));
        else if (strcmp(rule.option, "method") == 0)
            EG_TRY(plan_method(s, ctx, rule.value, rule.at));
        else
            EG_TRY(plan_replace(s, ctx, rule.value, rule.at));
    }
    return EG_OK;
}

/* ---- what they promise ---- */

static eg_promise promise_of_call(const char *call)
{
    const eg_method *method = call ? method_called(call) : NULL;
    return method ? method->promise : EG_PROMISE_TRAINED;
}

static eg_promise lesser(eg_promise a, eg_promise b)
{
    return a > b ? a : b;
}

/* What is trained later is no matter of the outputs. */
static eg_promise promise_of_recipe(const char *path)
{
    eg_promise least = EG_PROMISE_EXACT;
    size_t i;
    json_t *step, *recipe = json_load_file(path, 0, NULL);
    if (!recipe)
        return EG_PROMISE_TRAINED;
    json_array_foreach(json_object_get(recipe, "steps"), i, step)
    {
        if (!json_object_get(step, "train"))
            least = lesser(least, promise_of_call(json_string_value(json_object_get(step, "method"))));
    }
    json_decref(recipe);
    return least;
}

eg_promise promise_of_folder(const char *directory, eg_promise otherwise)
{
    char *path = path_join(directory, "surgery.json");
    eg_promise promise = path && file_exists(path) ? promise_of_recipe(path) : otherwise;
    free(path);
    return promise;
}

eg_promise promise_of_rules(const rule_list *rules)
{
    eg_promise least = EG_PROMISE_EXACT;
    for (size_t i = 0; i < rules->n; i++) {
        const struct rule *rule = &rules->items[i];
        if (strcmp(rule->option, "recipe") == 0)
            least = lesser(least, promise_of_recipe(rule->value));
        else if (strcmp(rule->option, "method") == 0)
            least = lesser(least, promise_of_call(rule->value));
        else if (strcmp(rule->option, "replace") == 0)
            least = lesser(least, promise_of_call(strchr(rule->value, '=') + 1)); /* planned, so it has one */
    }
    return least;
}

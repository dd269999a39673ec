/*
 * nas/arch_values.c - between decisions and the values of an architecture file.
 */
#include "nas/internal.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- decision -> JSON ---- */

static bool all_digits(const char *name)
{
    for (const char *c = name; *c != '\0'; c++) {
        if (!isdigit((unsigned char)*c))
            return false;
    }
    return *name != '\0';
}

/* Candidates go by their names where these tell them apart; a layer choice's numbers are indices, not names. */
static bool has_names(const eg_module *choice)
{
    bool layer = eg_is_a(choice, &eg_layer_choice_class), digits = true;
    size_t n = eg__choice_size(choice);
    for (size_t i = 0; i < n; i++) {
        const char *name = eg__choice_name(choice, i);
        digits = digits && all_digits(name);
        for (size_t k = 0; k < i; k++) {
            if (strcmp(name, eg__choice_name(choice, k)) == 0)
                return false;
        }
    }
    return !layer || !digits;
}

json_t *eg__candidate_json(const eg_module *choice, size_t i)
{
    if (eg__kind_of(choice) != EG__VALUES)
        return json_string(eg__choice_name(choice, i));
    double value = eg_value_choice_at(choice, i);
    return eg__is_whole(value) ? json_integer((json_int_t)value) : json_real(value);
}

static json_t *chosen_json(const eg_module *choice, const double *weights, size_t n)
{
    bool names = has_names(choice);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        if (weights[i] != 0)
            list = eg__json_append(list, names ? json_string(eg__choice_name(choice, i)) : json_integer((json_int_t)i));
    }
    if (list == NULL || json_array_size(list) != 1)
        return list;
    json_t *only = json_incref(json_array_get(list, 0));
    json_decref(list);
    return only;
}

static json_t *value_json(const eg_module *choice, const eg_decision *decision)
{
    size_t i = 0;
    if (eg__value_chosen(choice, decision, &i) != EG_OK)
        return NULL;
    json_t *value = eg__candidate_json(choice, i);
    if (value == NULL)
        eg_fail(EG_ENOMEM, "out of memory");
    return value;
}

json_t *eg__decision_json(const eg_module *choice, const eg_decision *decision)
{
    const char *key = eg_mutable_key(choice);
    if (decision->n != eg__choice_size(choice)) {
        eg_fail(EG_EINVAL, "the decision for '%s' has %zu entries, expected %zu", key, decision->n,
                eg__choice_size(choice));
        return NULL;
    }
    if (eg__kind_of(choice) == EG__VALUES)
        return value_json(choice, decision);
    double *weights = eg__calloc(decision->n + 1, sizeof(*weights));
    if (weights == NULL || eg__decision_read(decision, weights) != EG_OK) {
        free(weights);
        return NULL;
    }
    bool plain = true;
    for (size_t i = 0; i < decision->n; i++)
        plain = plain && (weights[i] == 0 || weights[i] == 1);
    for (size_t i = 0; i < decision->n; i++) {
        if (!isfinite(weights[i])) {
            free(weights);
            eg_fail(EG_EINVAL, "the decision for '%s' has a weight that is not finite", key);
            return NULL;
        }
    }
    json_t *value = plain ? chosen_json(choice, weights, decision->n) : json_array();
    for (size_t i = 0; i < decision->n && !plain; i++)
        value = eg__json_append(value, json_real(weights[i]));
    free(weights);
    if (value == NULL)
        eg_fail(EG_ENOMEM, "out of memory, or a name or weight of '%s' that JSON cannot hold", key);
    return value;
}

/* ---- JSON -> decision ---- */

/* "'conv3x3', 'pool' or 'skip'", or "16, 24 or 32", shortened. */
static const char *list_names(const eg_module *choice, char *text, size_t size)
{
    size_t n = eg__choice_size(choice);
    bool values = eg__kind_of(choice) == EG__VALUES;
    char number[EG__NUMBER_TEXT_SIZE];
    eg__text out = {text, size};
    for (size_t i = 0; i < n; i++) {
        eg__text_add(&out, "%s", i == 0 ? "" : i + 1 == n ? " or " : ", ");
        if (values)
            eg__text_add(&out, "%s", eg__value_text(eg_value_choice_at(choice, i), number));
        else
            eg__text_add(&out, "'%s'", eg__choice_name(choice, i));
    }
    return text;
}

/* The value as it stands in the file, for messages. */
static eg_status fail_value(const eg_module *choice, const json_t *value, const char *expected)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    eg_status status = eg_fail(EG_EINVAL, "architecture: '%s' is %.200s, expected %s", eg_mutable_key(choice),
                               text != NULL ? text : "a value", expected);
    free(text);
    return status;
}

static eg_status find_name(const eg_module *choice, const json_t *value, size_t *index)
{
    const char *name = json_string_value(value);
    for (*index = 0; *index < eg__choice_size(choice); ++*index) {
        if (strcmp(name, eg__choice_name(choice, *index)) == 0)
            return EG_OK;
    }
    char names[300];
    return fail_value(choice, value, list_names(choice, names, sizeof(names)));
}

/* The candidate that a name or an index means. */
static eg_status find_candidate(const eg_module *choice, const json_t *value, size_t *index)
{
    if (json_is_string(value))
        return find_name(choice, value, index);
    char expected[80];
    size_t n = eg__choice_size(choice);
    snprintf(expected, sizeof(expected), "a name, an index 0 to %zu, a list of them, or %zu weights", n - 1, n);
    double number = json_is_number(value) ? json_number_value(value) : -1; /* true and false are in masks only */
    if (number < 0 || number >= (double)n || number != floor(number))
        return fail_value(choice, value, expected);
    *index = (size_t)number;
    return EG_OK;
}

/* How to read a list: of n booleans or n reals (one that is not whole is enough) as a mask or weights; else a list of
 * names and indices. */
typedef enum list_form { FORM_MASK, FORM_WEIGHTS, FORM_CANDIDATES } list_form;

static list_form form_of(const json_t *list, size_t n)
{
    size_t size = json_array_size(list), booleans = 0, reals = 0, numbers = 0, fractions = 0;
    for (size_t i = 0; i < size; i++) {
        const json_t *item = json_array_get(list, i);
        booleans += json_is_boolean(item) ? 1 : 0;
        reals += json_is_real(item) ? 1 : 0;
        numbers += json_is_number(item) ? 1 : 0;
        fractions += json_is_real(item) && json_real_value(item) != floor(json_real_value(item)) ? 1 : 0;
    }
    if (size != n || n == 0)
        return FORM_CANDIDATES;
    if (booleans == n)
        return FORM_MASK;
    return reals == n || (numbers == n && fractions > 0) ? FORM_WEIGHTS : FORM_CANDIDATES;
}

/* Fills mask[n] from a list of names and indices (one that is no list stands for a list of one). */
static eg_status read_candidates(const eg_module *choice, const json_t *value, bool *mask)
{
    size_t size = json_is_array(value) ? json_array_size(value) : json_is_null(value) ? 0 : 1;
    for (size_t i = 0; i < size; i++) {
        size_t index = 0;
        EG_TRY(find_candidate(choice, json_is_array(value) ? json_array_get(value, i) : value, &index));
        if (mask[index])
            return fail_value(choice, value, "each candidate once");
        mask[index] = true;
    }
    return EG_OK;
}

/* A number that is one of the values. */
static eg_status parse_value(const eg_module *choice, const json_t *value, eg_decisions *out)
{
    size_t n = eg_value_choice_size(choice), i = 0;
    while (json_is_number(value) && i < n && eg_value_choice_at(choice, i) != json_number_value(value))
        i++;
    char names[300];
    if (!json_is_number(value) || i == n)
        return fail_value(choice, value, list_names(choice, names, sizeof(names)));
    return eg_decisions_choose(out, choice, i);
}

eg_status eg__decision_parse(const eg_module *choice, const json_t *value, eg_decisions *out)
{
    if (eg__kind_of(choice) == EG__VALUES)
        return parse_value(choice, value, out);
    size_t n = eg__choice_size(choice);
    const char *key = eg_mutable_key(choice);
    list_form form = form_of(value, n);
    bool *mask = eg__calloc(n + 1, sizeof(*mask));
    double *weights = eg__calloc(n + 1, sizeof(*weights));
    eg_status status = mask != NULL && weights != NULL ? EG_OK : EG_ENOMEM;
    for (size_t i = 0; status == EG_OK && form != FORM_CANDIDATES && i < n; i++) {
        mask[i] = json_is_true(json_array_get(value, i));
        weights[i] = json_number_value(json_array_get(value, i));
    }
    if (status == EG_OK && form == FORM_CANDIDATES)
        status = read_candidates(choice, value, mask);
    if (status == EG_OK)
        status = form == FORM_WEIGHTS ? eg_decisions_set_weights(out, key, weights, n)
                                      : eg_decisions_set_mask(out, key, mask, n);
    free(mask);
    free(weights);
    return status;
}

/* ---- a whole architecture ---- */

enum { MAX_KEYS_SHOWN = 3 };

/* "'a', 'b', 'c' and 9 more" with the names in `near` that are closest to each. */
static void print_keys(eg__buf *buf, const char *const *keys, size_t n, const char *const *near, size_t n_near)
{
    for (size_t i = 0; i < EG_MIN(n, (size_t)MAX_KEYS_SHOWN); i++) {
        char closest[200];
        eg_closest_name(keys[i], near, n_near, closest, sizeof(closest));
        eg__buf_printf(buf, "%s'%s'", i == 0 ? "" : ", ", keys[i]);
        if (*closest != '\0')
            eg__buf_printf(buf, " (did you mean %s?)", closest);
    }
    if (n > MAX_KEYS_SHOWN)
        eg__buf_printf(buf, " and %zu more", n - MAX_KEYS_SHOWN);
}

typedef struct key_sets {
    const char **missing, **unexpected;
    size_t n_missing, n_unexpected;
} key_sets;

static eg_status fail_keys(const key_sets *sets)
{
    eg__buf buf = {0};
    if (sets->n_unexpected > 0) {
        eg__buf_printf(&buf, "unexpected keys in the architecture: ");
        print_keys(&buf, sets->unexpected, sets->n_unexpected, sets->missing, sets->n_missing);
    }
    if (sets->n_missing > 0) {
        eg__buf_printf(&buf, "%smissing keys in the architecture: ", buf.len > 0 ? "; " : "");
        print_keys(&buf, sets->missing, sets->n_missing, NULL, 0);
    }
    char *text = eg__buf_take(&buf);
    if (text == NULL)
        return EG_ENOMEM;
    eg_status status = eg_fail(EG_EINVAL, "%s", text);
    free(text);
    return status;
}

/* What an architecture says of the choices that count, found out as they are reached. */
typedef struct reading {
    eg_module *const *mutables;
    size_t n;
    const eg_gates *gates;
    const eg_arch *arch;
    eg_decisions *out;
    bool *active;
    key_sets sets;
} reading;

static eg_status read_key(void *payload, size_t i, const eg_decision **decision)
{
    reading *r = payload;
    const eg_module *choice = r->mutables[i];
    const char *key = eg_mutable_key(choice);
    const json_t *value = json_object_get(eg__arch_json(r->arch), key);
    if (eg_decisions_get(r->out, key) == NULL && value != NULL)
        EG_TRY(eg__decision_parse(choice, value, r->out));
    *decision = eg_decisions_get(r->out, key);
    return EG_OK;
}

/* The number of the mutable with this key; n when there is none. */
static size_t find_key(const reading *r, const char *key)
{
    size_t i = 0;
    while (i < r->n && (strcmp(eg_mutable_key(r->mutables[i]), key) != 0 || !eg__is_choice(r->mutables[i])))
        i++;
    return i;
}

/* Keys that nobody knows go first: a name that is misspelt explains why another is missing. */
static eg_status check_keys(reading *r, bool strict)
{
    size_t inactive = r->n;
    for (size_t i = 0; i < r->n; i++) {
        const char *key = eg_mutable_key(r->mutables[i]);
        if (r->active[i] && eg_decisions_get(r->out, key) == NULL)
            r->sets.missing[r->sets.n_missing++] = key;
    }
    for (size_t i = 0; i < eg_arch_size(r->arch); i++) {
        const char *key = eg_arch_key(r->arch, i);
        if (key == NULL)
            return EG_ENOMEM;
        size_t k = find_key(r, key);
        if (k == r->n)
            r->sets.unexpected[r->sets.n_unexpected++] = key;
        else if (!r->active[k] && inactive == r->n)
            inactive = k;
    }
    if (r->sets.n_missing > 0 || (strict && r->sets.n_unexpected > 0))
        return fail_keys(&r->sets);
    return strict && inactive < r->n ? eg__gates_fail_inactive(r->gates, inactive) : EG_OK;
}

eg_status eg__decisions_from_arch(eg_module *const *mutables, size_t n, const eg_gates *gates, const eg_arch *arch,
                                  bool strict, eg_decisions *out)
{
    reading r = {.mutables = mutables,
                 .n = n,
                 .gates = gates,
                 .arch = arch,
                 .out = out,
                 .active = eg__calloc(n + 1, sizeof(bool)),
                 .sets = {.missing = eg__calloc(n + 1, sizeof(char *)),
                          .unexpected = eg__calloc(eg_arch_size(arch) + 1, sizeof(char *))}};
    bool made = r.active != NULL && r.sets.missing != NULL && r.sets.unexpected != NULL;
    eg_status status = made ? eg__gates_walk(gates, read_key, &r, r.active) : EG_ENOMEM;
    if (status == EG_OK)
        status = check_keys(&r, strict);
    free(r.active);
    free(r.sets.missing);
    free(r.sets.unexpected);
    return status;
}

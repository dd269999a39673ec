/*
 * nas/classic.c - classic mode: a process tries one architecture, which an experiment around it has chosen.
 *
 * The experiment and the program talk through files that environment variables name: the search space (written by the
 * program, once), the parameters of a trial (read), its results (one line of JSON each). See docs/design/nas.md.
 */
#include "nas/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void classic_finalize(eg_mutator *self)
{
    eg_classic_mutator *classic = (eg_classic_mutator *)self;
    json_decref(classic->trial);
    free(classic->results);
}

/* Samples are the decisions in force, as in the base class. */
const eg_mutator_class eg_classic_mutator_class = {.struct_size = sizeof(eg_mutator_class),
                                                   .name = "ClassicMutator",
                                                   .instance_size = sizeof(eg_classic_mutator),
                                                   .finalize = classic_finalize};

/* ---- stand-alone: the first candidates ---- */

eg_mutator *eg_classic_mutator_new(eg_module *model)
{
    eg_mutator *mutator = eg_mutator_attach(&eg_classic_mutator_class, 0, NULL, model);
    if (mutator != NULL && eg__decide_each(mutator, EG__FIRST, mutator->current) == EG_OK &&
        eg__decisions_drop_inactive(mutator, mutator->current) == EG_OK)
        return mutator;
    eg_mutator_detach(mutator);
    return NULL;
}

/* ---- parameters of a trial: {"parameter_id": 7, "parameters": {key: {"_value": .., "_idx": ..}, ..}} ---- */

#define PARAMETERS "trial parameters"

/* Whether a value is that of candidate i, or its name; numbers stand for names of digits. */
static bool is_candidate(const eg_module *choice, size_t i, const json_t *value)
{
    if (eg__kind_of(choice) == EG__VALUES)
        return json_is_number(value) && json_number_value(value) == eg_value_choice_at(choice, i);
    const char *name = eg__choice_name(choice, i);
    char number[24];
    snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    return json_is_integer(value) ? strcmp(number, name) == 0
                                  : json_is_string(value) && strcmp(json_string_value(value), name) == 0;
}

static eg_status check_candidate(const eg_module *choice, const json_t *value, const json_t *index)
{
    const char *key = eg_mutable_key(choice);
    size_t n = eg__choice_size(choice);
    json_int_t i = json_integer_value(index);
    EG_CHECK(json_is_integer(index) && i >= 0 && (size_t)i < n, EG_EINVAL,
             PARAMETERS ": an _idx of '%s' is not among 0 to %zu", key, n - 1);
    if (is_candidate(choice, (size_t)i, value))
        return EG_OK;
    char *text = json_dumps(value, JSON_ENCODE_ANY), number[EG__NUMBER_TEXT_SIZE];
    bool is_value = eg__kind_of(choice) == EG__VALUES;
    eg_status status = eg_fail(
        EG_EINVAL, PARAMETERS ": '%s' has _value %.100s at _idx %d, where its candidate is %s%s%s", key,
        text != NULL ? text : "?", (int)i, is_value ? "" : "'",
        is_value ? eg__value_text(eg_value_choice_at(choice, (size_t)i), number) : eg__choice_name(choice, (size_t)i),
        is_value ? "" : "'");
    free(text);
    return status;
}

static eg_status check_one(const eg_module *choice, const json_t *value, const json_t *index)
{
    EG_CHECK(!json_is_array(value) && !json_is_array(index), EG_EINVAL,
             PARAMETERS ": '%s' is a list, expected one candidate", eg_mutable_key(choice));
    return check_candidate(choice, value, index);
}

static eg_status check_inputs(const eg_module *choice, const json_t *values, const json_t *indices)
{
    const char *key = eg_mutable_key(choice);
    size_t n = json_array_size(indices);
    EG_CHECK(json_is_array(values) && json_is_array(indices), EG_EINVAL,
             PARAMETERS ": _value and _idx of '%s' are not both lists", key);
    EG_CHECK(json_array_size(values) == n, EG_EINVAL, PARAMETERS ": '%s' has %zu entries in _value, but %zu in _idx",
             key, json_array_size(values), n);
    int64_t wanted = eg_input_choice_n_chosen(choice);
    EG_CHECK(wanted < 0 || n == (size_t)wanted, EG_EINVAL,
             PARAMETERS ": '%s' has %zu inputs, expected its n_chosen, %" PRId64, key, n, wanted);
    for (size_t i = 0; i < n; i++) {
        const json_t *index = json_array_get(indices, i);
        EG_TRY(check_candidate(choice, json_array_get(values, i), index));
        for (size_t k = 0; k < i; k++)
            EG_CHECK(!json_equal(index, json_array_get(indices, k)), EG_EINVAL,
                     PARAMETERS ": '%s' has candidate %d twice", key, (int)json_integer_value(index));
    }
    return EG_OK;
}

/* What an entry says, as the value of an architecture: indices, or the value itself. */
static eg_status read_entry(const eg_module *choice, const json_t *entry, eg_arch *arch)
{
    const char *key = eg_mutable_key(choice);
    json_t *value = json_object_get(entry, "_value"), *index = json_object_get(entry, "_idx");
    EG_CHECK(value != NULL && index != NULL && json_object_size(entry) == 2, EG_EINVAL,
             PARAMETERS ": '%s' is not {\"_value\": .., \"_idx\": ..}", key);
    EG_TRY(eg_is_a(choice, &eg_input_choice_class) ? check_inputs(choice, value, index)
                                                   : check_one(choice, value, index));
    return eg__arch_put(arch, key, json_incref(eg__kind_of(choice) == EG__VALUES ? value : index));
}

/* Keys of the model that are missing, and others, are found when the architecture is set. */
static eg_status read_parameters(eg_mutator *mutator, const json_t *parameters)
{
    eg_arch *arch = eg_arch_new();
    eg_status status = arch != NULL ? EG_OK : EG_ENOMEM;
    const char *key;
    json_t *entry;
    json_object_foreach((json_t *)(uintptr_t)parameters, key, entry)
    {
        if (status != EG_OK)
            break;
        const eg_module *choice = eg__mutator_find(mutator, key);
        status = choice != NULL && eg__is_choice(choice) ? read_entry(choice, entry, arch)
                                                         : eg__arch_put(arch, key, json_null());
    }
    if (status == EG_OK)
        status = eg_mutator_set_arch(mutator, arch);
    eg_arch_free(arch);
    return status;
}

/* Takes over `json`. */
static eg_status set_parameters(eg_mutator *mutator, json_t *json)
{
    json_t *id = json_object_get(json, "parameter_id"), *parameters = json_object_get(json, "parameters");
    eg_status status = EG_OK;
    if (json == NULL)
        status = eg_error_last()->code;
    else if ((!json_is_integer(id) && !json_is_string(id)) || !json_is_object(parameters))
        status = eg_fail(EG_EFORMAT, PARAMETERS ": expected {\"parameter_id\": number or text, \"parameters\": {..}}");
    else
        status = read_parameters(mutator, parameters);
    if (status == EG_OK) {
        eg_classic_mutator *classic = (eg_classic_mutator *)mutator;
        json_decref(classic->trial);
        classic->trial = json_incref(id);
    }
    json_decref(json);
    return status;
}

static eg_status check_classic(const eg_mutator *mutator)
{
    EG_CHECK(mutator != NULL && mutator->cls == &eg_classic_mutator_class, EG_EINVAL,
             "expected the mutator of a trial, a ClassicMutator");
    return EG_OK;
}

eg_status eg_classic_mutator_set(eg_mutator *mutator, const char *parameters)
{
    EG_TRY(check_classic(mutator));
    EG_CHECK(parameters != NULL, EG_EINVAL, "no parameters were given");
    return set_parameters(mutator, eg__json_parse(parameters, strlen(parameters), PARAMETERS));
}

/* ---- files and descriptors: "PATH" or "fd:N" ---- */

/* The number of "fd:N", -1 for a path. */
static int descriptor_of(const char *place)
{
    if (strncmp(place, "fd:", 3) != 0)
        return -1;
    char *end;
    long number = strtol(place + 3, &end, 10);
    return end != place + 3 && *end == '\0' && number >= 0 && number <= INT16_MAX ? (int)number : -1;
}

enum { MAX_PARAMETERS = 64 << 20 };

static json_t *read_descriptor(int descriptor, const char *place)
{
    eg__buf buf = {0};
    char part[4096];
    ssize_t n = 0;
    do {
        n = read(descriptor, part, sizeof(part));
        if (n > 0)
            eg__buf_append(&buf, part, (size_t)n);
    } while ((n > 0 && buf.len <= MAX_PARAMETERS && !buf.failed) || (n < 0 && errno == EINTR));
    json_t *json = NULL;
    if (n < 0)
        eg__fail_errno("read", place);
    else if (buf.failed)
        eg_fail(EG_ENOMEM, "out of memory: '%s'", place);
    else if (buf.len > MAX_PARAMETERS)
        eg_fail(EG_EFORMAT, "'%s' has more than %d bytes", place, MAX_PARAMETERS);
    else
        json = eg__json_parse(buf.len > 0 ? buf.data : "", buf.len, place);
    eg__buf_free(&buf);
    return json;
}

static json_t *read_place(const char *place)
{
    int descriptor = descriptor_of(place);
    return descriptor >= 0 ? read_descriptor(descriptor, place) : eg__json_read(place, MAX_PARAMETERS);
}

/* Adds a line, by one write where the system lets it, so that lines of several writers do not mix. */
static eg_status append_line(const char *place, const char *text, size_t size)
{
    int given = descriptor_of(place);
    int file = given >= 0 ? given : open(place, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        return eg__fail_errno("open", place);
    eg_status status = EG_OK;
    for (size_t done = 0; done < size && status == EG_OK;) {
        ssize_t n = write(file, text + done, size - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR)
            status = eg__fail_errno("write", place);
    }
    if (given < 0 && close(file) != 0 && status == EG_OK)
        status = eg__fail_errno("write", place);
    return status;
}

/* ---- the three modes ---- */

static eg_status write_search_space(eg_module *model, const char *path)
{
    char *text = eg_search_space_text(model);
    eg_status status = text != NULL ? eg__file_write(path, text, strlen(text)) : eg_error_last()->code;
    eg_free(text);
    return status;
}

static eg_status start_trial(eg_mutator *mutator, const char *parameters, const char *results)
{
    eg_classic_mutator *classic = (eg_classic_mutator *)mutator;
    if (parameters != NULL)
        EG_TRY(set_parameters(mutator, read_place(parameters)));
    else
        eg_log(mutator->ctx, EG_LOG_WARNING,
               "EG_TRIAL_PARAMETERS is not set, so no experiment runs this trial: its first candidates are taken");
    classic->results = eg__strdup(results);
    return results == NULL || classic->results != NULL ? EG_OK : EG_ENOMEM;
}

eg_mutator *eg_get_and_apply_next_architecture(eg_module *model)
{
    if (model == NULL)
        return eg__null(__func__, "model");
    const char *space = getenv("EG_GEN_SEARCH_SPACE"), *parameters = getenv("EG_TRIAL_PARAMETERS");
    if (space != NULL) {
        if (write_search_space(model, space) == EG_OK)
            eg_fail(EG_EDONE, "the search space was written to '%s'", space);
        return NULL;
    }
    eg_mutator *mutator = eg_classic_mutator_new(model);
    if (mutator == NULL || start_trial(mutator, parameters, getenv("EG_TRIAL_RESULTS")) == EG_OK)
        return mutator;
    eg_mutator_detach(mutator);
    return NULL;
}

/* ---- results ---- */

static eg_status report(eg_mutator *mutator, const char *type, double value)
{
    EG_TRY(check_classic(mutator));
    EG_CHECK(isfinite(value), EG_EINVAL, "the result of a trial is %g, expected a finite number", value);
    eg_classic_mutator *classic = (eg_classic_mutator *)mutator;
    EG_CHECK(!classic->finished, EG_EINVAL, "the final result of this trial was reported already");
    json_t *id = classic->trial != NULL ? json_incref(classic->trial) : json_null();
    json_t *json = json_pack("{s:o, s:s, s:I, s:f}", "parameter_id", id, "type", type, "sequence",
                             (json_int_t)classic->reported, "value", value);
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    char *line = text != NULL ? eg__format("%s\n", text) : NULL;
    eg_status status = EG_OK;
    if (line == NULL)
        status = eg_fail(EG_ENOMEM, "out of memory");
    else if (classic->results != NULL)
        status = append_line(classic->results, line, strlen(line));
    else
        eg_log(mutator->ctx, EG_LOG_INFO, "result of the trial: %s", text);
    free(line);
    free(text);
    json_decref(json);
    classic->reported += status == EG_OK ? 1 : 0;
    return status;
}

eg_status eg_report_intermediate_result(eg_mutator *mutator, double value)
{
    return report(mutator, "PERIODICAL", value);
}

eg_status eg_report_final_result(eg_mutator *mutator, double value)
{
    EG_TRY(report(mutator, "FINAL", value));
    ((eg_classic_mutator *)mutator)->finished = true;
    return EG_OK;
}

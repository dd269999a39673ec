/*
 * cli/cli.h - what the commands of the program share: option tables, contexts, progress, output.
 */
#ifndef EG_CLI_CLI_H
#define EG_CLI_CLI_H

#include "engraft/engraft.h"

#include <jansson.h>

/* Exit statuses. */
enum { EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_NOTHING }; /* nothing: no module matched */

/* ---- options: one table a command feeds parsing, help, range checks and run.json ---- */

typedef enum option_type {
    OPTION_TEXT,   /* const char * */
    OPTION_INT,    /* int64_t */
    OPTION_REAL,   /* double */
    OPTION_SWITCH, /* bool, "on" or "off" */
    OPTION_FLAG,   /* bool, takes no value */
    OPTION_RULE    /* rule_list: may be given again and again; options that share one keep their order */
} option_type;

enum {
    OPTION_REQUIRED = 1,
    OPTION_RECORDED = 2, /* part of what a run is: kept in run.json */
    OPTION_INHERITED = 4 /* a retraining takes it from its search */
};

/* What was given to options of type OPTION_RULE, in order. */
enum { MAX_RULES = 64 };
typedef struct rule_list {
    struct rule {
        const char *option, *value;
    } items[MAX_RULES];
    size_t n;
} rule_list;

typedef struct option_spec {
    const char *name;  /* NULL ends a table */
    const char *value; /* what help calls the value; NULL for flags */
    const char *help;
    option_type type;
    int flags;
    size_t offset;                         /* of the member in the command's arguments */
    double min, max;                       /* of numbers; max 0 = none */
    bool above_min;                        /* min itself is not allowed */
    const char *initial;                   /* the value when not given, as text; NULL = 0, off or nothing */
    const char *shown;                     /* what help calls that value, where it is not `initial` */
    eg_status (*check)(const char *value); /* of texts: fails for a value that is not allowed */
} option_spec;

/* A row: OPTION(search_args, INT, batch, "batch", "N", "samples a step", .min = 1, .initial = "64"). */
#define OPTION(args_type, type_, member_, name_, value_, help_, ...)                                                   \
    {                                                                                                                  \
        .name = name_, .value = value_, .help = help_, .type = OPTION_##type_, .offset = offsetof(args_type, member_), \
        __VA_ARGS__                                                                                                    \
    }

typedef struct command {
    const char *name, *synopsis, *summary;
    const char *details; /* more lines for its help; NULL = none */
    const option_spec *options;
    size_t args_size;
    /** Returns an exit status. given[i]: option i stood on the command line (or was merged since). */
    int (*run)(const struct command *self, void *args, bool *given);
    /** Words that stand before the options: how many at least and at most, and where they go (const char *[]). */
    size_t min_words, max_words, words_offset;
    const struct command *const *parts; /* NULL-ended: it is these, "surgery ls", .. */
} command;

#define MAX_OPTIONS 40

extern const command search_command, retrain_command, eval_command, compare_command, show_command, spaces_command,
    strategies_command, surgery_command;

/** Fills `args` from the command line. -1 = go on; else the exit status (help was shown, or wrong use reported). */
int options_parse(const command *c, int argc, char **argv, void *args, bool *given);
/** Takes the options with `flag` that were not given from an object, which lends its texts. Fails for a value that its
 * option would not take. */
eg_status options_merge(const command *c, void *args, bool *given, const json_t *object, int flag);
/** False after reporting the first required option that is missing. */
bool options_complete(const command *c, const bool *given);
/** {"command": .., option: value, ..} of those that are recorded. NULL on failure. */
json_t *options_record(const command *c, const void *args);
void options_help(const command *c);

/** Names of `names` (NULL-ended) near `name` as ": did you mean 'x'?", or "". Writes into `text`. */
const char *did_you_mean(const char *name, const char *const *names, char *text, size_t size);

/* ---- reporting: one line on standard error ---- */

/** "engraft COMMAND: ..."; returns EXIT_USAGE. */
int usage_error(const char *name, const char *format, ...) EG_PRINTF(2, 3);
/** The first pending failure; returns EXIT_FAILED. */
int report_failure(const char *name);
/** The same at the end of a run, with how to go on when it was stopped. */
int report_run_failure(const char *name, eg_status status, const char *directory);

/* ---- contexts ---- */

void remember_program(char **argv);
/** A context that Ctrl-C and SIGTERM cancel, which takes no more memory for tensors than there is. The first call runs
 * the program anew with OMP_WAIT_POLICY=passive when that is not set. NULL on failure. `precision`: what
 * check_precision() allows; NULL = "f32". */
eg_context *open_context(int64_t threads, int64_t seed, const char *precision);
void close_context(eg_context *ctx);

/* ---- progress, on standard error ---- */

typedef struct progress {
    bool terminal, started;
    double first, last; /* times of the phase's start and of the last output */
    char phase[32];
    int64_t epoch;
    double first_done; /* pieces that were done at its start, in all epochs */
} progress;
progress progress_start(void);
/** An eg_progress_fn. */
void progress_show(void *payload, const eg_progress *state);
/** Ends a line that is still open. */
void progress_end(progress *p);
double seconds_now(void);
/** Rounded: a result has no use for more digits. */
double whole_milliseconds(double seconds);

/* ---- results, on standard output ---- */

/** One JSON object (taken over) and nothing else. */
int print_json(json_t *object);
/** "name   value" lines of the scalars in an object. */
void print_scalars(const json_t *object);

/* ---- runs and networks ---- */

/** A list of {key, type, candidates} of a supernet. NULL on failure. */
json_t *mutables_of(eg_module *model);
/** The candidates of one of them, for people; for free(). */
char *candidates_text(const json_t *mutable);
/** What an architecture says for a key of these mutables, for people ("-" for no value); for free(). */
char *decision_text(const json_t *mutables, const char *key, const json_t *value);

/** A path made absolute where it exists; for free(). */
char *absolute_path(const char *path);
/** The same for the path in a data set's spec ("csv:FILE"). */
char *absolute_spec(const char *spec);
/** "DIR/NAME", for free(). */
char *path_join(const char *directory, const char *name);
bool file_exists(const char *path);

/** run.json of a directory. NULL on failure. */
json_t *load_run(const char *directory);
/** The same where `directory` is not NULL and holds a run to go on with; else NULL without a failure. */
json_t *load_run_to_resume(const char *directory, bool resume);
/** Whether a run.json is of a search. */
bool is_search(const json_t *run);
/** Fails: there is nothing to resume. */
eg_status no_run_to_resume(const char *directory);
/** Makes or resumes a run with the recorded options, the shape of its data and (unless NULL) its architecture and the
 *  text of its space. */
eg_status create_run(const command *c, const void *args, const char *directory, const eg_dataset *data,
                     const eg_arch *arch, const char *space_text, bool resume);
/** Keeps all other processes out of a run that is there, until unlock_run() or the end of this process, whatever ends
 * it. Fails while another one has it. */
eg_status lock_run(const char *directory, int *lock);
/** Allowed for -1: no lock. */
void unlock_run(int *lock);
/** What a search or a retraining reported at its end; *result = NULL (no failure) when it has not come to it. Fails for
 * a file without what such a result must have. */
eg_status load_result(const char *directory, bool of_search, json_t **result);
eg_status save_result(const char *directory, const json_t *result);

/* ---- spaces that are files ---- */

/** A file's text, for free(). NULL on failure. */
char *read_text(const char *path);
#define FINGERPRINT_SIZE 17
void fingerprint(const char *text, char out[FINGERPRINT_SIZE]);
/** The text of the space of a run, for free(); NULL without failure where it is built in. */
eg_status run_space(const json_t *run, const char *directory, const char *space, char **text);
/** The same of a command with --space, whose value becomes what run.json is to record. `given`: it stands on the
 *  command line; where there is a run in `directory` already, it must be that run's. */
eg_status take_space(const char **space, bool given, const json_t *run, const char *directory, char **text);
/** Puts the run's own copy into its directory, unless it is there; NULL does nothing. */
eg_status keep_space(const char *text, const char *directory);
/** What people know a space by: its own name where it is a file, for free(). */
char *space_title(const char *space, const char *text);
/** The data that a file is for; false, with `input` as it was, for a text that does not say so. */
bool space_data(const char *text, eg_shape *input, int64_t *classes);

typedef struct network_options {
    const char *space;
    const char *space_file; /* what messages call a file */
    char *space_text;       /* of a file, else NULL; of network_options_of() it is for free() */
    int64_t channels, layers;
    eg_shape input;
    int64_t classes;
} network_options;
/** The network options of a run.json. */
eg_status network_options_of(const json_t *run, const char *directory, network_options *out);
/** Fails for '--channels' and '--layers' beside a file. */
eg_status check_file_options(const network_options *options);
eg_module *build_network(eg_context *ctx, const network_options *options);
/** The network of an architecture: a plain model. */
eg_module *build_fixed(eg_context *ctx, const network_options *options, const eg_arch *arch);
/** Lets every candidate of a supernet run, for its costs; for eg_mutator_detach(). NULL on failure. */
eg_mutator *run_everything(eg_module *model);
/** Adds "params" and "macs" of a plain model (or of a supernet whose mutator decides). */
eg_status add_costs(json_t *result, eg_module *model, eg_shape input);
/** Writes the graph of a supernet into a directory, which is made: graph.json and an event file of TensorBoard's. */
eg_status save_graph(eg_module *model, eg_shape input, const char *directory);

/* ---- memory ---- */

/** What this process may take, in bytes: of the machine's memory, or of the limit that a container has, seven eighths.
 *  0 where nobody says. A file says in which control group the process is, of those that lie under `root`. */
size_t machine_memory(const char *membership, const char *root);

/** A size such as "2G" in bytes, which check_memory_size() allows; NULL is 0. */
size_t memory_size(const char *text);
eg_memory memory_of(const char *name);
/** Append to a list what a step takes: of a strategy on a supernet, of a retraining. */
eg_status predict_search(eg_module *model, const network_options *network, const char *strategy, size_t batch,
                         json_t *list);
eg_status predict_retraining(eg_module *model, const network_options *network, size_t batch, json_t *list);
void print_memory(const json_t *list);

/* ---- checks of option values ---- */

eg_status check_space(const char *name);
eg_status check_data(const char *spec);
eg_status check_strategy(const char *name);
eg_status check_choice(const char *name);
eg_status check_precision(const char *name);
eg_status check_memory(const char *name);
eg_status check_memory_size(const char *text);
eg_status check_count(const char *text);
eg_status check_sizes(const char *text);
/** Of a text that was checked: the sizes of a sample, "3,32,32". */
eg_shape sizes_of(const char *text);
/** The shape of n such samples. */
eg_shape batch_of(eg_shape sample, int64_t n);
/** Of a text that was checked: "500k" is 500000. */
int64_t count_of(const char *text);

#endif

/*
 * engraft - the program: a table of commands over the library's public headers.
 */
#include "cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const command *const commands[] = {
    &search_command, &retrain_command,    &eval_command, &compare_command, &show_command, &surgery_command,
    &spaces_command, &strategies_command, NULL,
};

static const command *find_in(const command *const *list, const char *name)
{
    for (size_t i = 0; list[i]; i++) {
        const char *last = strrchr(list[i]->name, ' '); /* "surgery ls" is "ls" among the parts of "surgery" */
        if (strcmp(last ? last + 1 : list[i]->name, name) == 0)
            return list[i];
    }
    return NULL;
}

static const command *find_command(const char *name)
{
    return find_in(commands, name);
}

static void print_help(FILE *out)
{
    fputs("usage: engraft COMMAND [OPTIONS]\n\n"
          "Searches neural architectures, retrains what it found, changes models, and measures them.\n\n",
          out);
    for (size_t i = 0; commands[i]; i++)
        fprintf(out, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
    fputs("  help         explain a command: engraft help search\n\n"
          "  --version    show the version\n"
          "  --help       show this text; after a command, its own\n\n"
          "Exit status: 0 done, 1 failed or stopped, 2 wrong use, 3 a surgery that matched nothing.\n"
          "The program runs itself anew once with OMP_WAIT_POLICY=passive where that variable is not\n"
          "set: spinning threads cost much time on busy processors. ENGRAFT_NO_REEXEC=1 turns this off.\n",
          out);
}

static int unknown_command(const char *name)
{
    const char *names[sizeof commands / sizeof *commands + 1] = {"help"};
    for (size_t i = 0; commands[i]; i++)
        names[i + 1] = commands[i]->name;
    char near[128];
    return usage_error(NULL, "unknown command '%s'%s", name, did_you_mean(name, names, near, sizeof near));
}

static int run_command(const command *c, int argc, char **argv)
{
    bool given[MAX_OPTIONS] = {false};
    void *args = calloc(1, c->args_size > 0 ? c->args_size : 1);
    if (!args) {
        eg_fail(EG_ENOMEM, "no memory for the options");
        return report_failure(c->name);
    }
    int status = options_parse(c, argc, argv, args, given);
    if (status < 0)
        status = c->run(c, args, given);
    free(args);
    return status;
}

static void print_parts(const command *c, FILE *out)
{
    fprintf(out, "usage: engraft %s %s\n\n%s\n\n", c->name, c->synopsis, c->summary);
    for (size_t i = 0; c->parts[i]; i++)
        fprintf(out, "  %-16s %s\n", c->parts[i]->name, c->parts[i]->summary);
    if (c->details)
        fprintf(out, "\n%s\n", c->details);
}

/* A command that consists of others: the next word says which. */
static int run_part(const command *c, int argc, char **argv)
{
    if (argc < 2)
        return usage_error(c->name, "usage: engraft %s %s", c->name, c->synopsis);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_parts(c, stdout);
        return EXIT_OK;
    }
    if (strcmp(argv[1], "help") == 0 && argc == 2) {
        print_parts(c, stdout);
        return EXIT_OK;
    }
    bool help = strcmp(argv[1], "help") == 0;
    const command *part = find_in(c->parts, argv[help ? 2 : 1]);
    if (part && help) {
        options_help(part);
        return EXIT_OK;
    }
    if (part)
        return run_command(part, argc - 1, argv + 1);
    const char *names[MAX_OPTIONS] = {NULL};
    for (size_t i = 0; c->parts[i]; i++)
        names[i] = strrchr(c->parts[i]->name, ' ') + 1;
    char near[128];
    return usage_error(c->name, "unknown command '%s'%s", argv[1], did_you_mean(argv[1], names, near, sizeof near));
}

static int help_command(int argc, char **argv)
{
    const command *whole = argc == 3 ? find_command(argv[1]) : NULL;
    const command *part = whole && whole->parts ? find_in(whole->parts, argv[2]) : NULL;
    if (part) {
        options_help(part);
        return EXIT_OK;
    }
    if (argc > 2)
        return usage_error("help", "takes one command, not %d", argc - 1);
    if (argc < 2 || strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0) {
        print_help(stdout);
        return EXIT_OK;
    }
    const command *c = find_command(argv[1]);
    if (!c)
        return unknown_command(argv[1]);
    if (c->parts)
        print_parts(c, stdout);
    else
        options_help(c);
    return EXIT_OK;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2)
        return usage_error(NULL, "no command given; 'engraft help' lists them");
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0) {
        printf("engraft %s\n", eg_version());
        return EXIT_OK;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        print_help(stdout);
        return EXIT_OK;
    }
    if (strcmp(name, "help") == 0)
        return help_command(argc - 1, argv + 1);
    const command *c = find_command(name);
    if (!c)
        return unknown_command(name);
    return c->parts ? run_part(c, argc - 1, argv + 1) : run_command(c, argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    remember_program(argv);
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error of write(), not an end without a word */
    int status = dispatch(argc, argv);
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == EXIT_OK) {
        fprintf(stderr, "engraft: cannot write standard output: %s\n", errno ? strerror(errno) : "an error");
        status = EXIT_FAILED;
    }
    return status;
}

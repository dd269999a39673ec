/*
 * The memory of this machine, or of the container that this process runs in: its control group, or one above it, has a
 * limit ("max" and very large numbers are none). Version 2 of control groups has one tree, version 1 one for memory.
 */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 4096 };

/* SIZE_MAX where there is none. */
static size_t read_limit(const char *path)
{
    char text[64] = "";
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    char *end;
    unsigned long long limit = strtoull(text, &end, 10);
    return n > 0 && end != text && limit > 0 ? (size_t)limit : SIZE_MAX;
}

/* The least of the limits of a group and all above it: `path` loses its last parts. */
static size_t least_limit(const char *root, char *path, const char *file)
{
    size_t least = SIZE_MAX;
    for (;;) {
        char name[2 * PATH_SIZE];
        snprintf(name, sizeof name, "%s%s/%s", root, path, file);
        size_t limit = read_limit(name);
        least = limit < least ? limit : least;
        char *last = strrchr(path, '/');
        if (!last)
            return least;
        *last = '\0';
    }
}

/* A line is "0::/path" in version 2, "4:memory:/path" in version 1. */
static size_t limit_of_line(const char *root, char *line)
{
    line[strcspn(line, "\n")] = '\0';
    char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
    if (!second)
        return SIZE_MAX;
    *second = '\0';
    char group[PATH_SIZE];
    snprintf(group, sizeof group, "%s", second + 1);
    if (first + 1 == second)
        return least_limit(root, group, "memory.max");
    if (strcmp(first + 1, "memory") != 0)
        return SIZE_MAX;
    char memory[PATH_SIZE];
    snprintf(memory, sizeof memory, "%s/memory", root);
    return least_limit(memory, group, "memory.limit_in_bytes");
}

size_t machine_memory(const char *membership, const char *root)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t least = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : SIZE_MAX;
    char line[PATH_SIZE];
    FILE *file = fopen(membership, "r");
    while (file && fgets(line, sizeof line, file)) {
        size_t limit = limit_of_line(root, line);
        least = limit < least ? limit : least;
    }
    if (file)
        fclose(file);
    return least == SIZE_MAX ? 0 : least / 8 * 7;
}

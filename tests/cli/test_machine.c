/* The memory that the program takes for its own: of the machine, or of a control group. */
#include "command_support.h"

#include "cli/machine.c"

#include <sys/stat.h>

static size_t memory_of_machine(void)
{
    return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE) / 8 * 7;
}

/* A tree of control groups: `file` of each group holds a limit. */
static size_t memory_in(const char *line, const char *const *groups, const char *file, const char *const *limits,
                        size_t n)
{
    char path[TEMPORARY_PATH_SIZE], name[256], membership[TEMPORARY_PATH_SIZE];
    write_to("membership", line);
    for (size_t i = 0; i < n; i++) {
        mkdir(temporary_path(directory, groups[i], path), 0777);
        snprintf(name, sizeof name, "%s/%s", groups[i], file);
        write_to(name, limits[i]);
    }
    return machine_memory(temporary_path(directory, "membership", membership), temporary_path(directory, "root", path));
}

static void test_groups(void **state)
{
    (void)state;
    static const char *const two[] = {"root", "root/a", "root/a/b"}, *const v2[] = {"max\n", "8000000\n", "16000000\n"};
    assert_int_equal(memory_in("0::/a/b\n", two, "memory.max", v2, 3), 7000000);
    assert_int_equal(memory_in("0::/\n", two, "memory.max", v2, 3), memory_of_machine());
    assert_int_equal(memory_in("0::/a/c\n", two, "memory.max", v2, 3), 7000000); /* the group is not seen from here */
    static const char *const one[] = {"root/memory", "root/memory/a"}, *const v1[] = {"9223372036854771712\n",
                                                                                      "800000\n"};
    assert_int_equal(memory_in("5:cpu:/a\n4:memory:/a\n", one, "memory.limit_in_bytes", v1, 2), 700000);
    assert_int_equal(memory_in("5:cpu:/a\n4:memory:/\n", one, "memory.limit_in_bytes", v1, 2), memory_of_machine());
    assert_int_equal(memory_in("nothing of the kind\n", one, "memory.limit_in_bytes", v1, 0), memory_of_machine());
    assert_int_equal(machine_memory("/no/such/file", "/no/such"), memory_of_machine());
}

/* A short file that asks for a large network is refused before memory is taken for it. */
static void test_hostile_file(void **state)
{
    (void)state;
    write_to("large.json", "{\"format\": \"engraft-space/1\", \"input\": [1073], \"classes\": 3, \"model\": "
                           "{\"class\": \"Sequential\", \"modules\": [{\"class\": \"Linear\", \"in_features\": 1073, "
                           "\"out_features\": 1073741823}]}}");
    engraft_fails("show --space @/large.json", 1, "that the context may take");
    engraft_fails("show --space @/large.json --as-file", 1, "that the context may take");
    engraft_fails("search --space @/large.json --data idx:@ --strategy random --out @/x", 1, "is for an input of");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_groups), cmocka_unit_test(test_hostile_file)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

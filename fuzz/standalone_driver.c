/*
 * fuzz/standalone_driver.c - runs a fuzz target on the files named as arguments: any compiler can replay a corpus.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    uint8_t *data = NULL;
    size_t size = 0, got;
    do { /* memory of exactly the right size, so that a sanitizer sees reads past the end */
        uint8_t *larger = realloc(data, size + 65536);
        if (!larger)
            abort();
        data = larger;
        got = fread(data + size, 1, 65536, file);
        size += got;
    } while (got > 0);
    int failed = ferror(file);
    fclose(file);
    uint8_t *exact = realloc(data, size > 0 ? size : 1);
    LLVMFuzzerTestOneInput(exact ? exact : data, size);
    free(exact ? exact : data);
    return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
    int failures = 0;
    for (int i = 1; i < argc; i++)
        failures += run_file(argv[i]);
    printf("%d files replayed\n", argc - 1 - failures);
    return failures > 0 || argc < 2;
}

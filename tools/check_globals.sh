#!/bin/sh
# The library has no state of its own that can change, but for each thread's record of failures: so contexts of several
# threads share nothing. usage: check_globals.sh STATIC_LIBRARY
symbols=$(objdump -t "$1") || exit 1
# .data.rel.ro holds constants that point to something: read-only once loaded
found=$(printf '%s\n' "$symbols" | grep -E '[[:space:]](\.data|\.bss|\.tdata|\.tbss|\*COM\*)[.[:alnum:]_]*[[:space:]]' |
    grep -vE '\.data\.rel\.ro|[[:space:]]d[[:space:]]|\.tbss[[:space:]].*[[:space:]]errors$')
if [ -n "$found" ]; then
    echo "variables that can change:"
    echo "$found"
    exit 1
fi
echo "globals: ok"

#!/bin/sh
# Compiles and runs the C programs that README.md prints, as printed. usage: readme.sh SOURCE_DIR BUILD_DIR CC
set -eu
source=$1 build=$2 cc=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ ! -d "${EG_FASHION_MNIST:-/usr/share/datasets/fashion-mnist}" ]; then
    echo "skipped: the README's example needs Debian's package dataset-fashion-mnist"
    exit 77
fi
# Each ```c block with a main() is a program.
awk -v work="$work" '/^```c$/ { n++; inside = 1; next } /^```$/ { inside = 0 } inside { print > (work "/" n ".c") }' "$source/README.md"
ran=0
for program in "$work"/*.c; do
    grep -q 'int main' "$program" || continue
    "$cc" -std=c11 -O2 -Wall -Wextra -Werror -I"$source/include" "$program" "$build/libengraft.a" -ldnnl -ljansson -lmd -lprotobuf-c -lz -fopenmp -lpthread -lm -o "$work/program"
    (cd "$work" && ./program) || { echo "README program $program failed"; exit 1; }
    ran=$((ran + 1))
done
[ "$ran" -ge 1 ] || { echo "README.md has no C program"; exit 1; }
echo "readme: $ran program(s) ran"

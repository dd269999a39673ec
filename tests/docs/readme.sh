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
# What the second program loads: a run as the README's commands make it, only shorter.
engraft() { (cd "$work" && "$build/engraft" "$@") > /dev/null; }
engraft search --space cells --data fashion-mnist --strategy random --out runs/search 2> /dev/null
engraft retrain --run runs/search --epochs 1 --subset 640 --out runs/found 2> /dev/null
ran=0
for program in "$work"/*.c; do
    grep -q 'int main' "$program" || continue
    "$cc" -std=c11 -O2 -Wall -Wextra -Werror -I"$source/include" "$program" "$build/libengraft.a" -ldnnl -ljansson -lmd -llapacke -lprotobuf-c -lz -fopenmp -lpthread -lm -o "$work/program"
    (cd "$work" && ./program) || { echo "README program $program failed"; exit 1; }
    ran=$((ran + 1))
done
[ "$ran" -ge 2 ] || { echo "README.md lacks a C program"; exit 1; }
echo "readme: $ran program(s) ran"

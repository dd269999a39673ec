#!/bin/sh
# Runs libFuzzer targets over their corpora. usage: fuzz.sh BUILD_DIR [SECONDS [TARGET...]]
build=$1 seconds=${2:-60}
[ $# -ge 2 ] && shift 2 || shift 1
here=$(pwd)
[ $# -gt 0 ] || set -- $(cd "$build/fuzz" && ls -d fuzz_* | sed 's/^fuzz_//')
export EG_POOL=off OMP_NUM_THREADS=1
for target in "$@"; do
    [ -x "$build/fuzz/fuzz_$target" ] || { echo "no fuzz target '$target'; there are:" $(cd "$build/fuzz" && ls -d fuzz_* | sed 's/^fuzz_//') >&2; exit 2; }
done
for target in "$@"; do
    work="$build/found/$target"
    mkdir -p "$work" "fuzz/corpora/$target"
    echo "fuzz_$target for $seconds s"
    (cd "$work" && "$here/$build/fuzz/fuzz_$target" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=20 -print_final_stats=1 \
        . "$here/fuzz/corpora/$target") 2>&1 | tail -n 12 || exit 1
    if ls "$work"/crash-* "$work"/timeout-* "$work"/oom-* >/dev/null 2>&1; then
        echo "findings in $work"
        exit 1
    fi
done

#!/bin/sh
# Runs the unit tests under valgrind: fails on an invalid access or a definite leak. usage: valgrind.sh BUILD_DIR [NAME...]
build=$1
shift
export EG_POOL=off OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive EG_VALGRIND=1
bad=0
for test in "$build"/tests/test_*; do
    [ -x "$test" ] || continue
    name=${test##*/test_}
    case $name in cli_*) continue ;; esac
    if [ $# -gt 0 ]; then
        case " $* " in *" $name "*) ;; *) continue ;; esac
    fi
    printf '%-40s ' "$name"
    if timeout 900 valgrind -q --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite --error-exitcode=99 \
        --suppressions=tools/valgrind.supp "$test" >"$build/valgrind-$name.log" 2>&1; then
        echo ok
    else
        status=$?
        if [ $status = 77 ]; then echo skipped; continue; fi
        echo "FAILED ($status), see $build/valgrind-$name.log"
        bad=1
    fi
done
exit $bad

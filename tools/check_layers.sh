#!/bin/sh
# Layers look one way: fails when a file includes a header of a layer above its own. usage: check_layers.sh SOURCE_DIR
cd "$1" || exit 1
# name:rank; a file may include ranks up to its own
ranks="base:1 tensor:2 autograd:3 ops:4 nn:5 optim:6 io:6 data:6 surgery:7 nas:8 train:9"
rank() {
    for pair in $ranks; do
        [ "${pair%%:*}" = "$1" ] && { echo "${pair##*:}"; return; }
    done
    echo 0
}
bad=0
for layer in base tensor autograd ops nn optim io data surgery nas train; do
    own=$(rank $layer)
    # internal headers "layer/file.h" and public ones "engraft/layer.h"
    uses=$(grep -rHoE '#include "(engraft/(sys/)?)?[a-z]+[/.]' "src/$layer" include/engraft/$layer.h --include='*.c' --include='*.h' --include='*.inc' 2>/dev/null |
        sed -E 's|(:#include ")(engraft/)?(sys/)?|:|; s|[/.]$||')
    for use in $uses; do
        file=${use%%:*} name=${use##*:}
        [ "$name" = op ] && name=autograd
        other=$(rank "$name")
        if [ "$other" -gt "$own" ]; then
            echo "$file ($layer) includes '$name', a layer above it"
            bad=1
        fi
    done
done
# The program sees public headers only, and dnnl.h is seen by src/tensor/dnnl only.
grep -rnE '#include "(base|tensor|autograd|ops|nn|optim|io|data|surgery|nas|train)/' src/cli && bad=1
grep -rln 'dnnl\.h' src include | grep -v '^src/tensor/dnnl/' && bad=1
# Threads are forked in one place, which the thread sanitizer knows.
grep -rn 'pragma omp parallel' src | grep -v '^src/tensor/cpu/loop\.c:' && bad=1
[ $bad = 0 ] && echo "layers: ok"
exit $bad

#!/bin/sh
# Each public header compiles alone as C11 and as C++17, without warnings. usage: check_headers.sh SOURCE_DIR CC
cd "$1" || exit 1
bad=0
for header in include/engraft/*.h include/engraft/sys/*.h; do
    "$2" -std=c11 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Wundef -Werror -Iinclude -fsyntax-only -x c - <<EOF || bad=1
#include "${header#include/}"
EOF
    if command -v g++ >/dev/null; then
        g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c++ - <<EOF || bad=1
#include "${header#include/}"
EOF
    fi
done
[ $bad = 0 ] && echo "headers: ok"
exit $bad

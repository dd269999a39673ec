#!/bin/sh
# Every function and object that a public header declares with EG_API is in the shared library, and nothing else is.
# usage: check_exports.sh SOURCE_DIR LIBRARY
cd "$1" || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cat include/engraft/*.h include/engraft/sys/*.h | tr '\n' ' ' | sed 's|/\*[^*]*\*\+\([^/*][^*]*\*\+\)*/| |g; s/EG_API/\n&/g' |
    sed -n 's/^EG_API \([^;{]*\);.*/\1/p' | sed 's/EG_PRINTF.*//' |
    awk '{ text = $0
           if (text ~ /^extern/) { sub(/^extern/, "", text); gsub(/const|eg_class |eg_mutator_class |eg_method |eg_tensor |\*/, " ", text); n = split(text, names, /[ ,]+/)
               for (i = 1; i <= n; i++) if (names[i] ~ /^eg_/) print names[i] }
           else { sub(/\(.*/, "", text); n = split(text, words, /[ *]+/); print words[n] } }' | sort -u >"$work/declared"
nm -D --defined-only "$2" | awk '{ print $3 }' | sed 's/@.*//' | grep -vE '^_*(odr_asan|asan|ubsan|sanitizer|lsan|tsan)' | sort -u >"$work/exported"
if diff "$work/declared" "$work/exported" >"$work/diff"; then
    echo "exports: ok ($(wc -l <"$work/declared") names)"
else
    echo "'<' declared but not exported, '>' exported but not declared:"
    grep '^[<>]' "$work/diff"
    exit 1
fi

#!/bin/sh
# In the public headers that doxygen documents (those with @file), every function, struct and enumeration has a comment;
# members, macros and class records may do without. Status 77: no doxygen here. usage: check_docs.sh SOURCE_DIR
cd "$1" || exit 1
command -v doxygen >/dev/null || exit 77
missing=$({
    cat docs/Doxyfile
    printf '%s\n' EXTRACT_ALL=NO WARN_IF_UNDOCUMENTED=YES WARN_AS_ERROR=NO GENERATE_HTML=NO
} | doxygen - 2>&1 | grep -E 'Compound .* not documented|\((function|enumeration)\) of file')
bad=0
for header in $(grep -l '@file' include/engraft/*.h include/engraft/sys/*.h); do
    printf '%s\n' "$missing" | grep "$header:" && bad=1
done
[ $bad = 0 ] && echo "docs: ok"
exit $bad

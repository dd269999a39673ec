#!/bin/sh
# Installs the build into a scratch prefix, which is not the one it was configured for, and builds small consumers against
# it through pkg-config and through CMake; one in C++ where there is g++.
# usage: run.sh SOURCE_DIR BUILD_DIR CC
set -eu
source=$1 build=$2 cc=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >/dev/null
cat >"$work/consumer.c" <<'EOF'
#include <engraft/engraft.h>

int main(void)
{
    eg_context *ctx = eg_context_new(.seed = 1, .threads = 1);
    eg_module *net = eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 1, 4, 3, .padding = 1), eg_relu(ctx), eg_global_avg_pool2d(ctx), eg_linear(ctx, 4, 10)));
    eg_tensor *y = eg_call(net, eg_ones(ctx, EG_SHAPE(2, 1, 8, 8)));
    printf("%s %lld\n", eg_version(), (long long)eg_tensor_numel(y));
    eg_module_release(net);
    return eg_exit_status(ctx);
}
EOF
libdir=$(dirname "$(find "$work/prefix" -name 'libengraft.so')")
export LD_LIBRARY_PATH="$libdir" PKG_CONFIG_PATH="$libdir/pkgconfig"

"$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags engraft) "$work/consumer.c" $(pkg-config --libs engraft) -o "$work/by-pkg-config"
[ "$("$work/by-pkg-config")" = "0.1.0 20" ] || { echo "the pkg-config consumer printed something else"; exit 1; }
"$cc" -std=c11 $(pkg-config --cflags engraft) "$work/consumer.c" "$libdir/libengraft.a" $(pkg-config --static --libs engraft | sed 's/-lengraft//') -o "$work/by-static"
[ "$("$work/by-static")" = "0.1.0 20" ] || { echo "the static consumer printed something else"; exit 1; }

if command -v g++ >/dev/null; then
    g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags engraft) "$source/tests/install/consumer.cpp" $(pkg-config --libs engraft) -o "$work/by-cpp"
    [ "$("$work/by-cpp")" = "0.1.0 512" ] || { echo "the C++ consumer printed something else"; exit 1; }
fi

cat >"$work/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.25)
project(consumer C)
find_package(engraft 0.1 REQUIRED)
add_executable(consumer consumer.c)
target_link_libraries(consumer PRIVATE engraft::engraft)
EOF
cmake -S "$work" -B "$work/build" -G Ninja -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/build" >/dev/null
[ "$("$work/build/consumer")" = "0.1.0 20" ] || { echo "the CMake consumer printed something else"; exit 1; }
echo "install: consumers by pkg-config, static library, C++ and CMake ok"

# eg_flags: what every file of the project is compiled with.
add_library(eg_flags INTERFACE)

target_compile_definitions(eg_flags INTERFACE _POSIX_C_SOURCE=200809L _DEFAULT_SOURCE)
target_compile_options(eg_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla -Werror
  -ffp-contract=off -fno-math-errno -fno-trapping-math
  $<$<C_COMPILER_ID:Clang>:-Wno-pass-failed>) # with sanitizers no loop becomes vector code, which is no defect
if(EG_SANITIZE)
  target_compile_options(eg_flags INTERFACE -fsanitize=${EG_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(eg_flags INTERFACE -fsanitize=${EG_SANITIZE})
endif()
if(EG_BUILD_FUZZ) # the fuzzer steers by what the library runs, not only by what the fuzz target does
  target_compile_options(eg_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(eg_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(EG_COVERAGE)
  target_compile_options(eg_flags INTERFACE --coverage)
  target_link_options(eg_flags INTERFACE --coverage)
endif()
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)

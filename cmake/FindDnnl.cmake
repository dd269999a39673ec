# Finds oneDNN. Debian's own CMake package for it demands OpenCL, and it has no pkg-config file.
# Defines Dnnl::Dnnl and Dnnl_VERSION.
find_path(Dnnl_INCLUDE_DIR NAMES oneapi/dnnl/dnnl.h)
find_library(Dnnl_LIBRARY NAMES dnnl)
if(Dnnl_INCLUDE_DIR AND EXISTS "${Dnnl_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h")
  file(STRINGS "${Dnnl_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h" lines REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" Dnnl_VERSION "${lines}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Dnnl REQUIRED_VARS Dnnl_LIBRARY Dnnl_INCLUDE_DIR VERSION_VAR Dnnl_VERSION HANDLE_VERSION_RANGE)
if(Dnnl_FOUND AND NOT TARGET Dnnl::Dnnl)
  add_library(Dnnl::Dnnl UNKNOWN IMPORTED)
  set_target_properties(Dnnl::Dnnl PROPERTIES IMPORTED_LOCATION "${Dnnl_LIBRARY}"
                                              INTERFACE_INCLUDE_DIRECTORIES "${Dnnl_INCLUDE_DIR}")
endif()
mark_as_advanced(Dnnl_INCLUDE_DIR Dnnl_LIBRARY)

# PbDeps.cmake - the libraries that the project links, each from a Debian package that scripts/setup installs. The error
# for a missing library names its package.
find_package(OpenMP REQUIRED COMPONENTS C)

function(pb_find_library target header library package)
  find_path(${target}_INCLUDE NAMES ${header} PATH_SUFFIXES openblas-openmp)
  find_library(${target}_LIBRARY NAMES ${library} PATH_SUFFIXES openblas-openmp)
  if(NOT ${target}_INCLUDE OR NOT ${target}_LIBRARY)
    message(FATAL_ERROR "${library} was not found: apt-get install ${package} (or run scripts/setup)")
  endif()
  add_library(${target} UNKNOWN IMPORTED)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${${target}_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${${target}_INCLUDE})
endfunction()

pb_find_library(pb_openblas cblas.h openblas libopenblas-openmp-dev)
pb_find_library(pb_libcsv csv.h csv libcsv-dev)
pb_find_library(pb_jansson jansson.h jansson libjansson-dev)
pb_find_library(pb_cmocka cmocka.h cmocka libcmocka-dev)
pb_find_library(pb_pcre2 pcre2.h pcre2-8 libpcre2-dev)
pb_find_library(pb_utf8proc utf8proc.h utf8proc libutf8proc-dev)
pb_find_library(pb_xxhash xxhash.h xxhash libxxhash-dev)

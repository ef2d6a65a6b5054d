# PbOptions.cmake - pb_options, which every target links: C standard, warnings, sanitizers. Also decides at configure
# time whether the CUDA backend is built (PB_CUDA); host code has no #ifdef for it.

# ccache, if it is installed, compiles equal files once for all build folders: CI, scripts/mutants and scripts/new-op
# build the same tree several times. The paths that ccache compares are relative to the tree (CCACHE_BASEDIR), and the
# name of the build folder is not compared (CCACHE_NOHASHDIR), so debug information can name the folder of another build
# of the same file. A launcher that the caller sets is kept; an empty one (-DCMAKE_C_COMPILER_LAUNCHER=) turns ccache
# off. The compiler that run.json records does not depend on the launcher.
if(NOT DEFINED CMAKE_C_COMPILER_LAUNCHER)
  find_program(PB_CCACHE ccache)
  if(PB_CCACHE)
    set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${PB_CCACHE})
  endif()
endif()

include(CheckLanguage)
if(NOT PB_CUDA STREQUAL "OFF")
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80 89 90a)
      set(own_choice ON)
    endif()
    enable_language(CUDA)
    if(own_choice AND NOT CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8) # the first that knows sm_120
      list(APPEND CMAKE_CUDA_ARCHITECTURES 120)
    endif()
    find_package(CUDAToolkit REQUIRED)
    set(PB_CUDA ON)
  elseif(PB_CUDA STREQUAL "ON")
    message(FATAL_ERROR "PB_CUDA=ON, but no CUDA compiler was found")
  else()
    set(PB_CUDA OFF)
  endif()
endif()
message(STATUS "plumb: CUDA backend ${PB_CUDA}")

add_library(pb_options INTERFACE)
target_include_directories(pb_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_features(pb_options INTERFACE c_std_11)
# -g1 replaces the -g of RelWithDebInfo: function names and line numbers, which stack traces and perf need, no types
# and local variables. The machine code is the same, so the flags that run.json records do not name it. For a debugger
# build with -DCMAKE_BUILD_TYPE=Debug.
target_compile_options(pb_options INTERFACE
  $<$<AND:$<COMPILE_LANGUAGE:C>,$<CONFIG:RelWithDebInfo>>:-g1>
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes
    -Wmissing-prototypes -Wdouble-promotion -Wno-missing-field-initializers -fno-math-errno -fno-trapping-math>
  $<$<C_COMPILER_ID:Clang>:-Wno-gnu-zero-variadic-macro-arguments> # for PB_ISA_MAP without further arguments
  # nvcc leaves code with line numbers uncompressed: a program with code for four architectures is 131 MB, not 34 MB
  $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo -Xfatbin=-compress-all -Xptxas=--warn-on-spills -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers>)
if(PB_SANITIZE) # except in targets whose property PB_NOT_SANITIZED is set
  target_compile_options(pb_options INTERFACE
    $<$<AND:$<COMPILE_LANGUAGE:C>,$<NOT:$<BOOL:$<TARGET_PROPERTY:PB_NOT_SANITIZED>>>>:-fsanitize=${PB_SANITIZE}
      -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  target_link_options(pb_options INTERFACE -fsanitize=${PB_SANITIZE})
endif()

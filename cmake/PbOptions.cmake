# PbOptions.cmake - pb_options, which every target links: C standard, warnings, sanitizers. Also decides at configure
# time whether the CUDA backend is built (PB_CUDA); host code has no #ifdef for it.
include(CheckLanguage)
if(NOT PB_CUDA STREQUAL "OFF")
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80 90a)
    endif()
    enable_language(CUDA)
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
target_compile_options(pb_options INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes
    -Wmissing-prototypes -Wdouble-promotion -Wno-missing-field-initializers -fno-math-errno -fno-trapping-math>
  $<$<C_COMPILER_ID:Clang>:-Wno-gnu-zero-variadic-macro-arguments> # for PB_ISA_MAP without further arguments
  $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo -Xptxas=--warn-on-spills -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers>)
if(PB_SANITIZE)
  target_compile_options(pb_options INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-fsanitize=${PB_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  target_link_options(pb_options INTERFACE -fsanitize=${PB_SANITIZE})
endif()

# PbIsa.cmake - pb_add_fast(target source...): compiles each source once per instruction set, with PB_ISA defined as its
# name. PB_ISA_MAP in kernels/cpu/cpu.h lists the same names.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(pb_isas omp avx2 avx512)
else()
  set(pb_isas omp)
endif()
set(pb_isa_flags_omp "")
set(pb_isa_flags_avx2 -march=x86-64-v3)
# Use full 512-bit registers: the compilers' default of 256 bits halves the arithmetic rate.
set(pb_isa_flags_avx512 -march=x86-64-v4 -mprefer-vector-width=512)

# The fuzzers read files and call no kernel. Without optimisation, clang compiles the kernels for them in a fifth of the
# time.
set(pb_fast_optimisation -O3)
if(PB_FUZZ)
  set(pb_fast_optimisation -O1)
endif()

# Object libraries NAME_ISA of the sources, one per instruction set.
function(pb_fast_objects name)
  foreach(isa IN LISTS pb_isas)
    add_library(${name}_${isa} OBJECT ${ARGN})
    target_link_libraries(${name}_${isa} PRIVATE pb_options OpenMP::OpenMP_C)
    target_compile_definitions(${name}_${isa} PRIVATE PB_ISA=${isa})
    # Contraction to fma is enabled only here; the reference stays plain IEEE arithmetic. -Wno-psabi: vector types are
    # passed between inline functions only. Functions begin at a cache line: otherwise 16 bytes more code anywhere in the
    # program move the loops of every kernel to other offsets within lines, and change some of their times by 5 %.
    target_compile_options(${name}_${isa} PRIVATE
      ${pb_fast_optimisation} -ffp-contract=fast -falign-functions=64 -Wno-psabi ${pb_isa_flags_${isa}})
  endforeach()
endfunction()

# Adds the sources to `target`, without sanitizers: with them, training on a CPU takes five times as long. Executables
# that link TARGET_sanitized use a second build of the same sources, with the sanitizers of PB_SANITIZE; without
# PB_SANITIZE that library is empty.
function(pb_add_fast target)
  pb_fast_objects(${target} ${ARGN})
  foreach(isa IN LISTS pb_isas)
    set_target_properties(${target}_${isa} PROPERTIES PB_NOT_SANITIZED ON)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_${isa}>)
  endforeach()
  add_library(${target}_sanitized INTERFACE)
  if(PB_SANITIZE AND NOT PB_FUZZ)
    pb_fast_objects(${target}_sanitized ${ARGN})
    foreach(isa IN LISTS pb_isas)
      target_sources(${target}_sanitized INTERFACE $<TARGET_OBJECTS:${target}_sanitized_${isa}>)
    endforeach()
  endif()
endfunction()

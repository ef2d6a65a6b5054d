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

# The fuzzers read files and call no kernel. Without sanitizers and optimisation, clang compiles the kernels for them in
# a fifth of the time.
set(pb_fast_optimisation -O3)
if(PB_FUZZ)
  set(pb_fast_optimisation -O1)
endif()

function(pb_add_fast target)
  foreach(isa IN LISTS pb_isas)
    add_library(${target}_${isa} OBJECT ${ARGN})
    target_link_libraries(${target}_${isa} PRIVATE pb_options OpenMP::OpenMP_C)
    target_compile_definitions(${target}_${isa} PRIVATE PB_ISA=${isa})
    set_target_properties(${target}_${isa} PROPERTIES PB_NOT_SANITIZED "${PB_FUZZ}")
    # Contraction to fma is enabled only here; the reference stays plain IEEE arithmetic. -Wno-psabi: vector types are
    # passed between inline functions only. Functions begin at a cache line: otherwise 16 bytes more code anywhere in the
    # program move the loops of every kernel to other offsets within lines, and change some of their times by 5 %.
    target_compile_options(${target}_${isa} PRIVATE
      ${pb_fast_optimisation} -ffp-contract=fast -falign-functions=64 -Wno-psabi ${pb_isa_flags_${isa}})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_${isa}>)
  endforeach()
endfunction()

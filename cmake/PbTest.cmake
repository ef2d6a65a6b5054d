# PbTest.cmake - pb_add_test(name command...): a ctest that fails after 240 seconds, three times what the slowest test
# takes on two free processors. OpenMP threads sleep while they wait: tests run in parallel, and spinning threads would
# take the processor from the thread they wait for.
set(pb_test_seconds 240)
if(PB_SANITIZE) # loops are ten times slower, or more
  set(pb_test_seconds 900)
endif()

function(pb_add_test name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${pb_test_seconds} ENVIRONMENT
    "OMP_WAIT_POLICY=passive;PB_DISTURBANCE=ignore;XDG_STATE_HOME=${CMAKE_BINARY_DIR}/state;PB_STATE=")
endfunction()

# pb_mpirun_environment: what tests that mpirun starts need. The first lines let Open MPI run as root, with more ranks
# than cores, and in a container, where it may not copy from the memory of another process; the last ones keep ranks
# that wait from taking the processor, and end a rank whose check failed, and with it the others. LeakSanitizer is off:
# Open MPI leaks, and unloads its plugins at the end, so that no suppression can name them.
set(pb_mpirun_environment
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
  OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none PMIX_MCA_gds=hash
  OMPI_MCA_mpi_yield_when_idle=1 OMP_NUM_THREADS=1 CMOCKA_TEST_ABORT=1
  LSAN_OPTIONS=detect_leaks=0)

# pb_ranks_test(name libraries N...): the program of name.c as N ranks, a test name_N for each N. Without MPI there is
# no such test.
function(pb_ranks_test name libraries)
  if(NOT PB_MPI)
    return()
  endif()
  add_executable(${name} ${name}.c)
  target_link_libraries(${name} PRIVATE ${libraries} pb_cmocka)
  foreach(n IN LISTS ARGN)
    pb_add_test(${name}_${n} ${MPIEXEC_EXECUTABLE} -np ${n} $<TARGET_FILE:${name}>)
    set_property(TEST ${name}_${n} APPEND PROPERTY ENVIRONMENT ${pb_mpirun_environment})
    set_tests_properties(${name}_${n} PROPERTIES PROCESSORS 2)
  endforeach()
endfunction()

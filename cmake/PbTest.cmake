# PbTest.cmake - pb_add_test(name command...): a ctest that fails after 240 seconds, three times what the slowest test
# takes on two free processors. OpenMP threads sleep while they wait: tests run in parallel, and spinning threads would
# take the processor from the thread they wait for.
set(pb_test_seconds 240)
if(PB_SANITIZE) # loops are ten times slower, or more
  set(pb_test_seconds 900)
endif()

# The tests that take longest, with seconds on two processors: without sanitizers / with them; 0: not built then. CTest
# starts tests of large COST first, so that no long test runs alone at the end. In a new build folder CTest has no times
# of earlier runs, so they are given here.
set(pb_test_costs
  simulate_test=40/0 pairs_test=87/0 grad_test=76/0 validation_test=75/0 ops_test=72/156 bisect_test=70/81
  train_test=58/91 readme_test=57/0 doctor_test=56/72 tiny_weights=54/0 pair_family_test=53/0 instructions_test=41/0
  train_ranks_test=40/41 resume_test=39/53 watch_test=38/39 throughput_ranks_test=30/25 attack_test=28/66
  train_hosts_test=25/26 bench_ranks_test=24/21 mla_shapes_test=24/0 graph_requirement_test=23/37 peers_test=22/0
  counters_test=21/0 cli_test=21/51 pair_simulation_test=21/0 attention_ranks_test=19/27 train_watchdog_test=17/19
  confirm_test=15/25 lost_test=14/29 gemm_test=7/34 read_test=5/27 checkpoint_fault_test=12/57
  parallel_ranks_test_2=3/24 parallel_ranks_test_3=6/25 v4_model_test=5/24 simulate_cli_test=9/23
  checkpoint_crash_test=6/21 train_faults_test=7/20)

function(pb_add_test name)
  add_test(NAME ${name} COMMAND ${ARGN})
  # cmocka's exit code does not tell that the function after all tests of a program failed, but its output does.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${pb_test_seconds} FAIL_REGULAR_EXPRESSION "GROUP TEARDOWN" ENVIRONMENT
    "OMP_WAIT_POLICY=passive;PB_DISTURBANCE=ignore;XDG_STATE_HOME=${CMAKE_BINARY_DIR}/state;PB_STATE=")
  if(";${pb_test_costs};" MATCHES ";${name}=([0-9]+)/([0-9]+);")
    if(PB_SANITIZE)
      set_tests_properties(${name} PROPERTIES COST ${CMAKE_MATCH_2})
    else()
      set_tests_properties(${name} PROPERTIES COST ${CMAKE_MATCH_1})
    endif()
  endif()
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

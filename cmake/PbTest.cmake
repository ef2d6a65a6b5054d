# PbTest.cmake - pb_add_test(name command...): a ctest that fails after 240 seconds, three times what the slowest test
# takes on two free processors. OpenMP threads sleep while they wait: tests run in parallel, and spinning threads would
# take the processor from the thread they wait for.
set(pb_test_seconds 240)
if(PB_SANITIZE) # loops are ten times slower, or more
  set(pb_test_seconds 600)
endif()

function(pb_add_test name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${pb_test_seconds} ENVIRONMENT
    "OMP_WAIT_POLICY=passive;PB_DISTURBANCE=ignore;XDG_STATE_HOME=${CMAKE_BINARY_DIR}/state;PB_STATE=")
endfunction()

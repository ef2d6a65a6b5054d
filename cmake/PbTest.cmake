# PbTest.cmake - pb_add_test(name command...): a ctest with the limits that all share. 120 seconds, then it
# is red. OpenMP threads sleep while they wait: tests run beside each other and beside other work, and
# spinning threads would take the processor from the very thread they wait for.
function(pb_add_test name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT 120 ENVIRONMENT "OMP_WAIT_POLICY=passive")
endfunction()

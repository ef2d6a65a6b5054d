# PbTest.cmake - pb_add_test(name command...): a ctest with the limits that all share. 120 seconds, then it
# is red. OpenMP threads sleep while they wait: tests run beside each other and beside other work, and
# spinning threads would take the processor from the very thread they wait for.
set(pb_test_seconds 120)
if(PB_SANITIZE) # loops are slower by ten and more
  set(pb_test_seconds 600)
endif()

function(pb_add_test name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${pb_test_seconds} ENVIRONMENT "OMP_WAIT_POLICY=passive")
endfunction()

# PbInstall.cmake - `make install`: the programs and the files they read. Included last, when all targets exist. An
# installed program finds its data at ../share/plumb, relative to its own folder.
foreach(program bench train)
  if(TARGET ${program})
    # First search the libraries that `make dist` puts next to the programs, then the OpenBLAS that was linked (not the
    # one that update-alternatives selects).
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib" INSTALL_RPATH_USE_LINK_PATH ON)
    # DT_RPATH instead of DT_RUNPATH, because it also applies to dependencies of libraries.
    target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
    install(TARGETS ${program} RUNTIME DESTINATION bin)
  endif()
endforeach()

install(FILES data/corpus.jsonl DESTINATION share/plumb OPTIONAL)
install(DIRECTORY profiles/groups DESTINATION share/plumb)
foreach(folder baselines plots completion)
  if(IS_DIRECTORY ${CMAKE_SOURCE_DIR}/${folder})
    install(DIRECTORY ${folder} DESTINATION share/plumb)
  endif()
endforeach()

# PbInstall.cmake - `make install`: the programs and the files they read. Included last, when every target
# is known. An installed program finds its data at ../share/plumb from its own folder.
foreach(program bench train)
  if(TARGET ${program})
    # The OpenBLAS that was linked, not the one that update-alternatives points to.
    # Before it, what `make dist` puts beside the programs.
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib" INSTALL_RPATH_USE_LINK_PATH ON)
    # DT_RPATH, not DT_RUNPATH: it also holds for the libraries of libraries.
    target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
    install(TARGETS ${program} RUNTIME DESTINATION bin)
  endif()
endforeach()

install(FILES data/corpus.jsonl DESTINATION share/plumb OPTIONAL)
foreach(folder baselines plots completion)
  if(IS_DIRECTORY ${CMAKE_SOURCE_DIR}/${folder})
    install(DIRECTORY ${folder} DESTINATION share/plumb)
  endif()
endforeach()

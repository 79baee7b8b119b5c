# `cmake --install`: headers, library, program, a CMake package (find_package(octet)) and a pkg-config file. A bundle
# installs its program alone: it is made to be copied, not linked.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(OCTET_TOOLS)
    install(TARGETS octet_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    set_target_properties(octet_program PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
endif()
if(OCTET_BUNDLE)
    return()
endif()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/octet DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS octet EXPORT octet-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT octet-targets NAMESPACE octet:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/octet)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/octet-config.cmake.in
    ${CMAKE_BINARY_DIR}/octet-config.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/octet)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/octet-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/octet-config.cmake ${CMAKE_BINARY_DIR}/octet-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/octet)
configure_file(${CMAKE_CURRENT_LIST_DIR}/octet.pc.in ${CMAKE_BINARY_DIR}/octet.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/octet.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Packages for Debian and Ubuntu: cpack -G DEB in a build directory that was configured with -DCMAKE_INSTALL_PREFIX=/usr.
set(CPACK_PACKAGE_NAME softnd)
set(CPACK_PACKAGE_VENDOR softnd)
set(CPACK_PACKAGE_CONTACT "softnd maintainers <softnd@users.noreply.github.com>")
set(CPACK_PACKAGE_HOMEPAGE_URL https://github.com/softnd/softnd)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/../LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/stage.cmake)

# The library with its version is one package, so that several versions can be installed together. Programs need no other.
set(CPACK_COMPONENTS_ALL runtime development)
if(SOFTND_HAS_LAUNCHER)
  list(APPEND CPACK_COMPONENTS_ALL launcher)
endif()
if(SOFTND_HAS_VERBS)
  list(APPEND CPACK_COMPONENTS_ALL verbs)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libsoftnd0)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
# CPack would write such a file for softnd-verbs, too, and packages of verbs programs would depend on that.
file(WRITE ${CMAKE_BINARY_DIR}/packaging/shlibs "libsoftnd 0 libsoftnd0 (= ${PROJECT_VERSION})\n") # exactly: the interface is not stable
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/packaging/shlibs ${CMAKE_CURRENT_LIST_DIR}/triggers) # CPack also adds scripts that call ldconfig
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "RDMA semantics over shared memory (library)
libsoftnd connects the processes of a job on one host through shared memory.
Programs register memory, connect queue pairs, and post Send, Receive, Read,
Write and memory window requests, as they would on an RDMA card.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libsoftnd-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libsoftnd0 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_RECOMMENDS softnd-launcher)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "pkg-config")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "RDMA semantics over shared memory (development files)
libsoftnd connects the processes of a job on one host through shared memory.
This package has the headers for C and C++, the module for Fortran, the static
library, files for pkg-config and CMake, examples, and the manual pages.")
set(CPACK_DEBIAN_LAUNCHER_PACKAGE_NAME softnd-launcher)
set(CPACK_DEBIAN_LAUNCHER_PACKAGE_SECTION utils)
set(CPACK_COMPONENT_LAUNCHER_DESCRIPTION "RDMA semantics over shared memory (launcher)
ndrun starts the processes of a softnd job on this host, and supervises them.
ndinfo checks whether jobs start on this machine, and reports why one hangs.")
# In a directory of its own: it is installed beside the libibverbs1 of rdma-core.
set(CPACK_DEBIAN_VERBS_PACKAGE_NAME softnd-verbs)
set(CPACK_DEBIAN_VERBS_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_VERBS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_VERBS_PACKAGE_RECOMMENDS softnd-launcher)
set(CPACK_COMPONENT_VERBS_DESCRIPTION "RDMA semantics over shared memory (verbs programs)
Programs that are built for libibverbs and librdmacm load the two libraries
of this package from a directory of its own: ndrun --verbs sets the variables.
They then find a device without a card, a kernel module or root.")
include(CPack)

# cpack runs this before it makes the packages: it adds the files of Debian's policy, and compresses the manual pages.
foreach(component ${CPACK_COMPONENTS_ALL})
  string(TOUPPER ${component} upper)
  set(doc ${CPACK_TEMPORARY_DIRECTORY}/${component}/usr/share/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  file(MAKE_DIRECTORY ${doc})
  file(COPY_FILE ${CMAKE_CURRENT_LIST_DIR}/copyright ${doc}/copyright)
  string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
  file(WRITE ${doc}/changelog "softnd (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * See ${CPACK_PACKAGE_HOMEPAGE_URL}/blob/main/CHANGELOG.md

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
  file(GLOB pages ${CPACK_TEMPORARY_DIRECTORY}/${component}/usr/share/man/man*/*.[13])
  execute_process(COMMAND gzip -9n ${doc}/changelog ${pages} COMMAND_ERROR_IS_FATAL ANY)
endforeach()

# trine_add_isa(<isa> FLAGS ... SOURCES ...)
# One static library per instruction set with its own flags. Files in it may not use standard-library
# templates: an inline function compiled with AVX flags is a weak symbol, and the linker would keep that
# copy for the whole program, which then faults on an older CPU. tools/check_symbols.py fails on any weak
# symbol in these archives.
function(trine_add_isa isa)
  cmake_parse_arguments(ARG "" "" "FLAGS;SOURCES" ${ARGN})
  add_library(trine_kernels_${isa} STATIC ${ARG_SOURCES})
  target_link_libraries(trine_kernels_${isa} PUBLIC trine_flags)
  target_compile_options(trine_kernels_${isa} PRIVATE ${ARG_FLAGS} -fno-exceptions -fno-rtti)
  # g++ ends a function by clearing the upper halves of the vector registers only under this flag, which -O1 lacks.
  # Without it, code for plain x86-64 is many times slower after a call into the library.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(trine_kernels_${isa} PRIVATE -fexpensive-optimizations)
  endif()
  # Every tile height is an instantiation of the same code. All of them take minutes to compile under a sanitizer,
  # and heights never change a result: two of each are compiled there.
  if(TRINE_SANITIZE OR TRINE_FUZZ)
    target_compile_definitions(trine_kernels_${isa} PRIVATE TRINE_FEW_TILES)
  endif()
  trine_tidy(trine_kernels_${isa})
  set_property(GLOBAL APPEND PROPERTY TRINE_ISA_LIBRARIES trine_kernels_${isa})
endfunction()

# trine_test_isa_levels(<test>)
# Runs a program of trine_test once more per instruction-set level, forced with TRINE_ISA. A level that the
# machine lacks is reported as skipped (tests/support/isa_environment.cpp ends the program with status 77).
# The sanitizer presets run the machine's own level only: the levels share one source, and the scalar one is
# minutes slow there.
function(trine_test_isa_levels name)
  get_test_property(${name} LABELS labels)
  get_test_property(${name} TIMEOUT timeout)
  target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/support/isa_environment.cpp)
  if(TRINE_SANITIZE)
    return()
  endif()
  foreach(isa scalar avx2 avx512)
    add_test(NAME ${name}_${isa} COMMAND ${name})
    set_tests_properties(${name}_${isa} PROPERTIES ENVIRONMENT TRINE_ISA=${isa} SKIP_RETURN_CODE 77
      LABELS "${labels}" TIMEOUT ${timeout})
  endforeach()
endfunction()

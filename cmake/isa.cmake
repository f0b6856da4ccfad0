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
  set_property(GLOBAL APPEND PROPERTY TRINE_ISA_LIBRARIES trine_kernels_${isa})
endfunction()

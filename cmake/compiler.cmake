# Warnings, sanitizers and the two helpers every folder uses.
# No -march=native and no -ffast-math anywhere: results may not depend on the build machine.
# -ffp-contract=off: a fused multiply-add happens only where the source says std::fma or an fma intrinsic.

add_library(trine_flags INTERFACE)
target_include_directories(trine_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(trine_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast
  -Wnon-virtual-dtor -Woverloaded-virtual -Wimplicit-fallthrough -Wundef -ffp-contract=off)
if(TRINE_WERROR)
  target_compile_options(trine_flags INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(trine_flags INTERFACE -Wthread-safety)
endif()
if(TRINE_DCHECK)
  target_compile_definitions(trine_flags INTERFACE TRINE_DCHECK_ENABLED=1)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(trine_flags INTERFACE -D_FORTIFY_SOURCE=2 -fstack-protector-strong)
else()
  target_compile_options(trine_flags INTERFACE -D_GLIBCXX_ASSERTIONS -fno-omit-frame-pointer)
endif()
if(TRINE_SANITIZE)
  add_compile_options(-fsanitize=${TRINE_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TRINE_SANITIZE})
endif()
if(TRINE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
find_program(TRINE_MOLD mold)
if(TRINE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
if(TRINE_TIDY)
  find_program(TRINE_CLANG_TIDY clang-tidy-16 REQUIRED)
endif()

# trine_tidy(<target>)
# In the tidy preset the target's files go through clang-tidy beside the compiler. Every product target
# calls this; tests and benchmarks do not.
function(trine_tidy target)
  if(TRINE_TIDY)
    set_target_properties(${target} PROPERTIES CXX_CLANG_TIDY "${TRINE_CLANG_TIDY};--quiet")
  endif()
endfunction()

# trine_library(<folder> SOURCES a.cpp ... [DEPS trine::base ...] [PRIVATE_DEPS trine::dep::x ...])
# One static library per folder of src/. DEPS may name folders with a lower layer number only
# (tools/check_layers.py holds the includes to the same rule).
function(trine_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(trine_${name} STATIC ${ARG_SOURCES})
  add_library(trine::${name} ALIAS trine_${name})
  target_link_libraries(trine_${name} PUBLIC trine_flags ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  trine_tidy(trine_${name})
endfunction()

# trine_test(<name> SOURCES ... DEPS ... [LABELS unit|property|golden|threaded|slow ...] [ARGS ...])
# A gtest program run as one ctest entry. Labels decide which presets of `make test` run it:
# everything in release; unit and property in asan; threaded in tsan.
function(trine_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS;ARGS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE
    TRINE_SOURCE_DIR="${CMAKE_SOURCE_DIR}" TRINE_BINARY_DIR="${CMAKE_BINARY_DIR}")
  # Test code is not worth optimising, and half of what the undefined-behaviour sanitizer costs a cold
  # build is its checks inside test code; the product keeps them.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(TRINE_SANITIZE)
    target_compile_options(${name} PRIVATE -O0 -fno-sanitize=undefined)
  endif()
  target_link_libraries(${name} PRIVATE trine_flags ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  if("property" IN_LIST ARG_LABELS)
    target_link_libraries(${name} PRIVATE rapidcheck)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  foreach(label IN LISTS ARG_LABELS)
    if(TARGET tests_${label})
      add_dependencies(tests_${label} ${name})
    endif()
  endforeach()
endfunction()

# What the sanitizer stages of `make test` build: the tests of one label, not everything.
foreach(label unit property threaded)
  add_custom_target(tests_${label})
endforeach()
add_custom_target(fuzzers)

# trine_fuzz(<name> SOURCE fuzz_x.cpp DEPS ...)
# A libFuzzer target, in presets with TRINE_FUZZ. Its seed corpus lives in tests/fuzz/corpus/<name>/; ctest
# replays the corpus and then mutates it for 10 seconds.
function(trine_fuzz name)
  cmake_parse_arguments(ARG "" "SOURCE" "DEPS;OPTIONS" ${ARGN})
  add_executable(${name} ${ARG_SOURCE})
  add_dependencies(fuzzers ${name})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE trine_flags ${ARG_DEPS})
  set(corpus ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name})
  add_test(NAME ${name}
    COMMAND ${CMAKE_SOURCE_DIR}/tools/run_fuzzer.sh $<TARGET_FILE:${name}> ${corpus}
            ${CMAKE_BINARY_DIR}/fuzz-work/${name} 10 -seed=1 ${ARG_OPTIONS})
  set_tests_properties(${name} PROPERTIES LABELS "fuzz" TIMEOUT 120)
endfunction()

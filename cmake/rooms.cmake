add_library(precompiled_rooms OBJECT ${PROJECT_SOURCE_DIR}/cmake/precompiled.cc)
target_precompile_headers(precompiled_rooms PRIVATE
  $<$<COMPILE_LANGUAGE:CXX>:${PROJECT_SOURCE_DIR}/cmake/standard_library.h>)

# add_room(NAME [DEPS room...] [LIBRARIES library...])
#
# One static library a folder, made of the folder's *.cc and *.cu files. On the CPU device a .cu file is C++ for the SIMT
# executor; *_native.cc files are the CPU variants of hot operations, compiled once for each instruction set level and chosen
# at load. Files named *_cuda.cc/.cu and *_cpu.cc/.cu belong to one device only.
function(add_room name)
  cmake_parse_arguments(ROOM "" "" "DEPS;LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc ${CMAKE_CURRENT_SOURCE_DIR}/*.cu)
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")
  set(native_sources ${sources})
  list(FILTER native_sources INCLUDE REGEX "_native\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_native\\.cc$")
  if(RIGEL_DEVICE STREQUAL "cuda")
    list(FILTER sources EXCLUDE REGEX "_cpu\\.(cc|cu)$")
  else()
    list(FILTER sources EXCLUDE REGEX "_cuda\\.(cc|cu)$")
    set(kernel_sources ${sources})
    list(FILTER kernel_sources INCLUDE REGEX "\\.cu$")
    if(kernel_sources)
      set_source_files_properties(${kernel_sources} PROPERTIES LANGUAGE CXX SKIP_PRECOMPILE_HEADERS ON
        COMPILE_OPTIONS "-fno-strict-aliasing;-fstack-clash-protection;-Wno-unknown-pragmas")
    endif()
  endif()

  add_library(rigel_${name} STATIC ${sources})
  target_include_directories(rigel_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(rigel_${name} PUBLIC Threads::Threads)
  foreach(dep IN LISTS ROOM_DEPS)
    target_link_libraries(rigel_${name} PUBLIC rigel_${dep})
  endforeach()
  target_link_libraries(rigel_${name} PUBLIC ${ROOM_LIBRARIES})
  target_precompile_headers(rigel_${name} REUSE_FROM precompiled_rooms)

  if(native_sources AND RIGEL_DEVICE STREQUAL "cpu")
    set(native_optimisation -O3)
    if(RIGEL_SANITIZE)
      set(native_optimisation -O2)  # a faster build; less than that would contract no products and sums
    endif()
    foreach(level v3 v4)
      add_library(rigel_${name}_native_${level} OBJECT ${native_sources})
      set_target_properties(rigel_${name}_native_${level} PROPERTIES UNITY_BUILD OFF)
      target_include_directories(rigel_${name}_native_${level} PRIVATE ${PROJECT_SOURCE_DIR})
      target_compile_definitions(rigel_${name}_native_${level} PRIVATE RIGEL_NATIVE=native_${level})
      target_compile_options(rigel_${name}_native_${level} PRIVATE
        -march=x86-64-${level} ${native_optimisation} -ffp-contract=fast -fno-math-errno -fno-trapping-math)
      target_sources(rigel_${name} PRIVATE $<TARGET_OBJECTS:rigel_${name}_native_${level}>)
    endforeach()
  endif()
endfunction()

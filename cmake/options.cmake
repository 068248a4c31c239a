# Compile options that every room shares.

add_compile_options(
  $<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>
  $<$<COMPILE_LANGUAGE:CXX>:-Wshadow> $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  $<$<COMPILE_LANGUAGE:CXX>:-Woverloaded-virtual> $<$<COMPILE_LANGUAGE:CXX>:-Wunused>
  $<$<COMPILE_LANGUAGE:CXX>:-Werror>
  # The flow analysis of g++ 12 misjudges moved std::variant and std::function members, and inlined std::string functions
  # whose headers are precompiled. ASan and UBSan look at the same things at run time.
  $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized> $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow>
  $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overread> $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds>
  $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict> $<$<COMPILE_LANGUAGE:CXX>:-Wno-nonnull>)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # FMA and AVX2 are required: the device texts rely on contraction like nvcc's.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-march=x86-64-v3>)
endif()

if(RIGEL_SANITIZE STREQUAL "address")
  # ASan reports a null or wild access by itself; these checks of UBSan would double the time of the build.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
    -fno-sanitize=null,object-size,pointer-overflow,vptr,nonnull-attribute,returns-nonnull-attribute)
  add_link_options(-fsanitize=address,undefined)
elseif(RIGEL_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(RIGEL_SANITIZE)
  message(FATAL_ERROR "RIGEL_SANITIZE must be empty, address or thread, got '${RIGEL_SANITIZE}'")
endif()

if(RIGEL_DEVICE STREQUAL "cuda")
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  # CMake 3.25 does not know nvcc's flag for C++20: it is told that there is nothing to add, and the flag is a plain option.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "")
  # fmt takes nvcc for a compiler without constexpr, and nvcc's front end cannot evaluate fmt's compile-time check of format
  # strings; the host compiler checks the same headers.
  add_compile_definitions("$<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>" "$<$<COMPILE_LANGUAGE:CUDA>:FMT_CONSTEVAL=>")
  add_compile_options(
    "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;--expt-relaxed-constexpr;-lineinfo;-Werror=all-warnings;-Xcompiler=-Wall,-Wextra,-Werror;-Xptxas=-v>")
elseif(NOT RIGEL_DEVICE STREQUAL "cpu")
  message(FATAL_ERROR "RIGEL_DEVICE must be cpu or cuda, got '${RIGEL_DEVICE}'")
endif()

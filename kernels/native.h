#pragma once

// How a kernel's launcher finds the native CPU variant of its operation. `x_native.cc` is compiled twice, into the namespaces
// native_v3 (AVX2, FMA) and native_v4 (AVX512); one of the two is chosen by what the processor can do.
//
//   x_native.h:   RIGEL_DECLARE_NATIVE(void x(simt::Pool& pool, const XParams& params);)
//   x_native.cc:  namespace rigel::kernels::RIGEL_NATIVE { void x(simt::Pool& pool, const XParams& params) { ... } }
//   x.cu:         if (launch_native(stream, "x", plan.traffic, RIGEL_NATIVE_VARIANT(x), params)) return;
//
// What an x_native.cc includes may not define inline functions or templates that other files use too: the linker would keep
// one copy, perhaps the AVX512 one, for all. Hence no standard containers or algorithms there; kernels/exact_math.h and
// kernels/native_math.h are safe because everything in them has internal linkage or is always inlined.

namespace simt {
class Pool;
}  // namespace simt

namespace rigel::kernels {

/// Instruction set levels of native variants (the x86-64 psABI's names).
enum class NativeLevel { kV3, kV4 };

/// The highest level this processor and operating system run. Thread: any. Cost: a load after the first call.
[[nodiscard]] NativeLevel native_level();

}  // namespace rigel::kernels

/// Declares the same functions in native_v3 and native_v4.
#define RIGEL_DECLARE_NATIVE(...) \
  namespace native_v3 {           \
  __VA_ARGS__                     \
  }                               \
  namespace native_v4 {           \
  __VA_ARGS__                     \
  }

/// The address of a native function for this processor; null (of the same type) on CUDA. Works for `f` and `f<T>`.
#if defined(RIGEL_DEVICE_CUDA)
#define RIGEL_NATIVE_VARIANT(...) \
  static_cast<decltype(&::rigel::kernels::native_v3::__VA_ARGS__)>(nullptr)
#else
#define RIGEL_NATIVE_VARIANT(...)                                         \
  (::rigel::kernels::native_level() == ::rigel::kernels::NativeLevel::kV4 \
       ? &::rigel::kernels::native_v4::__VA_ARGS__                        \
       : &::rigel::kernels::native_v3::__VA_ARGS__)
#endif

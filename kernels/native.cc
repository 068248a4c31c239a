#include "kernels/native.h"

namespace rigel::kernels {
namespace {

NativeLevel detect() {
#if defined(__x86_64__)
  // __builtin_cpu_supports also asks whether the operating system saves the wide registers.
  const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  return v4 ? NativeLevel::kV4 : NativeLevel::kV3;
#else
  return NativeLevel::kV3;
#endif
}

}  // namespace

NativeLevel native_level() {
  static const NativeLevel level = detect();
  return level;
}

}  // namespace rigel::kernels

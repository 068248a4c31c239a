#pragma once

// Text of both machines: conversions of the activation types and vectors of them that move in one access. Included by
// simt/simt.h, which has defined __device__ and the accesses.

namespace simt {

template <class T>
__device__ __forceinline__ float to_float(T value) {
  return static_cast<float>(value);
}

template <class T>
__device__ __forceinline__ T from_float(float value) {
  return T(value);
}
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}

/// N elements of T that are loaded and stored in one access, and computed with as float.
template <class T, int N>
struct alignas(sizeof(T) * N) VecOf {
  static constexpr int kSize = N;
  T element[N];

  [[nodiscard]] __device__ __forceinline__ float get(int index) const {
    return to_float(element[index]);
  }
  __device__ __forceinline__ void set(int index, float value) {
    element[index] = from_float<T>(value);
  }
};

/// Elements in 16 bytes: 8 of bf16 or f16, 4 of float.
template <class T>
inline constexpr int kVec = 16 / static_cast<int>(sizeof(T));

template <class T>
using Vec = VecOf<T, kVec<T>>;
/// The elements of 8 bytes.
template <class T>
using HalfVec = VecOf<T, kVec<T> / 2>;

/// Loads 16 bytes of elements; `address` is 16-byte aligned.
template <class T>
__device__ __forceinline__ Vec<T> load_vec(const T* address, Site site = Site::here()) {
  return bitcast<Vec<T>>(ld16(address, site));
}
/// As load_vec, for data that is read once.
template <class T>
__device__ __forceinline__ Vec<T> load_vec_stream(const T* address, Site site = Site::here()) {
  return bitcast<Vec<T>>(ld16_stream(address, site));
}
/// Stores 16 bytes of elements; `address` is 16-byte aligned.
template <class T>
__device__ __forceinline__ void store_vec(T* address, const Vec<T>& vec, Site site = Site::here()) {
  st16(address, bitcast<Bytes16>(vec), site);
}
/// Loads 8 bytes of elements; `address` is 8-byte aligned.
template <class T>
__device__ __forceinline__ HalfVec<T> load_half_vec(const T* address, Site site = Site::here()) {
  return bitcast<HalfVec<T>>(ld8(address, site));
}
/// Stores 8 bytes of elements; `address` is 8-byte aligned.
template <class T>
__device__ __forceinline__ void store_half_vec(T* address, const HalfVec<T>& vec,
                                               Site site = Site::here()) {
  st8(address, bitcast<Bytes8>(vec), site);
}

}  // namespace simt

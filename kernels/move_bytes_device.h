#pragma once

#include "simt/simt.h"

#include <cstddef>
#include <cstdint>

// Copies of byte ranges by a group of threads, for kernels that move rows without looking at them.

namespace rigel::kernels {

/// Copies units of sizeof(Unit) bytes from both (aligned) addresses; a null source stands for zeros.
template <class Unit>
__device__ inline void move_units(std::byte* target, const std::byte* source,
                                  std::int64_t num_units, std::int64_t part,
                                  std::int64_t num_parts) {
  for (std::int64_t unit = part; unit < num_units; unit += num_parts) {
    reinterpret_cast<Unit*>(target)[unit] =
        source == nullptr ? Unit{} : reinterpret_cast<const Unit*>(source)[unit];
  }
}

template <>
__device__ inline void move_units<simt::Bytes16>(std::byte* target, const std::byte* source,
                                                 std::int64_t num_units, std::int64_t part,
                                                 std::int64_t num_parts) {
  for (std::int64_t unit = part; unit < num_units; unit += num_parts) {
    simt::Bytes16 value = {};
    if (source != nullptr) {
      value = simt::ld16(source + unit * 16);
    }
    simt::st16(target + unit * 16, value);
  }
}

/// Copies `num_bytes` from `source` (null: zeros) to `target`, any alignment. This thread does part `part` of `num_parts`,
/// which are 32 or more. The widest unit on which both addresses agree does the middle, bytes the two ends.
__device__ inline void move_bytes(std::byte* target, const std::byte* source,
                                  std::int64_t num_bytes, std::int64_t part,
                                  std::int64_t num_parts) {
  const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(target);
  const std::uintptr_t skew =
      source == nullptr ? 0 : (at ^ reinterpret_cast<std::uintptr_t>(source)) % 16;
  // Units of 2^shift bytes: no division, which costs more than a narrow row.
  const int shift = skew == 0 ? 4 : (skew % 4 == 0 ? 2 : (skew % 2 == 0 ? 1 : 0));
  const std::int64_t to_boundary =
      static_cast<std::int64_t>((std::uintptr_t{0} - at) & ((std::uintptr_t{1} << shift) - 1));
  const std::int64_t head = to_boundary < num_bytes ? to_boundary : num_bytes;
  const std::int64_t num_units = (num_bytes - head) >> shift;
  const std::int64_t tail = head + (num_units << shift);

  // Head and tail have fewer than 16 bytes: at most one each for a thread.
  const auto move_byte = [&](std::int64_t index) {
    target[index] = source == nullptr ? std::byte{0} : source[index];
  };
  if (part < head) {
    move_byte(part);
  }
  if (part < num_bytes - tail) {
    move_byte(tail + part);
  }
  const std::byte* const middle = source == nullptr ? nullptr : source + head;
  if (shift == 4) {
    move_units<simt::Bytes16>(target + head, middle, num_units, part, num_parts);
  } else if (shift == 2) {
    move_units<std::uint32_t>(target + head, middle, num_units, part, num_parts);
  } else if (shift == 1) {
    move_units<std::uint16_t>(target + head, middle, num_units, part, num_parts);
  } else {
    move_units<unsigned char>(target + head, middle, num_units, part, num_parts);
  }
}

}  // namespace rigel::kernels

#pragma once

#include <cstddef>
#include <cstdint>

namespace rigel::kernels {

struct GatherRowsParams {
  std::byte* target;
  const std::byte* source;
  const std::int32_t* source_rows;  // (num_rows); -1: zeros
  std::int64_t row_bytes;
  std::int32_t num_rows;
  std::int32_t num_source_rows;
};

/// One signal of a splice, as the device reads it from the step's table. Strides count bytes.
struct SpliceEntry {
  std::byte* target;
  const std::byte* source;
  const std::byte* fresh;
  std::int64_t row_bytes;  // 0: padding
  std::int64_t target_stride;
  std::int64_t source_stride;
  std::int64_t fresh_stride;
  std::int32_t num_source_rows;
  std::int32_t num_fresh_rows;
};
inline constexpr int kSpliceEntryWords = 8;
static_assert(sizeof(SpliceEntry) == kSpliceEntryWords * sizeof(std::int64_t));

struct SpliceRowsParams {
  const SpliceEntry* entries;       // (num_signals)
  const std::int32_t* source_rows;  // (num_lanes), or one such row a signal
  std::int64_t signal_stride;  // from one signal's source rows to the next's; 0: they share them
  std::int32_t num_signals;
  std::int32_t num_lanes;
};

/// Where a lane's row comes from; null: nowhere, the lane stays. An index outside the buffer counts as nowhere: a wild row
/// must not become a wild read.
static constexpr const std::byte* splice_source(const SpliceEntry& entry, std::int32_t row) {
  if (row >= 0) {
    return row < entry.num_source_rows ? entry.source + row * entry.source_stride : nullptr;
  }
  const std::int32_t fresh = -2 - row;
  return fresh >= 0 && fresh < entry.num_fresh_rows ? entry.fresh + fresh * entry.fresh_stride
                                                    : nullptr;
}

}  // namespace rigel::kernels

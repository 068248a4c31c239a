#pragma once

#include <cstddef>
#include <cstdint>

namespace rigel::kernels {

/// Ids of a request that end it, as many as fit 64 bytes a row; the rest of a longer list is the host's to check.
inline constexpr int kMaxStopIds = 9;

/// What a row's stop test needs, by row. The host writes it when the row starts or restarts; num_generated then advances on
/// the device.
struct alignas(16) StopRow {
  std::uint32_t generation;  // of the row's handle
  std::uint32_t options;     // kIgnoreEos | kListContinues
  std::int32_t min_tokens;   // so many tokens are generated before an id may stop the row
  std::int32_t max_tokens;   // generated tokens
  std::int32_t max_length;   // prompt and generated tokens
  std::int32_t num_prompt_tokens;
  std::int32_t num_generated;
  std::int32_t stop_ids[kMaxStopIds];  // -1: none
};
inline constexpr int kStopRowWords = 16;
static_assert(sizeof(StopRow) == kStopRowWords * sizeof(std::int32_t));

// StopRow::options.
inline constexpr std::uint32_t kIgnoreEos = 1;      // the model's end tokens do not stop this row
inline constexpr std::uint32_t kListContinues = 2;  // the request has more stop ids than stop_ids

// StepRecord::flags. Several may be set; none: the row goes on.
inline constexpr std::uint32_t kStopEos = 1;
inline constexpr std::uint32_t kStopToken = 2;
inline constexpr std::uint32_t kStopMaxTokens = 4;
inline constexpr std::uint32_t kStopMaxLength = 8;
inline constexpr std::uint32_t kStopped = kStopEos | kStopToken | kStopMaxTokens | kStopMaxLength;
inline constexpr std::uint32_t kHostMustCheck = 16;  // the rest of a long list of stop ids
inline constexpr std::uint32_t kSampleFailed =
    32;  // no finite logits; the token is -1 and not counted

/// A lane's result of a step, as the host finds it in the ring.
struct alignas(16) StepRecord {
  std::int32_t row;
  std::uint32_t generation;
  std::int32_t token;
  std::uint32_t flags;
  std::int32_t num_generated;  // with this token
  std::int32_t length;         // prompt and generated tokens
  std::uint64_t step;  // written last, released to the host: once it is there, so is the rest
};
inline constexpr int kStepRecordWords = 4;
static_assert(sizeof(StepRecord) == kStepRecordWords * sizeof(std::int64_t));

/// Rows of a static buffer that travel as they are.
struct StopBufferCopy {
  const std::byte* source;  // (num_rows, row_bytes)
  std::int32_t row_bytes;
  std::int32_t num_rows;
  std::int32_t offset_bytes;  // of row 0 in the ring's entry
};
inline constexpr int kMaxStopBuffers = 8;

struct StopCopyParams {
  std::byte* ring;           // (num_entries, entry_bytes)
  const std::int64_t* step;  // (1)
  std::int64_t entry_bytes;
  StopRow* stop_rows;           // (num_rows)
  const std::int32_t* eos_ids;  // (num_eos_ids)
  const std::int32_t* rows;     // (num_lanes)
  const std::int32_t* tokens;   // (num_lanes)
  StopBufferCopy buffers[kMaxStopBuffers];
  std::int32_t num_buffers;
  std::int32_t num_entries;
  std::int32_t records_offset;  // of lane 0's record in the entry
  std::int32_t num_rows;
  std::int32_t num_eos_ids;
  std::int32_t num_lanes;  // that are tested; 0: rows travel and nobody stops
};

/// Whether row `index` of a buffer travels: not that of a padding lane, where the buffer's rows are those of lanes.
static constexpr bool travels(const StopBufferCopy& buffer, std::int32_t index,
                              std::int32_t num_lanes, bool is_real_lane) {
  return index < buffer.num_rows && (buffer.num_rows != num_lanes || is_real_lane);
}

struct StopRowUpdateParams {
  StopRow* stop_rows;        // (num_rows)
  const StopRow* values;     // (num_updates)
  const std::int32_t* rows;  // (num_updates)
  std::int32_t num_rows;
  std::int32_t num_updates;
};

/// Whether `token` is one of the row's own stop ids. All are looked at, so that a copy of the row stays in registers.
static constexpr bool is_stop_id(const StopRow& row, std::int32_t token) {
  bool found = false;
  for (int index = 0; index < kMaxStopIds; ++index) {
    found = found || row.stop_ids[index] == token;
  }
  return found;
}

static constexpr bool is_eos(const std::int32_t* eos_ids, std::int32_t num_eos_ids,
                             std::int32_t token) {
  for (std::int32_t index = 0; index < num_eos_ids; ++index) {
    if (eos_ids[index] == token) {
      return true;
    }
  }
  return false;
}

/// Flags of `token` (0 or more), the num_generated-th of the row. The same on every device, and the same rule as the host's stop check.
static constexpr std::uint32_t stop_flags(const StopRow& row, std::int32_t num_generated,
                                          std::int32_t token, const std::int32_t* eos_ids,
                                          std::int32_t num_eos_ids) {
  std::uint32_t flags = 0;
  if (num_generated >= row.max_tokens) {
    flags |= kStopMaxTokens;
  }
  if (row.num_prompt_tokens + num_generated >= row.max_length) {
    flags |= kStopMaxLength;
  }
  if (num_generated <= row.min_tokens) {
    return flags;
  }
  if ((row.options & kIgnoreEos) == 0 && is_eos(eos_ids, num_eos_ids, token)) {
    flags |= kStopEos;
  }
  if (is_stop_id(row, token)) {
    flags |= kStopToken;
  } else if ((row.options & kListContinues) != 0) {
    flags |= kHostMustCheck;
  }
  return flags;
}

/// What a lane records of `token` (-1: the sample failed).
static constexpr StepRecord step_record(const StopRow& row, std::int32_t row_index,
                                        std::int32_t token, const std::int32_t* eos_ids,
                                        std::int32_t num_eos_ids) {
  const std::int32_t num_generated = row.num_generated + (token >= 0 ? 1 : 0);
  return {row_index,
          row.generation,
          token,
          token >= 0 ? stop_flags(row, num_generated, token, eos_ids, num_eos_ids) : kSampleFailed,
          num_generated,
          row.num_prompt_tokens + num_generated,
          0};
}

}  // namespace rigel::kernels

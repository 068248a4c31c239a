#include "engine/host_row_ring.h"

#include "tensor/copy.h"
#include "tensor/error.h"

#include <algorithm>

namespace rigel {

namespace {

constexpr std::int64_t kAlignment = 64;

std::int64_t aligned(std::int64_t num_bytes) {
  return (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

void HostRowRing::stage(StreamRef stream, Epoch epoch, const BatchedModelOutput& outputs) {
  Entry& entry = entries_[epoch % kNumEntries];
  entry.epoch = epoch;
  entry.handles.assign(outputs.row_handles().begin(), outputs.row_handles().end());
  entry.buffers.clear();

  std::int64_t total_bytes = 0;
  for (const BatchedModelOutput::RowOutput& output : outputs.row_outputs()) {
    total_bytes += aligned(output.rows.num_bytes());
  }
  if (total_bytes > entry.memory.num_bytes()) {
    entry.memory = PinnedBuffer(*device_, std::max<std::int64_t>(total_bytes * 2, 4096));
  }
  std::int64_t offset = 0;
  for (const BatchedModelOutput::RowOutput& output : outputs.row_outputs()) {
    const HostView target(entry.memory.raw() + offset, output.rows.dtype(), output.rows.shape());
    if (output.rows.num_bytes() > 0) {
      copy(stream, target, output.rows);
    }
    entry.buffers.push_back({output.signal, target});
    offset += aligned(output.rows.num_bytes());
  }
}

HostRows HostRowRing::rows(Epoch epoch) const {
  const Entry& entry = entries_[epoch % kNumEntries];
  RIGEL_CHECK(entry.epoch == epoch, "the rows of step {} were overwritten by step {}", epoch,
              entry.epoch);
  return {entry.handles, entry.buffers};
}

}  // namespace rigel

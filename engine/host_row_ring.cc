#include "engine/host_row_ring.h"

#include "tensor/copy.h"
#include "tensor/error.h"

#include <algorithm>
#include <cstring>

namespace rigel {

namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kMinBlockBytes = 4096;

std::int64_t aligned(std::int64_t num_bytes) {
  return (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool have_same_rows(const ConstHostView& a, const ConstDeviceView& b) {
  Shape row = b.shape();
  row.set(0, a.dim(0));
  return a.dtype() == b.dtype() && a.shape() == row;
}

}  // namespace

void HostRowRing::begin(Epoch epoch, std::int64_t num_forwards) {
  epoch_ = epoch;
  Entry& entry = entries_[epoch % kNumEntries];
  entry.epoch = epoch;
  entry.num_forwards = num_forwards;
  entry.handles.clear();
  entry.buffers.clear();
  entry.targets.clear();
  entry.arrivals.clear();
  for (Block& block : entry.blocks) {
    block.used = 0;
  }
}

void HostRowRing::stage(StreamRef stream, const BatchedModelOutput& outputs) {
  Entry& entry = entries_[epoch_ % kNumEntries];
  const auto first_row = static_cast<std::int64_t>(entry.handles.size());
  entry.handles.insert(entry.handles.end(), outputs.row_handles().begin(),
                       outputs.row_handles().end());
  for (Target& target : entry.targets) {
    target.source = nullptr;
  }
  for (const BatchedModelOutput::RowOutput& output : outputs.row_outputs()) {
    if (output.host_rows.defined() && entry.num_forwards == 1) {
      const HostView target = take(entry, output.rows.dtype(), output.rows.shape());
      entry.buffers.push_back({output.signal, target});
      entry.targets.push_back({target, nullptr});
      entry.arrivals.push_back({target, output.host_rows});
    } else {
      stage_rows(stream, entry, output.signal, output.rows, first_row);
    }
  }
  const BatchedModelOutput::CheckStopInput stop_input = outputs.get_check_stop_input();
  if (const auto* const* buffers = std::get_if<const StopBuffers*>(&stop_input)) {
    for (const auto& [signal, buffer] : **buffers) {
      if (const auto* rows = std::get_if<Tensor>(&buffer)) {
        stage_rows(stream, entry, signal, rows->device_view(), first_row);
      }
    }
  }
}

void HostRowRing::stage_rows(StreamRef stream, Entry& entry, SignalId signal,
                             const ConstDeviceView& rows, std::int64_t first_row) {
  const bool is_whole = entry.num_forwards == 1;
  RIGEL_CHECK(is_whole || (rows.rank() > 0 && first_row + rows.dim(0) ==
                                                  static_cast<std::int64_t>(entry.handles.size())),
              "signal {}: a lane's own forward gives one row, got shape {}",
              static_cast<int>(signal), to_string(rows.shape()));
  const auto copied = std::ranges::find_if(entry.targets, [&rows](const Target& target) {
    return target.source != nullptr && target.source == rows.raw();
  });
  const auto known = std::ranges::find(entry.buffers, signal, &HostRows::Buffer::signal);
  if (known == entry.buffers.end()) {
    Shape shape = rows.shape();
    if (!is_whole) {
      shape.set(0, entry.num_forwards);
    }
    const bool is_same = copied != entry.targets.end() && copied->rows.dtype() == rows.dtype() &&
                         copied->rows.shape() == shape;
    const Target target{is_same ? copied->rows : take(entry, rows.dtype(), shape), rows.raw()};
    entry.buffers.push_back({signal, target.rows});
    entry.targets.push_back(target);
    if (is_same) {
      return;
    }
  } else if (copied != entry.targets.end() && copied->rows.raw() == known->rows.raw()) {
    return;
  }

  Target& target = entry.targets[static_cast<std::size_t>(
      std::ranges::find(entry.buffers, signal, &HostRows::Buffer::signal) - entry.buffers.begin())];
  target.source = rows.raw();
  HostView here = target.rows;
  if (!is_whole) {
    RIGEL_CHECK(have_same_rows(here, rows), "signal {}: one lane gives rows {}, another {}",
                static_cast<int>(signal), to_string(here.shape()), to_string(rows.shape()));
    here = here.slice(0, first_row, rows.dim(0));
  }
  if (rows.num_bytes() > 0) {
    copy(stream, here, rows);
  }
}

HostView HostRowRing::take(Entry& entry, Dtype dtype, const Shape& shape) {
  const std::int64_t num_bytes = aligned(bytes_of(dtype, shape));
  auto block = std::ranges::find_if(entry.blocks, [num_bytes](const Block& candidate) {
    return candidate.used + num_bytes <= candidate.memory.num_bytes();
  });
  if (block == entry.blocks.end()) {
    Block more{PinnedBuffer(*device_, std::max(num_bytes * 2, kMinBlockBytes)), 0};
    block = entry.blocks.insert(entry.blocks.end(), std::move(more));
  }
  const HostView view(block->memory.raw() + block->used, dtype, shape);
  block->used += num_bytes;
  return view;
}

void HostRowRing::settle(Epoch epoch) {
  Entry& entry = entries_[epoch % kNumEntries];
  for (const Arrival& arrival : entry.arrivals) {
    std::memcpy(arrival.target.raw(), arrival.source.raw(),
                static_cast<std::size_t>(arrival.source.num_bytes()));
  }
  entry.arrivals.clear();
}

HostRows HostRowRing::rows(Epoch epoch) const {
  const Entry& entry = entries_[epoch % kNumEntries];
  RIGEL_CHECK(entry.epoch == epoch, "the rows of step {} were overwritten by step {}", epoch,
              entry.epoch);
  return {entry.handles, entry.buffers};
}

}  // namespace rigel

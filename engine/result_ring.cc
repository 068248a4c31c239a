#include "engine/result_ring.h"

#include "tensor/copy.h"
#include "tensor/error.h"

#include <algorithm>
#include <cstring>

namespace rigel {

using kernels::StepRecord;

namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kMinBlockBytes = 4096;
/// A warp moves this much in a few rounds; wider rows are the copy engine's.
constexpr std::int64_t kMaxLaunchedRowBytes = 2048;
constexpr std::int64_t kRecordBytes = sizeof(StepRecord);

std::int64_t aligned(std::int64_t num_bytes) {
  return (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool have_same_rows(const ConstHostView& a, const ConstDeviceView& b) {
  Shape row = b.shape();
  row.set(0, a.dim(0));
  return a.dtype() == b.dtype() && a.shape() == row;
}

}  // namespace

ResultRing::ResultRing(Device& device, std::int64_t entry_bytes, std::int32_t max_turns)
    : device_(&device),
      entry_bytes_(aligned(entry_bytes)),
      max_turns_(max_turns),
      memory_(device, static_cast<std::int64_t>(kNumEntries) * max_turns_ * entry_bytes_) {
  // A tag of 0 is no step's.
  std::memset(memory_.raw(), 0, static_cast<std::size_t>(memory_.num_bytes()));
  launched_.reserve(kernels::kMaxStopBuffers);
}

void ResultRing::begin(Epoch epoch, std::int64_t num_forwards) {
  epoch_ = epoch;
  Entry& entry = entries_[epoch % kNumEntries];
  entry.epoch = epoch;
  entry.num_forwards = num_forwards;
  entry.used = 0;
  entry.handles.clear();
  entry.buffers.clear();
  entry.targets.clear();
  entry.records = {};
  for (Block& block : entry.blocks) {
    block.used = 0;
  }
}

void ResultRing::stage(StreamRef stream, const BatchedModelOutput& outputs,
                       const ConstDeviceView& step) {
  Entry& entry = entries_[epoch_ % kNumEntries];
  const auto first_row = static_cast<std::int64_t>(entry.handles.size());
  entry.handles.insert(entry.handles.end(), outputs.row_handles().begin(),
                       outputs.row_handles().end());
  launched_.clear();
  for (Target& target : entry.targets) {
    target.source = nullptr;
  }
  // Records first: other rows that find no room in the entry are copied by themselves.
  const StopLanes* const lanes = outputs.stop_lanes();
  const std::int64_t records = lanes == nullptr ? 0 : stage_records(entry, *lanes, first_row);
  for (const BatchedModelOutput::RowOutput& output : outputs.row_outputs()) {
    if (output.place == kNoPlace) {
      stage_rows(stream, entry, output.signal, output.rows, first_row);
    } else {
      const HostView rows = view(entry, output.rows.dtype(), output.rows.shape(), output.place);
      add_buffer(entry, output.signal, {rows, output.place, nullptr});
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
  const bool tests = lanes != nullptr && lanes->place == kNoPlace;
  if (tests || !launched_.empty()) {
    kernels::stop_copy(stream, place_of(step), launched_, tests ? &lanes->test : nullptr, records);
  }
}

/// Returns where the record of the forward's first lane goes.
std::int64_t ResultRing::stage_records(Entry& entry, const StopLanes& lanes,
                                       std::int64_t first_row) {
  const bool is_whole = entry.num_forwards == 1;
  const std::int64_t num_records = is_whole ? lanes.test.rows.dim(0) : entry.num_forwards;
  const auto known = std::ranges::find(entry.buffers, lanes.records, &HostRows::Buffer::signal);
  std::int64_t place = lanes.place;
  if (known != entry.buffers.end()) {
    place = entry.targets[static_cast<std::size_t>(known - entry.buffers.begin())].place;
  } else {
    if (place == kNoPlace) {
      place = take_place(entry.used, num_records * kRecordBytes);
      RIGEL_CHECK(place != kNoPlace, "{} records do not fit the {} bytes of a step's results",
                  num_records, entry_bytes_);
    }
    const HostView rows =
        view(entry, Dtype::kI64, {num_records, std::int64_t{kernels::kStepRecordWords}}, place);
    add_buffer(entry, lanes.records, {rows, place, nullptr});
    if (is_whole) {
      entry.records = {reinterpret_cast<const StepRecord*>(rows.raw()),
                       static_cast<std::size_t>(num_records)};
    }
  }
  return is_whole ? place : place + first_row * kRecordBytes;
}

void ResultRing::stage_rows(StreamRef stream, Entry& entry, SignalId signal,
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
    add_buffer(entry, signal, is_same ? Target(*copied) : take(entry, rows, shape));
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
  if (rows.num_bytes() == 0) {
    return;
  }
  if (target.place != kNoPlace) {
    launched_.push_back({rows, target.place + (here.raw() - target.rows.raw())});
  } else {
    copy(stream, here, rows);
  }
}

void ResultRing::capture(StreamRef stream, BatchedModelOutput& outputs,
                         const ConstDeviceView& step) {
  std::int64_t used = 0;
  launched_.clear();
  StopLanes* const lanes = outputs.stop_lanes();
  if (lanes != nullptr) {
    lanes->place = take_place(used, lanes->test.rows.dim(0) * kRecordBytes);
    RIGEL_CHECK(lanes->place != kNoPlace, "{} records do not fit the {} bytes of a step's results",
                lanes->test.rows.dim(0), entry_bytes_);
  }
  for (BatchedModelOutput::RowOutput& output : outputs.row_outputs()) {
    if (can_launch(output.rows)) {
      output.place = take_place(used, output.rows.num_bytes());
    }
    if (output.place != kNoPlace) {
      launched_.push_back({output.rows, output.place});
    }
  }
  if (lanes != nullptr || !launched_.empty()) {
    kernels::stop_copy(stream, place_of(step), launched_, lanes == nullptr ? nullptr : &lanes->test,
                       lanes == nullptr ? 0 : lanes->place);
  }
}

void ResultRing::add_buffer(Entry& entry, SignalId signal, const Target& target) {
  entry.buffers.push_back({signal, target.rows});
  entry.targets.push_back(target);
}

ResultRing::Target ResultRing::take(Entry& entry, const ConstDeviceView& rows, const Shape& shape) {
  const std::int64_t num_bytes = bytes_of(rows.dtype(), shape);
  if (can_launch(rows)) {
    if (const std::int64_t place = take_place(entry.used, num_bytes); place != kNoPlace) {
      return {view(entry, rows.dtype(), shape, place), place, nullptr};
    }
  }
  auto block = std::ranges::find_if(entry.blocks, [num_bytes](const Block& candidate) {
    return candidate.used + num_bytes <= candidate.memory.num_bytes();
  });
  if (block == entry.blocks.end()) {
    Block more{PinnedBuffer(*device_, std::max(num_bytes * 2, kMinBlockBytes)), 0};
    block = entry.blocks.insert(entry.blocks.end(), std::move(more));
  }
  const HostView target(block->memory.raw() + block->used, rows.dtype(), shape);
  block->used += aligned(num_bytes);
  return {target, kNoPlace, nullptr};
}

std::int64_t ResultRing::take_place(std::int64_t& used, std::int64_t num_bytes) const {
  if (used + num_bytes > entry_bytes_) {
    return kNoPlace;
  }
  const std::int64_t place = used;
  used += aligned(num_bytes);
  return place;
}

bool ResultRing::can_launch(const ConstDeviceView& rows) const {
  const std::int64_t num_rows = rows.rank() == 0 ? 1 : std::max<std::int64_t>(rows.dim(0), 1);
  return launched_.size() < static_cast<std::size_t>(kernels::kMaxStopBuffers) &&
         rows.is_contiguous() && rows.num_bytes() / num_rows <= kMaxLaunchedRowBytes;
}

HostView ResultRing::view(const Entry& entry, Dtype dtype, const Shape& shape,
                          std::int64_t place) const {
  return memory_.view(dtype, shape, (&entry - entries_.data()) * max_turns_ * entry_bytes_ + place);
}

kernels::ResultPlace ResultRing::place_of(const ConstDeviceView& step) const {
  const std::int64_t num_entries = static_cast<std::int64_t>(kNumEntries) * max_turns_;
  return {memory_.device_view(Dtype::kU8, {num_entries, entry_bytes_}), step};
}

const StepRecord& ResultRing::record(const Entry& entry, std::size_t lane,
                                     std::int32_t turn) const {
  const auto* const first = reinterpret_cast<const std::byte*>(&entry.records[lane]);
  return *reinterpret_cast<const StepRecord*>(first + turn * entry_bytes_);
}

std::int32_t ResultRing::num_turns(Epoch epoch, std::int32_t most) const {
  const Entry& entry = entries_[epoch % kNumEntries];
  if (entry.records.empty() || device_->options().mode == DeviceMode::kNull) {
    return most;
  }
  std::int32_t num_turns = 1;
  while (num_turns < most && record(entry, 0, num_turns).step == number_of(epoch, num_turns)) {
    ++num_turns;
  }
  return num_turns;
}

HostRows ResultRing::rows(Epoch epoch, std::int32_t turn) {
  const Entry& entry = entries_[epoch % kNumEntries];
  RIGEL_CHECK(entry.epoch == epoch, "the rows of step {} were overwritten by step {}", epoch,
              entry.epoch);
  // The null device runs no kernel, so nothing is recorded there.
  if (!entry.records.empty() && device_->options().mode != DeviceMode::kNull) {
    for (std::size_t lane = 0; lane < entry.handles.size(); ++lane) {
      const StepRecord& record = this->record(entry, lane, turn);
      const RequestHandle handle = entry.handles[lane];
      RIGEL_CHECK(
          record.step == number_of(epoch, turn) && record.row == handle.row &&
              record.generation == handle.generation,
          "lane {} of turn {} of step {} holds the record of turn {}, row {}, generation {}; it is "
          "row {}, generation {}",
          lane, turn, epoch, record.step, record.row, record.generation, handle.row,
          handle.generation);
    }
  }
  if (turn == 0) {
    return {entry.handles, entry.buffers};
  }
  turn_buffers_.clear();
  for (const HostRows::Buffer& buffer : entry.buffers) {
    turn_buffers_.push_back(
        {buffer.signal, ConstHostView(buffer.rows.raw() + turn * entry_bytes_, buffer.rows.dtype(),
                                      buffer.rows.shape())});
  }
  return {entry.handles, turn_buffers_};
}

}  // namespace rigel

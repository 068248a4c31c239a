#include "engine/result_ring.h"

#include "tensor/error.h"

#include <atomic>
#include <cstring>

namespace rigel {

using kernels::StepRecord;

const StepRecord* ResultRows::find(RequestHandle handle, std::size_t hint) const {
  for (std::size_t tried = 0; tried < handles.size(); ++tried) {
    const std::size_t lane = (hint + tried) % handles.size();
    if (handles[lane] == handle) {
      return &records[lane];
    }
  }
  return nullptr;
}

ResultRing::ResultRing(Device& device, std::int64_t max_lanes)
    : max_lanes_(max_lanes),
      records_(device, static_cast<std::int64_t>(kNumEntries * sizeof(StepRecord)) * max_lanes) {
  // A tag of 0 is no step's.
  std::memset(records_.raw(), 0, static_cast<std::size_t>(records_.num_bytes()));
  for (Entry& entry : entries_) {
    entry.handles.reserve(static_cast<std::size_t>(max_lanes));
  }
}

void ResultRing::open(Epoch step, std::span<const RequestHandle> lanes) {
  Entry& entry = entries_[step % kNumEntries];
  RIGEL_CHECK(step > entry.step, "step {} after step {}", step, entry.step);
  RIGEL_CHECK(!entry.is_open, "the records of step {} are still in use, step {} needs their place",
              entry.step, step);
  RIGEL_CHECK(static_cast<std::int64_t>(lanes.size()) <= max_lanes_,
              "a step of {} lanes, the ring takes {}", lanes.size(), max_lanes_);
  entry.step = step;
  entry.is_open = true;
  entry.num_arrived = 0;
  entry.handles.assign(lanes.begin(), lanes.end());
}

DeviceView ResultRing::device_records() const {
  return records_.device_view(Dtype::kI64, {static_cast<std::int64_t>(kNumEntries), max_lanes_,
                                            std::int64_t{kernels::kStepRecordWords}});
}

bool ResultRing::poll(Epoch step) {
  Entry& entry = entry_of(step);
  const std::span<StepRecord> records = records_of(step);
  for (; entry.num_arrived < entry.handles.size(); ++entry.num_arrived) {
    const RequestHandle handle = entry.handles[entry.num_arrived];
    if (handle.is_padding()) {
      continue;
    }
    StepRecord& record = records[entry.num_arrived];
    if (std::atomic_ref(record.step).load(std::memory_order_acquire) != step) {
      return false;
    }
    RIGEL_CHECK(record.row == handle.row && record.generation == handle.generation,
                "lane {} of step {} was recorded for row {} generation {}, not {} and {}",
                entry.num_arrived, step, record.row, record.generation, handle.row,
                handle.generation);
  }
  return true;
}

ResultRows ResultRing::rows(Epoch step) const {
  const Entry& entry = entry_of(step);
  RIGEL_CHECK(entry.num_arrived == entry.handles.size(),
              "the records of step {} have not all arrived", step);
  return {entry.handles, records_of(step).first(entry.handles.size())};
}

void ResultRing::close(Epoch step) {
  entry_of(step).is_open = false;
}

const ResultRing::Entry& ResultRing::entry_of(Epoch step) const {
  const Entry& entry = entries_[step % kNumEntries];
  RIGEL_CHECK(entry.is_open && entry.step == step, "step {} has no open entry in the ring", step);
  return entry;
}

std::span<StepRecord> ResultRing::records_of(Epoch step) const {
  auto* const all = reinterpret_cast<StepRecord*>(records_.raw());
  const auto lanes = static_cast<std::size_t>(max_lanes_);
  return {all + step % kNumEntries * lanes, lanes};
}

}  // namespace rigel

#include "engine/step_context.h"

#include "tensor/copy.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace rigel {

/// A captured step has an entry for every part that its lanes can bring, those of padding and of the host included: its columns
/// always have the same places. What a replay brings beyond that is copied in front of it.
void StepContext::stage_splices() {
  if (splices_.num_expected == 0) {
    return;
  }
  std::vector<kernels::RowSplice>& rows = splices_.rows;
  const bool is_captured = batch.slot_lease != nullptr;
  const std::int64_t num_entries =
      tensor_inputs->num_splice_entries(is_captured ? splices_.num_expected : std::ssize(rows));
  for (; std::ssize(rows) > num_entries; rows.pop_back()) {
    copy(stream_, rows.back().target, rows.back().source);
  }
  if (num_entries == 0) {
    return;
  }
  const auto entries = staging->column<std::int64_t>(num_entries * kernels::kSpliceEntryWords);
  splices_.table = kernels::fill_splice_table(entries.host, entries.device, rows);
  // While a step is captured nobody brings anything yet.
  splices_.table.widest_row_bytes =
      std::max(splices_.table.widest_row_bytes, splices_.num_bytes / splices_.num_expected);
  splices_.table.lane_bytes = std::max(splices_.table.lane_bytes, splices_.num_bytes);
  const auto lanes = staging->column<std::int32_t>(1);
  lanes.host[0] = 0;
  splices_.lanes = lanes.device;
}

void StepContext::enqueue_splices() const {
  if (splices_.lanes.defined()) {
    kernels::splice_rows(stream_, splices_.table, splices_.lanes);
  }
}

}  // namespace rigel

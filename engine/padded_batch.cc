#include "engine/padded_batch.h"

#include "tensor/error.h"

namespace rigel {

PaddedBatch::PaddedBatch() {
  // Padding is declared like any other row, so its facts are those of a request that goes on.
  padding_info_.max_tokens = 1;
  padding_info_.max_length = 1;
}

/// Most lanes have no stream chunks, and then there is nothing to copy element by element.
void PaddedBatch::copy_metadata(const InputMetadata& from, InputMetadata& to) {
  to.loop_counters = from.loop_counters;
  if (!from.stream_chunks.empty() || !to.stream_chunks.empty()) {
    to.stream_chunks = from.stream_chunks;
  }
}

BatchColumns PaddedBatch::pad(const BatchColumns& batch, std::int32_t num_lanes,
                              const NodeInputs& padding_row) {
  const auto total = static_cast<std::size_t>(num_lanes);
  const std::size_t num_real = batch.handles.size();
  RIGEL_CHECK(num_real <= total, "{} lanes do not fit a capture of {}", num_real, total);
  if (num_real == total) {
    return batch;
  }
  handles_.assign(batch.handles.begin(), batch.handles.end());
  infos_.assign(batch.infos.begin(), batch.infos.end());
  metadata_.resize(total);
  for (std::size_t lane = 0; lane < total; ++lane) {
    copy_metadata(lane < num_real ? batch.metadata[lane] : padding_metadata_, metadata_[lane]);
  }
  inputs_.assign(batch.inputs.begin(), batch.inputs.end());
  for (std::int32_t row = -1; handles_.size() < total; --row) {
    handles_.push_back({row, 0});
  }
  infos_.resize(total, &padding_info_);
  inputs_.resize(total, &padding_row);
  return {batch.walk, handles_, infos_, metadata_, inputs_};
}

std::int64_t num_step_tokens(const BatchColumns& batch) {
  std::int64_t num_tokens = 0;
  for (const NodeInputs* row : batch.inputs) {
    num_tokens += row->input_seq_len;
  }
  if (!is_packed(batch.slot_lease)) {
    return num_tokens;
  }
  const std::int64_t all = batch.slot_lease->bucket.num_tokens;
  RIGEL_CHECK(num_tokens <= all, "{} tokens do not fit a capture of {}", num_tokens, all);
  return all;
}

void pad_segments(const BatchColumns& batch, SubmoduleStep& step) {
  if (!is_packed(batch.slot_lease)) {
    return;
  }
  std::int64_t num_left = batch.slot_lease->bucket.num_tokens;
  for (const Segment& segment : step.segments) {
    num_left -= segment.span;
  }
  RIGEL_CHECK(num_left >= 0, "the segments of a packed capture have {} tokens more than it has",
              -num_left);
  const auto behind_lanes = static_cast<std::int32_t>(-1 - std::ssize(batch.handles));
  step.segments.push_back({{behind_lanes, 0}, LabelId::kMain, static_cast<std::int32_t>(num_left)});
  step.for_each_key([&step](ResourceKey key) {
    RIGEL_CHECK(step.segments_of(key).data() == step.segments.data(),
                "resource {} has segments of its own in a packed capture, which pads the step's",
                static_cast<int>(key));
  });
}

}  // namespace rigel

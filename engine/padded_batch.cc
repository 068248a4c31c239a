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

}  // namespace rigel

#include "engine/padded_batch.h"

#include "tensor/error.h"

namespace rigel {

PaddedBatch::PaddedBatch() {
  // Padding is declared like any other row, so its facts are those of a request that goes on.
  padding_info_.max_tokens = 1;
  padding_info_.max_length = 1;
}

BatchColumns PaddedBatch::pad(const BatchColumns& batch, std::int32_t num_lanes,
                              const NodeInputs& padding_row) {
  const auto total = static_cast<std::size_t>(num_lanes);
  RIGEL_CHECK(batch.handles.size() <= total, "{} lanes do not fit a capture of {}",
              batch.handles.size(), total);
  handles_.assign(batch.handles.begin(), batch.handles.end());
  infos_.assign(batch.infos.begin(), batch.infos.end());
  metadata_.assign(batch.metadata.begin(), batch.metadata.end());
  inputs_.assign(batch.inputs.begin(), batch.inputs.end());
  for (std::int32_t row = -1; handles_.size() < total; --row) {
    handles_.push_back({row, 0});
  }
  infos_.resize(total, &padding_info_);
  metadata_.resize(total);
  inputs_.resize(total, &padding_row);
  return {batch.walk, handles_, infos_, metadata_, inputs_};
}

}  // namespace rigel

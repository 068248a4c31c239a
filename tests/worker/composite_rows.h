#pragma once

// What the test submodules share: their rows, and where caches hold a token.

#include "engine/resources/kv_cache.h"
#include "engine/step_context.h"
#include "tests/worker/composite_models.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rigel::testing {

inline constexpr const char* kRow = "row";

inline std::string seeds_of(std::span<const RequestHandle> handles,
                            std::span<const RequestInfo* const> infos) {
  std::string text;
  for (std::size_t lane = 0; lane < handles.size(); ++lane) {
    text += handles[lane].is_padding() ? " -" : " " + std::to_string(infos[lane]->seed);
  }
  return text;
}

inline const Tensor& field(const NodeInputs& row, std::size_t index) {
  return row.tensor_inputs.at(index).second;
}

/// Field `index` of all rows, and how long each is along its first dimension.
inline std::vector<Tensor> fields(const BatchColumns& batch, std::size_t index) {
  std::vector<Tensor> tensors;
  for (const NodeInputs* row : batch.inputs) {
    tensors.push_back(field(*row, index));
  }
  return tensors;
}

inline void stage_counts(const BatchColumns& batch, StepContext& context) {
  const auto counts = context.staging->column<std::int32_t>(std::ssize(batch.handles));
  for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
    counts.host[lane] = static_cast<std::int32_t>(field(*batch.inputs[lane], 0).dim(0));
  }
  context.stage(CompositeNames::kCounts, counts.device);
}

inline Tensor zeros(const Shape& shape) {
  const std::vector<float> values(static_cast<std::size_t>(shape.num_elements()) + 1);
  return Tensor::copy_of(
      ConstHostView(reinterpret_cast<const std::byte*>(values.data()), Dtype::kF32, shape));
}

/// A token in the first layer and head of a cache, by way of the device's page table: what its key begins with.
inline float* cached_token(const KvCache& cache, std::int32_t stream, std::int64_t index) {
  const KvCacheConfig& config = cache.config();
  const auto* table = cache.page_table().data<std::int32_t>();
  const std::int64_t page =
      table[std::int64_t{stream} * cache.max_pages_per_row() + index / config.page_size];
  const std::int64_t place =
      page * 2 * config.num_kv_heads * config.page_size + index % config.page_size;
  return cache.layer(0).data<float>() + place * config.head_dim;
}

}  // namespace rigel::testing

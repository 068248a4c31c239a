#include "engine/piecewise_outputs.h"

#include "tensor/error.h"

#include <algorithm>

namespace rigel {

const RegionOutput* SharedTensors::find(std::string_view name) const {
  const auto known = std::ranges::find(tensors_, name, &RegionOutput::name);
  return known == tensors_.end() ? nullptr : &*known;
}

Tensor SharedTensors::find(std::string_view name, Dtype dtype, const Shape& shape) const {
  const RegionOutput* const known = find(name);
  if (known == nullptr || known->tensor.dtype() != dtype) {
    return {};
  }
  if (known->tensor.shape() == shape) {
    return known->tensor;
  }
  if (shape.rank() == 0 || shape.rank() != known->tensor.rank() ||
      shape[0] > known->tensor.dim(0)) {
    return {};
  }
  Shape rest = shape;
  rest.set(0, known->tensor.dim(0));
  return rest == known->tensor.shape() ? known->tensor.slice(0, 0, shape[0]) : Tensor();
}

std::int64_t SharedTensors::num_bytes() const {
  std::int64_t total = 0;
  for (const RegionOutput& shared : tensors_) {
    total += shared.tensor.device_view().num_bytes();
  }
  return total;
}

Tensor PiecewiseOutputs::find(std::string_view name) const {
  RIGEL_CHECK(run_ == *num_runs_, "output '{}' is of an earlier run of its region", name);
  const auto known = std::ranges::find(outputs_, name, &RegionOutput::name);
  RIGEL_CHECK(known != outputs_.end(), "a region gives no output '{}'", name);
  switch (known->rows) {
    case OutputRows::kLanes:
      return known->tensor.slice(0, 0, num_lanes_);
    case OutputRows::kTokens:
      return known->tensor.slice(0, 0, num_tokens_);
    case OutputRows::kWhole:
      break;
  }
  return known->tensor;
}

Tensor PiecewiseOutputs::get(std::string_view name) const {
  return find(name).clone(stream_, *allocator_);
}

ConstDeviceView PiecewiseOutputs::get_view(std::string_view name) const {
  return find(name).device_view();
}

}  // namespace rigel

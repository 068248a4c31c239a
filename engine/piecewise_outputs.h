#pragma once

#include "tensor/allocator.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rigel {

/// What the first dimension of a region's output counts.
enum class OutputRows : std::uint8_t {
  kWhole,  // nothing that padding adds to
  kLanes,
  kTokens,
};

struct RegionOutput {
  std::string name;
  Tensor tensor;  // of the whole bucket
  OutputRows rows{};
};

/// Tensors that all buckets of a region have in common, by name: the first one's, which are the largest; others lie at their
/// beginning along the first dimension.
class SharedTensors {
 public:
  /// Where a tensor of this name lies; undefined where there is none, or where it is more than shorter.
  [[nodiscard]] Tensor find(std::string_view name, Dtype dtype, const Shape& shape) const;
  /// The whole one; null where there is none.
  [[nodiscard]] const RegionOutput* find(std::string_view name) const;
  void add(RegionOutput tensor) { tensors_.push_back(std::move(tensor)); }
  [[nodiscard]] std::int64_t num_bytes() const;

 private:
  std::vector<RegionOutput> tensors_;
};

/// What one run of a region gave, without its padding. Valid until the region runs again, whatever part of it. Thread: worker.
class PiecewiseOutputs {
 public:
  /// `outputs`, `allocator` and `num_runs`, which goes on with each run, outlive it.
  PiecewiseOutputs(std::span<const RegionOutput> outputs, std::int64_t num_lanes,
                   std::int64_t num_tokens, StreamRef stream, TensorAllocator& allocator,
                   const std::uint64_t& num_runs)
      : outputs_(outputs),
        num_lanes_(num_lanes),
        num_tokens_(num_tokens),
        stream_(stream),
        allocator_(&allocator),
        num_runs_(&num_runs),
        run_(num_runs) {}

  /// A copy of the output, made in stream order, for whoever takes it. Throws CheckError for a name that the region does not
  /// give, and where it has run again.
  [[nodiscard]] Tensor get(std::string_view name) const;
  /// The output where it lies: the region's next run overwrites it, and nobody else does. Throws the same.
  [[nodiscard]] ConstDeviceView get_view(std::string_view name) const;

 private:
  [[nodiscard]] Tensor find(std::string_view name) const;

  std::span<const RegionOutput> outputs_;
  std::int64_t num_lanes_;
  std::int64_t num_tokens_;
  StreamRef stream_;
  TensorAllocator* allocator_;
  const std::uint64_t* num_runs_;
  std::uint64_t run_;
};

}  // namespace rigel

// A region's runs. piecewise_capture.cc makes its captures.

#include "engine/piecewise_runner.h"

#include "tensor/copy.h"
#include "tensor/error.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace rigel {

namespace {

/// Ends a region's own step on every way out; one that was committed has ended already.
class StepEnd {
 public:
  explicit StepEnd(PiecewiseStep* step) : step_(step) {}
  ~StepEnd() {
    if (step_ != nullptr) {
      step_->reset();
    }
  }
  StepEnd(const StepEnd&) = delete;
  StepEnd& operator=(const StepEnd&) = delete;

 private:
  PiecewiseStep* step_;
};

}  // namespace

PiecewiseOutputs PiecewiseRunner::run(const PiecewiseRun& what, const ModelInputsFromEngine& step) {
  const Size size = size_of(what);
  RIGEL_CHECK(own_step_ == nullptr || !what.handles.empty(),
              "region '{}' has a step of its own: whose lanes of {} it runs must be said", label(),
              size.num_lanes);
  ++num_runs_;
  const bool declares = own_step_ != nullptr &&
                        (!config_.lease_before_step || step.context->batch.region_leases.contains(
                                                           static_cast<std::size_t>(number_)));
  const std::optional<std::size_t> bucket = find_bucket(size, what.part);
  std::optional<RegionMiss> miss;
  if (own_step_ != nullptr && !declares) {
    miss = RegionMiss::kNotLeased;
  } else if (!bucket) {
    miss = miss_of(size);
  } else {
    miss = replay(*bucket, what, size, step);
  }
  if (!miss) {
    ++counts_.num_replays;
    return {buckets_[*bucket - first_bucket_].outputs,
            size.num_lanes,
            size.num_tokens,
            stream_,
            allocator_,
            num_runs_};
  }
  ++counts_.misses[static_cast<std::size_t>(*miss)];
  run_eagerly(what, size, step, declares);
  return {eager_outputs_, size.num_lanes, size.num_tokens, stream_, allocator_, num_runs_};
}

PiecewiseRunner::Size PiecewiseRunner::size_of(const PiecewiseRun& what) const {
  RIGEL_CHECK(what.part >= 0 && what.part < config_.num_parts, "region '{}' has no part {}",
              label(), what.part);
  Size size;
  size.num_lanes = what.num_lanes;
  if (size.num_lanes == 0) {
    size.num_lanes = static_cast<std::int32_t>(what.handles.empty() ? what.seq_lens.size()
                                                                    : what.handles.size());
  }
  RIGEL_CHECK(size.num_lanes > 0, "region '{}': nothing says how many lanes, got {}", label(),
              what.num_lanes);
  RIGEL_CHECK(what.handles.empty() || std::ssize(what.handles) == size.num_lanes,
              "region '{}': {} handles for {} lanes", label(), what.handles.size(), size.num_lanes);
  size.num_tokens = seq_len_ * size.num_lanes;
  if (seq_len_ == 0) {
    RIGEL_CHECK(std::ssize(what.seq_lens) == size.num_lanes,
                "packed region '{}': {} seq_lens for {} lanes", label(), what.seq_lens.size(),
                size.num_lanes);
    size.num_tokens = std::accumulate(what.seq_lens.begin(), what.seq_lens.end(), std::int64_t{0});
  }
  return size;
}

std::optional<std::size_t> PiecewiseRunner::find_bucket(const Size& size, std::int32_t part) const {
  return graphs_.buckets().find(
      {.walk = number_, .num_lanes = size.num_lanes, .num_tokens = size.num_tokens, .key = part});
}

RegionMiss PiecewiseRunner::miss_of(const Size& size) const {
  const bool is_known = std::ranges::any_of(sizes_, [&](const Sized& sized) {
    return size.num_lanes <= sized.shape.batch_size && size.num_tokens <= sized.shape.total_tokens;
  });
  return is_known ? RegionMiss::kNotCaptured : RegionMiss::kNoBucket;
}

BatchColumns PiecewiseRunner::lanes_of(const PiecewiseRun& what,
                                       const ModelInputsFromEngine& step) const {
  const auto found = std::ranges::search(step.handles, what.handles);
  RIGEL_CHECK(!found.empty(), "region '{}': its {} handles are not neighbouring lanes of the step",
              label(), what.handles.size());
  const auto first = static_cast<std::size_t>(found.begin() - step.handles.begin());
  const std::size_t count = what.handles.size();
  BatchColumns lanes;
  lanes.walk = step.context->batch.walk;
  lanes.handles = step.handles.subspan(first, count);
  lanes.infos = step.infos.subspan(first, count);
  lanes.metadata = step.metadata.subspan(first, count);
  lanes.inputs = step.inputs.subspan(first, count);
  return lanes;
}

std::span<const std::int64_t> PiecewiseRunner::lengths_of(const PiecewiseRun& what,
                                                          const Size& size) {
  if (seq_len_ == 0) {
    return what.seq_lens;
  }
  seq_lens_.assign(static_cast<std::size_t>(size.num_lanes), seq_len_);
  return seq_lens_;
}

/// None where it was replayed.
std::optional<RegionMiss> PiecewiseRunner::replay(std::size_t bucket, const PiecewiseRun& what,
                                                  const Size& size,
                                                  const ModelInputsFromEngine& step) {
  const Bucket& captured = buckets_[bucket - first_bucket_];
  const Sized& sized = sizes_[captured.sized];
  const StepEnd end(own_step_.get());
  if (own_step_ != nullptr &&
      !own_step_->begin_replay(lanes_of(what, step), lengths_of(what, size), sized.lease,
                               step.context->epoch, captured.layout)) {
    return RegionMiss::kOverflow;
  }
  copy_inputs(what, sized);
  graphs_.replay({bucket, 0});
  if (own_step_ != nullptr) {
    own_step_->commit();
  }
  return std::nullopt;
}

ConstDeviceView PiecewiseRunner::input_of(const PiecewiseRun& what, std::string_view name) const {
  const auto given = std::ranges::find(what.inputs, name, &PiecewiseInput::name);
  RIGEL_CHECK(given != what.inputs.end() && given->view.defined() && given->view.is_contiguous(),
              "region '{}' reads '{}', which its run does not bring", label(), name);
  return given->view;
}

void PiecewiseRunner::copy_inputs(const PiecewiseRun& what, const Sized& sized) const {
  for (std::size_t index = 0; index < sized.inputs.size(); ++index) {
    const std::string& name = sized.input_views[index].first;
    const DeviceView place = sized.inputs[index].device_view();
    const ConstDeviceView input = input_of(what, name);
    Shape rest = input.shape();
    const bool is_alike = input.dtype() == place.dtype() && rest.rank() == place.rank();
    if (is_alike) {
      rest.set(0, place.dim(0));
    }
    RIGEL_CHECK(is_alike && rest == place.shape() && input.dim(0) <= place.dim(0),
                "region '{}': '{}' is {} of shape {}, its capture reads {} of shape {}", label(),
                name, name_of(input.dtype()), to_string(input.shape()), name_of(place.dtype()),
                to_string(place.shape()));
    const std::int64_t count = input.dim(0);
    copy(stream_, place.slice(0, 0, count), input);
    if (count < place.dim(0)) {
      fill_bytes(stream_, place.slice(0, count, place.dim(0) - count), 0);
    }
  }
}

/// What it gives is copied, like a capture's: the callable may have it in memory that another region writes.
void PiecewiseRunner::run_eagerly(const PiecewiseRun& what, const Size& size,
                                  const ModelInputsFromEngine& step, bool declares) {
  const StepEnd end(declares ? own_step_.get() : nullptr);
  if (declares) {
    own_step_->begin_eager(lanes_of(what, step), lengths_of(what, size), *step.context);
  }
  for (auto& [name, input] : eager_inputs_) {
    input = input_of(what, name);
  }
  const ModelInputsFromEngine inputs = declares ? own_step_->inputs(step) : step;
  const NamedViews outputs = config_.capture({.static_inputs = eager_inputs_,
                                              .engine_inputs = inputs,
                                              .part = what.part,
                                              .num_lanes = size.num_lanes,
                                              .num_tokens = size.num_tokens});
  eager_outputs_.clear();
  for (const auto& [name, view] : outputs) {
    Tensor own = allocator_.allocate(stream_, view.dtype(), view.shape());
    copy(stream_, own.device_view(), view);
    eager_outputs_.push_back({name, std::move(own), OutputRows::kWhole});
  }
  if (declares) {
    own_step_->commit();
  }
}

std::int64_t PiecewiseRunner::num_bytes() const {
  return inputs_.num_bytes() + outputs_.num_bytes() +
         (own_step_ == nullptr ? 0 : own_step_->num_bytes());
}

}  // namespace rigel

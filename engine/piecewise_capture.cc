// The captures of a region: its sizes, what they read, and where their results go.

#include "engine/piecewise_runner.h"
#include "tensor/copy.h"
#include "tensor/error.h"
#include "tensor/graph.h"

#include <algorithm>
#include <ranges>
#include <tuple>
#include <utility>

namespace rigel {

namespace {

const PiecewiseConfig& common_part_of(const PiecewiseCudaGraphConfig& config) {
  return std::visit([](const auto& kind) -> const PiecewiseConfig& { return kind; }, config);
}

/// What counts the rows of an output of this shape; told by the largest bucket, in which lanes and tokens are hardly equal.
OutputRows rows_of_output(const Shape& shape, const PiecewiseShape& bucket, bool is_packed) {
  if (shape.rank() == 0) {
    return OutputRows::kWhole;
  }
  const bool by_token = shape[0] == bucket.total_tokens;
  const bool by_lane = shape[0] == bucket.batch_size;
  if (by_token && (is_packed || !by_lane)) {
    return OutputRows::kTokens;
  }
  return by_lane ? OutputRows::kLanes : OutputRows::kWhole;
}

}  // namespace

PiecewiseRunner::PiecewiseRunner(std::int32_t number, const PiecewiseCudaGraphConfig& config,
                                 StreamRef stream, StepRunner& resources, GraphRunner& graphs,
                                 TensorAllocator& allocator, std::int64_t staging_bytes)
    : number_(number),
      config_(common_part_of(config)),
      seq_len_(0),
      token_counts_(nullptr),
      stream_(stream),
      graphs_(graphs),
      allocator_(allocator),
      is_probed_(static_cast<std::size_t>(config_.num_parts)),
      capture_context_(stream) {
  if (const auto* batched = std::get_if<PiecewiseBatchedConfig>(&config)) {
    seq_len_ = batched->seq_len;
  } else {
    token_counts_ = &std::get<PiecewisePackedConfig>(config).token_counts;
  }
  if (config_.declare_step != nullptr) {
    own_step_ = std::make_unique<PiecewiseStep>(stream, config_, resources, staging_bytes);
  }
  add_sizes();
  add_buckets();
  eager_inputs_ = sizes_.front().input_views;
}

/// Largest first, as they are captured: the first one of a name decides where it lies.
void PiecewiseRunner::add_sizes() {
  const auto lanes_descending = std::views::reverse(config_.batch_sizes);
  if (token_counts_ == nullptr) {
    for (const std::int32_t num_lanes : lanes_descending) {
      add_size({num_lanes, std::vector<std::int64_t>(static_cast<std::size_t>(num_lanes), seq_len_),
                num_lanes * seq_len_});
    }
    return;
  }
  for (const std::int64_t num_tokens : std::views::reverse(*token_counts_)) {
    std::int64_t last = 0;
    for (const std::int32_t num_lanes : lanes_descending) {
      // Every lane brings a token, so no bucket has more lanes than tokens.
      const std::int64_t held = std::min<std::int64_t>(num_lanes, num_tokens);
      if (std::exchange(last, held) == held) {
        continue;
      }
      std::vector<std::int64_t> seq_lens(static_cast<std::size_t>(held), num_tokens / held);
      seq_lens.front() += num_tokens % held;
      add_size({static_cast<std::int32_t>(held), std::move(seq_lens), num_tokens});
    }
  }
}

void PiecewiseRunner::add_size(const PiecewiseShape& shape) {
  Sized& sized = sizes_.emplace_back();
  sized.shape = shape;
  sized.lease = {0, {WalkId{}, shape.batch_size, shape.total_tokens, CgKey(), seq_len_ == 0}};
  for (auto& [name, made] : config_.make_static_inputs(shape)) {
    RIGEL_CHECK(made.space() == Space::kDevice && made.is_contiguous() && made.rank() > 0,
                "region '{}': static input '{}' of shape {} must lie on the device, contiguous",
                label(), name, to_string(made.shape()));
    Tensor place = inputs_.find(name, made.dtype(), made.shape());
    if (!place.defined()) {
      place = made;
      inputs_.add({name, made, OutputRows::kWhole});
    }
    sized.input_views.emplace_back(name, place.device_view());
    sized.inputs.push_back(std::move(place));
  }
}

void PiecewiseRunner::add_buckets() {
  first_bucket_ = graphs_.buckets().size();
  for (std::size_t index = 0; index < sizes_.size(); ++index) {
    const PiecewiseShape& shape = sizes_[index].shape;
    for (std::int32_t part = 0; part < config_.num_parts; ++part) {
      std::ignore = graphs_.add({.walk = number_,
                                 .num_lanes = shape.batch_size,
                                 .num_tokens = shape.total_tokens,
                                 .key = part},
                                seq_len_ == 0 ? BucketKind::kPacked : BucketKind::kBatched, {});
      buckets_.push_back({.sized = index, .part = part, .outputs = {}});
    }
  }
}

NamedViews PiecewiseRunner::call_captured(const Bucket& bucket) {
  const Sized& sized = sizes_[bucket.sized];
  ModelInputsFromEngine inputs;
  inputs.context = &capture_context_;
  if (own_step_ != nullptr) {
    inputs = own_step_->inputs(inputs);
  }
  inputs.captured = true;
  return config_.capture({.static_inputs = sized.input_views,
                          .engine_inputs = inputs,
                          .part = bucket.part,
                          .num_lanes = sized.shape.batch_size,
                          .num_tokens = sized.shape.total_tokens});
}

void PiecewiseRunner::prepare_capture(std::size_t bucket) {
  Bucket& captured = buckets_[bucket - first_bucket_];
  const Sized& sized = sizes_[captured.sized];
  capture_context_.reset();
  capture_context_.num_tokens = sized.shape.total_tokens;
  if (own_step_ != nullptr) {
    own_step_->begin_capture(sized.lease, sized.shape.seq_lens);
    captured.layout = own_step_->layout();
  }
  if (!is_probed_[static_cast<std::size_t>(captured.part)]) {
    // A capture cannot allocate, and nobody knows the results' shapes before there is one: the first is thrown away.
    NamedViews outputs;
    {
      const GraphCapture thrown_away(stream_);
      outputs = call_captured(captured);
    }
    place_outputs(outputs, sized.shape);
    is_probed_[static_cast<std::size_t>(captured.part)] = true;
  }
}

void PiecewiseRunner::place_outputs(const NamedViews& outputs, const PiecewiseShape& shape) {
  for (const auto& [name, view] : outputs) {
    if (outputs_.find(name) == nullptr) {
      outputs_.add({name, allocator_.allocate(stream_, view.dtype(), view.shape()),
                    rows_of_output(view.shape(), shape, seq_len_ == 0)});
    }
  }
}

void PiecewiseRunner::enqueue_capture(std::size_t bucket) {
  Bucket& captured = buckets_[bucket - first_bucket_];
  captured.outputs.clear();
  for (const auto& [name, view] : call_captured(captured)) {
    Tensor place = outputs_.find(name, view.dtype(), view.shape());
    RIGEL_CHECK(place.defined(),
                "region '{}': output '{}' is {} of shape {}, which its largest capture has no "
                "room for",
                label(), name, name_of(view.dtype()), to_string(view.shape()));
    copy(stream_, place.device_view(), view);
    captured.outputs.push_back({name, std::move(place), outputs_.find(name)->rows});
  }
}

void PiecewiseRunner::reset_capture() noexcept {
  if (own_step_ != nullptr) {
    own_step_->reset();
  }
}

}  // namespace rigel

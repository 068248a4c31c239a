#pragma once

// A node whose forward runs regions: what it is configured with and what its forward does is the test's. Regions compute in
// host functions of the virtual device.

#include "engine/engine.h"
#include "engine/piecewise_runners.h"
#include "tensor/host_function.h"
#include "tests/engine/device_tensors.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rigel::testing {

/// Asks the test what to do.
class RegionSubmodule final : public NodeSubmodule {
 public:
  std::unique_ptr<NodeInputs> prepare_inputs(const PrepareContext&, const RequestView&) override {
    return nullptr;
  }
  bool can_batch(const BatchColumns&) const override { return true; }
  bool declare_step(const BatchColumns& batch, SubmoduleStep& step) const override {
    return on_declare(batch, step);
  }
  void preprocess(const BatchColumns&, StepContext&) override {}
  void forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& /*outputs*/) override {
    on_forward(inputs);
  }
  std::vector<CudaGraphConfig> get_cuda_graph_configs(Device&, int) const override { return steps; }
  std::vector<PiecewiseCudaGraphConfig> get_piecewise_cuda_graph_configs(Device&, Dtype,
                                                                         int) const override {
    return regions;
  }

  std::function<bool(const BatchColumns&, SubmoduleStep&)> on_declare =
      [](const BatchColumns&, SubmoduleStep&) { return false; };
  std::function<void(const ModelInputsFromEngine&)> on_forward = [](const ModelInputsFromEngine&) {
  };
  std::vector<CudaGraphConfig> steps;
  std::vector<PiecewiseCudaGraphConfig> regions;
};

/// An engine over it, four requests, and memory that its regions share.
class PiecewiseTest : public DeviceTensorTest {
 protected:
  static constexpr std::int64_t kMaxTokens = 64;
  static constexpr WalkId kWalk{3};

  void SetUp() override { open({}); }
  void open(DeviceOptions options) {
    if (!Device::available()) {
      GTEST_SKIP() << "no device";
    }
    engine.reset();
    tensors_made.clear();
    workspace.reset();
    allocator.reset();
    stream_owner.reset();
    options.num_threads = 2;
    device = Device::open(options);
    if (device->is_cuda()) {
      GTEST_SKIP() << "host functions read device memory";
    }
    stream_owner = std::make_unique<Stream>(*device);
    allocator = std::make_unique<CountingAllocator>(*device);
    workspace =
        std::make_unique<Tensor>(allocator->allocate(stream(), Dtype::kF32, {kMaxTokens * 2}));
  }
  /// A new engine over `regions` and `steps`, with its captures, which are made unless `captures_later`.
  void start(NodeResources resources = {}, bool captures_later = false) {
    auto made = std::make_unique<RegionSubmodule>();
    submodule = made.get();
    submodule->regions = regions;
    submodule->steps = steps;
    engine = std::make_unique<Engine>(*device, std::move(made), std::move(resources),
                                      EngineConfig{.staging_bytes = 16384, .stream = stream()});
    for (RequestInfo& info : infos) {
      info.handle = {static_cast<std::int32_t>(&info - infos.data()), 1};
      engine->add_request(info);
    }
    captures = &engine->capture_steps({.staging_bytes = 16384});
    if (!captures_later) {
      captures->capture_all();
    }
  }
  void expect_all_captured() const {
    for (const CaptureFailure& failure : captures->regions().runner().failures()) {
      ADD_FAILURE() << failure.message;
    }
  }
  void launch(std::size_t num_lanes,
              const std::function<void(const ModelInputsFromEngine&)>& forward,
              WalkId walk = kWalk) {
    submodule->on_forward = forward;
    batch.clear();
    batch.walk = walk;
    row.input_seq_len = 1;
    for (std::size_t lane = 0; lane < num_lanes; ++lane) {
      batch.add(infos[lane].handle, infos[lane], {}, row);
    }
    ASSERT_TRUE(engine->launch(batch).ok());
  }
  void run(std::size_t num_lanes, const std::function<void(const ModelInputsFromEngine&)>& forward,
           WalkId walk = kWalk) {
    launch(num_lanes, forward, walk);
    std::ignore = engine->complete();
  }

  [[nodiscard]] Tensor floats(const Shape& shape, const std::vector<float>& given) const {
    Tensor tensor = allocator->allocate(stream(), Dtype::kF32, shape);
    copy(stream(), tensor.device_view(),
         const_host_view(std::span<const float>(given)).reshape(shape));
    stream().synchronize();
    return tensor;
  }
  [[nodiscard]] std::vector<float> floats_of(const ConstDeviceView& view) const {
    const PinnedBuffer host(*device, view.num_bytes() + 16);
    const HostView target = host.view(Dtype::kF32, view.shape());
    copy(stream(), target, view);
    stream().synchronize();
    const auto span = target.span<float>();
    return {span.begin(), span.end()};
  }
  /// NaN wherever a region may read or write before it is given anything.
  void poison() const {
    for (const Tensor& tensor : tensors_made) {
      fill_bytes(stream(), tensor.device_view(), 0xFF);
    }
    fill_bytes(stream(), workspace->device_view(), 0xFF);
  }
  /// A static input, which poison() knows.
  Tensor make_static(const Shape& shape) {
    tensors_made.push_back(allocator->allocate(stream(), Dtype::kF32, shape));
    return tensors_made.back();
  }

  struct Job {
    std::function<void()> work;
  };
  /// Runs `work` in stream order, in a capture once a replay.
  void enqueue(StreamRef on, std::function<void()> work) {
    Job& job = jobs.emplace_back(Job{std::move(work)});
    enqueue_host_function(
        on, "region", [](void* data) { static_cast<Job*>(data)->work(); }, &job);
  }

  std::unique_ptr<Tensor> workspace;
  std::deque<Job> jobs;
  std::vector<Tensor> tensors_made;
  std::vector<PiecewiseCudaGraphConfig> regions;
  std::vector<CudaGraphConfig> steps;
  RegionSubmodule* submodule = nullptr;
  std::unique_ptr<Engine> engine;
  StepCaptures* captures = nullptr;
  std::array<RequestInfo, 5> infos;
  NodeInputs row;
  ExecutingBatch batch;
};

}  // namespace rigel::testing

#pragma once

// A worker around a model whose tokens, failures and pace a test decides.

#include "engine/resources/kv_cache.h"
#include "model/language_model_names.h"
#include "tensor/buffer.h"
#include "tensor/device.h"
#include "worker/dispatcher.h"
#include "worker/worker.h"

#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace rigel::testing {

/// What happened, in order, and how far the device may go. Thread: any.
class Script {
 public:
  /// "launch 0 1": the lanes' seeds; "stop check": a step's tokens are read.
  void note(std::string event);
  [[nodiscard]] std::vector<std::string> events() const;
  /// Blocks until `count` events begin with `prefix`.
  void wait_for(const std::string& prefix, std::size_t count) const;

  /// The device runs no step with a number above `step` until it is raised. Steps count from 1; at first nothing holds it.
  void hold_device_after(std::uint64_t step);
  void release_device() { hold_device_after(UINT64_MAX); }
  void enter_device(std::uint64_t step) const;

  // Set before the worker starts.
  /// The token of a request (known by its seed) that has generated `count` before.
  std::function<std::int32_t(std::uint64_t seed, std::int32_t count)> token =
      [](std::uint64_t seed, std::int32_t count) {
        return static_cast<std::int32_t>(seed * 1000) + count;
      };
  /// May throw: called with the hook's name and the seeds it is called for.
  std::function<void(const std::string& hook, const std::vector<std::uint64_t>& seeds)> on_hook =
      [](const std::string&, const std::vector<std::uint64_t>&) {};
  /// False: the model leaves its stop check to the one a request.
  bool batches_stop_check = true;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<std::string> events_;
  std::uint64_t last_allowed_ = UINT64_MAX;
};

/// A language model whose forward is a host function on the device's stream.
class ScriptedModel final : public ArNodeSubmodule {
 public:
  ScriptedModel(Device& device, Script& script, std::int32_t num_rows);

  void bind_node_resources(const NodeResources& resources) override;
  std::unique_ptr<NodeInputs> prepare_inputs(const PrepareContext& context,
                                             const RequestView& request) override;
  const NodeInputs* uniform_row_inputs(WalkId walk) const override;
  bool can_batch(const BatchColumns&) const override { return true; }
  bool declare_step(const BatchColumns& batch, SubmoduleStep& step) const override;
  void preprocess(const BatchColumns& batch, StepContext& context) override;
  void forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) override;
  std::vector<LoopId> check_stop(const RequestView& request, const HostRows& rows) const override;
  bool check_stop_batched(std::span<const RequestView> requests, const HostRows& rows,
                          std::vector<LoopStop>& stops) const override;

 private:
  struct Slot {
    Script* script = nullptr;
    std::uint64_t step = 0;
    std::vector<std::int32_t> sampled;
    PinnedBuffer tokens;  // (R) i32
  };

  static std::vector<std::uint64_t> seeds_of(std::span<const RequestInfo* const> infos);
  static void run(void* slot);

  Script& script_;
  ArNodeInputs decode_row_;
  ResourceKey kv_key_{};
  std::array<Slot, 4> slots_;  // two steps are in flight at most
  std::uint64_t num_steps_ = 0;
};

struct Answer {
  std::vector<std::int32_t> ids;
  FinishReason finish{};
  std::string error;
};

struct ScriptedWorkerOptions {
  bool one_step_ahead = true;
  std::int32_t num_rows = 4;
  std::int32_t num_pages = 64;  // of 16 tokens, the sink included
  std::int32_t max_length = 256;
  DeviceMode mode = DeviceMode::kThreaded;
  const text::Tokenizer* tokenizer = nullptr;
};

class ScriptedWorkerTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  void start(const ScriptedWorkerOptions& options = {});
  /// A request is known by its seed.
  std::future<Answer> submit(std::uint64_t seed, std::int32_t num_prompt_tokens,
                             std::int32_t max_tokens, SamplingParams sampling = {});
  void cancel(std::uint64_t seed) { worker->cancel(RequestId{seed}); }
  /// The tokens that the script gives `seed`.
  [[nodiscard]] std::vector<std::int32_t> tokens_of(std::uint64_t seed, std::int32_t count) const;
  /// Ends the worker, after which every page must be free.
  void stop_and_check_pages();
  [[nodiscard]] std::int64_t wasted(WasteReason reason) {
    return worker->metrics().snapshot().wasted_row_steps[static_cast<std::size_t>(reason)];
  }

  Script script;
  std::unique_ptr<Device> device;
  std::unique_ptr<Dispatcher> dispatcher;
  std::unique_ptr<Worker> worker;
  KvCache* kv_cache = nullptr;
  std::function<void()> on_output = [] {
  };  // on the dispatcher thread, after each output that ends nothing
  std::function<void()> after_stop_string = [] {};
};

}  // namespace rigel::testing

#pragma once

// The worker around a composite model, and what its requests must get.

#include "tests/worker/composite_models.h"
#include "worker/dispatcher.h"
#include "worker/worker.h"

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace rigel::testing {

struct CompositeRequest {
  std::uint64_t seed = 0;
  std::vector<float> latents;
  float condition = 0.0F;
  float guidance = 1.0F;
};

struct CompositeAnswer {
  std::map<std::string, std::vector<std::vector<float>>> values;  // by name, in order
  FinishReason finish{};
  std::string error;
};

/// Collects what a request gets; the answer is there with its end.
[[nodiscard]] std::shared_ptr<OutputListener> collect_answer(std::future<CompositeAnswer>& answer);

/// Without a worker: the same loop on the host.
struct CompositeExpectation {
  std::map<std::string, std::vector<std::vector<float>>> values;
  int num_iterations = 0;
};
[[nodiscard]] CompositeExpectation expect(const CompositeRequest& request);

/// Requests of every kind: lengths 1..6, guided and not, that stop by value or at the bound.
[[nodiscard]] std::vector<CompositeRequest> requests_of_every_kind();

class CompositeWorkerTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override { stop(); }

  void start(bool one_step_ahead = true, std::int32_t num_rows = 8);
  std::future<CompositeAnswer> submit(const CompositeRequest& request);
  std::future<CompositeAnswer> submit_inputs(std::uint64_t seed, std::vector<RequestInput> inputs,
                                             float guidance = 1.0F);
  void stop();
  /// The request has got what the loop on the host gives.
  static void check(const CompositeAnswer& answer, const CompositeRequest& request);
  /// All at once, each checked.
  void check_together(const std::vector<CompositeRequest>& requests);

  CompositeScript script;
  DeviceOrder order = DeviceOrder::kAscending;
  EncoderLoops loops = EncoderLoops::kOne;
  std::function<void(CompositeModel&)> on_model = [](CompositeModel&) {};
  std::unique_ptr<Device> device;
  std::unique_ptr<Dispatcher> dispatcher;
  std::unique_ptr<Worker> worker;
  const KvCache* history = nullptr;
  NodeSubmodule* denoiser = nullptr;
};

}  // namespace rigel::testing

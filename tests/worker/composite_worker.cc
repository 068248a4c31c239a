#include "tests/worker/composite_worker.h"

#include <algorithm>
#include <array>
#include <utility>

namespace rigel::testing {

namespace {

std::vector<float> floats_of(const Tensor& tensor) {
  std::vector<float> values;
  if (tensor.dtype() == Dtype::kI32) {
    const auto span = tensor.host_view().span<std::int32_t>();
    values.assign(span.begin(), span.end());
  } else {
    const auto span = tensor.host_view().span<float>();
    values.assign(span.begin(), span.end());
  }
  return values;
}

class CompositeCollector final : public OutputListener {
 public:
  void on_delta(const OutputDelta& delta) override {
    for (const OutputValue& value : delta.values) {
      answer_.values[std::string(value.name)].push_back(floats_of(value.tensor));
    }
    if (delta.finish) {
      answer_.finish = *delta.finish;
      answer_.error = delta.error;
      ended_.set_value(std::move(answer_));
    }
  }
  std::future<CompositeAnswer> future() { return ended_.get_future(); }

 private:
  CompositeAnswer answer_;
  std::promise<CompositeAnswer> ended_;
};

}  // namespace

std::shared_ptr<OutputListener> collect_answer(std::future<CompositeAnswer>& answer) {
  auto collector = std::make_shared<CompositeCollector>();
  answer = collector->future();
  return collector;
}

namespace {

/// What a branch of the denoiser keeps.
struct ExpectedBranch {
  std::vector<float> history;
  std::array<float, 2> momentum{};

  float take_in(float value) {
    history.push_back(value);
    CompositeMath::move(momentum.data(), value);
    const std::int64_t start =
        std::max<std::int64_t>(0, std::ssize(history) - CompositeMath::kWindow);
    return CompositeMath::trace(history.data() + start, std::ssize(history) - start, start,
                                momentum.data());
  }
};

}  // namespace

CompositeExpectation expect(const CompositeRequest& request) {
  CompositeExpectation expected;
  std::vector<float> latents = request.latents;
  std::vector<std::vector<float>> frames;
  ExpectedBranch with_condition;
  ExpectedBranch without;
  bool stops = false;
  while (!stops && expected.num_iterations < CompositeMath::kMaxIterations) {
    const auto iteration = static_cast<float>(expected.num_iterations);
    const bool is_guided =
        request.guidance != 1.0F && expected.num_iterations >= CompositeMath::kGuidedFrom;
    if (is_guided && expected.num_iterations == CompositeMath::kGuidedFrom) {
      without = with_condition;
    }
    float trace = with_condition.take_in(latents.front());
    if (is_guided) {
      trace += without.take_in(0.5F * latents.front());
    }
    expected.values["trace"].push_back({trace});
    stops =
        CompositeMath::denoise(latents, request.condition, is_guided ? request.guidance : 1.0F) <
        CompositeMath::kSmallChange;
    const auto length = static_cast<float>(latents.size());
    expected.values["label"].push_back({length, iteration, iteration + 1, length});
    for (int frame = 0; frame < CompositeMath::num_frames(latents.size()); ++frame) {
      frames.push_back({latents.front(), static_cast<float>(frame)});
    }
    ++expected.num_iterations;
  }
  expected.values["latents"].push_back(latents);
  for (std::size_t start = 0; start < frames.size(); start += 2) {
    std::vector<float> chunk = frames[start];
    if (start + 1 < frames.size()) {
      chunk.insert(chunk.end(), frames[start + 1].begin(), frames[start + 1].end());
    }
    expected.values["embedding"].push_back({CompositeMath::encode(
        chunk.data(), static_cast<std::int64_t>(chunk.size()), static_cast<std::int64_t>(start))});
  }
  return expected;
}

std::vector<CompositeRequest> requests_of_every_kind() {
  std::vector<CompositeRequest> requests;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    CompositeRequest request{
        .seed = seed, .latents = {}, .condition = 0.25F * static_cast<float>(seed % 5)};
    for (std::uint64_t index = 0; index <= seed % 6; ++index) {
      request.latents.push_back(static_cast<float>(index * seed) - 3.0F);
    }
    request.guidance = seed % 3 == 0 ? 2.5F : 1.0F;
    if (seed % 4 == 0) {
      request.latents.front() = 1e9F;  // far away: the bound ends the loop
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

void CompositeWorkerTest::SetUp() {
  if (!Device::available() || Device::open({})->is_cuda()) {
    GTEST_SKIP() << "its model runs on the virtual device";
  }
}

void CompositeWorkerTest::stop() {
  if (worker != nullptr) {
    worker->stop();
    if (worker->healthy()) {  // from here on its engines are ours
      EXPECT_EQ(history->arena().num_free() + history->arena().num_retiring(),
                history->arena().capacity());
      EXPECT_EQ(denoiser->request_states().size(), 0U);
    }
  }
  dispatcher.reset();
  worker.reset();
}

void CompositeWorkerTest::start(bool one_step_ahead, std::int32_t num_rows) {
  stop();
  DeviceOptions options;
  options.mode = DeviceMode::kThreaded;
  options.order = order;
  device = Device::open(options);
  CompositeModel model = make_composite_model(*device, script, loops);
  on_model(model);
  history = &model.engines.front()->resources().get<KvCache>("history");
  denoiser = &model.engines.front()->submodule();
  dispatcher = std::make_unique<Dispatcher>(nullptr, [](RequestId, std::int32_t) {});
  worker = std::make_unique<Worker>(
      std::move(model),
      WorkerConfig{.one_step_ahead = one_step_ahead, .num_rows = num_rows, .eos_ids = {}},
      *dispatcher);
}

std::future<CompositeAnswer> CompositeWorkerTest::submit_inputs(std::uint64_t seed,
                                                                std::vector<RequestInput> inputs,
                                                                float guidance) {
  std::future<CompositeAnswer> future;
  const std::shared_ptr<OutputListener> collector = collect_answer(future);
  GenerationRequest request;
  request.inputs = std::move(inputs);
  request.sampling.seed = seed;
  request.sampling.temperature = guidance;
  dispatcher->open({.id = RequestId{seed}, .listener = collector, .stop = {}});
  worker->submit(RequestId{seed}, std::move(request));
  return future;
}

std::future<CompositeAnswer> CompositeWorkerTest::submit(const CompositeRequest& request) {
  const Tensor condition = Tensor::copy_of(std::span<const float>(&request.condition, 1));
  std::vector<RequestInput> inputs = {
      {"denoiser", "latents", {Tensor::copy_of(std::span<const float>(request.latents))}},
      {"denoiser", "condition", {condition}}};
  if (loops == EncoderLoops::kTwo) {
    inputs.insert(inputs.end(), 2, {"encoder", "carry", {}});
  }
  return submit_inputs(request.seed, std::move(inputs), request.guidance);
}

void CompositeWorkerTest::check(const CompositeAnswer& answer, const CompositeRequest& request) {
  EXPECT_EQ(answer.finish, FinishReason::kStop) << answer.error;
  EXPECT_EQ(answer.values, expect(request).values) << "request " << request.seed;
}

void CompositeWorkerTest::check_together(const std::vector<CompositeRequest>& requests) {
  std::vector<std::future<CompositeAnswer>> answers;
  for (const CompositeRequest& request : requests) {
    answers.push_back(submit(request));
  }
  for (std::size_t index = 0; index < requests.size(); ++index) {
    check(answers[index].get(), requests[index]);
  }
}

}  // namespace rigel::testing

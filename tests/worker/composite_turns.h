#pragma once

#include "tests/worker/composite_llm_models.h"
#include "tests/worker/tiny_service.h"
#include "worker/composite.h"
#include "worker/device_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace rigel::testing {

/// The composite around the tiny language model without its worker, turn by turn, so that who is in which step is certain.
class CompositeTurns : public TinyServiceTest, protected CompositeListener {
 protected:
  struct Sizes {
    int num_pages = 64;
    std::int32_t max_step_tokens = 64;
    std::string label = kCombinedLabel;  // empty: each step is of one walk
    LlmPrompt prompt = LlmPrompt::kEmbeddings;
  };

  void start(const Sizes& sizes) {
    stop();
    table = std::make_unique<RequestTable>(4);
    WorkerOptions options;
    options.dtype = "float32";
    options.num_threads = 1;
    options.max_num_seqs = 4;
    options.max_num_batched_tokens = sizes.max_step_tokens;
    options.max_model_len = std::min(16 * sizes.num_pages, 256);
    options.kv_cache_memory_bytes = (sizes.num_pages + 1) * kTinyPageBytes;  // and the sink
    options.swap_space_bytes = 64 * kTinyPageBytes;
    options.enable_prefix_caching = false;
    device = Device::open(device_options(options));
    LlmComposite made =
        make_llm_composite(*device, files(), language_model_options(options, device->is_cuda()),
                           sizes.prompt, sizes.label);
    kv_cache = made.kv_cache;
    max_length = made.max_length;
    CompositeListener& listener = *this;
    composite =
        std::make_unique<Composite>(std::move(made.model), *table, listener, sizes.max_step_tokens);
    ASSERT_EQ(kv_cache->arena().capacity(), sizes.num_pages);
    prompt = sizes.prompt;
  }
  void TearDown() override { stop(); }
  void stop() {
    composite.reset();
    device.reset();
    num_opened = 0;
    values.clear();
  }
  /// A greedy request with this many tokens of prompt, which differ from those of others.
  RequestHandle open(std::int32_t num_prompt_tokens, std::int32_t max_tokens) {
    std::vector<std::int32_t> ids;
    ++num_opened;
    for (std::int32_t at = 0; at < num_prompt_tokens; ++at) {
      ids.push_back(static_cast<std::int32_t>(5 + (num_opened * 31 + at * 7) % 200));
    }
    auto state = std::make_unique<RequestState>();
    state->id = RequestId{static_cast<std::uint64_t>(num_opened)};
    state->info.seed = static_cast<std::uint64_t>(num_opened);
    state->info.max_tokens = max_tokens;
    state->info.max_length = max_length;
    state->info.sampling.temperature = 0.0F;
    state->info.sampling.ignore_eos = true;
    const std::span<const std::int32_t> tokens = ids;
    const std::size_t num_seen = prompt == LlmPrompt::kBoth ? tokens.size() / 2 : tokens.size();
    state->spec.inputs = {{"encoder", "tokens", {Tensor::copy_of(tokens.first(num_seen))}}};
    if (prompt == LlmPrompt::kBoth) {
      state->spec.inputs.push_back(
          {"LLM", "text_inputs", {Tensor::copy_of(tokens.subspan(num_seen))}});
    }
    RequestState& accepted = table->accept(std::move(state));
    table->assign_row(accepted);
    numbers[accepted.handle().row] = num_opened;
    composite->open(accepted);
    return accepted.handle();
  }
  /// Launches as many steps as may be in flight, and completes the oldest.
  void run_turn(bool one_step_ahead) {
    while (composite->num_in_flight() < (one_step_ahead ? 2U : 1U) && composite->launch_step()) {
    }
    if (composite->num_in_flight() > 0) {
      composite->complete_step();
    }
  }
  /// Turns until that many requests are left.
  void run_until(std::size_t num_left, bool one_step_ahead = false) {
    for (int turn = 0; table->size() > num_left && turn < 1000; ++turn) {
      run_turn(one_step_ahead);
    }
    EXPECT_EQ(table->size(), num_left);
  }
  void finish_flying() {
    while (composite->num_in_flight() > 0) {
      composite->complete_step();
    }
  }
  void on_value(RequestHandle handle, OutputValue value) override {
    if (value.name == "new_token") {
      values[numbers[handle.row]].push_back(value.tensor.host_view().span<const std::int32_t>()[0]);
    }
  }
  void on_end(RequestHandle handle) override { end(handle); }
  void on_failure(RequestHandle handle, const std::string& error) override {
    ADD_FAILURE() << error;
    end(handle);
  }
  void end(RequestHandle handle) {
    const Epoch last_touch = composite->remove(handle);
    table->release(*table->find(handle), last_touch);
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<RequestTable> table;
  std::unique_ptr<Composite> composite;
  KvCache* kv_cache = nullptr;
  LlmPrompt prompt = LlmPrompt::kEmbeddings;
  std::int32_t max_length = 0;
  int num_opened = 0;
  std::map<std::int32_t, int> numbers;              // by row: which of the requests opened has it
  std::map<int, std::vector<std::int32_t>> values;  // new tokens, by that number
};

}  // namespace rigel::testing

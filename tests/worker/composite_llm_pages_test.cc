// Pages of a node's KV cache, turn by turn: a composite without its worker, so that who needs a page when is certain.

#include "tests/worker/composite_llm_models.h"
#include "tests/worker/tiny_service.h"
#include "worker/composite.h"
#include "worker/device_choice.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace rigel {
namespace {

using testing::LlmPrompt;

/// A page of the tiny model: 3 layers, K and V, 2 kv heads, 16 tokens, 16 elements of 4 bytes.
constexpr std::int64_t kPageBytes = 3 * 2 * 2 * 16 * 16 * 4;

class CompositePages : public testing::TinyServiceTest, protected CompositeListener {
 protected:
  void start(int num_pages) {
    stop();
    table = std::make_unique<RequestTable>(4);
    WorkerOptions options;
    options.dtype = "float32";
    options.num_threads = 1;
    options.max_num_seqs = 4;
    options.max_num_batched_tokens = 64;
    options.max_model_len = 16 * num_pages;
    options.kv_cache_memory_bytes = (num_pages + 1) * kPageBytes;  // and the sink
    options.swap_space_bytes = 64 * kPageBytes;
    options.enable_prefix_caching = false;
    device = Device::open(device_options(options));
    testing::LlmComposite made = testing::make_llm_composite(
        *device, files(), language_model_options(options, device->is_cuda()),
        LlmPrompt::kEmbeddings);
    kv_cache = made.kv_cache;
    max_length = made.max_length;
    CompositeListener& listener = *this;
    composite = std::make_unique<Composite>(std::move(made.model), *table, listener,
                                            options.max_num_batched_tokens);
    ASSERT_EQ(kv_cache->arena().capacity(), num_pages);
  }
  void TearDown() override { stop(); }
  void stop() {
    composite.reset();
    device.reset();
  }
  RequestHandle open(std::int32_t num_prompt_tokens, std::int32_t max_tokens) {
    const std::vector<std::int32_t> prompt(static_cast<std::size_t>(num_prompt_tokens), 7);
    auto state = std::make_unique<RequestState>();
    state->id = RequestId{++num_opened};
    state->info.seed = num_opened;
    state->info.max_tokens = max_tokens;
    state->info.max_length = max_length;
    state->spec.inputs = {
        {"encoder", "tokens", {Tensor::copy_of(std::span<const std::int32_t>(prompt))}}};
    RequestState& accepted = table->accept(std::move(state));
    table->assign_row(accepted);
    composite->open(accepted);
    return accepted.handle();
  }
  /// Turns of a worker that launches nothing ahead, until that many requests are left.
  void run_until(std::size_t num_left) {
    for (int turn = 0; table->size() > num_left && turn < 1000; ++turn) {
      std::ignore = composite->launch_step();
      if (composite->num_in_flight() > 0) {
        composite->complete_step();
      }
    }
    EXPECT_EQ(table->size(), num_left);
  }
  void on_value(RequestHandle handle, OutputValue value) override {
    if (value.name == "new_token") {
      ++num_tokens[handle.row];
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
  std::int32_t max_length = 0;
  std::uint64_t num_opened = 0;
  std::map<std::int32_t, int> num_tokens;  // by row
};

/// Two requests need their third page in the same step, and one of five is free: the newer one, whose lane is first, gets it, and
/// then loses all for the sake of the older one. Its three pages would let it come back at once; before the step was tried again it
/// must not, or this would go on for ever.
TEST_F(CompositePages, B_64_who_made_room_does_not_come_back_before_the_step_has_it) {
  std::int64_t num_offloads = 0;
  for (int lag = 0; lag < 8; ++lag) {  // one of them lets both need a page at once
    start(/*num_pages=*/5);
    for (int filler = 0; filler < 3; ++filler) {
      open(5, 1);  // so that the older one has the last row, and the newer one the first
    }
    const RequestHandle older = open(10, 40);
    run_until(1);
    num_tokens.clear();
    const RequestHandle newer = open(10 + lag, 40);
    ASSERT_LT(newer.row, older.row);
    run_until(0);
    EXPECT_GT(num_tokens[older.row], 20);
    EXPECT_EQ(num_tokens[newer.row], 40);
    EXPECT_EQ(composite->counts().pages_in_use, 0);
    num_offloads += composite->counts().num_offloads;
  }
  EXPECT_GT(num_offloads, 0);
}

}  // namespace
}  // namespace rigel

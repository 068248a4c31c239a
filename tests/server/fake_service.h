#pragma once

#include "server/text_codec.h"
#include "worker/service.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace rigel::server {

/// What a scripted request does: emits its pieces one after another, `pause` before each, then ends.
struct FakeScript {
  std::vector<std::string> pieces = {"Hello", ", ", "world"};
  std::chrono::milliseconds pause{0};
  FinishReason finish = FinishReason::kStop;
  std::string error = {};
  std::string stop_string = {};
  bool never_ends = false;  // repeats its last piece until cancelled
  int num_cached_tokens = 0;
};

/// A service without a model: every request follows the script that was set when it came in. Pieces are delivered by a
/// thread of its own, as the real service does.
class FakeService final : public InferenceService {
 public:
  FakeService();
  ~FakeService() override;

  void set_script(FakeScript script);
  void refuse_with(std::optional<RequestError> error);
  void set_healthy(bool healthy) { is_healthy_ = healthy; }

  /// Requests as they were submitted.
  [[nodiscard]] std::vector<GenerationRequest> submitted() const;
  [[nodiscard]] int num_cancelled() const { return num_cancelled_; }

  /// Waits until `count` requests were cancelled. False after the timeout.
  [[nodiscard]] bool wait_for_cancelled(int count, std::chrono::milliseconds timeout) const;
  [[nodiscard]] bool wait_for_submitted(std::size_t count, std::chrono::milliseconds timeout) const;

  [[nodiscard]] ServiceLimits limits() const override {
    return {.max_model_len = 128, .vocab_size = 256};
  }
  SubmitResult submit(GenerationRequest request, std::shared_ptr<OutputListener> listener) override;
  void cancel(RequestId id) override;
  [[nodiscard]] ServiceMetrics metrics() const override;
  [[nodiscard]] bool healthy() const override { return is_healthy_; }
  void begin_drain() override { is_draining_ = true; }
  [[nodiscard]] std::int64_t num_unfinished() const override;

 private:
  struct Running {
    GenerationRequest request;
    std::shared_ptr<OutputListener> listener;
    FakeScript script;
    std::size_t next_piece = 0;
    std::chrono::steady_clock::time_point due;
    bool is_cancelled = false;
  };

  [[nodiscard]] static PromptScores scores_of(const GenerationRequest& request);
  void deliver_all();
  [[nodiscard]] bool advance(Running& running) const;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  FakeScript script_;
  std::optional<RequestError> refusal_;
  std::vector<GenerationRequest> submitted_;
  std::map<std::uint64_t, Running> running_;
  std::uint64_t next_id_ = 1;
  bool is_stopped_ = false;
  std::atomic<int> num_cancelled_{0};
  std::atomic<bool> is_healthy_{true};
  std::atomic<bool> is_draining_{false};
  std::thread dispatcher_;
};

/// A tokenizer whose tokens are bytes, 1 the one that begins a text, and a chat template that prints the messages' JSON.
class FakeCodec final : public TextCodec {
 public:
  [[nodiscard]] bool has_tokenizer() const override { return with_tokenizer; }
  [[nodiscard]] bool has_chat_template() const override { return true; }
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, bool add_special,
                                                 bool parse_special) const override;
  [[nodiscard]] std::vector<std::string> pieces(std::span<const std::int32_t> ids,
                                                bool skip_special) const override;
  [[nodiscard]] std::string token_bytes(std::int32_t id) const override {
    return with_tokenizer ? std::string{static_cast<char>(id)} : std::string();
  }
  [[nodiscard]] std::string render(const ChatPrompt& chat) const override {
    return chat.messages_json;
  }

  bool with_tokenizer = true;
};

}  // namespace rigel::server

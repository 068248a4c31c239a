#pragma once

#include "server/commands/progress_bar.h"
#include "worker/service.h"

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace rigel::server {

/// A request's whole answer.
struct FinishedRequest {
  std::string text;
  std::vector<GeneratedToken> tokens;
  FinishReason finish = FinishReason::kError;
  std::string error;  // with kError
  PromptScores scores;
  std::optional<RequestError> refusal;  // then nothing else is set
};

/// Runs many requests together: all are in flight at once, as far as the service takes them. Thread: one.
class OfflineBatch {
 public:
  /// `num_requests`: how many will come, for the progress bar.
  OfflineBatch(InferenceService& service, std::size_t num_requests);
  ~OfflineBatch();

  /// Submits a request and returns its place; waits while the service's queue is full.
  std::size_t add(GenerationRequest request);

  /// Waits for an answer and hands it over.
  [[nodiscard]] FinishedRequest take(std::size_t place);

 private:
  struct State;
  class Listener;

  InferenceService& service_;
  const std::size_t num_requests_;
  ProgressBar bar_{"running", "requests"};
  std::shared_ptr<State> state_;  // shared with listeners
};

}  // namespace rigel::server

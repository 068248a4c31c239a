#pragma once

#include "server/http/exchange.h"
#include "server/http/wire.h"

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace rigel::server::http {

/// The exchange between a handler, which may write from any thread, and a connection, which drains what was written.
/// The border is a bounded buffer under a short lock: no writer ever waits for a client.
class LiveExchange final : public Exchange {
 public:
  /// `wake` asks the connection to drain, `give_up` to drop a client that lags too far. Both are called from any thread
  /// and under the lock, so that neither runs any more once client_gone() or forget_client() has returned: the connection
  /// and what it stands on may then be destroyed. They must not call back.
  LiveExchange(Request request, WireForm form, std::size_t max_unsent_bytes,
               std::function<void()> wake, std::function<void()> give_up);

  [[nodiscard]] const Request& request() const override { return request_; }
  void respond(Response response) override;
  void begin_stream(std::string_view content_type) override;
  bool write(std::string_view bytes) override;
  void end_stream() override;
  void on_client_gone(std::function<void()> action) override;

  struct Drained {
    std::string bytes;
    bool is_last = false;
  };
  /// Connection: takes what waits to be sent.
  [[nodiscard]] Drained drain();

  /// Connection: the client is gone. Runs the action of on_client_gone on this thread.
  void client_gone();

  /// Connection: the answer is out.
  void forget_client();

  [[nodiscard]] int status() const;
  [[nodiscard]] const WireForm& form() const { return form_; }
  [[nodiscard]] std::chrono::microseconds age() const;

 private:
  void finish(std::string_view bytes, int status);

  void append_locked(std::string_view bytes);

  const Request request_;
  const WireForm form_;
  const std::size_t max_unsent_bytes_;
  const std::function<void()> wake_;
  const std::function<void()> give_up_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();

  mutable std::mutex mutex_;  // guards everything below
  std::string unsent_;
  std::function<void()> gone_action_;
  int status_ = 0;
  bool wake_is_due_ = true;  // false between a wake and the drain that follows it
  bool is_finished_ = false;
  bool is_gone_ = false;
};

}  // namespace rigel::server::http

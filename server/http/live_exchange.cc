#include "server/http/live_exchange.h"

#include <utility>

namespace rigel::server::http {

LiveExchange::LiveExchange(Request request, WireForm form, std::size_t max_unsent_bytes,
                           std::function<void()> wake, std::function<void()> give_up)
    : request_(std::move(request)),
      form_(form),
      max_unsent_bytes_(max_unsent_bytes),
      wake_(std::move(wake)),
      give_up_(std::move(give_up)) {}

void LiveExchange::append_locked(std::string_view bytes) {
  unsent_ += bytes;
  if (std::exchange(wake_is_due_, false)) {
    wake_();
  }
}

void LiveExchange::finish(std::string_view bytes, int status) {
  const std::lock_guard lock(mutex_);
  if (is_finished_ || is_gone_) {
    return;
  }
  is_finished_ = true;
  status_ = status;
  append_locked(bytes);
}

void LiveExchange::respond(Response response) {
  finish(spell_response(response, form_), response.status);
}

void LiveExchange::begin_stream(std::string_view content_type) {
  const std::lock_guard lock(mutex_);
  if (!is_gone_) {
    append_locked(spell_stream_head(content_type, form_));
  }
}

bool LiveExchange::write(std::string_view bytes) {
  const std::string chunk = form_.is_http_1_0 ? std::string(bytes) : spell_chunk(bytes);
  const std::lock_guard lock(mutex_);
  if (is_gone_ || is_finished_) {
    return false;
  }
  if (bytes.empty()) {
    return true;  // an empty chunk would end the body
  }
  if (unsent_.size() + chunk.size() > max_unsent_bytes_) {
    give_up_();
    return false;
  }
  append_locked(chunk);
  return true;
}

void LiveExchange::end_stream() {
  finish(form_.is_http_1_0 ? std::string_view() : kLastChunk, 200);
}

void LiveExchange::on_client_gone(std::function<void()> action) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_gone_) {
      gone_action_ = std::move(action);
      return;
    }
  }
  action();
}

LiveExchange::Drained LiveExchange::drain() {
  const std::lock_guard lock(mutex_);
  wake_is_due_ = true;
  return {.bytes = std::exchange(unsent_, {}), .is_last = is_finished_};
}

void LiveExchange::client_gone() {
  std::function<void()> action;
  {
    const std::lock_guard lock(mutex_);
    is_gone_ = true;
    action = std::exchange(gone_action_, nullptr);
  }
  if (action) {
    action();
  }
}

void LiveExchange::forget_client() {
  std::function<void()> action;  // destroyed outside the lock: it may own what owns this
  const std::lock_guard lock(mutex_);
  is_gone_ = true;
  action.swap(gone_action_);
}

int LiveExchange::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

std::chrono::microseconds LiveExchange::age() const {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() -
                                                               begun_);
}

}  // namespace rigel::server::http

#include "worker/token_rows.h"

#include "tensor/error.h"

#include <utility>

namespace rigel {

void TokenRows::add(std::unique_ptr<NodeInputs> inputs, WalkId walk) {
  RIGEL_CHECK(inputs->input_seq_len > 0, "a row of {} tokens", inputs->input_seq_len);
  inputs->chunk_start = num_tokens_;
  num_tokens_ += inputs->input_seq_len;
  rows_.push_back({std::move(inputs), walk});
  // Whoever ends at the end of the sequence must not end before, whatever row that was the last when it was made.
  for (const Row& row : rows_) {
    row.inputs->chunk_total = num_tokens_;
  }
}

std::int64_t TokenRows::next_start() const {
  return num_launched_ - next().inputs->chunk_start;
}

std::int64_t TokenRows::next_length() const {
  return next().inputs->input_seq_len - next_start();
}

void TokenRows::launched(std::int64_t count) {
  RIGEL_CHECK(count > 0 && count <= next_length(), "{} tokens of a row that has {} left", count,
              next_length());
  next_row_ += count == next_length() ? 1 : 0;
  num_launched_ += count;
}

void TokenRows::restart() {
  num_launched_ = 0;
  next_row_ = 0;
}

}  // namespace rigel

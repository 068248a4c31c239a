#pragma once

#include "engine/contract/node_inputs.h"
#include "engine/contract/submodule.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace rigel {

/// The token rows that one request has brought to a node, in order, and how far steps have run them: part by part, no part in
/// two rows. They are kept as long as the request, which may have to run them again. Thread: worker.
class TokenRows {
 public:
  struct Row {
    std::shared_ptr<NodeInputs> inputs;
    WalkId walk{};  // that it was prepared in
  };

  /// Puts a prepared row behind the others: its first token follows theirs, and its last one is the last of all.
  void add(std::unique_ptr<NodeInputs> inputs, WalkId walk);

  /// Tokens of all rows.
  [[nodiscard]] std::int64_t num_tokens() const { return num_tokens_; }
  /// Tokens that no step has run.
  [[nodiscard]] std::int64_t num_left() const { return num_tokens_ - num_launched_; }
  /// The row whose turn it is, and what is left of it. Requires num_left() > 0.
  [[nodiscard]] const Row& next() const { return rows_[next_row_]; }
  [[nodiscard]] std::int64_t next_start() const;
  [[nodiscard]] std::int64_t next_length() const;

  /// A step with the next `count` tokens was launched.
  void launched(std::int64_t count);
  /// Everything has to run again.
  void restart();

 private:
  std::vector<Row> rows_;
  std::size_t next_row_ = 0;
  std::int64_t num_tokens_ = 0;
  std::int64_t num_launched_ = 0;
};

}  // namespace rigel

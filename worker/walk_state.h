#pragma once

#include "engine/contract/signals.h"
#include "model/walk/program.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

namespace rigel {

/// A set of rows. Thread: one.
class RowSet {
 public:
  explicit RowSet(std::int32_t num_rows) : words_((static_cast<std::size_t>(num_rows) + 63) / 64) {}

  void insert(std::int32_t row) {
    std::uint64_t& word = words_[static_cast<std::size_t>(row) / 64];
    const std::uint64_t bit = std::uint64_t{1} << (row % 64);
    count_ += (word & bit) == 0 ? 1 : 0;
    word |= bit;
  }
  void erase(std::int32_t row) {
    std::uint64_t& word = words_[static_cast<std::size_t>(row) / 64];
    const std::uint64_t bit = std::uint64_t{1} << (row % 64);
    count_ -= (word & bit) == 0 ? 0 : 1;
    word &= ~bit;
  }
  [[nodiscard]] bool contains(std::int32_t row) const {
    return (words_[static_cast<std::size_t>(row) / 64] >> (row % 64) & 1) != 0;
  }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] std::int32_t size() const { return count_; }
  /// Calls `visit(row)` in ascending order.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (std::size_t index = 0; index < words_.size(); ++index) {
      for (std::uint64_t word = words_[index]; word != 0; word &= word - 1) {
        visit(static_cast<std::int32_t>(index * 64) + std::countr_zero(word));
      }
    }
  }

 private:
  std::vector<std::uint64_t> words_;
  std::int32_t count_ = 0;
};

/// One node of one request's walk. A bit is an input. Steps of a node fly in order and one an iteration, so of those in
/// flight exactly the newest `ahead` belong to iterations that its loop has not begun.
struct WalkNodeState {
  walk::InputMask current = 0;          // values of this iteration that are here
  walk::InputMask next = 0;             // of the next
  walk::InputMask current_tensors = 0;  // of `current`: those that carry tensors
  walk::InputMask next_tensors = 0;
  std::uint8_t num_in_flight = 0;  // steps that took the node, or were committed ahead
  std::uint8_t ahead = 0;
  std::uint8_t num_discarded = 0;  // oldest steps in flight that a loop's end has made worthless
  bool taken : 1 = false;          // a step in flight uses `current`
  bool done : 1 = false;           // has run in this iteration
};

/// The walk or a loop of one request.
struct WalkScopeState {
  std::int32_t iteration = 0;
  std::int32_t max_iters = 1;
  std::uint16_t num_done = 0;  // children that have run in this iteration
  bool stopping = false;       // ends with this iteration
  bool done = false;
};

/// One request's pass through a walk of one partition.
struct WalkPass {
  RequestHandle handle{};       // padding: the row is free here
  std::uint32_t number = 0;     // grows with each set_walk
  std::int16_t walk = -1;       // -1: none
  std::int16_t left_walk = -1;  // the walk before, while its last steps fly
  std::uint8_t num_left = 0;    // those steps
  bool left_is_waste = false;   // whether its loop had ended without them
  bool partition_done = false;
};

/// The passes of all rows through one partition's walks, sized at load by the largest walk. A row's pass, nodes and scopes stand
/// together: of a walk of one node in one loop, in one cache line.
class WalkPasses {
 public:
  WalkPasses(const walk::Program& program, const walk::CompiledPartition& partition,
             std::int32_t num_rows);

  [[nodiscard]] WalkPass& pass(std::int32_t row) { return *place<WalkPass>(row, 0); }
  [[nodiscard]] const WalkPass& pass(std::int32_t row) const { return *place<WalkPass>(row, 0); }
  [[nodiscard]] WalkNodeState* nodes(std::int32_t row) { return place<WalkNodeState>(row, kNodes); }
  [[nodiscard]] const WalkNodeState* nodes(std::int32_t row) const {
    return place<WalkNodeState>(row, kNodes);
  }
  [[nodiscard]] WalkScopeState* scopes(std::int32_t row) {
    return place<WalkScopeState>(row, first_scope_);
  }
  [[nodiscard]] const WalkScopeState* scopes(std::int32_t row) const {
    return place<WalkScopeState>(row, first_scope_);
  }
  /// Tensors of an input (numbered within the walk), this iteration's and the next's. Empty wherever the node's masks say so.
  [[nodiscard]] TensorList& current(std::int32_t row, std::size_t input) {
    return current_[at(row) * num_inputs_ + input];
  }
  [[nodiscard]] const TensorList& current(std::int32_t row, std::size_t input) const {
    return current_[at(row) * num_inputs_ + input];
  }
  [[nodiscard]] TensorList& next(std::int32_t row, std::size_t input) {
    return next_[at(row) * num_inputs_ + input];
  }
  /// A remembered value of a loop output.
  [[nodiscard]] TensorList& cell(std::int32_t row, std::size_t index) {
    return cells_[at(row) * num_cells_ + index];
  }
  /// A row's pass, one node of it and one scope around that.
  struct NodeRow {
    WalkPass& pass;
    WalkNodeState& node;
    WalkScopeState& scope;
  };
  /// The same of every row: what a step's call needs of each lane, found once.
  class NodeRows {
   public:
    [[nodiscard]] NodeRow operator[](std::int32_t row) const {
      std::byte* const record = records_ + at(row) * record_bytes_;
      return {*std::launder(reinterpret_cast<WalkPass*>(record)),
              *std::launder(reinterpret_cast<WalkNodeState*>(record + node_)),
              *std::launder(reinterpret_cast<WalkScopeState*>(record + scope_))};
    }

   private:
    friend class WalkPasses;
    std::byte* records_ = nullptr;
    std::size_t record_bytes_ = 0;
    std::size_t node_ = 0;
    std::size_t scope_ = 0;
  };
  [[nodiscard]] NodeRows rows_of(std::uint16_t node, std::uint16_t scope) {
    NodeRows rows;
    rows.records_ = records_.data()->data();
    rows.record_bytes_ = record_bytes_;
    rows.node_ = kNodes + node * sizeof(WalkNodeState);
    rows.scope_ = first_scope_ + scope * sizeof(WalkScopeState);
    return rows;
  }
  /// Tensor handles that all rows hold.
  [[nodiscard]] std::size_t num_tensors() const;

 private:
  struct alignas(64) Line : std::array<std::byte, 64> {};
  static constexpr std::size_t kNodes = sizeof(WalkPass);  // where a record's nodes begin
  static_assert(sizeof(WalkPass) + sizeof(WalkNodeState) + 2 * sizeof(WalkScopeState) <=
                sizeof(Line));

  [[nodiscard]] static std::size_t at(std::int32_t row) { return static_cast<std::size_t>(row); }
  template <class T>
  [[nodiscard]] const T* place(std::int32_t row, std::size_t offset) const {
    return std::launder(
        reinterpret_cast<const T*>(records_.data()->data() + at(row) * record_bytes_ + offset));
  }
  template <class T>
  [[nodiscard]] T* place(std::int32_t row, std::size_t offset) {
    return const_cast<T*>(std::as_const(*this).place<T>(row, offset));
  }

  std::size_t num_inputs_ = 0;
  std::size_t num_cells_ = 0;
  std::size_t first_scope_ = 0;   // where a record's scopes begin
  std::size_t record_bytes_ = 0;  // whole lines
  std::vector<Line> records_;     // by row: pass, nodes, scopes
  std::vector<TensorList> current_;
  std::vector<TensorList> next_;
  std::vector<TensorList> cells_;
};

}  // namespace rigel

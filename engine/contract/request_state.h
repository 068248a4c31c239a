#pragma once

#include "engine/contract/ids.h"
#include "engine/contract/node_inputs.h"
#include "tensor/error.h"
#include "tensor/tensor.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

namespace rigel {

/// The name of something in a request's state, interned by the submodule at load.
enum class StateKey : std::uint16_t {};

/// A tensor, a plain value, or a model's own object, which belongs to the request.
using StateValue =
    std::variant<bool, std::int64_t, double, std::string, Tensor, std::unique_ptr<Opaque>>;

/// What a submodule keeps of one request from step to step. A handful of entries: looked up by a linear scan.
class PerRequestState {
 public:
  /// Sets `key`, whatever it held before. The mark stays.
  void add(StateKey key, StateValue value);
  /// Removes keys and their marks; missing ones are ignored.
  void remove(StateKey key) { remove({&key, 1}); }
  void remove(std::span<const StateKey> keys);
  void clear() { entries_.clear(); }

  [[nodiscard]] const StateValue* find(StateKey key) const;
  [[nodiscard]] StateValue* find(StateKey key) {
    return const_cast<StateValue*>(std::as_const(*this).find(key));
  }
  [[nodiscard]] bool contains(StateKey key) const { return find(key) != nullptr; }
  /// The value of `key`. Throws CheckError where it is missing or of another type.
  template <class T>
  [[nodiscard]] T& get(StateKey key) {
    StateValue* value = find(key);
    RIGEL_CHECK(value != nullptr && std::holds_alternative<T>(*value),
                "the request's state has no key {} of this type", static_cast<int>(key));
    return std::get<T>(*value);
  }

  /// Marks a key for a transfer of the request to another process: it travels too. Throws CheckError where it is missing.
  void share(StateKey key);
  [[nodiscard]] bool is_shared(StateKey key) const;

  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    StateKey key{};
    bool is_shared = false;
    StateValue value;
  };
  std::vector<Entry> entries_;
};

/// The states of a submodule's requests by row: addresses are stable, and a handle of another generation finds nothing. A
/// request's is opened when it is admitted and erased when it is removed; a padding row's is opened when it is first asked
/// for, since nobody admits it. Rows are reused with their memory. Thread: worker.
class RequestStateStore {
 public:
  /// Opens the empty state of a request; nothing changes where it is open. Throws CheckError where another request has the row.
  PerRequestState& open(RequestHandle handle);
  /// Null where the request is not open.
  [[nodiscard]] PerRequestState* find(RequestHandle handle) const;
  /// The state of an open request or of a padding row. Throws CheckError for any other.
  [[nodiscard]] PerRequestState& at(RequestHandle handle);
  /// Closes the state of a request and gives what it held, so that the caller can keep its tensors for as long as the device
  /// may touch them; empty where it is not open.
  [[nodiscard]] PerRequestState take(RequestHandle handle);
  void erase(RequestHandle handle) { std::ignore = take(handle); }
  [[nodiscard]] std::size_t size() const { return num_open_; }

 private:
  struct Slot {
    RequestHandle owner;
    bool is_open = false;
    PerRequestState state;
  };
  using Slab = std::vector<std::unique_ptr<Slot>>;

  [[nodiscard]] Slot* slot_of(RequestHandle handle) const;

  Slab requests_;  // by row
  Slab padding_;   // by -row - 1
  std::size_t num_open_ = 0;
};

/// The states of a step's requests: two pointers, and nothing is made until somebody looks. Valid for the step.
class LazyRequestStates {
 public:
  LazyRequestStates() = default;  // of a step without requests, such as a capture
  LazyRequestStates(RequestStateStore& store, std::span<const RequestHandle> handles)
      : store_(&store), handles_(handles) {}

  /// Whether the request is one of the step's; makes no state.
  [[nodiscard]] bool contains(RequestHandle handle) const;
  /// The state of one of the step's requests. Throws CheckError for any other, and makes none for it. Cost: linear in the
  /// lanes; `lane` is constant.
  [[nodiscard]] PerRequestState& at(RequestHandle handle) const;
  [[nodiscard]] PerRequestState& lane(std::size_t index) const;

  // The step's handles in lane order, padding included.
  [[nodiscard]] std::size_t size() const { return handles_.size(); }
  [[nodiscard]] auto begin() const { return handles_.begin(); }
  [[nodiscard]] auto end() const { return handles_.end(); }

 private:
  RequestStateStore* store_ = nullptr;
  std::span<const RequestHandle> handles_;
};

}  // namespace rigel

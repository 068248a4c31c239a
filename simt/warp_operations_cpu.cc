#include "simt/multiprocessor.h"
#include "simt/scheduler.h"

#include <bit>
#include <cstring>

namespace simt::detail {

namespace {

template <class T>
T operand_as(std::uint64_t operand) {
  T value;
  std::memcpy(&value, &operand, sizeof(T));
  return value;
}

template <class T>
std::uint64_t result_of(T value) {
  std::uint64_t result = 0;
  std::memcpy(&result, &value, sizeof(T));
  return result;
}

constexpr auto kAdd = [](auto a, auto b) { return a + b; };
constexpr auto kMax = [](auto a, auto b) { return a > b ? a : b; };
// fmaxf's rule: a NaN loses against a number.
constexpr auto kMaxNumber = [](float a, float b) { return a > b || b != b ? a : b; };

}  // namespace

// Runs when the last lane has arrived, for all lanes at once: one rendezvous where the device loop has five.
void Multiprocessor::compute(const Warp& warp, const WarpGroup& group) {
  const int first = first_thread_of(warp);
  switch (group.operation) {
    case WarpOperation::kSync:
      return;
    case WarpOperation::kShuffleIndex:
    case WarpOperation::kShuffleXor:
    case WarpOperation::kShuffleUp:
    case WarpOperation::kShuffleDown:
      return shuffle(first, group);
    case WarpOperation::kMatchAny:
      return match_any(first, group);
    case WarpOperation::kSumFloat:
      return reduce<float>(first, kAdd);
    case WarpOperation::kMaxFloat:
      return reduce<float>(first, kMaxNumber);
    case WarpOperation::kSumInt:
      return reduce<unsigned>(first, kAdd);
    case WarpOperation::kMaxInt:
      return reduce<int>(first, kMax);
    case WarpOperation::kMaxUnsigned:
      return reduce<unsigned>(first, kMax);
    case WarpOperation::kMatrixLoad:
      return load_matrices(first);
    case WarpOperation::kMatrixMultiply:
      return multiply_matrices(first);
    case WarpOperation::kBallot:
      break;
  }
  std::uint64_t ballot = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if ((group.arrived >> lane & 1u) != 0 && operands_[first + lane] != 0) {
      ballot |= std::uint64_t{1} << lane;
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    if ((group.arrived >> lane & 1u) != 0) {
      results_[first + lane] = ballot;
    }
  }
}

void Multiprocessor::shuffle(int first_thread, const WarpGroup& group) {
  for (unsigned lanes = group.arrived; lanes != 0; lanes &= lanes - 1) {
    const int lane = std::countr_zero(lanes);
    const int argument = arguments_[first_thread + lane];
    int source = lane;
    switch (group.operation) {
      case WarpOperation::kShuffleIndex:
        source = argument & 31;
        break;
      case WarpOperation::kShuffleXor:
        source = lane ^ argument;
        break;
      case WarpOperation::kShuffleUp:
        source = lane >= argument ? lane - argument : lane;
        break;
      default:
        source = lane + argument < 32 ? lane + argument : lane;
    }
    if (source > 31 || (group.arrived >> source & 1u) == 0) [[unlikely]] {
      enter_thread(first_thread + lane);  // the fault is the reader's, who arrived earlier
      fail({.kind = FaultKind::kShuffleSource,
            .site = group.site,
            .operation = group.operation,
            .mask = group.mask,
            .other = source});
    }
    results_[first_thread + lane] = operands_[first_thread + source];
  }
}

void Multiprocessor::match_any(int first_thread, const WarpGroup& group) {
  for (unsigned lanes = group.arrived; lanes != 0; lanes &= lanes - 1) {
    const int lane = std::countr_zero(lanes);
    std::uint64_t equal = 0;
    for (unsigned others = group.arrived; others != 0; others &= others - 1) {
      const int other = std::countr_zero(others);
      if (operands_[first_thread + other] == operands_[first_thread + lane]) {
        equal |= std::uint64_t{1} << other;
      }
    }
    results_[first_thread + lane] = equal;
  }
}

// The butterfly of shuffles that the device runs, in its order: the same bits for floats. Always of the full warp.
template <class T, class Combine>
void Multiprocessor::reduce(int first_thread, Combine combine) {
  T values[32];
  for (int lane = 0; lane < 32; ++lane) {
    values[lane] = operand_as<T>(operands_[first_thread + lane]);
  }
  for (int distance = arguments_[first_thread] / 2; distance > 0; distance /= 2) {
    T combined[32];
    for (int lane = 0; lane < 32; ++lane) {
      combined[lane] = combine(values[lane], values[lane ^ distance]);
    }
    std::memcpy(values, combined, sizeof(values));
  }
  for (int lane = 0; lane < 32; ++lane) {
    results_[first_thread + lane] = result_of(values[lane]);
  }
}

}  // namespace simt::detail

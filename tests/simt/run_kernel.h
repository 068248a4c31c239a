#pragma once

#include "simt/executor.h"
#include "simt/launch.h"
#include "simt/simt.h"

#include <utility>
#include <vector>

namespace simt_test {

/// Runs one kernel to its end on a pool of its own.
template <auto K, class... A>
simt::Status run_kernel(const simt::Options& options, const simt::LaunchPlan& plan,
                        A&&... arguments) {
  simt::Pool pool(options.threads > 0 ? options.threads : 1);
  simt::Executor executor(pool, options);
  return simt::bind_kernel<K>("probe", plan, std::forward<A>(arguments)...)(executor);
}

/// The orders that every case is run in.
inline std::vector<simt::Options> all_orders() {
  std::vector<simt::Options> cases;
  cases.push_back({.order = simt::Order::kAscending});
  cases.push_back({.order = simt::Order::kDescending});
#if defined(__SANITIZE_THREAD__)
  constexpr std::uint64_t kNumSeeds = 1;  // the detector needs no luck, and time
#else
  constexpr std::uint64_t kNumSeeds = 5;
#endif
  for (std::uint64_t seed = 1; seed <= kNumSeeds; ++seed) {
    cases.push_back({.order = simt::Order::kRandom, .seed = seed});
  }
  return cases;
}

}  // namespace simt_test

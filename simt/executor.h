#pragma once

#include "simt/launch_plan.h"
#include "simt/options.h"
#include "simt/pool.h"
#include "simt/status.h"

namespace simt {

namespace detail {
struct KernelCall;
}

/// Runs kernels on the CPU: the blocks of a grid are shared out to the pool's threads, each block stays on one.
///
/// Thread: any; launches from several threads may overlap (the pool serves one of them, the others run alone).
class Executor {
 public:
  /// The pool must outlive the executor.
  Executor(Pool& pool, Options options);

  [[nodiscard]] const Options& options() const { return options_; }
  /// Not while a launch runs.
  void set_options(Options options) { options_ = static_cast<Options&&>(options); }
  [[nodiscard]] Pool& pool() const { return pool_; }

  /// Runs a grid to its end. A fault stops it: other blocks may or may not have run. Cost: 0.2 us a launch, then about
  /// 6 ns a thread and rendezvous.
  [[nodiscard]] Status run(const detail::KernelCall& call);

 private:
  Pool& pool_;
  Options options_;
};

}  // namespace simt

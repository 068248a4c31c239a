#pragma once

#include "kernels/lane_device.h"
#include "kernels/philox.h"
#include "kernels/sampling_params.h"
#include "simt/simt.h"

namespace rigel::kernels {

/// Grid: S. One block a lane.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) sample_kernel(SampleParams p) {
  simt::wait_for_predecessor();
  const int lane = static_cast<int>(blockIdx.x);
  const bool writes = threadIdx.x == 0;
  const int row = p.rows[lane];
  if (row < 0) {
    if (writes) {
      p.tokens[lane] = -1;
    }
    return;
  }
  const float* logits = p.logits + static_cast<std::int64_t>(lane) * p.vocabulary;
  const LaneMaximum maximum = find_maximum<BLOCK>(logits, p.vocabulary);
  const float temperature = p.temperature[row];
  const int top_k = p.top_k[row];
  int token = maximum.usable ? maximum.token : -1;
  unsigned num_kept = maximum.usable ? 1 : 0;
  if (maximum.usable && !is_greedy(temperature, top_k)) {
    const SamplingRule rule = sampling_rule(maximum.value, temperature, p.min_p[row]);
    Selection kept{0, 0, 0};
    if (top_k > 0) {
      kept = select_prefix<BLOCK, SelectBy::kCount, false>(logits, p.vocabulary, rule, 0,
                                                           static_cast<Mass>(top_k));
    } else {
      kept = select_all<BLOCK>(logits, p.vocabulary, rule);
    }
    const float top_p = p.top_p[row];
    if (has_top_p(top_p)) {
      kept = select_prefix<BLOCK, SelectBy::kMass, false>(logits, p.vocabulary, rule, kept.cutoff,
                                                          nucleus_mass(kept.mass, top_p));
    }
    const std::uint64_t random =
        uniform_bits(static_cast<std::uint64_t>(p.seeds[row]), p.sampler_id, p.positions[lane]);
    token = find_token_at<BLOCK>(logits, p.vocabulary, rule, kept.cutoff,
                                 multiply_high(random, kept.mass));
    num_kept = kept.num_tokens;
  }
  if (writes) {
    p.tokens[lane] = token;
    p.flags[lane] = maximum.usable ? 0 : 1;
    if (p.num_kept != nullptr) {
      p.num_kept[lane] = static_cast<int>(num_kept);
    }
  }
}

/// Grid: S. One block a lane.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) argmax_kernel(ArgmaxParams p) {
  simt::wait_for_predecessor();
  const int lane = static_cast<int>(blockIdx.x);
  const LaneMaximum maximum =
      find_maximum<BLOCK>(p.logits + static_cast<std::int64_t>(lane) * p.vocabulary, p.vocabulary);
  if (threadIdx.x == 0) {
    p.tokens[lane] = maximum.usable ? maximum.token : -1;
  }
}

/// Grid: ceil(S / BLOCK). One thread a lane.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) publish_tokens_kernel(PublishParams p) {
  simt::wait_for_predecessor();
  const int lane = static_cast<int>(blockIdx.x) * BLOCK + static_cast<int>(threadIdx.x);
  if (lane >= p.num_lanes) {
    return;
  }
  const int row = p.rows[lane];
  const int token = p.tokens[lane];
  if (row >= 0 && token >= 0 && p.publish[lane] != 0) {
    p.last_token[row] = token;
  }
}

}  // namespace rigel::kernels

#include "kernels/sampling_native.h"

#include "kernels/lane_bins_native.h"
#include "kernels/philox.h"
#include "simt/pool.h"

namespace rigel::kernels::RIGEL_NATIVE {
namespace {

struct Draw {
  int token;
  std::uint32_t num_kept;
};

/// What decides a lane's token, apart from the logits.
struct LaneColumns {
  SamplingRule rule;
  std::int32_t top_k;
  float top_p;
  std::uint64_t random;
};

/// The token at which the running mass of keys >= cutoff passes `offset`.
int find_token_at(const Candidates& source, std::uint64_t cutoff, std::uint64_t offset) {
  int found = -1;
  std::uint64_t before = 0;
  Candidates::each(source, [&](int token, std::uint64_t key, std::uint64_t mass) {
    if (key < cutoff) {
      return;
    }
    if (found < 0 && offset < before + mass) {
      found = token;
    }
    before += mass;
  });
  return found;
}

/// Filters and draws, exactly, from a list that holds all that the filters leave. `total` is the mass of the lane.
Draw draw_filtered(const Candidates& source, const LaneColumns& columns, std::uint64_t total) {
  Selection kept = {0, total, 0};
  if (columns.top_k > 0) {
    kept = select_prefix<false, false>(source, 0, static_cast<std::uint64_t>(columns.top_k));
  }
  if (has_top_p(columns.top_p)) {
    kept = select_prefix<true, false>(source, kept.cutoff, nucleus_mass(kept.mass, columns.top_p));
  }
  const std::uint64_t offset = multiply_high(columns.random, kept.mass);
  return {find_token_at(source, kept.cutoff, offset), kept.num_tokens};
}

/// The same from the lane itself, for filters that leave many tokens. `list` is scratch.
Draw draw_from_lane(const LaneLogits& lane, const LaneColumns& columns, std::uint64_t total,
                    Candidates& list) {
  Selection kept = {0, total, 0};
  if (columns.top_k > 0) {
    kept = select_in_lane<false>(lane, 0, static_cast<std::uint64_t>(columns.top_k), list);
  }
  if (has_top_p(columns.top_p)) {
    kept = select_in_lane<true>(lane, kept.cutoff, nucleus_mass(kept.mass, columns.top_p), list);
  }
  const std::uint64_t offset = multiply_high(columns.random, kept.mass);
  return {find_token_in_lane(lane, kept.cutoff, offset), kept.num_tokens};
}

/// No top-k and no top-p: everything with mass may be drawn, found by way of the block it lies in.
Draw draw_unfiltered(const float* logits, int vocabulary, const LaneColumns& columns,
                     const LaneMasses& masses) {
  const MassLevel& all = masses.levels[kNumLevels - 1];
  std::uint64_t offset = multiply_high(columns.random, all.mass);
  int block = 0;
  while (offset >= masses.blocks[block]) {
    offset -= masses.blocks[block];
    ++block;
  }
  int token = block * kMassBlock;
  for (std::uint64_t mass; token < vocabulary - 1; ++token) {
    mass = token_mass(columns.rule, logits[token]);
    if (offset < mass) {
      break;
    }
    offset -= mass;
  }
  return {token, all.num_tokens};
}

/// A logit such that all tokens within `distance` are at or above it (some more may be).
float threshold_at(const SamplingRule& rule, float distance) {
  const float magnitude = __builtin_fabsf(rule.maximum) + distance * rule.temperature;
  return rule.maximum - distance * rule.temperature - 1e-5f * magnitude;
}

Draw draw(const float* logits, int vocabulary, const LaneColumns& columns,
          const float* block_maxima) {
  Candidates list;
  const int num_blocks = (vocabulary + kScanBlock - 1) / kScanBlock;
  const bool few = columns.top_k > 0 && columns.top_k <= kMaxCandidates / 4;
  if (few && (num_blocks >= columns.top_k || vocabulary <= kMaxCandidates)) {
    // The list holds the top k, so the lane's total mass is never asked for.
    const float threshold = bound_of_kth(block_maxima, num_blocks, columns.top_k);
    if (list_candidates(logits, vocabulary, columns.rule, threshold, list)) {
      return draw_filtered(list, columns, 0);
    }
  }
  LaneMasses masses;
  sum_masses(logits, vocabulary, columns.rule, masses);
  const MassLevel& all = masses.levels[kNumLevels - 1];
  if (columns.top_k <= 0 && !has_top_p(columns.top_p)) {
    return draw_unfiltered(logits, vocabulary, columns, masses);
  }
  for (int level = 0; level < kNumLevels - 1; ++level) {
    const bool enough =
        columns.top_k > 0
            ? masses.levels[level].num_tokens >= static_cast<std::uint32_t>(columns.top_k)
            : masses.levels[level].mass >= nucleus_mass(all.mass, columns.top_p);
    if (enough && masses.levels[level].num_tokens <= kMaxCandidates &&
        list_candidates(logits, vocabulary, columns.rule,
                        threshold_at(columns.rule, kLevelDistance[level]), list)) {
      return draw_filtered(list, columns, all.mass);
    }
  }
  return draw_from_lane({logits, vocabulary, columns.rule}, columns, all.mass, list);
}

void sample_lane(const SampleParams& params, int lane) {
  const std::int32_t row = params.rows[lane];
  if (row < 0) {
    params.tokens[lane] = -1;
    return;
  }
  const int vocabulary = params.vocabulary;
  const float* logits = params.logits + static_cast<std::int64_t>(lane) * vocabulary;
  const float temperature = params.temperature[row];
  const std::int32_t top_k = params.top_k[row];
  const bool greedy = is_greedy(temperature, top_k);
  float block_maxima[kMaxScanBlocks];
  const NativeMaximum maximum =
      scan_lane(logits, vocabulary, greedy || top_k <= 0 ? nullptr : block_maxima);
  Draw drawn = {maximum.token, maximum.usable ? 1u : 0u};
  if (maximum.usable && !greedy) {
    // A k that keeps everything is the same as none, and cheaper.
    const LaneColumns columns{sampling_rule(maximum.value, temperature, params.min_p[row]), top_k,
                              params.top_p[row],
                              uniform_bits(static_cast<std::uint64_t>(params.seeds[row]),
                                           params.sampler_id, params.positions[lane])};
    drawn = draw(logits, vocabulary, columns, block_maxima);
  }
  params.tokens[lane] = drawn.token;
  params.flags[lane] = maximum.usable ? 0 : 1;
  if (params.num_kept != nullptr) {
    params.num_kept[lane] = static_cast<std::int32_t>(drawn.num_kept);
  }
}

}  // namespace

void sample(simt::Pool& pool, const SampleParams& params) {
  pool.parallel_for(params.num_lanes, [&](int lane) { sample_lane(params, lane); });
}

void argmax(simt::Pool& pool, const ArgmaxParams& params) {
  pool.parallel_for(params.num_lanes, [&](int lane) {
    const float* logits = params.logits + static_cast<std::int64_t>(lane) * params.vocabulary;
    params.tokens[lane] = scan_lane(logits, params.vocabulary, nullptr).token;
  });
}

void publish_tokens(simt::Pool& /*pool*/, const PublishParams& params) {
  for (int lane = 0; lane < params.num_lanes; ++lane) {
    const std::int32_t row = params.rows[lane];
    if (row >= 0 && params.tokens[lane] >= 0 && params.publish[lane] != 0) {
      params.last_token[row] = params.tokens[lane];
    }
  }
}

}  // namespace rigel::kernels::RIGEL_NATIVE

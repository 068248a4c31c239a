#include "kernels/log_probs_native.h"

#include "kernels/lane_native.h"
#include "simt/pool.h"

namespace rigel::kernels::RIGEL_NATIVE {
namespace {

constexpr int kMaxTop = 64;

/// The keys of the best `count` tokens, best first.
struct TopKeys {
  std::uint64_t keys[kMaxTop];
};

/// Keeps the keys of a source at or above the cutoff, sorted by insertion: there are at most 64.
template <class Source>
void collect(const Source& source, int count, TopKeys& top) {
  const Selection selection =
      select_prefix<false, true>(source, 0, static_cast<std::uint64_t>(count));
  int num_keys = 0;
  Source::each(source, [&](int, std::uint64_t key, std::uint64_t) {
    if (key < selection.cutoff) {
      return;
    }
    int place = num_keys++;
    for (; place > 0 && top.keys[place - 1] < key; --place) {
      top.keys[place] = top.keys[place - 1];
    }
    top.keys[place] = key;
  });
}

void find_top(const float* logits, int vocabulary, const SamplingRule& rule,
              const float* block_maxima, int count, TopKeys& top) {
  Candidates list;
  const int num_blocks = (vocabulary + kScanBlock - 1) / kScanBlock;
  const float threshold = bound_of_kth(block_maxima, num_blocks, count);
  if (list_candidates(logits, vocabulary, rule, threshold, list)) {
    collect(list, count, top);
  } else {
    collect(WholeLane{logits, vocabulary, rule}, count, top);
  }
}

void write_lane(const LogProbParams& params, int lane) {
  const int wanted = params.num_top[lane];
  if (wanted < 0) {
    return;
  }
  const int vocabulary = params.vocabulary;
  const float* logits = params.logits + static_cast<std::int64_t>(lane) * vocabulary;
  float block_maxima[kMaxScanBlocks];
  const NativeMaximum maximum = scan_lane(logits, vocabulary, wanted > 0 ? block_maxima : nullptr);
  const SamplingRule rule = sampling_rule(maximum.value, 1.0f, 0.0f);
  float log_sum = __builtin_nanf("");
  if (maximum.usable) {
    LaneMasses masses;
    sum_masses(logits, vocabulary, rule, masses);
    log_sum = log_of_mass(masses.levels[kNumLevels - 1].mass);
  }
  const int token = params.chosen[lane];
  const bool known = maximum.usable && token >= 0 && token < vocabulary;
  params.chosen_values[lane] =
      known ? log_prob(maximum.value, log_sum, logits[token]) : __builtin_nanf("");

  const int count = maximum.usable ? smaller(smaller(wanted, params.max_top), vocabulary) : 0;
  std::int32_t* tokens = params.top_tokens + static_cast<std::int64_t>(lane) * params.max_top;
  float* values = params.top_values + static_cast<std::int64_t>(lane) * params.max_top;
  TopKeys top;
  if (count > 0) {
    find_top(logits, vocabulary, rule, block_maxima, count, top);
  }
  for (int entry = 0; entry < params.max_top; ++entry) {
    const bool given = entry < count;
    tokens[entry] = given ? token_of(top.keys[entry]) : -1;
    values[entry] =
        given ? log_prob(maximum.value, log_sum, logits[tokens[entry]]) : -__builtin_inff();
  }
}

}  // namespace

void log_probs(simt::Pool& pool, const LogProbParams& params) {
  pool.parallel_for(params.num_lanes, [&](int lane) { write_lane(params, lane); });
}

}  // namespace rigel::kernels::RIGEL_NATIVE

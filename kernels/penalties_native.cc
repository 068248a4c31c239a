#include "kernels/penalties_native.h"

#include "kernels/native_math.h"
#include "simt/pool.h"

namespace rigel::kernels::RIGEL_NATIVE {

void apply_penalties(simt::Pool& pool, const PenaltyParams& params) {
  pool.parallel_for(params.num_lanes, [&](int lane) {
    const std::int32_t row = params.rows[lane];
    const std::int32_t slot = row < 0 ? -1 : params.slots[row];
    if (slot < 0) {
      return;
    }
    const std::int64_t vocabulary = params.vocabulary;
    const std::int32_t* counts = params.counts + slot * vocabulary;
    float* logits = params.logits + lane * vocabulary;
    const float repetition = params.repetition[row];
    const float presence = params.presence[row];
    const float frequency = params.frequency[row];
    const auto visit = [&](std::int64_t token) {
      if (counts[token] != 0) {
        logits[token] = penalised(logits[token], counts[token], repetition, presence, frequency);
      }
    };
    // Nearly all counts are zero: skip eight at a time.
    std::int64_t token = 0;
    for (; token + 8 <= vocabulary; token += 8) {
      const __m256i seen = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(counts + token));
      if (_mm256_testz_si256(seen, seen) == 0) {
        for (int i = 0; i < 8; ++i) {
          visit(token + i);
        }
      }
    }
    for (; token < vocabulary; ++token) {
      visit(token);
    }
  });
}

}  // namespace rigel::kernels::RIGEL_NATIVE

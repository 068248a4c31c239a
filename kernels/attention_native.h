#pragma once

#include "kernels/attention_params.h"
#include "kernels/native.h"

namespace rigel::kernels {

/// Attention on the CPU. Decode is prefill with a tile of one query: one text computes a chunk of keys for the query heads
/// of a kv head and one folds the chunks, so both phases give the same bits, for any number of threads.
///
/// A chunk is two small matrix products on panels of 16 keys (Q K^T, then P V) with one accumulator for each output, which
/// runs over head elements and keys in ascending order. Cost: near the FMA peak in prefill; in decode bound by widening K
/// and V, about 0.4 ns a head element and key.
RIGEL_DECLARE_NATIVE(void attend_decode(simt::Pool& pool, const AttendDecodeParams& params);
                     void attend_prefill(simt::Pool& pool, const AttendPrefillParams& params);)

}  // namespace rigel::kernels

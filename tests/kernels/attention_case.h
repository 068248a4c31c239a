#pragma once

// Attention problems and their oracle in double precision. What a request holds is a function of its seed and of the
// position alone, so the same query can be asked in any batch.

#include "kernels/attention.h"
#include "tests/kernels/kernel_test.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace rigel::kernels {

/// A request whose keys and values at positions [0, num_keys) are in the cache.
struct CachedRequest {
  std::uint64_t seed;
  int num_keys;
};

/// A token of the batch: position `position` of request `request`; request -1 is padding.
struct Query {
  int request;
  int position;
};

struct AttentionCase {
  Dtype dtype = Dtype::kBf16;
  int num_heads = 9;
  int num_kv_heads = 3;
  int head_size = 64;
  int page_size = 16;
  float soft_cap = 0;
  int window = 0;
  std::vector<CachedRequest> requests;
  std::vector<Query> queries;

  [[nodiscard]] float scale() const;
  [[nodiscard]] int num_tokens() const { return static_cast<int>(queries.size()); }
};

[[nodiscard]] std::string name_of_case(const AttentionCase& problem);

/// Runs of at most `tile` queries of one request (or of padding) as {first token, count} pairs.
[[nodiscard]] std::vector<std::int32_t> tiles_of(const AttentionCase& problem, int tile);

/// The output (T, H * D) by the formula; zeros for padding.
[[nodiscard]] std::vector<double> attention_oracle(const AttentionCase& problem);

class AttentionTest : public KernelTest {
 protected:
  /// Uploads a case: scattered pages, NaN in the sink, in every unused slot and page, and around q in the qkv matrix.
  [[nodiscard]] AttentionArgs upload_case(const AttentionCase& problem);
  /// The same, with key `hole.second` of request `hole.first` turned into NaN.
  [[nodiscard]] AttentionArgs upload_case(const AttentionCase& problem, std::pair<int, int> hole);
  [[nodiscard]] DeviceView upload_tiles(const std::vector<std::int32_t>& tiles);

  /// All tokens of the case by one launch; outputs as they are in memory.
  void decode(const AttentionArgs& args);
  void prefill(const AttentionArgs& args, const AttentionCase& problem, int tile);
};

/// Bytes of `num_tokens` outputs from token `first` on.
[[nodiscard]] std::vector<std::byte> output_rows(const std::vector<std::byte>& bits,
                                                 const AttentionCase& problem, int first,
                                                 int num_tokens);

}  // namespace rigel::kernels

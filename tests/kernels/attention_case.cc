#include "tests/kernels/attention_case.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace rigel::kernels {
namespace {

// Past the largest position of a case, so that a request's values do not depend on how many of them are cached.
constexpr int kMaxPositions = 1024;

/// `count` values of position `position` of a request; `stream` tells q, k and v apart.
std::vector<float> values_at(const AttentionCase& problem, int request, int position, int stream,
                             int count) {
  const std::uint64_t seed = problem.requests[static_cast<std::size_t>(request)].seed;
  const float scale = stream == 0 ? 3.0F : 1.0F;  // peaked, but not degenerate, weights
  return rounded(problem.dtype,
                 random_floats(count,
                               (seed * kMaxPositions + static_cast<std::uint64_t>(position)) * 3 +
                                   static_cast<std::uint64_t>(stream) + 1,
                               scale));
}

int pages_of(const CachedRequest& request, int page_size) {
  return (request.num_keys + page_size - 1) / page_size;
}

/// Page ids of all requests, in an order that no address arithmetic could guess. Page 0 is the sink.
std::vector<std::vector<std::int32_t>> scatter_pages(const AttentionCase& problem, int num_pages) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(num_pages - 1));
  std::iota(ids.begin(), ids.end(), 1);
  std::uint64_t state = 88172645463325252u;
  for (std::size_t i = ids.size(); i > 1; --i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::swap(ids[i - 1], ids[(state >> 33) % i]);
  }
  std::vector<std::vector<std::int32_t>> pages;
  std::size_t next = 0;
  for (const CachedRequest& request : problem.requests) {
    const auto count = static_cast<std::size_t>(pages_of(request, problem.page_size));
    pages.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(next),
                       ids.begin() + static_cast<std::ptrdiff_t>(next + count));
    next += count;
  }
  return pages;
}

double score_of(const AttentionCase& problem, const float* q, const float* k) {
  double product = 0;
  for (int d = 0; d < problem.head_size; ++d) {
    product += static_cast<double>(q[d]) * static_cast<double>(k[d]);
  }
  const double score = product * static_cast<double>(problem.scale());
  const double cap = static_cast<double>(problem.soft_cap);
  return cap > 0 ? cap * std::tanh(score / cap) : score;
}

/// One query of one head: softmax over the keys it sees, in two passes.
void attend_head(const AttentionCase& problem, const Query& query, int head,
                 const std::vector<std::vector<float>>& keys,
                 const std::vector<std::vector<float>>& values, const float* q, double* out) {
  const int kv_head = head / (problem.num_heads / problem.num_kv_heads);
  const int first = problem.window > 0 ? std::max(0, query.position - problem.window + 1) : 0;
  std::vector<double> scores;
  for (int key = first; key <= query.position; ++key) {
    scores.push_back(score_of(problem, q,
                              keys[static_cast<std::size_t>(key)].data() +
                                  static_cast<std::ptrdiff_t>(kv_head) * problem.head_size));
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) {
    score = std::exp(score - largest);
    sum += score;
  }
  for (int key = first; key <= query.position; ++key) {
    const double weight = scores[static_cast<std::size_t>(key - first)] / sum;
    const float* v = values[static_cast<std::size_t>(key)].data() +
                     static_cast<std::ptrdiff_t>(kv_head) * problem.head_size;
    for (int d = 0; d < problem.head_size; ++d) {
      out[d] += weight * static_cast<double>(v[d]);
    }
  }
}

}  // namespace

std::string name_of_case(const AttentionCase& problem) {
  return fmt::format("{} H {} G {} D {} S {} window {} cap {}", name_of(problem.dtype),
                     problem.num_heads, problem.num_kv_heads, problem.head_size, problem.page_size,
                     problem.window, problem.soft_cap);
}

float AttentionCase::scale() const {
  return 1.0F / std::sqrt(static_cast<float>(head_size));
}

std::vector<std::int32_t> tiles_of(const AttentionCase& problem, int tile) {
  std::vector<std::int32_t> tiles;
  const auto same_run = [&](int a, int b) {
    const Query& left = problem.queries[static_cast<std::size_t>(a)];
    const Query& right = problem.queries[static_cast<std::size_t>(b)];
    return left.request == right.request;
  };
  for (int first = 0; first < problem.num_tokens();) {
    int end = first + 1;
    while (end < problem.num_tokens() && end - first < tile && same_run(first, end)) {
      ++end;
    }
    tiles.insert(tiles.end(), {first, end - first});
    first = end;
  }
  return tiles;
}

std::vector<double> attention_oracle(const AttentionCase& problem) {
  const int kv_size = problem.num_kv_heads * problem.head_size;
  const int q_size = problem.num_heads * problem.head_size;
  std::vector<std::vector<std::vector<float>>> keys;
  std::vector<std::vector<std::vector<float>>> values;
  for (std::size_t request = 0; request < problem.requests.size(); ++request) {
    keys.emplace_back();
    values.emplace_back();
    for (int position = 0; position < problem.requests[request].num_keys; ++position) {
      const int index = static_cast<int>(request);
      keys.back().push_back(values_at(problem, index, position, 1, kv_size));
      values.back().push_back(values_at(problem, index, position, 2, kv_size));
    }
  }
  std::vector<double> out(static_cast<std::size_t>(problem.num_tokens() * q_size), 0.0);
  for (std::size_t token = 0; token < problem.queries.size(); ++token) {
    const Query& query = problem.queries[token];
    if (query.request < 0) {
      continue;
    }
    const auto request = static_cast<std::size_t>(query.request);
    const std::vector<float> q = values_at(problem, query.request, query.position, 0, q_size);
    for (int head = 0; head < problem.num_heads; ++head) {
      const std::ptrdiff_t offset = static_cast<std::ptrdiff_t>(head) * problem.head_size;
      attend_head(problem, query, head, keys[request], values[request], q.data() + offset,
                  out.data() + static_cast<std::ptrdiff_t>(token) * q_size + offset);
    }
  }
  return out;
}

AttentionArgs AttentionTest::upload_case(const AttentionCase& problem) {
  return upload_case(problem, {-1, -1});
}

AttentionArgs AttentionTest::upload_case(const AttentionCase& problem, std::pair<int, int> hole) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::int64_t heads = problem.num_heads;
  const std::int64_t kv_heads = problem.num_kv_heads;
  const std::int64_t d = problem.head_size;
  const std::int64_t s = problem.page_size;
  int num_pages = 3;  // the sink and two that nobody owns
  int max_pages = 1;
  for (const CachedRequest& request : problem.requests) {
    num_pages += pages_of(request, problem.page_size);
    max_pages = std::max(max_pages, pages_of(request, problem.page_size) + 1);
  }
  const auto pages = scatter_pages(problem, num_pages);
  std::vector<float> cache(static_cast<std::size_t>(num_pages * 2 * kv_heads * s * d), nan);
  std::vector<std::int32_t> table(problem.requests.size() * static_cast<std::size_t>(max_pages), 0);
  for (std::size_t row = 0; row < problem.requests.size(); ++row) {
    std::copy(pages[row].begin(), pages[row].end(),
              table.begin() + static_cast<std::ptrdiff_t>(row) * max_pages);
    for (int position = 0; position < problem.requests[row].num_keys; ++position) {
      const std::int64_t page = pages[row][static_cast<std::size_t>(position / s)];
      for (int part = 0; part < 2; ++part) {
        const auto line = values_at(problem, static_cast<int>(row), position, part + 1,
                                    static_cast<int>(kv_heads * d));
        const bool is_hole = hole == std::pair(static_cast<int>(row), position);
        for (std::int64_t kv_head = 0; kv_head < kv_heads; ++kv_head) {
          for (std::int64_t i = 0; i < d; ++i) {
            const std::int64_t at =
                (((page * 2 + part) * kv_heads + kv_head) * s + position % s) * d + i;
            cache[static_cast<std::size_t>(at)] =
                is_hole ? nan : line[static_cast<std::size_t>(kv_head * d + i)];
          }
        }
      }
    }
  }
  const std::int64_t num_tokens = problem.num_tokens();
  const std::int64_t width = (heads + 2 * kv_heads) * d;
  std::vector<float> qkv(static_cast<std::size_t>(num_tokens * width), nan);
  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> positions;
  for (const Query& query : problem.queries) {
    if (query.request >= 0) {
      const auto q =
          values_at(problem, query.request, query.position, 0, static_cast<int>(heads * d));
      std::copy(q.begin(), q.end(), qkv.begin() + static_cast<std::ptrdiff_t>(rows.size()) * width);
    }
    rows.push_back(query.request);
    positions.push_back(query.request < 0 ? -1 : query.position);
  }
  AttentionArgs args;
  args.out = output(problem.dtype, {num_tokens, heads * d});
  args.q = upload(problem.dtype, {num_tokens, width}, qkv).slice(1, 0, heads * d);
  args.kv_layer = upload(problem.dtype, {num_pages, 2, kv_heads, s, d}, cache);
  args.page_table = upload({static_cast<std::int64_t>(problem.requests.size()), max_pages}, table);
  args.token_rows = upload({num_tokens}, rows);
  args.positions = upload({num_tokens}, positions);
  args.scale = problem.scale();
  args.soft_cap = problem.soft_cap;
  args.window = problem.window;
  return args;
}

DeviceView AttentionTest::upload_tiles(const std::vector<std::int32_t>& tiles) {
  return upload({static_cast<std::int64_t>(tiles.size() / 2), 2}, tiles);
}

void AttentionTest::decode(const AttentionArgs& args) {
  const int num_tokens = static_cast<int>(args.q.dim(0));
  const std::int64_t max_context = args.page_table.dim(1) * args.kv_layer.dim(3);
  attend_decode(stream(), args, 0, num_tokens,
                workspace(attend_decode_workspace_bytes(num_tokens, static_cast<int>(max_context),
                                                        static_cast<int>(args.q.dim(1)),
                                                        static_cast<int>(args.q.dim(2)))));
}

void AttentionTest::prefill(const AttentionArgs& args, const AttentionCase& problem, int tile) {
  attend_prefill(stream(), args, upload_tiles(tiles_of(problem, tile)));
}

std::vector<std::byte> output_rows(const std::vector<std::byte>& bits, const AttentionCase& problem,
                                   int first, int num_tokens) {
  const auto row_bytes = static_cast<std::ptrdiff_t>(
      static_cast<std::size_t>(problem.num_heads * problem.head_size) * size_of(problem.dtype));
  return {bits.begin() + first * row_bytes, bits.begin() + (first + num_tokens) * row_bytes};
}

}  // namespace rigel::kernels

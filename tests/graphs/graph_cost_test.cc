// Costs of captured steps as functions of tokens and context, from two of their buckets.

#include "graphs/graph_cost.h"

#include "tensor/error.h"

#include <gtest/gtest.h>

namespace rigel {
namespace {

/// A product of `n` rows, and attention that reads 6 bytes and computes 8 FLOP a cached token.
GraphManifest manifest_of(std::int64_t n, std::int64_t context) {
  GraphManifest graph;
  graph.bucket.num_tokens = n;
  simt::Traffic attention{2 * n + 6 * context, 2 * n, 8 * context};
  attention.context = {context, 6, 8};
  graph.launches = {{"gemm", {100 + 4 * n, 2 * n, 200 * n}, 0}, {"attend", attention, 1}};
  return graph;
}

TEST(GraphCost, IsAffineInTokensAndInWhatTheySee) {
  const auto costs = launch_costs(manifest_of(1, 50), manifest_of(8, 800));
  ASSERT_TRUE(costs.has_value());
  ASSERT_EQ(costs->size(), 2U);
  const LaunchCost& gemm = (*costs)[0];
  EXPECT_STREQ(gemm.operation, "gemm");
  EXPECT_EQ(gemm.layer, 0);
  EXPECT_DOUBLE_EQ(gemm.read_bytes.fixed, 100);
  EXPECT_DOUBLE_EQ(gemm.read_bytes.per_token, 4);
  EXPECT_DOUBLE_EQ(gemm.read_bytes.per_context_token, 0);
  EXPECT_DOUBLE_EQ(gemm.flops(3, 999), 600);
  const LaunchCost& attend = (*costs)[1];
  EXPECT_EQ(attend.layer, 1);
  EXPECT_DOUBLE_EQ(attend.read_bytes(5, 123), 2 * 5 + 6 * 123);
  EXPECT_DOUBLE_EQ(attend.written_bytes(5, 123), 2 * 5);
  EXPECT_DOUBLE_EQ(attend.flops(5, 123), 8 * 123);
}

TEST(GraphCost, BucketsThatLaunchDifferentThingsHaveNone) {
  const GraphManifest small = manifest_of(1, 50);
  GraphManifest large = manifest_of(8, 800);
  large.launches[1].layer = 2;
  EXPECT_FALSE(launch_costs(small, large).has_value());
  large.launches.pop_back();
  EXPECT_FALSE(launch_costs(small, large).has_value());
  EXPECT_THROW(static_cast<void>(launch_costs(small, small)), CheckError);
}

}  // namespace
}  // namespace rigel

// Landing and routing in one pass over the lanes is landing, then routing.

#include "tests/worker/walk_models.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <map>
#include <random>

namespace rigel {
namespace {

using testing::NamedWalks;

/// Two runtimes that are told the same: the first completes a step by the two calls, the other by the one.
class BothWays : public ::testing::TestWithParam<int> {
 protected:
  static constexpr std::int32_t kNumRows = 7;
  using Batch = std::vector<RequestHandle>;

  bool chance(int percent) { return static_cast<int>(random_() % 100) < percent; }
  template <class Call>
  void both(const Call& call) {
    for (NamedWalks& walks : sides_) {
      call(walks);
    }
  }
  [[nodiscard]] bool lives(RequestHandle handle) const {
    const auto found = owners_.find(handle.row);
    return found != owners_.end() && found->second == handle;
  }

  void begin_pass(RequestHandle handle) {
    const auto max_iters = static_cast<std::int32_t>(1 + random_() % 8);
    const bool has_tensor = chance(20);
    both([&](NamedWalks& walks) {
      walks.runtime.set_loop(handle, decode_.walk, loop_, max_iters);
      walks.send(handle, "LLM", "text_inputs",
                 has_tensor ? TensorList{testing::value(1)} : TensorList{});
    });
  }
  void come_and_go() {
    for (std::int32_t row = 0; row < kNumRows; ++row) {
      const auto owner = owners_.find(row);
      if (owner == owners_.end() && chance(30)) {
        ++generation_;
        both([&](NamedWalks& walks) { owners_[row] = walks.add(row, "decode", generation_); });
        begin_pass(owners_[row]);
      } else if (owner != owners_.end() && chance(2)) {
        both([&](NamedWalks& walks) { walks.runtime.remove_request(owner->second); });
        owners_.erase(owner);
      }
    }
  }
  /// Whose walk is over leaves, as a request does that has its last token, or begins the walk anew.
  void end(const std::vector<RequestHandle>& finished) {
    for (const RequestHandle handle : finished) {
      if (chance(50)) {
        both([&](NamedWalks& walks) { walks.runtime.remove_request(handle); });
        owners_.erase(handle.row);
      } else {
        both([&](NamedWalks& walks) { walks.runtime.set_walk(handle, decode_.walk); });
        begin_pass(handle);
      }
    }
  }
  [[nodiscard]] Batch build(const Batch* in_front) {
    Batch batch;
    if (in_front != nullptr && chance(85)) {
      std::array<SpeculatedRows, 2> rows;
      std::vector<std::uint32_t> returned;
      const bool settles = chance(90);
      for (std::size_t side = 0; side < 2; ++side) {
        WalkRuntime& runtime = sides_[side].runtime;
        runtime.speculate(decode_, decode_.node, *in_front, kNumRows, {}, rows[side]);
        settles ? runtime.commit(rows[side].id, {}, {}, returned)
                : runtime.abandon(rows[side].id, {}, returned);
      }
      EXPECT_EQ(rows[0].handles, rows[1].handles);
      EXPECT_EQ(rows[0].iterations, rows[1].iterations);
      batch = settles ? rows[0].handles : Batch();
    }
    std::array<ReadyNodes, 2> ready;
    for (std::size_t side = 0; side < 2; ++side) {
      sides_[side].runtime.ready_nodes(nullptr, decode_, std::nullopt, ready[side]);
    }
    EXPECT_EQ(ready[0].handles, ready[1].handles);
    both([&](NamedWalks& walks) {
      EXPECT_TRUE(walks.runtime.pop(decode_, ready[0].handles, /*check_ready=*/true));
    });
    batch.insert(batch.end(), ready[0].handles.begin(), ready[0].handles.end());
    return batch;
  }
  void complete(const Batch& batch) {
    std::vector<LoopStop> stops;
    for (const RequestHandle handle : batch) {
      if (lives(handle) && chance(8)) {
        stops.push_back({handle, loop_});
      }
    }
    std::array<std::vector<std::uint32_t>, 2> wasted;
    std::vector<LoopStop> stopped;
    WalkRuntime& apart = sides_[0].runtime;
    apart.land(decode_, batch, wasted[0]);
    Batch left;
    for (std::uint32_t lane = 0; lane < batch.size(); ++lane) {
      if (std::ranges::find(wasted[0], lane) == wasted[0].end()) {
        left.push_back(batch[lane]);
      }
    }
    apart.stop_loops(decode_, stops, stopped);
    apart.route({decode_, left, {}}, sides_[0].routed);
    WalkRuntime& together = sides_[1].runtime;
    together.stop_loops(decode_, stops, stopped);
    together.land_and_route(decode_, batch, wasted[1], sides_[1].routed);

    ASSERT_EQ(wasted[0], wasted[1]);
    ASSERT_EQ(sides_[0].routed.finished_walks, sides_[1].routed.finished_walks);
    ASSERT_EQ(sides_[0].routed.ended_loops, sides_[1].routed.ended_loops);
    num_wasted_ += wasted[0].size();
    num_on_ += left.size() - sides_[0].routed.finished_walks.size();
    for (const auto& [row, handle] : owners_) {
      ASSERT_EQ(sides_[0].iteration(handle, "decode", "decode_loop"),
                sides_[1].iteration(handle, "decode", "decode_loop"));
    }
    end(std::vector(sides_[0].routed.finished_walks));
  }

  std::array<NamedWalks, 2> sides_{
      NamedWalks(walk::compile(testing::language_model_walks(), {}), kNumRows),
      NamedWalks(walk::compile(testing::language_model_walks(), {}), kNumRows)};
  const WalkNode decode_ = sides_[0].at("decode", "LLM");
  const LoopId loop_ = sides_[0].loop("decode_loop");
  std::mt19937 random_{static_cast<unsigned>(GetParam())};
  std::map<std::int32_t, RequestHandle> owners_;  // by row
  std::uint32_t generation_ = 0;
  std::size_t num_wasted_ = 0;
  std::size_t num_on_ = 0;
};

TEST_P(BothWays, EndAlikeWhateverComesStopsAndLeaves) {
  std::deque<Batch> flying;
  for (int step = 0; step < 2000 && !HasFailure(); ++step) {
    come_and_go();
    if (Batch batch = build(flying.empty() ? nullptr : &flying.back()); !batch.empty()) {
      flying.push_back(std::move(batch));
    }
    if (!flying.empty() && (flying.size() == 2 || chance(30))) {
      const Batch front = flying.front();
      flying.pop_front();
      complete(front);
    }
  }
  EXPECT_FALSE(HasFailure()) << "seed " << GetParam();
  EXPECT_GT(num_wasted_, 100U);
  EXPECT_GT(num_on_, 2000U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, BothWays, ::testing::Range(0, 2));

}  // namespace
}  // namespace rigel

// The runtime against a plain model of one looping node, under everything a worker may do to it, in random order.

#include "tests/worker/walk_models.h"
#include "worker/thread_costs.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

namespace rigel {
namespace {

using testing::NamedWalks;
using testing::number_in;
using testing::value;

/// step(x, constant, frame) in a loop: x counts the iterations, each of which takes a chunk of a stream.
walk::Program looping_node() {
  const walk::Node source{.name = "source",
                          .inputs = {"in"},
                          .outputs = {{.signal = "frame",
                                       .next_node = "step",
                                       .is_streaming = true,
                                       .target_partition = "sink"}}};
  const walk::Node step{.name = "step",
                        .inputs = {"x", "constant", "frame"},
                        .outputs = {{.signal = "x", .next_node = "step"},
                                    {.signal = "wave", .next_node = walk::kEmitToClient},
                                    {.signal = "all", .next_node = walk::kNowhere}},
                        .streaming_inputs = {"frame"}};
  return walk::compile(
      {.walks = {{"produce", source},
                 {"loop", walk::Loop{.name = "steps",
                                     .sections = {step},
                                     .accumulated_outputs = {{.signal = "all",
                                                              .next_node = walk::kEmitToClient}}}}},
       .partitions = {{.name = "source", .walks = {"produce"}, .initial_walk = "produce"},
                      {.name = "sink",
                       .walks = {"loop"},
                       .initial_walk = "loop",
                       .producer_partitions = {"source"}}},
       .connections = {{"source", "sink", "frame", walk::FixedChunks{1}}}},
      {});
}

struct Flight {
  std::int32_t iteration = 0;
  std::int32_t frame = 0;
  bool wasted = false;
};

/// One request, as simple as it can be told.
struct Plain {
  std::int32_t iteration = 0;
  std::int32_t max_iters = 0;
  bool ended = false;
  std::optional<std::int32_t> frame;  // here for this iteration
  std::deque<Flight> flights;
  std::deque<std::int32_t> stream;  // chunks that wait in the buffer

  [[nodiscard]] bool is_ready() const {
    return !ended && frame && std::ranges::all_of(flights, &Flight::wasted);
  }
  void end() {
    ended = true;
    for (Flight& flight : flights) {
      flight.wasted = true;
    }
  }
};

class RandomWalks : public ::testing::TestWithParam<int> {
 protected:
  static constexpr std::int32_t kNumRows = 6;
  using Batch = std::vector<RequestHandle>;

  bool chance(int percent) { return static_cast<int>(random_() % 100) < percent; }
  std::int32_t below(std::int32_t end) {
    return static_cast<std::int32_t>(random_() % static_cast<unsigned>(end));
  }
  Plain& plain(RequestHandle handle) { return plains_.at(handle.row).second; }
  bool lives(RequestHandle handle) {
    const auto found = plains_.find(handle.row);
    return found != plains_.end() && found->second.first == handle;
  }
  std::vector<RequestHandle> living() {
    std::vector<RequestHandle> handles;
    for (const auto& [row, request] : plains_) {
      handles.push_back(request.first);
    }
    return handles;
  }

  void begin_pass(RequestHandle handle) {
    Plain& request = plain(handle);
    request.iteration = 0;
    request.max_iters = 1 + below(6);
    request.ended = false;
    request.frame.reset();
    walks_.runtime.set_loop(handle, node_.walk, loop_, request.max_iters);
    ASSERT_TRUE(walks_.send(handle, "step", "x", {value(0)}));
    ASSERT_TRUE(walks_.send(handle, "step", "constant", {value(77)}));
  }
  void add_some() {
    for (std::int32_t row = 0; row < kNumRows; ++row) {
      if (!plains_.contains(row) && chance(40)) {
        const RequestHandle handle = walks_.add(row, "loop", ++generation_);
        plains_[row] = {handle, {}};
        begin_pass(handle);
      }
    }
  }
  void remove_or_restart_some() {
    for (const RequestHandle handle : living()) {
      if (chance(2)) {
        walks_.runtime.remove_request(handle);
        plains_.erase(handle.row);
      } else if (plain(handle).ended && chance(50)) {
        // Its wasted steps may still be in flight.
        const bool has_left_before = left_.contains(handle.row) && left_[handle.row] == handle;
        if (has_left_before && !plain(handle).flights.empty()) {
          continue;
        }
        left_[handle.row] = handle;
        walks_.runtime.set_walk(handle, node_.walk);
        begin_pass(handle);
      }
    }
  }
  void feed_some() {
    for (const RequestHandle handle : living()) {
      Plain& request = plain(handle);
      if (request.stream.empty() && chance(70)) {
        request.stream.push_back(next_frame_++);
      }
      if (request.stream.empty() || !chance(70)) {
        continue;
      }
      const std::int32_t frame = request.stream.front();
      const bool has_place = !request.ended && !request.frame &&
                             std::ranges::none_of(request.flights, [&](const Flight& flight) {
                               return !flight.wasted && flight.iteration == request.iteration;
                             });
      const bool taken = walks_.send(handle, "step", "frame", {value(frame)}, false, true);
      ASSERT_EQ(taken, has_place);
      if (taken) {
        request.frame = frame;
        request.stream.pop_front();
      }
    }
  }

  /// Ready rows, some of them, popped into `batch`.
  void pop_some(Batch& batch) {
    ReadyNodes ready;
    walks_.runtime.ready_nodes(nullptr, node_, std::nullopt, ready);
    std::vector<RequestHandle> expected;
    for (const RequestHandle handle : living()) {
      if (plain(handle).is_ready()) {
        expected.push_back(handle);
      }
    }
    ASSERT_EQ(ready.handles, expected);
    for (const RequestHandle handle : ready.handles) {
      if (chance(20)) {
        continue;
      }
      ASSERT_TRUE(walks_.pop(handle, node_));
      if (chance(10)) {
        walks_.runtime.push_back(node_, std::span(&handle, 1));
        continue;
      }
      Plain& request = plain(handle);
      request.flights.push_back({request.iteration, *request.frame});
      batch.push_back(handle);
    }
  }
  void speculate(const Batch& flying, Batch& batch) {
    std::vector<StreamOffer> offers;
    std::vector<RequestHandle> expected;
    for (const RequestHandle handle : flying) {
      if (!lives(handle)) {
        continue;
      }
      Plain& request = plain(handle);
      const bool offers_chunk = !request.stream.empty() && chance(80);
      if (offers_chunk) {
        offers.push_back({handle, walks_.signal("frame"), {value(request.stream.front())}});
      }
      const Flight& newest = request.flights.back();
      if (offers_chunk && !newest.wasted && newest.iteration + 1 < request.max_iters) {
        expected.push_back(handle);
      }
    }
    SpeculatedRows rows;
    std::vector<std::uint32_t> returned;
    walks_.runtime.speculate(node_, node_.node, flying, 1000, offers, rows);
    ASSERT_EQ(rows.handles, expected);
    ASSERT_EQ(rows.accepted_offers.size(), expected.size());
    if (chance(25)) {
      walks_.runtime.abandon(rows.id, offers, returned);
      ASSERT_EQ(returned.size(), expected.size());
      return;
    }
    std::vector<RequestHandle> dropped;
    for (const RequestHandle handle : expected) {
      if (chance(15)) {
        dropped.push_back(handle);
      }
    }
    walks_.runtime.commit(rows.id, dropped, offers, returned);
    ASSERT_EQ(returned.size(), dropped.size());
    for (const RequestHandle handle : expected) {
      if (std::ranges::find(dropped, handle) == dropped.end()) {
        Plain& request = plain(handle);
        request.flights.push_back({request.flights.back().iteration + 1, request.stream.front()});
        request.stream.pop_front();
        batch.push_back(handle);
      }
    }
  }

  void complete(const Batch& batch) {
    std::vector<std::uint32_t> expected_waste;
    std::vector<RequestHandle> left;
    for (std::uint32_t lane = 0; lane < batch.size(); ++lane) {
      if (!lives(batch[lane])) {
        expected_waste.push_back(lane);
        continue;
      }
      Plain& request = plain(batch[lane]);
      const Flight flight = request.flights.front();
      request.flights.pop_front();
      if (flight.wasted) {
        expected_waste.push_back(lane);
        continue;
      }
      ASSERT_EQ(flight.iteration, request.iteration);
      ASSERT_EQ(number_in(walks_.input(batch[lane], node_, "x").at(0)), request.iteration);
      ASSERT_EQ(number_in(walks_.input(batch[lane], node_, "constant").at(0)), 77);
      ASSERT_EQ(number_in(walks_.input(batch[lane], node_, "frame").at(0)), flight.frame);
      request.frame.reset();
      left.push_back(batch[lane]);
    }
    std::vector<std::uint32_t> wasted;
    walks_.runtime.land(node_, batch, wasted);
    ASSERT_EQ(wasted, expected_waste);
    route(left);
  }
  void route(const std::vector<RequestHandle>& left) {
    std::vector<LoopStop> stops;
    std::vector<LoopStop> stopped;
    std::deque<SignalMap> outputs;
    std::vector<const SignalMap*> columns;
    for (const RequestHandle handle : left) {
      if (chance(10)) {
        stops.push_back({handle, loop_});
      }
      SignalMap& row = outputs.emplace_back();
      row.assign(walks_.signal("x"), {value(plain(handle).iteration + 1)});
      row.assign(walks_.signal("wave"), {value(1)});
      row.assign(walks_.signal("all"), {value(plain(handle).iteration)});
      columns.push_back(&row);
    }
    walks_.runtime.stop_loops(node_, stops, stopped);
    ASSERT_EQ(stopped.size(), stops.size());
    walks_.runtime.route({node_, left, columns}, walks_.routed);
    std::vector<RequestHandle> finished;
    std::size_t num_client_values = left.size();
    for (const RequestHandle handle : left) {
      Plain& request = plain(handle);
      const bool stops_now = std::ranges::any_of(
          stops, [handle](const LoopStop& stop) { return stop.handle == handle; });
      if (stops_now || request.iteration + 1 == request.max_iters) {
        request.end();
        finished.push_back(handle);
        ++num_client_values;
      } else {
        ++request.iteration;
        if (!request.flights.empty() && !request.flights.front().wasted) {
          request.frame = request.flights.front().frame;
        }
      }
    }
    ASSERT_EQ(walks_.routed.finished_walks, finished);
    ASSERT_EQ(walks_.routed.to_client.size(), num_client_values);
  }

  NamedWalks walks_{looping_node(), kNumRows};
  const WalkNode node_ = walks_.at("loop", "step");
  const LoopId loop_ = walks_.loop("steps");
  std::mt19937 random_{static_cast<unsigned>(GetParam())};
  std::map<std::int32_t, std::pair<RequestHandle, Plain>> plains_;  // by row
  std::map<std::int32_t, RequestHandle> left_;
  std::uint32_t generation_ = 0;
  std::int32_t next_frame_ = 0;
};

TEST_P(RandomWalks, T_GR_13_ten_thousand_steps_agree_with_a_plain_model_and_leak_no_tensor) {
  std::deque<Batch> flying;
  for (int step = 0; step < 10000 && !HasFatalFailure(); ++step) {
    add_some();
    feed_some();
    Batch batch;
    if (!flying.empty() && flying.size() < 2 && chance(80)) {
      speculate(flying.back(), batch);
    }
    if (HasFatalFailure()) {
      break;
    }
    if (flying.size() < 2) {
      pop_some(batch);
    }
    if (!batch.empty()) {
      flying.push_back(batch);
    }
    if (!HasFatalFailure() && !flying.empty() && (flying.size() == 2 || chance(50))) {
      const Batch front = flying.front();
      flying.pop_front();
      complete(front);
    }
    if (!HasFatalFailure()) {
      remove_or_restart_some();
    }
  }
  ASSERT_FALSE(HasFatalFailure()) << "seed " << GetParam();
  for (const RequestHandle handle : living()) {
    walks_.runtime.remove_request(handle);
  }
  EXPECT_EQ(walks_.runtime.num_tensors(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomWalks, ::testing::Range(0, 2));

TEST(WalkRuntime, AThousandRowsDecodeOneStepAheadWithoutMemory) {
  NamedWalks walks(walk::compile(testing::language_model_walks(), {}), 1024);
  const WalkNode decode = walks.at("decode", "LLM");
  std::vector<RequestHandle> flying;
  std::vector<RequestInfo> infos(1024);
  std::vector<RequestInfo*> shared;
  for (std::int32_t row = 0; row < 1024; ++row) {
    flying.push_back(walks.add(row, "decode"));
    walks.send(flying.back(), "LLM", "text_inputs");
    shared.push_back(&infos[static_cast<std::size_t>(row)]);
  }
  ASSERT_TRUE(walks.runtime.pop(decode, flying, true));
  std::vector<SpeculationTarget> targets;
  SpeculatedRows rows;
  std::vector<std::uint32_t> lanes;
  std::vector<LoopStop> stopped;
  ReadyNodes ready;
  const auto step = [&] {
    walks.runtime.targets(decode, flying[0], targets);
    walks.runtime.speculate(decode, targets[0].node, flying, 1024, {}, rows);
    walks.runtime.commit(rows.id, {}, {}, lanes);
    walks.runtime.land(decode, flying, lanes);
    walks.runtime.stop_loops(decode, {}, stopped);
    walks.runtime.route({decode, flying, {}}, walks.routed);
    walks.runtime.update_loop_counters(decode.walk, flying, shared);
    walks.runtime.ready_nodes(nullptr, std::nullopt, std::nullopt, ready);
    std::swap(flying, rows.handles);
  };
  for (int warm = 0; warm < 10; ++warm) {
    step();
  }
  const std::int64_t before = thread_costs().allocations;
  for (int steady = 0; steady < 100; ++steady) {
    step();
  }
  EXPECT_EQ(thread_costs().allocations - before, 0);
  EXPECT_EQ(flying.size(), 1024U);
  EXPECT_EQ(infos[1023].loop_counters.count(walks.loop("decode_loop")), 110);
}

}  // namespace
}  // namespace rigel

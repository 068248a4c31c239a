#include "engine/contract/request_state.h"

#include "engine/contract/engine_inputs.h"
#include "engine/contract/host_rows.h"
#include "tests/engine/device_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace rigel {
namespace {

using ::testing::ElementsAre;
using testing::host_ids;

constexpr StateKey kLatents{0};
constexpr StateKey kSteps{1};
constexpr StateKey kScheduler{2};
constexpr RequestHandle kFirst{0, 1};
constexpr RequestHandle kSecond{3, 1};
constexpr RequestHandle kPaddingLane{-1, 0};

class Scheduler final : public Opaque {
 public:
  int step = 0;
};

TEST(PerRequestStateTest, T_PS_1_a_key_holds_one_value_of_one_kind) {
  PerRequestState state;
  state.add(kLatents, 1.5);
  state.add(kLatents, host_ids({1}));
  EXPECT_EQ(state.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<Tensor>(*state.find(kLatents)));
  state.add(kLatents, std::int64_t{2});
  EXPECT_EQ(state.get<std::int64_t>(kLatents), 2);
  EXPECT_THROW(std::ignore = state.get<Tensor>(kLatents), CheckError);
}

TEST(PerRequestStateTest, T_PS_2_one_key_or_several_are_removed_with_their_marks) {
  PerRequestState state;
  state.add(kLatents, host_ids({1}));
  state.add(kSteps, std::int64_t{4});
  state.share(kLatents);
  EXPECT_TRUE(state.is_shared(kLatents));
  EXPECT_FALSE(state.is_shared(kSteps));
  EXPECT_THROW(state.share(kScheduler), CheckError);
  state.remove(kLatents);
  EXPECT_FALSE(state.contains(kLatents));
  state.add(kLatents, true);
  EXPECT_FALSE(state.is_shared(kLatents));
  state.remove(std::array{kLatents, kSteps, kScheduler});
  EXPECT_TRUE(state.empty());
}

TEST(PerRequestStateTest, T_PS_3_a_models_own_object_is_kept_and_changed_in_place) {
  PerRequestState state;
  state.add(kScheduler, std::make_unique<Scheduler>());
  static_cast<Scheduler&>(*state.get<std::unique_ptr<Opaque>>(kScheduler)).step = 3;
  EXPECT_EQ(static_cast<Scheduler&>(*state.get<std::unique_ptr<Opaque>>(kScheduler)).step, 3);
  EXPECT_EQ(state.find(kSteps), nullptr);
}

TEST(LazyRequestStatesTest, T_PS_4_looking_at_the_step_makes_no_state) {
  RequestStateStore store;
  const std::array handles{kSecond, kFirst, kPaddingLane};
  const LazyRequestStates states(store, handles);
  EXPECT_EQ(states.size(), 3u);
  EXPECT_THAT(std::vector(states.begin(), states.end()),
              ElementsAre(kSecond, kFirst, kPaddingLane));
  EXPECT_TRUE(states.contains(kPaddingLane));
  EXPECT_EQ(store.size(), 0u);
}

TEST(LazyRequestStatesTest, T_PS_5_a_request_outside_the_step_is_refused_and_nothing_changes) {
  RequestStateStore store;
  store.open(kFirst);
  store.open(kSecond);
  const std::array handles{kFirst, RequestHandle{5, 1}};
  const LazyRequestStates states(store, handles);
  EXPECT_FALSE(states.contains(kSecond));
  EXPECT_THROW(std::ignore = states.at(kSecond), CheckError);
  EXPECT_THROW(std::ignore = states.lane(1), CheckError) << "nobody admitted it";
  EXPECT_EQ(store.size(), 2u);
}

TEST(LazyRequestStatesTest, T_PS_6_a_padding_row_has_a_state_of_its_own) {
  RequestStateStore store;
  store.open(kFirst);
  const std::array handles{kFirst, kPaddingLane};
  const LazyRequestStates states(store, handles);
  states.lane(0).add(kSteps, std::int64_t{1});
  EXPECT_TRUE(states.at(kPaddingLane).empty());
  states.at(kPaddingLane).add(kSteps, std::int64_t{2});
  EXPECT_EQ(states.at(kFirst).get<std::int64_t>(kSteps), 1);
}

TEST(RequestStateStoreTest, T_PS_7_a_removed_request_leaves_nothing_to_the_next_owner_of_its_row) {
  RequestStateStore store;
  PerRequestState& state = store.open(kFirst);
  state.add(kSteps, std::int64_t{1});
  for (int row = 10; row < 200; ++row) {
    store.open({row, 1});
  }
  EXPECT_EQ(store.find(kFirst), &state) << "addresses are stable";
  EXPECT_EQ(&store.open(kFirst), &state) << "open already";
  const RequestHandle next{kFirst.row, kFirst.generation + 1};
  EXPECT_EQ(store.find(next), nullptr);
  EXPECT_THROW(store.open(next), CheckError) << "the row is taken";
  store.erase(next);
  EXPECT_NE(store.find(kFirst), nullptr);
  store.erase(kFirst);
  store.erase(kFirst);
  EXPECT_EQ(store.find(kFirst), nullptr);
  EXPECT_EQ(store.size(), 190u);
  EXPECT_TRUE(store.open(next).empty());
  EXPECT_EQ(store.find(kFirst), nullptr);
}

TEST(RequestStateStoreTest, C_1_states_keep_their_place_while_rows_are_added) {
  RequestStateStore store;
  PerRequestState& state = store.open(kFirst);
  state.add(kSteps, std::int64_t{7});
  for (int row = 10; row < 2000; ++row) {
    store.open({row, 1});
  }
  EXPECT_EQ(state.get<std::int64_t>(kSteps), 7);
  EXPECT_EQ(&store.at(kFirst), &state);
}

class EngineInputsTest : public ::testing::Test {
 protected:
  ModelInputsFromEngine inputs_of(std::initializer_list<RequestHandle> lanes) {
    handles.assign(lanes);
    infos.resize(handles.size());
    pointers.clear();
    for (std::size_t lane = 0; lane < handles.size(); ++lane) {
      infos[lane].handle = handles[lane];
      pointers.push_back(&infos[lane]);
    }
    ModelInputsFromEngine inputs;
    inputs.handles = handles;
    inputs.infos = pointers;
    return inputs;
  }
  std::vector<RequestHandle> handles;
  std::vector<RequestInfo> infos;
  std::vector<const RequestInfo*> pointers;
};

TEST_F(EngineInputsTest, T_ME_1_a_single_request_is_alone_but_for_padding) {
  EXPECT_EQ(inputs_of({kFirst, kPaddingLane}).single_request_info().handle, kFirst);
  EXPECT_THROW(std::ignore = inputs_of({}).single_request_info(), CheckError);
  EXPECT_THROW(std::ignore = inputs_of({kPaddingLane}).single_request_info(), CheckError);
  EXPECT_THROW(std::ignore = inputs_of({kFirst, kSecond}).single_request_info(), CheckError);
}

TEST_F(EngineInputsTest, T_ME_2_the_first_request_may_have_company) {
  EXPECT_EQ(inputs_of({kSecond, kFirst}).first_request_info().handle, kSecond);
  EXPECT_THROW(std::ignore = inputs_of({}).first_request_info(), CheckError);
}

TEST(InputMetadataTest, T_IM_1_a_new_one_says_nothing) {
  const InputMetadata metadata;
  EXPECT_EQ(metadata.loop_counters.count(LoopId{3}), 0);
  EXPECT_EQ(metadata.stream_chunk(SignalId{1}), nullptr);
}

TEST(HostRowsTest, T_HR_1_a_row_is_found_by_its_request_and_padding_rows_are_not) {
  const Tensor tokens = host_ids({10, 11, -7});  // the third row is a replay's padding
  const std::array handles{kSecond, kFirst};
  const std::array<HostRows::Buffer, 1> buffers{{{SignalId{1}, tokens.host_view()}}};
  const HostRows rows{handles, buffers};
  EXPECT_EQ(rows.row_of(kFirst), 1);
  EXPECT_EQ(rows.row_of({kFirst.row, 9}), -1);
  EXPECT_EQ(rows.row_of(kPaddingLane), -1);
  EXPECT_EQ(rows.find(SignalId{1}).span<const std::int32_t>()[1], 11);
  EXPECT_FALSE(rows.find(SignalId{2}).defined());
}

}  // namespace
}  // namespace rigel

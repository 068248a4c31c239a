#include "tests/engine/kv_test.h"

#include <gmock/gmock.h>

namespace rigel {
namespace {

using ::testing::ElementsAreArray;
using testing::kAside;
using Reason = AdmitOutcome::Reason;

class KvOffloadTest : public testing::KvTest {
 protected:
  std::unique_ptr<KvCache> make_offloading_cache(std::int32_t num_pages,
                                                 std::int32_t num_host_pages) {
    KvCacheConfig config = config_of(num_pages);
    config.num_labels = 2;
    config.num_host_pages = num_host_pages;
    return make_cache(config);
  }
  RequestHandle fill(KvCache& cache, std::int32_t row, std::int32_t length, std::int32_t first) {
    const RequestHandle handle = open(cache, row);
    EXPECT_TRUE(run_to_end(cache, {{handle, LabelId::kMain, length}}));
    write(cache, handle, LabelId::kMain, 0, numbers(length, first));
    return handle;
  }
};

TEST_F(KvOffloadTest, ARequestComesBackWithWhatItHadAndNeedsNoMorePagesThanBefore) {
  auto cache = make_offloading_cache(5, 8);
  const RequestHandle first = fill(*cache, 0, 37, 100);
  declare({{first, LabelId::kMain, 0}}).pre_forks = {{LabelId::kMain, kAside}};
  ASSERT_TRUE(run(*cache));
  cache->collect(last_epoch);
  EXPECT_EQ(cache->reclaimable(first), 4) << "two labels share two full pages";
  ASSERT_TRUE(cache->offload(first, stream->ref(), last_epoch));
  EXPECT_TRUE(cache->is_offloaded(first));
  cache->collect(last_epoch);
  EXPECT_EQ(cache->arena().num_free(), 4);
  EXPECT_EQ(cache->num_free_host_pages(), 4);
  cache->assert_pages_conserved();

  // Somebody else uses every page in between.
  const RequestHandle second = fill(*cache, 1, 64, 5000);
  EXPECT_FALSE(cache->can_reload(first));
  EXPECT_FALSE(cache->reload(first, stream->ref(), last_epoch));
  cache->assert_pages_conserved();
  declare({{first, LabelId::kMain, 1}});
  const AdmitOutcome outcome = admit(*cache);
  EXPECT_EQ(outcome.reason, Reason::kOffloaded);
  EXPECT_EQ(outcome.handle, first);

  cache->remove_request(second, last_epoch);
  cache->collect(last_epoch);
  EXPECT_TRUE(cache->can_reload(first));
  ASSERT_TRUE(cache->reload(first, stream->ref(), last_epoch));
  EXPECT_THAT(read(*cache, first, LabelId::kMain), ElementsAreArray(numbers(37, 100)));
  EXPECT_THAT(read(*cache, first, kAside), ElementsAreArray(numbers(37, 100)));
  cache->assert_pages_conserved();
}

TEST_F(KvOffloadTest, ReloadedTokensAreTheSameAndGoOn) {
  auto cache = make_offloading_cache(6, 4);
  const RequestHandle first = fill(*cache, 0, 37, 100);
  ASSERT_TRUE(cache->offload(first, stream->ref(), last_epoch));
  cache->collect(last_epoch);
  const RequestHandle second = fill(*cache, 1, 80, 5000);
  cache->remove_request(second, last_epoch);
  cache->collect(last_epoch);
  ASSERT_TRUE(cache->can_reload(first));
  ASSERT_TRUE(cache->reload(first, stream->ref(), last_epoch));
  EXPECT_EQ(cache->stored_length(first), 37);
  EXPECT_THAT(read(*cache, first, LabelId::kMain), ElementsAreArray(numbers(37, 100)));
  ASSERT_TRUE(run(*cache, {{first, LabelId::kMain, 1}}));
  const auto table = staged<std::int32_t>(cache->page_table());
  for (std::size_t index = 0; index < 3; ++index) {
    EXPECT_EQ(PageIndex{table[index]}, cache->pages(first)[index]);
  }
  cache->collect(last_epoch);
  EXPECT_EQ(cache->num_free_host_pages(), 4);
  cache->assert_pages_conserved();
}

TEST_F(KvOffloadTest, T_KV_7_a_request_with_a_step_in_flight_stays) {
  auto cache = make_offloading_cache(8, 8);
  const RequestHandle handle = open(*cache, 0);
  ASSERT_TRUE(run(*cache, {{handle, LabelId::kMain, 20}}));
  EXPECT_EQ(cache->reclaimable(handle), 0);
  EXPECT_FALSE(cache->offload(handle, stream->ref(), last_epoch)) << "launched, not completed";
  cache->collect(last_epoch);
  EXPECT_EQ(cache->reclaimable(handle), 2);
  EXPECT_TRUE(cache->offload(handle, stream->ref(), last_epoch));
  EXPECT_FALSE(cache->offload(handle, stream->ref(), last_epoch)) << "it is on the host";
}

TEST_F(KvOffloadTest, T_KV_7_a_step_of_one_label_holds_all_of_the_request) {
  auto cache = make_offloading_cache(8, 8);
  const RequestHandle handle = fill(*cache, 0, 20, 0);
  ASSERT_TRUE(run(*cache, {{handle, kAside, 3}}));
  EXPECT_FALSE(cache->offload(handle, stream->ref(), last_epoch)) << "launched, not completed";
  cache->collect(last_epoch);
  EXPECT_TRUE(cache->offload(handle, stream->ref(), last_epoch));
}

TEST_F(KvOffloadTest, AStepOfARequestOnTheHostIsRefusedUntilItIsBack) {
  auto cache = make_offloading_cache(8, 8);
  const RequestHandle handle = fill(*cache, 0, 20, 0);
  ASSERT_TRUE(run_to_end(*cache, {{handle, LabelId::kMain, 2}})) << "amid a page";
  ASSERT_TRUE(cache->offload(handle, stream->ref(), last_epoch));
  declare({{handle, LabelId::kMain, 1}});
  EXPECT_EQ(admit(*cache).reason, Reason::kOffloaded);
  ASSERT_TRUE(cache->reload(handle, stream->ref(), last_epoch));
  ASSERT_TRUE(admit(*cache).ok());
  const ConstDeviceView updates = plan(*cache).page_updates;
  EXPECT_EQ(updates.dim(0), 2) << "both pages are new to the page table";
  cache->commit(step, *context);
}

TEST_F(KvOffloadTest, B_23_an_offload_between_admission_and_commit_is_refused) {
  auto cache = make_offloading_cache(8, 8);
  const RequestHandle handle = fill(*cache, 0, 20, 0);
  declare({{handle, LabelId::kMain, 2}});
  ASSERT_TRUE(admit(*cache).ok());
  EXPECT_FALSE(cache->offload(handle, stream->ref(), last_epoch));
  plan(*cache);
  EXPECT_FALSE(cache->offload(handle, stream->ref(), last_epoch));
  cache->commit(step, *context);
  EXPECT_EQ(cache->stored_length(handle), 22);
}

TEST_F(KvOffloadTest, AStepThatIsGivenUpHoldsItsRequestsNoLonger) {
  auto cache = make_offloading_cache(8, 8);
  const RequestHandle handle = fill(*cache, 0, 20, 0);
  declare({{handle, LabelId::kMain, 2}});
  ASSERT_TRUE(admit(*cache).ok());
  cache->abandon(step);
  EXPECT_TRUE(cache->offload(handle, stream->ref(), last_epoch));
}

TEST_F(KvOffloadTest, AHostPoolThatIsTooSmallTakesNothing) {
  auto cache = make_offloading_cache(8, 1);
  const RequestHandle handle = fill(*cache, 0, 20, 0);
  EXPECT_EQ(cache->reclaimable(handle), 0);
  EXPECT_FALSE(cache->offload(handle, stream->ref(), last_epoch));
  EXPECT_EQ(cache->num_pages(handle), 2);
  EXPECT_EQ(cache->num_free_host_pages(), 1);
  cache->assert_pages_conserved();
}

TEST_F(KvOffloadTest, PagesOfBothSidesAreFreeOnceTheirStepHasCompleted) {
  auto cache = make_offloading_cache(8, 2);
  const RequestHandle handle = fill(*cache, 0, 20, 0);
  ASSERT_TRUE(cache->offload(handle, stream->ref(), /*last_touch=*/9));
  EXPECT_EQ(cache->arena().num_free(), 5);
  cache->collect(9);
  EXPECT_EQ(cache->arena().num_free(), 7);
  ASSERT_TRUE(cache->reload(handle, stream->ref(), /*last_touch=*/10));
  EXPECT_EQ(cache->num_free_host_pages(), 0);
  cache->collect(10);
  EXPECT_EQ(cache->num_free_host_pages(), 2);
}

TEST_F(KvOffloadTest, ARequestRemovedOnTheHostLeavesNothing) {
  auto cache = make_offloading_cache(8, 2);
  const RequestHandle handle = fill(*cache, 0, 20, 0);
  ASSERT_TRUE(cache->offload(handle, stream->ref(), last_epoch));
  cache->remove_request(handle, last_epoch);
  cache->collect(last_epoch);
  EXPECT_EQ(cache->num_free_host_pages(), 2);
  EXPECT_EQ(cache->arena().num_free(), 7);
  cache->assert_pages_conserved();
}

TEST_F(KvOffloadTest, T_KV_7_an_earlier_owner_of_a_row_cannot_be_moved) {
  auto cache = make_offloading_cache(8, 4);
  const RequestHandle first = fill(*cache, 0, 20, 0);
  cache->remove_request(first, last_epoch);
  open(*cache, 0, 2);
  EXPECT_THROW(cache->offload(first, stream->ref(), last_epoch), CheckError);
  EXPECT_THROW(cache->reload(first, stream->ref(), last_epoch), CheckError);
}

}  // namespace
}  // namespace rigel

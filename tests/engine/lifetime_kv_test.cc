// The epochs that KvCache hands pages on with, seen from outside: no page has a new owner while a step that touched it, or that
// stands in front of a copy that touched it, is in flight.

#include "tests/engine/kv_test.h"

#include <algorithm>
#include <array>
#include <optional>
#include <random>

namespace rigel {
namespace {

/// Requests on a cache that is too small for them, with steps in flight, as the engine has them.
class KvLifetimeTest : public testing::KvTest {
 protected:
  static constexpr std::int32_t kRows = 4;
  static constexpr std::int32_t kPages = 9;
  static constexpr std::int32_t kHostPages = 5;
  static constexpr Epoch kMaxInFlight = 2;
  struct Request {
    RequestHandle handle;
    Epoch last_touch = 0;  // its last step
    Epoch last_copy = 0;   // the step in front of its last copy
    std::vector<PageIndex> pages;
    std::int32_t num_on_host = 0;
  };
  struct Waiting {
    std::int32_t num_host_pages = 0;
    Epoch epoch = 0;
  };

  void SetUp() override {
    KvTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    KvCacheConfig config = config_of(kPages);
    config.num_host_pages = kHostPages;
    cache = make_cache(config);
  }
  /// What the request has now was touched by work of step `epoch`; what it had not before has waited for all earlier work.
  void note(Request& request, Epoch epoch) {
    const auto now = cache->pages(request.handle);
    for (const PageIndex page : now) {
      Epoch& last = last_use[static_cast<std::size_t>(page)];
      if (std::ranges::find(request.pages, page) == request.pages.end()) {
        ASSERT_LE(last, completed) << "page " << static_cast<int>(page) << " was handed out";
      }
      last = std::max(last, epoch);
    }
    request.pages.assign(now.begin(), now.end());
  }
  void check_host_pages() {
    std::int32_t most_free = kHostPages;
    for (const auto& request : requests) {
      most_free -= request ? request->num_on_host : 0;
    }
    for (const Waiting& waiting : host_waiting) {
      most_free -= waiting.epoch > completed ? waiting.num_host_pages : 0;
    }
    ASSERT_LE(cache->num_free_host_pages(), most_free)
        << "a page of the host pool is free too soon";
  }
  void complete(Epoch epoch) {
    completed = std::max(completed, epoch);
    cache->collect(completed);
  }

  void launch() {
    std::vector<Segment> segments;
    for (const auto& request : requests) {
      if (request && request->num_on_host == 0 && random() % 3 != 0 &&
          cache->stored_length(request->handle) < 60) {
        segments.push_back(
            {request->handle, LabelId::kMain, 1 + static_cast<std::int32_t>(random() % 12)});
      }
    }
    if (segments.empty()) {
      return;
    }
    if (last_epoch - completed == kMaxInFlight) {
      complete(completed + 1);
    }
    if (!run(*cache, segments)) {
      ++num_refused;
      return;
    }
    for (const Segment& segment : segments) {
      Request& request = *requests[static_cast<std::size_t>(segment.handle.row)];
      request.last_touch = last_epoch;
      note(request, last_epoch);
    }
  }
  void offload(Request& request) {
    const std::int32_t num_pages = (cache->stored_length(request.handle) + kPage - 1) / kPage;
    if (!cache->offload(request.handle, stream->ref(), last_epoch)) {
      return;
    }
    ASSERT_LE(request.last_touch, completed) << "a step of it is in flight";
    ++num_offloads;
    note_copy(request);
    request.pages.clear();
    request.num_on_host = num_pages;
  }
  void reload(Request& request) {
    if (!cache->reload(request.handle, stream->ref(), last_epoch)) {
      return;
    }
    ++num_reloads;
    note(request, last_epoch);
    note_copy(request);
    let_host_pages_go(request);
  }
  void note_copy(Request& request) {
    request.last_copy = last_epoch;
    for (const PageIndex page : request.pages) {
      last_use[static_cast<std::size_t>(page)] = last_epoch;
    }
  }
  void let_host_pages_go(Request& request) {
    host_waiting.push_back({request.num_on_host, request.last_copy});
    request.num_on_host = 0;
  }
  void restart(Request& request) {
    let_host_pages_go(request);
    cache->restart_request(request.handle, request.last_touch);
    request.pages.clear();
  }
  void truncate(Request& request) {
    if (request.num_on_host == 0) {
      const std::int32_t stored = cache->stored_length(request.handle);
      cache->truncate_to(request.handle, LabelId::kMain,
                         static_cast<std::int32_t>(random() % static_cast<unsigned>(stored + 1)),
                         request.last_touch);
      const auto now = cache->pages(request.handle);
      request.pages.assign(now.begin(), now.end());
    }
  }
  void remove(std::optional<Request>& request) {
    let_host_pages_go(*request);
    cache->remove_request(request->handle, request->last_touch);
    request.reset();
  }
  void disturb(std::optional<Request>& request) {
    switch (random() % 8) {
      case 0:
        return remove(request);
      case 1:
        return restart(*request);
      case 2:
        return truncate(*request);
      case 3:
        return complete(last_epoch);
      default:
        return request->num_on_host > 0 ? reload(*request) : offload(*request);
    }
  }

  std::unique_ptr<KvCache> cache;
  std::mt19937 random{23};
  std::uint32_t generation = 0;
  std::array<std::optional<Request>, kRows> requests;
  std::array<Epoch, kPages> last_use{};  // by page: a step, or the one in front of a copy
  std::vector<Waiting> host_waiting;     // pages of the host pool that were let go
  Epoch completed = 0;
  int num_refused = 0;
  int num_offloads = 0;
  int num_reloads = 0;
};

TEST_F(KvLifetimeTest, T_KV_10_no_page_is_handed_on_before_its_last_step_has_completed) {
  for (int round = 0; round < 4000; ++round) {
    const auto row = static_cast<std::int32_t>(random() % kRows);
    auto& request = requests[static_cast<std::size_t>(row)];
    if (!request) {
      request.emplace().handle = open(*cache, row, ++generation);
    } else if (random() % 2 == 0) {
      launch();
    } else {
      disturb(request);
    }
    ASSERT_FALSE(HasFatalFailure()) << "round " << round;
    check_host_pages();
    ASSERT_FALSE(HasFatalFailure()) << "round " << round;
  }
  EXPECT_GT(num_refused, 100);
  EXPECT_GT(num_offloads, 100);
  EXPECT_GT(num_reloads, 50);
}

}  // namespace
}  // namespace rigel

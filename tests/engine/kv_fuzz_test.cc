#include "tests/engine/kv_test.h"

#include <array>
#include <optional>
#include <random>

namespace rigel {
namespace {

using testing::kAside;

/// Requests that come, grow, fork, share prefixes, are cut back, evicted and removed, with steps in flight. After each
/// operation every page is where the books say; in the end all are free.
class KvFuzzTest : public testing::KvTest {
 protected:
  struct Request {
    RequestHandle handle;
    std::vector<std::int32_t> prompt;
    std::int32_t num_planned = 0;  // tokens of main that were launched
    bool is_forked = false;
  };

  void begin(KvCache& cache, std::int32_t row) {
    Request& request = requests[static_cast<std::size_t>(row)].emplace();
    request.handle = open(cache, row, ++generation);
    const auto family = static_cast<std::int32_t>(random() % 3);
    const auto split = static_cast<std::int32_t>(random() % 60);
    for (std::int32_t at = 0; at < 200; ++at) {
      request.prompt.push_back(at < split ? family * 1000 + at
                                          : static_cast<std::int32_t>(generation) * 10000 + at);
    }
    if (random() % 2 == 0) {
      request.num_planned = cache.match_prefix(request.handle, request.prompt);
      if (random() % 4 == 0) {
        request.num_planned = cache.cut_prefix(request.handle, 20);
      }
    }
  }

  void launch(KvCache& cache) {
    std::vector<Segment> segments;
    for (const auto& request : requests) {
      if (!request || random() % 3 == 0 || cache.is_offloaded(request->handle) ||
          request->num_planned > 150) {
        continue;
      }
      const auto span = static_cast<std::int32_t>(random() % 24);
      segments.push_back({request->handle, LabelId::kMain, span});
      if (random() % 4 == 0 && cache.stored_length(request->handle, kAside) < 100) {
        segments.push_back({request->handle, kAside, static_cast<std::int32_t>(random() % 5)});
      }
    }
    if (segments.empty()) {
      return;
    }
    KvStep& kv = declare(segments);
    if (random() % 5 == 0) {
      kv.pre_forks = {{LabelId::kMain, kAside}};
    }
    if (random() % 5 == 0) {
      kv.post_forks = {{LabelId::kMain, kAside}};
    }
    if (random() % 3 == 0) {  // staged, and dropped again
      context->epoch = last_epoch + 1;
      staging->reset();
      cache.begin_preplan();
      if (admit(cache).ok()) {
        cache.plan(step, *context);
        cache.assert_pages_conserved();
      }
      cache.clear_preplan();
      cache.assert_pages_conserved();
    }
    if (!run(cache)) {
      ++num_refused;
      make_room(cache);
      return;
    }
    for (const Segment& segment : segments) {
      if (segment.label == LabelId::kMain) {
        auto& request = *requests[static_cast<std::size_t>(segment.handle.row)];
        request.num_planned += segment.span;
        ASSERT_EQ(cache.stored_length(segment.handle), request.num_planned);
      }
    }
  }

  void make_room(KvCache& cache) {
    cache.collect(last_epoch);
    for (auto& request : requests) {
      if (request && !cache.is_offloaded(request->handle) && random() % 2 == 0) {
        if (random() % 2 == 0 && cache.offload(request->handle, stream->ref(), last_epoch)) {
          ++num_offloads;
        } else {
          cache.restart_request(request->handle, last_epoch);
          request->num_planned = 0;
        }
      }
    }
  }

  void disturb(KvCache& cache, std::optional<Request>& request) {
    switch (random() % 6) {
      case 0:
        cache.remove_request(request->handle, last_epoch);
        request.reset();
        break;
      case 1:
        if (cache.is_offloaded(request->handle)) {
          num_reloads += cache.reload(request->handle, stream->ref(), last_epoch) ? 1 : 0;
        }
        break;
      case 2:
        if (!cache.is_offloaded(request->handle) && request->num_planned > 0 &&
            cache.stored_length(request->handle) == request->num_planned) {
          request->num_planned -= static_cast<std::int32_t>(
              random() % static_cast<unsigned>(std::min(request->num_planned, 20)));
          cache.truncate_to(request->handle, LabelId::kMain, request->num_planned, last_epoch);
        }
        break;
      default:
        cache.extend_prefix(request->handle, request->prompt);
        break;
    }
  }

  std::mt19937 random{17};
  std::uint32_t generation = 0;
  std::array<std::optional<Request>, 4> requests;
  int num_refused = 0;
  int num_offloads = 0;
  int num_reloads = 0;
};

TEST_F(KvFuzzTest, T_KV_10_every_page_is_accounted_for_whatever_happens) {
  KvCacheConfig config = config_of(28);
  config.num_labels = 2;
  config.num_host_pages = 12;
  config.enable_prefix_cache = true;
  auto cache = make_cache(config);
  for (int round = 0; round < 3000; ++round) {
    const auto row = static_cast<std::int32_t>(random() % requests.size());
    auto& request = requests[static_cast<std::size_t>(row)];
    if (!request) {
      begin(*cache, row);
    } else if (random() % 2 == 0) {
      launch(*cache);
    } else {
      disturb(*cache, request);
    }
    if (random() % 2 == 0) {
      cache->collect(last_epoch - std::min<Epoch>(last_epoch, random() % 3));
    }
    ASSERT_NO_THROW(cache->assert_pages_conserved()) << "round " << round;
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_GT(num_refused, 20);
  EXPECT_GT(num_offloads, 10);
  EXPECT_GT(num_reloads, 5);
  for (const auto& request : requests) {
    if (request) {
      cache->remove_request(request->handle, last_epoch);
    }
  }
  cache->collect(last_epoch);
  cache->assert_pages_conserved();
  EXPECT_EQ(cache->num_available(), cache->arena().capacity());
  EXPECT_EQ(cache->num_free_host_pages(), 12);
}

}  // namespace
}  // namespace rigel

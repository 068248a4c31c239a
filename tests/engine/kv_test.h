#pragma once

#include "engine/resources/kv_cache.h"
#include "kernels/page_table.h"
#include "tests/engine/engine_test.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

namespace rigel::testing {

inline constexpr LabelId kAside{1};

/// A small cache, steps through it, and what is in its pages.
class KvTest : public EngineTest {
 protected:
  static constexpr ResourceKey kKey{0};
  static constexpr std::int32_t kPage = 16;

  static KvCacheConfig config_of(std::int32_t num_pages) {
    return {.num_layers = 2,
            .num_kv_heads = 2,
            .head_dim = 8,
            .page_size = kPage,
            .num_pages = num_pages,
            .num_rows = 4,
            .max_length = 256,
            .dtype = Dtype::kF32};
  }
  std::unique_ptr<KvCache> make_cache(const KvCacheConfig& config) {
    return std::make_unique<KvCache>(kKey, *device, config);
  }
  std::unique_ptr<KvCache> make_cache(std::int32_t num_pages) {
    return make_cache(config_of(num_pages));
  }
  static RequestHandle open(KvCache& cache, std::int32_t row, std::uint32_t generation = 1) {
    const RequestInfo info = info_of(row, generation);
    cache.ingest_request(info);
    return info.handle;
  }

  /// The step to come: declared, and numbered behind the last one.
  KvStep& declare(std::vector<Segment> segments) {
    step.reset();
    step.segments = std::move(segments);
    return step.declare<KvStep>(kKey);
  }
  AdmitOutcome admit(KvCache& cache) { return cache.admit(step, *context); }
  /// Plans the declared step and applies its page updates on the device.
  const KvPlan& plan(KvCache& cache) {
    context->epoch = ++last_epoch;
    stream->synchronize();  // the staging of the step before is still being read
    staging->reset();
    cache.plan(step, *context);
    const auto& planned = context->plan<KvPlan>(kKey);
    staging->upload(stream->ref());
    kernels::apply_page_updates(stream->ref(), cache.page_table(), planned.page_updates);
    return planned;
  }
  /// The declared step from admission to commit; false where the cache refused.
  bool run(KvCache& cache) {
    if (!admit(cache).ok()) {
      return false;
    }
    plan(cache);
    cache.commit(step, *context);
    return true;
  }
  bool run(KvCache& cache, std::vector<Segment> segments) {
    declare(std::move(segments));
    return run(cache);
  }
  /// The same, and all that was launched has completed.
  bool run_to_end(KvCache& cache, std::vector<Segment> segments) {
    const bool ran = run(cache, std::move(segments));
    cache.collect(last_epoch);
    return ran;
  }

  static std::vector<std::int32_t> numbers(std::int32_t count, std::int32_t first = 0) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    std::iota(values.begin(), values.end(), first);
    return values;
  }

  // What the device has. A token is known by one float of its key, the same in each layer but for its sign.

  static std::size_t place(const KvCache& cache, PageIndex page, std::int32_t offset) {
    const auto& config = cache.config();
    return static_cast<std::size_t>(
        (static_cast<std::int32_t>(page) * 2 * config.num_kv_heads * config.page_size + offset) *
        config.head_dim);
  }
  std::vector<float> layer_values(const KvCache& cache, std::int32_t layer) {
    return staged<float>(cache.layer(layer));
  }
  /// Writes tokens [first, first + values) of a stream, as a forward would.
  void write(const KvCache& cache, RequestHandle handle, LabelId label, std::int32_t first,
             const std::vector<std::int32_t>& values) {
    for (std::int32_t layer = 0; layer < cache.config().num_layers; ++layer) {
      std::vector<float> pool = layer_values(cache, layer);
      for (std::size_t at = 0; at < values.size(); ++at) {
        const std::int32_t index = first + static_cast<std::int32_t>(at);
        const PageIndex page = cache.pages(handle, label)[static_cast<std::size_t>(index / kPage)];
        pool[place(cache, page, index % kPage)] =
            static_cast<float>(layer == 0 ? values[at] : -values[at]);
      }
      copy(stream->ref(), cache.layer(layer),
           ConstHostView(reinterpret_cast<const std::byte*>(pool.data()), Dtype::kF32,
                         cache.layer(layer).shape()));
      stream->synchronize();
    }
  }
  /// The tokens stored in a stream; -9999 where the layers disagree.
  std::vector<std::int32_t> read(const KvCache& cache, RequestHandle handle, LabelId label) {
    const std::vector<float> first = layer_values(cache, 0);
    const std::vector<float> second = layer_values(cache, 1);
    std::vector<std::int32_t> tokens;
    for (std::int32_t index = 0; index < cache.stored_length(handle, label); ++index) {
      const PageIndex page = cache.pages(handle, label)[static_cast<std::size_t>(index / kPage)];
      const std::size_t at = place(cache, page, index % kPage);
      tokens.push_back(first[at] == -second[at] ? static_cast<std::int32_t>(first[at]) : -9999);
    }
    return tokens;
  }

  SubmoduleStep step;
  Epoch last_epoch = 0;
};

}  // namespace rigel::testing

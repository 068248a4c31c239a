#include "kernels/kv_pages.h"

#include "tests/kernels/kernel_test.h"

#include <array>

namespace rigel::kernels {
namespace {

class KvPages : public KernelTest {
 protected:
  static std::vector<std::uint8_t> numbered(std::int64_t count, int seed) {
    std::vector<std::uint8_t> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<std::uint8_t>(static_cast<std::size_t>(seed) + i * 7 + i / 251);
    }
    return values;
  }
  /// A dense (layers, pages, bytes) pool as (pages, layers, bytes).
  static DeviceView by_page(DeviceView pool) {
    const std::array<std::int64_t, 3> strides{pool.stride(1), pool.stride(0), 1};
    return DeviceView(pool.raw(), Dtype::kU8, {pool.dim(1), pool.dim(0), pool.dim(2)}, strides);
  }
};

TEST_F(KvPages, PagesOfEveryLayerMoveInsideAPool) {
  constexpr std::int64_t kLayers = 3;
  constexpr std::int64_t kPages = 70;
  for (const std::int64_t bytes : {16, 48, 4112}) {
    in_every_mode([&] {
      const std::vector<std::uint8_t> before = numbered(kLayers * kPages * bytes, 3);
      std::vector<std::uint8_t> expected = before;
      const std::vector<PageCopy> copies{{5, 0}, {69, 1}, {4, 68}};
      for (std::int64_t layer = 0; layer < kLayers; ++layer) {
        for (const PageCopy& copy : copies) {
          for (std::int64_t at = 0; at < bytes; ++at) {
            expected[static_cast<std::size_t>((layer * kPages + copy.target) * bytes + at)] =
                before[static_cast<std::size_t>((layer * kPages + copy.source) * bytes + at)];
          }
        }
      }
      const DeviceView pool = upload({kLayers, kPages, bytes}, before);
      copy_pages(stream(), by_page(pool), by_page(pool), copies);
      EXPECT_EQ(download<std::uint8_t>(pool), expected) << bytes;
    });
  }
}

TEST_F(KvPages, APoolOfAnotherLayoutTakesMorePagesThanOneLaunch) {
  constexpr std::int64_t kPages = 2 * kMaxPageCopies + 3;
  constexpr std::int64_t kBytes = 32;
  in_every_mode([&] {
    const std::vector<std::uint8_t> source = numbered(2 * kPages * kBytes, 11);
    std::vector<PageCopy> copies;
    std::vector<std::uint8_t> expected(source.size());
    for (std::int32_t page = 0; page < kPages; ++page) {
      const auto target = static_cast<std::int32_t>(kPages) - 1 - page;
      copies.push_back({target, page});
      for (std::int64_t layer = 0; layer < 2; ++layer) {
        for (std::int64_t at = 0; at < kBytes; ++at) {
          expected[static_cast<std::size_t>((target * 2 + layer) * kBytes + at)] =
              source[static_cast<std::size_t>((layer * kPages + page) * kBytes + at)];
        }
      }
    }
    const DeviceView target = output(Dtype::kU8, {kPages, 2, kBytes});
    copy_pages(stream(), target, by_page(upload({2, kPages, kBytes}, source)), copies);
    EXPECT_EQ(download<std::uint8_t>(target), expected);
    copy_pages(stream(), target, target, {});
    EXPECT_EQ(download<std::uint8_t>(target), expected);
  });
}

TEST_F(KvPages, RefusesPagesOutsideAPoolAndPoolsThatDiffer) {
  in_default_mode([&] {
    const DeviceView pool = output(Dtype::kU8, {4, 2, 32});
    const std::vector<PageCopy> outside{{4, 0}};
    const std::vector<PageCopy> inside{{3, 0}};
    EXPECT_THROW(copy_pages(stream(), pool, pool, outside), CheckError);
    EXPECT_THROW(copy_pages(stream(), pool, output(Dtype::kU8, {4, 2, 48}), inside), CheckError);
    EXPECT_THROW(copy_pages(stream(), pool, output(Dtype::kU8, {4, 2, 24}), inside), CheckError);
  });
}

}  // namespace
}  // namespace rigel::kernels

#include "kernels/embedding.h"

#include "tests/kernels/kernel_test.h"

namespace rigel::kernels {
namespace {

class Embedding : public KernelTest {
 protected:
  void expect_lookup(Dtype dtype, const std::vector<std::int32_t>& ids, std::int64_t vocabulary,
                     std::int64_t columns, float scale) {
    const auto num_tokens = static_cast<std::int64_t>(ids.size());
    const std::vector<float> table = rounded(dtype, random_floats(vocabulary * columns, 3));
    std::vector<double> expected(static_cast<std::size_t>(num_tokens * columns), 0.0);
    for (std::int64_t token = 0; token < num_tokens; ++token) {
      const std::int64_t id = ids[static_cast<std::size_t>(token)];
      for (std::int64_t column = 0; id >= 0 && id < vocabulary && column < columns; ++column) {
        expected[static_cast<std::size_t>(token * columns + column)] =
            static_cast<double>(table[static_cast<std::size_t>(id * columns + column)]) *
            static_cast<double>(scale);
      }
    }
    in_every_mode([&] {
      const DeviceView out = output(Dtype::kF32, {num_tokens, columns});
      embed(stream(), out, upload({num_tokens}, ids), upload(dtype, {vocabulary, columns}, table),
            scale);
      expect_close(download_floats(out), expected, {.relative = 0x1p-23});
    });
  }
};

TEST_F(Embedding, ReadsTheRowsOfItsIds) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF32}) {
    for (const std::int64_t columns : {1, 3, 8, 12, 576, 577, 1032}) {
      expect_lookup(dtype, {4, 0, 4, 16, 7}, 17, columns, 1.0F);
    }
  }
}

TEST_F(Embedding, ScalesInFloat) {
  expect_lookup(Dtype::kBf16, {1, 2}, 3, 40, 33.941125F);
}

TEST_F(Embedding, GivesZerosForPaddingAndForIdsOutsideTheTable) {
  for (const std::int64_t columns : {5, 64}) {
    expect_lookup(Dtype::kBf16, {-1, 2, 3, -1, 1'000'000}, 3, columns, 2.0F);
  }
}

TEST_F(Embedding, TakesNoTokens) {
  expect_lookup(Dtype::kF32, {}, 3, 8, 1.0F);
}

TEST_F(Embedding, CoversManyTokensOnSeveralThreads) {
  std::vector<std::int32_t> ids;
  for (std::int32_t token = 0; token < 301; ++token) {
    ids.push_back(token * 7 % 19);
  }
  expect_lookup(Dtype::kBf16, ids, 19, 512, 1.0F);
}

TEST_F(Embedding, RefusesATableThatDoesNotFit) {
  in_default_mode([&] {
    EXPECT_THROW(embed(stream(), output(Dtype::kF32, {2, 8}), output(Dtype::kI32, {2}),
                       output(Dtype::kF32, {3, 9}), 1.0F),
                 CheckError);
    EXPECT_THROW(embed(stream(), output(Dtype::kF32, {2, 8}), output(Dtype::kI64, {2}),
                       output(Dtype::kF32, {3, 8}), 1.0F),
                 CheckError);
  });
}

TEST_F(Embedding, SelectTokensPrefersStagedIdsAndFallsBackToTheRowsLastToken) {
  const std::vector<std::int32_t> staged{5, -1, -1, 0, 9, -1};
  const std::vector<std::int32_t> rows{2, 0, -1, 1, -1, 2};
  const std::vector<std::int32_t> last{100, 101, 102};
  in_every_mode([&] {
    const DeviceView out = output(Dtype::kI32, {6});
    select_tokens(stream(), out, upload({6}, staged), upload({6}, rows), upload({3}, last));
    EXPECT_EQ(download<std::int32_t>(out), (std::vector<std::int32_t>{5, 100, -1, 0, -1, 102}));
  });
}

TEST_F(Embedding, SelectTokensTakesNoneAndMany) {
  in_every_mode([&] {
    const DeviceView none = output(Dtype::kI32, {0});
    select_tokens(stream(), none, none, none, upload({1}, std::vector<std::int32_t>{7}));
    const std::vector<std::int32_t> rows(515, 0);
    const DeviceView ids = upload({515}, std::vector<std::int32_t>(515, -1));
    select_tokens(stream(), ids, ids, upload({515}, rows),
                  upload({1}, std::vector<std::int32_t>{7}));
    EXPECT_EQ(download<std::int32_t>(ids), std::vector<std::int32_t>(515, 7));
  });
}

}  // namespace
}  // namespace rigel::kernels

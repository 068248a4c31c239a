#include "kernels/page_table.h"

#include "tests/kernels/kernel_test.h"

namespace rigel::kernels {
namespace {

class PageTableTest : public KernelTest {};

TEST_F(PageTableTest, UpdatesChangeExactlyTheirEntries) {
  constexpr int kRows = 5;
  constexpr int kColumns = 37;
  in_every_mode([&] {
    std::vector<std::int32_t> table(kRows * kColumns);
    for (std::size_t i = 0; i < table.size(); ++i) {
      table[i] = static_cast<std::int32_t>(1000 + i);
    }
    std::vector<std::int32_t> expected = table;
    std::vector<std::int32_t> updates;
    for (int i = 0; i < 131; ++i) {  // more than a block; every third is padding
      const int row = i % 3 == 2 ? -1 : (i * 7) % kRows;
      const int column = (i * 11) % kColumns;
      updates.insert(updates.end(), {row, column, i});
      if (row >= 0) {
        expected[static_cast<std::size_t>(row * kColumns + column)] = i;
      }
    }
    const DeviceView device_table = upload({kRows, kColumns}, table);
    apply_page_updates(stream(), device_table, upload({131, 3}, updates));
    EXPECT_EQ(download<std::int32_t>(device_table), expected);
  });
}

TEST_F(PageTableTest, NoUpdatesAndUpdatesOutsideTheTableChangeNothing) {
  in_every_mode([&] {
    const std::vector<std::int32_t> table = {1, 2, 3, 4, 5, 6};
    const DeviceView device_table = upload({2, 3}, table);
    apply_page_updates(stream(), device_table, upload({0, 3}, std::vector<std::int32_t>{}));
    apply_page_updates(stream(), device_table,
                       upload({5, 3}, std::vector<std::int32_t>{2, 0, 9, 0, 3, 9, 1, -1, 9, -7, 1,
                                                                9, -1, -1, -1}));
    EXPECT_EQ(download<std::int32_t>(device_table), table);
  });
}

TEST_F(PageTableTest, TheLastEntryOfTheTableCanBeSet) {
  in_every_mode([&] {
    const DeviceView device_table = output(Dtype::kI32, {3, 4});
    apply_page_updates(stream(), device_table, upload({1, 3}, std::vector<std::int32_t>{2, 3, 77}));
    std::vector<std::int32_t> expected(12, -1);
    expected.back() = 77;
    EXPECT_EQ(download<std::int32_t>(device_table), expected);
  });
}

}  // namespace
}  // namespace rigel::kernels

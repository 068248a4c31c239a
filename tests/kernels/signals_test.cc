#include "kernels/signals.h"

#include "tensor/copy.h"
#include "tests/kernels/kernel_test.h"

#include <tuple>

namespace rigel::kernels {
namespace {

using Ints = std::vector<std::int32_t>;
using Bytes = std::vector<std::uint8_t>;

Bytes numbered(std::int64_t num_bytes, int seed) {
  Bytes bytes;
  for (std::int64_t at = 0; at < num_bytes; ++at) {
    bytes.push_back(static_cast<std::uint8_t>(seed + at * 29 + at / 251));
  }
  return bytes;
}

class Signals : public KernelTest {
 protected:
  RowTensorTable table_of(const std::vector<RowTensor>& tensors, std::size_t num_entries = 0) {
    num_entries = std::max(num_entries, tensors.size());
    std::vector<std::int64_t> words(num_entries * kRowCopyWords, -1);
    const DeviceView device = output(Dtype::kI64, {static_cast<std::int64_t>(words.size())});
    const RowTensorTable table = fill_row_tensor_table(words, device, tensors);
    copy(stream(), device, const_host_view(std::span<const std::int64_t>(words)));
    return table;
  }
  DeviceView ids(const Ints& values) {
    return upload({static_cast<std::int64_t>(values.size())}, values);
  }
};

TEST_F(Signals, T_SR_5_RowsOfAllSignalsBecomeTensorsOfTheirOwn) {
  constexpr std::int64_t kRows = 4;
  const std::vector<std::int64_t> widths{1, 4, 7, 16, 33, 2304, 6'001};
  in_every_mode([&] {
    std::vector<RowTensor> tensors;
    std::vector<Bytes> expected;
    std::vector<DeviceView> sources;
    for (const std::int64_t width : widths) {
      const Bytes batch = numbered(kRows * width, static_cast<int>(width));
      sources.push_back(upload({kRows, width}, batch));
      for (const std::int64_t row : {3, 0, 2}) {  // row 1 stays out: padding, or dropped
        const auto begin = batch.begin() + static_cast<std::ptrdiff_t>(row * width);
        expected.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(width));
        tensors.push_back({output(Dtype::kU8, {width}), sources.back(), row});
      }
    }
    materialize_rows(stream(), table_of(tensors));
    // Writing into the batch tensors, or into one of the new ones, shows in no other.
    for (const DeviceView& source : sources) {
      fill_bytes(stream(), source, 0);
    }
    fill_bytes(stream(), tensors[0].tensor, 0xEE);
    expected[0].assign(expected[0].size(), 0xEE);
    for (std::size_t index = 0; index < tensors.size(); ++index) {
      EXPECT_EQ(download<std::uint8_t>(tensors[index].tensor), expected[index]) << index;
    }
  });
}

TEST_F(Signals, MaterializesAnyDtypeInnerShapeAndRowStride) {
  const std::vector<float> values = rounded(Dtype::kBf16, random_floats(3 * 10, 1));
  in_every_mode([&] {
    const DeviceView wide = upload(Dtype::kBf16, {3, 10}, values);
    const DeviceView columns = wide.slice(1, 3, 5);  // rows of 10 bytes, 20 apart, at odd addresses
    const DeviceView tensor = output(Dtype::kBf16, {5});
    const DeviceView whole = output(Dtype::kBf16, {1, 2, 5});
    materialize_rows(stream(),
                     table_of({{tensor, columns, 2}, {whole, wide.reshape({3, 2, 5}), 1}}));
    EXPECT_EQ(download_floats(tensor),
              (std::vector<float>(values.begin() + 23, values.begin() + 28)));
    EXPECT_EQ(download_floats(whole),
              (std::vector<float>(values.begin() + 10, values.begin() + 20)));
  });
}

TEST_F(Signals, MaterializesManyRowsAndNone) {
  Ints values;
  for (std::int32_t row = 0; row < 200; ++row) {
    values.push_back(row * 3);
  }
  in_every_mode([&] {
    const DeviceView batch = upload({200, 1}, values);
    const DeviceView all = output(Dtype::kI32, {200});
    std::vector<RowTensor> tensors;
    Ints expected;
    for (std::int64_t index = 0; index < 200; ++index) {
      tensors.push_back({all.slice(0, index, 1), batch, 199 - index});
      expected.push_back(values[static_cast<std::size_t>(199 - index)]);
    }
    materialize_rows(stream(), table_of(tensors, 203));  // a captured table with room left
    materialize_rows(stream(), table_of({}));
    EXPECT_EQ(download<std::int32_t>(all), expected);
  });
}

TEST_F(Signals, RefusesRowsThatDoNotMakeTheTensor) {
  in_default_mode([&] {
    const DeviceView rows = output(Dtype::kF32, {2, 8});
    const auto refuses = [&](const RowTensor& tensor) {
      EXPECT_THROW(std::ignore = table_of({tensor}), CheckError);
    };
    refuses({output(Dtype::kF32, {8}), rows, 2});
    refuses({output(Dtype::kF32, {8}), rows, -1});
    refuses({output(Dtype::kF32, {7}), rows, 0});
    refuses({output(Dtype::kI32, {8}), rows, 0});
    refuses({output(Dtype::kF32, {2, 8}).select(1, 3), output(Dtype::kF32, {2, 2}), 0});
  });
}

TEST_F(Signals, DeclareTheirBytes) {
  in_default_mode([&] {
    const DeviceView batch = output(Dtype::kU8, {2, 7});
    const RowTensorTable table =
        table_of({{output(Dtype::kU8, {7}), batch, 0}, {output(Dtype::kU8, {7}), batch, 1}});
    LaunchLog log;
    device().set_launch_log(&log);
    materialize_rows(stream(), table);
    device().set_launch_log(nullptr);
    const std::vector<LaunchRecord> launches = log.take();
    ASSERT_EQ(launches.size(), 1u);
    EXPECT_EQ(launches[0].traffic.read_bytes, 2 * (7 + 24));
    EXPECT_EQ(launches[0].traffic.written_bytes, 2 * 7);
  });
}

}  // namespace
}  // namespace rigel::kernels

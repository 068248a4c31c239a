#include "kernels/gemm_trial.h"

#include "tensor/copy.h"
#include "tensor/device.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace rigel::kernels {
namespace {

/// Our own code with a fault: what the row counts it is faulty at give is off by a little.
class FaultyGemm final : public GemmBackend {
 public:
  FaultyGemm(Device& device, std::int64_t faulty_count, bool damages_all)
      : own_(make_own_gemm(device)), faulty_count_(faulty_count), damages_all_(damages_all) {}

  std::string description() const override { return "faulty"; }
  std::unique_ptr<GemmWeightPacker> make_packer(Dtype dtype, std::int64_t num_rows,
                                                std::int64_t num_columns) override {
    return own_->make_packer(dtype, num_rows, num_columns);
  }
  void prepare(const GemmWeight& weight, const GemmUse& use) override {
    own_->prepare(weight, use);
  }
  void run(StreamRef stream, const GemmCall& call) override {
    own_->run(stream, call);
    if (damages_all_ || call.num_rows() == faulty_count_) {
      fill_bytes(stream, call.out.slice(0, 0, 1), 0x3e);
    }
  }

 private:
  std::unique_ptr<GemmBackend> own_;
  std::int64_t faulty_count_;
  bool damages_all_;
};

class GemmTrialTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Device::available()) {
      GTEST_SKIP() << "no device";
    }
    device = Device::open({});
    own = make_own_gemm(*device);
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<GemmBackend> own;
};

TEST_F(GemmTrialTest, CodeWithOneReductionOrderKeepsItsBits) {
  FaultyGemm sound(*device, /*faulty_count=*/-1, /*damages_all=*/false);
  EXPECT_TRUE(keeps_bits(*device, sound, *own));
}

TEST_F(GemmTrialTest, AnotherResultForOneRowIsSeen) {
  FaultyGemm other_for_one(*device, /*faulty_count=*/1, /*damages_all=*/false);
  EXPECT_FALSE(keeps_bits(*device, other_for_one, *own));
}

TEST_F(GemmTrialTest, WrongValuesAreSeenThoughTheyAreAlwaysTheSame) {
  FaultyGemm wrong(*device, /*faulty_count=*/-1, /*damages_all=*/true);
  EXPECT_FALSE(keeps_bits(*device, wrong, *own));
}

}  // namespace
}  // namespace rigel::kernels

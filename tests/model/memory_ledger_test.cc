#include "model/memory_ledger.h"

#include "model/language_model_loader.h"
#include "model/synthetic_model.h"
#include "tests/model/null_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace rigel {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(MemoryLedger, LeavesWhatNoPartHasTaken) {
  MemoryLedger memory(100);
  memory.take("weights", 60);
  EXPECT_EQ(memory.left(), 40);
  memory.take("graphs", 30);
  memory.settle("graphs", 20);
  EXPECT_EQ(memory.left(), 20);
  EXPECT_EQ(memory.total(), 80);
  EXPECT_THAT(memory.parts(), ElementsAre(Pair("weights", 60), Pair("graphs", 20)));
  memory.take("kv_cache", 50);
  EXPECT_EQ(memory.left(), 0);
}

TEST(MemoryLedger, SaysWhichPartBrokeTheBudget) {
  MemoryLedger memory(100);
  memory.take("graphs", 10);
  memory.take("kv_cache", 90);
  try {
    memory.settle("graphs", 11);
    FAIL() << "101 bytes of 100";
  } catch (const std::invalid_argument& problem) {
    EXPECT_THAT(problem.what(),
                AllOf(HasSubstr("graphs take 11"), HasSubstr("10 were expected"),
                      HasSubstr("kv_cache 90"), HasSubstr("lower kv_cache_memory_bytes")));
  }
}

// What the ledger says of a model is what the device misses, but for page tables and the rounding of allocations.
TEST(MemoryLedger, AgreesWithTheDevice) {
  const auto device = testing::open_null_device();
  if (device == nullptr) {
    GTEST_SKIP() << "no device";
  }
  const std::int64_t before = device->free_memory_bytes();
  const ModelFiles files = synthetic_model_files(256);
  const LoadedLanguageModel model = load_language_model(*device, files,
                                                        {.max_length = 256,
                                                         .max_lanes = 32,
                                                         .max_tokens = 256,
                                                         .kv_cache_bytes = 1 << 30,
                                                         .capture = CaptureMode::kNever},
                                                        nullptr);
  std::int64_t entered = 0;
  for (const auto& [part, num_bytes] : model.memory) {
    EXPECT_GT(num_bytes, 0) << part;
    entered += num_bytes;
  }
  const std::int64_t taken = before - device->free_memory_bytes();
  EXPECT_GE(taken, entered);
  EXPECT_LE(taken, entered + (64 << 10));
}

}  // namespace
}  // namespace rigel

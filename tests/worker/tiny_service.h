#pragma once

#include "model/model_files.h"
#include "tensor/device.h"
#include "tests/test_data.h"
#include "worker/local_service.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace rigel::testing {

/// A page of the tiny model: 3 layers, K and V, 2 kv heads, 16 tokens, 16 elements of 4 bytes.
inline constexpr std::int64_t kTinyPageBytes = 3 * 2 * 2 * 16 * 16 * 4;

/// Tests of a whole service on a tiny model.
class TinyServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Device::available()) {
      GTEST_SKIP() << "no device";
    }
  }
  static const ModelFiles& files() {
    static const ModelFiles kFiles = open_model_files(test_data() / "tiny/llama-untied");
    return kFiles;
  }
};

}  // namespace rigel::testing

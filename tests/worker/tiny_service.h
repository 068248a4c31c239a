#pragma once

#include "model/model_files.h"
#include "tensor/device.h"
#include "tests/test_data.h"
#include "worker/local_service.h"

#include <gtest/gtest.h>

namespace rigel::testing {

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

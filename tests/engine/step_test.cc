#include "engine/step.h"

#include <gtest/gtest.h>

namespace rigel {
namespace {

TEST(SubmoduleStep, WhatWasDeclaredStaysWhereItIs) {
  SubmoduleStep step;
  SamplerStep& first = step.declare<SamplerStep>(ResourceKey{0});
  for (std::uint16_t key = 1; key < 20; ++key) {
    step.declare<KvStep>(ResourceKey{key});
  }
  EXPECT_EQ(&first, &step.declare<SamplerStep>(ResourceKey{0}));
  step.reset();
  EXPECT_EQ(step.find(ResourceKey{0}), nullptr);
  EXPECT_EQ(&first, &step.declare<SamplerStep>(ResourceKey{0}));
}

}  // namespace
}  // namespace rigel

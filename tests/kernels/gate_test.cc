#include "kernels/gate.h"

#include "tests/kernels/kernel_test.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace rigel::kernels {
namespace {

double silu(double x) {
  return x / (1.0 + std::exp(-x));
}
double gelu_tanh(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_erf(double x) {
  return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
}

double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu:
      return silu(x);
    case Activation::kGeluTanh:
      return gelu_tanh(x);
    case Activation::kGeluErf:
      return gelu_erf(x);
  }
  return 0;
}

// One rounding to bf16, or the last bits of f32. GELU's tails cancel, hence an absolute term there.
Tolerance gate_tolerance(Dtype dtype) {
  return {.relative = dtype == Dtype::kBf16 ? 0x1.02p-8 : 2e-6, .absolute = 2e-6};
}

class Gate : public KernelTest {
 protected:
  void expect_gate(Dtype dtype, Activation activation, std::int64_t rows, std::int64_t columns,
                   float scale) {
    const std::vector<float> in = rounded(dtype, random_floats(rows * 2 * columns, 6, scale));
    std::vector<double> expected;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        const auto at = static_cast<std::size_t>(row * 2 * columns + column);
        const double up = static_cast<double>(in[at + static_cast<std::size_t>(columns)]);
        expected.push_back(activated(activation, static_cast<double>(in[at])) * up);
      }
    }
    in_every_mode([&] {
      const DeviceView out = output(dtype, {rows, columns});
      gate(stream(), out, upload(dtype, {rows, 2 * columns}, in), activation);
      expect_close(download_floats(out), expected, gate_tolerance(dtype));
    });
  }
};

TEST_F(Gate, MatchesTheDoublePrecisionOracleAtOddSizes) {
  for (const Activation activation :
       {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf}) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kF32}) {
      for (const std::int64_t columns : {1, 7, 8, 100, 1032, 1536}) {
        expect_gate(dtype, activation, 3, columns, 6.0F);
      }
      expect_gate(dtype, activation, 0, 16, 1.0F);
      expect_gate(dtype, activation, 67, 512, 1.0F);
    }
  }
}

TEST_F(Gate, StaysFiniteWhereTheExponentialOverflows) {
  for (const Activation activation :
       {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf}) {
    const std::vector<float> in{-1e4F, 1e4F, -200.0F, 200.0F, -89.0F, 0.0F, -0.0F, -88.5F,
                                1.0F,  1.0F, 1.0F,    1.0F,   1.0F,   1.0F, 1.0F,  1.0F};
    in_every_mode([&] {
      const DeviceView out = output(Dtype::kF32, {1, 8});
      gate(stream(), out, upload({1, 16}, in), activation);
      expect_close(download_floats(out), {0, 1e4, 0, 200, 0, 0, 0, 0}, {.absolute = 1e-6});
    });
  }
}

TEST_F(Gate, AddsToTheResidualInFloat) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF32}) {
    for (const std::int64_t columns : {1, 9, 64, 577}) {
      const std::vector<float> residual = random_floats(3 * columns, 1, 100.0F);
      const std::vector<float> delta = rounded(dtype, random_floats(3 * columns, 2));
      std::vector<float> expected(residual.size());
      std::transform(residual.begin(), residual.end(), delta.begin(), expected.begin(),
                     std::plus<float>());
      in_every_mode([&] {
        const DeviceView updated = upload({3, columns}, residual);
        add_to_residual(stream(), updated, upload(dtype, {3, columns}, delta));
        EXPECT_EQ(download<float>(updated), expected);
      });
    }
  }
}

TEST_F(Gate, AddsActivationsWithOneRounding) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF32}) {
    for (const std::int64_t elements : {0, 1, 8, 13, 40'000, 100'001}) {
      const std::vector<float> a = rounded(dtype, random_floats(elements, 1));
      const std::vector<float> b = rounded(dtype, random_floats(elements, 2));
      std::vector<float> expected(a.size());
      std::transform(a.begin(), a.end(), b.begin(), expected.begin(), std::plus<float>());
      expected = rounded(dtype, expected);
      in_every_mode([&] {
        const DeviceView left = upload(dtype, {elements}, a);
        add(stream(), left, left, upload(dtype, {elements}, b));
        EXPECT_EQ(download_floats(left), expected);
      });
    }
  }
}

TEST_F(Gate, RefusesShapesThatDoNotAgree) {
  in_default_mode([&] {
    const DeviceView out = output(Dtype::kBf16, {2, 8});
    EXPECT_THROW(gate(stream(), out, output(Dtype::kBf16, {2, 15}), Activation::kSilu), CheckError);
    EXPECT_THROW(gate(stream(), out, output(Dtype::kF32, {2, 16}), Activation::kSilu), CheckError);
    EXPECT_THROW(add(stream(), out, out, output(Dtype::kBf16, {2, 9})), CheckError);
    EXPECT_THROW(add_to_residual(stream(), output(Dtype::kF32, {2, 8}), output(Dtype::kBf16, {8})),
                 CheckError);
  });
}

}  // namespace
}  // namespace rigel::kernels

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace simt {

/// What the virtual device refuses or finds, with the numbers and names that CUDA's runtime has for it.
enum class FaultCode : std::int16_t {
  kNone = 0,
  kInvalidValue = 1,
  kMemoryAllocation = 2,
  kIllegalAddress = 700,
  kLaunchFailure = 719,
  kStreamCaptureUnsupported = 900,
  kStreamCaptureInvalidated = 901,
  kStreamCaptureMerge = 902,
  kStreamCaptureUnmatched = 903,
  kStreamCaptureUnjoined = 904,
  kStreamCaptureIsolation = 905,
  kCapturedEvent = 907,
  kStreamCaptureWrongThread = 908,
  kGraphExecUpdateFailure = 910,
};

/// CUDA's name: "cudaErrorStreamCaptureUnsupported", ...
[[nodiscard]] std::string_view name_of(FaultCode code);

/// The outcome of a call of the virtual device: nothing, or a code and what happened. No call of it throws.
struct [[nodiscard]] DeviceFault {
  FaultCode code = FaultCode::kNone;
  std::string message;

  [[nodiscard]] bool ok() const { return code == FaultCode::kNone; }
  /// "cudaErrorIllegalAddress (700): a copy reads freed memory: ...".
  [[nodiscard]] std::string text() const;
};

}  // namespace simt

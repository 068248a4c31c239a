#include "simt/device_fault.h"

namespace simt {

std::string_view name_of(FaultCode code) {
  switch (code) {
    case FaultCode::kNone:
      return "cudaSuccess";
    case FaultCode::kInvalidValue:
      return "cudaErrorInvalidValue";
    case FaultCode::kMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case FaultCode::kIllegalAddress:
      return "cudaErrorIllegalAddress";
    case FaultCode::kLaunchFailure:
      return "cudaErrorLaunchFailure";
    case FaultCode::kStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case FaultCode::kStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case FaultCode::kStreamCaptureMerge:
      return "cudaErrorStreamCaptureMerge";
    case FaultCode::kStreamCaptureUnmatched:
      return "cudaErrorStreamCaptureUnmatched";
    case FaultCode::kStreamCaptureUnjoined:
      return "cudaErrorStreamCaptureUnjoined";
    case FaultCode::kStreamCaptureIsolation:
      return "cudaErrorStreamCaptureIsolation";
    case FaultCode::kCapturedEvent:
      return "cudaErrorCapturedEvent";
    case FaultCode::kStreamCaptureWrongThread:
      return "cudaErrorStreamCaptureWrongThread";
    case FaultCode::kGraphExecUpdateFailure:
      return "cudaErrorGraphExecUpdateFailure";
  }
  return "cudaErrorUnknown";
}

std::string DeviceFault::text() const {
  std::string text(name_of(code));
  text += " (";
  text += std::to_string(static_cast<int>(code));
  text += "): ";
  text += message;
  return text;
}

}  // namespace simt

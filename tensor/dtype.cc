#include "tensor/dtype.h"

namespace rigel {

std::string_view name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return "float32";
    case Dtype::kF16:
      return "float16";
    case Dtype::kBf16:
      return "bfloat16";
    case Dtype::kI8:
      return "int8";
    case Dtype::kI32:
      return "int32";
    case Dtype::kI64:
      return "int64";
    case Dtype::kU8:
      return "uint8";
    case Dtype::kBool:
      return "bool";
  }
  return "unknown";
}

}  // namespace rigel

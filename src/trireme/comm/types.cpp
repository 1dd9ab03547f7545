// Sizes and names of element types and reductions.
#include "trireme/comm/types.h"

#include <string>

#include "trireme/base/error.h"

namespace trireme {

size_t size_of(DataType type) {
  switch (type) {
    case DataType::kFloat:
    case DataType::kInt32:
      return 4;
    case DataType::kDouble:
    case DataType::kInt64:
      return 8;
    case DataType::kHalf:
    case DataType::kBFloat16:
      return 2;
    case DataType::kUInt8:
      return 1;
  }
  throw UsageError("no element type has the number " + std::to_string(static_cast<int>(type)));
}

std::string_view name_of(DataType type) {
  switch (type) {
    case DataType::kFloat:
      return "float";
    case DataType::kDouble:
      return "double";
    case DataType::kHalf:
      return "half";
    case DataType::kBFloat16:
      return "bfloat16";
    case DataType::kInt32:
      return "int32";
    case DataType::kInt64:
      return "int64";
    case DataType::kUInt8:
      return "uint8";
  }
  return "unknown";
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAverage:
      return "average";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kProduct:
      return "product";
  }
  return "unknown";
}

}  // namespace trireme

// Sizes and names of element types and reductions.
#include "trireme/comm/types.h"

#include <iterator>
#include <string>

#include "trireme/base/error.h"

namespace trireme {
namespace {

/// In the order of their enumerations.
struct TypeFacts {
  std::string_view name;
  size_t num_bytes;
};
constexpr TypeFacts kDataTypes[] = {{"float", 4}, {"double", 8}, {"half", 2}, {"bfloat16", 2},
                                    {"int32", 4}, {"int64", 8},  {"uint8", 1}};
constexpr std::string_view kReduceOps[] = {"sum", "average", "min", "max", "product"};
static_assert(std::size(kDataTypes) == static_cast<size_t>(DataType::kUInt8) + 1);
static_assert(std::size(kReduceOps) == static_cast<size_t>(ReduceOp::kProduct) + 1);

}  // namespace

size_t size_of(DataType type) {
  if (static_cast<size_t>(type) < std::size(kDataTypes)) return kDataTypes[static_cast<size_t>(type)].num_bytes;
  throw UsageError("no element type has the number " + std::to_string(static_cast<int>(type)));
}

std::string_view name_of(DataType type) {
  const auto index = static_cast<size_t>(type);
  return index < std::size(kDataTypes) ? kDataTypes[index].name : "unknown";
}

std::string_view name_of(ReduceOp op) {
  const auto index = static_cast<size_t>(op);
  return index < std::size(kReduceOps) ? kReduceOps[index] : "unknown";
}

}  // namespace trireme

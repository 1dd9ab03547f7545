#include "trireme/base/number_type.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme {

NumberType number_type(std::string_view name) {
  for (const auto& [alias, type] : kNumberTypeAliases) {
    if (name == alias) name = type;
  }
  if (const auto type = named<NumberType>(name)) return *type;
  throw UsageError(fmt::format("\"{}\" is not a type of numbers", name),
                   "there are " + join(all_names<NumberType>(), ", "));
}

}  // namespace trireme

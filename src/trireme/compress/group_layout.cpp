#include "trireme/compress/group_layout.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {

GroupLayout checked(GroupLayout layout) {
  if (layout.parts.empty()) layout.parts.push_back({layout.name, 0, 1, layout.count});
  std::vector<TensorPart> parts;
  size_t end = 0;
  const auto fill_up_to = [&](size_t offset) {
    if (end < offset) parts.push_back({fmt::format("{}/padding {}", layout.name, end), end, 1, offset - end});
  };
  for (TensorPart& part : layout.parts) {
    if (part.offset < end || part.offset + part.count() > layout.count) {
      throw UsageError(
          fmt::format("{} has elements {} to {} of group {}, which has {} elements, of which the first {} are "
                      "taken by what comes before",
                      part.name, part.offset, part.offset + part.count(), layout.name, layout.count, end),
          "give the tensors of a group in order, without overlap");
    }
    fill_up_to(part.offset);
    end = part.offset + part.count();
    parts.push_back(std::move(part));
  }
  fill_up_to(layout.count);
  layout.parts = std::move(parts);
  return layout;
}

}  // namespace trireme

#include "trireme/checkpoint/damage.h"

#include <fmt/format.h>

#include "trireme/base/units.h"
#include "trireme/config/value.h"

namespace trireme {

std::string Damage::place() const {
  std::string text = fmt::format("{}, byte {}", file, format_count(static_cast<int64_t>(byte)));
  if (tensor.empty()) return text;
  return text + (more_tensors > 0 ? fmt::format(" ({} and {} more)", printable(tensor), more_tensors)
                                  : fmt::format(" ({})", printable(tensor)));
}

std::string Damage::text() const { return place() + ": " + problem; }

DamagedError::DamagedError(const std::string& checkpoint, Damage damage)
    : Error(fmt::format("checkpoint {} is damaged: {}", checkpoint, damage.text()), {},
            {.parameter = damage.tensor, .file = damage.file}),
      damage_(std::move(damage)) {}

}  // namespace trireme

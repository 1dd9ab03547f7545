#include "trireme/models/initial.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/philox.h"

namespace trireme {

Initial default_initial(std::string_view parameter, std::span<const int64_t> shape) {
  if (parameter.ends_with("bias")) return Initial::constant(0);
  if (shape.size() < 2) return Initial::constant(1);
  if (shape.size() == 4) return Initial::normal(std::sqrt(2.0 / static_cast<double>(shape[0] * shape[2] * shape[3])));
  return Initial::normal(0.02);
}

void fill_initial(const Initial& initial, uint64_t seed, std::string_view parameter, std::span<float> out,
                  uint64_t first) {
  const auto value = static_cast<float>(initial.value);
  const Philox philox(seed, parameter);
  switch (initial.kind) {
    case Initial::Kind::kConstant:
      std::ranges::fill(out, value);
      return;
    case Initial::Kind::kNormal:
      philox.fill_normal(out, first);
      for (float& x : out) x *= value;
      return;
    case Initial::Kind::kUniform:
      philox.fill_uniform(out, first);
      for (float& x : out) x = (2 * x - 1) * value;
      return;
  }
}

}  // namespace trireme

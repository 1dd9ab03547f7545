// Where the ticks of a chart's axis stand and what they say. Used by plot.cpp only.
#pragma once

#include <string>
#include <vector>

#include "trireme/observe/plot.h"

namespace trireme {

struct Tick {
  double value;
  std::string label;  ///< empty for a minor tick
};

/// What a reader wants to see of one value: 0.5, 10, 4,980, 1.2M.
std::string format_number(double value);
/// In [low, high], about `wanted` of them with labels, ascending. On a logarithmic axis low is above 0.
std::vector<Tick> choose_ticks(double low, double high, Scale scale, int wanted);

}  // namespace trireme

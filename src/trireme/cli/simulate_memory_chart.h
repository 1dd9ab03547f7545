// Memory over time as a picture, for the page of a simulation.
#pragma once

#include <string>

#include "trireme/simulate/simulate.h"

namespace trireme::cli {

/// An <svg> element: a chart a rank, kind above kind, with the device's memory as a line; times as in the timeline.
std::string memory_chart(const Simulation& simulation);

}  // namespace trireme::cli

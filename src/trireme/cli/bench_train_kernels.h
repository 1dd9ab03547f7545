// Where a GPU's time goes: kernels, by what they are for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::cli {

/// All kernels of one name in a step.
struct KernelUse {
  std::string name;
  double us = 0;
};

struct KernelClassTime {
  std::string name;
  double ms = 0;
};

/// "matrix products", "attention", … by the name that the profiler gives; "rest" for what is not known.
std::string_view kernel_class(std::string_view kernel);

/// The classes that took any time, the longest first and "rest" last.
std::vector<KernelClassTime> time_by_class(const std::vector<KernelUse>& kernels);

}  // namespace trireme::cli

// Joins a world alone, and sums four floats over its one rank.
#include <iostream>
#include <vector>

#include "trireme/trireme.h"

int main() {
  auto world = trireme::World::join();
  std::vector<float> values{1, 2, 3, 4};
  world.comm().all_reduce(values);
  std::cout << "trireme " << trireme::kVersion << ", rank " << world.rank() << " of " << world.size() << ":";
  for (float value : values) std::cout << ' ' << value;
  std::cout << '\n';
  return values == std::vector<float>{1, 2, 3, 4} ? 0 : 1;
}
